//! Samples the stacks of all Pythons of a job and counts them on this host, so that only the counts
//! are sent.
//!
//! Each Python has a thread that samples it; they take turns, so that a recording uses at most one
//! processor. A late sample is left out and counted as missed.

use super::reader::{self, ReadProblem, Spy};
use super::{Child, Known, keep_parents};
use host::processes::ProcessHandle;
use host::procfs;
use parking_lot::Mutex;
use record::Thread;
use record::profile::{CountedStack, ThreadProfile};
use record::stacks::name_without_number;
use record::term::millis;
use std::collections::{BTreeMap, HashMap};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use wire::stacks::{
    CountedStacks, MAX_COUNTED_DEPTH, MAX_COUNTED_FRAMES, MAX_COUNTED_STACKS, RecordStacks, Why,
};

/// How often to search for new Pythons.
const PACE: Duration = Duration::from_secs(1);
/// How often to check whether to continue.
const MOMENT: Duration = Duration::from_millis(50);
/// The most Pythons of a job on one host that are sampled.
const MAX_PYTHONS: usize = 512;
/// After this many failures in a row, a Python is examined again: it may have become another
/// program.
const FAILURES: u32 = 5;
const OTHER_STACKS: &str = "other stacks";

/// Locked by the thread that samples.
static TURN: Mutex<()> = Mutex::new(());

/// Records the processes that `find` returns, which is called repeatedly, while `goes_on` returns
/// true.
pub fn record(
    wanted: &RecordStacks,
    find: impl Fn() -> Vec<Known>,
    goes_on: impl Fn() -> bool,
) -> Vec<CountedStacks> {
    let until = Instant::now() + Duration::from_millis(wanted.time_ms);
    thread::scope(|scope| {
        let mut recordings: BTreeMap<ProcessHandle, Recording<'_>> = BTreeMap::new();
        loop {
            let found = find();
            let is_over = found.is_empty() && !recordings.is_empty();
            for found_process in found {
                let process = found_process.process;
                let is_new = !recordings.contains_key(&process);
                if is_new && recordings.len() < MAX_PYTHONS && reader::has_python(process.pid) {
                    let begun = Recording::begin(scope, found_process, wanted, until);
                    recordings.extend(begun.map(|recording| (process, recording)));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if is_over || left.is_zero() || !goes_on() {
                break;
            }
            // none can be read
            if !recordings.is_empty() && recordings.values().all(Recording::is_over) {
                break;
            }
            let scan = Instant::now() + left.min(PACE);
            while goes_on() && Instant::now() < scan {
                thread::sleep(left.min(MOMENT));
            }
        }
        let ended = recordings.into_values().filter_map(Recording::end);
        let mut profiles: Vec<CountedStacks> = ended.collect();
        let records = profiles.iter_mut().map(|profile| &mut profile.record);
        let children = records.map(|record| Child {
            pid: record.pid,
            program: (record.role, record.rank),
            is_python: true,
            parent: &mut record.parent,
        });
        keep_parents(children.collect());
        profiles
    })
}

struct Recording<'s> {
    known: Known,
    parent: Option<u32>,
    command: String,
    rate: u32,
    thread: ScopedJoinHandle<'s, Samples>,
}

impl<'s> Recording<'s> {
    /// `None` if no thread can be created.
    fn begin<'env>(
        scope: &'s Scope<'s, 'env>,
        known: Known,
        wanted: &'env RecordStacks,
        until: Instant,
    ) -> Option<Recording<'s>> {
        let handle = known.process;
        let thread = thread::Builder::new()
            .name(reader::THREAD.to_owned())
            .spawn_scoped(scope, move || Samples::of(handle, wanted, until))
            .ok()?;
        Some(Recording {
            parent: procfs::parent(handle.pid),
            command: procfs::command_line(handle.pid).unwrap_or_default(),
            rate: wanted.rate,
            known,
            thread,
        })
    }

    fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// `None` if the process ended before its first sample.
    fn end(self) -> Option<CountedStacks> {
        // the thread may have panicked, because another process's memory may contain anything
        let samples = self.thread.join().unwrap_or_else(|_| Samples {
            problem: Some((Why::Other, "what reads it has failed".to_owned())),
            ..Samples::default()
        });
        if samples.taken == 0 && samples.problem.is_none() {
            return None;
        }
        let (why, error) = samples.problem.filter(|_| samples.taken == 0).unzip();
        let record = record::Profile {
            job: self.known.job,
            pid: self.known.process.pid.cast_unsigned(),
            parent: self.parent,
            role: self.known.role,
            rank: self.known.rank,
            command: self.command,
            rate: self.rate,
            samples: samples.taken,
            missed: samples.missed,
            elapsed_ms: millis(samples.elapsed),
            frames: samples.counts.frames,
            threads: samples.counts.threads.into_iter().map(sorted).collect(),
            error,
            ..record::Profile::default()
        };
        Some(CountedStacks { record, why })
    }
}

fn sorted((name, counts): (Option<String>, HashMap<Vec<u32>, CountedStack>)) -> ThreadProfile {
    let mut stacks: Vec<CountedStack> = counts.into_values().collect();
    stacks.sort_by(|a, b| (b.samples, &a.frames).cmp(&(a.samples, &b.frames)));
    ThreadProfile { name, stacks }
}

#[derive(Default)]
struct Samples {
    taken: u32,
    missed: u32,
    elapsed: Duration,
    counts: Counts,
    problem: Option<(Why, String)>,
}

impl Samples {
    /// Ends when the time is over, the process has ended, or it cannot be read.
    fn of(process: ProcessHandle, wanted: &RecordStacks, until: Instant) -> Samples {
        let (mut samples, begun) = (Samples::default(), Instant::now());
        let mut spy = Spy::new(process);
        let mut due = begun;
        let mut goes_on = true;
        let period = Duration::from_secs(1) / wanted.rate.max(1);
        while goes_on && due < until {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            goes_on = samples.once(&mut spy);
            due = samples.next(due, period);
        }
        samples.elapsed = begun.elapsed();
        samples
    }

    fn once(&mut self, spy: &mut Spy) -> bool {
        let read = {
            let _turn = TURN.lock();
            spy.read_threads(MAX_COUNTED_DEPTH)
        };
        match read {
            Ok(threads) => {
                self.taken += 1;
                self.counts.add(threads);
                return true;
            }
            Err(_) if !spy.process.is_alive() => return false,
            Err(ReadProblem::Denied) => {
                let denied = reader::denied();
                self.problem = denied.why.zip(denied.error);
                return false;
            }
            Err(ReadProblem::Other(problem)) => self.problem = Some((Why::Other, problem)),
        }
        self.missed += 1;
        if spy.failures >= FAILURES {
            *spy = Spy::new(spy.process);
        }
        true
    }

    /// Counts late samples as missed.
    fn next(&mut self, due: Instant, period: Duration) -> Instant {
        let (mut next, now) = (due + period, Instant::now());
        while next + period < now {
            next += period;
            self.missed += 1;
        }
        next
    }
}

#[derive(Default)]
struct Counts {
    frames: Vec<String>,
    positions: HashMap<String, u32>,
    /// The stacks of the threads of each name.
    threads: BTreeMap<Option<String>, HashMap<Vec<u32>, CountedStack>>,
    stacks: usize,
    /// The stack of each thread in the last sample, by its name and number.
    last: HashMap<(Option<String>, Option<u32>), Vec<u32>>,
}

impl Counts {
    fn add(&mut self, threads: Vec<Thread>) {
        let mut now = HashMap::with_capacity(threads.len());
        for thread in threads {
            let frames = thread.frames.into_iter();
            let mut stack: Vec<u32> = frames.map(|frame| self.position(frame)).collect();
            let name = thread
                .name
                .as_deref()
                .map(name_without_number)
                .map(str::to_owned);
            let is_known = self
                .threads
                .get(&name)
                .is_some_and(|stacks| stacks.contains_key(&stack));
            if !is_known && self.stacks >= MAX_COUNTED_STACKS {
                stack = vec![self.position(OTHER_STACKS.to_owned())];
            }
            let counted = self.threads.entry(name).or_default();
            let count = counted.entry(stack.clone()).or_insert_with(|| {
                self.stacks += 1;
                CountedStack {
                    frames: stack.clone(),
                    ..CountedStack::default()
                }
            });
            let thread_id = (thread.name, thread.tid);
            count.samples += 1;
            count.active += u32::from(thread.active);
            count.visits += u32::from(self.last.get(&thread_id) != Some(&stack));
            now.insert(thread_id, stack);
        }
        self.last = now;
    }

    fn position(&mut self, frame: String) -> u32 {
        if let Some(position) = self.positions.get(&frame) {
            return *position;
        }
        if self.frames.len() >= MAX_COUNTED_FRAMES && frame != OTHER_STACKS {
            return self.position(OTHER_STACKS.to_owned());
        }
        let position = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.frames.push(frame.clone());
        self.positions.insert(frame, position);
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(name: &str, tid: u32, frame: &str, active: bool) -> Thread {
        Thread {
            name: Some(name.to_owned()),
            tid: Some(tid),
            active,
            frames: vec![frame.to_owned(), "main (a.py:1)".to_owned()],
            ..Thread::default()
        }
    }

    /// Samples, active samples and visits of each stack, by the name of the thread and the
    /// innermost frame.
    fn counts(samples: Vec<Vec<Thread>>) -> Vec<(String, String, [u32; 3])> {
        let mut counts = Counts::default();
        samples.into_iter().for_each(|threads| counts.add(threads));
        let Counts {
            frames, threads, ..
        } = counts;
        let mut counted: Vec<_> = threads
            .into_iter()
            .map(sorted)
            .flat_map(|profile| {
                let stacks = profile.stacks.into_iter();
                stacks.map(move |stack| (profile.name.clone(), stack))
            })
            .map(|(name, stack)| {
                let frame = frames[stack.frames[0] as usize].clone();
                let counts = [stack.samples, stack.active, stack.visits];
                (name.unwrap_or_default(), frame, counts)
            })
            .collect();
        counted.sort();
        counted
    }

    #[test]
    fn samples_of_an_unchanged_stack_are_one_visit() {
        let main = |frame, active| thread("MainThread", 7, frame, active);
        let samples = [
            ("f", true),
            ("f", false),
            ("g", false),
            ("f", true),
            ("f", true),
        ];
        let found = counts(
            samples
                .map(|(frame, active)| vec![main(frame, active)])
                .into(),
        );
        let expected = [("f", [4, 3, 2]), ("g", [1, 0, 1])];
        let expected =
            expected.map(|(frame, counts)| ("MainThread".to_owned(), frame.to_owned(), counts));
        assert_eq!(found, expected);
    }

    #[test]
    fn threads_of_one_name_are_counted_together() {
        let sample = || {
            vec![
                thread("Thread-1 (f)", 8, "f", false),
                thread("Thread-2", 9, "f", true),
            ]
        };
        let found = counts(vec![sample(), sample()]);
        assert_eq!(found, [("Thread".to_owned(), "f".to_owned(), [4, 2, 2])]);
    }

    #[test]
    fn too_many_stacks_are_counted_as_one() {
        let sample = |number: usize| vec![thread("MainThread", 7, &format!("f{number}"), true)];
        let found = counts((0..MAX_COUNTED_STACKS + 50).map(sample).collect());
        assert_eq!(found.len(), MAX_COUNTED_STACKS + 1);
        let of_others = found.iter().find(|(_, frame, _)| frame == OTHER_STACKS);
        assert_eq!(of_others.unwrap().2, [50, 50, 1]);
    }
}
