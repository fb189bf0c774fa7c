//! Chooses suitable hosts of a longer list, and ports that are free on all of them.

use crate::plan::ProbeAnswer;
use record::python::odd_versions;
use record::term;
use record::{Facts, GpuCard, Host};
use std::collections::BTreeSet;
use wire::probe::SERVER_PORTS;

/// The requirements. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    pub hosts: u32,
    /// Free in the workspace.
    pub min_disk: Option<u64>,
    /// Free in /dev/shm.
    pub min_shm: Option<u64>,
    pub min_memory: Option<u64>,
    /// Free on each GPU; a host without a GPU is not taken.
    pub min_gpu_memory: Option<u64>,
    /// Ports that must be free, from the server port on.
    pub free_ports: Option<u16>,
    pub mixed_versions: bool,
}

/// Hosts by position in the list.
#[derive(Debug, Default, PartialEq)]
pub struct Choice {
    /// The first suitable hosts, as many as needed.
    pub kept: Vec<usize>,
    /// Further suitable hosts.
    pub spare: Vec<usize>,
    /// The other hosts, and why they are unsuitable.
    pub left_out: Vec<(usize, String)>,
}

/// `answers` has each host's answer, or why it is unusable.
pub fn choose(hosts: &[Host], answers: &[Result<&ProbeAnswer, &str>], need: &Need) -> Choice {
    let mut choice = Choice::default();
    let mut usable = Vec::new();
    let mut found: Vec<(&Host, &Facts)> = Vec::new();
    for (index, (host, answer)) in hosts.iter().zip(answers).enumerate() {
        let lacks = match answer {
            Ok(answer) => lacks(host, answer, need).map_or(Ok(&answer.facts), Err),
            Err(problem) => Err((*problem).to_owned()),
        };
        match lacks {
            Ok(facts) => {
                usable.push(index);
                found.push((host, facts));
            }
            Err(lacks) => choice.left_out.push((index, lacks)),
        }
    }
    for (index, differences) in usable.into_iter().zip(odd_versions(&found, true)) {
        match differences {
            Some(differences) if !need.mixed_versions => {
                choice
                    .left_out
                    .push((index, format!("it has {differences}")));
            }
            _ if choice.kept.len() < need.hosts as usize => choice.kept.push(index),
            _ => choice.spare.push(index),
        }
    }
    choice.left_out.sort_unstable();
    choice
}

/// `None` if it is suitable.
fn lacks(host: &Host, answer: &ProbeAnswer, need: &Need) -> Option<String> {
    let facts = &answer.facts;
    let room = [
        ("free in the workspace", facts.free_bytes, need.min_disk),
        ("free in /dev/shm", facts.shm_free_bytes, need.min_shm),
        ("of main memory", facts.usable_mem_bytes(), need.min_memory),
    ];
    for (what, has, least) in room {
        if let Some(least) = least
            && has.is_none_or(|has| has < least)
        {
            return Some(too_little(has, what, least));
        }
    }
    if let Some(problem) = gpu_lacks(facts, need.min_gpu_memory) {
        return Some(problem);
    }
    if !answer.occupancy.jobs.is_empty() {
        let jobs = answer.occupancy.jobs.join(", ");
        return Some(format!("another job is running: {jobs}"));
    }
    let last = host.port.saturating_add(need.free_ports?.saturating_sub(1));
    let taken = (host.port..=last).find(|port| answer.occupancy.ports.contains(port))?;
    Some(format!("port {taken} is in use"))
}

fn too_little(has: Option<u64>, what: &str, least: u64) -> String {
    let has = has.map_or("an unknown amount is".to_owned(), |has| {
        format!("{} are", term::bytes(has))
    });
    format!("{has} {what}, less than {}", term::bytes(least))
}

/// Why a host's GPUs are unsuitable, if this much memory of each must be free.
fn gpu_lacks(facts: &Facts, least: Option<u64>) -> Option<String> {
    let least = least?;
    match (facts.gpus, &facts.gpu_cards[..]) {
        (None, []) | (Some(0), _) => Some("it has no GPU".to_owned()),
        (_, []) => Some("nvidia-smi lists none of its GPUs".to_owned()),
        (_, cards) => {
            let free = |card: &GpuCard| card.mem_free_bytes;
            let card = cards
                .iter()
                .find(|card| free(card).is_none_or(|free| free < least))?;
            let what = format!("free on GPU {}", card.index);
            Some(too_little(free(card), &what, least))
        }
    }
}

/// The first of `count` successive ports that are free on all hosts.
pub fn free_port<'a>(
    answers: impl IntoIterator<Item = &'a ProbeAnswer>,
    count: u16,
) -> Option<u16> {
    let taken: BTreeSet<u16> = answers
        .into_iter()
        .flat_map(|answer| answer.occupancy.ports.iter().copied())
        .collect();
    let mut first = *SERVER_PORTS.start();
    loop {
        let last = first.checked_add(count.saturating_sub(1))?;
        if last > *SERVER_PORTS.end() {
            return None;
        }
        match taken.range(first..=last).next_back() {
            None => return Some(first),
            Some(in_use) => first = in_use + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::probe::Occupancy;

    fn answer(dgl: Option<&str>, shm: u64, jobs: &[&str], ports: &[u16]) -> ProbeAnswer {
        ProbeAnswer {
            facts: Facts {
                dgl: dgl.map(str::to_owned),
                torch: dgl.map(|_| "2.1".to_owned()),
                python: Some("3.11.2".to_owned()),
                shm_free_bytes: Some(shm),
                ..Facts::default()
            },
            occupancy: Occupancy {
                jobs: jobs.iter().map(|job| (*job).to_owned()).collect(),
                ports: ports.iter().copied().collect(),
            },
            ..ProbeAnswer::default()
        }
    }

    /// One without DGL.
    fn plain() -> ProbeAnswer {
        answer(None, 1, &[], &[])
    }

    fn need(hosts: u32) -> Need {
        Need {
            hosts,
            ..Need::default()
        }
    }

    /// Why the first rejected host is left out.
    fn why_not(choice: &Choice) -> Option<&str> {
        choice.left_out.first().map(|(_, why)| why.as_str())
    }

    fn hosts(count: usize) -> Vec<Host> {
        let host = Host {
            port: 30050,
            ..Host::default()
        };
        vec![host; count]
    }

    #[test]
    fn the_first_good_hosts_are_taken_and_of_each_other_it_is_known_why_not() {
        let (good, busy) = (
            answer(Some("1.0.4"), 10, &[], &[]),
            answer(Some("1.0.4"), 10, &["try7"], &[]),
        );
        let (small, other) = (
            answer(Some("1.0.4"), 5, &[], &[]),
            answer(Some("2.1.0"), 10, &[], &[]),
        );
        let (none, taken) = (
            answer(None, 10, &[], &[]),
            answer(Some("1.0.4"), 10, &[], &[30051]),
        );
        let answers = [
            Ok(&other),
            Ok(&good),
            Err("no route"),
            Ok(&busy),
            Ok(&small),
            Ok(&none),
            Ok(&taken),
            Ok(&good),
            Ok(&good),
        ];
        let need = Need {
            min_shm: Some(8),
            free_ports: Some(2),
            ..need(2)
        };
        let choice = choose(&hosts(9), &answers, &need);
        assert_eq!((choice.kept, choice.spare), (vec![1, 7], vec![8]));
        let why: Vec<(usize, &str)> = choice
            .left_out
            .iter()
            .map(|(host_index, why)| (*host_index, why.as_str()))
            .collect();
        let there = "where host 0 (0.0.0.0) has";
        assert_eq!(
            why,
            [
                (0, format!("it has dgl 2.1.0, {there} 1.0.4").as_str()),
                (2, "no route"),
                (3, "another job is running: try7"),
                (4, "5 B are free in /dev/shm, less than 8 B"),
                (
                    5,
                    format!("it has no torch, {there} 2.1; no dgl, {there} 1.0.4").as_str()
                ),
                (6, "port 30051 is in use"),
            ]
        );
    }

    #[test]
    fn hosts_without_dgl_are_alike_and_ports_count_where_they_are_kept() {
        let (none, taken) = (plain(), answer(None, 1, &[], &[30050]));
        let need = need(3);
        let choice = choose(&hosts(2), &[Ok(&none), Ok(&taken)], &need);
        assert_eq!((choice.kept, choice.left_out), (vec![0, 1], vec![]));
    }

    #[test]
    fn another_python_is_another_version_and_a_patch_of_it_is_none() {
        let of = |python: Option<&str>| {
            let mut answer = answer(Some("1.0.4"), 1, &[], &[]);
            answer.facts.python = python.map(str::to_owned);
            answer
        };
        let (old, patched, other) = (of(Some("3.8.1")), of(Some("3.8.20")), of(Some("3.11.2")));
        let need = need(2);
        let choice = choose(&hosts(3), &[Ok(&other), Ok(&old), Ok(&patched)], &need);
        assert_eq!(choice.kept, [1, 2]);
        assert_eq!(
            choice.left_out[0].1,
            "it has python 3.11, where host 0 (0.0.0.0) has 3.8"
        );
        let mixed = Need {
            mixed_versions: true,
            ..need
        };
        let choice = choose(&hosts(3), &[Ok(&other), Ok(&old), Ok(&patched)], &mixed);
        assert_eq!(choice.kept, [0, 1]);
    }

    #[test]
    fn each_gpu_has_so_much_free() {
        let of = |gpus: u32, free: &[Option<u64>]| {
            let mut answer = plain();
            answer.facts.gpus = Some(gpus);
            let card = |(index, free): (u32, &Option<u64>)| GpuCard {
                index,
                mem_bytes: Some(80),
                mem_free_bytes: *free,
                ..GpuCard::default()
            };
            answer.facts.gpu_cards = (0..).zip(free).map(card).collect();
            answer
        };
        let need = Need {
            min_gpu_memory: Some(40),
            ..need(1)
        };
        let table = [
            (of(2, &[Some(80), Some(40)]), None),
            (of(0, &[]), Some("it has no GPU")),
            (of(2, &[]), Some("nvidia-smi lists none of its GPUs")),
            (
                of(2, &[Some(80), Some(39)]),
                Some("39 B are free on GPU 1, less than 40 B"),
            ),
            (
                of(1, &[None]),
                Some("an unknown amount is free on GPU 0, less than 40 B"),
            ),
        ];
        for (answer, why) in table {
            let choice = choose(&hosts(1), &[Ok(&answer)], &need);
            assert_eq!(why_not(&choice), why);
        }
    }

    #[test]
    fn memory_that_a_control_group_withholds_does_not_count() {
        let mut answer = plain();
        answer.facts.mem_bytes = Some(80);
        let need = Need {
            min_memory: Some(40),
            ..need(1)
        };
        for (limit, why) in [
            (None, None),
            (Some(40), None),
            (Some(39), Some("39 B are of main memory, less than 40 B")),
        ] {
            answer.facts.mem_limit_bytes = limit;
            let choice = choose(&hosts(1), &[Ok(&answer)], &need);
            assert_eq!(why_not(&choice), why);
        }
    }

    #[test]
    fn a_fact_that_is_not_known_is_not_enough() {
        let mut unknown = plain();
        unknown.facts.shm_free_bytes = None;
        let need = Need {
            min_shm: Some(1),
            ..need(1)
        };
        let choice = choose(&hosts(1), &[Ok(&unknown)], &need);
        assert_eq!(
            choice.left_out[0].1,
            "an unknown amount is free in /dev/shm, less than 1 B"
        );
    }

    #[test]
    fn ports_that_are_free_on_all() {
        let table: [(&[&[u16]], u16, Option<u16>); 5] = [
            (&[&[], &[]], 1, Some(30050)),
            (&[&[30050], &[30051]], 1, Some(30052)),
            (&[&[30052], &[30055]], 3, Some(30056)),
            (&[&[30052], &[30056]], 3, Some(30053)),
            (&[&[]], 32767 - 30050 + 2, None),
        ];
        for (ports, count, wanted) in table {
            let answers: Vec<ProbeAnswer> = ports
                .iter()
                .map(|ports| answer(None, 1, &[], ports))
                .collect();
            assert_eq!(free_port(&answers, count), wanted, "{ports:?} {count}");
        }
    }
}
