//! Writes events to stdout or to a direct connection.

use host::readiness::is_ready;
use nix::poll::PollFlags;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tls::TlsConnection;
use transfer::silence;
use wire::files::FileEvent;
use wire::{Event, codec};

/// A direct connection: one thread reads from it, and others sometimes write. The lock is held only
/// for a moment, never while waiting for the other side.
pub type SharedLink = Arc<Mutex<TlsConnection>>;

/// Several threads may write to it. Once the other side no longer reads, nothing more is written.
#[derive(Debug, Default)]
pub struct EventOutput {
    /// Whether the other side no longer reads; locked while a message is written.
    closed: Mutex<bool>,
    to: Destination,
}

#[derive(Debug, Default)]
enum Destination {
    #[default]
    Stdout,
    Link(SharedLink),
    /// For a reader in this process.
    Memory(Mutex<Vec<u8>>),
}

impl EventOutput {
    pub fn over(link: SharedLink) -> EventOutput {
        EventOutput::to(Destination::Link(link))
    }

    /// The reader is in this process.
    pub fn in_memory() -> EventOutput {
        EventOutput::to(Destination::Memory(Mutex::default()))
    }

    fn to(to: Destination) -> EventOutput {
        EventOutput {
            closed: Mutex::new(false),
            to,
        }
    }

    /// What was written since the last call.
    pub fn take_written(&self) -> Vec<u8> {
        match &self.to {
            Destination::Memory(written) => std::mem::take(&mut written.lock()),
            Destination::Stdout | Destination::Link(_) => Vec::new(),
        }
    }

    /// Writes the first line, which shows the tool where the login shell's output ends.
    /// It begins with a newline, because the shell may have left an unfinished line.
    pub fn mark(&self, token: &str) {
        self.write(format!("\n{token} runs\n").as_bytes(), &[]);
    }

    pub fn event(&self, event: &Event) {
        self.event_with(event, &[]);
    }

    pub fn event_with(&self, event: &Event, body: &[u8]) {
        self.write(&codec::encode_head(event, body.len()), body);
    }

    pub fn send(&self, event: FileEvent) {
        self.send_with(event, &[]);
    }

    pub fn send_with(&self, event: FileEvent, body: &[u8]) {
        self.event_with(&Event::File(event), body);
    }

    pub fn is_closed(&self) -> bool {
        *self.closed.lock()
    }

    fn write(&self, head: &[u8], body: &[u8]) {
        let mut closed = self.closed.lock();
        for bytes in [head, body] {
            if *closed || bytes.is_empty() {
                return;
            }
            let written = match &self.to {
                Destination::Link(link) => write(link, bytes, Some(silence())),
                Destination::Memory(written) => {
                    written.lock().extend_from_slice(bytes);
                    Ok(())
                }
                Destination::Stdout => {
                    let mut stdout = io::stdout().lock();
                    stdout.write_all(bytes).and_then(|()| stdout.flush())
                }
            };
            *closed = written.is_err();
        }
    }
}

/// Writes all bytes. A side that accepts nothing within the limit is waited for as long as it sends
/// something: a tool with a slow disk sends heartbeats. Unread ones count, too, because the thread
/// that reads may be the one that writes.
pub fn write(link: &SharedLink, bytes: &[u8], limit: Option<Duration>) -> io::Result<()> {
    let mut rest = bytes;
    let mut is_full = false;
    while !rest.is_empty() || is_full {
        let mut locked = link.lock();
        let result = if rest.is_empty() {
            locked.flush().map(|()| 0)
        } else {
            locked.write_some(rest)
        };
        match result {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        is_full = locked.poll_flags().contains(PollFlags::POLLOUT);
        if !is_full {
            continue;
        }
        let received = received(&locked)?;
        // a duplicate, because other threads use the connection during the wait
        let descriptor = locked.as_fd().try_clone_to_owned()?;
        drop(locked);
        let is_late = !is_ready(&descriptor, PollFlags::POLLOUT, limit);
        if is_late && self::received(&link.lock())? <= received {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// How many bytes have arrived so far, including unread ones.
fn received(link: &TlsConnection) -> io::Result<u64> {
    Ok(link.received_bytes() + rustix::io::ioctl_fionread(link.as_fd())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use tls::{Guests, Identity};

    /// Both ends of an authenticated connection.
    fn connected() -> (SharedLink, TlsConnection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let identity = Identity::new().unwrap();
        let guests = Guests::new(&identity, vec![identity.public_key()]).unwrap();
        let mut server = TlsConnection::accept(listener.accept().unwrap().0, &guests).unwrap();
        let mut client = TlsConnection::connect(stream, &identity, identity.public_key()).unwrap();
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
        let (client, mut server) = connected();
        // bytes from before the wait do not count
        server.send(b"early").unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let written = write(&client, &bytes, Some(Duration::from_millis(300)));
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
