//! A clock for waiting for others. It counts only time in which this program ran: after a SIGSTOP
//! or Ctrl-Z, answers that have arrived meanwhile are still to be read.

use std::time::{Duration, Instant};

/// The longest wait between two readings. In a longer time between them, the program did not run.
const TURN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub struct RunningClock {
    time: Duration,
    read_at: Instant,
}

impl RunningClock {
    pub fn begin() -> RunningClock {
        RunningClock {
            time: Duration::ZERO,
            read_at: Instant::now(),
        }
    }

    /// The time since the clock began.
    pub fn now(&mut self) -> Duration {
        self.read(Instant::now())
    }

    /// How long to wait now for something that may take until then; zero if that time is over.
    pub fn turn(&mut self, until: Duration) -> Duration {
        until.saturating_sub(self.now()).min(TURN)
    }

    fn read(&mut self, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(self.read_at);
        self.read_at = now;
        self.time += gap.min(TURN);
        self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_program_is_stopped_does_not_count() {
        let mut clock = RunningClock::begin();
        let begun = clock.read_at;
        // the program is stopped between 1.5 s and 67 s
        for (millis, expected) in [(500, 500), (1500, 1500), (67_000, 2500), (67_900, 3400)] {
            let time = clock.read(begun + Duration::from_millis(millis));
            assert_eq!(time, Duration::from_millis(expected), "{millis}");
        }
        assert_eq!(clock.turn(Duration::ZERO), Duration::ZERO);
        assert_eq!(clock.turn(Duration::from_secs(60)), TURN);
    }
}
