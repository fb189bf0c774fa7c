//! Messages over descriptors that never block.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::codec::{Decoder, Malformed, Message};

/// The most that may wait for another process that takes nothing: the launcher's host, or the
/// supervisor, which reads all the time. What waits is events of some KB a second.
const MAX_WAITING: usize = 16 << 20;
/// How much is read at once.
const READ_AT_ONCE: usize = 64 << 10;

/// Makes reads and writes of a descriptor return at once. Only for descriptors that nobody else
/// reads or writes.
fn never_block(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_truncate(fcntl(descriptor, FcntlArg::F_GETFL)?);
    fcntl(descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Reads messages.
#[derive(Debug)]
pub struct MessageReader {
    descriptor: OwnedFd,
    decoder: Decoder,
    ended: bool,
}

impl MessageReader {
    pub fn new(descriptor: OwnedFd) -> io::Result<MessageReader> {
        never_block(descriptor.as_fd())?;
        Ok(MessageReader::shared(descriptor, &[]))
    }

    /// Reads from a descriptor that others share, such as stdin: only when poll(2) has reported
    /// bytes. `rest` was read of it before.
    pub fn shared(descriptor: OwnedFd, rest: &[u8]) -> MessageReader {
        let mut decoder = Decoder::default();
        decoder.push(rest);
        MessageReader {
            descriptor,
            decoder,
            ended: false,
        }
    }

    /// Reads once what is there.
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
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Message<T>>, Malformed> {
        self.decoder.next_message()
    }

    /// All complete messages, and whether more may come.
    pub fn messages<T: DeserializeOwned>(&mut self) -> (Vec<Message<T>>, bool) {
        let (messages, open) = self.decoder.messages();
        (messages, open && !self.ended)
    }

    /// Whether nothing more comes.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

impl AsFd for MessageReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Writes messages. What cannot be written yet waits; once nobody reads any longer, or too much
/// waits, it is dropped, and the other side sees the end.
#[derive(Debug)]
pub struct MessageWriter {
    descriptor: Option<OwnedFd>,
    waiting: Vec<u8>,
    written: usize,
}

impl MessageWriter {
    pub fn new(descriptor: OwnedFd) -> io::Result<MessageWriter> {
        never_block(descriptor.as_fd())?;
        Ok(MessageWriter {
            descriptor: Some(descriptor),
            waiting: Vec::new(),
            written: 0,
        })
    }

    /// Queues bytes, and writes what can be written now.
    pub fn send(&mut self, bytes: &[u8]) {
        if self.descriptor.is_some() {
            self.waiting.extend_from_slice(bytes);
            self.write();
            if self.waiting() > MAX_WAITING {
                self.close();
            }
        }
    }

    /// Writes what can be written now.
    pub fn write(&mut self) {
        while let Some(descriptor) = self.descriptor.as_ref().filter(|_| self.has_waiting()) {
            match nix::unistd::write(descriptor, &self.waiting[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => self.close(),
            }
        }
        self.waiting.clear();
        self.written = 0;
    }

    /// How many bytes wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len() - self.written
    }

    fn has_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// Closes the descriptor, so that the other side sees the end.
    pub fn close(&mut self) {
        self.descriptor = None;
        self.waiting.clear();
        self.written = 0;
    }

    /// The descriptor to wait for, if anything is to be written.
    pub fn wants(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor
            .as_ref()
            .filter(|_| self.has_waiting())
            .map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_reader_that_takes_nothing_is_given_up() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut writer = MessageWriter::new(ours.into()).unwrap();
        let message = vec![b'x'; 1 << 20];
        for _ in 0..100 {
            writer.send(&message);
            assert!(writer.waiting() <= MAX_WAITING);
        }
        assert!(writer.wants().is_none());
        // it sees the end behind what had been written
        theirs.read_to_end(&mut Vec::new()).unwrap();
    }
}
