//! A rate limit of all hosts together, for users who share an uplink.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The bytes of this time may be sent at once after a pause, so that a block waits only for its
/// own.
const BURST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct RateLimit {
    bytes_per_second: u64,
    /// When all admitted bytes will have been sent at that rate.
    gone: Mutex<Option<Instant>>,
}

impl RateLimit {
    pub fn new(bytes_per_second: u64) -> RateLimit {
        RateLimit {
            bytes_per_second: bytes_per_second.max(1),
            gone: Mutex::new(None),
        }
    }

    pub fn takes(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64)
    }

    /// Returns how long these bytes have to wait.
    pub(crate) fn let_through(&self, bytes: u64, now: Instant) -> Duration {
        let mut gone = self.gone.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let start = gone.map_or(earliest, |gone| gone.max(earliest));
        *gone = Some(start + self.takes(bytes));
        start.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_through_keeps_to_the_rate() {
        let (limit, now) = (RateLimit::new(1_000_000), Instant::now());
        let after = |ms| now + Duration::from_millis(ms);
        let table = [
            // after this time, this many bytes arrive and wait this long
            (0, 1_000_000, 0),
            (0, 500_000, 900),
            (1000, 1, 400),
            // after a pause, only a burst is allowed
            (60_000, 1_000_000, 0),
            (60_000, 1, 900),
        ];
        for (ms, bytes, waits) in table {
            let got = limit.let_through(bytes, after(ms));
            assert_eq!(got.as_millis(), waits, "{ms} {bytes}");
        }
    }
}
