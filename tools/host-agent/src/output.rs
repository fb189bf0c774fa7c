//! Events on their way out.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tls::Link;
use transfer::SILENCE;
use wire::{Event, codec};

/// A direct connection: one thread reads, others write now and then.
pub type SharedLink = Arc<Mutex<Link>>;

/// The connection, for a moment: nobody waits for the other side meanwhile.
pub fn lock(link: &SharedLink) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// stdout, or a direct connection. Once nobody takes it any more, that is remembered and nothing is
/// written.
#[derive(Debug, Default)]
pub struct Output {
    closed: bool,
    /// `None` for stdout.
    link: Option<SharedLink>,
}

impl Output {
    /// Over a direct connection.
    pub fn over(link: SharedLink) -> Output {
        Output {
            closed: false,
            link: Some(link),
        }
    }

    /// The first line, by which the tool knows the agent's words from the login shell's; that may
    /// have left a line without its end.
    pub fn mark(&mut self, token: &str) {
        self.write(format!("\n{token} runs\n").as_bytes());
    }

    /// An event without a body.
    pub fn event(&mut self, event: &Event) {
        self.event_with(event, &[]);
    }

    /// The same with bytes behind it.
    pub fn event_with(&mut self, event: &Event, body: &[u8]) {
        self.write(&codec::encode_head(event, body.len()));
        if !body.is_empty() {
            self.write(body);
        }
    }

    /// Whether nobody takes what is written any more.
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

/// Writes all of it; an error where the other side takes nothing for too long.
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
        // a descriptor of its own, because the connection is somebody else's while we wait
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
