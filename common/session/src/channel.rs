//! The interface of a connector: three non-blocking streams of a program on a host.

use nix::poll::PollFlags;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::process::ExitStatus;
use std::time::Duration;

/// How many bytes of a file are written at once where it has to be copied through memory.
pub const COPIED: usize = 64 << 10;

/// One of the two output streams of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelStream {
    Stdout,
    Stderr,
}

/// A connection to a program on a host: three streams that never block. `WouldBlock` means that the
/// caller must wait, 0 the end.
pub trait Channel: Send {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize>;
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Writes bytes that will be followed by more at once, so that a channel may delay them.
    fn write_beginning(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }
    /// Writes at most `length` bytes of a file from `offset` on; returns 0 at its end. A channel
    /// avoids the copy through memory if it can.
    fn write_file(&mut self, file: &File, offset: u64, length: u64) -> Result<usize, Unsent> {
        copy_file(self, file, offset, length)
    }
    /// Ends the program's stdin. `WouldBlock` while that cannot be sent yet.
    fn close_stdin(&mut self) -> io::Result<()>;
    /// The descriptors to wait for until stdout, stderr or stdin may continue.
    fn wait_for(&self, reading: [bool; 2], writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)>;
    /// How long the caller must wait before it writes; `None` if it may write now.
    fn rest(&self) -> Option<Duration> {
        None
    }
    /// The name of the user's program that carries the streams; it may write to stderr itself.
    fn engine(&self) -> Option<&str> {
        None
    }
    /// The exit status of the program that carries the streams, once they have ended.
    fn ended(&mut self) -> Option<ExitStatus> {
        None
    }
    /// What the end of the channel means, if it is not a login.
    fn end_means(&self) -> Option<&'static str> {
        None
    }
    /// Notes that the script will not run, so that nothing on the host needs time to end.
    fn give_up(&mut self) {}
    /// Whether every byte of a file is copied in any case, so that the caller should read it only
    /// once.
    fn is_direct(&self) -> bool {
        false
    }
    /// Called from time to time, to send keep-alives.
    fn tick(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes bytes of a file by reading them into memory first.
pub fn copy_file<C: Channel + ?Sized>(
    channel: &mut C,
    file: &File,
    offset: u64,
    length: u64,
) -> Result<usize, Unsent> {
    let mut buffer = [0; COPIED];
    let room = COPIED.min(usize::try_from(length).unwrap_or(usize::MAX));
    let count = file
        .read_at(&mut buffer[..room], offset)
        .map_err(Unsent::Unreadable)?;
    if count == 0 {
        Ok(0)
    } else {
        channel.write(&buffer[..count]).map_err(Unsent::Unwritable)
    }
}

/// Why nothing of a file was written.
pub enum Unsent {
    /// The file could not be read.
    Unreadable(io::Error),
    /// The channel could not be written.
    Unwritable(io::Error),
}

impl Unsent {
    pub fn into_error(self) -> io::Error {
        match self {
            Unsent::Unreadable(error) | Unsent::Unwritable(error) => error,
        }
    }
}
