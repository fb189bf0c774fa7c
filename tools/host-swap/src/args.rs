//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Replaces the hosts that a job has lost with spare hosts.
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
    /// The records of the run that failed, or records of host-probe about its hosts now
    ///
    /// The *summary* record of dgl-spawn(1) names the lost host if this was the *cause*. After a
    /// failure, host-probe(1) marks unusable hosts with `"ok":false`. Give both outputs, because
    /// several hosts may be lost at once, and processes on other hosts often fail first. An empty
    /// file is ignored.
    #[arg(long, value_name = "FILE", required = true)]
    pub run: Vec<PathBuf>,

    /// Host records of spares, from host-probe; host-swap skips unusable ones and hosts of the
    /// input
    ///
    /// The first suitable ones are used. host-swap also skips a spare that has replaced another
    /// lost host, has another home directory or version of Python, dgl or torch than the other
    /// hosts, has fewer GPUs than the lost host had, or was not probed, with `--conda` or `--venv`
    /// if the other hosts were. So the list may contain all hosts of the cluster. Probe the spares
    /// each time, because they may be lost too.
    #[arg(long, value_name = "FILE")]
    pub spares: PathBuf,
}
