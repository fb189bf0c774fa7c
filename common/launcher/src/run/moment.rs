//! When something happened: for records by this machine's clock, for spans of time by one that does
//! not jump.

use record::term::now_ms;
use std::time::{Duration, Instant};
use wire::keep::Past;

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the clock that nobody sets.
    pub at: Instant,
    /// Milliseconds since 1970, by this machine's clock.
    pub time_ms: u64,
}

impl Moment {
    /// This one.
    pub fn now() -> Moment {
        Moment {
            at: Instant::now(),
            time_ms: now_ms(),
        }
    }

    /// That of an entry that a host reports now. The clock of a host may stand years away, so how
    /// long ago it was counts; without that, as after a new start of the host, its clock has to do.
    pub fn of_past(past: &Past, now: Moment) -> Moment {
        let by_its_clock = now.time_ms.saturating_sub(past.time_ms);
        let ago_ms = past.ago_ms.unwrap_or(by_its_clock).min(now.time_ms);
        let at = now.at.checked_sub(Duration::from_millis(ago_ms));
        Moment {
            at: at.unwrap_or(now.at),
            time_ms: now.time_ms - ago_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Event;

    #[test]
    fn what_a_host_tells_of_is_timed_by_this_machines_clock() {
        let now = Moment {
            at: Instant::now(),
            time_ms: 1_800_000_000_000,
        };
        let years_ms = 1_000_000_000_000;
        let table = [
            ("its clock is right", now.time_ms - 7000, Some(7000), 7000),
            (
                "it stands years back",
                now.time_ms - years_ms,
                Some(7000),
                7000,
            ),
            (
                "it stands years ahead",
                now.time_ms + years_ms,
                Some(7000),
                7000,
            ),
            ("only its clock tells", now.time_ms - 7000, None, 7000),
            ("and that stands ahead", now.time_ms + years_ms, None, 0),
            (
                "nobody can have waited so long",
                0,
                Some(u64::MAX),
                now.time_ms,
            ),
        ];
        for (what, time_ms, ago_ms, expected_ms) in table {
            let past = Past {
                time_ms,
                uptime_ms: None,
                ago_ms,
                what: Box::new(Event::Ready),
            };
            let moment = Moment::of_past(&past, now);
            assert_eq!(now.time_ms - moment.time_ms, expected_ms, "{what}");
            let span = now.at.saturating_duration_since(moment.at);
            assert!(
                span == Duration::from_millis(expected_ms) || ago_ms == Some(u64::MAX),
                "{what}: {span:?}"
            );
        }
    }
}
