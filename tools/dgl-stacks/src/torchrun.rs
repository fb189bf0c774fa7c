//! Torchruns that have no rank: they wait for those of other hosts, or their ranks have ended.

use crate::ranks::{FoundJob, is_loopback};
use record::Host;
use record::error::Fault;
use record::term;
use std::collections::{BTreeMap, BTreeSet};
use wire::stacks::{RankProcess, Torchrun};

/// The most hosts that are named at once.
const NAMED: usize = 6;
/// Which torchrun gives its ranks, with its `--rdzv_id`.
const RUN_ID: &str = "TORCHELASTIC_RUN_ID";

/// A torchrun that has no rank.
pub struct Waiting {
    host: u32,
    pid: i32,
    command: String,
    torchrun: Torchrun,
}

/// The torchruns without a rank, and the hosts that have a torchrun at all.
#[derive(Default)]
pub struct Torchruns {
    waiting: Vec<Waiting>,
    hosts: BTreeSet<u32>,
}

impl Torchruns {
    pub fn of(found: &[(u32, RankProcess)]) -> Torchruns {
        // only torchrun gives its children this variable
        let is_rank = |process: &RankProcess| process.variables.contains_key(RUN_ID);
        let ranks = found.iter().filter(|(_, process)| is_rank(process));
        let with_rank: BTreeSet<(u32, i32)> = ranks
            .map(|(host, process)| (*host, process.parent))
            .collect();
        let all = found
            .iter()
            .filter(|(_, process)| process.torchrun.is_some());
        let all: BTreeSet<(u32, i32)> = all.map(|(host, process)| (*host, process.pid)).collect();
        let mut torchruns = Torchruns::default();
        for (host, process) in found {
            let Some(torchrun) = &process.torchrun else {
                continue;
            };
            torchruns.hosts.insert(*host);
            // a child has the command of its parent until it becomes a rank
            let is_child = all.contains(&(*host, process.parent));
            if !is_child && !with_rank.contains(&(*host, process.pid)) {
                torchruns.waiting.push(Waiting {
                    host: *host,
                    pid: process.pid,
                    command: process.command.clone(),
                    torchrun: torchrun.clone(),
                });
            }
        }
        torchruns
    }

    /// What keeps those whose command contains `text` waiting; `hosts` are all that were asked and
    /// answered.
    pub fn faults(&self, text: Option<&str>, hosts: &[&Host]) -> Vec<Fault> {
        let mut meetings: BTreeMap<(&str, u32, u32), Vec<&Waiting>> = BTreeMap::new();
        for one in &self.waiting {
            if text.is_none_or(|text| one.command.contains(text)) {
                let Torchrun {
                    id,
                    min_nodes,
                    max_nodes,
                    ..
                } = &one.torchrun;
                let meeting = meetings.entry((id, *min_nodes, *max_nodes)).or_default();
                meeting.push(one);
            }
        }
        let without = hosts.iter().filter(|host| !self.hosts.contains(&host.id));
        let without: Vec<String> = without.map(|host| host.location()).collect();
        let jobs = meetings.into_values().flat_map(jobs);
        jobs.map(|meeting| fault(&meeting, &without)).collect()
    }

    /// The hosts of this job on which torchrun has no rank, in a sentence; they may have joined
    /// late.
    pub fn late(&self, job: &FoundJob) -> Option<String> {
        let of_job = self.waiting.iter().filter(|one| {
            job.has_process(one.host, one.pid) || job.has_variable(RUN_ID, &one.torchrun.id)
        });
        let late: Vec<&Waiting> = of_job.collect();
        (!late.is_empty()).then(|| format!("torchrun has no rank on {}", names(&late)))
    }
}

/// More torchruns than there are nodes are of several jobs, which meet at different addresses.
fn jobs(meeting: Vec<&Waiting>) -> Vec<Vec<&Waiting>> {
    if meeting.len() as u64 <= u64::from(meeting[0].torchrun.max_nodes) {
        return vec![meeting];
    }
    let mut by_endpoint: BTreeMap<&str, Vec<&Waiting>> = BTreeMap::new();
    for one in meeting {
        let endpoint = by_endpoint.entry(&one.torchrun.endpoint).or_default();
        endpoint.push(one);
    }
    by_endpoint.into_values().collect()
}

/// `hosts 0, 1, 3`
fn names(torchruns: &[&Waiting]) -> String {
    let hosts: BTreeSet<u32> = torchruns.iter().map(|one| one.host).collect();
    let noun = if hosts.len() == 1 { "host" } else { "hosts" };
    let numbers = hosts.iter().map(u32::to_string);
    format!("{noun} {}", term::first_few(numbers, NAMED))
}

/// About torchruns that wait for each other; `without` are the hosts without any.
fn fault(meeting: &[&Waiting], without: &[String]) -> Fault {
    let Torchrun {
        min_nodes,
        max_nodes,
        ..
    } = meeting[0].torchrun;
    let nodes = if min_nodes == max_nodes {
        term::count(max_nodes.into(), "node")
    } else {
        format!("{min_nodes} to {max_nodes} nodes")
    };
    let mut reasons = vec![too_few(meeting, min_nodes, without)];
    reasons.extend([same_rank(meeting), endpoints(meeting)]);
    let mut reasons: Vec<Reason> = reasons.into_iter().flatten().collect();
    if reasons.is_empty() {
        reasons.push((
            format!("they meet at {}", meeting[0].torchrun.endpoint),
            "check that all hosts reach this address, and read what torchrun has printed",
        ));
    }
    let (words, fixes): (Vec<String>, Vec<&str>) = reasons.into_iter().unzip();
    let problem = format!(
        "torchrun waits on {} for {nodes} and has no rank; {}",
        names(meeting),
        words.join("; ")
    );
    Fault::item("--any", problem).fix(fixes.join("; "))
}

/// Why torchruns wait, in words, and the fix.
type Reason = (String, &'static str);

fn too_few(meeting: &[&Waiting], min_nodes: u32, without: &[String]) -> Option<Reason> {
    if meeting.len() as u64 >= u64::from(min_nodes) {
        return None;
    }
    if without.is_empty() {
        let found = term::count(meeting.len() as u64, "torchrun");
        return Some((
            format!("the hosts in the input have only {found}"),
            "give the hosts of all nodes, or start all torchruns with a smaller --nnodes",
        ));
    }
    let verb = if without.len() == 1 { "has" } else { "have" };
    Some((
        format!("{} {verb} no torchrun", term::first_few(without, NAMED)),
        "start torchrun there, too, or all of them with a smaller --nnodes",
    ))
}

fn same_rank(meeting: &[&Waiting]) -> Option<Reason> {
    let mut by_rank: BTreeMap<u32, Vec<&Waiting>> = BTreeMap::new();
    for one in meeting {
        if let Some(rank) = one.torchrun.node_rank {
            by_rank.entry(rank).or_default().push(one);
        }
    }
    let same = by_rank.into_iter().filter(|(_, all)| all.len() > 1);
    let same: Vec<String> = same
        .map(|(rank, all)| {
            format!(
                "{} torchruns on {} have node rank {rank}",
                all.len(),
                names(&all)
            )
        })
        .collect();
    let words = term::first_few(&same, NAMED);
    let fix = "give each torchrun another --node_rank, from 0 on";
    (!same.is_empty()).then_some((words, fix))
}

/// If they meet at several addresses, or each host at its own.
fn endpoints(meeting: &[&Waiting]) -> Option<Reason> {
    let mut by_endpoint: BTreeMap<&str, Vec<&Waiting>> = BTreeMap::new();
    for one in meeting {
        let endpoint = by_endpoint.entry(&one.torchrun.endpoint).or_default();
        endpoint.push(one);
    }
    let is_local = |endpoint: &str| {
        let parts = endpoint.rsplit_once(':');
        let address = parts.map_or(endpoint, |(address, _)| address);
        is_loopback(address.trim_matches(['[', ']']))
    };
    let has_several_hosts = meeting.iter().any(|one| one.host != meeting[0].host);
    let is_local = has_several_hosts && is_local(&meeting[0].torchrun.endpoint);
    let meet = by_endpoint.iter();
    let meet = meet.map(|(endpoint, all)| format!("at {endpoint} on {}", names(all)));
    let words = format!("they meet {}", term::first_few(meet, NAMED));
    let fix = "give all the same address of one host, as --rdzv_endpoint or --master_addr";
    (by_endpoint.len() > 1 || is_local).then_some((words, fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks;

    /// The process with this pid and its torchrun, of 4 nodes.
    fn torchrun(pid: i32, node_rank: Option<u32>, endpoint: &str) -> RankProcess {
        RankProcess {
            pid,
            parent: 1,
            is_python: true,
            command: "python3 torchrun train.py".to_owned(),
            torchrun: Some(Torchrun {
                min_nodes: 4,
                max_nodes: 4,
                node_rank,
                endpoint: endpoint.to_owned(),
                id: "none".to_owned(),
            }),
            ..RankProcess::default()
        }
    }

    fn rank(number: u32, parent: i32) -> RankProcess {
        let variables = [
            ("RANK", number.to_string()),
            ("WORLD_SIZE", "4".to_owned()),
            ("MASTER_ADDR", "h0".to_owned()),
            ("TORCHELASTIC_RUN_ID", "none".to_owned()),
        ];
        RankProcess {
            pid: 20,
            parent,
            is_python: true,
            variables: variables
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            ..RankProcess::default()
        }
    }

    fn hosts(number: u32) -> Vec<Host> {
        let host = |id| Host {
            id,
            ..Host::default()
        };
        (0..number).map(host).collect()
    }

    fn problems(found: &[(u32, RankProcess)], given: u32) -> Vec<String> {
        let hosts = hosts(given);
        let hosts: Vec<&Host> = hosts.iter().collect();
        let faults = Torchruns::of(found).faults(None, &hosts).into_iter();
        faults.map(|fault| fault.problem).collect()
    }

    #[test]
    fn whatever_keeps_torchruns_waiting_is_named() {
        let at = |host, node_rank| (host, torchrun(10, node_rank, "h0:1"));
        let waits = |hosts| format!("torchrun waits on {hosts} for 4 nodes and has no rank");
        let (three, four) = (waits("hosts 0, 1, 3"), waits("hosts 0, 1, 2, 3"));
        let c10d = [0, 1, 3].map(|host| at(host, None));
        let of = |host, endpoint| (host, torchrun(10, None, endpoint));
        let mut range = at(0, None);
        range.1.torchrun.as_mut().unwrap().max_nodes = 6;
        let table = [
            (
                c10d.to_vec(),
                4,
                format!("{three}; host 2 (0.0.0.0) has no torchrun"),
            ),
            (
                vec![range],
                2,
                "torchrun waits on host 0 for 4 to 6 nodes and has no rank; host 1 (0.0.0.0) has \
                 no torchrun"
                    .to_owned(),
            ),
            (
                c10d[..2].to_vec(),
                2,
                format!(
                    "{}; the hosts in the input have only 2 torchruns",
                    waits("hosts 0, 1")
                ),
            ),
            (
                vec![
                    at(0, Some(0)),
                    at(1, Some(1)),
                    at(2, Some(1)),
                    at(3, Some(3)),
                ],
                4,
                format!("{four}; 2 torchruns on hosts 1, 2 have node rank 1"),
            ),
            (
                vec![of(0, "h0:1"), of(1, "h0:1"), of(2, "h0:2"), of(3, "h0:1")],
                4,
                format!("{four}; they meet at h0:1 on hosts 0, 1, 3, at h0:2 on host 2"),
            ),
            (
                [0, 1, 2, 3]
                    .map(|host| of(host, "127.0.0.1:29500"))
                    .to_vec(),
                4,
                format!("{four}; they meet at 127.0.0.1:29500 on hosts 0, 1, 2, 3"),
            ),
            (
                [0, 1, 2, 3].map(|host| at(host, Some(host))).to_vec(),
                4,
                format!("{four}; they meet at h0:1"),
            ),
        ];
        for (found, given, expected) in table {
            assert_eq!(problems(&found, given), [expected], "{found:?}");
        }
    }

    #[test]
    fn jobs_that_meet_elsewhere_are_told_apart() {
        let at = |host, endpoint| (host, torchrun(10, None, endpoint));
        let first = [0, 1, 2, 3].map(|host| at(host, "h0:1"));
        let second = [4, 5, 6].map(|host| at(host, "h4:1"));
        let expected = [
            "torchrun waits on hosts 0, 1, 2, 3 for 4 nodes and has no rank; they meet at h0:1",
            "torchrun waits on hosts 4, 5, 6 for 4 nodes and has no rank; host 7 (0.0.0.0) has no \
             torchrun",
        ];
        let found = [&first[..], &second[..]].concat();
        assert_eq!(problems(&found, 8), expected);
    }

    #[test]
    fn a_torchrun_with_a_rank_waits_for_nobody() {
        let mut forked = torchrun(11, None, "h0:1");
        forked.parent = 10;
        let found = [
            (0, torchrun(10, None, "h0:1")),
            (0, rank(0, 10)),
            (1, torchrun(10, None, "h0:1")),
            (1, forked),
        ];
        let torchruns = Torchruns::of(&found);
        let waiting = torchruns.waiting.iter().map(|one| (one.host, one.pid));
        assert_eq!(waiting.collect::<Vec<_>>(), [(1, 10)]);
    }

    #[test]
    fn commands_and_jobs_choose_among_those_that_wait() {
        let found = [
            (0, torchrun(10, None, "h0:1")),
            (0, rank(0, 10)),
            (1, torchrun(10, None, "h0:1")),
        ];
        let torchruns = Torchruns::of(&found);
        assert_eq!(torchruns.faults(Some("train.py"), &[]).len(), 1);
        assert_eq!(torchruns.faults(Some("other.py"), &[]).len(), 0);
        let late = |variables: RankProcess| {
            let jobs = ranks::jobs(vec![(0, variables)]);
            torchruns.late(&jobs[0])
        };
        let expected = "torchrun has no rank on host 1".to_owned();
        assert_eq!(late(rank(0, 10)), Some(expected));
        let mut other = rank(0, 10);
        other
            .variables
            .insert("TORCHELASTIC_RUN_ID".to_owned(), "7".to_owned());
        assert_eq!(late(other), None);
    }
}
