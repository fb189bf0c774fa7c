//! Reads the stacks of a job's Python processes from outside: nothing in them is called, paused or
//! changed.
//!
//! [`reader`] reads one process, and [`recorder`] samples all of a job. Only the supervisor of a
//! job does that: it is the ancestor of all its processes, and the kernel may let only ancestors
//! read a process (Yama's ptrace_scope 1, or a container's seccomp filter for logins). Other agents
//! ask it over its socket. [`ranks`] finds the processes of jobs without a supervisor, which the
//! agent reads itself.

pub mod position;
pub mod ranks;
pub mod reader;
pub mod recorder;
mod system_call;
mod torchrun;

use agent::output::EventOutput;
use agent::supervisors::{self, NoAnswer};
use host::job_processes::{self, JobProcess};
use host::netlink;
use host::processes::{self, ProcessHandle};
use host::{procfs, side_thread};
use job::Role;
use parking_lot::Mutex;
use reader::Reading;
use record::Connection;
use record::stacks::ProcessState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use wire::stacks::{
    ChosenProcess, CountedStacks, MAX_CONNECTIONS, ProcessStacks, RecordStacks, TakeStacks, Why,
};
use wire::{Event, Request};

/// More processes at once would slow the job down.
const AT_ONCE: usize = 4;
/// About 30 ms are enough for a process, but not on a busy host with libraries on a network file
/// system.
const LIMIT: Duration = Duration::from_secs(20);
/// How much longer an agent waits for a supervisor's answer, on a busy host.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Reads the chosen processes; without any, passes the request on to the job's supervisors and
/// reports their answers. Processes without an answer are reported, too.
pub fn ask(request: &Request, output: &EventOutput) {
    let (pick, time, is_recording) = match request {
        Request::TakeStacks(wanted) if !wanted.chosen.is_empty() => {
            for stacks in take_chosen(&wanted.chosen, wanted.connections) {
                output.event(&Event::Stack(Box::new(stacks)));
            }
            return;
        }
        Request::RecordStacks(wanted) if !wanted.chosen.is_empty() => {
            let find = || wanted.chosen.iter().map(Known::from).collect();
            for profile in recorder::record(wanted, find, || true) {
                output.event(&Event::Profile(Box::new(profile)));
            }
            return;
        }
        Request::TakeStacks(TakeStacks { pick, .. }) => (pick, LIMIT, false),
        Request::RecordStacks(RecordStacks { pick, time_ms, .. }) => {
            (pick, Duration::from_millis(*time_ms), true)
        }
        _ => return,
    };
    let before = job_processes::selected(pick);
    let mut sockets = supervisors::all();
    sockets.retain(|socket| pick.job.as_ref().is_none_or(|job| *job == socket.job));
    let answers = supervisors::ask_all(&sockets, request, time + ANSWER_LIMIT);
    let mut answered: BTreeSet<i32> = BTreeSet::new();
    let mut problem = NO_ANSWER.to_owned();
    for (socket, answer) in sockets.iter().zip(answers) {
        match answer {
            Ok(answer) => {
                answered.insert(socket.pid);
                answer.events.iter().for_each(|event| output.event(event));
            }
            Err(NoAnswer::Failed(failure)) => problem = failure.problem,
            Err(NoAnswer::Gone | NoAnswer::Late) => {}
        }
    }
    let stats = procfs::stats();
    let is_left = |process: &JobProcess| {
        let handle = process.member.process;
        let mut line = processes::line_of(&stats, handle.pid);
        !line.any(|pid| answered.contains(&pid)) && handle.is_alive()
    };
    for process in before.iter().filter(|process| is_left(process)) {
        let handle = process.member.process;
        let reading = if reader::has_python(handle.pid) {
            Reading::unreadable(Why::Other, problem.clone())
        } else {
            Reading::no_python()
        };
        if !is_recording {
            let stack = stack(&Known::from(process), reading);
            output.event(&Event::Stack(Box::new(stack)));
        } else if reading.why == Some(Why::Other) {
            output.event(&Event::Profile(Box::new(unrecorded(process, reading))));
        }
    }
}

/// The problem of a process whose supervisor is gone or stopped.
const NO_ANSWER: &str = "the supervisor of its job does not answer";

fn unrecorded(process: &JobProcess, reading: Reading) -> CountedStacks {
    let pid = process.member.process.pid;
    let record = record::Profile {
        job: process.job.clone(),
        pid: pid.cast_unsigned(),
        role: process.role,
        rank: process.rank,
        command: procfs::command_line(pid).unwrap_or_default(),
        error: reading.error,
        ..record::Profile::default()
    };
    CountedStacks {
        record,
        why: reading.why,
    }
}

/// Processes that were not read in time have an error.
pub fn take(known: &[Known], with_connections: bool, readers: &Arc<()>) -> Vec<ProcessStacks> {
    let mut stacks = read_all(known, readers);
    keep_python_parents(&mut stacks);
    if with_connections {
        add_connections(&mut stacks);
    }
    stacks
}

/// Adds what the kernel reports about processes that cannot be read or are stopped.
fn take_chosen(chosen: &[ChosenProcess], with_connections: bool) -> Vec<ProcessStacks> {
    let known: Vec<Known> = chosen.iter().map(Known::from).collect();
    let mut stacks = read_all(&known, &Arc::default());
    for (stacks, chosen) in stacks.iter_mut().zip(chosen) {
        let record = &mut stacks.record;
        record.parent = chosen.parent;
        let state = process_state(chosen.pid);
        record.state = state.filter(|state| record.threads.is_empty() || state.is_stopped());
    }
    if with_connections {
        add_connections(&mut stacks);
    }
    stacks
}

fn process_state(pid: i32) -> Option<ProcessState> {
    Some(ProcessState {
        letter: procfs::stat(pid)?.state,
        function: procfs::kernel_function(pid),
    })
}

fn read_all(processes: &[Known], readers: &Arc<()>) -> Vec<ProcessStacks> {
    let until = Instant::now() + LIMIT;
    let known = processes.to_vec();
    let results = read_each(|| known, readers, |known| Some(read_known(&known)));
    let mut read = BTreeMap::new();
    let left = || until.saturating_duration_since(Instant::now());
    while let Ok(stack) = results.recv_timeout(left()) {
        read.insert(stack.record.pid, stack);
    }
    let taken = processes.iter().map(|known| {
        let unread = || {
            let problem = format!("it could not be read within {} s", LIMIT.as_secs());
            stack(known, Reading::unreadable(Why::Other, problem))
        };
        read.remove(&known.process.pid.cast_unsigned())
            .unwrap_or_else(unread)
    });
    taken.collect()
}

/// Finds processes and reads them in threads, which hold a clone of `readers` and stop once the
/// receiver is dropped. They may fail, because the memory of a process may contain anything, or
/// hang in the kernel, even while they find the processes by their environment.
pub fn read_each<P: Send + 'static, T: Send + 'static>(
    find: impl FnOnce() -> Vec<P> + Send + 'static,
    readers: &Arc<()>,
    read: fn(P) -> Option<T>,
) -> Receiver<T> {
    let (sender, results) = mpsc::channel();
    let found = std::iter::once_with(find).flatten();
    let queue = Arc::new(Mutex::new(found));
    for _ in 0..AT_ONCE {
        let (queue, sender, readers) = (Arc::clone(&queue), sender.clone(), Arc::clone(readers));
        let work = move || {
            let _readers = readers;
            loop {
                // not in the condition, which would hold the lock for the whole turn
                let next = queue.lock().next();
                let Some(process) = next else { return };
                if read(process).is_some_and(|found| sender.send(found).is_err()) {
                    return;
                }
            }
        };
        let _ = side_thread::spawn(reader::THREAD, work);
    }
    results
}

#[derive(Clone)]
pub struct Known {
    pub job: String,
    pub process: ProcessHandle,
    pub role: Option<Role>,
    /// The rank of the process among those of its role.
    pub rank: Option<u32>,
}

impl From<&JobProcess> for Known {
    fn from(process: &JobProcess) -> Known {
        Known {
            job: process.job.clone(),
            process: process.member.process,
            role: process.role,
            rank: process.rank,
        }
    }
}

impl From<&ChosenProcess> for Known {
    fn from(chosen: &ChosenProcess) -> Known {
        Known {
            job: chosen.job.clone(),
            process: ProcessHandle {
                pid: chosen.pid,
                start_ticks: chosen.start_ticks,
            },
            role: chosen.role,
            rank: chosen.rank,
        }
    }
}

/// Call this in a thread that may fail.
pub fn read_known(known: &Known) -> ProcessStacks {
    stack(known, reader::read(known.process))
}

/// The stacks, with its parent whatever that is; see [`keep_python_parents`].
fn stack(known: &Known, reading: Reading) -> ProcessStacks {
    let record = record::Stack {
        job: known.job.clone(),
        pid: known.process.pid.cast_unsigned(),
        role: known.role,
        rank: known.rank,
        command: procfs::command_line(known.process.pid).unwrap_or_default(),
        parent: procfs::parent(known.process.pid),
        threads: reading.threads,
        error: reading.error,
        ..record::Stack::default()
    };
    ProcessStacks {
        record,
        why: reading.why,
    }
}

/// Reads all of a network namespace at the same moment; adds none if the kernel does not report
/// connections.
pub fn add_connections(stacks: &mut [ProcessStacks]) {
    let mut of_namespaces = HashMap::new();
    for stack in stacks.iter_mut().map(|stacks| &mut stacks.record) {
        let pid = stack.pid.cast_signed();
        let by_inode = of_namespaces
            .entry(procfs::network_namespace(pid))
            .or_insert_with(|| netlink::tcp_connections_of(pid).unwrap_or_default());
        let inodes = procfs::socket_inodes(pid);
        let connections = inodes.iter().filter_map(|inode| by_inode.get(inode));
        stack.connections = connections
            .filter(|connection| connection.since_moved_ms().is_some())
            .cloned()
            .collect();
        stack.connections.sort_by_key(Connection::since_moved_ms);
        stack.connections.truncate(MAX_CONNECTIONS);
    }
}

/// Keeps a parent only if it is a Python of the same role and rank: a sampler's trainer, and not
/// the shell that started a trainer.
pub fn keep_python_parents(stacks: &mut [ProcessStacks]) {
    let records = stacks.iter_mut().map(|stacks| &mut stacks.record);
    let children = records.map(|record| Child {
        pid: record.pid,
        program: (record.role, record.rank),
        is_python: !record.threads.is_empty(),
        parent: &mut record.parent,
    });
    keep_parents(children.collect());
}

/// A process whose parent counts only if it is in the same list.
struct Child<'a> {
    pid: u32,
    program: (Option<Role>, Option<u32>),
    is_python: bool,
    parent: &'a mut Option<u32>,
}

fn keep_parents(mut children: Vec<Child<'_>>) {
    let pythons: Vec<_> = children
        .iter()
        .filter(|child| child.is_python)
        .map(|child| (child.pid, child.program))
        .collect();
    for child in &mut children {
        let is_other = |parent: &mut u32| !pythons.contains(&(*parent, child.program));
        child.parent.take_if(is_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(pid: u32, parent: Option<u32>, rank: u32, threads: usize) -> ProcessStacks {
        let record = record::Stack {
            pid,
            parent,
            role: Some(Role::Trainer),
            rank: Some(rank),
            threads: vec![record::Thread::default(); threads],
            ..record::Stack::default()
        };
        ProcessStacks { record, why: None }
    }

    #[test]
    fn a_parent_is_a_python_of_the_same_rank() {
        // a shell that started a trainer, the trainer, its sampler; a process of another rank
        let mut stacks = [
            stack(1, None, 0, 0),
            stack(2, Some(1), 0, 1),
            stack(3, Some(2), 0, 1),
            stack(4, Some(2), 1, 1),
        ];
        keep_python_parents(&mut stacks);
        let parents: Vec<_> = stacks.iter().map(|stacks| stacks.record.parent).collect();
        assert_eq!(parents, [None, None, Some(2), None]);
    }
}
