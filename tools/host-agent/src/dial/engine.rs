//! The process on the machine of the tool that runs the command which starts agents, and makes sure
//! that it ends. Otherwise the command and its ticket would remain in a queue after the tool was
//! killed.
//!
//! The tool writes to stdin: `e` when all agents were asked to end, and `n` if no agent ever
//! connected; its end alone means that the tool is gone. The exit status of the command is written
//! to stdout as soon as it is known. A pipeline or script may end before the programs that it
//! starts, so the whole process group of the command is waited for and ended.

use host::processes::{ProcessHandle, end_processes};
use host::procfs;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long the command may take to end by itself after all agents; kubectl polls rarely.
const LEAVE: Duration = Duration::from_secs(10);
/// The same if the tool is gone: jobs need their grace time, and more for their end.
const CLEAN_UP: Duration = Duration::from_secs(60);
/// The time from TERM to KILL: srun must notify Slurm first.
const GRACE: Duration = Duration::from_secs(5);
/// How often to check whether a process of the command still runs.
const PACE: Duration = Duration::from_millis(20);
/// A shell's exit status for an unknown command.
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
    // without this thread the status is not reported, but the group still ends
    let _ = std::thread::Builder::new().spawn(move || await_end(leader));
    let until = Instant::now() + await_tool();
    // the leader is not waited for, so the group's number is not reused while this process lives
    while !of_group(leader).is_empty() {
        if Instant::now() >= until {
            end_processes(GRACE, &BTreeSet::new(), || of_group(leader));
            return;
        }
        std::thread::sleep(PACE);
    }
}

fn of_group(group: Pid) -> Vec<ProcessHandle> {
    let is_left = |pid: &i32| {
        procfs::stat(*pid).is_some_and(|stat| stat.group == group.as_raw() && !stat.has_ended())
    };
    let left = procfs::pids().into_iter().filter(is_left);
    left.filter_map(ProcessHandle::of).collect()
}

/// Reports the command's status as a shell would. The command remains a zombie, so that its number
/// is not reused.
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

/// Waits until the tool has ended or announced its end; returns how long the command may then take
/// to end by itself.
fn await_tool() -> Duration {
    let mut byte = [0];
    match (io::stdin().lock().read(&mut byte), byte) {
        (Ok(1), [b'n']) => Duration::ZERO,
        (Ok(1), _) => LEAVE,
        _ => CLEAN_UP,
    }
}
