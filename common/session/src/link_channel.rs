//! A TLS connection to the agent of a host, over which a conversation goes.

use super::channel::{Channel, Stream};
use nix::poll::PollFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use tls::Link;

/// A TLS connection to an agent as a channel. It has no stderr.
pub struct LinkChannel {
    link: Link,
    /// Bytes that came and were not returned yet, from `given` on.
    plain: Vec<u8>,
    given: usize,
    /// Whether more may come.
    open: bool,
}

impl LinkChannel {
    /// Takes over a connection from which something was read already.
    pub fn over(mut link: Link, plain: Vec<u8>) -> LinkChannel {
        link.widen();
        LinkChannel {
            link,
            plain,
            given: 0,
            open: true,
        }
    }

    /// Nothing more comes, because the other side is gone.
    pub fn end(&mut self) {
        self.open = false;
    }

    /// Whether more may come.
    pub fn is_open(&self) -> bool {
        self.open
    }
}

impl Channel for LinkChannel {
    fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> io::Result<usize> {
        if stream == Stream::Stderr {
            return Ok(0);
        }
        // also sends what waits, because nobody calls write while there is nothing new to send
        self.link.flush()?;
        if self.given == self.plain.len() && self.open {
            self.plain.clear();
            self.given = 0;
            self.open = self.link.receive(&mut self.plain)?;
        }
        let there = &self.plain[self.given..];
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        self.given += count;
        if count == 0 && self.open {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link.write_some(bytes)
    }

    fn write_beginning(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link.write_beginning(bytes)
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        self.link.close()
    }

    fn wait_for(&self, _reading: [bool; 2], _writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        // the connection itself knows what waits to be sent
        vec![(self.link.as_fd(), self.link.wait_for())]
    }

    fn is_direct(&self) -> bool {
        true
    }
}
