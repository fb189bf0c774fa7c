//! For how long processes that compute have stood at one place ([`crate::stacks::place`]), from one
//! look at their stacks to the next.

use crate::processes::ProcessHandle;
use crate::stacks::place::Place;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Looks in the stall timeout. Of [`ENOUGH_LOOKS`] two may be late or fail.
const LOOKS: u32 = 12;
/// So many looks must have found a process at one place. One that is at a line for 9 tenths of its
/// time is found there by 10 looks in a row in 35 of 100 cases, but its variables change too.
const ENOUGH_LOOKS: u32 = 10;
/// The shortest time between two looks: a look reads a Python in about 25 ms, and the job must not
/// feel it.
const QUICKEST: Duration = Duration::from_millis(400);
/// A look this late says nothing about the time since the last one, nor does it if it fails, on a
/// host that has much else to do. It is three times the time between two looks if that is longer.
const LATE: Duration = Duration::from_secs(5);

/// The places of the processes of a host that compute.
#[derive(Debug)]
pub struct PlaceWatch {
    pace: Duration,
    /// When the last look began.
    begun: Option<Instant>,
    is_looking: bool,
    seen: HashMap<ProcessHandle, Seen>,
}

/// A process at one place.
#[derive(Debug)]
struct Seen {
    place: Place,
    since: Instant,
    latest: Instant,
    looks: u32,
}

impl PlaceWatch {
    pub fn new(stall: Duration) -> PlaceWatch {
        PlaceWatch {
            pace: (stall / LOOKS).max(QUICKEST),
            begun: None,
            is_looking: false,
            seen: HashMap::new(),
        }
    }

    /// The time between two looks.
    pub fn pace(&self) -> Duration {
        self.pace
    }

    /// Whether it is time for a look.
    pub fn is_due(&self, now: Instant) -> bool {
        !self.is_looking && self.begun.is_none_or(|begun| now >= begun + self.pace)
    }

    /// A look begins.
    pub fn begin_look(&mut self, now: Instant) {
        (self.begun, self.is_looking) = (Some(now), true);
    }

    /// A look has found these processes at these places.
    pub fn end_look(&mut self, places: &[(ProcessHandle, Place)], now: Instant) {
        self.is_looking = false;
        let late = self.late();
        // whoever has ended is not found again
        self.seen.retain(|_, seen| now <= seen.latest + late);
        for (process, place) in places {
            let seen = self.seen.entry(*process).or_insert(Seen {
                place: *place,
                since: now,
                latest: now,
                looks: 0,
            });
            if seen.place != *place {
                (seen.place, seen.since, seen.looks) = (*place, now, 0);
            }
            seen.latest = now;
            seen.looks += 1;
        }
    }

    /// Since when a process that computed at this time has stood at one place, if enough looks have
    /// shown it.
    pub fn unchanged_since(&self, process: ProcessHandle, computed: Instant) -> Option<Instant> {
        let seen = self.seen.get(&process)?;
        let is_known = seen.looks >= ENOUGH_LOOKS && computed <= seen.latest + self.late();
        is_known.then_some(seen.since)
    }

    /// Forgets all places.
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

    /// Looks at these seconds, with the place found or `None`; a stall takes 120 s. Says since
    /// which second the process has stood at its place, if it computed at the last look.
    fn unchanged(looks: &[(u64, Option<u64>)]) -> Option<u64> {
        let mut watch = PlaceWatch::new(Duration::from_secs(120));
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        for (second, place) in looks {
            assert!(watch.is_due(at(*second)), "{looks:?}");
            watch.begin_look(at(*second));
            assert!(!watch.is_due(at(second + 60)));
            let place = place.map(|place| (PROCESS, Place::of(place)));
            watch.end_look(place.as_slice(), at(*second));
        }
        let since = watch.unchanged_since(PROCESS, at(looks.last()?.0))?;
        Some(since.duration_since(begun).as_secs())
    }

    /// Looks every 10 s at the same place.
    fn steady(from: u64, count: u64, place: u64) -> Vec<(u64, Option<u64>)> {
        (0..count).map(|k| (from + 10 * k, Some(place))).collect()
    }

    #[test]
    fn a_process_stands_still_if_enough_looks_say_so() {
        let failing = [(110, None), (120, None)];
        let table = [
            ("too few looks", steady(0, 9, 1), None),
            ("enough", steady(0, 10, 1), Some(0)),
            (
                "it went on at the last look",
                [steady(0, 11, 1), steady(110, 1, 2)].concat(),
                None,
            ),
            (
                "it went on, and has stood still since",
                [steady(0, 3, 1), steady(30, 10, 2)].concat(),
                Some(30),
            ),
            (
                "two looks failed",
                [steady(0, 11, 1), failing.to_vec(), steady(130, 1, 1)].concat(),
                Some(0),
            ),
            (
                "nobody looked for long",
                [steady(0, 11, 1), steady(140, 9, 1)].concat(),
                None,
            ),
        ];
        for (case, looks, expected) in table {
            assert_eq!(unchanged(&looks), expected, "{case}");
        }
    }

    #[test]
    fn what_a_process_computes_long_after_the_last_look_is_not_known() {
        let mut watch = PlaceWatch::new(Duration::from_secs(120));
        let now = Instant::now();
        for _ in 0..ENOUGH_LOOKS {
            watch.end_look(&[(PROCESS, Place::of(1))], now);
        }
        let after = |seconds| watch.unchanged_since(PROCESS, now + Duration::from_secs(seconds));
        assert_eq!((after(30), after(31)), (Some(now), None));
        watch.clear();
        assert_eq!(watch.unchanged_since(PROCESS, now), None);
    }
}
