//! Writes events to stdout or to a direct connection.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tls::Link;
use transfer::silence;
use wire::files::FileEvent;
use wire::{Event, codec};

/// A direct connection: one thread reads it, others write now and then. It is locked for a moment;
/// nobody waits for the other side while holding it.
pub type SharedLink = Arc<Mutex<Link>>;

/// Events go to stdout or to a direct connection. Once nobody reads them any longer, nothing more
/// is written.
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

/// Writes all bytes, however long the other side takes for them.
pub fn write_all(link: &SharedLink, bytes: &[u8]) -> io::Result<()> {
    write(link, bytes, Duration::MAX, Waits::NoLonger)
}

/// Whether to wait on for another side that has accepted nothing for the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    NoLonger,
    /// As long as it sends something. A tool whose disk is slow sends signs of life, which need not
    /// be read for that: who should read them may be writing here.
    WhileBytesArrive,
}

fn write(link: &SharedLink, bytes: &[u8], limit: Duration, waits: Waits) -> io::Result<()> {
    let mut rest = bytes;
    let mut is_full = false;
    while !rest.is_empty() || is_full {
        let mut one = link.lock();
        let result = match rest.is_empty() {
            true => one.flush().map(|()| 0),
            false => one.write_some(rest),
        };
        match result {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        is_full = one.wait_for().contains(PollFlags::POLLOUT);
        if !is_full {
            continue;
        }
        let received = received(&one)?;
        // a descriptor of its own, because others use the connection while we wait
        let descriptor = one.as_fd().try_clone_to_owned()?;
        drop(one);
        let is_late = !is_ready(&descriptor, PollFlags::POLLOUT, Some(limit));
        if is_late && (waits == Waits::NoLonger || self::received(&link.lock())? <= received) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Waits until a descriptor is ready for this, at most until the limit; whether it is.
pub fn is_ready(descriptor: &impl AsFd, flags: PollFlags, limit: Option<Duration>) -> bool {
    let mut fds = [PollFd::new(descriptor.as_fd(), flags)];
    let timeout = limit.map_or(PollTimeout::NONE, |limit| {
        PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
    });
    loop {
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => {}
            ready => return ready != Ok(0),
        }
    }
}

/// How many bytes have come so far, with those that nobody has read yet.
fn received(link: &Link) -> io::Result<u64> {
    Ok(link.received_bytes() + rustix::io::ioctl_fionread(link.as_fd())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use tls::{Guests, Identity};

    /// Both ends of a connection, which know each other.
    fn connected() -> (SharedLink, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let identity = Identity::new().unwrap();
        let guests = Guests::new(&identity, vec![identity.public_key()]).unwrap();
        let mut there = Link::accept(listener.accept().unwrap().0, &guests).unwrap();
        let mut here = Link::connect(client, &identity, identity.public_key()).unwrap();
        while here.peer().is_none() || there.peer().is_none() {
            here.receive(&mut Vec::new()).unwrap();
            there.receive(&mut Vec::new()).unwrap();
        }
        (Arc::new(Mutex::new(here)), there)
    }

    #[test]
    fn another_side_that_is_silent_and_takes_nothing_is_given_up() {
        // more than the connection holds
        let bytes = vec![0; 32 << 20];
        for waits in [Waits::NoLonger, Waits::WhileBytesArrive] {
            let (here, mut there) = connected();
            // what has come before is no sign of life
            there.send(b"here I am").unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let written = write(&here, &bytes, Duration::from_millis(300), waits);
            let error = written.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{waits:?}");
        }
    }
}
