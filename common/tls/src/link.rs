//! A connection that never blocks.

use crate::identity::{Identity, PublicKey};
use crate::pinned;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most bytes that may wait to be sent. A side that accepts nothing for that long is lost.
const MAX_WAITING: usize = 4 << 20;
/// How much is read at once, so that a side that sends without end leaves the others their turn.
const MAX_READ: usize = 256 << 10;
/// How much [`Link::write_some`] takes at once. Larger writes save system calls and wake-ups of the
/// other side; with this size the encrypted copy still fits a processor's cache.
const MAX_WRITTEN: usize = 512 << 10;
/// How many bytes are read from the socket at once if little arrives.
const LITTLE: usize = 16 << 10;
/// The same for a connection at a port, which has proved nothing yet.
const LEAST: usize = 4 << 10;
/// How many bytes are read from the socket at once if much arrives; rustls itself reads 4 KiB.
const MUCH: usize = 512 << 10;

/// The interval of the kernel's keep-alive probes, in seconds.
const PROBE_PACE: u32 = 10;
/// The number of unanswered probes after which the other side counts as lost: 30 s in all, as with
/// ssh.
const PROBES: u32 = 3;

/// Whether a connection was given up because the other side has another key than the expected one.
pub fn is_wrong_key(error: &io::Error) -> bool {
    let cause = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// The keys that a listener lets in.
#[derive(Clone, Debug)]
pub struct Guests(Arc<ServerConfig>);

impl Guests {
    /// Admits peers with one of these keys.
    pub fn new(identity: &Identity, keys: Vec<PublicKey>) -> io::Result<Guests> {
        pinned::server(identity, keys).map(Guests)
    }
}

/// Makes glibc keep the memory of records that were sent, for the next ones. By default it returns
/// free memory at the end of the heap to the kernel, at first from 128 KiB on, and then from twice
/// the size of the largest block that was freed (mallopt(3), `M_MMAP_THRESHOLD`). Memory that was
/// returned costs page faults: a fiftieth of the time of a copy.
fn keep_freed_memory() {
    drop(black_box(Vec::<u8>::with_capacity(2 * MAX_WRITTEN)));
}

/// One side of a connection.
#[derive(Debug)]
pub struct Link {
    /// Its buffer has bytes that rustls has not taken yet.
    stream: BufReader<TcpStream>,
    tls: Connection,
    /// How many bytes rustls has taken.
    received_bytes: u64,
    /// Whether nothing more arrives.
    ended: bool,
    /// Whether all queued bytes are the beginning of bytes that follow at once.
    begun: bool,
}

impl Link {
    /// Connects to the listening side, which must have this key.
    pub fn connect(stream: TcpStream, identity: &Identity, server: PublicKey) -> io::Result<Link> {
        // no name is sent for an address, and none is checked
        let name = ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED));
        let tls = ClientConnection::new(pinned::client(identity, server)?, name)
            .map_err(io::Error::other)?;
        Link::new(stream, tls.into(), LITTLE)
    }

    /// Connects within the time, and returns when the listening side has proved its key; with
    /// `welcomed`, when it has also sent something, which shows that it has admitted this side.
    /// Returns the connection and the received bytes.
    pub fn open(
        address: SocketAddr,
        identity: &Identity,
        server: PublicKey,
        limit: Duration,
        welcomed: bool,
    ) -> io::Result<(Link, Vec<u8>)> {
        let until = Instant::now() + limit;
        let stream = TcpStream::connect_timeout(&address, limit)?;
        let mut link = Link::connect(stream, identity, server)?;
        let mut received = Vec::new();
        while link.peer().is_none() || (welcomed && received.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let mut fds = [PollFd::new(link.as_fd(), link.wait_for())];
            // one millisecond more than what poll(2) rounds down
            let left = PollTimeout::try_from(left + Duration::from_millis(1));
            let _ = poll(&mut fds, left.unwrap_or(PollTimeout::MAX));
            link.flush()?;
            if !link.receive(&mut received)? && received.is_empty() {
                return Err(ErrorKind::ConnectionReset.into());
            }
        }
        Ok((link, received))
    }

    /// Accepts a connection.
    pub fn accept(stream: TcpStream, guests: &Guests) -> io::Result<Link> {
        let tls = ServerConnection::new(Arc::clone(&guests.0)).map_err(io::Error::other)?;
        Link::new(stream, tls.into(), LEAST)
    }

    fn new(stream: TcpStream, mut tls: Connection, buffer: usize) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        tls.set_buffer_limit(Some(MAX_WAITING));
        let mut link = Link {
            stream: BufReader::with_capacity(buffer, stream),
            tls,
            received_bytes: 0,
            ended: false,
            begun: false,
        };
        link.flush()?;
        Ok(link)
    }

    /// The key of the other side, after it has proved that it has it.
    pub fn peer(&self) -> Option<PublicKey> {
        if self.tls.is_handshaking() {
            return None;
        }
        PublicKey::from_spki(self.tls.peer_certificates()?.first()?)
    }

    /// Queues bytes and sends what can be sent now. An error means that the other side accepts
    /// nothing.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let taken = self.tls.writer().write(bytes)?;
        if taken < bytes.len() {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                "too much waits to be sent",
            ));
        }
        self.flush()
    }

    /// Makes the kernel probe the other side even while nothing is sent. If that side disappears
    /// without closing, or accepts nothing of the sent data for that long, the connection breaks,
    /// and waiting callers are woken. For connections that wait until they are used.
    pub fn notice_silence(&self) -> io::Result<()> {
        setsockopt(self, sockopt::KeepAlive, &true)?;
        setsockopt(self, sockopt::TcpKeepIdle, &PROBE_PACE)?;
        setsockopt(self, sockopt::TcpKeepInterval, &PROBE_PACE)?;
        setsockopt(self, sockopt::TcpKeepCount, &PROBES)?;
        // data that was sent and is not acknowledged counts as a probe too
        let limit_ms = (PROBES + 1) * PROBE_PACE * 1000;
        setsockopt(self, sockopt::TcpUserTimeout, &limit_ms)?;
        Ok(())
    }

    /// Allows the other side to be slow, because of its disk or reader: from now on the users of
    /// the connection decide how long they wait. The kernel does not distinguish a slow side from a
    /// lost one: its limit counts while the other side has no room, even though that side answers
    /// all probes.
    pub fn be_patient(&self) -> io::Result<()> {
        setsockopt(self, sockopt::TcpUserTimeout, &0)?;
        Ok(())
    }

    /// How many encrypted bytes were read from the socket.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Enlarges the read buffer, before much data.
    pub fn widen(mut self) -> Link {
        keep_freed_memory();
        if self.stream.buffer().is_empty() {
            self.stream = BufReader::with_capacity(MUCH, self.stream.into_inner());
        }
        self
    }

    /// Sends as many of these bytes as possible now. `WouldBlock` if that is none; see
    /// [`Link::wait_for`].
    pub fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.begun {
            self.make_room()?;
        }
        let bytes = &bytes[..bytes.len().min(MAX_WRITTEN)];
        let taken = self.tls.writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    /// As [`Link::write_some`] for bytes that others follow at once, such as the line in front of a
    /// body: if they are few, they are sent together with those, which saves a system call and the
    /// other side's waking up for them.
    pub fn write_beginning(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.begun || bytes.len() > LITTLE {
            return self.write_some(bytes);
        }
        self.make_room()?;
        let taken = self.tls.writer().write(bytes)?;
        self.begun = true;
        Ok(taken)
    }

    /// Sends queued bytes; `WouldBlock` if that is not possible now.
    fn make_room(&mut self) -> io::Result<()> {
        self.flush()?;
        match self.tls.wants_write() {
            true => Err(ErrorKind::WouldBlock.into()),
            false => Ok(()),
        }
    }

    /// Tells the other side that nothing follows. `WouldBlock` while that cannot be sent.
    pub fn close(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        self.make_room()?;
        self.stream.get_ref().shutdown(Shutdown::Write)
    }

    /// Ends the connection at once, for readers and writers.
    pub fn shutdown(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
    }

    /// Writes the available bytes to `received`; returns whether more may arrive. An error ends the
    /// connection.
    pub fn receive(&mut self, received: &mut impl Write) -> io::Result<bool> {
        let mut count = 0;
        let until = self.received_bytes + MAX_READ as u64;
        // bytes that were read from the socket do not make poll report it again
        while !self.ended
            && ((count < MAX_READ && self.received_bytes < until)
                || !self.stream.buffer().is_empty())
        {
            match self.tls.read_tls(&mut self.stream) {
                Ok(count) => {
                    self.received_bytes += count as u64;
                    self.ended = count == 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let state = self.tls.process_new_packets();
            // an alert tells the other side the reason
            let flushed = self.flush();
            let state = state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            flushed?;
            count += self.take(state.plaintext_bytes_to_read(), received)?;
        }
        Ok(!self.ended)
    }

    /// Takes up to this many decrypted bytes; returns their number.
    fn take(&mut self, count: usize, received: &mut impl Write) -> io::Result<usize> {
        let mut left = count;
        while left > 0 {
            let mut reader = self.tls.reader();
            let bytes = reader.fill_buf()?;
            let taken = bytes.len().min(left);
            received.write_all(&bytes[..taken])?;
            reader.consume(taken);
            left -= taken;
        }
        Ok(count)
    }

    /// Sends queued bytes, as far as possible now.
    pub fn flush(&mut self) -> io::Result<()> {
        self.begun = false;
        while self.tls.wants_write() {
            match self.tls.write_tls(self.stream.get_mut()) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What to wait for before the next [`Link::receive`] or [`Link::flush`].
    pub fn wait_for(&self) -> PollFlags {
        let writing = if self.tls.wants_write() {
            PollFlags::POLLOUT
        } else {
            PollFlags::empty()
        };
        PollFlags::POLLIN | writing
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    /// Both ends of a connection over loopback.
    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn much_goes_both_ways_in_pieces_and_the_end_is_told() {
        let (ours, theirs) = (Identity::new().unwrap(), Identity::new().unwrap());
        let (client, server) = connected();
        let guests = Guests::new(&theirs, vec![ours.public_key()]).unwrap();
        let mut client = Link::connect(client, &ours, theirs.public_key()).unwrap();
        let mut server = Link::accept(server, &guests).unwrap();
        turns(&mut client, &mut server, |client, server, _| {
            client.peer().is_some() && server.peer().is_some()
        })
        .unwrap();
        let mut server = server.widen();
        let text: Vec<u8> = (0..8_000_000u32).map(|n| (n >> 3) as u8).collect();
        let (mut sent, mut got, mut open) = (0, Vec::new(), true);
        let until = Instant::now() + Duration::from_secs(60);
        let beginning = client.write_beginning(&text[..3]);
        assert_eq!(beginning.unwrap(), 3);
        assert!(client.tls.wants_write(), "it was sent alone");
        sent += 3;
        while open && Instant::now() < until {
            match client.write_some(&text[sent..]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            if sent == text.len() {
                let _ = client.close();
            }
            open = server.receive(&mut got).unwrap();
        }
        assert!(!open && got == text);
        server.send(b"all of it").unwrap();
        let mut answer = Vec::new();
        while answer.len() < 9 && Instant::now() < until {
            client.receive(&mut answer).unwrap();
        }
        assert_eq!(answer, b"all of it");
    }

    /// Both ends take turns until `done`, or one of them fails.
    fn turns(
        client: &mut Link,
        server: &mut Link,
        done: impl Fn(&Link, &Link, &[u8]) -> bool,
    ) -> io::Result<Vec<u8>> {
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            client.flush()?;
            server.receive(&mut at_server)?;
            server.flush()?;
            client.receive(&mut at_client)?;
            if done(client, server, &at_server) {
                return Ok(at_server);
            }
        }
        panic!("they do not come to an end");
    }

    #[test]
    fn two_that_know_each_other_talk() {
        let (ours, theirs, other) = (
            Identity::new().unwrap(),
            Identity::new().unwrap(),
            Identity::new().unwrap(),
        );
        let (client, server) = connected();
        let guests = Guests::new(&theirs, vec![other.public_key(), ours.public_key()]).unwrap();
        let mut client = Link::connect(client, &ours, theirs.public_key()).unwrap();
        let mut server = Link::accept(server, &guests).unwrap();
        assert_eq!((client.peer(), server.peer()), (None, None));
        // more than both sockets hold
        let text: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
        client.send(&text).unwrap();
        let got = turns(&mut client, &mut server, |_, _, got| {
            got.len() >= text.len()
        })
        .unwrap();
        assert!(got == text);
        assert_eq!(
            (client.peer(), server.peer()),
            (Some(theirs.public_key()), Some(ours.public_key()))
        );
        assert!(server.received_bytes() > text.len() as u64 && client.received_bytes() > 0);
        drop(client);
        let mut rest = Vec::new();
        let until = Instant::now() + Duration::from_secs(10);
        while matches!(server.receive(&mut rest), Ok(true)) && Instant::now() < until {}
        assert!(rest.is_empty() && Instant::now() < until);
    }

    #[test]
    fn the_kernel_limits_only_a_connection_that_waits() {
        use nix::sys::socket::getsockopt;
        let identity = Identity::new().unwrap();
        let (client, _server) = connected();
        let link = Link::connect(client, &identity, identity.public_key()).unwrap();
        link.notice_silence().unwrap();
        assert_eq!(getsockopt(&link, sockopt::TcpUserTimeout), Ok(40_000));
        link.be_patient().unwrap();
        assert_eq!(getsockopt(&link, sockopt::TcpUserTimeout), Ok(0));
        assert_eq!(getsockopt(&link, sockopt::KeepAlive), Ok(true));
    }

    #[test]
    fn a_stranger_gets_nowhere_on_either_side() {
        let (ours, theirs, stranger) = (
            Identity::new().unwrap(),
            Identity::new().unwrap(),
            Identity::new().unwrap(),
        );
        let cases = [
            (
                "the server does not know the client",
                &stranger,
                theirs.public_key(),
                &theirs,
            ),
            (
                "the server is not who was expected",
                &ours,
                theirs.public_key(),
                &stranger,
            ),
        ];
        for (case, client_identity, expected, server_identity) in cases {
            let (client, server) = connected();
            let guests = Guests::new(server_identity, vec![ours.public_key()]).unwrap();
            let mut client = Link::connect(client, client_identity, expected).unwrap();
            let mut server = Link::accept(server, &guests).unwrap();
            client.send(b"let me in").unwrap();
            let result = turns(&mut client, &mut server, |_, _, got| !got.is_empty());
            let error = result.unwrap_err();
            assert!(server.peer().is_none(), "{case}");
            assert!(is_wrong_key(&error), "{case}: {error}");
        }
    }

    #[test]
    fn what_is_no_tls_is_refused() {
        let identity = Identity::new().unwrap();
        let guests = Guests::new(&identity, vec![identity.public_key()]).unwrap();
        for bytes in [
            &b"join 1 \xc3\xa9 t\n"[..],
            b"\x16\x03\x01\xff\xff",
            &[0; 100],
            b"GET / HTTP/1.1\r\n\r\n",
        ] {
            let (mut client, server) = connected();
            let mut server = Link::accept(server, &guests).unwrap();
            client.write_all(bytes).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut received = Vec::new();
            let until = Instant::now() + Duration::from_secs(10);
            while matches!(server.receive(&mut received), Ok(true)) && Instant::now() < until {}
            assert!(
                received.is_empty() && server.peer().is_none() && Instant::now() < until,
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn what_nobody_takes_is_not_kept_without_end() {
        let (ours, theirs) = (Identity::new().unwrap(), Identity::new().unwrap());
        let (client, server) = connected();
        let guests = Guests::new(&theirs, vec![ours.public_key()]).unwrap();
        let mut client = Link::connect(client, &ours, theirs.public_key()).unwrap();
        let mut server = Link::accept(server, &guests).unwrap();
        turns(&mut client, &mut server, |client, server, _| {
            client.peer().is_some() && server.peer().is_some()
        })
        .unwrap();
        let piece = vec![0; 64 << 10];
        assert!((0..1000).any(|_| client.send(&piece).is_err()));
    }
}
