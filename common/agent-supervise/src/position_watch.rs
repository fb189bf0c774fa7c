//! For how long processes that compute have been at one position ([`agent_stacks::position`]), by
//! samples of their stacks.

use agent_stacks::position::Position;
use host::processes::ProcessHandle;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Samples per stall timeout. Two of them may be late or fail, see [`ENOUGH_SAMPLES`].
const SAMPLES: u32 = 12;
/// How many samples must have found a process at one position. A process that spends 9 tenths of
/// its time at one line is found there by 10 samples in a row in 35 of 100 cases, but its variables
/// change, too.
const ENOUGH_SAMPLES: u32 = 10;
/// The shortest time between samples: reading a Python takes about 25 ms, and must not slow the job
/// down.
const QUICKEST: Duration = Duration::from_millis(400);
/// A sample that is this late, or fails, proves nothing about the time since the last one. The
/// limit is three times the pace if that is longer.
const LATE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct PositionWatch {
    pace: Duration,
    begun: Option<Instant>,
    is_sampling: bool,
    seen: HashMap<ProcessHandle, Seen>,
}

#[derive(Debug)]
struct Seen {
    position: Position,
    since: Instant,
    latest: Instant,
    samples: u32,
}

impl PositionWatch {
    pub fn new(stall: Duration) -> PositionWatch {
        PositionWatch {
            pace: (stall / SAMPLES).max(QUICKEST),
            begun: None,
            is_sampling: false,
            seen: HashMap::new(),
        }
    }

    pub fn pace(&self) -> Duration {
        self.pace
    }

    pub fn is_due(&self, now: Instant) -> bool {
        !self.is_sampling && self.begun.is_none_or(|begun| now >= begun + self.pace)
    }

    pub fn begin_sample(&mut self, now: Instant) {
        (self.begun, self.is_sampling) = (Some(now), true);
    }

    pub fn end_sample(&mut self, positions: &[(ProcessHandle, Position)], now: Instant) {
        self.is_sampling = false;
        let late = self.late();
        // drops processes that have ended
        self.seen.retain(|_, seen| now <= seen.latest + late);
        for (process, position) in positions {
            let seen = self.seen.entry(*process).or_insert(Seen {
                position: *position,
                since: now,
                latest: now,
                samples: 0,
            });
            if seen.position != *position {
                (seen.position, seen.since, seen.samples) = (*position, now, 0);
            }
            seen.latest = now;
            seen.samples += 1;
        }
    }

    /// Since when a process that computed at this time has been at one position, if enough samples
    /// show it.
    pub fn unchanged_since(&self, process: ProcessHandle, computed: Instant) -> Option<Instant> {
        let seen = self.seen.get(&process)?;
        let is_known = seen.samples >= ENOUGH_SAMPLES && computed <= seen.latest + self.late();
        is_known.then_some(seen.since)
    }

    pub fn clear(&mut self) {
        self.seen.clear();
    }

    fn late(&self) -> Duration {
        LATE.max(self.pace * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessHandle = ProcessHandle {
        pid: 7,
        start_ticks: 1,
    };

    /// Samples at these seconds, with the found position or `None`; the stall timeout is 120 s.
    /// Returns since which second the process has been at its position, if it computed at the last
    /// sample.
    fn unchanged(samples: &[(u64, Option<u64>)]) -> Option<u64> {
        let mut watch = PositionWatch::new(Duration::from_secs(120));
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        for (second, position) in samples {
            assert!(watch.is_due(after(*second)), "{samples:?}");
            watch.begin_sample(after(*second));
            assert!(!watch.is_due(after(second + 60)));
            let position = position.map(|position| (PROCESS, Position(position)));
            watch.end_sample(position.as_slice(), after(*second));
        }
        let since = watch.unchanged_since(PROCESS, after(samples.last()?.0))?;
        Some(since.duration_since(begun).as_secs())
    }

    /// Samples every 10 s at the same position.
    fn steady(from: u64, count: u64, position: u64) -> Vec<(u64, Option<u64>)> {
        (0..count)
            .map(|k| (from + 10 * k, Some(position)))
            .collect()
    }

    #[test]
    fn a_process_stands_still_if_enough_samples_say_so() {
        let failing = [(110, None), (120, None)];
        let table = [
            ("too few samples", steady(0, 9, 1), None),
            ("enough", steady(0, 10, 1), Some(0)),
            (
                "it made progress at the last sample",
                [steady(0, 11, 1), steady(110, 1, 2)].concat(),
                None,
            ),
            (
                "it made progress, but not since",
                [steady(0, 3, 1), steady(30, 10, 2)].concat(),
                Some(30),
            ),
            (
                "two samples failed",
                [steady(0, 11, 1), failing.to_vec(), steady(130, 1, 1)].concat(),
                Some(0),
            ),
            (
                "there was no sample for long",
                [steady(0, 11, 1), steady(140, 9, 1)].concat(),
                None,
            ),
        ];
        for (case, samples, expected) in table {
            assert_eq!(unchanged(&samples), expected, "{case}");
        }
    }

    #[test]
    fn what_a_process_computes_long_after_the_last_sample_is_not_known() {
        let mut watch = PositionWatch::new(Duration::from_secs(120));
        let now = Instant::now();
        for _ in 0..ENOUGH_SAMPLES {
            watch.end_sample(&[(PROCESS, Position(1))], now);
        }
        let after = |seconds| watch.unchanged_since(PROCESS, now + Duration::from_secs(seconds));
        assert_eq!((after(30), after(31)), (Some(now), None));
        watch.clear();
        assert_eq!(watch.unchanged_since(PROCESS, now), None);
    }
}
