//! The guardian: the process that was asked to start a job starts another one that supervises it,
//! and stays to see it end. When the supervisor is killed, its children come to the guardian, which
//! ends them. The supervisor in turn watches the guardian, and ends the job when that is gone.

use super::members;
use super::signals::block_signals;
use super::supervisor::Description;
use crate::processes::{TOKEN, end_processes, watch_mark};
use crate::shm;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::{WaitPidFlag, waitpid};
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;
use wire::Failure;

/// Starts the supervisor and stays until it has ended. If that has failed, its last message on
/// stdout may be incomplete, so that nothing is reported of what is ended then.
pub fn guard(description: &Description) -> Result<ExitCode, Failure> {
    let fault =
        |error: std::io::Error| Failure::new(format!("the supervisor cannot be started: {error}"));
    // an engine may signal everything on the host, as Slurm does at a time limit; that is meant for
    // the processes
    block_signals().map_err(|error| fault(error.into()))?;
    set_child_subreaper(true).map_err(|error| fault(error.into()))?;
    let (mut supervisor, notes) = launch(description).map_err(fault)?;
    // the files that the job has in /dev/shm, until the supervisor ends
    let notes = BufReader::new(notes).lines().map_while(Result::ok);
    let files = notes
        .filter_map(|note| serde_json::from_str(&note).ok())
        .collect();
    if supervisor.wait().map_err(fault)?.success() {
        return Ok(ExitCode::SUCCESS);
    }
    let (job, ..) = description;
    end_processes(Duration::from_millis(job.grace_ms), || {
        let status = || waitpid(None, Some(WaitPidFlag::WNOHANG));
        while status().is_ok_and(|status| status.pid().is_some()) {}
        members::of_job(&job.token).into_iter().collect()
    });
    shm::remove_unmapped(&files);
    Ok(ExitCode::FAILURE)
}

/// Starts the supervisor and describes the job to it. It continues with our stdin and stdout.
fn launch(description: &Description) -> std::io::Result<(Child, PipeReader)> {
    let (reader, mut writer) = std::io::pipe()?;
    let (notes, noting) = std::io::pipe()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("host-agent").args([
        "supervise",
        &inherited(reader.as_fd())?,
        &inherited(noting.as_fd())?,
    ]);
    let (job, ..) = description;
    let child = command.env(TOKEN, watch_mark(&job.token)).spawn()?;
    drop((reader, noting));
    writer.write_all(&serde_json::to_vec(description)?)?;
    Ok((child, notes))
}

/// A descriptor that the next program inherits, as the number that it is told.
fn inherited(descriptor: BorrowedFd<'_>) -> std::io::Result<String> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(descriptor.as_raw_fd().to_string())
}
