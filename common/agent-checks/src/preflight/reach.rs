//! Checks whether hosts reach each other: each listens for a moment, and others connect. A port is
//! reachable if the kernel accepts the connection.
//!
//! On one connection to each address they also send each other large packets, because on a path
//! that silently loses them, hosts can connect but the job hangs. The connecting host sends
//! [`GREETING`], and the other repeats it. The connecting host sends a block; the other confirms
//! with one byte that some of it has arrived, and sends a block, too. If the greeting was answered
//! but nothing of a block arrives, large packets are lost: the first byte of a block is in its
//! first packet, which is as large as any.

use host::readiness::readable;
use host::side_thread::SideThread;
use nix::libc;
use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::iter::once;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use wire::Failure;
use wire::preflight::Finding;

/// Connecting takes milliseconds, but a lost packet is sent again after 1 s and after 2 s more.
const PATIENCE: Duration = Duration::from_millis(3500);
/// All other hosts may connect at once. The kernel may reduce this to far fewer.
const BACKLOG: i32 = 4096;

const GREETING: [u8; 1] = *b"g";
/// What each host sends to the other: many packets whatever their size, so that a packet lost by
/// chance is sent again within milliseconds.
const BLOCK_BYTES: usize = 64 << 10;
/// The least time for a block after the answer to the greeting: TCP sends a lost packet again after
/// 0.2 s, 0.6 s and 1.4 s. If less is left, nothing is concluded.
const BLOCK_PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait if no descriptor is left for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Closes with a reset, so that a port that a server is about to bind is not in TIME_WAIT.
const RESET: libc::linger = libc::linger {
    l_onoff: 1,
    l_linger: 0,
};

/// Listening sockets, closed on drop.
#[derive(Debug, Default)]
pub struct Listeners(Option<SideThread>);

impl Listeners {
    /// Listens on a free port of this address, and on `port` if it is available.
    pub fn listen(&mut self, address: Ipv4Addr, port: Option<u16>) -> Result<Finding, Failure> {
        self.listen_with(address, port, BACKLOG)
    }

    fn listen_with(
        &mut self,
        address: Ipv4Addr,
        port: Option<u16>,
        backlog: i32,
    ) -> Result<Finding, Failure> {
        self.stop();
        let failed = |error: io::Error| Failure::new(format!("{address}: {error}"));
        let on_port = port.and_then(|port| listener(address, port, backlog).ok());
        let (ephemeral, number) = listener(address, 0, backlog).map_err(failed)?;
        let (mut sockets, mut port) = (vec![ephemeral], None);
        if let Some((socket, number)) = on_port {
            sockets.push(socket);
            port = Some(number);
        }
        let accepting = SideThread::begin("reach", move |stopped| accept(&sockets, stopped));
        self.0 = Some(accepting.map_err(failed)?);
        Ok(Finding::Listens {
            port,
            ephemeral: number,
        })
    }

    pub fn stop(&mut self) {
        self.0 = None;
    }
}

/// Answers connections, and closes each after the other side has, so that the port is free
/// afterwards.
fn accept(sockets: &[TcpListener], stopped: &PipeReader) {
    let mut open: Vec<Accepted> = Vec::new();
    loop {
        let streams = open.iter().map(|accepted| accepted.stream.as_fd());
        let descriptors = once(stopped.as_fd())
            .chain(streams)
            .chain(sockets.iter().map(AsFd::as_fd));
        let mut ready = readable(descriptors, None).into_iter();
        if ready.next() != Some(false) {
            return;
        }
        open.retain_mut(|accepted| !ready.next().unwrap_or(false) || accepted.answer().is_ok());
        for (socket, _) in sockets.iter().zip(ready).filter(|(_, ready)| *ready) {
            match socket.accept() {
                Ok((stream, _)) => open.extend(Accepted::new(stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

struct Accepted {
    stream: TcpStream,
    received: usize,
}

impl Accepted {
    fn new(stream: TcpStream) -> io::Result<Accepted> {
        prepare(&stream)?;
        stream.set_nonblocking(true)?;
        Ok(Accepted {
            stream,
            received: 0,
        })
    }

    /// Fails when the connection has ended.
    fn answer(&mut self) -> io::Result<()> {
        let before = self.received;
        match self.stream.read(&mut [0; BLOCK_BYTES]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.received += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        if before == 0 {
            self.stream.write_all(&GREETING)?;
        }
        if before <= GREETING.len() && self.received > GREETING.len() {
            self.stream.write_all(&GREETING)?;
            self.stream.write_all(&[0; BLOCK_BYTES])?;
        }
        Ok(())
    }
}

/// Sends small packets at once, and enlarges the buffer, so that one write accepts a block.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::Linger, &RESET)?;
    setsockopt(stream, sockopt::SndBuf, &(2 * BLOCK_BYTES))?;
    stream.set_nodelay(true)
}

fn listener(address: Ipv4Addr, port: u16, backlog: i32) -> io::Result<(TcpListener, u16)> {
    let socket = TcpListener::bind((address, port))?;
    // the kernel reduces it if necessary
    listen(&socket, Backlog::new(backlog).unwrap_or(Backlog::MAXCONN))?;
    // a connection that poll reports may be closed before it is accepted
    socket.set_nonblocking(true)?;
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

/// Connects to all targets at once, each in a thread; returns those that cannot be reached, and
/// those with a path that loses large packets.
pub fn connect(targets: &[SocketAddrV4]) -> Vec<Finding> {
    std::thread::scope(|scope| {
        let try_each = |(index, target): (usize, &SocketAddrV4)| {
            let target = *target;
            // all ports of an address have the same path
            let is_first = !targets[..index]
                .iter()
                .any(|other| other.ip() == target.ip());
            let attempt = move || try_one(target, is_first);
            (
                target,
                std::thread::Builder::new().spawn_scoped(scope, attempt),
            )
        };
        let threads: Vec<_> = targets.iter().enumerate().map(try_each).collect();
        let found = threads.into_iter().filter_map(|(target, thread)| {
            let tried = thread.map(std::thread::ScopedJoinHandle::join);
            let error = match tried {
                Ok(Ok(Ok(finding))) => return finding,
                Ok(Ok(Err(error))) | Err(error) => error,
                Ok(Err(_)) => io::Error::other("the attempt ended with a panic"),
            };
            let why = match error.kind() {
                ErrorKind::TimedOut => "Connection timed out".to_owned(),
                ErrorKind::ConnectionRefused => "Connection refused".to_owned(),
                _ => error.to_string(),
            };
            Some(Finding::Unreached { target, why })
        });
        found.collect()
    })
}

fn try_one(target: SocketAddrV4, with_blocks: bool) -> io::Result<Option<Finding>> {
    let until = Instant::now() + PATIENCE;
    let mut stream = TcpStream::connect_timeout(&target.into(), PATIENCE)?;
    prepare(&stream)?;
    if !with_blocks {
        return Ok(None);
    }
    // the host is reached, and an end of the connection proves nothing about the path
    let lost = exchange_blocks(&mut stream, until).unwrap_or(None);
    Ok(lost.map(|outward| Finding::LosesLargePackets { target, outward }))
}

/// Returns which block was lost completely, `true` for the one sent; `None` if neither was, or if
/// there was too little time.
fn exchange_blocks(stream: &mut TcpStream, until: Instant) -> io::Result<Option<bool>> {
    let left = || until.saturating_duration_since(Instant::now());
    stream.write_all(&GREETING)?;
    if !arrives(stream, left())? || left() < BLOCK_PATIENCE {
        return Ok(None);
    }
    stream.set_write_timeout(Some(left()))?;
    stream.write_all(&[0; BLOCK_BYTES])?;
    if !arrives(stream, left())? {
        return Ok(Some(true));
    }
    if left() < BLOCK_PATIENCE || arrives(stream, left())? {
        return Ok(None);
    }
    Ok(Some(false))
}

/// Whether one byte arrives within this time.
fn arrives(stream: &mut TcpStream, limit: Duration) -> io::Result<bool> {
    stream.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
    match stream.read_exact(&mut [0]) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_reached_and_who_has_stopped_is_not() {
        // an address that no other test uses, so that the port remains free
        let address = Ipv4Addr::new(127, 88, 0, 1);
        let mut listeners = Listeners::default();
        let Finding::Listens {
            port: None,
            ephemeral,
        } = listeners.listen(address, None).unwrap()
        else {
            panic!()
        };
        let target = SocketAddrV4::new(address, ephemeral);
        assert_eq!(connect(&[target, target]), []);
        listeners.stop();
        assert_eq!(
            connect(&[target]),
            [Finding::Unreached {
                target,
                why: "Connection refused".to_owned()
            }]
        );
        // the port is free at once
        let again = listeners.listen(address, Some(ephemeral)).unwrap();
        assert!(
            matches!(again, Finding::Listens { port: Some(port), .. } if port == ephemeral),
            "{again:?}"
        );
        assert_eq!(connect(&[target]), []);
        assert!(listeners.listen(Ipv4Addr::new(192, 0, 2, 1), None).is_err());
    }

    #[test]
    fn more_hosts_connect_than_the_kernel_keeps_waiting() {
        let address = Ipv4Addr::new(127, 88, 0, 2);
        let mut listeners = Listeners::default();
        let listens = listeners.listen_with(address, None, 1).unwrap();
        let Finding::Listens { ephemeral, .. } = listens else {
            panic!("{listens:?}")
        };
        let target = SocketAddrV4::new(address, ephemeral);
        for _ in 0..6 {
            assert_eq!(connect(&[target]), []);
        }
    }

    #[test]
    fn large_packets_are_lost_if_a_block_gets_no_answer() {
        let address = Ipv4Addr::new(127, 88, 0, 3);
        // the number of answers; without an answer to the greeting nothing is concluded
        let table = [(0, None), (1, Some(true)), (2, Some(false)), (3, None)];
        std::thread::scope(|scope| {
            for (answers, expected) in table {
                scope.spawn(move || {
                    let listener = TcpListener::bind((address, 0)).unwrap();
                    let port = listener.local_addr().unwrap().port();
                    let target = SocketAddrV4::new(address, port);
                    let connecting = std::thread::spawn(move || connect(&[target]));
                    let (mut stream, _) = listener.accept().unwrap();
                    for _ in 0..answers {
                        stream.read_exact(&mut [0]).unwrap();
                        stream.write_all(&GREETING).unwrap();
                    }
                    let lost = |outward| Finding::LosesLargePackets { target, outward };
                    let expected: Vec<Finding> = expected.map(lost).into_iter().collect();
                    assert_eq!(connecting.join().unwrap(), expected, "{answers}");
                });
            }
        });
    }
}
