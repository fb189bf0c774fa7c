//! A TLS connection to the agent of a host, over which a conversation goes.

use super::channel::{Channel, ChannelStream};
use nix::poll::PollFlags;
use std::collections::VecDeque;
use std::io::{self, ErrorKind::ConnectionReset, Read};
use std::os::fd::{AsFd, BorrowedFd};
use tls::Link;

/// A TLS connection to an agent as a channel. It has no stderr.
pub struct LinkChannel {
    link: Link,
    /// Received bytes that were not returned yet.
    plain: VecDeque<u8>,
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
    pub fn over(link: Link, plain: Vec<u8>) -> LinkChannel {
        LinkChannel {
            link: link.widen(),
            plain: plain.into(),
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
        if self.plain.is_empty() && self.open {
            self.open = match self.link.receive(&mut self.plain) {
                // the end of a killed agent: a close, or a reset if it had not read everything
                Err(error) if self.is_dialed && error.kind() == ConnectionReset => false,
                received => received?,
            };
        }
        let count = self.plain.read(buffer)?;
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
