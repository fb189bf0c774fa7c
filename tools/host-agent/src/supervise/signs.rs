//! Whether the job moves, as far as this host sees it: reports about processes that are idle, that
//! have raised an exception, and where they stand. What that means for the job is decided by
//! whoever sees all hosts ([`job::StallWatch`]).

use super::activity::{ActivityWatch, Watched};
use super::exceptions::{ExceptionWatch, Step};
use super::standing::{Root, Standing, Subject};
use super::usage::families;
use crate::procfs::{self, Stat};
use job::Role;
use record::Sign;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use wire::Event;
use wire::job::Job;
use wire::supervise::{Idle, Moves, Stand, Stands, Start, Stream};

/// The pace of looks is a tenth of the stall timeout within these limits. Slower ones would notice
/// a stall too late.
const QUICKEST: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(10);

/// The signs of life of all processes of the host.
#[derive(Debug)]
pub struct Signs {
    /// The stall timeout; zero if nobody wants to know about stalls.
    stall: Duration,
    activity: ActivityWatch,
    exceptions: ExceptionWatch,
    standing: Standing,
    /// Whether the launcher believes that everything is idle.
    told_idle: bool,
}

/// A running process, as watchers need it.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub root: Root,
    /// Whether it is a server that listens.
    pub listens: bool,
}

impl Signs {
    pub fn begin(start: &Start, now: Instant) -> Signs {
        let stall = Duration::from_millis(start.stall_ms);
        Signs {
            stall,
            activity: ActivityWatch::begin((stall / 10).clamp(QUICKEST, SLOWEST), now),
            exceptions: ExceptionWatch::new(stall, start.fail_on_exception),
            standing: Standing::default(),
            told_idle: false,
        }
    }

    /// Notes that a process was started, listens, or wrote something.
    pub fn moved(&mut self, index: u32, sign: Sign) {
        self.activity.sign(index, sign, Instant::now());
    }

    /// Notes that a process wrote something.
    pub fn wrote(&mut self, index: u32, stream: Stream, bytes: &[u8]) {
        let now = Instant::now();
        self.activity.sign(index, Sign::Output, now);
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
    }

    /// Notes that the launcher wants to know where all processes stand.
    pub fn ask(&mut self, stand: Stand) {
        self.standing.ask(Subject::All(stand.number));
    }

    /// Examines the running processes; returns the events to report.
    pub fn look(&mut self, job: &Job, running: &[Running]) -> Vec<Event> {
        let now = Instant::now();
        let wanted = self.exceptions.pending();
        let mut events = Vec::new();
        let is_watched = !self.stall.is_zero() || !wanted.is_empty();
        let is_due = is_watched && self.activity.is_due(now);
        if is_due {
            let watched: Vec<Watched> = running.iter().map(watched).collect();
            self.activity.look(&watched, &wanted, now);
        }
        if !self.stall.is_zero() {
            let idle = self.activity.idle(now);
            let is_idle = idle >= self.stall;
            if is_idle && is_due {
                self.told_idle = true;
                events.push(Event::Idle(Idle {
                    for_ms: millis(idle),
                }));
            }
        }
        let steps = self
            .exceptions
            .steps(now, |index| self.activity.idle_of(index, now));
        for step in steps {
            match step {
                Step::Look(index) => {
                    if !self.standing.ask(Subject::One(index)) {
                        self.exceptions.looked(index, &[]);
                    }
                }
                Step::Tell(raised) => events.push(Event::Raised(raised)),
            }
        }
        let roots: Vec<Root> = running.iter().map(|one| one.root).collect();
        self.standing.begin(&job.name, &job.token, &roots);
        events
    }

    /// The process that moves again, if that is to be reported because the launcher believes that
    /// all are idle.
    pub fn move_again(&mut self) -> Option<Moves> {
        let moves = self.told_idle && self.activity.idle(Instant::now()) < self.stall;
        self.told_idle &= !moves;
        moves.then(|| {
            let (index, sign) = self.activity.last_by().unzip();
            Moves { index, sign }
        })
    }

    /// The descriptor that tells that stacks have been read.
    pub fn wait_for(&self) -> Option<BorrowedFd<'_>> {
        self.standing.wait_for()
    }

    /// Whether stacks take so long to be read that what there is of them must do.
    pub fn are_stacks_overdue(&self) -> bool {
        self.standing.is_overdue()
    }

    /// Takes the stacks that have been read; returns the events to report.
    pub fn take_stacks(&mut self, running: &[Running]) -> Vec<Event> {
        let Some((subject, stacks)) = self.standing.take() else {
            return Vec::new();
        };
        let number = match subject {
            Subject::One(index) => {
                self.exceptions.looked(index, &stacks);
                return Vec::new();
            }
            Subject::All(number) => number,
        };
        let stats: BTreeMap<i32, Stat> = procfs::pids()
            .into_iter()
            .filter_map(|pid| Some((pid, procfs::stat(pid)?)))
            .collect();
        let roots = running.iter().map(|one| (one.root.index, one.root.pid));
        let roots: Vec<(u32, i32)> = roots.collect();
        // a shell may stand before the trainer
        let is_stopped = |family: &BTreeSet<i32>| {
            let mut states = family.iter().map(|pid| stats[pid].state);
            states.any(|state| matches!(state, 'T' | 't'))
        };
        let stands = Stands {
            number,
            idle_ms: millis(self.activity.idle(Instant::now())),
            stopped: families(&stats, &roots)
                .into_iter()
                .filter(|(_, family)| is_stopped(family))
                .map(|(index, _)| index)
                .collect(),
        };
        let stacks = stacks.into_iter().map(Event::Stack);
        stacks.chain([Event::Stands(stands)]).collect()
    }
}

/// A running process as the activity watch needs it. A graph server that listens works only for its
/// clients, which would move too.
fn watched(running: &Running) -> Watched {
    Watched {
        index: running.root.index,
        pid: running.root.pid,
        computes: running.root.role != Role::Server || !running.listens,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
