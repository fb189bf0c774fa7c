//! The command line.

use clap::Parser;
use cli::{ConnectArgs, CopyArgs};
use std::path::PathBuf;

/// Brings files back from the hosts: models, embeddings, logs.
///
/// Reads host records and adds a pulled record for each file. Several hosts' files go to DIR/hK/…,
/// those of a single host (--host K) to DIR. What is there already with the same size and time is
/// skipped; a file has its name only when it is whole. A pattern is relative to the workspace; `*`
/// stays within a directory, `**` does not, and a directory stands for all that is in it.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt |
    part-pull --workspace '~/job' --to results 'logs/*.log' emb
  ipconf-check ip_config.txt |
    part-pull --workspace '~/job' --to . --host 0 model.pt"
)]
pub struct Args {
    /// The directory of the job on every host; ~/ is the home on each host [default: from the graph
    /// or workspace record]
    ///
    /// The path is absolute or begins with `~/`.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,

    /// The directory on this machine for the files
    ///
    /// It is created if necessary. Symbolic links on the path to it, and to the workspace on a
    /// host, are followed only if they belong to you or to root, and not in a directory to which
    /// every user can write and that has no sticky bit. Below these two directories, links are also
    /// followed if they belong to the owner of the directory. A link that leads out of `DIR` is
    /// refused.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// Hosts to copy from at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..),
        value_name = "N")]
    pub jobs: u16,

    /// How files are copied.
    #[command(flatten)]
    pub copy: CopyArgs,

    /// The files, relative to the workspace
    #[arg(required = true, value_name = "PATTERN")]
    pub patterns: Vec<String>,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: ConnectArgs,
}
