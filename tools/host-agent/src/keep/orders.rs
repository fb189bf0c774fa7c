//! Orders to a keeper on its own host, over a Unix socket in the job's folder that only its user
//! can open. Orders are requests: end, and kill. A connected process sees by the end of the
//! connection that the keeper is gone.

use super::folder::Folder;
use super::pipes::MessageReader;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use wire::Request;

/// How many followers of a job a host may have. Each is a login of its user.
const AT_ONCE: usize = 64;

/// The keeper's side.
#[derive(Debug)]
pub struct Orders {
    listener: UnixListener,
    /// The connections, by numbers.
    connected: BTreeMap<u64, MessageReader>,
    count: u64,
}

impl Orders {
    pub fn listen(folder: &Folder) -> io::Result<Orders> {
        let listener = folder.listen()?;
        listener.set_nonblocking(true)?;
        Ok(Orders {
            listener,
            connected: BTreeMap::new(),
            count: 0,
        })
    }

    /// What to wait for: the listener, and each connection with its number.
    pub fn wait_for(&self) -> (BorrowedFd<'_>, impl Iterator<Item = (u64, BorrowedFd<'_>)>) {
        let connected = self.connected.iter();
        (
            self.listener.as_fd(),
            connected.map(|(number, reader)| (*number, reader.as_fd())),
        )
    }

    /// Accepts new connections of the same user, up to the limit.
    pub fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let own = getsockopt(&stream, PeerCredentials)
                .is_ok_and(|peer| peer.uid() == geteuid().as_raw());
            if own
                && self.connected.len() < AT_ONCE
                && let Ok(reader) = MessageReader::new(stream.into())
            {
                self.count += 1;
                self.connected.insert(self.count, reader);
            }
        }
    }

    /// The orders of a connection.
    pub fn read(&mut self, number: u64) -> Vec<Request> {
        let Some(reader) = self.connected.get_mut(&number) else {
            return Vec::new();
        };
        reader.read();
        let (orders, open) = reader.messages();
        if !open {
            self.connected.remove(&number);
        }
        orders.into_iter().map(|order| order.head).collect()
    }
}
