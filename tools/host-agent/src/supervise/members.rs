//! The processes of a job: those that descend from this one, and those that carry the job's token.
//!
//! A process that becomes a daemon comes back to us, because we are its subreaper, whatever it did
//! to its environment and its session. A process that another daemon has started is found by the
//! token.

use crate::processes::{self, ProcessHandle};
use crate::procfs::{self, Stat};
use job::Role;
use std::collections::{BTreeMap, BTreeSet};

/// A process that the supervisor has started and that runs.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// The number of the process on its host.
    pub index: u32,
    pub pid: i32,
    pub role: Role,
    pub rank: u32,
    /// Whether it works only for other processes now: a graph server that listens, or one of a
    /// service.
    pub serves: bool,
}

/// All processes of the job that are alive and this process's to end; never this process itself. If
/// the job has several hosts on this machine, each of their supervisors ends what it started, and
/// the oldest what comes from none of them: a signal must not come twice.
pub fn of_job(token: &str) -> BTreeSet<ProcessHandle> {
    let own = own_pid();
    let below = processes::find_below(own)
        .into_iter()
        .filter(|process| !processes::is_outside(process.pid));
    let mut found: BTreeSet<ProcessHandle> = below.chain(processes::find_by_token(token)).collect();
    let mut others = processes::supervisors_of(&BTreeSet::from([token.to_owned()]));
    others.retain(|other| other.pid != own);
    if others.is_empty() {
        return found;
    }
    let own_start = procfs::stat(own).map(|stat| stat.start_ticks);
    let is_oldest = others
        .iter()
        .all(|other| own_start < Some(other.start_ticks));
    let stats = procfs::stats();
    found.retain(|process| {
        let is_supervisor = |pid: &i32| *pid == own || others.iter().any(|other| other.pid == *pid);
        let nearest = processes::line_of(&stats, process.pid).find(is_supervisor);
        nearest.map_or(is_oldest, |pid| pid == own)
    });
    found
}

/// Each of these processes, given by index and process id, with its descendants. A process that was
/// started below another one of them counts with the closest.
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

/// Whether the process or one of its descendants listens on a port: a server's socket must be its
/// own, not just any on that port.
pub fn listens(pid: i32, port: u16) -> bool {
    let sockets = procfs::listening_sockets();
    let wanted: Vec<u64> = sockets
        .into_iter()
        .filter(|(_, other)| *other == port)
        .map(|(inode, _)| inode)
        .collect();
    let holds_one = |pid: i32| {
        let inodes = procfs::socket_inodes(pid);
        inodes.iter().any(|inode| wanted.contains(inode))
    };
    let below = || processes::find_below(pid);
    !wanted.is_empty() && (holds_one(pid) || below().iter().any(|one| holds_one(one.pid)))
}

/// A child of this process that has ended and whose status nobody has asked for.
pub fn dead_child() -> Option<i32> {
    let own = own_pid();
    let is_dead_child = |stat: &Stat| stat.has_ended() && stat.parent == own;
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
