//! Decides who may connect, on every port that tools and agents open. Unauthenticated connections
//! are limited in number, also for each source address, in time and in bytes. At a limit, the
//! oldest is dropped: an honest peer proves its key within milliseconds, so the oldest ones wait on
//! purpose.

use crate::connection::{Guests, TlsConnection};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{Backlog, listen};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections that are accepted before others are served, so that a flood of them delays neither
/// accepted ones nor the rest of a program's only loop.
const ACCEPTED_AT_ONCE: usize = 64;
const SERVED_AT_ONCE: usize = 256;
/// The number of the pipe that ends with the port, above those of all connections.
const CLOSED: u64 = u64::MAX;
/// The pause of accepting if all descriptors are used and none of ours can be freed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At most this much is read from a peer that has not proved its key; a handshake with raw keys has
/// less than 1 KiB.
const MAX_UNPROVED: u64 = 16 << 10;

/// Limits for connections before their admission.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Never more than half of the process's descriptors.
    pub in_all: usize,
    /// Connections from one source address.
    pub per_source: usize,
    /// Up to a connection's admission.
    pub time: Duration,
}

impl Limits {
    /// For the agents of a job: thousands connect in the same second, perhaps from one address
    /// behind a router. A dropped agent connects again.
    pub const FOR_AGENTS: Limits = Limits {
        in_all: 4096,
        per_source: 1024,
        time: Duration::from_secs(10),
    };
}

/// Who is admitted at a port: a peer that proves one of the keys and then sends a line to introduce
/// itself.
#[derive(Debug)]
pub struct Entrance {
    pub guests: Guests,
    /// Sent to a peer that has proved its key.
    pub welcome: Vec<u8>,
    pub max_line: usize,
}

/// A connection before its admission.
#[derive(Debug)]
pub struct PeerGreeting {
    pub connection: TlsConnection,
    /// The line, and what was received after it.
    pub received: Vec<u8>,
    from: IpAddr,
    is_welcomed: bool,
    until: Instant,
}

/// Gets each peer, with its connection if admitted.
type PeerHandler = dyn FnMut(IpAddr, Option<PeerGreeting>) + Send;

/// Listeners, and connections before admission.
struct Admission {
    epoll: Epoll,
    listeners: Vec<TcpListener>,
    /// Ends when the port is dropped.
    _open: PipeReader,
    limits: Limits,
    entrance: Entrance,
    handle_peer: Box<PeerHandler>,
    /// By number, so the oldest first; the lowest belong to listeners.
    waiting: BTreeMap<u64, PeerGreeting>,
    next: u64,
    /// Nothing is accepted until then, because no descriptor is left.
    paused_until: Option<Instant>,
}

impl Admission {
    fn new(
        listeners: Vec<TcpListener>,
        open: PipeReader,
        limits: Limits,
        entrance: Entrance,
        handle_peer: Box<PeerHandler>,
    ) -> io::Result<Admission> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&open, EpollEvent::new(EpollFlags::EPOLLIN, CLOSED))?;
        for (number, listener) in (0..).zip(&listeners) {
            listener.set_nonblocking(true)?;
            // honest peers may connect all at once; std's backlog is 128
            listen(listener, Backlog::MAXALLOWABLE)?;
            epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        }
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let half = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
        Ok(Admission {
            epoll,
            limits: Limits {
                in_all: limits.in_all.min(half).max(1),
                ..limits
            },
            entrance,
            handle_peer,
            next: listeners.len() as u64,
            listeners,
            _open: open,
            waiting: BTreeMap::new(),
            paused_until: None,
        })
    }

    /// Waits for what is to be done, and does it; returns whether the port is open.
    fn turn(&mut self) -> bool {
        let mut events = [EpollEvent::empty(); SERVED_AT_ONCE];
        let count = match self.epoll.wait(&mut events, self.timeout()) {
            Err(Errno::EINTR) => 0,
            Err(_) => return false,
            Ok(count) => count,
        };
        let mut ready: Vec<u64> = events[..count].iter().map(EpollEvent::data).collect();
        ready.sort_unstable();
        if ready.last() == Some(&CLOSED) {
            return false;
        }
        let listening = ready.partition_point(|number| *number < self.listeners.len() as u64);
        for number in &ready[listening..] {
            self.advance(*number);
        }
        let now = Instant::now();
        while self
            .waiting
            .first_key_value()
            .is_some_and(|(_, peer)| peer.until <= now)
        {
            self.refuse_oldest(None);
        }
        if self.paused_until.is_some_and(|until| until <= now) {
            self.pause_accepting(None);
        }
        for number in &ready[..listening] {
            self.accept(*number as usize);
        }
        true
    }

    /// When there is something to do although nothing becomes readable.
    fn timeout(&self) -> EpollTimeout {
        let oldest = self.waiting.first_key_value().map(|(_, peer)| peer.until);
        let Some(until) = oldest.into_iter().chain(self.paused_until).min() else {
            return EpollTimeout::NONE;
        };
        // epoll_wait(2) counts whole milliseconds, and would wake us too early
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }

    fn advance(&mut self, number: u64) {
        let Some(peer) = self.waiting.get_mut(&number) else {
            return;
        };
        let advanced = peer.advance(&self.entrance);
        if !matches!(advanced, Ok(false))
            && let Some(peer) = self.remove(number)
        {
            (self.handle_peer)(peer.from, advanced.is_ok().then_some(peer));
        }
    }

    fn remove(&mut self, number: u64) -> Option<PeerGreeting> {
        let peer = self.waiting.remove(&number)?;
        // closing is not enough if others have a copy of the descriptor
        let _ = self.epoll.delete(&peer.connection);
        Some(peer)
    }

    /// Refuses the oldest connection, of all or of this source. Returns whether there was one.
    fn refuse_oldest(&mut self, source: Option<IpAddr>) -> bool {
        let mut waiting = self.waiting.iter();
        let oldest = waiting.find(|(_, peer)| source.is_none_or(|from| from == peer.from));
        let oldest = oldest.map(|(number, _)| *number);
        let Some(refused) = oldest.and_then(|number| self.remove(number)) else {
            return false;
        };
        (self.handle_peer)(refused.from, None);
        true
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listeners[listener].accept() {
                Ok((stream, from)) => {
                    if self.add(stream, from.ip()).is_err() {
                        (self.handle_peer)(from.ip(), None);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(_) if self.refuse_oldest(None) => {}
                Err(_) => return self.pause_accepting(Some(Instant::now() + ACCEPT_PAUSE)),
            }
        }
    }

    fn add(&mut self, stream: TcpStream, from: IpAddr) -> io::Result<()> {
        let peer = PeerGreeting {
            connection: TlsConnection::accept(stream, &self.entrance.guests)?,
            received: Vec::new(),
            from,
            is_welcomed: false,
            until: Instant::now() + self.limits.time,
        };
        let same_source = self.waiting.values().filter(|peer| peer.from == from);
        if same_source.count() >= self.limits.per_source {
            self.refuse_oldest(Some(from));
        } else if self.waiting.len() >= self.limits.in_all {
            self.refuse_oldest(None);
        }
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        self.epoll
            .add(&peer.connection, EpollEvent::new(flags, self.next))?;
        self.waiting.insert(self.next, peer);
        self.next += 1;
        Ok(())
    }

    /// `None` ends the pause.
    fn pause_accepting(&mut self, until: Option<Instant>) {
        let flags = match until {
            Some(_) => EpollFlags::empty(),
            None => EpollFlags::EPOLLIN,
        };
        for (number, listener) in (0..).zip(&self.listeners) {
            let _ = self
                .epoll
                .modify(listener, &mut EpollEvent::new(flags, number));
        }
        self.paused_until = until;
    }
}

/// Dropping it closes the listeners.
#[derive(Debug)]
pub struct ServedPort {
    /// Closing it ends the thread, even if no descriptor is left.
    open: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl ServedPort {
    /// `handle_peer` gets each admitted peer, and `None` for one that had no key, took too long or
    /// had to make room.
    pub fn serve(
        listeners: Vec<TcpListener>,
        limits: Limits,
        entrance: Entrance,
        handle_peer: impl FnMut(IpAddr, Option<PeerGreeting>) + Send + 'static,
    ) -> io::Result<ServedPort> {
        let (is_open, open) = io::pipe()?;
        let handle_peer = Box::new(handle_peer);
        let mut admission = Admission::new(listeners, is_open, limits, entrance, handle_peer)?;
        let thread = std::thread::Builder::new().spawn(move || while admission.turn() {})?;
        Ok(ServedPort {
            open: Some(open),
            thread: Some(thread),
        })
    }
}

impl Drop for ServedPort {
    fn drop(&mut self) {
        self.open = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl PeerGreeting {
    /// Returns whether the peer is admitted; an error refuses it. Reads all that has arrived,
    /// because epoll reports it only once.
    fn advance(&mut self, entrance: &Entrance) -> io::Result<bool> {
        self.connection.flush()?;
        let open = self.connection.receive(&mut self.received)?;
        let may_go_on = match self.connection.peer() {
            None => self.connection.received_bytes() <= MAX_UNPROVED,
            Some(_) => {
                if !std::mem::replace(&mut self.is_welcomed, true) {
                    self.connection.send(&entrance.welcome)?;
                }
                let line = self.received.iter().position(|byte| *byte == b'\n');
                if line.is_some_and(|end| end <= entrance.max_line) {
                    return Ok(true);
                }
                line.is_none() && self.received.len() <= entrance.max_line
            }
        };
        if open && may_go_on {
            return Ok(false);
        }
        Err(ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, PublicKey};
    use nix::poll::{PollFd, poll};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
    use std::os::fd::AsFd;

    const LIMITS: Limits = Limits {
        in_all: 40,
        per_source: 20,
        time: Duration::from_secs(2),
    };

    /// A port that admits one key with a line, and its address.
    fn port(identity: &Identity, key: PublicKey) -> (ServedPort, SocketAddr) {
        let guests = Guests::new(identity, vec![key]).unwrap();
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let entrance = Entrance {
            guests,
            welcome: b"welcome\n".to_vec(),
            max_line: 100,
        };
        let served = ServedPort::serve(vec![listener], LIMITS, entrance, |_, greeting| {
            if let Some(mut greeting) = greeting {
                let answer = greeting.received.clone();
                greeting.connection.send(&answer).unwrap();
            }
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        (served.unwrap(), address)
    }

    fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
        use nix::sys::socket::{
            AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket,
        };
        use std::os::fd::AsRawFd;
        let family = AddressFamily::Inet;
        let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let source = SocketAddrV4::new(source.into(), 0);
        bind(socket.as_raw_fd(), &SockaddrIn::from(source)).unwrap();
        let SocketAddr::V4(to) = to else {
            panic!("{to}")
        };
        connect(socket.as_raw_fd(), &SockaddrIn::from(to)).unwrap();
        TcpStream::from(socket)
    }

    /// Whether the other side ends a connection within the time.
    fn is_ended(stream: &mut TcpStream, limit: Duration) -> bool {
        stream.set_read_timeout(Some(limit)).unwrap();
        let read = stream.read(&mut [0; 4096]);
        !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Introduces itself, and returns what the port answers.
    fn introduce(to: SocketAddr, ours: &Identity, theirs: PublicKey, line: &[u8]) -> Vec<u8> {
        let limit = Duration::from_secs(20);
        let (mut connection, mut received) =
            TlsConnection::open(to, ours, theirs, limit, true).unwrap();
        let _ = connection.send(line);
        let until = Instant::now() + limit;
        while Instant::now() < until && !received.ends_with(line) {
            let mut fds = [PollFd::new(connection.as_fd(), connection.poll_flags())];
            poll(&mut fds, 1000u16).unwrap();
            let _ = connection.flush();
            if !connection.receive(&mut received).unwrap_or(false) {
                break;
            }
        }
        received
    }

    #[test]
    fn whoever_has_the_key_is_admitted_whatever_strangers_do() {
        let (ours, theirs, other) = (
            Identity::new().unwrap(),
            Identity::new().unwrap(),
            Identity::new().unwrap(),
        );
        let (port, address) = port(&theirs, ours.public_key());
        let honest = || introduce(address, &ours, theirs.public_key(), b"it is me\n");
        // more than may wait, from this peer's own address
        let same: Vec<TcpStream> = (0..200)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        assert_eq!(honest(), b"welcome\nit is me\n");
        drop(same);
        // from other addresses: none of them drives out those of another
        let mut first = connect_from([127, 0, 0, 9], address);
        let mut many: Vec<TcpStream> = (0..LIMITS.per_source + 1)
            .map(|_| connect_from([127, 0, 0, 10], address))
            .collect();
        let moment = Duration::from_millis(200);
        assert!(is_ended(&mut many[0], Duration::from_secs(10)));
        assert!(!is_ended(&mut first, moment));
        assert_eq!(honest(), b"welcome\nit is me\n");
        drop(many);
        // a byte now and then is no reason for more time than there is in all
        let until = Instant::now() + 5 * LIMITS.time;
        while !is_ended(&mut first, moment) && Instant::now() < until {
            let _ = first.write_all(b"\x16");
        }
        assert!(Instant::now() < until);
        assert!(
            TlsConnection::open(
                address,
                &other,
                theirs.public_key(),
                Duration::from_secs(10),
                true
            )
            .is_err()
        );
        // a peer with the key introduces itself by a line of at most the agreed length
        let long = [&[b'x'; 200][..], b"\n"].concat();
        let answer = introduce(address, &ours, theirs.public_key(), &long);
        assert_eq!(answer, b"welcome\n");
        drop(port);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn what_is_not_authenticated_is_not_read_without_end() {
        let (ours, theirs) = (Identity::new().unwrap(), Identity::new().unwrap());
        let (_port, address) = port(&theirs, ours.public_key());
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        // records of a handshake message that announces 64 KiB
        let mut record = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
        record.resize(5 + 0x4000, 0);
        let sent = (0..1000).all(|_| stream.write_all(&record).is_ok());
        assert!(!sent);
    }
}
