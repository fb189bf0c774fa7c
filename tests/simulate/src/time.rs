//! Simulated time: microseconds since the beginning, and the clocks that show it.

use std::time::{Duration, Instant};

pub type Micros = u64;

pub const FOREVER: Micros = Micros::MAX;
pub const MS: Micros = 1000;
pub const SECOND: Micros = 1_000_000;

/// A monotonic clock: it stands still while its machine sleeps, and may jump ahead.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Instant,
    /// How long its machine has slept. While it sleeps, nobody reads the clock.
    pub slept: Micros,
    pub jumped: Micros,
}

impl Clock {
    pub fn new(base: Instant) -> Clock {
        Clock {
            base,
            slept: 0,
            jumped: 0,
        }
    }

    pub fn read(&self, now: Micros) -> Instant {
        let shown = (now + self.jumped).saturating_sub(self.slept);
        self.base + Duration::from_micros(shown)
    }

    /// The time that goes on while the machine sleeps.
    pub fn uptime(&self, now: Micros) -> Duration {
        Duration::from_micros(now + self.jumped)
    }

    /// When this clock will show a time, if nothing happens to it.
    pub fn when(&self, shown: Instant, now: Micros) -> Micros {
        let left = shown.saturating_duration_since(self.read(now));
        now + micros(left)
    }
}

pub fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(FOREVER)
}
