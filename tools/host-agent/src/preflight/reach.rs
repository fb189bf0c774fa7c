//! Checks whether hosts reach one another: each listens for a moment, and others connect. It is
//! enough that the kernel accepts; a thread makes room for the next ones.

use crate::side_thread::SideThread;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};
use std::io::{self, ErrorKind, PipeReader};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use wire::Failure;
use wire::preflight::{Finding, Unreachable};

/// A connection between hosts takes milliseconds; a lost packet is sent again after 1 s, and then
/// after 2 s more.
const PATIENCE: Duration = Duration::from_millis(3500);
/// Every other host may connect at once. The kernel may reduce it to far less than there are hosts.
const BACKLOG: i32 = 4096;

/// How long to wait where no descriptor is left for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Closes by a reset, so that no TIME_WAIT stays on a port that a server is about to bind.
const RESET: libc::linger = libc::linger {
    l_onoff: 1,
    l_linger: 0,
};

/// Sockets to which others can connect. They are closed on drop.
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
        let own = port.and_then(|port| listener(address, port, backlog).ok());
        let (ephemeral, number) = listener(address, 0, backlog).map_err(failed)?;
        let (mut sockets, mut port) = (vec![ephemeral], None);
        if let Some((socket, number)) = own {
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

    /// Stops listening.
    pub fn stop(&mut self) {
        self.0 = None;
    }
}

/// Accepts connections, and closes each when the other side has, so that nothing of it stays on the
/// port.
fn accept(sockets: &[TcpListener], stopped: &PipeReader) {
    let mut open: Vec<TcpStream> = Vec::new();
    loop {
        let of = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let mut fds = vec![of(stopped.as_fd())];
        fds.extend(open.iter().map(|stream| of(stream.as_fd())));
        fds.extend(sockets.iter().map(|socket| of(socket.as_fd())));
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            continue;
        }
        let mut ready = fds
            .iter()
            .map(|fd| fd.any().unwrap_or(true))
            .collect::<Vec<_>>()
            .into_iter();
        if ready.next() != Some(false) {
            return;
        }
        open.retain(|_| !ready.next().unwrap_or(false));
        for (socket, _) in sockets.iter().zip(ready).filter(|(_, ready)| *ready) {
            match socket.accept() {
                Ok((stream, _)) => {
                    let _ = setsockopt(&stream, sockopt::Linger, &RESET);
                    open.push(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

fn listener(address: Ipv4Addr, port: u16, backlog: i32) -> io::Result<(TcpListener, u16)> {
    let socket = TcpListener::bind((address, port))?;
    // the kernel reduces it if necessary
    listen(&socket, Backlog::new(backlog).unwrap_or(Backlog::MAXCONN))?;
    // poll may report a connection that is gone when it is accepted
    socket.set_nonblocking(true)?;
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

/// Connects to all targets at once, each in a thread of its own; returns those that cannot be
/// reached. A host has some sixty targets at most.
pub fn connect(targets: &[SocketAddrV4]) -> Vec<Finding> {
    std::thread::scope(|scope| {
        let try_each = |target: &SocketAddrV4| {
            let target = *target;
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || try_one(target));
            (target, thread)
        };
        let threads: Vec<_> = targets.iter().map(try_each).collect();
        let unreached = threads.into_iter().filter_map(|(target, thread)| {
            let tried = thread.map(std::thread::ScopedJoinHandle::join);
            let error = match tried {
                Ok(Ok(Ok(()))) => return None,
                Ok(Ok(Err(error))) | Err(error) => error,
                Ok(Err(_)) => io::Error::other("the attempt ended with a panic"),
            };
            let why = match error.kind() {
                ErrorKind::TimedOut => Unreachable::TimedOut,
                ErrorKind::ConnectionRefused => Unreachable::Refused,
                _ => Unreachable::Other(error.to_string()),
            };
            Some(Finding::Unreached { target, why })
        });
        unreached.collect()
    })
}

fn try_one(target: SocketAddrV4) -> io::Result<()> {
    let stream = TcpStream::connect_timeout(&target.into(), PATIENCE)?;
    Ok(setsockopt(&stream, sockopt::Linger, &RESET)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_reached_and_who_has_stopped_is_not() {
        // an address of its own, so that no other test takes the port when it is free
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
                why: Unreachable::Refused
            }]
        );
        // the port can be had at once, and is then listened on
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
}
