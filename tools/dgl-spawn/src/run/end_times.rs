//! When the end of a job goes on, once it has begun.

use std::time::{Duration, Instant};
use wire::Request;
use wire::supervise::End;

/// How long the end may take beyond the grace, for KILL and the removal of shared memory.
const END_LIMIT: Duration = Duration::from_secs(15);
/// How long before TERM the ABRT comes.
const STACKS: Duration = Duration::from_secs(1);
/// When the end of a job takes longer than this, people are told what is waited for.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

pub struct EndTimes {
    /// When KILL is sent to processes that have not ended.
    kill_at: Instant,
    /// When processes that have not ended are given up.
    give_up_at: Instant,
    /// When people are told that the end takes long; `None` once they were.
    notice_at: Option<Instant>,
}

impl EndTimes {
    /// The times after a request to all hosts, of which the first to end counts, and those to kill.
    pub fn after(
        request: &Request,
        before: Option<EndTimes>,
        grace: Duration,
        now: Instant,
    ) -> Option<EndTimes> {
        let kill_at = match (request, before) {
            (Request::Kill, Some(times)) => {
                return Some(EndTimes {
                    kill_at: now,
                    notice_at: None,
                    ..times
                });
            }
            (Request::Kill, None) => now + grace,
            (Request::End(End { stacks, .. }), None) => {
                let stacks = if *stacks { STACKS } else { Duration::ZERO };
                now + stacks + grace
            }
            (_, before) => return before,
        };
        Some(EndTimes {
            kill_at,
            give_up_at: kill_at + END_LIMIT,
            notice_at: Some(now + NOTICE_AFTER),
        })
    }

    /// How long processes have before KILL.
    pub fn left(&self, now: Instant) -> Duration {
        self.kill_at.saturating_duration_since(now)
    }

    /// Whether processes that have not ended are given up.
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.give_up_at
    }

    /// How long processes have before KILL, if people are to be told now.
    pub fn notice(&mut self, now: Instant) -> Option<Duration> {
        self.notice_at.take_if(|at| now >= *at)?;
        Some(self.left(now)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn end(stacks: bool) -> Request {
        Request::End(End {
            grace_ms: 0,
            stacks,
            ending: job::Ending::default(),
        })
    }

    #[test]
    fn the_first_end_counts_and_each_kill() {
        let now = Instant::now();
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        assert!(EndTimes::after(&Request::Alive, None, GRACE, now).is_none());
        for (stacks, kill_at) in [(false, 10), (true, 11)] {
            let times = EndTimes::after(&end(stacks), None, GRACE, now).unwrap();
            assert_eq!(times.left(now), Duration::from_secs(kill_at));
            assert!(!times.is_over(at(kill_at + 14)) && times.is_over(at(kill_at + 15)));
            let again = EndTimes::after(&end(true), Some(times), GRACE, at(5)).unwrap();
            assert_eq!(again.left(at(5)), Duration::from_secs(kill_at - 5));
            let killed = EndTimes::after(&Request::Kill, Some(again), GRACE, at(6)).unwrap();
            assert_eq!(killed.left(at(6)), Duration::ZERO);
        }
    }

    #[test]
    fn people_are_told_once_what_a_long_end_waits_for() {
        let now = Instant::now();
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let mut times = EndTimes::after(&end(false), None, GRACE, now).unwrap();
        assert_eq!(times.notice(at(1)), None);
        assert_eq!(times.notice(at(2)), Some(Duration::from_secs(8)));
        assert_eq!(times.notice(at(3)), None);
        // nothing is left to wait for
        let mut late = EndTimes::after(&end(false), None, GRACE, now).unwrap();
        assert_eq!(late.notice(at(10)), None);
    }
}
