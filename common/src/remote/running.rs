//! A script that runs on a host, whatever carries it there.

use super::{HostFault, reasons};
use crate::quote;
use nix::poll::{PollFd, PollFlags, ppoll};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// A line of a host's script is short, or a piece of output (4000 bytes) or a config (base64): beyond this something else talks.
const MAX_LINE: usize = 64 << 20;
/// A piece of a line that does not end is handed on at this length, where a script's output is taken in blocks.
const MAX_BLOCK: usize = 64 << 10;
/// What is kept of the other side's stderr: enough for its last words.
const STDERR_KEPT: usize = 8 << 10;
/// What is written at once of a file that has to be copied through memory.
const COPIED: usize = 64 << 10;
/// So much is taken off a host's stdout before somebody has to want it.
const RAW_KEPT: usize = 256 << 10;
/// In place of bytes that could not be read.
static ZEROS: [u8; COPIED] = [0; COPIED];

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
    /// Writes bytes of a file from `offset` on, at most `length`; 0 at its end. One that can do it without a copy does.
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
    /// From time to time: keep-alives.
    fn tick(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Through memory.
pub(crate) fn copy_file<C: Channel + ?Sized>(channel: &mut C, file: &File, offset: u64, length: u64) -> Result<usize, Unsent> {
    let mut buffer = [0; COPIED];
    let room = COPIED.min(usize::try_from(length).unwrap_or(usize::MAX));
    let count = file.read_at(&mut buffer[..room], offset).map_err(Unsent::Unreadable)?;
    if count == 0 { Ok(0) } else { channel.write(&buffer[..count]).map_err(Unsent::Unwritable) }
}

/// Why nothing of a file was written.
pub(crate) enum Unsent {
    /// The file's fault.
    Unreadable(io::Error),
    /// The channel's.
    Unwritable(io::Error),
}

/// What waits to be sent.
enum Piece {
    Bytes {
        bytes: Vec<u8>,
        sent: usize,
    },
    File {
        file: File,
        offset: u64,
        left: u64,
    },
    /// In place of what a file no longer has: the length was promised.
    Zeros(u64),
}

/// What came from a host.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A line of the script, without its end; of one that is heard in blocks, whole lines with their ends, or a piece of a long one.
    Line(Vec<u8>),
    /// The script's own end and status.
    Ended(i32),
    /// The connection broke before the script's end; why.
    Lost(String),
}

/// A script that runs.
pub struct Running {
    channel: Box<dyn Channel>,
    /// Hand on blocks, not lines.
    blocks: bool,
    /// A random word that marks the script's own first and last line.
    token: String,
    outbox: VecDeque<Piece>,
    /// Bytes in the outbox that are not gone yet.
    pending: u64,
    source_fault: Option<io::Error>,
    closing: bool,
    runs: bool,
    early: Vec<Heard>,
    over: bool,
    partial_line: Vec<u8>,
    /// Behind a raw mark: bytes as they are, until somebody says that the last of them was read.
    raw: Option<Vec<u8>>,
    stderr: Vec<u8>,
    open: [bool; 2],
    last_heard: Instant,
    buffer: Vec<u8>,
}

/// What goes in first, and the token that its answer carries.
pub(crate) fn payload(script: &[u8]) -> Result<(Vec<u8>, String), HostFault> {
    let token = random_token().map_err(|error| HostFault::new(format!("/dev/urandom: {error}")))?;
    // An engine that signals all there is on the host must not end this shell before the script: with it, Slurm kills the rest.
    let begin = format!("trap '' HUP INT TERM; echo; echo '{token} runs'; raw_mark='{token} raw'; (\ntrap - HUP INT TERM\n");
    let mut text = begin.into_bytes();
    text.extend_from_slice(script);
    text.extend_from_slice(format!("\n)\nprintf '\\n%s %s\\n' '{token} ends' \"$?\"").as_bytes());
    Ok((super::booted(&text), token))
}

/// 128 random bits in hexadecimal.
pub fn random_token() -> io::Result<String> {
    let mut bits = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Running {
    pub(crate) fn new(channel: Box<dyn Channel>, token: String, blocks: bool) -> Running {
        Running {
            channel,
            blocks,
            token,
            outbox: VecDeque::new(),
            pending: 0,
            source_fault: None,
            closing: false,
            runs: false,
            early: Vec::new(),
            over: false,
            partial_line: Vec::new(),
            raw: None,
            stderr: Vec::new(),
            open: [true, true],
            last_heard: Instant::now(),
            buffer: vec![0; 64 << 10],
        }
    }

    /// Puts bytes behind what is still to be sent.
    pub fn send(&mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        self.pending += bytes.len() as u64;
        self.outbox.push_back(Piece::Bytes { bytes, sent: 0 });
    }

    /// A line of sh text, for a script that evaluates what it reads and knows [`super::CALL_SH`].
    pub fn call(&mut self, words: &[&[u8]]) {
        let mut line = quote::one_line(&quote::sh_words(words));
        line.push(b'\n');
        self.send(line);
    }

    /// Puts exactly `length` bytes of a file behind what is still to be sent, without a copy where the connector can. Where the file
    /// ends before, zeros stand for the rest, and [`Running::source_fault`] tells.
    pub fn send_file(&mut self, file: File, offset: u64, length: u64) {
        if length > 0 {
            self.pending += length;
            self.outbox.push_back(Piece::File { file, offset, left: length });
        }
    }

    /// Why a file that was sent could not be read whole.
    pub fn source_fault(&mut self) -> Option<io::Error> {
        self.source_fault.take()
    }

    /// What has come behind a line of the script that is `$raw_mark`; `None` where no such line has come.
    pub fn take_raw(&mut self) -> Option<Vec<u8>> {
        self.raw.as_mut().map(std::mem::take)
    }

    /// From here on there are lines again; `rest` is what was taken and is none of the raw bytes.
    pub fn end_raw(&mut self, rest: &[u8]) -> io::Result<()> {
        let bytes = [rest, self.raw.take().unwrap_or_default().as_slice()].concat();
        let mut heard = Vec::new();
        let result = self.lines(&bytes, &mut heard);
        self.early.extend(heard);
        result
    }

    /// Bytes that are not sent yet.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Ends the script's stdin when all is sent.
    pub fn close_stdin(&mut self) {
        self.closing = true;
    }

    /// Since when nothing has come.
    pub fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// The last words on stderr, in one line.
    pub fn last_words(&self) -> String {
        last_words(&self.stderr)
    }

    pub(crate) fn wait_until_runs(&mut self, limit: Duration) -> Result<(), HostFault> {
        let until = Instant::now() + limit;
        while !self.runs {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.channel.give_up();
                let said = if self.channel.engine().is_some() { self.engine_said() } else { String::new() };
                let colon = if said.is_empty() { "" } else { ": " };
                return Err(HostFault::new(format!("no answer within {} s{colon}{said}", limit.as_secs_f32()))
                    .fix("look whether the host is up, or give it more time with --connect-timeout"));
            }
            for heard in self.step(None, left) {
                // what the script says at once is for the first step that is asked for
                if !matches!(heard, Heard::Lost(_)) {
                    self.early.push(heard);
                } else if let Heard::Lost(why) = heard {
                    self.channel.give_up();
                    let again = ["Connection closed by", "Connection reset by", "kex_exchange_identification"]
                        .iter()
                        .any(|sign| why.contains(sign));
                    return Err(HostFault { again, ..HostFault::new(why) });
                }
            }
        }
        Ok(())
    }

    /// Sends and receives what can be, and waits for it up to `limit`, or until `wake` is woken. Returns when something was
    /// heard, when the script begins to run, when everything that was pending is gone, or at the limit.
    pub fn step(&mut self, wake: Option<&Waker>, limit: Duration) -> Vec<Heard> {
        let until = Instant::now() + limit;
        let ran = self.runs;
        let mut heard = if self.runs { std::mem::take(&mut self.early) } else { Vec::new() };
        loop {
            let had_pending = self.pending > 0;
            let progress = match self.transfer(&mut heard) {
                Ok(progress) => progress,
                Err(error) => {
                    self.lose(&mut heard, reasons::of_libssh2(&error.to_string()));
                    return heard;
                }
            };
            let raw = self.raw.as_ref().is_some_and(|raw| !raw.is_empty());
            if !heard.is_empty() || raw || (had_pending && self.pending == 0) || self.runs != ran || self.over {
                return heard;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return heard;
            }
            if !progress && self.wait(wake, left) {
                return heard;
            }
        }
    }

    /// One round over the three streams; whether anything moved.
    fn transfer(&mut self, heard: &mut Vec<Heard>) -> io::Result<bool> {
        if self.over {
            return Ok(false);
        }
        let mut progress = self.write_some();
        for stream in [Stream::Stderr, Stream::Stdout] {
            while self.open[stream as usize] {
                match self.channel.read(stream, &mut self.buffer) {
                    Ok(0) => {
                        self.open[stream as usize] = false;
                        progress = true;
                    }
                    Ok(count) => {
                        progress = true;
                        self.last_heard = Instant::now();
                        self.take(stream, count, heard)?;
                        if self.over || !heard.is_empty() || self.raw.as_ref().is_some_and(|raw| raw.len() > RAW_KEPT) {
                            return Ok(true);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if self.open == [false, false] {
            self.lose(heard, "the connection ended before the script");
        }
        Ok(progress)
    }

    fn write_some(&mut self) -> bool {
        let mut progress = false;
        while let Some(first) = self.outbox.front_mut() {
            let written = match first {
                Piece::Bytes { bytes, sent } => self.channel.write(&bytes[*sent..]),
                Piece::Zeros(left) => self.channel.write(&ZEROS[..ZEROS.len().min(usize::try_from(*left).unwrap_or(usize::MAX))]),
                Piece::File { file, offset, left } => match self.channel.write_file(file, *offset, *left) {
                    Err(Unsent::Unwritable(error)) => Err(error),
                    Ok(count) if count > 0 => Ok(count),
                    short => {
                        self.source_fault = Some(short.err().map_or_else(|| io::ErrorKind::UnexpectedEof.into(), Unsent::into_error));
                        *first = Piece::Zeros(*left);
                        continue;
                    }
                },
            };
            match written {
                Ok(count) => {
                    progress |= count > 0;
                    self.pending -= count as u64;
                    if first.advance(count) {
                        self.outbox.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return progress,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nobody reads there any more. What it said last is still to be read and tells why.
                Err(_) => {
                    self.outbox.clear();
                    self.pending = 0;
                    self.closing = false;
                    return true;
                }
            }
        }
        if self.closing {
            self.closing = matches!(self.channel.close_stdin(), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        }
        progress
    }

    fn take(&mut self, stream: Stream, count: usize, heard: &mut Vec<Heard>) -> io::Result<()> {
        if stream == Stream::Stderr {
            self.stderr.extend_from_slice(&self.buffer[..count]);
            let surplus = self.stderr.len().saturating_sub(STDERR_KEPT);
            self.stderr.drain(..surplus);
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.lines(&buffer[..count], heard);
        self.buffer = buffer;
        result
    }

    fn lines(&mut self, bytes: &[u8], heard: &mut Vec<Heard>) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some(raw) = &mut self.raw {
                raw.extend_from_slice(rest);
                return Ok(());
            }
            if self.blocks && self.runs {
                self.partial_line.extend_from_slice(rest);
                self.take_block(heard);
                return Ok(());
            }
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (piece, later) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
            rest = later;
            self.partial_line.extend_from_slice(piece);
            if end.is_some() {
                self.partial_line.pop();
                let line = std::mem::take(&mut self.partial_line);
                match mark(&line, &self.token) {
                    Some(Mark::Runs) => {
                        self.runs = true;
                        // what was said on the way in (a banner, `Defaulted container`) explains no end
                        self.stderr.clear();
                    }
                    Some(Mark::Raw) if self.runs => self.raw = Some(Vec::new()),
                    Some(Mark::Ends(status)) if self.runs => {
                        self.over = true;
                        heard.push(Heard::Ended(status));
                        return Ok(());
                    }
                    // before it runs the host's own shell may talk (.bashrc, a banner)
                    _ if self.runs && !line.is_empty() => heard.push(Heard::Line(line)),
                    _ => {}
                }
            } else if self.partial_line.len() > MAX_LINE {
                return Err(io::Error::other("the host sends a line without an end"));
            }
        }
        Ok(())
    }

    /// Hands on what is whole. An empty line at its end is kept back: it may be the one in front of the end mark. A last line without
    /// an end gets one.
    fn take_block(&mut self, heard: &mut Vec<Heard>) {
        let text = &mut self.partial_line;
        let last = text.strip_suffix(b"\n").map(|text| text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default());
        if let Some(Mark::Ends(status)) = last.and_then(|last| mark(last, &self.token)) {
            let mark = last.map_or(0, <[u8]>::len) + "\n\n".len();
            text.truncate(text.len().saturating_sub(mark));
            if !text.is_empty() {
                if !text.ends_with(b"\n") {
                    text.push(b'\n');
                }
                heard.push(Heard::Line(std::mem::take(text)));
            }
            self.over = true;
            heard.push(Heard::Ended(status));
            return;
        }
        let whole = match text.iter().rposition(|byte| *byte == b'\n') {
            Some(end) if text[..end].last().is_none_or(|byte| *byte == b'\n') => end,
            Some(end) => end + 1,
            None if text.len() >= MAX_BLOCK => text.len(),
            None => 0,
        };
        if whole > 0 {
            let rest = text.split_off(whole);
            heard.push(Heard::Line(std::mem::replace(text, rest)));
        }
    }

    fn lose(&mut self, heard: &mut Vec<Heard>, what: &str) {
        self.over = true;
        let mut why = self.engine_said();
        if why.is_empty() {
            let ended = self.channel.ended();
            why = match (self.channel.engine(), ended) {
                (Some(name), Some(status)) => format!("{name}: {what}; {status}"),
                (Some(name), None) => format!("{name}: {what}"),
                (None, _) => what.to_owned(),
            };
        }
        heard.push(Heard::Lost(why));
    }

    /// The last words on stderr, behind the name of the program of the user's that carries the script: nobody should take them for the job's.
    fn engine_said(&self) -> String {
        let said = self.last_words();
        match self.channel.engine() {
            Some(name) if !said.is_empty() && !said.contains(name.rsplit('/').next().unwrap_or(name)) => format!("{name}: {said}"),
            _ => said,
        }
    }

    /// Waits until something may go on; whether it was woken.
    fn wait(&mut self, wake: Option<&Waker>, limit: Duration) -> bool {
        // a keep-alive is due every few seconds, and sending one costs nothing when it is not
        let limit = limit.min(Duration::from_secs(5));
        let writing = !self.outbox.is_empty() || self.closing;
        // asked before what to wait for: a rest that ends in between must not be waited for
        let limit = self.channel.rest().filter(|_| writing).map_or(limit, |rest| limit.min(rest));
        let mut fds: Vec<PollFd<'_>> =
            self.channel.wait_for(self.open, writing).into_iter().map(|(fd, flags)| PollFd::new(fd, flags)).collect();
        if let Some(wake) = wake {
            fds.push(PollFd::new(wake.reader.as_fd(), PollFlags::POLLIN));
        }
        let result = ppoll(&mut fds, Some(limit.into()), None);
        let woken = wake.is_some() && fds.last().and_then(PollFd::any).unwrap_or(false);
        if woken && let Some(wake) = wake {
            wake.drain();
        }
        if result == Ok(0) && self.channel.tick().is_err() {
            self.open = [false, false];
        }
        woken
    }
}

impl Piece {
    /// So much of it is gone; whether all is.
    fn advance(&mut self, count: usize) -> bool {
        match self {
            Piece::Bytes { bytes, sent } => {
                *sent += count;
                *sent == bytes.len()
            }
            Piece::File { offset, left, .. } => {
                *offset += count as u64;
                *left -= count as u64;
                *left == 0
            }
            Piece::Zeros(left) => {
                *left -= count as u64;
                *left == 0
            }
        }
    }
}

impl Unsent {
    fn into_error(self) -> io::Error {
        match self {
            Unsent::Unreadable(error) | Unsent::Unwritable(error) => error,
        }
    }
}

enum Mark {
    Runs,
    Raw,
    Ends(i32),
}

fn mark(line: &[u8], token: &str) -> Option<Mark> {
    let rest = std::str::from_utf8(line.strip_prefix(token.as_bytes())?).ok()?;
    match rest.trim() {
        "runs" => Some(Mark::Runs),
        "raw" => Some(Mark::Raw),
        ends => Some(Mark::Ends(ends.strip_prefix("ends ")?.parse().ok()?)),
    }
}

/// The last lines of a stderr as one, each once.
fn last_words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(reasons::of_shell).collect();
    lines.dedup();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// Interrupts a [`Running::step`] from another thread.
pub struct Waker {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Waker {
    /// A new one.
    pub fn new() -> io::Result<Waker> {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_CLOEXEC)?;
        Ok(Waker { reader, writer })
    }

    /// Wakes it. A full pipe has been told already.
    pub fn wake(&self) {
        let _ = std::fs::File::from(match self.writer.try_clone() {
            Ok(writer) => writer,
            Err(_) => return,
        })
        .write(b"w");
    }

    fn drain(&self) {
        let mut buffer = [0u8; 64];
        while matches!(nix::unistd::read(&self.reader, &mut buffer), Ok(count) if count == buffer.len()) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what it is given, a piece a read.
    struct Says(VecDeque<Vec<u8>>);

    impl Channel for Says {
        fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> io::Result<usize> {
            let piece = if stream == Stream::Stdout { self.0.pop_front() } else { None };
            let piece = piece.ok_or(io::ErrorKind::WouldBlock)?;
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn close_stdin(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn wait_for(&self, _: [bool; 2], _: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
            Vec::new()
        }
    }

    #[test]
    fn last_words_are_said_once() {
        let table = [
            ("", ""),
            ("a\n\n b \nb\nb\n", "a; b"),
            ("a\nb\nc\nd\n", "b; c; d"),
            ("Killed\nKilled\nKilled\n", "a program there was killed: by somebody, or because memory ran out (see dmesg there)"),
        ];
        for (stderr, words) in table {
            assert_eq!(last_words(stderr.as_bytes()), words);
        }
    }

    #[test]
    fn blocks_come_as_they_were_written() {
        for text in ["", "a\n", "\n", "\n\n", "a\n\nb\n\n\n", "no end", "a\nno end", "\nb"] {
            let all = format!("a banner\n\nT runs\n{text}\nT ends 0\n");
            for size in [1, 2, 3, 5, 100] {
                let pieces = all.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
                let mut running = Running::new(Box::new(Says(pieces)), "T".to_owned(), true);
                let (mut got, mut ended) = (Vec::new(), false);
                while !ended {
                    for heard in running.step(None, Duration::from_millis(10)) {
                        match heard {
                            Heard::Line(block) => got.extend(block),
                            other => ended = other == Heard::Ended(0),
                        }
                    }
                }
                let got = String::from_utf8(got).unwrap();
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                assert_eq!(got, format!("{text}{end}"), "in pieces of {size}");
            }
        }
    }
}
