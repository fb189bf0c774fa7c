//! The processes of a job: descendants of this process, and processes with the job's token.
//!
//! This process is a subreaper, so it adopts daemons, whatever they did to their environment and
//! session. The token finds processes that another daemon has started.

use agent_stacks::Known;
use host::job_processes::{self, JobProcess};
use host::netlink;
use host::processes::{self, ProcessHandle};
use host::procfs::{self, Stat};
use job::Role;
use std::collections::{BTreeMap, BTreeSet};
use wire::reap::Pick;

#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub index: u32,
    pub pid: i32,
    pub role: Role,
    pub rank: u32,
    /// Whether it works only for others now: a graph server that listens, or a service.
    pub serves: bool,
}

/// All live processes of the job that this process must end, without itself. If several hosts of
/// the job are on this machine, each supervisor ends its own descendants, and the oldest one also
/// ends processes that descend from none, so that no signal is sent twice.
pub fn of_job(token: &str) -> BTreeSet<ProcessHandle> {
    let own_pid = own_pid();
    let below = processes::find_below(own_pid)
        .into_iter()
        .filter(|process| !processes::is_outside(process.pid));
    let mut found: BTreeSet<ProcessHandle> = below.chain(processes::find_by_token(token)).collect();
    let mut others = processes::supervisors_of(&BTreeSet::from([token.to_owned()]));
    others.retain(|other| other.pid != own_pid);
    if others.is_empty() {
        return found;
    }
    let is_oldest = ProcessHandle::of(own_pid).is_none_or(|own| is_oldest(own, &others));
    let stats = procfs::stats();
    found.retain(|process| {
        let is_supervisor =
            |pid: &i32| *pid == own_pid || others.iter().any(|other| other.pid == *pid);
        let nearest = processes::line_of(&stats, process.pid).find(is_supervisor);
        nearest.map_or(is_oldest, |pid| pid == own_pid)
    });
    found
}

/// Of several that started in the same clock tick, the one with the lowest process id counts as the
/// oldest.
fn is_oldest(own: ProcessHandle, others: &[ProcessHandle]) -> bool {
    let age = |process: &ProcessHandle| (process.start_ticks, process.pid);
    others.iter().all(|other| age(&own) < age(other))
}

pub fn known(token: &str, pick: &Pick) -> Vec<Known> {
    selected(token, pick).iter().map(Known::from).collect()
}

pub fn selected(token: &str, pick: &Pick) -> Vec<JobProcess> {
    let own = of_job(token);
    let mut found = job_processes::selected(pick);
    found.retain(|found| own.contains(&found.member.process));
    found
}

/// The descendants of each of these processes, given by index and process id, with itself. A
/// descendant of several belongs to the closest.
pub fn families(
    stats: &BTreeMap<i32, Stat>,
    roots: impl IntoIterator<Item = (u32, i32)>,
) -> BTreeMap<u32, BTreeSet<i32>> {
    let roots: BTreeMap<i32, u32> = roots.into_iter().map(|(index, pid)| (pid, index)).collect();
    let mut families: BTreeMap<u32, BTreeSet<i32>> = roots
        .values()
        .map(|index| (*index, BTreeSet::new()))
        .collect();
    for pid in stats.keys() {
        let index = processes::line_of(stats, *pid).find_map(|pid| roots.get(&pid));
        if let Some(family) = index.and_then(|index| families.get_mut(index)) {
            family.insert(*pid);
        }
    }
    families
}

/// Whether the process or a descendant listens on a port. Another process may listen on it, too.
pub fn listens(pid: i32, port: u16) -> bool {
    let ports = netlink::listening_ports();
    let wanted: Vec<u64> = ports
        .into_iter()
        .filter(|(_, other)| *other == port)
        .map(|(inode, _)| inode)
        .collect();
    let holds_socket = |pid: i32| {
        let inodes = procfs::socket_inodes(pid);
        inodes.iter().any(|inode| wanted.contains(inode))
    };
    let below = || processes::find_below(pid);
    !wanted.is_empty()
        && (holds_socket(pid) || below().iter().any(|process| holds_socket(process.pid)))
}

/// A child of this process that has ended and was not waited for.
pub fn dead_child() -> Option<i32> {
    let own_pid = own_pid();
    let is_dead_child = |stat: &Stat| stat.has_ended() && stat.parent == own_pid;
    let mut stats = procfs::stats().into_iter();
    stats.find_map(|(pid, stat)| is_dead_child(&stat).then_some(pid))
}

pub fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_supervisor_is_the_oldest() {
        let process = |(pid, start_ticks)| ProcessHandle { pid, start_ticks };
        for ages in [[(70, 5), (71, 5), (72, 5)], [(70, 6), (71, 5), (72, 5)]] {
            let all = ages.map(process);
            let oldest = all.iter().filter(|own| {
                let others: Vec<_> = all.iter().filter(|other| other != own).copied().collect();
                is_oldest(**own, &others)
            });
            assert_eq!(oldest.count(), 1, "{ages:?}");
        }
    }

    #[test]
    fn children_count_with_who_was_started() {
        let stat = |parent| Stat {
            state: 'S',
            parent,
            group: 0,
            session: 0,
            cpu_ticks: 0,
            children_ticks: 0,
            start_ticks: 0,
        };
        let parents = [
            (1, 0),
            (10, 1),
            (11, 10),
            (12, 11),
            (20, 1),
            (30, 1),
            (31, 30),
        ];
        let stats = parents.map(|(pid, parent)| (pid, stat(parent))).into();
        let found = families(&stats, [(0, 10), (1, 20), (2, 99)]);
        let expected = [(0, [10, 11, 12].into()), (1, [20].into()), (2, [].into())];
        assert_eq!(found, expected.into());
    }
}
