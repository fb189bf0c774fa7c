//! Messages over a descriptor that other processes share.

use nix::errno::Errno;
use serde::de::DeserializeOwned;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::codec::{Decoder, Message};

/// How much is read at once.
const READ_AT_ONCE: usize = 64 << 10;

/// Reads messages.
#[derive(Debug)]
pub struct MessageReader {
    descriptor: OwnedFd,
    decoder: Decoder,
    ended: bool,
}

impl MessageReader {
    /// Reads from a descriptor that other processes share, such as stdin: only when poll(2) has
    /// reported bytes. `rest` was read before.
    pub fn shared(descriptor: OwnedFd, rest: &[u8]) -> MessageReader {
        let mut decoder = Decoder::default();
        decoder.push(rest);
        MessageReader {
            descriptor,
            decoder,
            ended: false,
        }
    }

    /// Reads once.
    pub fn read(&mut self) {
        let mut buffer = vec![0; READ_AT_ONCE];
        match nix::unistd::read(&self.descriptor, &mut buffer) {
            Ok(0) => self.ended = true,
            Ok(count) => self.decoder.push(&buffer[..count]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => self.ended = true,
        }
    }

    /// The next complete message.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Message<T>>, String> {
        self.decoder.next_message()
    }

    /// Whether the stream has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

impl AsFd for MessageReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
