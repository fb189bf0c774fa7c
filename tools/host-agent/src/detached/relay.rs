//! The process that was asked to detach a job. It starts the launcher, and passes the tool's
//! requests to it and its events back. Once all agents have connected to the launcher, it closes
//! this connection, and follow.rs sends what it writes.

use super::folder::JobFolder;
use super::follow;
use super::pipes::MessageReader;
use super::start_apart;
use crate::notes::WatcherLink;
use crate::output::EventOutput;
use host::readiness::readable;
use std::io::{self, Write};
use std::iter::once;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use wire::codec;
use wire::{Event, Failure, Request};

/// Connects a tool with a new launcher; `rest` has the bytes of stdin after the request.
pub fn relay(
    rest: &[u8],
    output: &EventOutput,
    watcher: &mut WatcherLink,
) -> Result<ExitCode, Failure> {
    let fault =
        |error: io::Error| Failure::new(format!("the launcher cannot be started there: {error}"));
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(fault)?;
    let mut requests = MessageReader::shared(stdin, rest);
    let (ours, theirs) = UnixStream::pair().map_err(fault)?;
    let copy = OwnedFd::from(theirs.try_clone().map_err(fault)?);
    watcher.start_apart(|| {
        let mut between = start_apart("launch", copy, OwnedFd::from(theirs)).map_err(fault)?;
        between.wait().map_err(fault)
    })?;
    match carry(&mut requests, ours, output).map_err(fault)? {
        Some(folder) => Ok(follow::report(&folder, requests)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Passes requests and events on until the launcher closes the connection or nothing reads the
/// events; returns the job's directory if the launcher continues.
fn carry(
    requests: &mut MessageReader,
    mut launcher: UnixStream,
    output: &EventOutput,
) -> io::Result<Option<JobFolder>> {
    let mut events = MessageReader::shared(launcher.try_clone()?.into(), &[]);
    let mut detached = None;
    loop {
        while let Some(message) = requests.next::<Request>().map_err(io::Error::other)? {
            // fails if the launcher no longer needs the tool; its events have ended then
            let _ = launcher.write_all(&codec::encode(&message.head, &message.body));
        }
        if requests.has_ended() {
            // the launcher must see the end of the tool
            let _ = launcher.shutdown(Shutdown::Write);
        }
        let open_requests = (!requests.has_ended()).then(|| requests.as_fd());
        let ready = readable(once(events.as_fd()).chain(open_requests), None);
        if ready[0] {
            events.read();
        }
        if ready.get(1) == Some(&true) {
            requests.read();
        }
        while let Some(message) = events.next::<Event>().map_err(io::Error::other)? {
            if let Event::Detached(job) = &message.head {
                detached = Some(JobFolder::new(&PathBuf::from(&job.folder.0)));
            }
            output.event_with(&message.head, &message.body);
        }
        if events.has_ended() || output.is_closed() {
            let _ = launcher.shutdown(Shutdown::Write);
            return Ok(detached);
        }
    }
}
