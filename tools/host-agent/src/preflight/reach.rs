//! Checks whether hosts reach one another: each listens for a moment, and others connect. It is
//! enough that the kernel accepts.

use super::ports::bound;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, connect as connect_socket, getsockname,
    getsockopt, listen, setsockopt, socket, sockopt,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::Failure;
use wire::preflight::{Finding, Unreachable};

/// A connection between hosts takes milliseconds; a lost packet is sent again after 1 s, and then
/// after 2 s more.
const PATIENCE: Duration = Duration::from_millis(3500);
/// Every other host may connect at once, and nobody calls accept.
const BACKLOG: i32 = 4096;

/// Sockets to which others can connect. They are closed on drop.
#[derive(Debug, Default)]
pub struct Listeners(Vec<OwnedFd>);

impl Listeners {
    /// Listens on a free port of this address, and on `port` if it is available.
    pub fn listen(&mut self, address: Ipv4Addr, port: Option<u16>) -> Result<Finding, Failure> {
        self.stop();
        let own = port.and_then(|port| listener(address, port).ok());
        let (ephemeral, number) = listener(address, 0)
            .map_err(|error| Failure::new(format!("{address}: {}", error.desc())))?;
        let port = own.as_ref().map(|(_, port)| *port);
        self.0.extend(own.map(|(socket, _)| socket));
        self.0.push(ephemeral);
        Ok(Finding::Listens {
            port,
            ephemeral: number,
        })
    }

    /// Stops listening.
    pub fn stop(&mut self) {
        self.0.clear();
    }
}

fn listener(address: Ipv4Addr, port: u16) -> nix::Result<(OwnedFd, u16)> {
    let socket = bound(address, port)?;
    // the kernel reduces it if necessary
    listen(&socket, Backlog::new(BACKLOG).unwrap_or(Backlog::MAXCONN))?;
    let port = getsockname::<SockaddrIn>(socket.as_raw_fd())?.port();
    Ok((socket, port))
}

/// Connects to all targets at once; returns those that cannot be reached.
pub fn connect(targets: &[SocketAddrV4]) -> Vec<Finding> {
    let mut unreached = Vec::new();
    let mut waiting: Vec<(OwnedFd, SocketAddrV4)> = Vec::new();
    let mut tell =
        |target: SocketAddrV4, why: Unreachable| unreached.push(Finding::Unreached { target, why });
    for target in targets {
        match begin(*target) {
            Ok(None) => {}
            Ok(Some(socket)) => waiting.push((socket, *target)),
            Err(error) => tell(*target, why(error)),
        }
    }
    let until = Instant::now() + PATIENCE;
    while !waiting.is_empty() {
        let mut fds: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|(socket, _)| PollFd::new(socket.as_fd(), PollFlags::POLLOUT))
            .collect();
        let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now()))
            .unwrap_or(PollTimeout::ZERO);
        match poll(&mut fds, left) {
            Ok(0) => break,
            Err(Errno::EINTR) | Ok(_) => {}
            Err(_) => break,
        }
        let mut done = fds
            .iter()
            .map(|fd| fd.any().unwrap_or(false))
            .collect::<Vec<_>>()
            .into_iter();
        for (socket, target) in waiting.extract_if(.., |_| done.next().unwrap_or(false)) {
            match getsockopt(&socket, sockopt::SocketError) {
                Ok(0) => {}
                Ok(error) => tell(target, why(Errno::from_raw(error))),
                Err(error) => tell(target, why(error)),
            }
        }
    }
    waiting
        .into_iter()
        .for_each(|(_, target)| tell(target, Unreachable::TimedOut));
    unreached
}

/// Begins a connection; `None` if it is established already.
fn begin(target: SocketAddrV4) -> nix::Result<Option<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let own = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    // closed by a reset, so that no TIME_WAIT stays on a port that a server is about to bind
    setsockopt(
        &own,
        sockopt::Linger,
        &libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    )?;
    match connect_socket(own.as_raw_fd(), &SockaddrIn::from(target)) {
        Ok(()) => Ok(None),
        Err(Errno::EINPROGRESS) => Ok(Some(own)),
        Err(error) => Err(error),
    }
}

fn why(error: Errno) -> Unreachable {
    match error {
        Errno::ETIMEDOUT => Unreachable::TimedOut,
        Errno::ECONNREFUSED => Unreachable::Refused,
        other => Unreachable::Other(other.desc().to_owned()),
    }
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
}
