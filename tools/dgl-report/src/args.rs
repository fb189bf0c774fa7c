//! The command line.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Makes one HTML page of the records of a run: when each process ran, which failed first, and how
/// fast files were copied.
///
/// Reads the records that dgl-spawn wrote (and part-push before it, where it was in the pipeline),
/// of a run that went well or not. The page needs nothing beside it: it can be mailed.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  … | dgl-spawn --log-dir logs; dgl-report logs/run.jsonl > job.html
  dgl-report --lines 200 job.jsonl > job.html
  dgl-report --format folded profile.jsonl | flamegraph.pl > job.svg"
)]
pub struct Args {
    /// The records, or the directory of --log-dir; - or nothing is stdin
    pub file: Option<PathBuf>,

    /// How many lines of output to show of each process, from its end
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub lines: usize,

    /// What to print: the page, or stacks for tools that draw flame graphs
    #[arg(
        long,
        value_enum,
        default_value = "html",
        value_name = "html|folded",
        hide_possible_values = true
    )]
    pub format: ReportFormat,
}

/// What is written to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// The page.
    Html,
    /// A line for each stack of the profiles, in the format of flamegraph.pl and speedscope. This
    /// needs *profile* records.
    Folded,
}
