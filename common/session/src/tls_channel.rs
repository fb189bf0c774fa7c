//! A TLS connection to an agent, as a channel.

use super::channel::{Channel, ChannelStream};
use nix::poll::PollFlags;
use std::collections::VecDeque;
use std::io::{self, ErrorKind::ConnectionReset, Read};
use std::os::fd::{AsFd, BorrowedFd};
use tls::TlsConnection;

/// It has no stderr.
pub struct TlsChannel {
    connection: TlsConnection,
    received: VecDeque<u8>,
    is_open: bool,
    is_dialed: bool,
}

impl TlsChannel {
    /// The agent has connected to this side.
    pub fn dialed(connection: TlsConnection) -> TlsChannel {
        TlsChannel {
            is_dialed: true,
            ..TlsChannel::new(connection, Vec::new())
        }
    }

    /// Some bytes were already received.
    pub fn new(connection: TlsConnection, received: Vec<u8>) -> TlsChannel {
        TlsChannel {
            connection: connection.with_large_buffer(),
            received: received.into(),
            is_open: true,
            is_dialed: false,
        }
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }
}

impl Channel for TlsChannel {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        if stream == ChannelStream::Stderr {
            return Ok(0);
        }
        // write is only called with new bytes, so this also sends queued ones
        self.connection.flush()?;
        if self.received.is_empty() && self.is_open {
            self.is_open = match self.connection.receive(&mut self.received) {
                // a killed agent that had not read everything
                Err(error) if self.is_dialed && error.kind() == ConnectionReset => false,
                may_continue => may_continue?,
            };
        }
        let count = self.received.read(buffer)?;
        if count == 0 && self.is_open {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.write_some(bytes)
    }

    fn write_beginning(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.write_beginning(bytes)
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        self.connection.close()
    }

    fn poll_fds(&self, _reading: [bool; 2], _writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        // the connection knows whether it has queued bytes
        vec![(self.connection.as_fd(), self.connection.poll_flags())]
    }

    fn meaning_of_end(&self) -> Option<&'static str> {
        self.is_dialed
            .then_some("its agent had dialed in, but the connection was lost")
    }

    fn is_direct(&self) -> bool {
        true
    }
}
