//! Finds the processes that a launcher has numbered, whatever it is: torchrun, mpirun, srun. They
//! are known by the variables with which they were started. A torchrun is found, too: it may wait
//! for other hosts and have no rank.

use crate::{reader, torchrun};
use host::job_processes;
use host::processes::ProcessHandle;
use host::procfs;
use std::collections::{BTreeMap, BTreeSet};
use wire::stacks::{JOB_VARIABLES, RANK_VARIABLES, RankProcess};

/// More than a process has.
const MAX_ANCESTORS: usize = 1000;

/// The kernel shows the environments of this user's processes, and to root those of all users.
/// Children have inherited theirs.
pub fn find() -> Vec<RankProcess> {
    // srun numbers the agent that it starts, too, and the shell that starts the agent
    let parent = |pid: &i32| Some(procfs::stat(*pid)?.parent);
    let own_pid = std::process::id().cast_signed();
    let own = std::iter::successors(Some(own_pid), parent).take(MAX_ANCESTORS);
    // in a container, the first process may be a rank
    let own: BTreeSet<i32> = own.take_while(|pid| *pid > 1).collect();
    let pids = procfs::pids().into_iter();
    let others = pids.filter(|pid| !own.contains(pid));
    others.filter_map(rank_process).collect()
}

fn rank_process(pid: i32) -> Option<RankProcess> {
    let environment = procfs::environment(pid)?;
    let named = |name: &&str| Some(((*name).to_owned(), environment.text(name)?));
    let mut variables: BTreeMap<_, _> = RANK_VARIABLES.iter().filter_map(named).collect();
    let variable = |name: &str| environment.text(name);
    let torchrun = torchrun::of_words(&procfs::words(pid)?, variable);
    if variables.is_empty() && torchrun.is_none() {
        return None;
    }
    let handle = ProcessHandle::of(pid).filter(ProcessHandle::is_alive)?;
    variables.extend(JOB_VARIABLES.iter().filter_map(named));
    let (role, rank) = job_processes::role_of(&environment);
    let process = RankProcess {
        pid,
        start_ticks: handle.start_ticks,
        parent: procfs::stat(pid)?.parent,
        is_python: reader::has_python(pid),
        role,
        rank,
        command: procfs::command_line(pid)?,
        variables,
        torchrun,
    };
    Some(process.in_bounds())
}
