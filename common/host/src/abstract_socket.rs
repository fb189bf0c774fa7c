//! Asks the process that listens on an abstract Unix socket. Any user's process may have bound the
//! name, and may neither accept nor answer.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, UnixCredentials, connect, getsockopt, setsockopt,
    socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The answer of the holder of a socket.
pub struct SocketAnswer {
    /// The holder according to the kernel, which cannot be forged.
    pub peer: UnixCredentials,
    pub bytes: Vec<u8>,
    /// Whether the limit was over before the end of the answer.
    pub is_late: bool,
}

/// Sends a question to the holder of this name, and reads at most `most` bytes of the answer, all
/// within the limit; `None` if the holder does not accept connections and its queue is full.
pub fn ask(
    name: &str,
    question: &[u8],
    limit: Duration,
    most: usize,
) -> io::Result<Option<SocketAnswer>> {
    let until = Instant::now() + limit;
    let Some(stream) = connect_until(name, until)? else {
        return Ok(None);
    };
    let peer = getsockopt(&stream, sockopt::PeerCredentials)?;
    let mut stream = UnixStream::from(stream);
    // a holder that answers without a question may have closed the connection already
    let _ = stream.write_all(question);
    let _ = stream.shutdown(Shutdown::Write);
    let (mut bytes, mut buffer, mut is_late) = (Vec::new(), [0; 4096], false);
    while bytes.len() < most {
        let left = until.saturating_duration_since(Instant::now());
        is_late = left.is_zero();
        if is_late {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                _ => break,
            },
        }
    }
    Ok(Some(SocketAnswer {
        peer,
        bytes,
        is_late,
    }))
}

fn connect_until(name: &str, until: Instant) -> nix::Result<Option<OwnedFd>> {
    let address = UnixAddr::new_abstract(name.as_bytes())?;
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
        match connect(client.as_raw_fd(), &address) {
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
