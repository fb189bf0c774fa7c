//! The command line.

use clap::Parser;
use cli::{Connect, job_name};
use record::Role;

/// Shows the stacks of a job's Python processes, on all hosts, while they go on.
///
/// Reads host records. The memory of each process of the job is read from outside: nothing in it is
/// called, paused or changed. Samplers are read too. On a terminal, threads that stand at the same
/// place are shown once, with their processes.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt | dgl-stacks --job try7
  ipconf-check ip_config.txt | dgl-stacks --job try7 --role trainer --rank 3
  ipconf-check ip_config.txt | dgl-stacks --job try7 --format jsonl | grep '\"stack\"'"
)]
pub struct Args {
    /// The job
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub job: String,

    /// Processes of this role only: server, trainer, worker or a program's name
    #[arg(long, value_name = "NAME")]
    pub role: Option<Role>,

    /// The process of this rank only, with its samplers
    #[arg(long, requires = "role", value_name = "N")]
    pub rank: Option<u32>,

    /// Show also what Python has called: the system call and the C++ functions in which a thread
    /// waits
    ///
    /// Nothing is stopped for that, so it is known of threads that wait, not of those that compute.
    #[arg(long)]
    pub native: bool,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: Connect,
}
