//! Decides whether what goes to one host is compressed: as the user wishes, or else by measuring
//! the link and a sample.

use std::time::{Duration, Instant};
use transfer::content;

/// Bytes that are sent uncompressed first, to measure the link.
const PROBE: u64 = 4 << 20;
/// Bytes until the next decision; each interval is twice as long as the one before.
const FIRST_INTERVAL: u64 = 32 << 20;
const LONGEST_INTERVAL: u64 = 512 << 20;
/// From this rate of the link on, in bytes a second, zstd never pays.
const FAST_LINK: f64 = 500e6;
/// Compressing must reduce the time by this factor, because it costs CPU time on both sides.
const WORTH: f64 = 0.8;

pub struct Compression {
    wish: Option<bool>,
    /// The link's, in bytes a second.
    rate: Option<f64>,
    is_on: bool,
    interval: u64,
    /// Bytes until the next decision.
    left: u64,
    /// When the present interval began, and how many bytes had left this machine then.
    begun: (Instant, u64),
}

impl Compression {
    /// If `wish` is `None`, measuring decides.
    pub fn new(wish: Option<bool>) -> Compression {
        Compression {
            wish,
            rate: None,
            is_on: false,
            interval: FIRST_INTERVAL,
            left: 0,
            begun: (Instant::now(), 0),
        }
    }

    /// What follows may shrink differently, and nothing was sent in between.
    pub fn begin(&mut self, gone: u64) {
        (self.interval, self.left) = (FIRST_INTERVAL, 0);
        self.begun = (Instant::now(), gone);
    }

    pub fn is_unmeasured(&self) -> bool {
        self.wish.is_none() && self.rate.is_none()
    }

    /// Whether enough was sent to measure the link, by waiting until it has arrived.
    pub fn wants_rate(&self, gone: u64) -> bool {
        self.is_unmeasured() && gone.saturating_sub(self.begun.1) >= PROBE
    }

    /// All that has left this machine has arrived.
    pub fn measure(&mut self, gone: u64) {
        let (begun, before) = std::mem::replace(&mut self.begun, (Instant::now(), gone));
        let bytes = gone.saturating_sub(before);
        if bytes >= PROBE {
            self.rate = Some(bytes as f64 / begun.elapsed().as_secs_f64().max(1e-6));
        }
    }

    /// Whether to compress the next block, when `gone` bytes have left this machine.
    pub fn pays(&mut self, block: &[u8], gone: u64) -> bool {
        if self.rate.is_none() || self.wish.is_some() {
            return self.wish.unwrap_or(false);
        }
        if self.left < block.len() as u64 {
            // buffers on the way hold as much as when the interval began
            if !self.is_on {
                self.measure(gone);
            }
            self.is_on = self.rate.is_some_and(|rate| shrinks_enough(block, rate));
            self.begun = (Instant::now(), gone);
            self.left = self.interval;
            self.interval = (self.interval * 2).min(LONGEST_INTERVAL);
        }
        self.left = self.left.saturating_sub(block.len() as u64);
        self.is_on
    }
}

/// Whether compressing pays at this link rate, in bytes a second, by a sample.
fn shrinks_enough(sample: &[u8], rate: f64) -> bool {
    if rate >= FAST_LINK || sample.is_empty() {
        return false;
    }
    let begun = Instant::now();
    let small = content::compress(sample).map_or(sample.len(), |packed| packed.len());
    worth(sample.len(), small, begun.elapsed(), rate)
}

/// Whether a sample that shrank from `raw` to `small` bytes in this time travels faster over a link
/// of this rate in bytes a second.
fn worth(raw: usize, small: usize, took: Duration, link: f64) -> bool {
    let plain = raw as f64 / link;
    let packed = (small as f64 / link).max(took.as_secs_f64());
    packed < plain * WORTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressing_pays_on_slow_links_for_what_shrinks() {
        let table = [
            // raw, small, milliseconds, bytes a second
            (1_000_000, 200_000, 3, 118e6, true),
            (1_000_000, 900_000, 3, 118e6, false),
            (1_000_000, 200_000, 3, 400e6, false),
            (1_000_000, 200_000, 9, 118e6, false),
            (1_000_000, 10, 1, 12e6, true),
        ];
        for (raw, small, ms, link, expected) in table {
            assert_eq!(
                worth(raw, small, Duration::from_millis(ms), link),
                expected,
                "{raw} {small} {ms} {link}"
            );
        }
    }
}
