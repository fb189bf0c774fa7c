//! The keepers of other hosts on their way to the leader. Only keys that the launcher has named are
//! admitted. When all keepers have come, the port is closed.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use tls::{Admission, Greeting, Guests, Identity, Limits, Link, Outcome, PublicKey};

/// The keepers of thousands of hosts connect in the same second, each once and from an address of
/// its own, and prove their keys at once.
const LIMITS: Limits = Limits {
    in_all: 1024,
    per_source: 64,
    time: Duration::from_secs(10),
};

/// A keeper that was admitted.
pub struct NewPeer {
    pub host: u32,
    pub link: Link,
    /// The bytes that came with the proof of its key.
    pub received: Vec<u8>,
}

/// The listening side of the leader.
#[derive(Debug)]
pub struct PeerListener {
    admission: Admission<Greeting>,
    port: u16,
    /// The host that has each key. A host that has come is removed.
    awaited: BTreeMap<PublicKey, u32>,
    identity: Identity,
    guests: Option<Guests>,
}

impl PeerListener {
    /// Listens at this host's address, on a port that the system chooses.
    pub fn open(address: Ipv4Addr, identity: Identity) -> io::Result<PeerListener> {
        let listener = TcpListener::bind(SocketAddr::from((address, 0)))?;
        Ok(PeerListener {
            port: listener.local_addr()?.port(),
            admission: Admission::new(vec![listener], LIMITS)?,
            awaited: BTreeMap::new(),
            identity,
            guests: None,
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Expects a keeper with this key.
    pub fn expect(&mut self, host: u32, key: PublicKey) {
        self.awaited.insert(key, host);
        self.guests = None;
    }

    /// Whether all keepers have come.
    pub fn is_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Serves the port, without waiting; returns the keepers that were admitted.
    pub fn turn(&mut self) -> Vec<NewPeer> {
        let (guests, identity, awaited) = (&mut self.guests, &self.identity, &mut self.awaited);
        let outcomes = self.admission.turn(|stream| {
            let keys = || Guests::new(identity, awaited.keys().copied().collect());
            let guests = match guests {
                Some(guests) => guests,
                None => guests.insert(keys()?),
            };
            Greeting::of_key(stream, guests)
        });
        let admitted = outcomes.into_iter().filter_map(|outcome| match outcome {
            Outcome::Admitted(greeting, _) => Some(greeting),
            Outcome::Refused(_) => None,
        });
        admitted
            .filter_map(|Greeting { link, received, .. }| {
                // a second keeper with the same key is not admitted
                let host = awaited.remove(&link.peer()?)?;
                Some(NewPeer {
                    host,
                    link,
                    received,
                })
            })
            .collect()
    }
}

impl AsFd for PeerListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.admission.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;
    use std::time::Instant;

    /// Serves the door until one arrives, or for a moment.
    fn serve(
        listener: &mut PeerListener,
        client: Option<&mut Link>,
        limit: Duration,
    ) -> Option<NewPeer> {
        let (until, mut client) = (Instant::now() + limit, client);
        while Instant::now() < until {
            if let Some(arrived) = listener.turn().pop() {
                return Some(arrived);
            }
            if let Some(client) = &mut client {
                let _ = client.receive(&mut Vec::new());
                let _ = client.flush();
            }
        }
        None
    }

    #[test]
    fn who_was_told_of_is_let_in_once_and_nobody_else() {
        let own = Identity::new().unwrap();
        let mut listener = PeerListener::open(Ipv4Addr::LOCALHOST, own.clone()).unwrap();
        let (guest, stranger) = (Identity::new().unwrap(), Identity::new().unwrap());
        listener.expect(7, guest.public_key());
        let address = (Ipv4Addr::LOCALHOST, listener.port());
        let connect_as = |identity: &Identity| {
            Link::connect(
                TcpStream::connect(address).unwrap(),
                identity,
                own.public_key(),
            )
            .unwrap()
        };
        // strangers that say nothing, and one with a key of its own
        let silent: Vec<TcpStream> = (0..100)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut other = connect_as(&stranger);
        assert!(serve(&mut listener, Some(&mut other), Duration::from_millis(300)).is_none());
        let mut link = connect_as(&guest);
        let arrived = serve(&mut listener, Some(&mut link), Duration::from_secs(10)).unwrap();
        assert_eq!(
            (arrived.host, arrived.link.peer(), listener.is_complete()),
            (7, Some(guest.public_key()), true)
        );
        assert!(
            serve(
                &mut listener,
                Some(&mut connect_as(&guest)),
                Duration::from_millis(300)
            )
            .is_none()
        );
        // of those that say nothing, the oldest made room for others of their address
        let made_room = silent.len() - LIMITS.per_source;
        for mut stream in silent.into_iter().take(made_room) {
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            assert!(!matches!(stream.read(&mut [0; 16]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock));
        }
    }
}
