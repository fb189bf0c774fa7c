//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Explains why a job failed or what it waits for, since when, and which process caused it.
///
/// Reads the records that dgl-spawn wrote, of a run that has ended or that goes on, or the logs of
/// any other launcher, and prints a few lines with what shows it. It says nothing that they do not
/// show.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  … | dgl-spawn --log-dir logs; dgl-why logs/run.jsonl
  dgl-why --brief run.jsonl
  dgl-why slurm-4711.out"
)]
pub struct Args {
    /// The records, or the logs of one job, or their directories; - or nothing is stdin
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Do not print the records or lines that support the verdict
    #[arg(long)]
    pub brief: bool,
}
