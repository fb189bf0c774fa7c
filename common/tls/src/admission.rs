//! Decides who may connect, on every port that tools and agents open. Anybody who reaches a port
//! may try, so connections that are not authenticated yet are limited in number, also for each
//! source address, in time and in bytes. When a limit is reached, the oldest connection is dropped:
//! an honest peer proves its key within milliseconds, so connections that wait on purpose are the
//! oldest.

use crate::link::{Guests, Link};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{Backlog, listen};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many connections are accepted before those that have sent something are served, so that a
/// flood of connections delays neither accepted ones nor the rest of a program's only loop.
const ACCEPTED_AT_ONCE: usize = 64;
/// How many connections are served in a turn.
const SERVED_AT_ONCE: usize = 256;
/// How long nothing is accepted if all descriptors are used and none of ours can be freed.
const REST: Duration = Duration::from_millis(100);
/// The most that is read from a peer that has not proved its key: the two flights of a handshake
/// with raw keys have less than 1 KiB.
const MAX_UNPROVED: u64 = 16 << 10;

/// What connections that have not proved who they are may take of this process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many of them there may be. It is never more than half of the descriptors of the process.
    pub in_all: usize,
    /// How many of them may have the same source address.
    pub per_source: usize,
    /// How long one may take for everything up to its admission.
    pub time: Duration,
}

impl Limits {
    /// For a port to which the agents of a job connect. Thousands may connect in the same second,
    /// from one address if they are behind a router. Each takes milliseconds; one that was dropped
    /// in favour of another connects again.
    pub const FOR_AGENTS: Limits = Limits {
        in_all: 4096,
        per_source: 1024,
        time: Duration::from_secs(10),
    };
}

/// What a peer has to do to be admitted.
pub trait Handshake: AsFd {
    /// Continues as far as possible without waiting; returns whether it is complete. It reads until
    /// nothing is left to read, because it is not called again for that. An error refuses the
    /// connection.
    fn advance(&mut self) -> io::Result<bool>;
}

/// What has become of a connection.
#[derive(Debug)]
pub enum AdmissionOutcome<H> {
    /// The handshake is complete.
    Admitted(H, IpAddr),
    /// The peer has no key, took too long, or had to make room.
    Refused(IpAddr),
}

#[derive(Debug)]
struct WaitingPeer<H> {
    handshake: H,
    from: IpAddr,
    until: Instant,
}

/// Listeners, and the connections that were not admitted yet. Its descriptor becomes readable when
/// [`Admission::turn`] has something to do.
#[derive(Debug)]
pub struct Admission<H> {
    epoll: Epoll,
    listeners: Vec<TcpListener>,
    limits: Limits,
    /// By number, so the oldest first. The numbers below that of the first belong to listeners.
    waiting: BTreeMap<u64, WaitingPeer<H>>,
    next: u64,
    /// Until when nothing is accepted, because no descriptor is left.
    resting: Option<Instant>,
}

impl<H: Handshake> Admission<H> {
    /// Serves these listeners from now on.
    pub fn new(listeners: Vec<TcpListener>, limits: Limits) -> io::Result<Admission<H>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (number, listener) in (0..).zip(&listeners) {
            listener.set_nonblocking(true)?;
            // many honest peers may connect at once; std's backlog is 128
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
            next: listeners.len() as u64,
            listeners,
            waiting: BTreeMap::new(),
            resting: None,
        })
    }

    /// Serves whatever is ready, without waiting. `begin` makes the handshake of a new connection.
    pub fn turn(
        &mut self,
        mut begin: impl FnMut(TcpStream) -> io::Result<H>,
    ) -> Vec<AdmissionOutcome<H>> {
        let mut outcomes = Vec::new();
        let mut events = [EpollEvent::empty(); SERVED_AT_ONCE];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO);
        let mut ready: Vec<u64> = events[..count.unwrap_or(0)]
            .iter()
            .map(EpollEvent::data)
            .collect();
        ready.sort_unstable();
        let listening = ready.partition_point(|number| *number < self.listeners.len() as u64);
        for number in &ready[listening..] {
            outcomes.extend(self.advance(*number));
        }
        let now = Instant::now();
        while self
            .waiting
            .first_key_value()
            .is_some_and(|(_, peer)| peer.until <= now)
        {
            outcomes.extend(self.refuse_oldest(None));
        }
        if self.resting.is_some_and(|until| until <= now) {
            self.rest(None);
        }
        for number in &ready[..listening] {
            self.accept(*number as usize, &mut begin, &mut outcomes);
        }
        outcomes
    }

    /// After how long [`Admission::turn`] has something to do although nothing becomes readable.
    pub fn timeout(&self) -> PollTimeout {
        let oldest = self.waiting.first_key_value().map(|(_, peer)| peer.until);
        let Some(until) = oldest.into_iter().chain(self.resting).min() else {
            return PollTimeout::NONE;
        };
        // poll(2) counts whole milliseconds, and would wake us too early
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    fn advance(&mut self, number: u64) -> Option<AdmissionOutcome<H>> {
        let peer = self.waiting.get_mut(&number)?;
        let from = peer.from;
        match peer.handshake.advance() {
            Ok(false) => None,
            Ok(true) => {
                let admitted = self.remove(number)?;
                Some(AdmissionOutcome::Admitted(admitted.handshake, from))
            }
            Err(_) => self.remove(number).map(|_| AdmissionOutcome::Refused(from)),
        }
    }

    fn remove(&mut self, number: u64) -> Option<WaitingPeer<H>> {
        let peer = self.waiting.remove(&number)?;
        // closing is not enough if others have a copy of the descriptor
        let _ = self.epoll.delete(&peer.handshake);
        Some(peer)
    }

    /// Makes room: refuses the oldest connection, of all or of this source.
    fn refuse_oldest(&mut self, of: Option<IpAddr>) -> Option<AdmissionOutcome<H>> {
        let mut waiting = self.waiting.iter();
        let oldest = waiting.find(|(_, peer)| of.is_none_or(|from| from == peer.from))?;
        let number = *oldest.0;
        self.remove(number)
            .map(|peer| AdmissionOutcome::Refused(peer.from))
    }

    fn accept(
        &mut self,
        listener: usize,
        begin: &mut impl FnMut(TcpStream) -> io::Result<H>,
        outcomes: &mut Vec<AdmissionOutcome<H>>,
    ) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listeners[listener].accept() {
                Ok((stream, from)) => self.begin(stream, from.ip(), begin, outcomes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(_) => match self.refuse_oldest(None) {
                    Some(refused) => outcomes.push(refused),
                    None => return self.rest(Some(Instant::now() + REST)),
                },
            }
        }
    }

    fn begin(
        &mut self,
        stream: TcpStream,
        from: IpAddr,
        begin: &mut impl FnMut(TcpStream) -> io::Result<H>,
        outcomes: &mut Vec<AdmissionOutcome<H>>,
    ) {
        let Ok(handshake) = begin(stream) else {
            return outcomes.push(AdmissionOutcome::Refused(from));
        };
        let of_source = self
            .waiting
            .values()
            .filter(|peer| peer.from == from)
            .count();
        if of_source >= self.limits.per_source {
            outcomes.extend(self.refuse_oldest(Some(from)));
        } else if self.waiting.len() >= self.limits.in_all {
            outcomes.extend(self.refuse_oldest(None));
        }
        let number = self.next;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        if self
            .epoll
            .add(&handshake, EpollEvent::new(flags, number))
            .is_err()
        {
            return outcomes.push(AdmissionOutcome::Refused(from));
        }
        self.next += 1;
        let until = Instant::now() + self.limits.time;
        self.waiting.insert(
            number,
            WaitingPeer {
                handshake,
                from,
                until,
            },
        );
    }

    /// Stops or begins to listen for new connections.
    fn rest(&mut self, until: Option<Instant>) {
        let flags = match until {
            Some(_) => EpollFlags::empty(),
            None => EpollFlags::EPOLLIN,
        };
        for (number, listener) in (0..).zip(&self.listeners) {
            let _ = self
                .epoll
                .modify(listener, &mut EpollEvent::new(flags, number));
        }
        self.resting = until;
    }
}

impl<H> AsFd for Admission<H> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Listeners that a separate thread serves. Dropping it closes them.
#[derive(Debug)]
pub struct ServedPort {
    /// Closing it ends the thread; this needs no descriptor, so it succeeds even if none is left.
    open: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ServedPort {
    /// Serves an admission until this is dropped.
    pub fn serve<H: Handshake + Send + 'static>(
        mut admission: Admission<H>,
        mut begin: impl FnMut(TcpStream) -> io::Result<H> + Send + 'static,
        mut take: impl FnMut(AdmissionOutcome<H>) + Send + 'static,
    ) -> io::Result<ServedPort> {
        let (open, is_open) = UnixStream::pair()?;
        let thread = std::thread::Builder::new().spawn(move || {
            loop {
                let mut fds = [&admission.as_fd(), &is_open.as_fd()]
                    .map(|fd| PollFd::new(*fd, PollFlags::POLLIN));
                let polled = poll(&mut fds, admission.timeout());
                if fds[1].any().unwrap_or(false) || !matches!(polled, Ok(_) | Err(Errno::EINTR)) {
                    return;
                }
                admission.turn(&mut begin).into_iter().for_each(&mut take);
            }
        })?;
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

/// The handshake of a peer with one of the keys, and the line with which it introduces itself.
#[derive(Debug)]
pub struct PeerGreeting {
    /// The connection.
    pub link: Link,
    /// The bytes received after the proof of the key: the line and more, if a line is requested.
    pub received: Vec<u8>,
    welcome: Vec<u8>,
    max_line: usize,
}

impl PeerGreeting {
    /// Admits a peer with one of the keys as soon as it has proved that.
    pub fn of_key(stream: TcpStream, guests: &Guests) -> io::Result<PeerGreeting> {
        PeerGreeting::with_line(stream, guests, &[], 0)
    }

    /// Admits a peer with one of the keys when a line of at most `max_line` bytes has arrived too.
    /// `welcome` is sent when the key is proved.
    pub fn with_line(
        stream: TcpStream,
        guests: &Guests,
        welcome: &[u8],
        max_line: usize,
    ) -> io::Result<PeerGreeting> {
        Ok(PeerGreeting {
            link: Link::accept(stream, guests)?,
            received: Vec::new(),
            welcome: welcome.to_vec(),
            max_line,
        })
    }
}

impl Handshake for PeerGreeting {
    fn advance(&mut self) -> io::Result<bool> {
        self.link.flush()?;
        let open = self.link.receive(&mut self.received)?;
        let may_go_on = match self.link.peer() {
            None => self.link.received_bytes() <= MAX_UNPROVED,
            Some(_) => {
                if !self.welcome.is_empty() {
                    self.link.send(&std::mem::take(&mut self.welcome))?;
                }
                let line = self.received.iter().position(|byte| *byte == b'\n');
                if self.max_line == 0 || line.is_some_and(|end| end <= self.max_line) {
                    return Ok(true);
                }
                line.is_none() && self.received.len() <= self.max_line
            }
        };
        match open && may_go_on {
            true => Ok(false),
            false => Err(ErrorKind::InvalidData.into()),
        }
    }
}

impl AsFd for PeerGreeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, PublicKey};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

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
        let admission = Admission::new(vec![listener], LIMITS).unwrap();
        let served = ServedPort::serve(
            admission,
            move |stream| PeerGreeting::with_line(stream, &guests, b"welcome\n", 100),
            |outcome| {
                if let AdmissionOutcome::Admitted(mut greeting, _) = outcome {
                    let answer = greeting.received.clone();
                    greeting.link.send(&answer).unwrap();
                }
            },
        );
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
        let (mut link, mut received) = Link::open(to, ours, theirs, limit, true).unwrap();
        let _ = link.send(line);
        let until = Instant::now() + limit;
        while Instant::now() < until && !received.ends_with(line) {
            let mut fds = [PollFd::new(link.as_fd(), link.wait_for())];
            poll(&mut fds, 1000u16).unwrap();
            let _ = link.flush();
            if !link.receive(&mut received).unwrap_or(false) {
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
            Link::open(
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
