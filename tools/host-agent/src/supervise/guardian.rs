//! The guardian: the process that was asked to start a job starts another one that supervises it,
//! and stays to see it end. When the supervisor is killed, its children come to the guardian, which
//! ends them. The supervisor in turn watches the guardian, and ends the job when that is gone.

use super::end::{Event, State};
use super::members;
use super::shm::read_note;
use super::signals::{block_signals, signal_of};
use crate::processes::{TOKEN, watch_mark};
use crate::shm::{self, ShmFile};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::{WaitPidFlag, waitpid};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};
use wire::job::{Job, Process};
use wire::supervise::Start;
use wire::{Failure, Request, codec};

/// How often the guardian checks which processes are left.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts the supervisor and stays until it has ended. `rest` holds the bytes of stdin behind the
/// request to start.
pub fn guard(
    start: &Start,
    job: &Job,
    processes: &[Process],
    rest: &[u8],
) -> Result<ExitCode, Failure> {
    let fault =
        |error: std::io::Error| Failure::new(format!("the supervisor cannot be started: {error}"));
    // an engine may signal everything on the host, as Slurm does at a time limit; that is meant for
    // the processes
    block_signals().map_err(|error| fault(error.into()))?;
    set_child_subreaper(true).map_err(|error| fault(error.into()))?;
    let (mut supervisor, notes) = launch(job, start, processes, rest).map_err(fault)?;
    let files = read_notes(notes);
    let status = supervisor.wait().map_err(fault)?;
    if status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    end(job, &files);
    Ok(ExitCode::FAILURE)
}

/// Starts the supervisor and describes the job to it. It continues with our stdin and stdout.
fn launch(
    job: &Job,
    start: &Start,
    processes: &[Process],
    rest: &[u8],
) -> std::io::Result<(Child, PipeReader)> {
    let (told, mut telling) = std::io::pipe()?;
    let (notes, noting) = std::io::pipe()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("host-agent").args([
        "supervise",
        &inherited(told.as_fd())?,
        &inherited(noting.as_fd())?,
    ]);
    command.env(TOKEN, watch_mark(&job.token));
    let child = command.spawn()?;
    drop((told, noting));
    let common = &start.env;
    let process = |process: &Process| {
        let env = common.iter().chain(&process.env).cloned().collect();
        Request::Process(Process {
            env,
            ..process.clone()
        })
    };
    let requests = [Request::Job(job.clone())]
        .into_iter()
        .chain(processes.iter().map(process));
    for request in requests.chain([Request::Start(start.clone())]) {
        telling.write_all(&codec::encode(&request, &[]))?;
    }
    telling.write_all(rest)?;
    Ok((child, notes))
}

/// A descriptor that the next program inherits, as the number that it is told.
fn inherited(descriptor: BorrowedFd<'_>) -> std::io::Result<String> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(descriptor.as_raw_fd().to_string())
}

/// The files that the job has in /dev/shm, as the supervisor has noted them until its end.
fn read_notes(notes: PipeReader) -> BTreeSet<ShmFile> {
    let lines = BufReader::new(notes).lines().map_while(Result::ok);
    lines.filter_map(|line| read_note(&line)).collect()
}

/// Ends what the supervisor has left. Nothing is reported, because the supervisor's last message on
/// stdout may be incomplete.
fn end(job: &Job, files: &BTreeSet<ShmFile>) {
    let grace = Duration::from_millis(job.grace_ms);
    let (mut state, mut action) = State::Running.next(
        Event::End {
            grace,
            stacks: false,
        },
        Instant::now(),
    );
    loop {
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {
        }
        let left = members::of_job(&job.token);
        if let Some(action) = action.take() {
            for process in &left {
                process.signal(signal_of(action));
            }
        }
        let event = if left.is_empty() {
            Event::NoneLeft
        } else {
            Event::Tick
        };
        (state, action) = state.next(event, Instant::now());
        if state == State::Ended {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    shm::remove_unmapped(files);
}
