//! The times of the steps of a job's end.

use crate::plan::JobPlan;
use job::STACKS_TIME;
use std::time::{Duration, Instant};
use wire::Request;
use wire::supervise::End;

/// How long the end may take on a host after the grace time, for KILL and the removal of shared
/// memory.
const END_LIMIT: Duration = Duration::from_secs(15);
/// After this time, a message reports what the end of the job waits for.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// The times of the next steps; all `None` before the end has begun.
#[derive(Default)]
pub struct EndTimes(Option<Times>);

struct Times {
    /// When KILL is sent to processes that have not ended.
    kill_at: Instant,
    /// When the launcher gives up hosts that still send messages, but have not reported their end.
    /// Silent hosts are lost earlier.
    give_up_at: Instant,
    /// When to report that the end takes long; `None` after the report.
    notice_at: Option<Instant>,
}

impl EndTimes {
    /// Notes a request that was sent to all hosts and may begin or shorten the end.
    pub fn note(&mut self, request: &Request, plan: &JobPlan, now: Instant) {
        let grace = plan.rules.grace;
        let kill_at = match (request, &mut self.0) {
            (Request::Kill, Some(times)) => {
                (times.kill_at, times.notice_at) = (now, None);
                // somebody is impatient
                times.give_up_at = times.give_up_at.min(now + END_LIMIT);
                return;
            }
            (Request::Kill, None) => now + grace,
            (Request::End(End { stacks, .. }), None) => {
                let stacks = if *stacks { STACKS_TIME } else { Duration::ZERO };
                now + stacks + grace
            }
            _ => return,
        };
        // the request or the report may be late by as long as a host may be silent
        let silence = plan.host_timeout;
        self.0 = Some(Times {
            kill_at,
            give_up_at: kill_at + silence + END_LIMIT,
            notice_at: Some(now + NOTICE_AFTER),
        });
    }

    /// Whether the launcher gives up hosts that have not reported their end.
    pub fn are_over(&self, now: Instant) -> bool {
        self.0.as_ref().is_some_and(|times| now >= times.give_up_at)
    }

    /// The time left until KILL, once the end has begun.
    pub fn kill_in(&self, now: Instant) -> Option<Duration> {
        let times = self.0.as_ref()?;
        let left = times.kill_at.saturating_duration_since(now);
        Some(left).filter(|left| !left.is_zero())
    }

    /// The same, once, when it is time to report that the end takes long.
    pub fn take_notice(&mut self, now: Instant) -> Option<Duration> {
        let left = self.kill_in(now);
        let times = self.0.as_mut()?;
        times.notice_at.take_if(|notice_at| now >= *notice_at)?;
        left
    }
}
