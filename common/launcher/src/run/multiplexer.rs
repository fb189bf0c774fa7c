//! Joins the output of all processes, which arrives in pieces, into lines, and passes them on with
//! their process.

use crate::output::lines::{LineBuffer, Split};
use crate::output::queue::OutputLines;
use crate::output::sink::OutputSink;
use record::Process;
use record::term::now_ms;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::supervise::ProcessStream;

/// How often unfinished lines are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The two streams of a process.
#[derive(Default)]
struct ProcessOutput {
    id: u32,
    lines: [LineBuffer; 2],
    drained: [bool; 2],
    /// When the process last wrote something.
    wrote: Option<Instant>,
    /// Whether it exited before the end of the job had begun. Its output that arrives later is not
    /// that of a process that is being ended.
    exited_before_end: bool,
}

/// The output of all processes.
pub struct Multiplexer {
    processes: Vec<ProcessOutput>,
    /// Unfinished lines that wait, by process and stream.
    waiting: BTreeSet<(usize, usize)>,
    /// When to check them next.
    check_at: Instant,
    /// Whether the end of the job has begun.
    is_ending: bool,
}

impl Multiplexer {
    /// Begins with processes that have not written anything.
    pub fn new(processes: &[Process], now: Instant) -> Multiplexer {
        let output = |process: &Process| ProcessOutput {
            id: process.id,
            ..ProcessOutput::default()
        };
        Multiplexer {
            processes: processes.iter().map(output).collect(),
            waiting: BTreeSet::new(),
            check_at: now,
            is_ending: false,
        }
    }

    /// Notes that the end of the job has begun, which may cause output from now on.
    pub fn begin_end(&mut self) {
        self.is_ending = true;
    }

    /// Notes that a process has exited.
    pub fn exited(&mut self, process: usize) {
        self.processes[process].exited_before_end = !self.is_ending;
    }

    /// When a process last wrote something.
    pub fn wrote(&self, process: usize) -> Option<Instant> {
        self.processes[process].wrote
    }

    /// Handles output of a process.
    pub fn write(
        &mut self,
        process: usize,
        (stream, piece): (ProcessStream, &[u8]),
        now: Instant,
        sink: &mut OutputSink,
    ) -> Result<(), &'static str> {
        let output = &mut self.processes[process];
        if output.drained[stream as usize] {
            return Err("a process writes to a stream that is at its end");
        }
        output.wrote = Some(now);
        let taken = output.lines[stream as usize].push(piece, now);
        self.show((process, stream as usize), taken, sink);
        Ok(())
    }

    /// Handles the end of a stream.
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
        self.finish_line((process, stream as usize), sink);
        Ok(())
    }

    /// Ends both streams of a process.
    pub fn finish(&mut self, process: usize, sink: &mut OutputSink) {
        (0..2).for_each(|stream| self.finish_line((process, stream), sink));
    }

    fn finish_line(&mut self, (process, stream): (usize, usize), sink: &mut OutputSink) {
        let taken = self.processes[process].lines[stream].finish();
        self.show((process, stream), taken, sink);
    }

    /// When to check unfinished lines next, if there are any.
    pub fn due_at(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.check_at)
    }

    /// Passes on unfinished lines that are due.
    pub fn pass_on_due(&mut self, now: Instant, sink: &mut OutputSink) {
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_INTERVAL;
        for (process, stream) in self.waiting.clone() {
            let taken = self.processes[process].lines[stream].take_due(now);
            self.show((process, stream), taken, sink);
        }
    }

    fn show(&mut self, (process, stream): (usize, usize), taken: Split, sink: &mut OutputSink) {
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
