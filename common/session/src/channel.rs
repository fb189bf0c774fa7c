//! The interface of a connector.

use nix::poll::PollFlags;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::process::ExitStatus;
use std::time::Duration;

/// How many bytes of a file go through memory at once.
pub const COPIED: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelStream {
    Stdout,
    Stderr,
}

/// The three non-blocking streams of a program on a host. `WouldBlock` means that the caller must
/// wait, 0 the end.
pub trait Channel: Send {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize>;
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// More bytes follow at once, so a channel may delay these.
    fn write_beginning(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }
    /// Writes at most `length` bytes of a file from `offset`, without a copy through memory if it
    /// can; 0 at the end of the file.
    fn write_file(&mut self, file: &File, offset: u64, length: u64) -> Result<usize, Unsent> {
        copy_file(self, file, offset, length)
    }
    /// `WouldBlock` until the end is sent.
    fn close_stdin(&mut self) -> io::Result<()>;
    /// What to wait for until a stream may continue.
    fn poll_fds(&self, reading: [bool; 2], writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)>;
    /// How long the caller must wait before it writes.
    fn write_pause(&self) -> Option<Duration> {
        None
    }
    /// The user's command that carries the streams; it may write to stderr itself.
    fn command(&self) -> Option<&str> {
        None
    }
    /// The exit status of the program that carries the streams, after their end.
    fn exit_status(&mut self) -> Option<ExitStatus> {
        None
    }
    /// What it means when a channel other than a login closes.
    fn meaning_of_end(&self) -> Option<&'static str> {
        None
    }
    /// No agent will run, so nothing on the host needs time to end.
    fn give_up(&mut self) {}
    /// If every byte of a file is copied in any case, the caller should read it only once.
    fn is_direct(&self) -> bool {
        false
    }
    fn keep_alive(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// A clock that continues while the machine sleeps; simulated channels have one of their own.
    fn uptime(&self) -> Duration {
        record::term::uptime()
    }
}

pub fn copy_file<C: Channel + ?Sized>(
    channel: &mut C,
    file: &File,
    offset: u64,
    length: u64,
) -> Result<usize, Unsent> {
    let mut buffer = [0; COPIED];
    let room = COPIED.min(usize::try_from(length).unwrap_or(usize::MAX));
    match file.read_at(&mut buffer[..room], offset) {
        Ok(0) => Ok(0),
        Ok(count) => channel.write(&buffer[..count]).map_err(Unsent::Unwritable),
        Err(error) => Err(Unsent::Unreadable(error)),
    }
}

pub enum Unsent {
    Unreadable(io::Error),
    Unwritable(io::Error),
}

impl Unsent {
    pub fn into_error(self) -> io::Error {
        match self {
            Unsent::Unreadable(error) | Unsent::Unwritable(error) => error,
        }
    }
}
