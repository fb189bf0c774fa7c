//! The command line.

use clap::{ArgGroup, Parser};
use cli::{ConnectArgs, job_name, record_time};
use record::Role;
use std::time::Duration;

/// Shows the stacks of a job's Python processes, on all hosts, while they go on.
///
/// Reads host records. The memory of each process of the job is read from outside: nothing in it is
/// called, paused or changed. Samplers are read too. On a terminal, threads that stand at the same
/// place are shown once, with their processes.
#[derive(Parser)]
#[command(
    version,
    group = ArgGroup::new("jobs").args(["job", "any"]).required(true).multiple(true),
    group = ArgGroup::new("ranked").args(["role", "any"]).multiple(true),
    after_long_help = "Examples:
  ipconf-check ip_config.txt | dgl-stacks --job try7
  ipconf-check ip_config.txt | dgl-stacks --job try7 --role trainer --rank 3
  ipconf-check ip_config.txt | dgl-stacks --job try7 --record 30s
  ipconf-check ip_config.txt | dgl-stacks --job try7 --format jsonl | grep '\"stack\"'
  ipconf-check ip_config.txt | dgl-stacks --any
  ipconf-check ip_config.txt | dgl-stacks --any --match train.py | dgl-why"
)]
pub struct Args {
    /// The name of the job
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub job: Option<String>,

    /// Find the job that runs on these hosts, whatever launcher has started it
    ///
    /// See [Jobs of other launchers]. If several jobs run, the message lists them; choose one by
    /// `--job` or `--match`.
    #[arg(long)]
    pub any: bool,

    /// Find the job with a process whose command contains this text
    ///
    /// This needs `--any`.
    #[arg(long = "match", requires = "any", value_name = "TEXT")]
    pub containing: Option<String>,

    /// Read processes of this role only: server, trainer, worker or a program's name
    #[arg(long, value_name = "NAME")]
    pub role: Option<Role>,

    /// Read the process of this rank only, with its samplers
    ///
    /// This needs `--role` or `--any`.
    #[arg(long, requires = "ranked", value_name = "N")]
    pub rank: Option<u32>,

    /// Show the TCP connections between the processes too, and who has been silent longest
    ///
    /// The kernel of each host knows when data last went over each connection, whatever the program
    /// is written in. If that shows for which process the others wait, a sentence names it; see
    /// [Connections]. For this, the connections of all processes of the job are read; `--role`,
    /// `--rank` and `--host` choose which processes are printed.
    #[arg(long, conflicts_with = "record")]
    pub connections: bool,

    /// Sample stacks for this time, 1s to 1h, and show where the time went
    ///
    /// Stacks are counted on their host. On a terminal, the lines that took most time are shown for
    /// each role, with what differs between processes and which process the others wait for.
    /// Otherwise a *profile* record is written for each process; dgl-report(1) draws flame graphs
    /// from these records. See [Recording].
    #[arg(long, value_parser = record_time, value_name = "TIME")]
    pub record: Option<Duration>,

    /// Samples per second of each process, 1 to 100
    ///
    /// This needs `--record`.
    #[arg(long, requires = "record", default_value_t = 10, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rate: u32,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: ConnectArgs,
}
