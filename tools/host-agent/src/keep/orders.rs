//! Orders to a keeper on its own host, over a Unix socket in the job's folder that only its user
//! can open. Orders are requests: end, and kill. A connected process sees by the end of the
//! connection that the keeper is gone.

use super::folder::Folder;
use super::pipes::MessageReader;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use wire::{Event, Request, codec};

/// How many followers of a job a host may have. Each is a login of its user.
const AT_ONCE: usize = 64;

/// Whether a request is an order of a follower to the keeper.
pub fn is_order(request: &Request) -> bool {
    matches!(request, Request::End(_) | Request::Kill)
}

/// The keeper's side.
#[derive(Debug)]
pub struct Orders {
    listener: UnixListener,
    /// The connections: a number, the reader, and the descriptor for answers.
    connected: Vec<(u64, MessageReader, OwnedFd)>,
    count: u64,
}

impl Orders {
    pub fn listen(folder: &Folder) -> io::Result<Orders> {
        let (_folder, path) = folder.socket()?;
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Orders {
            listener,
            connected: Vec::new(),
            count: 0,
        })
    }

    /// What to wait for: the listener, and each connection with its number.
    pub fn wait_for(&self) -> (BorrowedFd<'_>, impl Iterator<Item = (u64, BorrowedFd<'_>)>) {
        (
            self.listener.as_fd(),
            self.connected
                .iter()
                .map(|(number, reader, _)| (*number, reader.as_fd())),
        )
    }

    /// Accepts new connections of the same user, up to the limit.
    pub fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let own = getsockopt(&stream, PeerCredentials)
                .is_ok_and(|peer| peer.uid() == geteuid().as_raw());
            if !own || self.connected.len() >= AT_ONCE {
                continue;
            }
            let stream = OwnedFd::from(stream);
            if let Ok(answers) = stream.try_clone()
                && let Ok(reader) = MessageReader::new(stream)
            {
                self.count += 1;
                self.connected.push((self.count, reader, answers));
            }
        }
    }

    /// The orders of a connection. Each is answered, by which the sender knows that it was taken.
    pub fn read(&mut self, number: u64) -> Vec<Request> {
        let mut requests = Vec::new();
        let Some(at) = self.connected.iter().position(|(one, ..)| *one == number) else {
            return requests;
        };
        let (_, reader, answers) = &mut self.connected[at];
        reader.read();
        let open = loop {
            match reader.next::<Request>() {
                Ok(Some(message)) => {
                    requests.push(message.head);
                    // it never blocks, like the reader; if nobody reads answers, none is needed
                    let _ = nix::unistd::write(&*answers, &codec::encode(&Event::Done, &[]));
                }
                Ok(None) => break !reader.has_ended(),
                Err(_) => break false,
            }
        };
        if !open {
            self.connected.remove(at);
        }
        requests
    }
}

/// Connects to the keeper of a folder; fails if there is none.
pub fn connect(folder: &Folder) -> io::Result<UnixStream> {
    let (_folder, path) = folder.socket()?;
    UnixStream::connect(path)
}
