//! A TLS connection to the agent of a host, over which a conversation goes.

use super::channel::{Channel, ChannelStream};
use nix::poll::PollFlags;
use std::io::{self, ErrorKind::ConnectionReset};
use std::os::fd::{AsFd, BorrowedFd};
use tls::Link;

/// A TLS connection to an agent as a channel. It has no stderr.
pub struct LinkChannel {
    link: Link,
    /// Received bytes; those from `given` on were not returned yet.
    plain: Vec<u8>,
    given: usize,
    /// Whether more bytes may arrive.
    open: bool,
    /// Whether the agent at the other end has connected to this side.
    is_dialed: bool,
}

impl LinkChannel {
    /// The connection of an agent that has connected to this side.
    pub fn dialed(link: Link) -> LinkChannel {
        LinkChannel {
            is_dialed: true,
            ..LinkChannel::over(link, Vec::new())
        }
    }

    /// Continues a connection from which `plain` was read already.
    pub fn over(mut link: Link, plain: Vec<u8>) -> LinkChannel {
        link.widen();
        LinkChannel {
            link,
            plain,
            given: 0,
            open: true,
            is_dialed: false,
        }
    }

    /// Whether more bytes may arrive.
    pub fn is_open(&self) -> bool {
        self.open
    }
}

impl Channel for LinkChannel {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        if stream == ChannelStream::Stderr {
            return Ok(0);
        }
        // also sends queued bytes, because write is only called with new ones
        self.link.flush()?;
        if self.given == self.plain.len() && self.open {
            self.plain.clear();
            self.given = 0;
            self.open = match self.link.receive(&mut self.plain) {
                // the end of a killed agent: a close, or a reset if it had not read everything
                Err(error) if self.is_dialed && error.kind() == ConnectionReset => false,
                received => received?,
            };
        }
        let unread = &self.plain[self.given..];
        let count = unread.len().min(buffer.len());
        buffer[..count].copy_from_slice(&unread[..count]);
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
        // the link knows whether it has queued bytes
        vec![(self.link.as_fd(), self.link.wait_for())]
    }

    fn end_means(&self) -> Option<&'static str> {
        self.is_dialed
            .then_some("its agent had dialed in, but the connection was lost")
    }

    fn is_direct(&self) -> bool {
        true
    }
}
