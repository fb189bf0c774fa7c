//! Finds hosts that differ from the others: one slow or full host makes all others wait.

use crate::findings::JobFinding;
use crate::job::JobHistory;
use record::profile;
use record::stacks::{self, Member};
use record::term::{self, bytes};
use record::{Culprit, Exited, Profile, Role};
use std::collections::BTreeMap;
use std::time::Duration;

/// The processes for which others of their role waited during the recording.
pub fn slow(job: &JobHistory) -> Option<JobFinding> {
    let slow = profile::slow(&job.profiles)?;
    let of_member = |member: &Member| {
        let mut profiles = job.profiles.iter().rev();
        profiles.find(|one| one.member() == Some(*member))
    };
    let culprit = |profile: &Profile| Culprit {
        host: profile.host,
        id: profile.id,
        role: profile.role,
        rank: profile.rank,
    };
    let culprits: Vec<Culprit> = slow
        .members
        .iter()
        .filter_map(of_member)
        .map(culprit)
        .collect();
    let name = |members: &[Member]| match (&culprits[..], slow.host) {
        ([one], _) => job.name(one),
        (_, Some(host)) => format!("{} on {}", stacks::names(members), job.host_name(host)),
        (_, None) => stacks::names(members),
    };
    let finding =
        JobFinding::new(slow.sentence(name)).shown_by(slow.members.iter().filter_map(of_member));
    Some(match &culprits[..] {
        [one] => finding.caused_by(one.clone()),
        _ => finding,
    })
}

/// A value for each host that has one.
type Values = BTreeMap<u32, f64>;

struct ComparedQuantity {
    /// The sentence about a difference, with HOST, its value (OWN) and that of the OTHERS.
    text: &'static str,
    words: fn(f64) -> String,
    /// The factor by which the value must exceed the median of the others.
    factor: f64,
    /// The difference by which it must also exceed it.
    least: f64,
    fix: Option<&'static str>,
    values: fn(&JobHistory) -> Values,
    /// Adds records that show the value of a host.
    show: fn(JobFinding, &JobHistory, u32) -> JobFinding,
}

const QUANTITIES: [ComparedQuantity; 5] = [
    ComparedQuantity {
        text: "the partition of HOST has OWN, those of the others OTHERS",
        words: |value| bytes(value as u64),
        factor: 1.5,
        // differences below a megabyte cannot be noticed
        least: 1e6,
        fix: Some(
            "partition again with METIS and balance_ntypes, or give that host more processors",
        ),
        values: partitions,
        show: |finding, job, host| {
            let files = job.files.iter().filter(|file| file.host == Some(host));
            let of_partition = files.filter(|file| file.kind == "partition");
            finding.shown_by(of_partition.max_by_key(|file| file.bytes))
        },
    },
    ComparedQuantity {
        text: "HOST is slow: its servers listened OWN after their start, those of the others after \
               OTHERS",
        words: seconds,
        factor: 2.0,
        // python and torch alone take some seconds to load, with variation
        least: 5.0,
        fix: Some("look at what else runs on that host, at its disk and at its limits"),
        values: starts,
        show: |finding, job, host| {
            let mut started = job.lives().filter_map(|life| life.started.as_ref());
            let listening = job.lives().filter_map(|life| life.listening.as_ref());
            let listening = listening.filter(|one| one.host == host);
            finding
                .shown_by(started.find(|one| one.host == host))
                .shown_by(listening.max_by_key(|one| one.time_ms))
        },
    },
    ComparedQuantity {
        text: "a gigabyte takes OWN to HOST, OTHERS to the others",
        words: seconds,
        factor: 3.0,
        least: 5.0,
        fix: Some("look at that host's network and disk"),
        values: copies,
        show: |finding, job, host| {
            let of_host = job.pushed.iter().filter(|one| one.host == host);
            finding.shown_by(of_host.max_by_key(|one| one.sent_bytes))
        },
    },
    ComparedQuantity {
        text: "the trainers of HOST took OWN of CPU time, those of the others OTHERS",
        words: seconds,
        factor: 2.0,
        least: 10.0,
        fix: None,
        values: |job| {
            let exits = exits(job, Role::Trainer);
            sums(exits.filter_map(|one| Some((one.host, one.cpu_s?))))
        },
        show: |finding, job, host| {
            let exits = exits(job, Role::Trainer).filter(|one| one.host == host);
            finding.shown_by(exits.take(2))
        },
    },
    ComparedQuantity {
        text: "the servers of HOST took OWN of memory, those of the others OTHERS",
        words: |value| bytes(value as u64),
        factor: 1.5,
        least: 256e6,
        fix: None,
        values: |job| {
            let exits = exits(job, Role::Server);
            sums(exits.filter_map(|one| Some((one.host, one.max_rss_bytes? as f64))))
        },
        show: |finding, job, host| {
            let exits = exits(job, Role::Server).filter(|one| one.host == host);
            finding.shown_by(exits.take(2))
        },
    },
];

fn seconds(value: f64) -> String {
    term::seconds(Duration::from_secs_f64(value.clamp(0.0, 1e9)))
}

pub fn findings(job: &JobHistory) -> Vec<JobFinding> {
    QUANTITIES
        .iter()
        .filter_map(|quantity| outlier(job, quantity))
        .collect()
}

/// The finding about the host that is furthest above the median of the others, if far enough.
fn outlier(job: &JobHistory, quantity: &ComparedQuantity) -> Option<JobFinding> {
    let mut values = (quantity.values)(job);
    let largest = values.iter().max_by(|one, other| one.1.total_cmp(other.1));
    let (host, own) = largest.map(|(host, own)| (*host, *own))?;
    values.remove(&host);
    let others = median(values.into_values().collect())?;
    if own < others * quantity.factor || own - others < quantity.least {
        return None;
    }
    // the host comes last, because its name may be any text
    let text = (quantity.text)
        .replace("OWN", &(quantity.words)(own))
        .replace("OTHERS", &(quantity.words)(others))
        .replace("HOST", &job.host_name(host));
    let mut finding = JobFinding::new(text).caused_by(Culprit::of_host(host));
    finding.fix = quantity.fix.map(str::to_owned);
    Some((quantity.show)(finding, job, host))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0),
        _ => values.get(middle).copied(),
    }
}

fn sums(values: impl Iterator<Item = (u32, f64)>) -> Values {
    let mut sums = Values::new();
    values.for_each(|(host, value)| *sums.entry(host).or_default() += value);
    sums
}

/// The bytes of the files in each host's partition.
pub fn partitions(job: &JobHistory) -> Values {
    let files = job.files.iter();
    let files = files.filter(|file| file.kind == "partition" && file.bytes > 0);
    sums(files.filter_map(|file| Some((file.host?, file.bytes as f64))))
}

/// The seconds until the slowest server of each host listened.
fn starts(job: &JobHistory) -> Values {
    let mut values = Values::new();
    for life in job.lives() {
        if let (Some(started), Some(listening)) = (&life.started, &life.listening) {
            let took = listening.time_ms.saturating_sub(started.time_ms) as f64 / 1e3;
            let slowest = values.entry(started.host).or_insert(took);
            *slowest = slowest.max(took);
        }
    }
    values
}

/// Seconds for a gigabyte, for hosts that received enough to measure it.
fn copies(job: &JobHistory) -> Values {
    const ENOUGH_BYTES: f64 = 50e6;
    let sent = sums((job.pushed.iter()).map(|one| (one.host, one.sent_bytes as f64)));
    let mut elapsed_ms = BTreeMap::<u32, u64>::new();
    for one in &job.pushed {
        let longest = elapsed_ms.entry(one.host).or_default();
        *longest = one.elapsed_ms.max(*longest);
    }
    let enough = sent.into_iter().filter(|(_, bytes)| *bytes >= ENOUGH_BYTES);
    enough
        .map(|(host, bytes)| (host, elapsed_ms[&host] as f64 * 1e6 / bytes))
        .collect()
}

fn exits(job: &JobHistory, role: Role) -> impl Iterator<Item = &Exited> {
    let exits = job.lives().filter_map(|life| life.exited.as_ref());
    exits.filter(move |exited| exited.role == role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, middle) in [
            (vec![], None),
            (vec![3.0], Some(3.0)),
            (vec![5.0, 1.0], Some(3.0)),
            (vec![9.0, 1.0, 2.0], Some(2.0)),
        ] {
            assert_eq!(median(values.clone()), middle, "{values:?}");
        }
    }
}
