//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Says what ended a job, or what it waits for, since when, and who caused it.
///
/// Reads the records that dgl-spawn wrote, of a run that has ended or that goes on, and prints a
/// few lines with the records that show it. It says nothing that they do not show.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  … | dgl-spawn --log-dir logs; dgl-why logs/run.jsonl
  dgl-why --brief run.jsonl"
)]
pub struct Args {
    /// The records, or the directory of --log-dir; - or nothing is stdin
    pub file: Option<PathBuf>,

    /// Do not print the records that support the verdict
    #[arg(long)]
    pub brief: bool,
}
