//! The kernel's counters of each TCP socket: bytes that were sent and acknowledged, bytes received,
//! and the segments that carried them. The kernel reports them over a netlink socket
//! (sock_diag(7)), not in /proc. Probes that keep a connection alive carry no bytes, so they do not
//! count.

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt::ReceiveTimeout,
};
use nix::sys::time::TimeVal;
use std::collections::HashMap;
use std::os::fd::AsRawFd;

// of the kernel's include/uapi/linux: netlink.h, sock_diag.h, inet_diag.h, tcp.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const INET_DIAG_INFO: u16 = 2;
const IPPROTO_TCP: u8 = 6;
/// All states except TCP_LISTEN and TCP_TIME_WAIT: sockets that listen, and those that nobody holds
/// any longer.
const STATES: u32 = !(1 << 10 | 1 << 6);
/// Sizes of struct nlmsghdr, struct inet_diag_req_v2 and struct inet_diag_msg.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// The offset of the socket's inode in a message.
const INODE_AT: usize = 68;
/// The offsets of tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info, from Linux 4.1 on.
const ACKED_AT: usize = 120;
const RECEIVED_AT: usize = 128;
/// The offsets of tcpi_data_segs_in and tcpi_data_segs_out, from Linux 4.6 on.
const DATA_IN_AT: usize = 152;
const DATA_OUT_AT: usize = 156;
/// The kernel answers at once, in pieces of up to 32 KiB.
const ANSWER_BYTES: usize = 64 << 10;
const ANSWER_LIMIT: TimeVal = TimeVal::new(1, 0);

/// What a socket has moved in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub bytes: u64,
    /// Segments with data. The counters have 32 bits and wrap around.
    pub segments: u32,
}

impl Traffic {
    /// What was moved since then.
    pub fn since(self, then: Traffic) -> Traffic {
        Traffic {
            bytes: self.bytes.saturating_sub(then.bytes),
            segments: self.segments.wrapping_sub(then.segments),
        }
    }
}

/// What each TCP socket of this network namespace has moved, by inode. `None` if the kernel does
/// not tell.
pub fn tcp_traffic() -> Option<HashMap<u64, Traffic>> {
    let mut all = HashMap::new();
    for family in [nix::libc::AF_INET, nix::libc::AF_INET6] {
        dump(u8::try_from(family).ok()?, &mut all)?;
    }
    Some(all)
}

fn dump(family: u8, all: &mut HashMap<u64, Traffic>) -> Option<()> {
    let kernel = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )
    .ok()?;
    setsockopt(&kernel, ReceiveTimeout, &ANSWER_LIMIT).ok()?;
    send(kernel.as_raw_fd(), &request(family), MsgFlags::empty()).ok()?;
    let mut buffer = vec![0; ANSWER_BYTES];
    loop {
        let count = recv(kernel.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
        match read(&buffer[..count], all)? {
            Answer::GoesOn if count > 0 => {}
            Answer::GoesOn => return None,
            Answer::IsWhole => return Some(()),
        }
    }
}

fn request(family: u8) -> Vec<u8> {
    let length = u32::try_from(HEADER + REQUEST).unwrap_or_default();
    let mut text = Vec::with_capacity(HEADER + REQUEST);
    text.extend(length.to_ne_bytes());
    text.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    text.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    text.extend([0; 8]);
    text.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    text.extend(STATES.to_ne_bytes());
    text.resize(HEADER + REQUEST, 0);
    text
}

/// Whether more messages follow.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    GoesOn,
    IsWhole,
}

/// Reads a piece of the answer; `None` if it is an error or unknown.
fn read(mut piece: &[u8], all: &mut HashMap<u64, Traffic>) -> Option<Answer> {
    while piece.len() >= HEADER {
        let length = usize::try_from(u32_at(piece, 0)?).ok()?;
        let message = piece.get(..length).filter(|_| length >= HEADER)?;
        match u16_at(message, 4)? {
            NLMSG_DONE => return Some(Answer::IsWhole),
            NLMSG_ERROR => return None,
            _ => {}
        }
        if let Some((inode, traffic)) = socket_traffic(&message[HEADER..]) {
            all.insert(inode, traffic);
        }
        piece = piece.get(aligned(length)..).unwrap_or_default();
    }
    Some(Answer::GoesOn)
}

/// The inode of a socket, and what it has moved.
fn socket_traffic(message: &[u8]) -> Option<(u64, Traffic)> {
    let inode = u64::from(u32_at(message, INODE_AT)?);
    let mut attributes = message.get(MESSAGE..)?;
    while attributes.len() >= 4 {
        let length = usize::from(u16_at(attributes, 0)?);
        let attribute = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == INET_DIAG_INFO {
            let (acked, received) = (
                u64_at(attribute, ACKED_AT)?,
                u64_at(attribute, RECEIVED_AT)?,
            );
            let segments = u32_at(attribute, DATA_IN_AT)
                .zip(u32_at(attribute, DATA_OUT_AT))
                .map_or(0, |(received, sent)| received.wrapping_add(sent));
            let bytes = acked.saturating_add(received);
            return Some((inode, Traffic { bytes, segments }));
        }
        attributes = attributes.get(aligned(length)..).unwrap_or_default();
    }
    None
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_a_connection_moves_is_counted_also_to_the_host_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let moved = || {
            let all = tcp_traffic().expect("the kernel tells");
            let inodes = procfs::socket_inodes(std::process::id().cast_signed());
            let moved = inodes.iter().filter_map(|inode| all.get(inode));
            moved.fold((0, 0), |(bytes, segments), one| {
                (bytes + one.bytes, segments + u64::from(one.segments))
            })
        };
        let own = || moved().0;
        let before = own();
        client.write_all(&[0; 100_000]).unwrap();
        server.read_exact(&mut [0; 100_000]).unwrap();
        // what the other side has acknowledged is counted a moment later
        let begun = std::time::Instant::now();
        while own() < before + 200_000 {
            assert!(begun.elapsed().as_secs() < 30, "{} {before}", own());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let (bytes, segments) = moved();
        assert!(
            segments > 1 && bytes / segments > 1000,
            "{bytes} {segments}"
        );
        for _ in 0..100 {
            client.write_all(b"ask").unwrap();
            server.read_exact(&mut [0; 3]).unwrap();
        }
        let (more_bytes, more_segments) = moved();
        let mean = (more_bytes - bytes) / (more_segments - segments);
        assert!(mean < 10, "small messages are in small segments: {mean}");
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let message = |kind: u16, length: u32| {
            let mut text = length.to_ne_bytes().to_vec();
            text.extend(kind.to_ne_bytes());
            text.resize(HEADER, 0);
            text
        };
        let table = [
            (message(NLMSG_DONE, 16), Some(Answer::IsWhole)),
            (message(NLMSG_ERROR, 16), None),
            (message(SOCK_DIAG_BY_FAMILY, 16), Some(Answer::GoesOn)),
            (message(SOCK_DIAG_BY_FAMILY, 3), None),
            (message(SOCK_DIAG_BY_FAMILY, 99), None),
            (vec![0; 5], Some(Answer::GoesOn)),
        ];
        for (piece, expected) in table {
            let mut all = HashMap::new();
            assert_eq!(read(&piece, &mut all), expected, "{piece:?}");
            assert!(all.is_empty());
        }
    }
}
