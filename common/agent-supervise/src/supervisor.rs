//! The supervisor: one event loop, in which nothing blocks. It reads requests of the launcher on
//! stdin and writes events to stdout. [`Supervision`] decides, and [`ThisHost`] acts.

use super::private_shm;
use super::socket::{Order, Task};
use super::this_host::{Ready, ThisHost};
use agent::notes::{Note, WatcherLink, hand_over, take_over};
use agent::output::EventOutput;
use agent::signals::block_signals;
use host::open_files;
use host::processes::{TOKEN, watch_mark};
use job::Supervision;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getppid;
use record::Process;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Instant;
use wire::job::Job;
use wire::supervise::Start;
use wire::{Event, Failure};

/// What a session leaves for the supervisor into which it turns: the job, its processes, their
/// start, and the bytes that were read from stdin after that.
pub type Description = (Job, Vec<Process>, Start, Vec<u8>);

/// Turns a session into the supervisor of a job: the same process executes this program again, with
/// one thread, as a new namespace requires, and with a mark in its environment, so that others find
/// it. Returns why that failed.
pub fn become_supervisor(description: &Description, mut watcher: WatcherLink) -> Failure {
    let (job, ..) = description;
    if let Err(failure) = watcher.ask(&Note::Supervise(job.clone())) {
        return failure;
    }
    let (Ok(error) | Err(error)) = replace_with_supervisor(description, &watcher);
    Failure::new(format!("the supervisor cannot be started: {error}"))
}

/// Returns only if that failed.
fn replace_with_supervisor(
    description: &Description,
    watcher: &WatcherLink,
) -> io::Result<io::Error> {
    let (job, ..) = description;
    let mut text = File::from(memfd_create("description", MFdFlags::empty())?);
    text.write_all(&serde_json::to_vec(description)?)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("host-agent").arg("supervise");
    command.args([hand_over(&text)?, hand_over(&watcher.notes)?]);
    Ok(command.env(TOKEN, watch_mark(&job.token)).exec())
}

/// `host-agent supervise DESCRIPTION NOTES`: the program into which a session turns. The arguments
/// are descriptors of a file in memory and of the pipe to the watcher.
pub fn supervise(description: &str, notes: &str) -> ExitCode {
    let supervision = match begin(description, notes) {
        Ok(supervision) => supervision,
        Err(failure) => {
            EventOutput::default().event(&Event::Failed(failure));
            return ExitCode::SUCCESS;
        }
    };
    match run(supervision) {
        Ok(()) => ExitCode::SUCCESS,
        // the watcher ends the job
        Err(error) => {
            record::tell!("host-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn begin(description: &str, notes: &str) -> Result<Supervision<ThisHost>, Failure> {
    let fault =
        |subject: &'static str| move |error: io::Error| Failure::new(format!("{subject}: {error}"));
    let watcher = getppid();
    block_signals().map_err(|error| fault("signals")(error.into()))?;
    let signals = signals().map_err(|error| fault("signals")(error.into()))?;
    set_child_subreaper(true).map_err(|error| fault("subreaper")(error.into()))?;
    let notes = take_over(notes, File::options().write(true));
    let notes = notes.map_err(fault("the watcher's pipe"))?;
    let (job, mut processes, start, rest) = read(description).map_err(fault("the job"))?;
    if job.private_shm {
        private_shm::make_shm()
            .map_err(|why| Failure::new(format!("a private /dev/shm cannot be created: {why}")))?;
    }
    open_files::raise_limit();
    for process in &mut processes {
        for (name, value) in &start.env {
            // variables of its record take precedence
            if !process.env.contains_key(name) && !process.env_b64.contains_key(name) {
                process.set_env(name, value.as_ref());
            }
        }
    }
    let host = ThisHost::begin(job.clone(), &start, watcher, notes, signals);
    let host = host.map_err(fault("the supervisor's socket"))?;
    Ok(Supervision::begin(
        job,
        &processes,
        &rest,
        host,
        Instant::now(),
    ))
}

fn run(mut supervision: Supervision<ThisHost>) -> io::Result<()> {
    while !supervision.is_over() {
        let ready = wait(&mut supervision)?;
        let now = Instant::now();
        for ready in ready {
            match ready {
                Ready::Signal => {
                    supervision.host.take_signals();
                    supervision.collect_ended(now);
                }
                Ready::Order => {
                    if let Some(order) = supervision.host.take_order() {
                        carry_out(&mut supervision, &order, now);
                    }
                }
                Ready::Stdin => read_requests(&mut supervision, now),
                // with nothing to write, this means that the launcher no longer reads
                Ready::Stdout if supervision.outbox.is_empty() => supervision.launcher_is_gone(),
                // not through the buffer of std, which would keep an incomplete line
                Ready::Stdout => supervision
                    .outbox
                    .write_some(|bytes| Ok(nix::unistd::write(io::stdout(), bytes)?)),
                Ready::Shm => supervision.host.note_new_name(),
                Ready::Pipe(index, stream) => supervision.report_output(index, stream),
            }
        }
        supervision.tick(Instant::now());
        if !supervision.is_ending() {
            supervision.host.note_files();
        }
    }
    Ok(())
}

fn carry_out(supervision: &mut Supervision<ThisHost>, order: &Order, now: Instant) {
    let Some(task) = order.take() else {
        return;
    };
    let mut processes = 0;
    match task {
        Task::WaitForReap => supervision.wait_for_dgl_reap(),
        Task::LeaveToReap => supervision.leave_to_dgl_reap(),
        Task::Signal(picked, signal) => {
            supervision.collect_ended(now);
            let (signalled, indices) = supervision.host.signal_picked(&picked, signal);
            supervision.signalled_by_dgl_reap(&indices, signal);
            processes = signalled;
        }
        Task::End(grace) => supervision.end_by_dgl_reap(grace, now),
    }
    // nobody waits for LeaveToReap
    let _ = order.reply.send(processes);
}

fn wait(supervision: &mut Supervision<ThisHost>) -> io::Result<Vec<Ready>> {
    let mut until = supervision.due();
    if !supervision.is_ending() {
        until = until.min(supervision.host.files_due());
    }
    supervision.host.wait(&supervision.outbox, until)
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
    let signals = SigSet::from(Signal::SIGCHLD);
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

fn read(description: &str) -> io::Result<Description> {
    let mut text = Vec::new();
    take_over(description, File::options().read(true))?.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
