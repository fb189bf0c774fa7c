//! When a job is recorded that is to be.

use crate::plan;
use record::term::millis;
use std::time::Instant;
use wire::Request;
use wire::reap::Pick;
use wire::stacks::RecordStacks;

/// How often a second the stacks of processes are read.
const RATE: u32 = 10;

/// Asks for a profile once in each try of a job.
#[derive(Default)]
pub struct ProfileTimer {
    /// When all processes were started.
    all_started: Option<Instant>,
    is_asked: bool,
}

impl ProfileTimer {
    /// Whether the hosts were asked.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// The request to all hosts, when it is due.
    pub fn take_due(
        &mut self,
        plan: &plan::JobPlan,
        are_all_started: bool,
        now: Instant,
    ) -> Option<Request> {
        let times = plan.profile?;
        if are_all_started {
            self.all_started.get_or_insert(now);
        }
        let is_due = self
            .all_started
            .is_some_and(|start| now >= start + times.after);
        if !is_due || std::mem::replace(&mut self.is_asked, true) {
            return None;
        }
        Some(Request::RecordStacks(RecordStacks {
            pick: Pick {
                job: Some(plan.name.clone()),
                ..Pick::default()
            },
            time_ms: millis(times.time),
            rate: RATE,
        }))
    }
}
