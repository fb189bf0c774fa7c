//! The agent that supervises the processes, as the keeper sees it.

use crate::keep::pipes::{MessageReader, MessageWriter};
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use wire::Request;
use wire::codec;

/// The agent that supervises; for it, the keeper is the launcher.
pub(super) struct Supervisor {
    pub(super) child: Child,
    pub(super) requests: MessageWriter,
    pub(super) events: MessageReader,
    pub(super) heard: Instant,
    /// Whether it was told to start the processes.
    pub(super) started: bool,
    /// When it had nothing more to say before everything had ended: its guardian ends the rest.
    pub(super) gone: Option<Instant>,
    /// Whether everything has ended there.
    pub(super) over: bool,
}

impl Supervisor {
    pub(super) fn begin() -> io::Result<Supervisor> {
        let mut child = Command::new("/proc/self/exe")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (requests, events) = (
            MessageWriter::new(stdin.into())?,
            MessageReader::new(stdout.into())?,
        );
        Ok(Supervisor {
            child,
            requests,
            events,
            heard: Instant::now(),
            started: false,
            gone: None,
            over: false,
        })
    }

    pub(super) fn ask(&mut self, request: &Request) {
        self.requests.send(&codec::encode(request, &[]));
    }
}
