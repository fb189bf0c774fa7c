//! A connection that never blocks.

use crate::{Identity, PublicKey, pinned};
use nix::poll::PollFlags;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// What may wait to be sent. A side that takes nothing for so long is lost.
const MAX_WAITING: usize = 4 << 20;
/// What is read at once, so that one side that sends without end leaves the others their turn.
const MAX_READ: usize = 256 << 10;

/// Whom a listener lets in.
#[derive(Clone, Debug)]
pub struct Guests(Arc<ServerConfig>);

impl Guests {
    /// Those that have one of these keys.
    pub fn new(identity: &Identity, keys: Vec<PublicKey>) -> io::Result<Guests> {
        pinned::server(identity, keys).map(Guests)
    }
}

/// One side of a connection.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    tls: Connection,
    /// Nothing more comes.
    ended: bool,
}

impl Link {
    /// Greets the side that listens, which must have this key.
    pub fn connect(stream: TcpStream, identity: &Identity, server: PublicKey) -> io::Result<Link> {
        // no name is sent for an address, and none is checked
        let name = ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED));
        let tls = ClientConnection::new(pinned::client(identity, server)?, name)
            .map_err(io::Error::other)?;
        Link::new(stream, tls.into())
    }

    /// Greets one that has connected.
    pub fn accept(stream: TcpStream, guests: &Guests) -> io::Result<Link> {
        let tls = ServerConnection::new(Arc::clone(&guests.0)).map_err(io::Error::other)?;
        Link::new(stream, tls.into())
    }

    fn new(stream: TcpStream, mut tls: Connection) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        tls.set_buffer_limit(Some(MAX_WAITING));
        let mut link = Link {
            stream,
            tls,
            ended: false,
        };
        link.flush()?;
        Ok(link)
    }

    /// The key of the other side, once it has proved that it has it.
    pub fn peer(&self) -> Option<PublicKey> {
        if self.tls.is_handshaking() {
            return None;
        }
        PublicKey::from_spki(self.tls.peer_certificates()?.first()?)
    }

    /// Puts bytes behind those that wait, and sends what can be sent now. An error says that the
    /// other side takes nothing.
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

    /// Reads what is there behind `received`; whether more may come. An error ends the connection.
    pub fn receive(&mut self, received: &mut Vec<u8>) -> io::Result<bool> {
        let limit = received.len() + MAX_READ;
        while !self.ended && received.len() < limit {
            match self.tls.read_tls(&mut self.stream) {
                Ok(count) => self.ended = count == 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let state = self.tls.process_new_packets();
            // an alert tells the other side why
            let flushed = self.flush();
            let state = state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            flushed?;
            self.take(state.plaintext_bytes_to_read(), received)?;
        }
        Ok(!self.ended)
    }

    fn take(&mut self, count: usize, received: &mut Vec<u8>) -> io::Result<()> {
        let start = received.len();
        received.resize(start + count, 0);
        self.tls.reader().read_exact(&mut received[start..])
    }

    /// Sends what waits, as far as it can be sent now.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
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
        self.stream.as_fd()
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
        drop(client);
        let mut rest = Vec::new();
        let until = Instant::now() + Duration::from_secs(10);
        while matches!(server.receive(&mut rest), Ok(true)) && Instant::now() < until {}
        assert!(rest.is_empty() && Instant::now() < until);
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
            assert!(result.is_err() && server.peer().is_none(), "{case}");
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
