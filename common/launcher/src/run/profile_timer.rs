//! When to sample the stacks of a job for a profile.

use crate::plan;
use record::term::millis;
use std::time::Instant;
use wire::Request;
use wire::reap::Pick;
use wire::stacks::RecordStacks;

/// How many times per second the stacks are read.
const RATE: u32 = 10;

/// Requests a profile once in each attempt of a job.
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

    /// The request for all hosts, when it is due.
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
