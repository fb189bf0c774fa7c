//! The kernel's facts about each TCP socket: how much data it has transferred, when it last did,
//! and how much waits in it. They come over a netlink socket (sock_diag(7)); /proc lacks them.
//! Keep-alive probes carry no bytes, so they do not count. Also the names of Unix sockets, which
//! /proc/net/unix shows as text that a name can forge.

use crate::procfs;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt::ReceiveTimeout,
};
use nix::sys::time::TimeVal;
use record::Connection;
use std::collections::HashMap;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

// of the kernel's include/uapi/linux: netlink.h, sock_diag.h, inet_diag.h, unix_diag.h, tcp.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const INET_DIAG_INFO: u16 = 2;
const IPPROTO_TCP: u8 = 6;
const UNIX_DIAG_NAME: u16 = 0;
const UDIAG_SHOW_NAME: u32 = 1;
/// A set with TCP_LISTEN alone: sockets that listen.
const LISTENING: u32 = 1 << 10;
/// A set with TCP_TIME_WAIT alone: sockets that no process holds any more.
const LINGERING: u32 = 1 << 6;
/// Sizes of struct nlmsghdr, struct inet_diag_req_v2 and struct unix_diag_req.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const UNIX_REQUEST: usize = 24;
const TCP: Kind = Kind {
    message: 72,
    inode_at: 68,
    attribute: INET_DIAG_INFO,
};
const UNIX: Kind = Kind {
    message: 16,
    inode_at: 4,
    attribute: UNIX_DIAG_NAME,
};
/// Offsets in struct inet_diag_msg: the ports and addresses of both ends, in network byte order;
/// the bytes that the process has not read; the bytes that the peer has not acknowledged.
const FAMILY_AT: usize = 0;
const LOCAL_PORT_AT: usize = 4;
const PEER_PORT_AT: usize = 6;
const LOCAL_ADDRESS_AT: usize = 8;
const PEER_ADDRESS_AT: usize = 24;
const UNREAD_AT: usize = 56;
const QUEUED_AT: usize = 60;
/// The offsets of tcpi_last_data_sent, tcpi_last_data_recv and tcpi_last_ack_recv, all in
/// milliseconds, in struct tcp_info.
const SINCE_SENT_AT: usize = 44;
const SINCE_RECEIVED_AT: usize = 52;
const SINCE_ACKNOWLEDGED_AT: usize = 56;
/// tcpi_bytes_acked and tcpi_bytes_received, from Linux 4.1 on.
const ACKED_AT: usize = 120;
const RECEIVED_AT: usize = 128;
/// The offsets of tcpi_notsent_bytes, tcpi_data_segs_in and tcpi_data_segs_out, from Linux 4.6 on.
const UNSENT_AT: usize = 144;
/// The offset of tcpi_min_rtt, in microseconds, from Linux 4.9 on.
const ROUND_TRIP_AT: usize = 148;
const DATA_IN_AT: usize = 152;
const DATA_OUT_AT: usize = 156;
/// The offset of the ports and addresses in struct inet_diag_req_v2.
const ASKED_AT: usize = HEADER + 8;
/// INET_DIAG_NOCOOKIE: the ports and addresses suffice.
const ANY_COOKIE: [u8; 8] = [0xff; 8];
/// The kernel answers at once, in pieces of up to 32 KiB.
const ANSWER_BYTES: usize = 64 << 10;
const ANSWER_LIMIT: TimeVal = TimeVal::new(1, 0);

/// How the kernel describes a kind of sockets: the size of its struct inet_diag_msg or
/// unix_diag_msg, the offset of the inode there, and the wanted attribute, which follows it.
struct Kind {
    message: usize,
    inode_at: usize,
    attribute: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub bytes: u64,
    /// Segments with data. The counters have 32 bits and wrap around.
    pub segments: u32,
}

impl Traffic {
    pub fn since(self, then: Traffic) -> Traffic {
        Traffic {
            bytes: self.bytes.saturating_sub(then.bytes),
            segments: self.segments.wrapping_sub(then.segments),
        }
    }
}

/// The traffic of each TCP socket of this network namespace, by inode. `None` if the kernel does
/// not report it.
pub fn tcp_traffic() -> Option<HashMap<u64, Traffic>> {
    dump_all(!(LISTENING | LINGERING), traffic)
}

/// Like [`tcp_traffic`], of the network namespace of a process. Only root may enter another one,
/// such as a container's.
pub fn tcp_connections_of(pid: i32) -> Option<HashMap<u64, Connection>> {
    let dump = || dump_all(!(LISTENING | LINGERING), connection);
    let namespace = File::open(format!("/proc/{pid}/ns/net")).ok();
    let is_own = procfs::network_namespace(pid)
        == procfs::network_namespace(std::process::id().cast_signed());
    let namespace = namespace.filter(|_| !is_own);
    // in a separate thread, because that stays in the namespace
    let entered = |namespace: &File| setns(namespace, CloneFlags::CLONE_NEWNET).is_ok();
    std::thread::scope(|scope| {
        let dump = || namespace.as_ref().is_none_or(entered).then(dump)?;
        scope.spawn(dump).join().ok()?
    })
}

/// The port of each listening TCP socket of this network namespace, on any address, by inode. The
/// kernel goes through these sockets alone. For /proc/net/tcp it goes through the whole table of
/// connections, which grows with the memory of the host, however few there are.
pub fn listening_ports() -> HashMap<u64, u16> {
    dump_all(LISTENING, |message, _| port_at(message, LOCAL_PORT_AT)).unwrap_or_else(|| {
        let sockets = procfs::tcp_sockets().into_iter();
        let sockets = sockets.filter(procfs::TcpSocket::listens);
        sockets.map(|socket| (socket.inode, socket.port)).collect()
    })
}

/// How many bytes have arrived at a connected socket of this network namespace, whether they were
/// read or not. `None` if the kernel does not report it.
pub fn bytes_received(socket: &TcpStream) -> Option<u64> {
    let (local, peer) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
    let kernel = ask_kernel(&request_of(local, peer)?)?;
    let mut buffer = vec![0; ANSWER_BYTES];
    let count = recv(kernel.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
    let mut sockets = HashMap::new();
    read(
        &buffer[..count],
        &TCP,
        |_, info| u64_at(info, RECEIVED_AT),
        &mut sockets,
    )?;
    sockets.into_values().next()
}

/// The address of each listening Unix socket of this network namespace that has one, by inode. An
/// abstract name begins with a 0. `None` if the kernel does not report them: gVisor has no
/// sock_diag, and some kernels have none for Unix sockets.
pub fn listening_names() -> Option<HashMap<u64, Vec<u8>>> {
    let family = u8::try_from(nix::libc::AF_UNIX).ok()?;
    let mut text = header(UNIX_REQUEST, NLM_F_REQUEST_DUMP);
    text.extend([family, 0, 0, 0]);
    for field in [LISTENING, 0, UDIAG_SHOW_NAME] {
        text.extend(field.to_ne_bytes());
    }
    text.resize(HEADER + UNIX_REQUEST, 0);
    let mut names = HashMap::new();
    dump(&text, &UNIX, |_, name| Some(name.to_vec()), &mut names)?;
    Some(names)
}

fn dump_all<T>(states: u32, parse: Parse<T>) -> Option<HashMap<u64, T>> {
    let mut sockets = HashMap::new();
    for family in [nix::libc::AF_INET, nix::libc::AF_INET6] {
        let request = request(u8::try_from(family).ok()?, NLM_F_REQUEST_DUMP, states);
        dump(&request, &TCP, parse, &mut sockets)?;
    }
    Some(sockets)
}

/// Gets the description of a socket, and the wanted attribute: struct tcp_info or a name.
type Parse<T> = fn(&[u8], &[u8]) -> Option<T>;

fn dump<T>(
    request: &[u8],
    kind: &Kind,
    parse: Parse<T>,
    sockets: &mut HashMap<u64, T>,
) -> Option<()> {
    let kernel = ask_kernel(request)?;
    let mut buffer = vec![0; ANSWER_BYTES];
    loop {
        let count = recv(kernel.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
        match read(&buffer[..count], kind, parse, sockets)? {
            MessagesLeft::GoesOn if count > 0 => {}
            MessagesLeft::GoesOn => return None,
            MessagesLeft::IsWhole => return Some(()),
        }
    }
}

fn ask_kernel(request: &[u8]) -> Option<OwnedFd> {
    let kernel = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )
    .ok()?;
    setsockopt(&kernel, ReceiveTimeout, &ANSWER_LIMIT).ok()?;
    send(kernel.as_raw_fd(), request, MsgFlags::empty()).ok()?;
    Some(kernel)
}

/// struct nlmsghdr of a request with this size.
fn header(request: usize, flags: u16) -> Vec<u8> {
    let length = u32::try_from(HEADER + request).unwrap_or_default();
    let mut text = Vec::with_capacity(HEADER + request);
    text.extend(length.to_ne_bytes());
    text.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    text.extend(flags.to_ne_bytes());
    text.extend([0; 8]);
    text
}

fn request(family: u8, flags: u16, states: u32) -> Vec<u8> {
    let mut text = header(REQUEST, flags);
    text.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    text.extend(states.to_ne_bytes());
    text.resize(HEADER + REQUEST, 0);
    text
}

/// Asks for one socket, by its ports, addresses and, if IPv6 needs it, interface.
fn request_of(local: SocketAddr, peer: SocketAddr) -> Option<Vec<u8>> {
    let (family, interface) = match local {
        SocketAddr::V4(_) => (nix::libc::AF_INET, 0),
        SocketAddr::V6(local) => (nix::libc::AF_INET6, local.scope_id()),
    };
    let mut text = request(u8::try_from(family).ok()?, NLM_F_REQUEST, 0);
    text.truncate(ASKED_AT);
    text.extend(local.port().to_be_bytes());
    text.extend(peer.port().to_be_bytes());
    for end in [local, peer] {
        let mut address = [0; 16];
        match end.ip() {
            IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => address = ip.octets(),
        }
        text.extend(address);
    }
    text.extend(interface.to_ne_bytes());
    text.extend(ANY_COOKIE);
    Some(text)
}

#[derive(Debug, PartialEq, Eq)]
enum MessagesLeft {
    GoesOn,
    IsWhole,
}

/// `None` if the answer is an error or unknown.
fn read<T>(
    mut piece: &[u8],
    kind: &Kind,
    parse: Parse<T>,
    sockets: &mut HashMap<u64, T>,
) -> Option<MessagesLeft> {
    while piece.len() >= HEADER {
        let length = usize::try_from(u32_at(piece, 0)?).ok()?;
        let message = piece.get(..length).filter(|_| length >= HEADER)?;
        match u16_at(message, 4)? {
            NLMSG_DONE => return Some(MessagesLeft::IsWhole),
            NLMSG_ERROR => return None,
            _ => {}
        }
        let body = &message[HEADER..];
        if let Some(parsed) = attribute(body, kind).and_then(|found| parse(body, found)) {
            sockets.insert(u64::from(u32_at(body, kind.inode_at)?), parsed);
        }
        piece = piece.get(aligned(length)..).unwrap_or_default();
    }
    Some(MessagesLeft::GoesOn)
}

fn attribute<'a>(message: &'a [u8], kind: &Kind) -> Option<&'a [u8]> {
    let mut attributes = message.get(kind.message..)?;
    while attributes.len() >= 4 {
        let length = usize::from(u16_at(attributes, 0)?);
        let attribute = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == kind.attribute {
            return Some(attribute);
        }
        attributes = attributes.get(aligned(length)..).unwrap_or_default();
    }
    None
}

fn traffic(_: &[u8], info: &[u8]) -> Option<Traffic> {
    let (acked, received) = (u64_at(info, ACKED_AT)?, u64_at(info, RECEIVED_AT)?);
    let segments = u32_at(info, DATA_IN_AT)
        .zip(u32_at(info, DATA_OUT_AT))
        .map_or(0, |(received, sent)| received.wrapping_add(sent));
    let bytes = acked.saturating_add(received);
    Some(Traffic { bytes, segments })
}

fn connection(message: &[u8], info: &[u8]) -> Option<Connection> {
    let (segments_sent, segments_received) =
        (u32_at(info, DATA_OUT_AT)?, u32_at(info, DATA_IN_AT)?);
    let unsent_bytes = u32_at(info, UNSENT_AT)?;
    let queued = u32_at(message, QUEUED_AT)?;
    Some(Connection {
        local: address_at(message, LOCAL_ADDRESS_AT, LOCAL_PORT_AT)?,
        peer: address_at(message, PEER_ADDRESS_AT, PEER_PORT_AT)?,
        // without data, the kernel counts from the beginning of the connection
        since_sent_ms: u32_at(info, SINCE_SENT_AT).filter(|_| segments_sent > 0),
        since_received_ms: u32_at(info, SINCE_RECEIVED_AT).filter(|_| segments_received > 0),
        since_acknowledged_ms: u32_at(info, SINCE_ACKNOWLEDGED_AT)?,
        segments_sent,
        segments_received,
        // all bits are set while it is unknown
        round_trip_us: u32_at(info, ROUND_TRIP_AT).filter(|us| *us != u32::MAX),
        unacknowledged_bytes: queued.saturating_sub(unsent_bytes),
        unsent_bytes,
        unread_bytes: u32_at(message, UNREAD_AT)?,
    })
}

/// A mapped address (`::ffff:10.0.0.1`) becomes one of IPv4.
fn address_at(message: &[u8], address_at: usize, port_at: usize) -> Option<SocketAddr> {
    let is_ipv4 = i32::from(*message.get(FAMILY_AT)?) == nix::libc::AF_INET;
    let bytes = |count| message.get(address_at..address_at + count);
    let address = if is_ipv4 {
        IpAddr::from(<[u8; 4]>::try_from(bytes(4)?).ok()?)
    } else {
        IpAddr::from(<[u8; 16]>::try_from(bytes(16)?).ok()?).to_canonical()
    };
    Some(SocketAddr::new(address, self::port_at(message, port_at)?))
}

fn port_at(message: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(
        message.get(offset..offset + 2)?.try_into().ok()?,
    ))
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(
        bytes.get(offset..offset + 2)?.try_into().ok()?,
    ))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        bytes.get(offset..offset + 4)?.try_into().ok()?,
    ))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(
        bytes.get(offset..offset + 8)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn traffic_is_counted_also_within_a_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let moved = || {
            let sockets = tcp_traffic().expect("the kernel reports them");
            let inodes = procfs::socket_inodes(std::process::id().cast_signed());
            let moved = inodes.iter().filter_map(|inode| sockets.get(inode));
            moved.fold((0, 0), |(bytes, segments), traffic| {
                (
                    bytes + traffic.bytes,
                    segments + u64::from(traffic.segments),
                )
            })
        };
        let moved_bytes = || moved().0;
        let before = moved_bytes();
        client.write_all(&[0; 100_000]).unwrap();
        server.read_exact(&mut [0; 100_000]).unwrap();
        // acknowledged bytes are counted a moment later
        let begun = std::time::Instant::now();
        while moved_bytes() < before + 200_000 {
            assert!(begun.elapsed().as_secs() < 30, "{} {before}", moved_bytes());
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
    fn one_socket_is_found_by_its_addresses() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            assert_eq!(bytes_received(&client), Some(0));
            server.write_all(&[0; 1000]).unwrap();
            assert_eq!(bytes_received(&client), Some(1000));
            assert_eq!(bytes_received(&server), Some(0));
        }
    }

    #[test]
    fn what_listens_is_as_proc_has_it() {
        let (any, of_v6) = (
            TcpListener::bind("0.0.0.0:0").unwrap(),
            TcpListener::bind("[::1]:0").unwrap(),
        );
        let client = TcpStream::connect(of_v6.local_addr().unwrap()).unwrap();
        let ports = listening_ports();
        let inodes = procfs::socket_inodes(std::process::id().cast_signed());
        let mut own: Vec<u16> = ports
            .iter()
            .filter_map(|(inode, port)| inodes.contains(inode).then_some(*port))
            .collect();
        let mut expected = [&any, &of_v6].map(|socket| socket.local_addr().unwrap().port());
        own.sort_unstable();
        expected.sort_unstable();
        assert_eq!(own, expected);
        let in_proc = procfs::tcp_sockets();
        for (inode, port) in &ports {
            let is_same = |socket: &procfs::TcpSocket| {
                socket.listens() && (socket.inode, socket.port) == (*inode, *port)
            };
            assert!(!expected.contains(port) || in_proc.iter().any(is_same));
        }
        drop(client);
    }

    #[test]
    fn both_ends_of_a_connection_report_the_same() {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (client_address, server_address) =
            (client.local_addr().unwrap(), server.local_addr().unwrap());
        let ends = || {
            let sockets = tcp_connections_of(std::process::id().cast_signed())
                .expect("the kernel reports them");
            let from = |address| {
                let mut ends = sockets.values();
                ends.find(|end| end.local == address).cloned()
            };
            (from(client_address).unwrap(), from(server_address).unwrap())
        };
        let (client_end, server_end) = ends();
        assert_eq!(
            (client_end.peer, server_end.peer),
            (server_address, client_address)
        );
        assert_eq!(
            (client_end.since_sent_ms, server_end.since_received_ms),
            (None, None)
        );

        client.write_all(b"hello").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let (client_end, server_end) = ends();
        assert_eq!(
            (client_end.segments_sent, server_end.segments_received),
            (1, 1)
        );
        assert_eq!(
            (client_end.unacknowledged_bytes, server_end.unread_bytes),
            (0, 5)
        );
        let sent_ms = client_end.since_sent_ms.expect("it has sent");
        let received_ms = server_end.since_received_ms.expect("it has received");
        assert!((100..5000).contains(&sent_ms) && (100..5000).contains(&received_ms));
        assert_eq!(
            (client_end.since_received_ms, server_end.since_sent_ms),
            (None, None)
        );

        // until the client's buffer is full: bytes without room at the peer wait on this side
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 1 << 16]).is_ok() {}
        std::thread::sleep(std::time::Duration::from_millis(100));
        let (client_end, server_end) = ends();
        assert!(
            client_end.unsent_bytes > 0 && server_end.unread_bytes > 5,
            "{client_end:?} {server_end:?}"
        );
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
            (message(NLMSG_DONE, 16), Some(MessagesLeft::IsWhole)),
            (message(NLMSG_ERROR, 16), None),
            (message(SOCK_DIAG_BY_FAMILY, 16), Some(MessagesLeft::GoesOn)),
            (message(SOCK_DIAG_BY_FAMILY, 3), None),
            (message(SOCK_DIAG_BY_FAMILY, 99), None),
            (vec![0; 5], Some(MessagesLeft::GoesOn)),
        ];
        for (piece, expected) in table {
            let mut sockets = HashMap::new();
            assert_eq!(
                read(&piece, &TCP, traffic, &mut sockets),
                expected,
                "{piece:?}"
            );
            assert!(sockets.is_empty());
        }
    }
}
