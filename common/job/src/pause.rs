//! Notices that this program did not run for a while: it was stopped (SIGSTOP), or its machine
//! slept. The others were then silent only because nobody listened to them.

use std::time::Duration;

/// How often either side of a connection gives a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How often to give a sign of life to a side that takes us for gone after `patience`: six of them
/// fit into it.
pub fn heartbeat(patience: Duration) -> Duration {
    HEARTBEAT.min(patience / 6)
}

/// Watches a loop that turns at least as often as it gives a sign of life.
#[derive(Clone, Copy, Debug, Default)]
pub struct PauseWatch {
    last: Option<Duration>,
}

impl PauseWatch {
    /// The loop turns, at this time of a clock that goes on while the machine sleeps. Returns for
    /// how long it did not turn, if the other sides have taken it for gone meanwhile.
    pub fn turn(&mut self, now: Duration, patience: Duration) -> Option<Duration> {
        let gap = now.saturating_sub(self.last.replace(now)?);
        // the last sign of life may have been given that long before
        (gap + heartbeat(patience) >= patience).then_some(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_others_wait() {
        let mut watch = PauseWatch::default();
        let turns = [
            (100, None),
            (105, None),
            (154, None),
            (209, Some(55)),
            (210, None),
        ];
        for (now, expected) in turns {
            let gap = watch.turn(Duration::from_secs(now), Duration::from_secs(60));
            assert_eq!(gap, expected.map(Duration::from_secs), "{now}");
        }
        let mut short = PauseWatch::default();
        assert_eq!(short.turn(Duration::ZERO, Duration::from_secs(6)), None);
        let gap = Duration::from_secs(5);
        assert_eq!(short.turn(gap, Duration::from_secs(6)), Some(gap));
    }
}
