//! What a process of the job has reported so far, and what may come next: each event only once, and
//! nothing out of its order. It knows no clock and shows nothing.

use crate::output::lines::{LineBuffer, Split};
use job::LastLines;
use record::{stacks, traceback};
use std::time::{Duration, Instant};
use wire::Event;
use wire::supervise::Stream;

/// How much is kept of a process's stacks: twice what faulthandler writes for a process with some
/// samplers.
const STACKS_BYTES: usize = 256 << 10;

/// An event that a host must not send, or not now.
#[derive(Debug, PartialEq, Eq)]
pub struct ProtocolBreach(pub String);

impl ProtocolBreach {
    pub fn out_of_phase(event: &Event) -> ProtocolBreach {
        ProtocolBreach(
            format!("{event:?} while a job runs")
                .chars()
                .take(100)
                .collect(),
        )
    }
}

fn check(is_right: bool, breach: &str) -> Result<(), ProtocolBreach> {
    is_right
        .then_some(())
        .ok_or_else(|| ProtocolBreach(breach.to_owned()))
}

/// The state of a process.
#[derive(Default)]
pub struct ProcessState {
    /// When it was started.
    started: Option<Instant>,
    listens: bool,
    exited: bool,
    /// When it wrote something last.
    wrote: Option<Instant>,
    /// Whether it exited before the end of the job had begun. Its output that comes later is then
    /// not output of a process that is being ended.
    pub exited_before_end: bool,
    /// The unfinished lines of its two streams, and whether the streams have ended.
    lines: [LineBuffer; 2],
    drained: [bool; 2],
    pub last_lines: LastLines,
    /// What it wrote to stderr while a time limit ended the job: Python's stacks.
    stacks: Vec<u8>,
}

impl ProcessState {
    pub fn started(&mut self, now: Instant) -> Result<(), ProtocolBreach> {
        let is_first = self.started.replace(now).is_none();
        check(is_first && !self.exited, "a process started twice")
    }

    /// It listens on its port.
    pub fn listening(&mut self, port: Option<u16>) -> Result<u16, ProtocolBreach> {
        let is_first = !std::mem::replace(&mut self.listens, true);
        let port = port.filter(|_| is_first);
        port.ok_or_else(|| {
            ProtocolBreach("a process listens that has no port, or twice".to_owned())
        })
    }

    /// It has ended; returns how long it ran.
    pub fn exited(&mut self, now: Instant, while_ending: bool) -> Result<Duration, ProtocolBreach> {
        let is_first = !std::mem::replace(&mut self.exited, true);
        check(is_first, "a process ended twice")?;
        self.exited_before_end = !while_ending;
        let started = self.started.unwrap_or(now);
        Ok(now.saturating_duration_since(started))
    }

    pub fn has_exited(&self) -> bool {
        self.exited
    }

    /// It wrote something.
    pub fn wrote(
        &mut self,
        stream: Stream,
        piece: &[u8],
        now: Instant,
    ) -> Result<Split, ProtocolBreach> {
        let is_open = !self.drained[stream as usize];
        check(is_open, "a process writes to a stream that is at its end")?;
        self.wrote = Some(now);
        Ok(self.lines[stream as usize].push(piece, now))
    }

    /// A stream has ended.
    pub fn drained(&mut self, stream: Stream) -> Result<Split, ProtocolBreach> {
        let is_first = !std::mem::replace(&mut self.drained[stream as usize], true);
        check(is_first, "a stream ended twice")?;
        Ok(self.finish(stream as usize))
    }

    /// Ends the unfinished line of a stream.
    pub fn finish(&mut self, stream: usize) -> Split {
        self.lines[stream].finish()
    }

    /// When the unfinished line of a stream is to be shown.
    pub fn due_at(&self, stream: usize) -> Option<Instant> {
        self.lines[stream].due_at()
    }

    /// What has waited long enough of the unfinished line of a stream.
    pub fn take_due(&mut self, stream: usize, now: Instant) -> Split {
        self.lines[stream].take_due(now)
    }

    /// Keeps lines in which Python may have written stacks.
    pub fn keep_stacks(&mut self, lines: &[u8]) {
        let room = STACKS_BYTES.saturating_sub(self.stacks.len());
        self.stacks
            .extend_from_slice(&lines[..lines.len().min(room)]);
    }

    /// Where its main thread stood, by the stacks that were kept.
    pub fn frames(&self) -> Option<Vec<String>> {
        let text = String::from_utf8_lossy(&self.stacks);
        let lines: Vec<&str> = text.lines().collect();
        // a process whose peers were ended first raises an exception because of that, and moves
        // elsewhere
        if let Some((from, at, _)) = traceback::exceptions(&lines).first() {
            return Some(traceback::raised_in(&lines[*from..*at]));
        }
        let all = traceback::fatal_stacks(&lines).into_iter();
        all.map(|(_, frames)| frames)
            .find(|frames| stacks::child(frames).is_none())
    }

    /// When it gave the last sign by which people see that it lives; `None` if it does not.
    pub fn last_sign(&self) -> Option<Instant> {
        let started = self.started.filter(|_| !self.exited);
        started.map(|started| self.wrote.map_or(started, |wrote| wrote.max(started)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breach<T: std::fmt::Debug>(result: Result<T, ProtocolBreach>) -> String {
        result.unwrap_err().0
    }

    #[test]
    fn each_event_comes_once_and_in_its_order() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3);
        let mut process = ProcessState::default();
        assert_eq!(process.last_sign(), None);
        process.started(now).unwrap();
        assert_eq!(process.last_sign(), Some(now));
        assert_eq!(breach(process.started(now)), "a process started twice");
        assert_eq!(process.listening(Some(30050)), Ok(30050));
        let listens = "a process listens that has no port, or twice";
        assert_eq!(breach(process.listening(Some(30050))), listens);
        assert_eq!(breach(ProcessState::default().listening(None)), listens);
        assert_eq!(process.exited(later, false), Ok(later - now));
        assert!(process.has_exited() && process.exited_before_end);
        assert_eq!(process.last_sign(), None);
        assert_eq!(breach(process.exited(later, true)), "a process ended twice");
        assert!(process.exited_before_end);
        assert_eq!(breach(process.started(later)), "a process started twice");
    }

    #[test]
    fn one_that_ends_before_it_was_started_has_not_run() {
        let mut process = ProcessState::default();
        assert_eq!(process.exited(Instant::now(), true), Ok(Duration::ZERO));
        assert!(!process.exited_before_end);
        let started = process.started(Instant::now());
        assert_eq!(breach(started), "a process started twice");
    }

    #[test]
    fn a_stream_ends_once_and_with_it_its_last_line() {
        let now = Instant::now();
        let mut process = ProcessState::default();
        process.started(now).unwrap();
        let wrote = now + Duration::from_secs(1);
        let taken = process.wrote(Stream::Stdout, b"a\nb", wrote).unwrap();
        assert_eq!(taken.whole, b"a\n");
        assert_eq!(process.last_sign(), Some(wrote));
        assert!(process.due_at(0).is_some() && process.due_at(1).is_none());
        assert_eq!(process.drained(Stream::Stdout).unwrap().whole, b"b\n");
        assert_eq!(
            breach(process.wrote(Stream::Stdout, b"c\n", now)),
            "a process writes to a stream that is at its end"
        );
        assert_eq!(
            breach(process.drained(Stream::Stdout)),
            "a stream ended twice"
        );
        assert_eq!(
            process.wrote(Stream::Stderr, b"c\n", now).unwrap().whole,
            b"c\n"
        );
    }

    #[test]
    fn an_exception_tells_more_than_where_the_process_was_afterwards() {
        let fatal = "Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call \
                     first):\n  File \"/w/train.py\", line 5 in wait\n  File \"/w/train.py\", \
                     line 9 in <module>\n";
        let exception = "Traceback (most recent call last):\n  File \"/w/train.py\", line 9, in \
                         <module>\n    step()\nRuntimeError: peer\n";
        let frames = |text: &str| {
            let mut process = ProcessState::default();
            process.keep_stacks(text.as_bytes());
            process.frames()
        };
        assert_eq!(frames(""), None);
        let waits = frames(fatal).unwrap();
        assert!(waits[0].starts_with("wait ("), "{waits:?}");
        let raised = frames(&format!("{exception}{fatal}")).unwrap();
        assert!(raised[0].starts_with("<module> ("), "{raised:?}");
    }

    #[test]
    fn stacks_are_bounded() {
        let mut process = ProcessState::default();
        (0..10).for_each(|_| process.keep_stacks(&[b'x'; 100 << 10]));
        assert_eq!(process.stacks.len(), STACKS_BYTES);
    }
}
