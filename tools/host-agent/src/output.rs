//! Writes events to stdout or to a direct connection.

use crate::readiness::is_ready;
use nix::poll::PollFlags;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tls::Link;
use transfer::silence;
use wire::files::FileEvent;
use wire::{Event, codec};

/// A direct connection: one thread reads from it, and others sometimes write. The lock is held only
/// for a moment, never while waiting for the other side.
pub type SharedLink = Arc<Mutex<Link>>;

/// The output for events: stdout or a direct connection. Once the other side no longer reads,
/// nothing more is written.
#[derive(Debug, Default)]
pub struct EventOutput {
    closed: bool,
    /// The direct connection; `None` for stdout.
    link: Option<SharedLink>,
}

impl EventOutput {
    /// An output over a direct connection.
    pub fn over(link: SharedLink) -> EventOutput {
        EventOutput {
            closed: false,
            link: Some(link),
        }
    }

    /// Writes the first line, by which the tool distinguishes the agent's output from that of the
    /// login shell. It begins with a newline, because the login shell may have left an unfinished
    /// line.
    pub fn mark(&mut self, token: &str) {
        self.write(format!("\n{token} runs\n").as_bytes());
    }

    /// Writes an event without a body.
    pub fn event(&mut self, event: &Event) {
        self.event_with(event, &[]);
    }

    /// Writes an event with a body.
    pub fn event_with(&mut self, event: &Event, body: &[u8]) {
        self.write(&codec::encode_head(event, body.len()));
        if !body.is_empty() {
            self.write(body);
        }
    }

    /// Whether the other side no longer reads.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        let written = match &self.link {
            Some(link) => write(link, bytes, silence(), Waits::WhileBytesArrive),
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
        };
        self.closed = written.is_err();
    }
}

/// The output of a conversation about files, to which several threads write.
pub struct SharedOutput(Mutex<EventOutput>);

impl SharedOutput {
    pub fn new(output: EventOutput) -> SharedOutput {
        SharedOutput(Mutex::new(output))
    }

    pub fn send(&self, event: FileEvent) {
        self.send_with(event, &[]);
    }

    pub fn send_with(&self, event: FileEvent, body: &[u8]) {
        self.0.lock().event_with(&Event::File(event), body);
    }

    pub fn event(&self, event: &Event) {
        self.0.lock().event(event);
    }

    pub fn is_closed(&self) -> bool {
        self.0.lock().is_closed()
    }
}

/// Writes all bytes, however long the other side takes to accept them.
pub fn write_all(link: &SharedLink, bytes: &[u8]) -> io::Result<()> {
    write(link, bytes, Duration::MAX, Waits::NoLonger)
}

/// Whether to continue to wait for a side that has accepted nothing within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    NoLonger,
    /// Wait as long as it sends something. A tool with a slow disk sends heartbeats; their arrival
    /// counts even if they were not read, because the thread that reads may be the one that writes.
    WhileBytesArrive,
}

fn write(link: &SharedLink, bytes: &[u8], limit: Duration, waits: Waits) -> io::Result<()> {
    let mut rest = bytes;
    let mut is_full = false;
    while !rest.is_empty() || is_full {
        let mut locked = link.lock();
        let result = match rest.is_empty() {
            true => locked.flush().map(|()| 0),
            false => locked.write_some(rest),
        };
        match result {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        is_full = locked.wait_for().contains(PollFlags::POLLOUT);
        if !is_full {
            continue;
        }
        let received = received(&locked)?;
        // a duplicate, because other threads use the connection during the wait
        let descriptor = locked.as_fd().try_clone_to_owned()?;
        drop(locked);
        let is_late = !is_ready(&descriptor, PollFlags::POLLOUT, Some(limit));
        if is_late && (waits == Waits::NoLonger || self::received(&link.lock())? <= received) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// How many bytes have arrived so far, including unread ones.
fn received(link: &Link) -> io::Result<u64> {
    Ok(link.received_bytes() + rustix::io::ioctl_fionread(link.as_fd())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use tls::{Guests, Identity};

    /// Both ends of an authenticated connection.
    fn connected() -> (SharedLink, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let identity = Identity::new().unwrap();
        let guests = Guests::new(&identity, vec![identity.public_key()]).unwrap();
        let mut server = Link::accept(listener.accept().unwrap().0, &guests).unwrap();
        let mut client = Link::connect(stream, &identity, identity.public_key()).unwrap();
        while client.peer().is_none() || server.peer().is_none() {
            client.receive(&mut Vec::new()).unwrap();
            server.receive(&mut Vec::new()).unwrap();
        }
        (Arc::new(Mutex::new(client)), server)
    }

    #[test]
    fn a_silent_side_that_accepts_nothing_is_given_up() {
        // more than the buffers of the connection
        let bytes = vec![0; 32 << 20];
        for waits in [Waits::NoLonger, Waits::WhileBytesArrive] {
            let (client, mut server) = connected();
            // bytes from before the wait do not count
            server.send(b"early").unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let written = write(&client, &bytes, Duration::from_millis(300), waits);
            let error = written.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{waits:?}");
        }
    }
}
