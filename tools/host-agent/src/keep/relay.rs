//! The process that was asked to keep a job. It starts the keeper, and carries the launcher's
//! requests to it and its events back. When the job no longer needs the launcher, the keeper stops
//! reporting, and follow.rs reports from what the keeper writes.

use super::folder::Folder;
use super::follow;
use super::pipes::MessageReader;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use wire::codec;
use wire::{Event, Failure, Request};

/// Connects a launcher with a new keeper; `rest` holds the bytes of stdin behind the request to
/// keep.
pub fn relay(rest: &[u8]) -> Result<ExitCode, Failure> {
    let fault = |error: io::Error| {
        Failure::new(format!(
            "the agent that is to keep the job cannot be started: {error}"
        ))
    };
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(fault)?;
    let mut requests = MessageReader::shared(stdin, rest);
    let keeper = start().map_err(fault)?;
    match carry(&mut requests, keeper).map_err(fault)? {
        Some(folder) => Ok(follow::report(&folder, requests)),
        None => Ok(ExitCode::SUCCESS),
    }
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

/// Carries requests and events until the keeper stops reporting; returns the job's folder if the
/// keeper keeps the job.
fn carry(requests: &mut MessageReader, mut keeper: UnixStream) -> io::Result<Option<Folder>> {
    let mut events = MessageReader::shared(keeper.try_clone()?.into(), &[]);
    let mut kept = None;
    let mut out = io::stdout().lock();
    loop {
        while let Some(message) = requests.next::<Request>().map_err(io::Error::other)? {
            keeper.write_all(&codec::encode(&message.head, &message.body))?;
        }
        if requests.has_ended() {
            // a launcher that is gone must be gone for the keeper too
            let _ = keeper.shutdown(Shutdown::Write);
        }
        let input = |reader| PollFd::new(reader, PollFlags::POLLIN);
        let mut fds = vec![input(events.as_fd())];
        fds.extend((!requests.has_ended()).then(|| input(requests.as_fd())));
        let _ = poll(&mut fds, PollTimeout::NONE);
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if ready.get(1).copied().unwrap_or(false) {
            requests.read();
        }
        if ready[0] {
            events.read();
        }
        while let Some(message) = events.next::<Event>().map_err(io::Error::other)? {
            if let Event::Kept(job) = &message.head {
                kept = Some(Folder::at(&PathBuf::from(&job.folder.0)));
            }
            out.write_all(&codec::encode(&message.head, &message.body))?;
            out.flush()?;
        }
        if events.has_ended() {
            let _ = keeper.shutdown(Shutdown::Write);
            return Ok(kept);
        }
    }
}
