//! Asks the process that listens on an abstract Unix socket. Any user's process may have bound the
//! name, and may neither accept nor answer.

use crate::netlink;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, UnixCredentials, connect, getsockopt, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub struct SocketAnswer {
    /// The holder according to the kernel, which cannot be forged.
    pub peer: UnixCredentials,
    pub bytes: Vec<u8>,
    /// Whether the limit was over before the end.
    pub is_late: bool,
}

/// Asks the holder of this name, and reads at most `most` bytes of the answer, all within the
/// limit; `None` if the holder does not accept connections and its queue is full.
pub fn ask(
    name: &str,
    question: &[u8],
    limit: Duration,
    most: usize,
) -> io::Result<Option<SocketAnswer>> {
    let until = Instant::now() + limit;
    let address = UnixAddr::new_abstract(name.as_bytes())?;
    let Some(stream) = connect_until(&address, until)? else {
        return Ok(None);
    };
    let peer = getsockopt(&stream, sockopt::PeerCredentials)?;
    let mut stream = UnixStream::from(stream);
    // a holder that answers without a question may have hung up already
    let _ = stream.write_all(question);
    let _ = stream.shutdown(Shutdown::Write);
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let mut is_late = false;
    while bytes.len() < most {
        match read_within(&mut stream, until, &mut buffer) {
            Ok(Some(count)) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
            read => {
                is_late = matches!(read, Ok(None));
                break;
            }
        }
    }
    Ok(Some(SocketAnswer {
        peer,
        bytes,
        is_late,
    }))
}

/// Reads once, as soon as bytes arrive; 0 bytes are the end of the stream, and `None` means that
/// nothing arrived in time.
pub fn read_within(
    stream: &mut UnixStream,
    until: Instant,
    buffer: &mut [u8],
) -> io::Result<Option<usize>> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(buffer) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                ) => {}
            read => return read.map(Some),
        }
    }
}

/// Whether the other side has closed more than the half on which it sends.
pub fn has_hung_up(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO).is_ok() && fds[0].any().unwrap_or(true)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSocket {
    pub name: String,
    /// Among the descriptors of a process, it shows who has bound the name.
    pub inode: u64,
}

impl NamedSocket {
    fn is_ours(&self) -> bool {
        self.name.starts_with("dgl-tools/")
    }
}

/// The abstract sockets of dgl-tools in this network namespace, of any user.
pub fn all() -> Vec<NamedSocket> {
    let Some(names) = netlink::listening_names() else {
        return all_in_proc();
    };
    let names = names.into_iter().filter_map(|(inode, name)| {
        let name = String::from_utf8(name.strip_prefix(b"\0")?.to_vec()).ok()?;
        Some(NamedSocket { name, inode })
    });
    names.filter(NamedSocket::is_ours).collect()
}

/// For kernels without sock_diag for Unix sockets. Another user can add any line by a socket with a
/// newline in its name, also a line with the inode of somebody's socket. The credentials of the
/// peer show whose answer it is, so others can only delay a request.
fn all_in_proc() -> Vec<NamedSocket> {
    // the name of a socket may be any bytes
    let sockets = std::fs::read("/proc/net/unix").unwrap_or_default();
    let text = String::from_utf8_lossy(&sockets);
    let sockets = text.lines().filter_map(parse);
    sockets.filter(NamedSocket::is_ours).collect()
}

/// Parses `NUMBER: REFERENCES PROTOCOL FLAGS TYPE STATE INODE @NAME`.
fn parse(line: &str) -> Option<NamedSocket> {
    let (head, name) = line.split_once(" @")?;
    Some(NamedSocket {
        name: name.to_owned(),
        inode: head.rsplit(' ').next()?.parse().ok()?,
    })
}

/// Connects to any Unix socket. `None` if the holder's queue is full until this time.
pub fn connect_until(address: &UnixAddr, until: Instant) -> nix::Result<Option<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let client = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // a timeout of 0 would be no limit
        let micros = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1);
        setsockopt(
            &client,
            sockopt::SendTimeout,
            &TimeVal::microseconds(micros),
        )?;
        match connect(client.as_raw_fd(), address) {
            Ok(()) => return Ok(Some(client)),
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) if !left.is_zero() => {}
            Err(Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// A public id for one purpose, which can only be derived from the token.
pub fn id_of(purpose: &str, token: &str) -> String {
    let key = blake3::derive_key(purpose, token.as_bytes());
    record::hex::encode(&key[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    /// The name of each socket, as any user may choose it.
    fn listening(names: &[&[u8]]) -> Vec<UnixListener> {
        let bind = |name: &&[u8]| {
            let address = SocketAddr::from_abstract_name(name).unwrap();
            UnixListener::bind_addr(&address).unwrap()
        };
        names.iter().map(bind).collect()
    }

    fn inode(socket: &UnixListener) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        std::fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn a_name_is_one_socket_whatever_bytes_it_has() {
        let name = format!("dgl-tools/test/{}", std::process::id());
        let forged = format!("x\n1234567 @{name}");
        let not_text = [name.as_bytes(), b"\xff"].concat();
        let sockets = listening(&[name.as_bytes(), forged.as_bytes(), &not_text]);
        // an accepted connection has the name of its socket
        let _client = connect_until(
            &UnixAddr::new_abstract(name.as_bytes()).unwrap(),
            Instant::now() + Duration::from_secs(10),
        );
        let _accepted = sockets[0].accept().unwrap();
        let found: Vec<NamedSocket> = all()
            .into_iter()
            .filter(|socket| socket.name.contains(&name))
            .collect();
        let inode = inode(&sockets[0]);
        assert_eq!(found, [NamedSocket { name, inode }]);
    }

    #[test]
    fn names_are_read_from_proc_if_the_kernel_reports_no_others() {
        let name = format!("dgl-tools/proc/{}", std::process::id());
        let sockets = listening(&[name.as_bytes()]);
        let inode = inode(&sockets[0]);
        assert!(all_in_proc().contains(&NamedSocket { name, inode }));
        const SOCKET: &str = "0000000000000000: 00000002 00000000 00010000 0001 01 21077";
        for other in ["", " /run/x", " /run/x/@dgl-tools/job/a"] {
            assert_eq!(parse(&format!("{SOCKET}{other}")), None, "{other}");
        }
    }
}
