//! Whether the job moves, as far as this host sees it: reports about processes that are idle, that
//! have raised an exception, and where they stand. What that means for the job is decided by
//! whoever sees all hosts ([`job::StallWatch`]).

use super::activity_watch::{ActivityWatch, Rest};
use super::exception_watch::{ExceptionStep, ExceptionWatch};
use super::members::{Running, families};
use super::position_watch::PositionWatch;
use super::stack_jobs::{StackJobs, StackSubject};
use crate::processes::ProcessHandle;
use crate::procfs;
use record::term::millis;
use record::{Sign, stacks};
use std::time::{Duration, Instant};
use wire::Event;
use wire::job::Job;
use wire::stacks::ProcessStacks;
use wire::supervise::{Activity, Computing, ProcessStream, StacksReported, Start};

/// The pace of looks is a tenth of the stall timeout within these limits. Slower ones would notice
/// a stall too late.
const QUICKEST: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(10);

/// The signs of life of all processes of the host.
#[derive(Debug)]
pub struct Liveness {
    /// The stall timeout; zero if nobody wants to know about stalls.
    stall: Duration,
    activity: ActivityWatch,
    positions: PositionWatch,
    exceptions: ExceptionWatch,
    stack_jobs: StackJobs,
    /// Whether the launcher believes that everything is idle.
    reported_idle: bool,
}

impl Liveness {
    pub fn begin(start: &Start, now: Instant) -> Liveness {
        let stall = Duration::from_millis(start.stall_ms);
        Liveness {
            stall,
            activity: ActivityWatch::begin((stall / 10).clamp(QUICKEST, SLOWEST), now),
            positions: PositionWatch::new(stall),
            exceptions: ExceptionWatch::new(stall, start.fail_on_exception),
            stack_jobs: StackJobs::default(),
            reported_idle: false,
        }
    }

    /// Notes that a process was started, listens, or wrote something.
    pub fn moved(&mut self, index: u32, sign: Sign) {
        self.activity.sign(index, sign, Instant::now());
    }

    /// Notes that a process wrote something. What one writes that serves others says nothing about
    /// them: it may log now and then that it runs.
    pub fn wrote(&mut self, index: u32, serves: bool, stream: ProcessStream, bytes: &[u8]) {
        let now = Instant::now();
        match serves {
            true => self.activity.note(index, now),
            false => self.activity.sign(index, Sign::Output, now),
        }
        self.exceptions.wrote(index, stream, bytes, now);
    }

    /// Notes that a process has ended.
    pub fn ended(&mut self, index: u32) {
        self.moved(index, Sign::Ended);
        self.exceptions.ended(index);
    }

    /// Notes that the launcher reads nothing at the moment, so that a process that cannot write is
    /// not to blame.
    pub fn excuse(&mut self) {
        self.activity.excuse(Instant::now());
        self.positions.clear();
    }

    /// Notes that the launcher wants the stacks of all processes.
    pub fn ask(&mut self) {
        self.stack_jobs.ask(StackSubject::All);
    }

    /// Begins to read the stacks of all processes, because the job has failed and is about to be
    /// ended; [`Liveness::take_stacks`] has them.
    pub fn survey(&mut self, job: &Job, running: &[Running]) {
        self.stack_jobs.ask(StackSubject::AtEnd);
        self.stack_jobs.begin(job, running);
    }

    /// Whether what [`Liveness::survey`] began goes on.
    pub fn is_surveying(&self) -> bool {
        self.stack_jobs.is_at_end()
    }

    /// Examines the running processes; returns the events to report.
    pub fn examine(&mut self, job: &Job, running: &[Running]) -> Vec<Event> {
        let now = Instant::now();
        let wanted = self.exceptions.pending();
        let mut events = Vec::new();
        let is_watched = !self.stall.is_zero() || !wanted.is_empty();
        let is_due = is_watched && self.activity.is_due(now);
        if is_due {
            self.activity.examine(running, &wanted, now);
        }
        self.sample_positions(now);
        let idle = now.saturating_duration_since(self.rest().since);
        if is_due && !self.stall.is_zero() && idle >= self.stall {
            self.reported_idle = true;
            events.push(Event::Activity(Activity {
                idle_ms: millis(idle),
                ..Activity::default()
            }));
        }
        let steps = self
            .exceptions
            .steps(now, |index| self.activity.idle_of(index, now));
        for step in steps {
            match step {
                ExceptionStep::ReadStacks(index) => {
                    if !self.stack_jobs.ask(StackSubject::One(index)) {
                        self.exceptions.take_stacks(index, &[]);
                    }
                }
                ExceptionStep::Report(raised) => events.push(Event::Raised(raised)),
            }
        }
        self.stack_jobs.begin(job, running);
        events
    }

    /// Looks where those stand that compute while nothing else moves, if that is due.
    fn sample_positions(&mut self, now: Instant) {
        if self.needs_positions(now) && self.positions.is_due(now) {
            let computed = self.activity.computed();
            if self.stack_jobs.ask(StackSubject::Positions(computed)) {
                self.positions.begin_sample(now);
            }
        }
    }

    /// Whether nothing but CPU time has been a sign of life for a while.
    fn needs_positions(&self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.activity.last_moved());
        let is_quiet = !self.stall.is_zero() && quiet >= self.positions.pace();
        is_quiet && !self.activity.computed().is_empty()
    }

    /// Since when nothing has moved.
    fn rest(&self) -> Rest {
        self.activity
            .rest(|process, computed| self.positions.unchanged_since(process, computed))
    }

    /// The process that moves again, if that is to be reported because the launcher believes that
    /// all are idle.
    pub fn move_again(&mut self) -> Option<Activity> {
        if !self.reported_idle {
            return None;
        }
        let rest = self.rest();
        let idle = rest.since.elapsed();
        self.reported_idle = idle >= self.stall;
        (!self.reported_idle).then(|| {
            let (index, sign) = rest.by.unzip();
            let idle_ms = millis(idle);
            Activity {
                idle_ms,
                index,
                sign,
            }
        })
    }

    /// Whether this must be called more often than once a second: [`Liveness::take_stacks`] will
    /// soon have some, or looks follow each other faster.
    pub fn is_hurried(&self) -> bool {
        let has_short_limit = self.positions.pace() < Duration::from_secs(1);
        self.stack_jobs.is_reading() || has_short_limit && self.needs_positions(Instant::now())
    }

    /// Takes the stacks that have been read; returns the events to report.
    pub fn take_stacks(&mut self, running: &[Running]) -> Vec<Event> {
        let Some(taken) = self.stack_jobs.take() else {
            return Vec::new();
        };
        let now = Instant::now();
        let stacks = taken.stacks;
        match taken.subject {
            StackSubject::One(index) => {
                self.exceptions.take_stacks(index, &stacks);
                return Vec::new();
            }
            StackSubject::Positions(_) => {
                self.positions.end_sample(&taken.positions, now);
                return Vec::new();
            }
            StackSubject::AtEnd => {
                return stacks
                    .into_iter()
                    .map(|stack| Event::Stack(Box::new(stack)))
                    .collect();
            }
            StackSubject::All => {}
        }
        let stats = procfs::stats();
        let families = families(&stats, running.iter().map(|one| (one.index, one.pid)));
        // a shell may stand before the trainer
        let is_stopped = |pid: &i32| matches!(stats[pid].state, 'T' | 't');
        let stopped = families
            .into_iter()
            .filter(|(_, family)| family.iter().any(is_stopped))
            .map(|(index, _)| index)
            .collect();
        let rest = self.rest();
        let reported = StacksReported {
            idle_ms: millis(now.saturating_duration_since(rest.since)),
            computing: computing(&rest.computing, &stacks),
            stopped,
        };
        let stacks = stacks
            .into_iter()
            .map(|stack| Event::Stack(Box::new(stack)));
        stacks.chain([Event::StacksReported(reported)]).collect()
    }
}

/// What those do that compute and stand still.
fn computing(processes: &[ProcessHandle], stacks: &[ProcessStacks]) -> Option<Computing> {
    let waits = |process: &ProcessHandle| {
        let is_its = |stack: &&ProcessStacks| stack.record.pid.cast_signed() == process.pid;
        let stack = stacks.iter().find(is_its)?;
        stacks::wait(stack.record.main_frames()?)
    };
    let works = |process| waits(process).is_none_or(stacks::Wait::may_be_work);
    match processes {
        [] => None,
        all if all.iter().any(works) => Some(Computing::MayWork),
        _ => Some(Computing::Waits),
    }
}
