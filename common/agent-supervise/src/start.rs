//! Starts a process of a job. Between fork and exec this program runs once more, as `host-agent
//! run`: it makes a session, enters the working directory, and then becomes the command.

use crate::{ranks, shell};
use agent::job::HostProcess;
use host::executable;
use host::processes::{JOB, TOKEN};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getppid, setsid};
use record::{Role, cpus};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use wire::job::{Job, PROGRAM};
use wire::supervise::ProcessStream;

/// The argument in place of a list of processors.
const EVERYWHERE: &str = "-";

/// The open streams of a process, which are read without blocking.
pub type Pipes = BTreeMap<ProcessStream, PipeReader>;

pub fn start(job: &Job, process: &HostProcess) -> io::Result<(Child, Pipes)> {
    let (stdout, stdout_writer) = io::pipe()?;
    let (stderr, stderr_writer) = io::pipe()?;
    let mut command = command(job, process, "run");
    command.stdout(stdout_writer).stderr(stderr_writer);
    for reader in [&stdout, &stderr] {
        // only this end; the writers still block
        fcntl(reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    let pipes = Pipes::from([
        (ProcessStream::Stdout, stdout),
        (ProcessStream::Stderr, stderr),
    ]);
    Ok((command.spawn()?, pipes))
}

/// This program again, for a process.
fn command(job: &Job, process: &HostProcess, act: &str) -> Command {
    let role = process.record.role;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("host-agent")
        .arg(act)
        .arg(process.record.cpus.as_deref().unwrap_or(EVERYWHERE))
        .arg(process.folder());
    let invocation = shell::invocation(process);
    ranks::remove(&mut command);
    let program = matches!(role, Role::Program(_)).then(|| role.name());
    command
        .args(invocation.words)
        .env(JOB, &job.name)
        .env(TOKEN, &job.token)
        .envs(invocation.env)
        .envs(program.map(|name| (PROGRAM, name)))
        .stdin(Stdio::null());
    command
}

/// Whether the kernel accepts the arguments and variables of a process: starts `host-agent fits`
/// with them, which exits at once.
pub fn fits(job: &Job, process: &HostProcess) -> bool {
    let status = command(job, process, "fits").status();
    !matches!(status, Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong)
}

/// `host-agent run CPUS FOLDER WORD…`: becomes the command, bound to these processors (`-` for
/// all), in a directory relative to that of the login.
pub fn run(cpus: &OsStr, folder: &OsStr, words: &[OsString]) -> ExitCode {
    // if run by hand, it may lead a group already
    let _ = setsid();
    // the supervisor has blocked signals that are meant for the processes, and programs inherit
    // that
    let _ = SigSet::all().thread_unblock();
    // a second safeguard besides the watcher, which ends all that is left
    let parent = getppid();
    let _ = prctl::set_pdeathsig(Signal::SIGTERM);
    if getppid() != parent {
        return ExitCode::from(143);
    }
    if let Err(problem) = bind(cpus) {
        record::tell!(
            "host-agent: processors {}: {problem}",
            cpus.to_string_lossy()
        );
        return ExitCode::from(1);
    }
    if let Err(error) = std::env::set_current_dir(folder) {
        record::tell!("host-agent: {}: {error}", folder.to_string_lossy());
        return ExitCode::from(1);
    }
    let Some((program, arguments)) = words.split_first() else {
        record::tell!("host-agent: run: no command");
        return ExitCode::from(2);
    };
    let error = Command::new(program).args(arguments).exec();
    // the kernel reports a missing interpreter as a missing file
    match executable::obstacle(Path::new(program)) {
        Some(obstacle) => record::tell!("host-agent: {}", obstacle.problem),
        None => record::tell!("host-agent: {}: {error}", program.to_string_lossy()),
    }
    // a shell's exit statuses for a missing command, and for one that cannot be executed
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    })
}

/// Binds this process and its descendants to processors.
fn bind(list: &OsStr) -> Result<(), String> {
    if list == EVERYWHERE {
        return Ok(());
    }
    let wanted = list.to_str().and_then(cpus::parse);
    let mut set = CpuSet::new();
    for cpu in wanted.ok_or("are no list of processors")? {
        let added = usize::try_from(cpu).map_err(|error| error.to_string());
        set.set(added?).map_err(|error| error.to_string())?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|error| error.desc().to_owned())
}
