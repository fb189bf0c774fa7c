//! A connection that never blocks.

use crate::PublicKey;
use crate::identity::{self, Identity};
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

/// A side is lost if this many bytes wait for it.
const MAX_WAITING: usize = 4 << 20;
/// Leaves others their turn if a side sends without end.
const MAX_READ: usize = 256 << 10;
/// The most bytes that [`TlsConnection::write_some`] takes at once. Larger writes save system calls
/// and wake-ups of the other side; at this size the encrypted copy still fits a processor's cache.
const MAX_WRITTEN: usize = 512 << 10;
/// The read buffer of a connection that carries little.
const LITTLE: usize = 16 << 10;
/// The same for a connection at a port, which has proved nothing yet.
const LEAST: usize = 4 << 10;
/// The same for one that carries much; rustls itself reads 4 KiB.
const MUCH: usize = 512 << 10;

const PROBE_PACE_S: u32 = 10;
/// With this many unanswered probes the other side is lost: after 30 s, as with ssh.
const PROBES: u32 = 3;

/// Whether the other side had another key than expected.
pub fn is_wrong_key(error: &io::Error) -> bool {
    let cause = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// The keys that a listener admits.
#[derive(Clone, Debug)]
pub struct Guests(Arc<ServerConfig>);

impl Guests {
    pub fn new(identity: &Identity, keys: Vec<PublicKey>) -> io::Result<Guests> {
        pinned::server(identity, keys).map(Guests)
    }
}

/// Makes glibc keep the memory of sent records. By default, free memory at the end of the heap
/// returns to the kernel from 128 KiB on, or from twice the largest block that was ever freed
/// (mallopt(3), `M_MMAP_THRESHOLD`). The page faults cost a fiftieth of a copy's time.
fn keep_freed_memory() {
    drop(black_box(Vec::<u8>::with_capacity(2 * MAX_WRITTEN)));
}

#[derive(Debug)]
pub struct TlsConnection {
    stream: BufReader<TcpStream>,
    tls: Connection,
    /// Encrypted bytes that rustls has read.
    received_bytes: u64,
    is_at_end: bool,
    /// Whether more bytes follow the queued ones at once.
    has_beginning: bool,
}

impl TlsConnection {
    /// Connects to the listening side, which must have this key.
    pub fn connect(
        stream: TcpStream,
        identity: &Identity,
        server: PublicKey,
    ) -> io::Result<TlsConnection> {
        // no name is sent for an address, and none is checked
        let name = ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED));
        let tls = ClientConnection::new(pinned::client(identity, server)?, name)
            .map_err(io::Error::other)?;
        TlsConnection::new(stream, tls.into(), LITTLE)
    }

    /// Returns when the listening side has proved its key; with `welcomed`, when it has also
    /// admitted this side, which any data from it shows. Returns that data too.
    pub fn open(
        address: SocketAddr,
        identity: &Identity,
        server: PublicKey,
        limit: Duration,
        welcomed: bool,
    ) -> io::Result<(TlsConnection, Vec<u8>)> {
        let until = Instant::now() + limit;
        let stream = TcpStream::connect_timeout(&address, limit)?;
        let mut connection = TlsConnection::connect(stream, identity, server)?;
        let mut received = Vec::new();
        while connection.peer().is_none() || (welcomed && received.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let mut fds = [PollFd::new(connection.as_fd(), connection.poll_flags())];
            // poll(2) rounds down
            let left = PollTimeout::try_from(left + Duration::from_millis(1));
            let _ = poll(&mut fds, left.unwrap_or(PollTimeout::MAX));
            connection.flush()?;
            if !connection.receive(&mut received)? && received.is_empty() {
                return Err(ErrorKind::ConnectionReset.into());
            }
        }
        Ok((connection, received))
    }

    pub fn accept(stream: TcpStream, guests: &Guests) -> io::Result<TlsConnection> {
        let tls = ServerConnection::new(Arc::clone(&guests.0)).map_err(io::Error::other)?;
        TlsConnection::new(stream, tls.into(), LEAST)
    }

    fn new(stream: TcpStream, mut tls: Connection, buffer: usize) -> io::Result<TlsConnection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        tls.set_buffer_limit(Some(MAX_WAITING));
        let mut connection = TlsConnection {
            stream: BufReader::with_capacity(buffer, stream),
            tls,
            received_bytes: 0,
            is_at_end: false,
            has_beginning: false,
        };
        connection.flush()?;
        Ok(connection)
    }

    /// `None` until the other side has proved its key.
    pub fn peer(&self) -> Option<PublicKey> {
        if self.tls.is_handshaking() {
            return None;
        }
        identity::from_spki(self.tls.peer_certificates()?.first()?)
    }

    /// Sends what can be sent now and queues the rest. Fails if too much is queued.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.tls.writer().write(bytes)? < bytes.len() {
            let problem = "too much waits to be sent";
            return Err(io::Error::new(ErrorKind::TimedOut, problem));
        }
        self.flush()
    }

    /// Has the kernel break a connection that waits for its use, and wake its callers, if the other
    /// side disappears without closing it or accepts no data.
    pub fn detect_silence(&self) -> io::Result<()> {
        setsockopt(self, sockopt::KeepAlive, &true)?;
        setsockopt(self, sockopt::TcpKeepIdle, &PROBE_PACE_S)?;
        setsockopt(self, sockopt::TcpKeepInterval, &PROBE_PACE_S)?;
        setsockopt(self, sockopt::TcpKeepCount, &PROBES)?;
        // unacknowledged data counts as a probe, too
        let limit_ms = (PROBES + 1) * PROBE_PACE_S * 1000;
        setsockopt(self, sockopt::TcpUserTimeout, &limit_ms)?;
        Ok(())
    }

    /// Leaves it to the connection's users how long to wait for a slow disk or reader. The kernel
    /// takes a slow side for a lost one: its limit also counts while the other side has no room but
    /// answers all probes.
    pub fn allow_silence(&self) -> io::Result<()> {
        setsockopt(self, sockopt::TcpUserTimeout, &0)?;
        Ok(())
    }

    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    pub fn with_large_buffer(mut self) -> TlsConnection {
        keep_freed_memory();
        if self.stream.buffer().is_empty() {
            self.stream = BufReader::with_capacity(MUCH, self.stream.into_inner());
        }
        self
    }

    /// `WouldBlock` if nothing can be sent now.
    pub fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.has_beginning {
            self.send_queued()?;
        }
        let bytes = &bytes[..bytes.len().min(MAX_WRITTEN)];
        let count = self.tls.writer().write(bytes)?;
        self.flush()?;
        Ok(count)
    }

    /// As [`TlsConnection::write_some`], for bytes that others follow at once, such as the line in
    /// front of a body. A few bytes are sent with those that follow, which saves a system call and
    /// a wake-up of the other side.
    pub fn write_beginning(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.has_beginning || bytes.len() > LITTLE {
            return self.write_some(bytes);
        }
        self.send_queued()?;
        let count = self.tls.writer().write(bytes)?;
        self.has_beginning = true;
        Ok(count)
    }

    /// `WouldBlock` if not everything can be sent now.
    fn send_queued(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.tls.wants_write() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(())
    }

    /// Announces that nothing follows; `WouldBlock` while that cannot be sent.
    pub fn close(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        self.send_queued()?;
        self.stream.get_ref().shutdown(Shutdown::Write)
    }

    pub fn shutdown(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
    }

    /// Returns whether more may arrive.
    pub fn receive(&mut self, received: &mut impl Write) -> io::Result<bool> {
        let mut count = 0;
        let until = self.received_bytes + MAX_READ as u64;
        // poll does not report bytes again that were read from the socket
        while !self.is_at_end
            && ((count < MAX_READ && self.received_bytes < until)
                || !self.stream.buffer().is_empty())
        {
            match self.tls.read_tls(&mut self.stream) {
                Ok(count) => {
                    self.received_bytes += count as u64;
                    self.is_at_end = count == 0;
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
            let mut left = state.plaintext_bytes_to_read();
            count += left;
            while left > 0 {
                let mut reader = self.tls.reader();
                let bytes = reader.fill_buf()?;
                let read = bytes.len().min(left);
                received.write_all(&bytes[..read])?;
                reader.consume(read);
                left -= read;
            }
        }
        Ok(!self.is_at_end)
    }

    /// Sends what can be sent now.
    pub fn flush(&mut self) -> io::Result<()> {
        self.has_beginning = false;
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

    /// What to wait for before [`TlsConnection::receive`] or [`TlsConnection::flush`].
    pub fn poll_flags(&self) -> PollFlags {
        if self.tls.wants_write() {
            PollFlags::POLLIN | PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        }
    }
}

impl AsFd for TlsConnection {
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
        let mut client = TlsConnection::connect(client, &ours, theirs.public_key()).unwrap();
        let mut server = TlsConnection::accept(server, &guests).unwrap();
        turns(&mut client, &mut server, |client, server, _| {
            client.peer().is_some() && server.peer().is_some()
        })
        .unwrap();
        let mut server = server.with_large_buffer();
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
        client: &mut TlsConnection,
        server: &mut TlsConnection,
        done: impl Fn(&TlsConnection, &TlsConnection, &[u8]) -> bool,
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
        let mut client = TlsConnection::connect(client, &ours, theirs.public_key()).unwrap();
        let mut server = TlsConnection::accept(server, &guests).unwrap();
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
        let connection = TlsConnection::connect(client, &identity, identity.public_key()).unwrap();
        connection.detect_silence().unwrap();
        assert_eq!(getsockopt(&connection, sockopt::TcpUserTimeout), Ok(40_000));
        connection.allow_silence().unwrap();
        assert_eq!(getsockopt(&connection, sockopt::TcpUserTimeout), Ok(0));
        assert_eq!(getsockopt(&connection, sockopt::KeepAlive), Ok(true));
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
            let mut client = TlsConnection::connect(client, client_identity, expected).unwrap();
            let mut server = TlsConnection::accept(server, &guests).unwrap();
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
            let mut server = TlsConnection::accept(server, &guests).unwrap();
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
        let mut client = TlsConnection::connect(client, &ours, theirs.public_key()).unwrap();
        let mut server = TlsConnection::accept(server, &guests).unwrap();
        turns(&mut client, &mut server, |client, server, _| {
            client.peer().is_some() && server.peer().is_some()
        })
        .unwrap();
        let piece = vec![0; 64 << 10];
        assert!((0..1000).any(|_| client.send(&piece).is_err()));
    }
}
