//! Detects that this program did not run for a while: it was stopped (SIGSTOP), or its machine
//! slept. The silence of other machines in that time means nothing.

use std::time::Duration;

/// The longest interval of heartbeats, in both directions of a connection.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The interval of heartbeats to a peer that considers this side lost after `patience`: at most a
/// sixth of that.
pub fn heartbeat(patience: Duration) -> Duration {
    HEARTBEAT.min(patience / 6)
}

/// Watches a loop that runs at least once per heartbeat.
#[derive(Clone, Copy, Debug, Default)]
pub struct PauseWatch {
    last: Option<Duration>,
}

impl PauseWatch {
    /// Notes that the loop runs, by a clock that continues while the machine sleeps. Returns for
    /// how long it did not run, if its peers may have considered it lost.
    pub fn turn(&mut self, now: Duration, patience: Duration) -> Option<Duration> {
        let gap = now.saturating_sub(self.last.replace(now)?);
        // the last heartbeat may have been sent that long before the gap
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
