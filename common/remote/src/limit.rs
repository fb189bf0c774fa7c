//! A rate limit that all hosts share, for people who share an uplink with others.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How much time's worth of bytes may go at once after a pause, so that a block waits only for its
/// own bytes.
const BURST: Duration = Duration::from_millis(100);

/// A limit of bytes a second over all connections.
#[derive(Debug)]
pub struct Limit {
    bytes_per_second: u64,
    /// When everything that was let through so far has gone at that rate.
    gone: Mutex<Option<Instant>>,
}

impl Limit {
    /// Creates a limit of this many bytes a second, at least one.
    pub fn new(bytes_per_second: u64) -> Limit {
        Limit {
            bytes_per_second: bytes_per_second.max(1),
            gone: Mutex::new(None),
        }
    }

    /// How long so many bytes take at that rate.
    pub fn takes(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64)
    }

    /// Lets this many bytes through; returns how long they have to wait.
    pub(crate) fn let_through(&self, bytes: u64, now: Instant) -> Duration {
        let mut gone = self.gone.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let begin = gone.map_or(earliest, |gone| gone.max(earliest));
        *gone = Some(begin + self.takes(bytes));
        begin.saturating_duration_since(now)
    }
}

/// Parses a rate: `50MB/s`, `500kB`, `1.5GiB/s`; at least 100 kB a second.
pub fn rate(text: &str) -> Result<u64, String> {
    const LEAST: f64 = 1e5;
    let wrong = || "write it as 50MB/s, 500kB/s or 1GiB/s; 100kB/s at least".to_owned();
    let amount = text.strip_suffix("/s").unwrap_or(text);
    let unit_at = amount
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(wrong)?;
    let (number, unit) = amount.split_at(unit_at);
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if (LEAST..1e15).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_through_keeps_to_the_rate() {
        let (limit, now) = (Limit::new(1_000_000), Instant::now());
        let after = |ms| now + Duration::from_millis(ms);
        let table = [
            // after so long come so many bytes, which wait for so long
            (0, 1_000_000, 0),
            (0, 500_000, 900),
            (1000, 1, 400),
            // a pause gives nothing back but a burst
            (60_000, 1_000_000, 0),
            (60_000, 1, 900),
        ];
        for (ms, bytes, waits) in table {
            let got = limit.let_through(bytes, after(ms));
            assert_eq!(got.as_millis(), waits, "{ms} {bytes}");
        }
    }

    #[test]
    fn rates_as_people_write_them() {
        for (text, bytes) in [
            ("50MB/s", 50_000_000),
            ("500kB", 500_000),
            ("1.5 GiB/s", 1_610_612_736),
            ("2m/s", 2_000_000),
        ] {
            assert_eq!(rate(text), Ok(bytes), "{text}");
        }
        for text in [
            "", "50", "MB/s", "1kB/s", "1..5MB", "-1MB", "1TB/h", "1e9GB",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
