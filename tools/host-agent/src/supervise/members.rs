//! The processes of a job: those that descend from this one, and those that carry the job's token.
//!
//! A process that becomes a daemon comes back to us, because we are its subreaper, whatever it did
//! to its environment and its session. A process that another daemon has started is found by the
//! token.

use crate::processes::{self, ProcessHandle};
use crate::procfs;
use std::collections::BTreeSet;

/// All processes of the job that are alive; never this process itself.
pub fn of_job(token: &str) -> BTreeSet<ProcessHandle> {
    let below = processes::find_below(own_pid())
        .into_iter()
        .filter(|process| !processes::is_outside(process.pid));
    below.chain(processes::find_by_token(token)).collect()
}

/// The process ids of a process and of all its descendants.
pub fn family(pid: i32) -> Vec<i32> {
    let below = processes::find_below(pid);
    below
        .into_iter()
        .map(|process| process.pid)
        .chain([pid])
        .collect()
}

/// Children of this process that have ended and whose status nobody has asked for.
pub fn dead_children() -> Vec<i32> {
    let own = own_pid();
    let is_dead_child =
        |pid: &i32| procfs::stat(*pid).is_some_and(|stat| stat.has_ended() && stat.parent == own);
    procfs::pids().into_iter().filter(is_dead_child).collect()
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}
