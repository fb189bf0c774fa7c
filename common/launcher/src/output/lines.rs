//! Splits the processes' output, which arrives in pieces, into lines. A complete line is passed on
//! at once, an unfinished one after a moment: a progress bar becomes visible, but a line that is
//! written in two calls remains one line.

use super::queue::OutputLines;
use super::sink::OutputSink;
use record::Process;
use record::term::now_ms;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::supervise::ProcessStream;

/// How long an unfinished line waits: Python writes a line and its newline in two calls, but a
/// progress bar should be visible.
const HOLD: Duration = Duration::from_millis(200);
/// The longest line, so that a program without newlines does not fill memory.
const MAX_LINE: usize = 64 << 10;

/// The unfinished line of a stream.
#[derive(Debug, Default)]
struct LineBuffer {
    /// From its beginning.
    line: Vec<u8>,
    /// How many bytes of it were passed on.
    shown: usize,
    /// Since when the rest waits.
    since: Option<Instant>,
}

/// The output to pass on, for a reader who wants everything at once, and for one who wants whole
/// lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Split {
    /// Lines, or a piece of a line that continues what was passed on before.
    pub pieces: Vec<u8>,
    /// The lines that ended, from their beginning; one that was cut at the limit has ended.
    pub whole: Vec<u8>,
    /// Whether `pieces` continue a piece that was passed on before.
    pub continues: bool,
}

impl LineBuffer {
    /// Returns what to pass on now.
    fn push(&mut self, piece: &[u8], now: Instant) -> Split {
        self.line.extend_from_slice(piece);
        let end = match self.line.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None if self.line.len() >= MAX_LINE => self.line.len(),
            None => {
                self.since = self.since.or(Some(now));
                return Split::default();
            }
        };
        let rest = self.line.split_off(end);
        let whole = std::mem::replace(&mut self.line, rest);
        let shown = std::mem::take(&mut self.shown);
        self.since = (!self.line.is_empty()).then_some(now);
        Split {
            pieces: whole[shown..].to_vec(),
            whole,
            continues: shown > 0,
        }
    }

    fn due_at(&self) -> Option<Instant> {
        self.since.map(|since| since + HOLD)
    }

    /// The waiting bytes, if they are due.
    fn take_due(&mut self, now: Instant) -> Split {
        if self.due_at().is_none_or(|due| now < due) {
            return Split::default();
        }
        self.since = None;
        let shown = std::mem::replace(&mut self.shown, self.line.len());
        Split {
            pieces: self.line[shown..].to_vec(),
            whole: Vec::new(),
            continues: shown > 0,
        }
    }

    /// An unfinished line gets a newline.
    fn finish(&mut self) -> Split {
        if self.line.is_empty() {
            return Split::default();
        }
        self.push(b"\n", Instant::now())
    }
}

/// How often unfinished lines are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
struct ProcessOutput {
    id: u32,
    lines: [LineBuffer; 2],
    drained: [bool; 2],
    wrote: Option<Instant>,
    /// Whether it exited before the end of the job began. Its later output is not that of a process
    /// that is being ended.
    exited_before_end: bool,
}

pub struct OutputJoiner {
    processes: Vec<ProcessOutput>,
    /// Unfinished lines that wait, by process and stream.
    waiting: BTreeSet<(usize, usize)>,
    check_at: Instant,
    is_ending: bool,
}

impl OutputJoiner {
    pub fn new(processes: &[Process], now: Instant) -> OutputJoiner {
        let output = |process: &Process| ProcessOutput {
            id: process.id,
            ..ProcessOutput::default()
        };
        OutputJoiner {
            processes: processes.iter().map(output).collect(),
            waiting: BTreeSet::new(),
            check_at: now,
            is_ending: false,
        }
    }

    /// Notes that the end of the job, which may cause output, has begun.
    pub fn begin_end(&mut self) {
        self.is_ending = true;
    }

    pub fn exited(&mut self, process: usize) {
        self.processes[process].exited_before_end = !self.is_ending;
    }

    pub fn wrote(&self, process: usize) -> Option<Instant> {
        self.processes[process].wrote
    }

    pub fn write(
        &mut self,
        process: usize,
        stream: ProcessStream,
        piece: &[u8],
        now: Instant,
        sink: &mut OutputSink,
    ) -> Result<(), &'static str> {
        let output = &mut self.processes[process];
        if output.drained[stream as usize] {
            return Err("a process writes to a stream that is at its end");
        }
        output.wrote = Some(now);
        let taken = output.lines[stream as usize].push(piece, now);
        self.show(process, stream as usize, taken, sink);
        Ok(())
    }

    pub fn drain(
        &mut self,
        process: usize,
        stream: ProcessStream,
        sink: &mut OutputSink,
    ) -> Result<(), &'static str> {
        let drained = &mut self.processes[process].drained[stream as usize];
        if std::mem::replace(drained, true) {
            return Err("a stream ended twice");
        }
        self.finish_line(process, stream as usize, sink);
        Ok(())
    }

    pub fn finish(&mut self, process: usize, sink: &mut OutputSink) {
        (0..2).for_each(|stream| self.finish_line(process, stream, sink));
    }

    fn finish_line(&mut self, process: usize, stream: usize, sink: &mut OutputSink) {
        let taken = self.processes[process].lines[stream].finish();
        self.show(process, stream, taken, sink);
    }

    pub fn due_at(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.check_at)
    }

    pub fn pass_on_due(&mut self, now: Instant, sink: &mut OutputSink) {
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_INTERVAL;
        for (process, stream) in self.waiting.clone() {
            let taken = self.processes[process].lines[stream].take_due(now);
            self.show(process, stream, taken, sink);
        }
    }

    fn show(&mut self, process: usize, stream: usize, taken: Split, sink: &mut OutputSink) {
        let output = &self.processes[process];
        match output.lines[stream].due_at() {
            Some(_) => self.waiting.insert((process, stream)),
            None => self.waiting.remove(&(process, stream)),
        };
        let lines = |text: Vec<u8>| OutputLines {
            id: output.id,
            stderr: stream == ProcessStream::Stderr as usize,
            time_ms: now_ms(),
            text,
            continues: taken.continues,
            while_ending: self.is_ending && !output.exited_before_end,
            lossy: false,
        };
        if !taken.whole.is_empty() {
            sink.log_lines(&lines(taken.whole));
        }
        if !taken.pieces.is_empty() {
            sink.output(lines(taken.pieces));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pieces: &str, whole: &str) -> Split {
        Split {
            pieces: pieces.into(),
            whole: whole.into(),
            continues: false,
        }
    }

    fn continued(pieces: &str, whole: &str) -> Split {
        Split {
            continues: true,
            ..taken(pieces, whole)
        }
    }

    #[test]
    fn lines_go_on_whole_and_what_has_no_end_a_moment_later() {
        let now = Instant::now();
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.push(b"print", now), Split::default());
        assert_eq!(
            buffer.push(b"\n", now),
            taken("print\n", "print\n"),
            "two calls of Python make one line"
        );
        assert_eq!(buffer.push(b"a\nb\n 1%", now), taken("a\nb\n", "a\nb\n"));
        assert_eq!(buffer.take_due(now), Split::default());
        assert_eq!(buffer.take_due(now + HOLD), taken(" 1%", ""));
        assert_eq!(buffer.take_due(now + HOLD * 2), Split::default(), "once");
        assert_eq!(buffer.push(b"\r 2%", now + HOLD), Split::default());
        assert_eq!(buffer.due_at(), Some(now + HOLD * 2));
        assert_eq!(buffer.take_due(now + HOLD * 2), continued("\r 2%", ""));
        assert_eq!(
            buffer.push(b"\r done\nrest", now),
            continued("\r done\n", " 1%\r 2%\r done\n")
        );
        assert_eq!(buffer.finish(), taken("rest\n", "rest\n"));
        assert_eq!(buffer.finish(), Split::default());
    }

    #[test]
    fn a_line_that_was_handed_on_still_gets_its_end() {
        let now = Instant::now();
        let mut buffer = LineBuffer::default();
        buffer.push(b"no end", now);
        assert_eq!(buffer.take_due(now + HOLD), taken("no end", ""));
        assert_eq!(buffer.finish(), continued("\n", "no end\n"));
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let now = Instant::now();
        let mut buffer = LineBuffer::default();
        let long = vec![b'x'; MAX_LINE + 5];
        assert_eq!(buffer.push(&long, now).pieces, long);
        assert_eq!(buffer.push(b"y\n", now).pieces, b"y\n");
    }
}
