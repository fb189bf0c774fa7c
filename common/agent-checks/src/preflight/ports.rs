//! Checks the ports on which the job will listen.
//!
//! The check does not listen. It binds a port for a moment with SO_REUSEADDR, as DGL and torch do,
//! which disturbs no other process, and only while the job has claimed the port.

use agent::notes::Port;
use host::describe;
use host::procfs::{self, TcpSocket};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use wire::preflight::{Holder, Problem, Subject};

/// Checks again, because the owner of a port may have just ended, and the port is free a moment
/// later.
const CHECKS: u32 = 3;
const BETWEEN_CHECKS: Duration = Duration::from_millis(100);

pub fn check(ports: &[Port]) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut sockets = procfs::tcp_sockets();
    for port in ports {
        let Some(found) = settled(*port, &mut sockets) else {
            continue;
        };
        // one problem per address
        if !problems.contains(&found) {
            problems.push(found);
        }
    }
    problems
}

/// Checks again if the port's owner may have just ended.
fn settled(port: Port, sockets: &mut Vec<TcpSocket>) -> Option<Problem> {
    for checks_left in (0..CHECKS).rev() {
        match problem(port, sockets) {
            Some(found) if found.about == Subject::Port(Holder::Hidden) && checks_left > 0 => {
                std::thread::sleep(BETWEEN_CHECKS);
                *sockets = procfs::tcp_sockets();
            }
            found => return found,
        }
    }
    None
}

fn problem(port: Port, sockets: &mut Vec<TcpSocket>) -> Option<Problem> {
    let number = port.port;
    if let Some(listener) = on(port, sockets).find(TcpSocket::listens) {
        return Some(taken(number, &listener));
    }
    match bound(port.address.unwrap_or(Ipv4Addr::UNSPECIFIED), number) {
        Ok(_) => {
            // a graph server of DGL 0.5 could not bind it; every version of torch, which listens on
            // any address, sets SO_REUSEADDR
            let lingers =
                port.address.is_some() && on(port, sockets).any(|socket| socket.lingers());
            lingers.then(|| lingering(number, false))
        }
        Err(Errno::EADDRNOTAVAIL) => port.address.map(|address| {
            let problem = format!("{address} is not an address of this host");
            Problem::new(Subject::Address, problem)
        }),
        Err(Errno::EADDRINUSE) => {
            *sockets = procfs::tcp_sockets();
            let holder = on(port, sockets).find(|socket| socket.listens() || socket.inode != 0);
            Some(match holder {
                Some(socket) => taken(number, &socket),
                None => lingering(number, true),
            })
        }
        Err(error) => {
            let problem = format!("port {number} cannot be bound: {}", error.desc());
            Some(Problem::new(Subject::UnusablePort, problem))
        }
    }
}

/// Includes sockets that have the port on all addresses.
fn on(port: Port, sockets: &[TcpSocket]) -> impl Iterator<Item = TcpSocket> {
    sockets.iter().copied().filter(move |socket| {
        let same_address = || match (socket.address, port.address) {
            (_, None) => true,
            (Some(bound), Some(wanted)) => bound == wanted || bound.is_unspecified(),
            (None, Some(_)) => false,
        };
        socket.port == port.port && same_address()
    })
}

fn taken(port: u16, socket: &TcpSocket) -> Problem {
    let (by, words) = describe::holder(holder(socket.inode), socket.uid);
    Problem::new(
        Subject::Port(by),
        format!("port {port} is taken by {words}"),
    )
}

fn lingering(port: u16, blocks: bool) -> Problem {
    let problem = format!("port {port} is still held by connections of a job that has ended");
    Problem::new(Subject::LingeringPort { blocks }, problem)
}

/// Only root sees processes of other users.
fn holder(inode: u64) -> Option<i32> {
    procfs::pids()
        .into_iter()
        .find(|pid| procfs::socket_inodes(*pid).contains(&inode))
}

/// Binds as DGL and torch do, without listening.
pub fn bound(address: Ipv4Addr, port: u16) -> nix::Result<OwnedFd> {
    let bound = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // sockets in TIME_WAIT do not prevent binding then
    setsockopt(&bound, sockopt::ReuseAddr, &true)?;
    bind(
        bound.as_raw_fd(),
        &SockaddrIn::from(SocketAddrV4::new(address, port)),
    )?;
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_listens_is_told_and_a_free_port_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.local_addr().unwrap().port();
        let on = |address: [u8; 4]| Port {
            port: number,
            address: Some(address.into()),
        };
        for port in [
            on([127, 0, 0, 1]),
            Port {
                port: number,
                address: None,
            },
        ] {
            let found = check(&[port, port]);
            let words = format!("port {number} is taken by process {} (", std::process::id());
            assert!(
                found.len() == 1
                    && found[0].about == Subject::Port(Holder::Process)
                    && found[0].problem.starts_with(&words),
                "{found:?}"
            );
        }
        assert_eq!(check(&[on([127, 0, 0, 2])]), []);
        drop(listener);
        assert_eq!(check(&[on([127, 0, 0, 1])]), []);
        let foreign = [192, 0, 2, 1].into();
        let ports = [1, 2].map(|port| Port {
            port,
            address: Some(foreign),
        });
        assert_eq!(
            check(&ports),
            [Problem::new(
                Subject::Address,
                "192.0.2.1 is not an address of this host"
            )]
        );
    }
}
