//! The process that was asked to keep a job. It starts the keeper, and carries the launcher's
//! requests to it and its events back. When the job no longer needs the launcher, the keeper stops
//! reporting, and follow.rs reports from what the keeper writes.

use super::folder::Folder;
use super::follow;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use wire::codec::{self, Decoder, Message};
use wire::{Event, Failure};

/// Connects a launcher with a new keeper; `rest` holds the bytes of stdin behind the request to
/// keep.
pub fn relay(rest: Vec<u8>) -> Result<ExitCode, Failure> {
    let fault = |error: io::Error| {
        Failure::new(format!(
            "the agent that is to keep the job cannot be started: {error}"
        ))
    };
    let keeper = start().map_err(fault)?;
    let requests = keeper.try_clone().map_err(fault)?;
    let carrying = thread::Builder::new().spawn(move || carry_requests(&rest, requests));
    carrying.map_err(fault)?;
    let kept = carry_events(keeper).map_err(fault)?;
    // after a job was left the thread goes on, because it carries the launcher's orders to the
    // keeper
    Ok(kept.map_or(ExitCode::SUCCESS, |folder| follow::tell(&folder)))
}

/// Starts a keeper out of reach of whatever ends this process: in a session of its own and not as a
/// descendant, because Slurm takes all descendants for the step.
fn start() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let stdin = OwnedFd::from(theirs.try_clone()?);
    let mut between = Command::new("/proc/self/exe");
    between
        .arg("keep")
        .stdin(stdin)
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::null());
    let status = between.status()?;
    if status.success() {
        Ok(ours)
    } else {
        Err(io::Error::other(format!("{status}")))
    }
}

/// `host-agent keep`: begins a session, starts the keeper in it and ends, so that the keeper is
/// nobody's child.
pub fn begin_session() -> ExitCode {
    let _ = nix::unistd::setsid();
    match Command::new("/proc/self/exe").args(["keep", "on"]).spawn() {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn carry_requests(rest: &[u8], mut keeper: UnixStream) {
    let copied = keeper
        .write_all(rest)
        .and_then(|()| io::copy(&mut io::stdin().lock(), &mut keeper));
    // a launcher that is gone must be gone for the keeper too
    let _ = keeper.shutdown(Shutdown::Write);
    if copied.is_ok() {
        follow::launcher_is_gone();
    }
}

/// Carries events until the keeper stops reporting; returns the job's folder if the keeper keeps
/// the job.
fn carry_events(mut keeper: UnixStream) -> io::Result<Option<Folder>> {
    let (mut decoder, mut buffer) = (Decoder::default(), vec![0; 64 << 10]);
    let mut kept = None;
    let mut out = io::stdout().lock();
    loop {
        let count = keeper.read(&mut buffer)?;
        if count == 0 {
            return Ok(kept);
        }
        decoder.push(&buffer[..count]);
        while let Some(Message { head, body }) =
            decoder.next_message::<Event>().map_err(io::Error::other)?
        {
            if let Event::Kept(job) = &head {
                kept = Some(Folder::at(&PathBuf::from(&job.folder.0)));
            }
            out.write_all(&codec::encode(&head, &body))?;
            out.flush()?;
        }
    }
}
