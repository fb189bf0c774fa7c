//! A connection of TLS to a host's agent, beside the login that has told both sides' keys: for what
//! a login's own stream carries too, but at half the price a byte.

use super::channel::{Channel, Stream};
use super::session::Session;
use nix::poll::{PollFd, PollFlags, ppoll};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use tls::{Identity, Link, PublicKey};

/// `--wire auto` waits so long for a host's port: one that can be reached answers within a
/// millisecond on a cluster, and within half a second from anywhere.
const AUTO_LIMIT: Duration = Duration::from_secs(1);
/// Less than this is with the host sooner over the login than a port is opened for it.
const WORTH: u64 = 4 << 20;

/// Over what the bulk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Directly where that can be, else as with `Ssh`.
    Auto,
    /// Over the streams of the logins, whichever connector makes them.
    Ssh,
    /// Directly, or not at all.
    Direct,
}

/// How the bulk is to go, for all hosts.
#[derive(Clone, Copy, Debug)]
pub struct WireOptions {
    /// Over what.
    pub wire: Wire,
    /// The port that hosts listen on; 0 for any.
    pub data_port: u16,
    /// How long `Wire::Direct` may wait for a host's port.
    pub limit: Duration,
}

impl WireOptions {
    /// Whether a direct way to a host is worth a try for so many bytes.
    pub fn is_worth(&self, host: Ipv4Addr, bytes: u64) -> bool {
        match self.wire {
            Wire::Ssh => false,
            Wire::Direct => bytes > 0,
            // what is here goes through pipes, which no cipher slows down
            Wire::Auto => bytes >= WORTH && !host.is_loopback() && !super::is_here(host),
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        match self.wire {
            Wire::Auto => AUTO_LIMIT,
            _ => self.limit,
        }
    }
}

/// Where a host's agent listens for this tool, and how each knows the other.
#[derive(Clone, Debug)]
pub struct Door {
    pub(crate) address: SocketAddr,
    pub(crate) identity: Identity,
    pub(crate) key: PublicKey,
}

/// Why there is no direct way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDoor {
    /// The host cannot listen, or cannot be reached there.
    Closed(String),
    /// Somebody else answers there.
    OtherKey,
}

impl std::fmt::Display for NoDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoDoor::Closed(why) => f.write_str(why),
            NoDoor::OtherKey => f.write_str("who answers there has another key than the host told"),
        }
    }
}

impl Door {
    /// A connection, once both sides have proved their keys.
    pub(crate) fn connect(&self, until: Instant) -> Result<Session, NoDoor> {
        let closed = |error: io::Error| match tls::is_wrong_key(&error) {
            true => NoDoor::OtherKey,
            false => NoDoor::Closed(format!("{}: {error}", self.address)),
        };
        let late = || closed(io::ErrorKind::TimedOut.into());
        let left = || until.saturating_duration_since(Instant::now());
        if left().is_zero() {
            return Err(late());
        }
        let stream = TcpStream::connect_timeout(&self.address, left()).map_err(closed)?;
        let mut link = Link::connect(stream, &self.identity, self.key).map_err(closed)?;
        let mut plain = Vec::new();
        // the host's first word shows that it knows us too
        while link.peer().is_none() || plain.is_empty() {
            if left().is_zero() {
                return Err(late());
            }
            let mut fds = [PollFd::new(link.as_fd(), link.wait_for())];
            let _ = ppoll(&mut fds, Some(left().into()), None);
            link.flush().map_err(closed)?;
            if !link.receive(&mut plain).map_err(closed)? && plain.is_empty() {
                return Err(closed(io::ErrorKind::ConnectionReset.into()));
            }
        }
        Ok(Session::over(Box::new(Direct::over(link, plain))))
    }
}

/// The connection as what a connector gives: without a stderr.
pub(crate) struct Direct {
    link: Link,
    /// What came and was not given out yet, from `given` on.
    plain: Vec<u8>,
    given: usize,
    /// More may come.
    open: bool,
}

impl Direct {
    /// Over a connection of which something was read already.
    pub(crate) fn over(mut link: Link, plain: Vec<u8>) -> Direct {
        link.widen();
        Direct {
            link,
            plain,
            given: 0,
            open: true,
        }
    }

    /// Whether more may come.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }
}

impl Channel for Direct {
    fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> io::Result<usize> {
        if stream == Stream::Stderr {
            return Ok(0);
        }
        // what waits to go out is looked at here too: nobody writes while nothing new is to be sent
        self.link.flush()?;
        if self.given == self.plain.len() && self.open {
            self.plain.clear();
            self.given = 0;
            self.open = self.link.receive(&mut self.plain)?;
        }
        let there = &self.plain[self.given..];
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        self.given += count;
        if count == 0 && self.open {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link.write_some(bytes)
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        self.link.close()
    }

    fn wait_for(&self, _reading: [bool; 2], _writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        // it knows by itself what waits to be sent
        vec![(self.link.as_fd(), self.link.wait_for())]
    }

    fn is_direct(&self) -> bool {
        true
    }
}
