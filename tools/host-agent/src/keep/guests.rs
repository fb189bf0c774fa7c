//! The keepers of other hosts on their way to the leader. Anybody who reaches the port may connect;
//! the number and time of such connections are bounded, and only keys that the launcher has named
//! are let in. When all keepers have come, the port is closed.

use nix::poll::PollFlags;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use tls::{Guests, Identity, Link, PublicKey};

/// How many connections may try to get in beside the expected ones; beyond it the oldest is
/// dropped.
const STRANGERS: usize = 256;
/// A keeper proves its key at once.
const KNOCK_LIMIT: Duration = Duration::from_secs(30);

/// A keeper that was let in.
pub struct NewGuest {
    pub host: u32,
    pub link: Link,
    /// The bytes that came with the proof of its key.
    pub said: Vec<u8>,
}

/// The listening side of the leader.
#[derive(Debug)]
pub struct GuestListener {
    listener: TcpListener,
    /// The host that has each key. A host that has come is removed.
    awaited: BTreeMap<PublicKey, u32>,
    identity: Identity,
    guests: Option<Guests>,
    knocking: VecDeque<(u64, Instant, Link)>,
    knocks: u64,
}

impl GuestListener {
    /// Listens at this host's address, on a port that the system chooses.
    pub fn open(address: Ipv4Addr, identity: Identity) -> io::Result<GuestListener> {
        let listener = TcpListener::bind(SocketAddr::from((address, 0)))?;
        listener.set_nonblocking(true)?;
        Ok(GuestListener {
            listener,
            awaited: BTreeMap::new(),
            identity,
            guests: None,
            knocking: VecDeque::new(),
            knocks: 0,
        })
    }

    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
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

    /// What to wait for: the listener, and each connection with its number.
    pub fn wait_for(
        &self,
    ) -> (
        BorrowedFd<'_>,
        impl Iterator<Item = (u64, BorrowedFd<'_>, PollFlags)>,
    ) {
        (
            self.listener.as_fd(),
            self.knocking
                .iter()
                .map(|(number, _, link)| (*number, link.as_fd(), link.wait_for())),
        )
    }

    /// Accepts new connections.
    pub fn accept(&mut self, now: Instant) {
        while let Ok((stream, _)) = self.listener.accept() {
            let Ok(guests) = self.guests() else { return };
            if let Ok(link) = Link::accept(stream, &guests) {
                if self.knocking.len() >= self.awaited.len() + STRANGERS {
                    self.knocking.pop_front();
                }
                self.knocks += 1;
                self.knocking.push_back((self.knocks, now, link));
            }
        }
    }

    fn guests(&mut self) -> io::Result<Guests> {
        match &self.guests {
            Some(guests) => Ok(guests.clone()),
            None => {
                let guests = Guests::new(&self.identity, self.awaited.keys().copied().collect())?;
                Ok(self.guests.insert(guests).clone())
            }
        }
    }

    /// Continues with a connection; `None` if it is not let in yet, or never.
    pub fn go_on(&mut self, number: u64) -> Option<NewGuest> {
        let at = self.knocking.iter().position(|(one, ..)| *one == number)?;
        let link = &mut self.knocking[at].2;
        let mut said = Vec::new();
        let open = link.flush().is_ok() && link.receive(&mut said).is_ok_and(|open| open);
        let peer = link.peer();
        if open && peer.is_none() {
            return None;
        }
        let (_, _, link) = self.knocking.remove(at)?;
        // a second keeper with the same key is not let in
        let host = self.awaited.remove(&peer?)?;
        Some(NewGuest { host, link, said })
    }

    /// Time has passed; drops connections that took too long.
    pub fn tick(&mut self, now: Instant) {
        self.knocking
            .retain(|(_, since, _)| now < *since + KNOCK_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;

    /// Serves the door until one arrives, or for a moment.
    fn serve(
        door: &mut GuestListener,
        client: Option<&mut Link>,
        limit: Duration,
    ) -> Option<NewGuest> {
        let (until, mut client) = (Instant::now() + limit, client);
        while Instant::now() < until {
            door.accept(Instant::now());
            let numbers: Vec<u64> = door.wait_for().1.map(|(number, ..)| number).collect();
            if let Some(arrived) = numbers.into_iter().find_map(|number| door.go_on(number)) {
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
        let mut door = GuestListener::open(Ipv4Addr::LOCALHOST, own.clone()).unwrap();
        let (guest, stranger) = (Identity::new().unwrap(), Identity::new().unwrap());
        door.expect(7, guest.public_key());
        let address = (Ipv4Addr::LOCALHOST, door.port().unwrap());
        let knock = |identity: &Identity| {
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
        let mut other = knock(&stranger);
        assert!(serve(&mut door, Some(&mut other), Duration::from_millis(300)).is_none());
        let mut link = knock(&guest);
        let arrived = serve(&mut door, Some(&mut link), Duration::from_secs(10)).unwrap();
        assert_eq!(
            (arrived.host, arrived.link.peer(), door.is_complete()),
            (7, Some(guest.public_key()), true)
        );
        assert!(
            serve(
                &mut door,
                Some(&mut knock(&guest)),
                Duration::from_millis(300)
            )
            .is_none()
        );
        // who says nothing goes after a while
        door.tick(Instant::now() + KNOCK_LIMIT);
        for mut stream in silent {
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            assert!(!matches!(stream.read(&mut [0; 16]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock));
        }
    }
}
