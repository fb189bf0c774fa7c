//! Finds processes that have written a traceback and nothing since, and do not end: DGL's clients
//! wait at its exit barrier for all others, which wait for them.
//!
//! stderr does not show whether the exception was caught, but the stack does: while the main thread
//! of a Python is in its script, its stack has a `<module>`; once it has left the script and runs
//! its exit handlers, it has none.

use evidence::syntax::has_left_script;
use evidence::{Evidence, MAX_LINE, Raiser};
use record::stacks;
use record::term::{self, millis};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wire::stacks::ProcessStacks;
use wire::supervise::{ProcessStream, Raised};

/// Output within this time belongs to the exception: the rest of its message, or DGL's message that
/// the client exits. A process that writes later has continued.
const AFTERTHOUGHT: Duration = Duration::from_secs(2);
/// How much of a line is reported.
const REPORTED_CHARS: usize = 500;

#[derive(Debug)]
pub struct ExceptionWatch {
    /// How long a process must be silent after its traceback.
    after: Duration,
    /// Whether a process that has left its script is reported at once.
    early: bool,
    /// The processes by their indices on the host.
    processes: BTreeMap<u32, Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    evidence: Evidence,
    /// An incomplete line of stderr.
    line: Vec<u8>,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    exception: String,
    raiser: Raiser,
    raised: Instant,
    /// When the process last wrote something.
    wrote: Instant,
    /// How long it must be silent before its stack is read.
    examine_after: Duration,
    is_being_read: bool,
    /// Whether it had left its script at the last reading of its stack; `None` before.
    left_script: Option<bool>,
    frames: Vec<String>,
    is_reported: bool,
}

#[derive(Debug, PartialEq)]
pub enum ExceptionStep {
    /// No other step follows before [`ExceptionWatch::take_stacks`].
    ReadStacks(u32),
    Report(Raised),
}

impl ExceptionWatch {
    /// `stall` is the stall timeout; zero without detection of stalls.
    pub fn new(stall: Duration, early: bool) -> ExceptionWatch {
        let minute = Duration::from_secs(60);
        ExceptionWatch {
            after: if stall.is_zero() {
                minute
            } else {
                stall.min(minute)
            },
            early,
            processes: BTreeMap::new(),
        }
    }

    pub fn wrote(&mut self, index: u32, stream: ProcessStream, bytes: &[u8], now: Instant) {
        let examine_after = if self.early { AFTERTHOUGHT } else { self.after };
        let watched = self.processes.entry(index).or_default();
        match &mut watched.pending {
            Some(pending) if now > pending.raised + AFTERTHOUGHT => watched.pending = None,
            Some(pending) => pending.wrote = now,
            None => {}
        }
        if stream == ProcessStream::Stdout {
            return;
        }
        // exit hooks whose exceptions are ignored follow one that is not
        let named = watched.lines(bytes).into_iter();
        for (raiser, exception) in named.filter(|(raiser, _)| *raiser != Raiser::Nobody) {
            // the end of the main thread makes others raise exceptions, too
            let is_of_main = |pending: &Pending| pending.raiser == Raiser::Main;
            if raiser != Raiser::Main && watched.pending.as_ref().is_some_and(is_of_main) {
                continue;
            }
            watched.pending = Some(Pending {
                exception,
                raiser,
                raised: now,
                wrote: now,
                examine_after,
                is_being_read: false,
                left_script: None,
                frames: Vec::new(),
                is_reported: false,
            });
        }
    }

    pub fn ended(&mut self, index: u32) {
        self.processes.remove(&index);
    }

    /// The processes with an unreported exception.
    pub fn pending(&self) -> BTreeSet<u32> {
        let is_open = |watched: &Watched| {
            let pending = watched.pending.as_ref();
            pending.is_some_and(|pending| !pending.is_reported)
        };
        let open = self
            .processes
            .iter()
            .filter(|(_, watched)| is_open(watched));
        open.map(|(index, _)| *index).collect()
    }

    /// `idle` returns for how long a process has shown no activity.
    pub fn steps(&mut self, now: Instant, idle: impl Fn(u32) -> Duration) -> Vec<ExceptionStep> {
        let (after, early) = (self.after, self.early);
        let processes = self.processes.iter_mut();
        let pending =
            processes.filter_map(|(index, watched)| Some((*index, watched.pending.as_mut()?)));
        pending
            .filter_map(|(index, pending)| pending.step(index, after, early, idle(index), now))
            .collect()
    }

    /// Takes the result of an [`ExceptionStep::ReadStacks`]: the stacks of a process and its
    /// children, empty if they could not be read.
    pub fn take_stacks(&mut self, index: u32, stacks: &[ProcessStacks]) {
        let watched = self.processes.get_mut(&index);
        let Some(pending) = watched.and_then(|watched| watched.pending.as_mut()) else {
            return;
        };
        pending.is_being_read = false;
        let mains: Vec<&[String]> = stacks.iter().filter_map(main_frames).collect();
        // if nothing could be read, an earlier result still holds
        if mains.is_empty() {
            return;
        }
        let left = mains.iter().find(|frames| has_left_script(frames));
        pending.left_script = Some(left.is_some());
        pending.frames = left
            .or(mains.first())
            .map_or(Vec::new(), |frames| frames.to_vec());
    }
}

impl Watched {
    /// The exceptions that are named by lines that end in this piece of stderr. A progress bar ends
    /// each of its lines with \r.
    fn lines(&mut self, bytes: &[u8]) -> Vec<(Raiser, String)> {
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let mut found = Vec::new();
        for piece in bytes.split_inclusive(is_end) {
            let text = piece.strip_suffix(b"\n").or(piece.strip_suffix(b"\r"));
            let text = text.unwrap_or(piece);
            let room = MAX_LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if text.len() == piece.len() || self.line.is_empty() {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(&line);
            let named = self.evidence.line(true, &line, 0, false);
            found.extend(named.map(|(raiser, text)| (raiser, term::cut(text, REPORTED_CHARS))));
        }
        found
    }
}

impl Pending {
    fn step(
        &mut self,
        index: u32,
        after: Duration,
        early: bool,
        idle: Duration,
        now: Instant,
    ) -> Option<ExceptionStep> {
        let quiet = now.saturating_duration_since(self.wrote);
        if self.is_reported || self.is_being_read {
            return None;
        }
        let is_main = self.raiser == Raiser::Main;
        let is_late = quiet >= after;
        if is_main && self.left_script != Some(true) && quiet >= self.examine_after {
            // read the stacks again before the report
            self.examine_after = if is_late {
                quiet * 2
            } else {
                (quiet * 2).min(after)
            };
            self.is_being_read = true;
            return Some(ExceptionStep::ReadStacks(index));
        }
        // activity is measured with a delay; a process in its script may compute silently
        let rests = idle * 2 >= quiet;
        let is_certain = self.left_script == Some(true) && (early || is_late);
        if !(is_certain || is_late && rests) {
            return None;
        }
        self.is_reported = true;
        Some(ExceptionStep::Report(Raised {
            index,
            exception: self.exception.clone(),
            silent_ms: millis(quiet),
            is_of_main: is_main,
            left_script: self.left_script,
            frames: std::mem::take(&mut self.frames),
        }))
    }
}

/// `None` for a sampler or another child.
fn main_frames(stack: &ProcessStacks) -> Option<&[String]> {
    let frames = stack.record.main_frames()?;
    let is_child = stack.record.parent.is_some() || stacks::child(frames).is_some();
    (!is_child && !frames.is_empty()).then_some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Thread;

    const TRACE: &[u8] = b"Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";

    /// A trainer; times are seconds since its beginning.
    struct Trainer(ExceptionWatch, Instant);

    impl Trainer {
        fn new(early: bool) -> Trainer {
            Trainer(ExceptionWatch::new(Duration::ZERO, early), Instant::now())
        }

        fn writes(&mut self, second: u64, stream: ProcessStream, text: &[u8]) {
            self.0
                .wrote(0, stream, text, self.1 + Duration::from_secs(second));
        }

        fn raises(&mut self, second: u64) {
            self.writes(second, ProcessStream::Stderr, TRACE);
            self.writes(second, ProcessStream::Stderr, b"ValueError: no\n");
        }

        /// The steps at that second if it has been idle for this long and its stack has these
        /// frames.
        fn steps(&mut self, second: u64, idle: u64, frames: &[&str]) -> Vec<ExceptionStep> {
            let now = self.1 + Duration::from_secs(second);
            let idle = |_| Duration::from_secs(idle);
            let mut steps = self.0.steps(now, idle);
            if steps == [ExceptionStep::ReadStacks(0)] {
                self.0.take_stacks(0, &[stack(frames)]);
                steps = self.0.steps(now, idle);
            }
            steps
        }
    }

    fn stack(frames: &[&str]) -> ProcessStacks {
        let thread = Thread {
            name: Some("MainThread".to_owned()),
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            ..Thread::default()
        };
        let mut stack = ProcessStacks::default();
        stack.record.threads = vec![thread];
        stack
    }

    const EXIT: &[&str] = &[
        "client_barrier (rpc.py:1109)",
        "exit_client (dist_context.py:384)",
    ];
    const AT_WORK: &[&str] = &["all_reduce (c10d.py:9)", "<module> (train.py:131)"];

    fn steps_after_reading(
        left: Option<bool>,
        silent_s: u64,
        frames: &[&str],
    ) -> Vec<ExceptionStep> {
        vec![ExceptionStep::Report(Raised {
            index: 0,
            exception: "ValueError: no".to_owned(),
            silent_ms: silent_s * 1000,
            is_of_main: true,
            left_script: left,
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        })]
    }

    #[test]
    fn one_that_waits_at_its_exit_is_told_of_once() {
        let mut trainer = Trainer::new(false);
        trainer.raises(0);
        trainer.writes(
            1,
            ProcessStream::Stdout,
            b"Client[1] in group[0] is exiting...\n",
        );
        assert_eq!(trainer.steps(60, 58, EXIT), []);
        assert_eq!(
            trainer.steps(61, 50, EXIT),
            steps_after_reading(Some(true), 60, EXIT)
        );
        assert_eq!(trainer.steps(300, 290, EXIT), []);
        assert!(trainer.0.pending().is_empty());
        let mut early = Trainer::new(true);
        early.raises(0);
        assert_eq!(early.steps(1, 0, EXIT), []);
        assert_eq!(
            early.steps(2, 0, EXIT),
            steps_after_reading(Some(true), 2, EXIT)
        );
        let mut nameless = stack(EXIT);
        nameless.record.threads[0].name = None;
        assert!(main_frames(&nameless).is_some_and(has_left_script));
    }

    #[test]
    fn an_exception_of_an_exit_hook_is_not_reported() {
        const FINALIZERS: &[u8] = b"Traceback (most recent call last):\n  File \
            \"/usr/lib/python3.10/multiprocessing/util.py\", line 300, in _run_finalizers\n    \
            finalizer()\nOSError: no\n";
        let header = |words: &[u8]| [words, TRACE, b"ValueError: hook\n"].concat();
        for text in [
            header(b"Error in atexit._run_exitfuncs:\n"),
            header(b"--- Logging error ---\n"),
            header(b"Task exception was never retrieved\nfuture: <Task finished>\n"),
            FINALIZERS.to_vec(),
        ] {
            let mut trainer = Trainer::new(true);
            trainer.writes(0, ProcessStream::Stderr, &text);
            assert_eq!(trainer.steps(70, 70, EXIT), []);
            // after the script's own exception, it changes nothing
            trainer.raises(71);
            trainer.writes(72, ProcessStream::Stderr, &text);
            assert_eq!(
                trainer.steps(75, 0, EXIT),
                steps_after_reading(Some(true), 3, EXIT)
            );
        }
    }

    #[test]
    fn a_process_that_caught_its_exception_is_not_reported() {
        type TrainerAction = fn(&mut Trainer);
        let table: [(&str, TrainerAction); 5] = [
            ("writes later", |trainer| {
                trainer.writes(30, ProcessStream::Stdout, b"epoch 2\n");
            }),
            ("has ended", |trainer| trainer.0.ended(0)),
            ("a destructor's", |trainer| {
                trainer.writes(1, ProcessStream::Stderr, b"Exception ignored in: <f>\n");
                trainer.raises(1);
            }),
            ("never raised", |trainer| {
                trainer.0 = ExceptionWatch::new(Duration::ZERO, true);
            }),
            ("computes in its script", |_| {}),
        ];
        for (case, then) in table {
            let mut trainer = Trainer::new(true);
            trainer.raises(0);
            then(&mut trainer);
            for second in [2, 5, 40, 120] {
                assert_eq!(trainer.steps(second, 0, AT_WORK), [], "{case} {second}");
            }
        }
    }

    #[test]
    fn a_process_that_waits_in_its_script_is_reported_after_a_minute() {
        let mut trainer = Trainer::new(true);
        trainer.raises(0);
        assert_eq!(trainer.steps(5, 5, AT_WORK), []);
        assert_eq!(
            trainer.steps(60, 50, AT_WORK),
            steps_after_reading(Some(false), 60, AT_WORK)
        );
        let mut unreadable = Trainer::new(true);
        unreadable.raises(0);
        assert_eq!(
            unreadable.steps(60, 50, &[]),
            steps_after_reading(None, 60, &[])
        );
        let mut once_readable = Trainer::new(true);
        once_readable.raises(0);
        assert_eq!(once_readable.steps(2, 2, AT_WORK), []);
        assert_eq!(
            once_readable.steps(60, 50, &[]),
            steps_after_reading(Some(false), 60, AT_WORK)
        );
    }

    #[test]
    fn an_exception_of_another_thread_is_not_of_the_main_thread() {
        const THREAD: &[u8] = b"Exception in thread Thread-1:\n";
        let mut thread = Trainer::new(true);
        thread.writes(0, ProcessStream::Stderr, THREAD);
        thread.raises(0);
        assert_eq!(thread.steps(30, 30, EXIT), []);
        let mut expected = steps_after_reading(None, 60, &[]);
        if let [ExceptionStep::Report(raised)] = &mut expected[..] {
            raised.is_of_main = false;
        }
        assert_eq!(thread.steps(60, 50, EXIT), expected);
        let mut both = Trainer::new(true);
        both.raises(0);
        both.writes(1, ProcessStream::Stderr, THREAD);
        both.writes(1, ProcessStream::Stderr, TRACE);
        both.writes(1, ProcessStream::Stderr, b"RuntimeError: at shutdown\n");
        assert_eq!(
            both.steps(3, 0, EXIT),
            steps_after_reading(Some(true), 2, EXIT)
        );
    }

    #[test]
    fn nothing_is_reported_while_a_stack_is_being_read() {
        let mut trainer = Trainer::new(false);
        trainer.raises(0);
        let begun = trainer.1;
        let mut steps = |second| {
            let now = begun + Duration::from_secs(second);
            trainer.0.steps(now, |_| Duration::from_secs(second))
        };
        assert_eq!(steps(60), [ExceptionStep::ReadStacks(0)]);
        assert_eq!(steps(61), []);
        assert_eq!(steps(130), []);
        trainer.0.take_stacks(0, &[stack(EXIT)]);
        assert_eq!(
            trainer.steps(131, 130, &[]),
            steps_after_reading(Some(true), 131, EXIT)
        );
    }

    #[test]
    fn lines_come_in_pieces_and_may_be_long() {
        let mut trainer = Trainer::new(true);
        let long = [TRACE, b"ValueError: no", &[b' '; 9000], b"\n"].concat();
        for piece in long.chunks(7) {
            trainer.writes(0, ProcessStream::Stderr, piece);
        }
        assert_eq!(
            trainer.steps(3, 3, EXIT),
            steps_after_reading(Some(true), 3, EXIT)
        );
    }

    #[test]
    fn an_exception_behind_a_progress_bar_is_seen() {
        let mut trainer = Trainer::new(true);
        trainer.writes(
            0,
            ProcessStream::Stderr,
            &b"\r 97%|####  | 97/100".repeat(500),
        );
        trainer.raises(0);
        assert_eq!(
            trainer.steps(3, 3, EXIT),
            steps_after_reading(Some(true), 3, EXIT)
        );
    }
}
