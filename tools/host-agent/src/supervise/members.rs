//! The processes of a job: those that descend from this one, and those that carry the job's token.
//!
//! What daemonises comes back to us, because we are its subreaper, whatever it did to its
//! environment and its session. What was handed to somebody else's daemon is known by the token.

use crate::processes::{self, ProcessHandle};
use crate::procfs;
use std::collections::BTreeSet;

/// All that are alive now; never this process itself.
pub fn of_job(token: &str) -> BTreeSet<ProcessHandle> {
    let below = processes::find_below(own_pid())
        .into_iter()
        .filter(|process| !processes::is_outside(process.pid));
    below.chain(processes::find_by_token(token)).collect()
}

/// The number of a process and of all that descend from it.
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
