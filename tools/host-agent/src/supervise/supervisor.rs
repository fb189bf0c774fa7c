//! The supervisor: one event loop, in which nothing blocks. Requests of the launcher come on stdin,
//! events go to stdout. What is to be done is decided by [`Supervision`] and done by [`ThisHost`].

#![expect(
    clippy::disallowed_methods,
    reason = "descriptors by their paths in /proc"
)]

use super::private_shm;
use super::signals::block_signals;
use super::this_host::{Ready, ThisHost};
use crate::open_files;
use crate::processes::{END_NOTICE, REAP_NOTICE};
use job::Supervision;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getppid;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::process::ExitCode;
use std::time::Instant;
use wire::job::{Job, Process};
use wire::supervise::Start;
use wire::{Event, Failure};

/// What the guardian hands down: the job, its processes, how they are started, and what had come to
/// stdin behind that.
pub type Description = (Job, Vec<Process>, Start, Vec<u8>);

/// `host-agent supervise DESCRIPTION NOTES`: what the guardian starts. The two arguments are
/// descriptors of the guardian's pipes.
pub fn supervise(description: &str, notes: &str) -> ExitCode {
    let supervision = match begin(description, notes) {
        Ok(supervision) => supervision,
        Err(failure) => {
            let mut output = crate::output::Output::default();
            output.event(&Event::Failed(failure));
            return ExitCode::SUCCESS;
        }
    };
    match run(supervision) {
        Ok(()) => ExitCode::SUCCESS,
        // the guardian ends the job
        Err(error) => {
            record::tell!("host-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the description of the job, and starts it.
fn begin(description: &str, notes: &str) -> Result<Supervision<ThisHost>, Failure> {
    let fault =
        |what: &'static str| move |error: io::Error| Failure::new(format!("{what}: {error}"));
    let guardian = getppid();
    block_signals().map_err(|error| fault("signals")(error.into()))?;
    let signals = signals().map_err(|error| fault("signals")(error.into()))?;
    set_child_subreaper(true).map_err(|error| fault("subreaper")(error.into()))?;
    let notes = own(notes, File::options().write(true));
    let notes = notes.map_err(fault("the guardian's pipe"))?;
    let (job, mut processes, start, rest) = read(description).map_err(fault("the job"))?;
    if start.private_shm {
        private_shm::make_shm()
            .map_err(|why| Failure::new(format!("no /dev/shm of its own can be made: {why}")))?;
    }
    open_files::raise_limit();
    for process in &mut processes {
        // its own variables take precedence
        process.env.splice(0..0, start.env.iter().cloned());
    }
    let host = ThisHost::begin(job.clone(), &start, (guardian, notes), signals);
    Ok(Supervision::begin(
        (job, processes),
        &rest,
        host,
        Instant::now(),
    ))
}

/// Runs to the end of the job.
fn run(mut supervision: Supervision<ThisHost>) -> io::Result<()> {
    while !supervision.is_over() {
        let ready = wait(&mut supervision)?;
        let now = Instant::now();
        for ready in ready {
            match ready {
                Ready::Signal => supervision.reap(now),
                Ready::Stdin => read_requests(&mut supervision, now),
                // not through std's buffer, which would keep an incomplete line
                Ready::Stdout => supervision
                    .outbox
                    .write_some(|bytes| Ok(nix::unistd::write(io::stdout(), bytes)?)),
                Ready::Watch(watch) => supervision.machine.serve(watch),
                Ready::Pipe(index, stream) => supervision.relay(index, stream),
            }
        }
        supervision.tick(Instant::now());
        if !supervision.is_ending() {
            supervision.machine.note_files();
        }
    }
    Ok(())
}

/// Waits until something can be done, or is due.
fn wait(supervision: &mut Supervision<ThisHost>) -> io::Result<Vec<Ready>> {
    let mut until = supervision.due();
    if !supervision.is_ending() {
        until = until.min(supervision.machine.files_due());
    }
    supervision.machine.wait(&supervision.outbox, until)
}

fn read_requests(supervision: &mut Supervision<ThisHost>, now: Instant) {
    let mut buffer = [0; 16 << 10];
    match nix::unistd::read(io::stdin(), &mut buffer) {
        Ok(count) if count > 0 => supervision.receive(&buffer[..count], now),
        Err(Errno::EINTR | Errno::EAGAIN) => {}
        _ => supervision.launcher_is_gone(),
    }
}

fn signals() -> nix::Result<SignalFd> {
    let signals: SigSet = [Signal::SIGCHLD, REAP_NOTICE, END_NOTICE]
        .into_iter()
        .collect();
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// A descriptor that the guardian has handed down, as one of our own that nobody else inherits.
fn own(number: &str, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(format!("/proc/self/fd/{number}"))?;
    let number: i32 = number.parse().map_err(io::Error::other)?;
    nix::unistd::close(number)?;
    Ok(file)
}

fn read(description: &str) -> io::Result<Description> {
    let mut text = Vec::new();
    own(description, File::options().read(true))?.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
