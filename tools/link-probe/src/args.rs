//! The command line.

use clap::Parser;
use cli::{Connect, duration, size};
use std::time::Duration;

/// How much a host sends for each second of `--time` at most, in bytes: what a link of 16 Gbit/s
/// carries.
const BYTES_PER_SECOND: u128 = 2_000_000_000;

/// Measures how fast the hosts reach each other: rate, round trip, retransmits.
///
/// Reads host records and adds a link record for each connection that was measured. In each round
/// every host sends to one and receives from another, all at the same time; half as many rounds as
/// hosts show each host with each other. Slow hosts and links are named on stderr.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt | link-probe --format human
  ipconf-check ip_config.txt | host-probe | link-probe --time 500ms | part-map …
  ipconf-check ip_config.txt | link-probe |
    jq -r 'select(.type==\"link\") | [.from, .to, .rate_bytes_per_s] | @tsv'"
)]
pub struct Args {
    /// How long each host sends in a round
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "TIME")]
    pub time: Duration,

    #[arg(long, hide = true, value_parser = size)]
    max_bytes: Option<u64>,

    #[arg(long, hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: Connect,
}

impl Args {
    /// How much each host sends in a round at most, in bytes.
    pub fn max_bytes(&self) -> u64 {
        let bytes = BYTES_PER_SECOND * self.time.as_millis() / 1000;
        self.max_bytes
            .unwrap_or(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
