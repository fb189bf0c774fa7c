//! Finds hosts that differ from the others: one slow or full host makes all others wait.

use crate::findings::JobFinding;
use crate::job::JobHistory;
use record::profile;
use record::stacks::{self, Member};
use record::term::{self, bytes};
use record::{Culprit, FileCopy, Profile};
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

/// The hosts that make all others wait: one has more work than the others, or is slow.
pub fn findings(job: &JobHistory) -> Vec<JobFinding> {
    let found = [larger_partition(job), slow_start(job)];
    found.into_iter().flatten().collect()
}

fn larger_partition(job: &JobHistory) -> Option<JobFinding> {
    // differences below a megabyte cannot be noticed
    let outlier = outlier(partitions(job), 1.5, 1_000_000)?;
    let text = format!(
        "the partition of {} has {}, those of the others {}",
        job.host_name(outlier.host),
        bytes(outlier.own),
        bytes(outlier.others)
    );
    let files = partition_files(job).filter(|file| file.host == Some(outlier.host));
    let fix = "partition again with METIS and balance_ntypes, or give that host more processors";
    let finding = JobFinding::new(text).caused_by(Culprit::of_host(outlier.host));
    Some(
        finding
            .fix(fix)
            .shown_by(files.max_by_key(|file| file.bytes)),
    )
}

fn slow_start(job: &JobHistory) -> Option<JobFinding> {
    let mut starts = BTreeMap::new();
    for life in job.lives() {
        if let (Some(started), Some(listening)) = (&life.started, &life.listening) {
            let took_ms = listening.time_ms.saturating_sub(started.time_ms);
            let slowest = starts.entry(started.host).or_insert(took_ms);
            *slowest = took_ms.max(*slowest);
        }
    }
    // python and torch alone take some seconds to load, with variation
    let outlier = outlier(starts, 2.0, 5000)?;
    let text = format!(
        "{} is slow: its servers listened {} after their start, those of the others after {}",
        job.host_name(outlier.host),
        term::seconds(Duration::from_millis(outlier.own)),
        term::seconds(Duration::from_millis(outlier.others))
    );
    let mut started = job.lives().filter_map(|life| life.started.as_ref());
    let listening = job.lives().filter_map(|life| life.listening.as_ref());
    let listening = listening.filter(|one| one.host == outlier.host);
    let finding = JobFinding::new(text)
        .caused_by(Culprit::of_host(outlier.host))
        .fix("look at what else runs on that host, at its disk and at its limits")
        .shown_by(started.find(|one| one.host == outlier.host))
        .shown_by(listening.max_by_key(|one| one.time_ms));
    Some(finding)
}

struct Outlier {
    host: u32,
    /// Its value.
    own: u64,
    /// The median of the others' values.
    others: u64,
}

/// The host whose value is the largest, if it exceeds the median of the others by this factor and
/// by this difference.
fn outlier(mut values: BTreeMap<u32, u64>, factor: f64, least: u64) -> Option<Outlier> {
    let largest = values.iter().max_by_key(|(_, value)| **value);
    let (host, own) = largest.map(|(host, own)| (*host, *own))?;
    values.remove(&host);
    let others = median(values.into_values().collect())?;
    let is_far = own as f64 >= others as f64 * factor && own.saturating_sub(others) >= least;
    is_far.then_some(Outlier { host, own, others })
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => Some(
            values
                .get(middle.checked_sub(1)?)?
                .midpoint(*values.get(middle)?),
        ),
        _ => values.get(middle).copied(),
    }
}

/// The bytes of the files in each host's partition.
pub fn partitions(job: &JobHistory) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::<u32, u64>::new();
    for file in partition_files(job) {
        if let Some(host) = file.host {
            let sum = sums.entry(host).or_default();
            *sum = sum.saturating_add(file.bytes);
        }
    }
    sums
}

fn partition_files(job: &JobHistory) -> impl Iterator<Item = &FileCopy> {
    let files = job.files.iter();
    files.filter(|file| file.kind == "partition" && file.bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, middle) in [
            (vec![], None),
            (vec![3], Some(3)),
            (vec![5, 1], Some(3)),
            (vec![9, 1, 2], Some(2)),
        ] {
            assert_eq!(median(values.clone()), middle, "{values:?}");
        }
    }
}
