//! The activity of the job on this host: reports about idle processes, exceptions and stacks. The
//! launcher decides what the reports of all hosts mean for the job ([`job::StallWatch`]).

use super::activity_watch::{ActivityWatch, Rest};
use super::exception_watch::{ExceptionStep, ExceptionWatch};
use super::members::{Running, families};
use super::position_watch::PositionWatch;
use super::stack_jobs::{StackJobs, StackSubject};
use host::processes::ProcessHandle;
use host::procfs;
use record::term::millis;
use record::{Sign, stacks};
use std::time::{Duration, Instant};
use wire::Event;
use wire::job::Job;
use wire::stacks::ProcessStacks;
use wire::supervise::{Activity, Computing, ProcessStream, StacksReported, Start};

/// The interval of samples is a tenth of the stall timeout, within these limits. A longer one would
/// detect a stall too late.
const QUICKEST: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Liveness {
    /// Zero without detection of stalls.
    stall: Duration,
    activity: ActivityWatch,
    positions: PositionWatch,
    exceptions: ExceptionWatch,
    stack_jobs: StackJobs,
    /// Whether the last report to the launcher was that everything is idle.
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

    /// A process was started, listens, or wrote something.
    pub fn moved(&mut self, index: u32, sign: Sign) {
        self.activity.sign(index, sign, Instant::now());
    }

    /// Output of a process that serves others is no activity of the job: it may regularly log that
    /// it runs.
    pub fn wrote(&mut self, index: u32, serves: bool, stream: ProcessStream, bytes: &[u8]) {
        let now = Instant::now();
        if serves {
            self.activity.note(index, now);
        } else {
            self.activity.sign(index, Sign::Output, now);
        }
        self.exceptions.wrote(index, stream, bytes, now);
    }

    pub fn ended(&mut self, index: u32) {
        self.moved(index, Sign::Ended);
        self.exceptions.ended(index);
    }

    /// The launcher reads slowly, so that processes may be blocked on their output.
    pub fn reset_idle(&mut self) {
        self.activity.reset_idle(Instant::now());
        self.positions.clear();
    }

    pub fn ask(&mut self) {
        self.stack_jobs.ask(StackSubject::All);
    }

    /// Begins to read the stacks of all processes, because the job has failed and will be ended.
    /// [`Liveness::take_stacks`] returns them.
    pub fn survey(&mut self, job: &Job, running: &[Running]) {
        self.stack_jobs.ask(StackSubject::AtEnd);
        self.stack_jobs.begin(job, running);
    }

    pub fn is_surveying(&self) -> bool {
        self.stack_jobs.is_at_end()
    }

    /// Returns the events to report.
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

    /// Samples processes that compute without other activity, if that is due.
    fn sample_positions(&mut self, now: Instant) {
        if self.needs_positions(now) && self.positions.is_due(now) {
            let computed = self.activity.computed();
            if self.stack_jobs.ask(StackSubject::Positions(computed)) {
                self.positions.begin_sample(now);
            }
        }
    }

    /// Whether CPU time has been the only activity for a while.
    fn needs_positions(&self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.activity.last_moved());
        let is_quiet = !self.stall.is_zero() && quiet >= self.positions.pace();
        is_quiet && !self.activity.computed().is_empty()
    }

    fn rest(&self) -> Rest {
        self.activity
            .rest(|process, computed| self.positions.unchanged_since(process, computed))
    }

    /// The report that a process is active again, if all were last reported as idle.
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

    /// Whether this must be called more than once a second, because stacks are being read or
    /// samples are more frequent.
    pub fn is_hurried(&self) -> bool {
        let has_short_limit = self.positions.pace() < Duration::from_secs(1);
        self.stack_jobs.is_reading() || has_short_limit && self.needs_positions(Instant::now())
    }

    /// Returns the events to report.
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
        let families = families(
            &stats,
            running.iter().map(|process| (process.index, process.pid)),
        );
        // a shell may be the parent of the trainer
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

/// What the processes do that compute at one position.
fn computing(processes: &[ProcessHandle], stacks: &[ProcessStacks]) -> Option<Computing> {
    let waits = |process: &ProcessHandle| {
        let belongs = |stack: &&ProcessStacks| stack.record.pid.cast_signed() == process.pid;
        let stack = stacks.iter().find(belongs)?;
        stacks::wait(stack.record.main_frames()?)
    };
    let works = |process| waits(process).is_none_or(stacks::Wait::may_be_work);
    match processes {
        [] => None,
        processes if processes.iter().any(works) => Some(Computing::MayWork),
        _ => Some(Computing::Waits),
    }
}
