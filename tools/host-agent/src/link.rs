//! Measures how fast another host sends to this one, and this one to another. Receiving happens in
//! a thread, because all hosts do both at the same time.

use crate::preflight::ports::bound;
use crate::procfs;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockaddrIn, connect, setsockopt, sockopt};
use nix::sys::time::TimeVal;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tls::{Admission, Handshake, Limits, Outcome};
use wire::Failure;
use wire::link::{Expect, Expected, Received, Send, Sent};

/// A connection between hosts takes milliseconds, and a lost packet is sent again after 1 s and 2
/// s. The other host may be asked a moment later than this one.
const PATIENCE: Duration = Duration::from_secs(10);
/// One connection is expected. Whoever has the key sends it at once.
const LIMITS: Limits = Limits {
    in_all: 256,
    per_source: 64,
    time: Duration::from_secs(2),
};
/// Enough for a median that one slow wake-up does not change.
const ROUND_TRIPS: usize = 21;
/// Large enough that system calls cost little, and small compared with what is sent.
const BUFFER_BYTES: usize = 256 << 10;

/// The number of slices of the time; enough for a median.
const SLICES: usize = 20;
/// In a shorter slice a healthy link may carry nothing.
const SHORTEST_SLICE: Duration = Duration::from_millis(1);

/// The receiving side of this host.
#[derive(Debug, Default)]
pub struct Receiver(Option<JoinHandle<io::Result<Received>>>);

impl Receiver {
    /// Listens on a free port, and receives from the connection that begins with the key.
    pub fn expect(&mut self, wanted: Expect) -> Result<Expected, Failure> {
        let failed = |error: io::Error| Failure::new(format!("{}: {error}", wanted.address));
        let listener = TcpListener::bind((wanted.address, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let admission = Admission::new(vec![listener], LIMITS).map_err(failed)?;
        let failed = |error: io::Error| Failure::new(error.to_string());
        let thread = std::thread::Builder::new().spawn(move || receive(admission, &wanted));
        self.0 = Some(thread.map_err(failed)?);
        Ok(Expected { port })
    }

    /// The result.
    pub fn received(&mut self) -> Result<Received, Failure> {
        let thread = self
            .0
            .take()
            .ok_or_else(|| Failure::new("no connection was expected"))?;
        match thread.join() {
            Ok(Ok(received)) => Ok(received),
            Ok(Err(error)) => Err(Failure::new(error.to_string())),
            Err(_) => Err(Failure::new("the receiving thread broke down")),
        }
    }
}

fn receive(admission: Admission<KeyReader>, wanted: &Expect) -> io::Result<Received> {
    let time = Duration::from_millis(wanted.time_ms);
    let mut stream = admitted(admission, &wanted.key, Instant::now() + PATIENCE)?;
    let until = Instant::now() + PATIENCE;
    for _ in 0..ROUND_TRIPS {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut arrivals = Arrivals::new(time);
    let until = Instant::now() + time + PATIENCE;
    loop {
        let count = stream.read(&mut buffer)?;
        let now = Instant::now();
        if count == 0 || now > until {
            return Ok(arrivals.counted());
        }
        arrivals.add(count, now);
    }
}

/// The connection that begins with the key.
fn admitted(
    mut admission: Admission<KeyReader>,
    key: &str,
    until: Instant,
) -> io::Result<TcpStream> {
    loop {
        for outcome in admission.turn(|stream| KeyReader::begin(stream, key)) {
            let Outcome::Admitted(reader, _) = outcome else {
                continue;
            };
            let stream = reader.stream;
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            return Ok(stream);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let problem = "no connection came";
            return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
        }
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let timeout = admission.timeout();
        let timeout = if timeout.is_none() {
            left
        } else {
            left.min(timeout)
        };
        let _ = poll(
            &mut [PollFd::new(admission.as_fd(), PollFlags::POLLIN)],
            timeout,
        );
    }
}

/// A connection that has to begin with the key. It is not encrypted, because a cipher would be
/// measured in place of the link.
struct KeyReader {
    stream: TcpStream,
    key: Vec<u8>,
    received: Vec<u8>,
}

impl KeyReader {
    fn begin(stream: TcpStream, key: &str) -> io::Result<KeyReader> {
        stream.set_nonblocking(true)?;
        Ok(KeyReader {
            stream,
            key: key.as_bytes().to_vec(),
            received: Vec::new(),
        })
    }
}

impl Handshake for KeyReader {
    fn advance(&mut self) -> io::Result<bool> {
        let (wanted, held) = (self.key.len(), self.received.len());
        let mut rest = (&self.stream).take((wanted - held) as u64);
        match rest.read_to_end(&mut self.received) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            read => read?,
        };
        // compared as a whole: whoever learned which byte is wrong could find the key
        match self.received == self.key {
            true => Ok(true),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl AsFd for KeyReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The bytes that came, in slices of equal length. A process that has to wait for a processor reads
/// nothing in one slice and too much in the next; the median of many is the rate of the link.
struct Arrivals {
    slice: Duration,
    slices: Vec<u64>,
    first: Option<Instant>,
    last: Instant,
}

impl Arrivals {
    /// A fifth of the time, in which TCP starts slowly.
    const WARM_UP: usize = SLICES / 5;

    fn new(time: Duration) -> Arrivals {
        Arrivals {
            slice: (time / SLICES as u32).max(SHORTEST_SLICE),
            slices: Vec::new(),
            first: None,
            last: Instant::now(),
        }
    }

    fn add(&mut self, count: usize, now: Instant) {
        let first = *self.first.get_or_insert(now);
        self.last = now;
        let at = ((now - first).as_nanos() / self.slice.as_nanos()) as usize;
        if at >= self.slices.len() {
            self.slices.resize(at + 1, 0);
        }
        self.slices[at] += count as u64;
    }

    /// The median slice; or all bytes, if they came before there were enough slices.
    fn counted(&self) -> Received {
        // the last slice is not complete
        let end = self.slices.len().saturating_sub(1).max(Self::WARM_UP);
        let mut whole = self
            .slices
            .get(Self::WARM_UP..end)
            .unwrap_or_default()
            .to_vec();
        whole.sort_unstable();
        match whole.get(whole.len() / 2) {
            Some(median) if whole.len() >= Self::WARM_UP && *median > 0 => Received {
                received_bytes: *median,
                time_us: micros(self.slice),
            },
            _ => Received {
                received_bytes: self.slices.iter().sum(),
                time_us: micros(self.last - self.first.unwrap_or(self.last)),
            },
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Sends as fast as possible.
pub fn send(wanted: &Send) -> Result<Sent, Failure> {
    let before = procfs::retransmitted_segments();
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", wanted.to));
    let mut stream = connection(wanted.from, wanted.to)
        .map_err(|error| Failure::new(format!("{}: {}", wanted.to, error.desc())))?;
    let (round_trip_us, sent_bytes) = measure(&mut stream, wanted).map_err(failed)?;
    Ok(Sent {
        sent_bytes,
        round_trip_us,
        retransmits: procfs::retransmitted_segments().saturating_sub(before),
    })
}

/// Connects from the address that DGL uses too, so that the bytes go over the same network
/// interface.
fn connection(from: Ipv4Addr, to: SocketAddrV4) -> nix::Result<TcpStream> {
    let socket = bound(from, 0)?;
    let patience = TimeVal::new(PATIENCE.as_secs().cast_signed(), 0);
    // the option holds for connecting too
    setsockopt(&socket, sockopt::SendTimeout, &patience)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &patience)?;
    match connect(socket.as_raw_fd(), &SockaddrIn::from(to)) {
        Ok(()) => Ok(TcpStream::from(socket)),
        Err(Errno::EINPROGRESS) => Err(Errno::ETIMEDOUT),
        Err(error) => Err(error),
    }
}

/// The median round trip in microseconds, and the number of bytes sent.
fn measure(stream: &mut TcpStream, wanted: &Send) -> io::Result<(u64, u64)> {
    stream.set_nodelay(true)?;
    stream.write_all(wanted.key.as_bytes())?;
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let begun = Instant::now();
        stream.write_all(&[0])?;
        stream.read_exact(&mut [0])?;
        round_trips.push(micros(begun.elapsed()));
    }
    round_trips.sort_unstable();
    // random, because a tunnel that compresses must not look fast
    let mut buffer = vec![0; BUFFER_BYTES];
    blake3::Hasher::new()
        .update(wanted.key.as_bytes())
        .finalize_xof()
        .fill(&mut buffer);
    let until = Instant::now() + Duration::from_millis(wanted.time_ms);
    let mut bytes = 0;
    while bytes < wanted.max_bytes && Instant::now() < until {
        bytes += stream.write(&buffer)? as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    // all bytes have come when the other end has closed; it sends nothing more
    match stream.read(&mut [0])? {
        0 => {}
        _ => return Err(io::Error::other("it sends more than it was sent")),
    }
    Ok((round_trips[ROUND_TRIPS / 2], bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_slice_counts_and_not_the_slow_beginning() {
        let begun = Instant::now();
        let steady = |from: u64, to: u64| (from..to).step_by(10).map(|ms| (ms, 10));
        let slow_beginning = (0..40).step_by(10).map(|ms| (ms, 1)).chain(steady(40, 200));
        // nobody read for three slices, and then all at once
        let stall = steady(0, 100).chain([(130, 40)]).chain(steady(140, 200));
        let table: [(Vec<(u64, usize)>, u64, u64); 5] = [
            (vec![], 0, 0),
            (slow_beginning.collect(), 10, 10),
            (stall.collect(), 10, 10),
            // all was sent before there was a median
            (steady(0, 50).collect(), 50, 40),
            // so slow that most slices are empty
            (vec![(0, 10), (90, 10), (190, 10)], 30, 190),
        ];
        for (arrived, received_bytes, ms) in table {
            let mut arrivals = Arrivals::new(Duration::from_millis(200));
            for (time, count) in &arrived {
                arrivals.add(*count, begun + Duration::from_millis(*time));
            }
            let wanted = Received {
                received_bytes,
                time_us: ms * 1000,
            };
            assert_eq!(arrivals.counted(), wanted, "{arrived:?}");
        }
    }

    #[test]
    fn what_is_sent_arrives_and_strangers_are_not_taken_for_the_sender() {
        let key = "k".repeat(32);
        let mut receiver = Receiver::default();
        let expect = Expect {
            address: Ipv4Addr::LOCALHOST,
            key: key.clone(),
            time_ms: 50,
        };
        let port = receiver.expect(expect).unwrap().port;
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stranger.write_all(&[b'x'; 64]).unwrap();
        let sent = send(&Send {
            from: Ipv4Addr::LOCALHOST,
            to: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            key,
            time_ms: 5_000,
            max_bytes: 4 << 20,
        })
        .unwrap();
        let received = receiver.received().unwrap();
        assert!(
            received.received_bytes > 0 && received.received_bytes <= sent.sent_bytes,
            "{received:?} {sent:?}"
        );
        assert!(sent.sent_bytes >= 4 << 20, "{sent:?}");
        assert!(receiver.received().is_err(), "it is told once");
    }
}
