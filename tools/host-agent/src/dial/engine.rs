//! The process that runs the command which starts agents, on the machine of the tool, and makes
//! sure that it ends. Otherwise, after the tool was killed, the command would stay in a queue, and
//! so would the ticket.
//!
//! stdin is the tool: `e` tells that all agents were told to leave, `n` that no agent ever came,
//! and its end alone that the tool is gone. The command's exit status is written to stdout as soon
//! as it is known.

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long the command has to end by itself after all agents have left; kubectl polls only now and
/// then.
const LEAVE: Duration = Duration::from_secs(10);
/// The same if the tool is gone: jobs have their grace, and what follows it.
const CLEAN_UP: Duration = Duration::from_secs(60);
/// From TERM to KILL: srun has to tell Slurm first.
const GRACE: Duration = Duration::from_secs(5);
/// The status of a shell for a command that it does not find.
const NOT_FOUND: i32 = 127;

enum Happened {
    /// The command has ended.
    Ended,
    /// The tool has ended, or announced that it will; the command has so long to end by itself.
    ToolIsGone { leave: Duration },
}

/// `host-agent engine FOLDER INPUT COMMAND`: runs the command with a file as its stdin, and removes
/// the folder with the ticket when the tool is gone.
pub fn watch(folder: &OsStr, input: &OsStr, command: &OsStr) -> ExitCode {
    let (happens, happened) = channel();
    let told = happens.clone();
    std::thread::spawn(move || await_tool(&told));
    match start(input, command) {
        Ok(child) => see_to_its_end(&child, happens, &happened),
        Err(error) => {
            record::tell!("host-agent: sh: {error}");
            report_status(NOT_FOUND);
            while matches!(happened.recv(), Ok(Happened::Ended)) {}
        }
    }
    transfer::run_folder::remove(Path::new(folder));
    ExitCode::SUCCESS
}

fn start(input: &OsStr, command: &OsStr) -> io::Result<Child> {
    let mut text = OsString::from("exec ");
    text.push(command);
    Command::new("sh")
        .arg("-c")
        .arg(text)
        .stdin(File::open(input)?)
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
}

fn see_to_its_end(child: &Child, happens: Sender<Happened>, happened: &Receiver<Happened>) {
    let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) else {
        return;
    };
    // nobody has waited for it, so its number is its own as long as we live
    let descriptor = rustix::process::Pid::from_raw(pid.as_raw())
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    std::thread::spawn(move || {
        await_end(pid);
        let _ = happens.send(Happened::Ended);
    });
    let mut has_ended = false;
    let leave = loop {
        match happened.recv() {
            Ok(Happened::Ended) => has_ended = true,
            Ok(Happened::ToolIsGone { leave }) => break leave,
            Err(_) => break CLEAN_UP,
        }
    };
    let mut wait = |limit| {
        has_ended = has_ended || happened.recv_timeout(limit).is_ok();
        has_ended
    };
    if wait(leave) {
        return;
    }
    terminate(descriptor.as_ref());
    if !wait(GRACE) {
        // its own group, and it has not been waited for
        let _ = killpg(pid, Signal::SIGKILL);
    }
}

fn terminate(descriptor: Option<&OwnedFd>) {
    if let Some(descriptor) = descriptor {
        let _ = pidfd_send_signal(descriptor, rustix::process::Signal::TERM);
    }
}

/// Waits for the end of the command and reports its status as a shell would. The command stays a
/// zombie, so that nobody else gets its number.
fn await_end(pid: Pid) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(pid), flags) {
            Ok(WaitStatus::Exited(_, code)) => return report_status(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => return report_status(128 + signal as i32),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn report_status(code: i32) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{code}").and_then(|()| stdout.flush());
}

fn await_tool(told: &Sender<Happened>) {
    let mut byte = [0];
    let leave = match (io::stdin().lock().read(&mut byte), byte) {
        (Ok(1), [b'n']) => Duration::ZERO,
        (Ok(1), _) => LEAVE,
        _ => CLEAN_UP,
    };
    let _ = told.send(Happened::ToolIsGone { leave });
}
