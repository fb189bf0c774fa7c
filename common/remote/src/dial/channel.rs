//! The connection of an agent that has dialed in, as a channel.

use super::engine::Engine;
use nix::poll::PollFlags;
use session::TlsChannel;
use session::channel::{Channel, ChannelStream};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use tls::TlsConnection;
use wire::codec;
use wire::dial::DialMessage;

/// At its end, the output of the command that started the agent serves as stderr, because it may
/// have the reason.
pub struct DialedChannel {
    tls: TlsChannel,
    engine: Arc<Engine>,
    /// Written by the command before, so it does not explain the end.
    written_before: u64,
    is_explained: bool,
}

impl DialedChannel {
    pub fn open(
        mut connection: TlsConnection,
        token: &str,
        engine: Arc<Engine>,
    ) -> io::Result<DialedChannel> {
        connection.allow_silence()?;
        let token = token.to_owned();
        connection.send(&codec::encode(&DialMessage::Serve { token }, &[]))?;
        Ok(DialedChannel {
            tls: TlsChannel::dialed(connection),
            written_before: engine.written_bytes(),
            engine,
            is_explained: false,
        })
    }
}

impl Channel for DialedChannel {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        match stream {
            ChannelStream::Stdout => self.tls.read(stream, buffer),
            ChannelStream::Stderr if self.tls.is_open() => Err(io::ErrorKind::WouldBlock.into()),
            ChannelStream::Stderr if std::mem::replace(&mut self.is_explained, true) => Ok(0),
            ChannelStream::Stderr => {
                let words = self.engine.written_since(self.written_before);
                let count = words.len().min(buffer.len());
                buffer[..count].copy_from_slice(&words[words.len() - count..]);
                Ok(count)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tls.write(bytes)
    }

    fn write_beginning(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tls.write_beginning(bytes)
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        self.tls.close_stdin()
    }

    fn poll_fds(&self, reading: [bool; 2], writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.tls.poll_fds(reading, writing)
    }

    fn command(&self) -> Option<&str> {
        Some(self.engine.name())
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.engine
            .status()
            .map(|code| ExitStatus::from_raw(code << 8))
    }

    fn meaning_of_end(&self) -> Option<&'static str> {
        self.tls.meaning_of_end()
    }

    fn is_direct(&self) -> bool {
        true
    }
}
