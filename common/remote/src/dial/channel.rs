//! The connection of an agent that has dialed in, as a connector's channel.

use super::engine::Engine;
use nix::poll::PollFlags;
use session::LinkChannel;
use session::channel::{Channel, ChannelStream};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use tls::Link;
use wire::codec;
use wire::dial::DialMessage;

/// The channel of a session with the agent. At its end, the output of the command that started the
/// agent serves as stderr, because it may have the reason.
pub(crate) struct Dialed {
    direct: LinkChannel,
    engine: Arc<Engine>,
    /// How many bytes the command had written when the conversation began; they do not explain its
    /// end.
    written_before: u64,
    explained: bool,
}

impl Dialed {
    /// Asks the agent to serve under a token.
    pub(crate) fn begin(mut link: Link, token: &str, engine: Arc<Engine>) -> io::Result<Dialed> {
        link.be_patient()?;
        let token = token.to_owned();
        link.send(&codec::encode(&DialMessage::Serve { token }, &[]))?;
        Ok(Dialed {
            direct: LinkChannel::dialed(link),
            written_before: engine.written_bytes(),
            engine,
            explained: false,
        })
    }
}

impl Channel for Dialed {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        match stream {
            ChannelStream::Stdout => self.direct.read(stream, buffer),
            ChannelStream::Stderr if self.direct.is_open() => Err(io::ErrorKind::WouldBlock.into()),
            ChannelStream::Stderr if std::mem::replace(&mut self.explained, true) => Ok(0),
            ChannelStream::Stderr => {
                let words = self.engine.written_since(self.written_before);
                let count = words.len().min(buffer.len());
                buffer[..count].copy_from_slice(&words[words.len() - count..]);
                Ok(count)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.direct.write(bytes)
    }

    fn write_beginning(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.direct.write_beginning(bytes)
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        self.direct.close_stdin()
    }

    fn wait_for(&self, reading: [bool; 2], writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        self.direct.wait_for(reading, writing)
    }

    fn engine(&self) -> Option<&str> {
        Some(self.engine.name())
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.engine
            .status()
            .map(|code| ExitStatus::from_raw(code << 8))
    }

    fn end_means(&self) -> Option<&'static str> {
        self.direct.end_means()
    }

    fn is_direct(&self) -> bool {
        true
    }
}
