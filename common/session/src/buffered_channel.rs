//! A channel with a queue of bytes to send, the last lines of stderr, and why it ended.

use super::channel::{Channel, ChannelStream, Unsent};
use super::reasons;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Enough for the last lines of stderr.
pub const STDERR_KEPT: usize = 8 << 10;

/// The exit status of `ssh` whose connection failed.
pub const SSH_FAILED: i32 = 255;

pub enum Body {
    Bytes(Vec<u8>),
    /// Exactly `length` bytes of a file, without a copy if the channel can do that. If the file
    /// ends earlier, zeros replace the rest, and [`crate::Session::source_fault`] reports it.
    File {
        file: File,
        offset: u64,
        length: usize,
    },
}

impl Body {
    pub fn length(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::File { length, .. } => *length,
        }
    }
}

pub struct BufferedChannel {
    pub channel: Box<dyn Channel>,
    outbox: VecDeque<Body>,
    /// How much of the first entry was sent.
    sent: usize,
    /// How many bytes of the outbox wait.
    pending: u64,
    source_fault: Option<io::Error>,
    is_closing: bool,
    stderr: Vec<u8>,
    /// Whether more may arrive on stdout and stderr.
    open: [bool; 2],
    last_received: Instant,
    pub buffer: Vec<u8>,
    /// Large buffers for reuse: new ones cost page faults.
    pub spare: Vec<Vec<u8>>,
}

const SPARE: usize = 4;
const SPARE_BYTES: usize = 256 << 10;

impl BufferedChannel {
    pub fn new(channel: Box<dyn Channel>) -> BufferedChannel {
        BufferedChannel {
            channel,
            outbox: VecDeque::new(),
            sent: 0,
            pending: 0,
            source_fault: None,
            is_closing: false,
            stderr: Vec::new(),
            open: [true, true],
            last_received: Instant::now(),
            buffer: vec![0; 64 << 10],
            spare: Vec::new(),
        }
    }

    pub fn send(&mut self, body: Body) {
        if body.length() > 0 {
            self.pending += body.length() as u64;
            self.outbox.push_back(body);
        }
    }

    pub fn source_fault(&mut self) -> Option<io::Error> {
        self.source_fault.take()
    }

    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Ends the program's stdin once everything is sent.
    pub fn close_stdin(&mut self) {
        self.is_closing = true;
    }

    /// On stdout.
    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    pub fn is_closed(&self) -> bool {
        self.open == [false, false]
    }

    pub fn last_words(&self) -> String {
        last_words(&self.stderr)
    }

    /// The last [`STDERR_KEPT`] bytes.
    pub fn stderr(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }

    pub fn forget_stderr(&mut self) {
        self.stderr.clear();
    }

    /// Reads once. Returns how many bytes of stdout are in `buffer`, 0 if something else happened,
    /// `None` if there is nothing to read.
    pub fn receive(&mut self) -> io::Result<Option<usize>> {
        let mut progress = None;
        for stream in [ChannelStream::Stderr, ChannelStream::Stdout] {
            if !self.open[stream as usize] {
                continue;
            }
            match self.channel.read(stream, &mut self.buffer) {
                Ok(0) => {
                    self.open[stream as usize] = false;
                    progress = Some(0);
                }
                Ok(count) if stream == ChannelStream::Stdout => {
                    // stderr does not count, because the connector may have written it
                    self.last_received = Instant::now();
                    return Ok(Some(count));
                }
                Ok(count) => {
                    progress = Some(0);
                    keep_tail(&mut self.stderr, &self.buffer[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => progress = Some(0),
                Err(error) => return Err(error),
            }
        }
        Ok(progress)
    }

    /// Why the connection ended, if no call has failed.
    pub fn why_ended(&mut self) -> String {
        let Some(meaning) = self.channel.meaning_of_end() else {
            return self.why_lost("the connection ended unexpectedly");
        };
        match (self.command_stderr(), self.channel.exit_status()) {
            (stderr_tail, _) if !stderr_tail.is_empty() => format!("{meaning}; {stderr_tail}"),
            (_, Some(status)) => {
                let name = self.channel.command().unwrap_or("the command");
                format!("{meaning}; {name} has ended, {status}")
            }
            (_, None) => meaning.to_owned(),
        }
    }

    /// The last lines of the program that carries the connection, or else `error`.
    pub fn why_lost(&mut self, error: &str) -> String {
        let reason = reasons::explain_libssh2(error);
        let stderr_tail = self.command_stderr();
        if !stderr_tail.is_empty() {
            return stderr_tail;
        }
        let ended = self.channel.exit_status();
        match (self.channel.command(), ended) {
            (Some(name), Some(status)) => format!("{name}: {reason}; {status}"),
            (Some(name), None) => format!("{name}: {reason}"),
            (None, Some(status)) if status.code() == Some(SSH_FAILED) => reasons::CLOSED.to_owned(),
            (None, _) => reason.to_owned(),
        }
    }

    pub fn write_some(&mut self) -> bool {
        let mut progress = false;
        loop {
            let is_last = self.outbox.len() == 1;
            let Some(first) = self.outbox.front_mut() else {
                break;
            };
            let written = match first {
                Body::Bytes(bytes) if is_last => self.channel.write(&bytes[self.sent..]),
                Body::Bytes(bytes) => self.channel.write_beginning(&bytes[self.sent..]),
                Body::File {
                    file,
                    offset,
                    length,
                } => {
                    let (offset, left) = (*offset + self.sent as u64, *length - self.sent);
                    match self.channel.write_file(file, offset, left as u64) {
                        Err(Unsent::Unwritable(error)) => Err(error),
                        Ok(count) if count > 0 => Ok(count),
                        short => {
                            self.source_fault = Some(short.err().map_or_else(
                                || io::ErrorKind::UnexpectedEof.into(),
                                Unsent::into_error,
                            ));
                            *first = Body::Bytes(vec![0; *length]);
                            continue;
                        }
                    }
                }
            };
            match written {
                Ok(count) => {
                    progress |= count > 0;
                    self.advance(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return progress,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The other side no longer reads. The program's last lines, still unread, give the
                // reason.
                Err(_) => {
                    self.outbox.clear();
                    (self.pending, self.sent) = (0, 0);
                    self.is_closing = false;
                    return true;
                }
            }
        }
        if self.is_closing {
            self.is_closing = matches!(self.channel.close_stdin(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        }
        progress
    }

    fn advance(&mut self, count: usize) {
        self.pending -= count as u64;
        self.sent += count;
        if self.outbox.front().map(Body::length) != Some(self.sent) {
            return;
        }
        self.sent = 0;
        if let Some(Body::Bytes(bytes)) = self.outbox.pop_front()
            && bytes.capacity() >= SPARE_BYTES
            && self.spare.len() < SPARE
        {
            self.spare.push(bytes);
        }
    }

    /// The last lines on stderr, after the name of the user's command that carries the streams, so
    /// that they are not mistaken for output of the job.
    pub fn command_stderr(&self) -> String {
        let stderr_tail = self.last_words();
        if let Some(name) = self.channel.command()
            && !stderr_tail.is_empty()
            && !stderr_tail.contains(name.rsplit('/').next().unwrap_or(name))
        {
            return format!("{name}: {stderr_tail}");
        }
        stderr_tail
    }

    pub fn wait(&mut self, wake: Option<&Waker>, limit: Duration) -> bool {
        // the channel sends keep-alives that are due
        let limit = limit.min(Duration::from_secs(5));
        let writing = !self.outbox.is_empty() || self.is_closing;
        // asked before the descriptors, because the pause may end in between
        let pause = self.channel.write_pause().filter(|_| writing);
        let limit = pause.map_or(limit, |pause| limit.min(pause));
        let mut fds: Vec<PollFd<'_>> = self
            .channel
            .poll_fds(self.open, writing)
            .into_iter()
            .map(|(fd, flags)| PollFd::new(fd, flags))
            .collect();
        if let Some(wake) = wake {
            fds.push(PollFd::new(wake.as_fd(), PollFlags::POLLIN));
        }
        let result = ppoll(&mut fds, Some(limit.into()), None);
        let woken = wake.is_some() && fds.last().and_then(PollFd::any).unwrap_or(false);
        if woken && let Some(wake) = wake {
            let _ = wake.0.read();
        }
        if result == Ok(0) && self.channel.keep_alive().is_err() {
            self.open = [false, false];
        }
        woken
    }
}

/// Adds what was written on stderr, and keeps only its end.
pub fn keep_tail(stderr: &mut Vec<u8>, written: &[u8]) {
    stderr.extend_from_slice(written);
    stderr.drain(..stderr.len().saturating_sub(STDERR_KEPT));
}

/// The last lines of stderr on one line, without repetitions. Open MPI frames its messages with
/// lines of dashes; the first line in a frame has the problem.
pub fn last_words(stderr: &[u8]) -> String {
    const FRAME: &str = "--------------------";
    let text = String::from_utf8_lossy(stderr);
    let (mut is_framed, mut has_first) = (false, false);
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with(FRAME) && line.bytes().all(|byte| byte == b'-') {
            is_framed = !is_framed;
            has_first = false;
        } else if !(is_framed && has_first) {
            has_first = true;
            lines.push(reasons::explain_shell(line));
        }
    }
    lines.dedup();
    wire::cut_message(&lines[lines.len().saturating_sub(3)..].join("; "))
}

/// Interrupts a thread that waits for a host.
pub struct Waker(EventFd);

impl Waker {
    pub fn new() -> io::Result<Waker> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Waker(EventFd::from_flags(flags)?))
    }

    pub fn wake(&self) {
        let _ = self.0.write(1);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_not_repeated() {
        let table = [
            ("", ""),
            ("a\n\n b \nb\nb\n", "a; b"),
            ("a\nb\nc\nd\n", "b; c; d"),
            ("ssh: a\r\nb\r\n", "ssh: a; b"),
            (
                "a\n--------------------\nno root\n\nDo not.\nOr so.\n--------------------\n\
                 --------------------\nb\nc\n--------------------\nd\n",
                "no root; b; d",
            ),
            (
                "Killed\nKilled\nKilled\n",
                "a program on the host was killed, by a user or because memory ran out (see dmesg)",
            ),
        ];
        for (stderr, words) in table {
            assert_eq!(last_words(stderr.as_bytes()), words);
        }
    }
}
