//! The process that runs the command which starts agents, on the machine of the tool, and makes
//! sure that it ends. Otherwise, after the tool was killed, the command would stay in a queue, and
//! so would the ticket.
//!
//! stdin is the tool: `e` tells that all agents were told to leave, `n` that no agent ever came,
//! and its end alone that the tool is gone. The command's exit status is written to stdout as soon
//! as it is known. A pipeline or a script that only started others may have ended before them, so
//! what ends is the whole process group of the command.

use crate::processes::{ProcessHandle, end_processes};
use crate::procfs;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long the command has to end by itself after all agents have left; kubectl polls only now and
/// then.
const LEAVE: Duration = Duration::from_secs(10);
/// The same if the tool is gone: jobs have their grace, and what follows it.
const CLEAN_UP: Duration = Duration::from_secs(60);
/// From TERM to KILL: srun has to tell Slurm first.
const GRACE: Duration = Duration::from_secs(5);
/// How often to check whether a process of the command is left.
const PACE: Duration = Duration::from_millis(20);
/// The status of a shell for a command that it does not find.
const NOT_FOUND: i32 = 127;

/// `host-agent engine FOLDER INPUT COMMAND`: runs the command with a file as its stdin, and removes
/// the directory with the ticket when the tool is gone.
pub fn watch(folder: &OsStr, input: &OsStr, command: &OsStr) -> ExitCode {
    match start(input, command) {
        Ok(child) => see_to_its_end(&child),
        Err(error) => {
            record::tell!("host-agent: sh: {error}");
            report_status(NOT_FOUND);
            await_tool();
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

fn see_to_its_end(child: &Child) {
    let Ok(leader) = i32::try_from(child.id()).map(Pid::from_raw) else {
        return;
    };
    // without a thread nobody is told its status, and its group is ended all the same
    let _ = std::thread::Builder::new().spawn(move || await_end(leader));
    let until = Instant::now() + await_tool();
    // nobody has waited for the leader, so the number of the group is its own as long as we live
    while !of_group(leader).is_empty() {
        if Instant::now() >= until {
            end_processes(GRACE, || of_group(leader));
            return;
        }
        std::thread::sleep(PACE);
    }
}

/// The processes of the group that are left.
fn of_group(group: Pid) -> Vec<ProcessHandle> {
    let is_left = |pid: &i32| {
        procfs::stat(*pid).is_some_and(|stat| stat.group == group.as_raw() && !stat.has_ended())
    };
    let left = procfs::pids().into_iter().filter(is_left);
    left.filter_map(ProcessHandle::of).collect()
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

/// Waits until the tool has ended or announced that it will; returns how long the command then has
/// to end by itself.
fn await_tool() -> Duration {
    let mut byte = [0];
    match (io::stdin().lock().read(&mut byte), byte) {
        (Ok(1), [b'n']) => Duration::ZERO,
        (Ok(1), _) => LEAVE,
        _ => CLEAN_UP,
    }
}
