//! A script that runs on a host, whatever carries it there.

use super::HostFault;
use super::channel::Channel;
use super::transport::{Transport, Waker};
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// A line of a host's script is short, or a piece of output (4000 bytes) or a config (base64): beyond this something else talks.
const MAX_LINE: usize = 64 << 20;
/// A piece of a line that does not end is handed on at this length, where a script's output is taken in blocks.
const MAX_BLOCK: usize = 64 << 10;
/// So much is taken off a host's stdout before somebody has to want it.
const RAW_KEPT: usize = 256 << 10;
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
    transport: Transport,
    /// Hand on blocks, not lines.
    blocks: bool,
    /// A random word that marks the script's own first and last line.
    token: String,
    runs: bool,
    early: Vec<Heard>,
    over: bool,
    partial_line: Vec<u8>,
    /// Behind a raw mark: bytes as they are, until somebody says that the last of them was read.
    raw: Option<Vec<u8>>,
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
            transport: Transport::new(channel),
            blocks,
            token,
            runs: false,
            early: Vec::new(),
            over: false,
            partial_line: Vec::new(),
            raw: None,
        }
    }

    /// Puts bytes behind what is still to be sent.
    pub fn send(&mut self, bytes: impl Into<Vec<u8>>) {
        self.transport.send(bytes.into());
    }

    /// Puts exactly `length` bytes of a file behind what is still to be sent, without a copy where the connector can. Where the file
    /// ends before, zeros stand for the rest, and [`Running::source_fault`] tells.
    pub fn send_file(&mut self, file: File, offset: u64, length: u64) {
        self.transport.send_file(file, offset, length);
    }

    /// Why a file that was sent could not be read whole.
    pub fn source_fault(&mut self) -> Option<io::Error> {
        self.transport.source_fault()
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
        self.transport.pending()
    }

    /// Ends the script's stdin when all is sent.
    pub fn close_stdin(&mut self) {
        self.transport.close_stdin();
    }

    /// Since when nothing has come.
    pub fn last_heard(&self) -> Instant {
        self.transport.last_heard()
    }

    /// The last words on stderr, in one line.
    pub fn last_words(&self) -> String {
        self.transport.last_words()
    }

    pub(crate) fn wait_until_runs(&mut self, limit: Duration) -> Result<(), HostFault> {
        let until = Instant::now() + limit;
        while !self.runs {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.transport.channel.give_up();
                let said = if self.transport.channel.engine().is_some() { self.transport.engine_said() } else { String::new() };
                let colon = if said.is_empty() { "" } else { ": " };
                let problem = format!("no answer within {} s{colon}{said}", limit.as_secs_f32());
                return Err(HostFault { timed_out: true, ..HostFault::new(problem) }
                    .fix("look whether the host is up, or give it more time with --connect-timeout"));
            }
            for heard in self.step(None, left) {
                // what the script says at once is for the first step that is asked for
                if !matches!(heard, Heard::Lost(_)) {
                    self.early.push(heard);
                } else if let Heard::Lost(why) = heard {
                    self.transport.channel.give_up();
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
            let had_pending = self.pending() > 0;
            let progress = match self.transfer(&mut heard) {
                Ok(progress) => progress,
                Err(error) => {
                    self.lose(&mut heard, &error.to_string());
                    return heard;
                }
            };
            let raw = self.raw.as_ref().is_some_and(|raw| !raw.is_empty());
            if !heard.is_empty() || raw || (had_pending && self.pending() == 0) || self.runs != ran || self.over {
                return heard;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return heard;
            }
            if !progress && self.transport.wait(wake, left) {
                return heard;
            }
        }
    }

    /// One round over the three streams; whether anything moved.
    fn transfer(&mut self, heard: &mut Vec<Heard>) -> io::Result<bool> {
        if self.over {
            return Ok(false);
        }
        let mut progress = self.transport.write_some();
        while let Some(count) = self.transport.receive()? {
            progress = true;
            let buffer = std::mem::take(&mut self.transport.buffer);
            let result = self.lines(&buffer[..count], heard);
            self.transport.buffer = buffer;
            result?;
            if self.over || !heard.is_empty() || self.raw.as_ref().is_some_and(|raw| raw.len() > RAW_KEPT) {
                return Ok(true);
            }
        }
        if self.transport.is_closed() {
            self.lose(heard, "the connection ended before the script");
        }
        Ok(progress)
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
                        self.transport.forget_stderr();
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
        heard.push(Heard::Lost(self.transport.why_lost(what)));
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

#[cfg(test)]
mod tests {
    use super::super::channel::Stream;
    use super::*;
    use nix::poll::PollFlags;
    use std::collections::VecDeque;
    use std::os::fd::BorrowedFd;

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
