//! The command line.

use clap::Parser;
use common::cli::Connect;

/// Logs in once to each host and adds what it is and has to its record: network card, cores, memory, disk, a free port, Python, DGL.
///
/// Reads host records and writes them again with these facts; every other line stays as it is. A host that cannot be used gets
/// "ok":false and makes every later tool of the pipeline fail.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt | host-probe | dgl-env …
  ipconf-check ip_config.txt | host-probe --python /opt/venv/bin/python3
  ipconf-check ip_config.txt | host-probe --format human \\
    --setup '. /opt/conda/etc/profile.d/conda.sh; conda activate gnn'"
)]
pub struct Args {
    /// The folder of the job on every host: how much room there is, on what kind of file system
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<String>,

    /// Graph servers on each host; their ports are no port for torch
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub num_servers: u16,

    /// The interpreter of the job
    #[arg(long, default_value = "python3", value_name = "CMD")]
    pub python: String,

    /// Shell text that comes before the interpreter, run by the user's $SHELL
    #[arg(long, value_name = "SHELL")]
    pub setup: Option<String>,

    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: Connect,
}
