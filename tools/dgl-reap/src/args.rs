//! The command line.

use clap::{ArgGroup, Parser};
use common::cli::{Connect, duration};
use std::time::Duration;

/// Lists or ends what a job has left on its hosts.
///
/// Reads host records. A process belongs to a job by the token that dgl-spawn put into its environment, never by its name; only
/// processes of the user that logs in are met. Files in /dev/shm that only they mapped are removed with them.
#[derive(Parser)]
#[command(version, group = ArgGroup::new("what").required(true).args(["list", "job", "all"]), after_long_help = "Examples:
  ipconf-check ip_config.txt | dgl-reap --list
  ipconf-check ip_config.txt | dgl-reap --job try7")]
pub struct Args {
    /// Show the processes of all jobs; end nothing
    #[arg(long)]
    pub list: bool,

    /// End this job
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,

    /// End all jobs of this user
    #[arg(long)]
    pub all: bool,

    /// How long processes may take to end after TERM, before KILL
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub grace: Duration,

    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: Connect,
}
