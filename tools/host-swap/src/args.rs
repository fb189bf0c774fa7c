//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Puts spare hosts in the place of hosts that a job has lost.
///
/// Reads the stream that was given to part-push, and prints it with a spare under the number of
/// each lost host; part-push then brings the spare its partition, and all hosts the new ip_config.
/// Where no host was lost, nothing is printed and the exit status is 65.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  host-probe < plan.jsonl > now.jsonl
  ipconf-check spares.txt | host-probe > spares.jsonl
  host-swap --run run.jsonl --run now.jsonl --spares spares.jsonl < plan.jsonl > next.jsonl
  part-push < next.jsonl | dgl-env … | dgl-spawn"
)]
pub struct Args {
    /// The records of the run that failed, or what host-probe says of its hosts now; several may
    /// be given
    #[arg(long, value_name = "FILE", required = true)]
    pub run: Vec<PathBuf>,

    /// Host records of spares, from host-probe; those that cannot be used, or are in the stream
    /// already, are skipped
    #[arg(long, value_name = "FILE")]
    pub spares: PathBuf,
}
