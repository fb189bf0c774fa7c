//! The command line.

use clap::Parser;
use cli::{Connect, duration, size};
use std::time::Duration;

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
  ipconf-check ip_config.txt | host-probe | link-probe --rounds 2 | part-map …
  ipconf-check ip_config.txt | link-probe |
    jq -r 'select(.type==\"link\") | [.from, .to, .rate_bytes_per_s] | @tsv'"
)]
pub struct Args {
    /// How long each host sends in a round
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "TIME")]
    pub time: Duration,

    /// How much each host sends in a round at most, as 500M or 2G
    #[arg(long, default_value = "2G", value_parser = size, value_name = "SIZE")]
    pub max_bytes: u64,

    /// The number of rounds at most [default: half the number of hosts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: Connect,
}
