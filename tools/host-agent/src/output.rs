//! Writes events to stdout or to a direct connection.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tls::Link;
use transfer::SILENCE;
use wire::{Event, codec};

/// A direct connection: one thread reads it, others write now and then.
pub type SharedLink = Arc<Mutex<Link>>;

/// Locks the connection for a moment; nobody waits for the other side while holding it.
pub fn lock(link: &SharedLink) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Events go to stdout or to a direct connection. Once nobody reads them any longer, nothing more
/// is written.
#[derive(Debug, Default)]
pub struct Output {
    closed: bool,
    /// The direct connection; `None` for stdout.
    link: Option<SharedLink>,
}

impl Output {
    /// An output over a direct connection.
    pub fn over(link: SharedLink) -> Output {
        Output {
            closed: false,
            link: Some(link),
        }
    }

    /// Writes the first line, by which the tool tells the agent's output from the login shell's. It
    /// begins with a line end, because the login shell may have left a line without one.
    pub fn mark(&mut self, token: &str) {
        self.write(format!("\n{token} runs\n").as_bytes());
    }

    /// Writes an event without a body.
    pub fn event(&mut self, event: &Event) {
        self.event_with(event, &[]);
    }

    /// Writes an event with bytes behind it.
    pub fn event_with(&mut self, event: &Event, body: &[u8]) {
        self.write(&codec::encode_head(event, body.len()));
        if !body.is_empty() {
            self.write(body);
        }
    }

    /// Whether nobody reads what is written any longer.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        let written = match &self.link {
            Some(link) => write_over(link, bytes),
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
        };
        self.closed = written.is_err();
    }
}

/// Writes all bytes; fails if the other side accepts nothing for too long.
pub fn write_over(link: &SharedLink, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    let mut waits = false;
    while !rest.is_empty() || waits {
        let mut one = lock(link);
        let result = match rest.is_empty() {
            true => one.flush().map(|()| 0),
            false => one.write_some(rest),
        };
        match result {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        waits = one.wait_for().contains(PollFlags::POLLOUT);
        if !waits {
            continue;
        }
        // a descriptor of its own, because others use the connection while we wait
        let descriptor = one.as_fd().try_clone_to_owned()?;
        drop(one);
        let timeout = PollTimeout::try_from(SILENCE).unwrap_or(PollTimeout::MAX);
        if poll(
            &mut [PollFd::new(descriptor.as_fd(), PollFlags::POLLOUT)],
            timeout,
        )? == 0
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}
