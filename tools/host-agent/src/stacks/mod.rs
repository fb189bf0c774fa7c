//! Reads the stacks of a job's Python processes from outside: nothing in them is called, paused or
//! changed.
//!
//! [`reader`] reads one process, and [`recorder`] samples all of a job. They may fail in any way,
//! so they run in separate processes (`host-agent stack`, `host-agent record`). If the kernel lets
//! only ancestors read a process (Yama's ptrace_scope 1, or a container's seccomp filter for
//! logins), [`server`] is used: the supervisor of the job, the ancestor of all its processes, reads
//! for others.

pub mod position;
pub mod reader;
pub mod recorder;
pub mod server;
mod system_call;

use agent::output::EventOutput;
use host::command;
use host::job_processes::{self, JobProcess};
use host::netlink;
use host::processes::ProcessHandle;
use host::procfs;
use job::Role;
use parking_lot::Mutex;
use record::Connection;
use recorder::{PROFILES_BYTES, RECORD_LIMIT};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;
use wire::stacks::{
    CountedStacks, MAX_CONNECTIONS, ProcessStacks, Reading, RecordStacks, TakeStacks, Why,
};
use wire::{Event, Failure};

/// How many processes are read at once; more would slow the job down.
const AT_ONCE: usize = 4;
/// How long reading a process may take: it takes about 30 ms, but longer on a busy host with
/// libraries on a network file system.
const LIMIT: Duration = Duration::from_secs(20);
/// The most bytes of a reading, more than [`reader`] returns.
const READING_BYTES: usize = 4 << 20;

/// Reports the stacks of each selected process.
pub fn take(wanted: &TakeStacks, output: &EventOutput) {
    let processes = job_processes::selected(&wanted.pick);
    let mut stacks: Vec<ProcessStacks> = side_by_side(&processes, |process| {
        let known = Known {
            process: process.member.process,
            role: process.role,
            rank: process.rank,
        };
        stack(&process.job, &known, read(process))
    });
    keep_python_parents(&mut stacks);
    if wanted.connections {
        add_connections(&mut stacks);
    }
    for stack in stacks {
        output.event(&Event::Stack(Box::new(stack)));
    }
}

/// Reports a profile of each selected process.
pub fn record(wanted: &RecordStacks, output: &EventOutput) -> Result<(), Failure> {
    let mut profiles = record_apart(wanted)?;
    let is_denied = |profile: &CountedStacks| matches!(profile.why, Some(Why::Denied { .. }));
    if !profiles.is_empty() && profiles.iter().all(is_denied) {
        let processes = job_processes::selected(&wanted.pick);
        let mut by_supervisors = processes.iter().filter_map(|selected| {
            let member = &selected.member;
            server::record(&member.token, member.process, wanted)
        });
        profiles = by_supervisors.next().unwrap_or(profiles);
    }
    for profile in profiles {
        output.event(&Event::Profile(Box::new(profile)));
    }
    Ok(())
}

/// Records in a separate process.
fn record_apart(wanted: &RecordStacks) -> Result<Vec<CountedStacks>, Failure> {
    let failure = |problem: String| Failure::new(format!("stacks cannot be recorded: {problem}"));
    let mut command = Command::new("/proc/self/exe");
    command.arg0("host-agent").arg("record");
    command.arg(serde_json::to_string(wanted).map_err(|error| failure(error.to_string()))?);
    let limit = Duration::from_millis(wanted.time_ms) + RECORD_LIMIT;
    let answer = command::ask(command, limit, PROFILES_BYTES);
    let answer = answer.map_err(|error| failure(error.to_string()))?;
    match answer.status {
        Some(status) if status.success() => {}
        Some(status) => return Err(failure(status.to_string())),
        None => return Err(failure(format!("no answer within {} s", limit.as_secs()))),
    }
    // messages of a library may be among the answers
    let text = answer.text();
    let profiles = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(profiles.collect())
}

/// `host-agent record WANTED`: prints a profile for each process, as JSON.
pub fn print_record(wanted: &str) -> ExitCode {
    let Ok(wanted) = serde_json::from_str::<RecordStacks>(wanted) else {
        return ExitCode::from(2);
    };
    let find = || job_processes::selected(&wanted.pick);
    for profile in recorder::record(&wanted, find, || true) {
        println!("{}", serde_json::to_string(&profile).unwrap_or_default());
    }
    ExitCode::SUCCESS
}

/// A process whose role in its job is known.
pub struct Known {
    pub process: ProcessHandle,
    pub role: Option<Role>,
    /// The rank of the process among those of its role.
    pub rank: Option<u32>,
}

/// Reads the stacks of a process, for the supervisor of its job, in a thread that may fail.
pub fn read_known(job: &str, known: &Known) -> ProcessStacks {
    stack(job, known, reader::read(known.process))
}

/// The stacks with any parent, of which [`keep_python_parents`] keeps some.
fn stack(job: &str, known: &Known, reading: Reading) -> ProcessStacks {
    let record = record::Stack {
        job: job.to_owned(),
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

/// Adds the connections of each process, all at the same moment; none if the kernel does not report
/// them.
pub fn add_connections(stacks: &mut [ProcessStacks]) {
    let by_inode = netlink::tcp_connections().unwrap_or_default();
    for stack in stacks.iter_mut().map(|stacks| &mut stacks.record) {
        let inodes = procfs::socket_inodes(stack.pid.cast_signed());
        let connections = inodes.iter().filter_map(|inode| by_inode.get(inode));
        stack.connections = connections
            .filter(|connection| connection.since_moved_ms().is_some())
            .cloned()
            .collect();
        stack.connections.sort_by_key(Connection::since_moved_ms);
        stack.connections.truncate(MAX_CONNECTIONS);
    }
}

fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(items.iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let worker = || {
        loop {
            let item = next.lock().next();
            let Some((index, item)) = item else { return };
            let result = work(item);
            done.lock().push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(items.len()) {
            // without another thread, this one does everything
            let _ = std::thread::Builder::new().spawn_scoped(scope, worker);
        }
        worker();
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Keeps a parent that is a Python of the same role and rank, such as that of a sampler. A shell is
/// no such parent.
pub fn keep_python_parents(stacks: &mut [ProcessStacks]) {
    let pythons: Vec<_> = stacks
        .iter()
        .map(|stacks| &stacks.record)
        .filter(|stack| !stack.threads.is_empty())
        .map(|stack| (stack.pid, stack.role, stack.rank))
        .collect();
    for stack in stacks.iter_mut().map(|stacks| &mut stacks.record) {
        let is_other = |parent: &mut u32| !pythons.contains(&(*parent, stack.role, stack.rank));
        stack.parent.take_if(is_other);
    }
}

/// Reads a process directly or, if that is not allowed, by the supervisor of the job.
fn read(selected: &JobProcess) -> Reading {
    let process = selected.member.process;
    let reading = read_apart(process);
    if matches!(reading.why, Some(Why::Denied { .. }))
        && let Some(reading) = server::read(&selected.member.token, process)
    {
        return reading;
    }
    reading
}

/// Reads in a separate process, because the memory of another process may make the reader fail.
fn read_apart(process: ProcessHandle) -> Reading {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("host-agent").arg("stack");
    command.args([process.pid.to_string(), process.start_ticks.to_string()]);
    let answer = command::ask(command, LIMIT, READING_BYTES);
    let (text, is_late) = match &answer {
        Ok(answer) => (answer.text(), answer.status.is_none()),
        Err(error) => return Reading::unreadable(Why::Other, error.to_string()),
    };
    // messages of a library precede the answer
    let last = text
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok());
    last.unwrap_or_else(|| {
        let problem = if is_late {
            format!("no answer within {} s", LIMIT.as_secs())
        } else {
            "what reads it has failed".to_owned()
        };
        Reading::unreadable(Why::Other, problem)
    })
}

/// `host-agent stack PID START_TICKS`: reads a process and prints its stacks as JSON.
pub fn print(pid: &str, start_ticks: &str) -> ExitCode {
    let (Ok(pid), Ok(start_ticks)) = (pid.parse(), start_ticks.parse()) else {
        return ExitCode::from(2);
    };
    let reading = reader::read(ProcessHandle { pid, start_ticks });
    println!("{}", serde_json::to_string(&reading).unwrap_or_default());
    ExitCode::SUCCESS
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

    #[test]
    fn results_have_the_order_of_their_items() {
        let items: Vec<u32> = (0..40).collect();
        let doubled = side_by_side(&items, |item| item * 2);
        assert_eq!(
            doubled,
            items.iter().map(|item| item * 2).collect::<Vec<_>>()
        );
        assert!(side_by_side(&[], |item: &u32| *item).is_empty());
    }
}
