//! What a connector gives: three streams to a program on a host, none of which ever blocks.

use nix::poll::PollFlags;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::process::ExitStatus;
use std::time::Duration;

/// What is written at once of a file that has to be copied through memory.
pub(crate) const COPIED: usize = 64 << 10;

/// One of the two streams that come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// What a connector gives: three streams that never block. `WouldBlock` says wait, 0 says end.
pub(crate) trait Channel: Send {
    fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> io::Result<usize>;
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Writes bytes of a file from `offset` on, at most `length`; 0 at its end. One that can do it
    /// without a copy does.
    fn write_file(&mut self, file: &File, offset: u64, length: u64) -> Result<usize, Unsent> {
        copy_file(self, file, offset, length)
    }
    /// `WouldBlock` while it cannot be sent yet.
    fn close_stdin(&mut self) -> io::Result<()>;
    /// What to wait for until one of these may go on: stdout, stderr, stdin.
    fn wait_for(&self, reading: [bool; 2], writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)>;
    /// For so long yet nothing is written.
    fn rest(&self) -> Option<Duration> {
        None
    }
    /// The program of the user's that carries it: what is said on stderr may be its own words.
    fn engine(&self) -> Option<&str> {
        None
    }
    /// How the program that carries it ended; its streams are at their end.
    fn ended(&mut self) -> Option<ExitStatus> {
        None
    }
    /// The script does not run and will not: nothing there needs time to end.
    fn give_up(&mut self) {}
    /// What is handed to it is copied in any case: a file is better read once, by the caller.
    fn is_direct(&self) -> bool {
        false
    }
    /// From time to time: keep-alives.
    fn tick(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Through memory.
pub(crate) fn copy_file<C: Channel + ?Sized>(
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
pub(crate) enum Unsent {
    /// The file's fault.
    Unreadable(io::Error),
    /// The channel's.
    Unwritable(io::Error),
}

impl Unsent {
    pub(crate) fn into_error(self) -> io::Error {
        match self {
            Unsent::Unreadable(error) | Unsent::Unwritable(error) => error,
        }
    }
}
