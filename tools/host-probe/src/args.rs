//! The command line.

use clap::{Parser, ValueEnum};
use cli::{Connect, NamedSize, named_size, size_of};

/// Logs in once to each host and adds what it is and has to its record: network interface, cores,
/// memory, GPUs, disk, a free port, Python, torch, DGL.
///
/// Reads host records and writes them again with these facts; every other line stays as it is. A
/// host that cannot be used gets "ok":false and makes every later tool of the pipeline fail.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt | host-probe | dgl-env …
  ipconf-check ip_config.txt | host-probe --conda gnn | dgl-env … -- python3 train.py
  ipconf-check ip_config.txt | host-probe --venv '~/gnn' --format human
  ipconf-check ip_config.txt | host-probe --setup '. /etc/profile; module load dgl'
  ipconf-check all.txt | host-probe --need 4 --min shm=64G --workspace /data/job | part-map …
  ipconf-check ip_config.txt | host-probe --port auto | part-map …"
)]
pub struct Args {
    /// The folder of the job on every host, whose free space and file system are looked up
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<String>,

    /// Graph servers per host; torch is not given their ports
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub num_servers: u16,

    /// The interpreter to examine
    #[arg(long, default_value = "python3", value_name = "CMD")]
    pub python: String,

    /// The conda environment of the job, by name or folder; dgl-env starts its Python
    #[arg(long, value_name = "ENV", value_parser = conda, conflicts_with_all = ["python", "venv"])]
    pub conda: Option<String>,

    /// The venv of the job: a folder on every host, / or ~/ first; dgl-env starts its Python
    #[arg(long, value_name = "DIR", value_parser = folder, conflicts_with = "python")]
    pub venv: Option<String>,

    /// Accept hosts with other versions of Python, torch or DGL than most hosts have
    #[arg(long)]
    pub mixed_versions: bool,

    /// Shell text that runs before the interpreter, by the user's $SHELL
    #[arg(long, value_name = "SHELL")]
    pub setup: Option<String>,

    /// Keep the first N hosts that are usable, free and of the same versions, and number them
    /// from 0
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["host", "partial"])]
    pub need: Option<u32>,

    /// With --need: what a host must have at least, as shm=64G,disk=2T: main memory (memory), free
    /// memory of each GPU (gpu), free space in /dev/shm (shm) and in the workspace (disk)
    #[arg(long, hide_short_help = true, value_delimiter = ',', value_name = "NAME=SIZE",
        value_parser = named_size(&["memory", "gpu", "shm", "disk"]), requires = "need")]
    pub min: Vec<NamedSize>,

    /// The ports of the graph servers: those of the host records, or the first free on all hosts
    #[arg(long, value_enum, default_value_t = ServerPort::Keep, value_name = "keep|auto",
        hide_possible_values = true, conflicts_with_all = ["host", "partial"])]
    pub port: ServerPort,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: Connect,
}

impl Args {
    /// What a host must have at least of this, if that is given.
    pub fn least(&self, name: &str) -> Option<u64> {
        size_of(&self.min, name)
    }
}

/// Where the ports of the graph servers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServerPort {
    /// The host records.
    Keep,
    /// The first ones that are free on all hosts.
    Auto,
}

fn conda(text: &str) -> Result<String, String> {
    match text {
        "" | "." | ".." => Err("is not a name of an environment".to_owned()),
        path if path.contains('/') || path == "~" => folder(path),
        name if name.contains(|c: char| c.is_control() || c == ':') => Err(NO_SUCH_PATH.to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn folder(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    match path {
        "" => Err("is not a folder".to_owned()),
        path if path.contains(|c: char| c.is_control() || c == ':') => Err(NO_SUCH_PATH.to_owned()),
        path if path.starts_with('/') || path == "~" || path.starts_with("~/") => {
            Ok(path.to_owned())
        }
        _ => Err(
            "is the same folder on every host: begin it with / or ~/, the home there".to_owned(),
        ),
    }
}

const NO_SUCH_PATH: &str = "PATH cannot have a folder of this name";
