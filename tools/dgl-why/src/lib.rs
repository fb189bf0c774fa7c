//! Tells what ended a job, or what it waits for, from its records. All below [`main`] maps values
//! to values.

pub mod args;
mod findings;
mod job;
mod nccl;
mod show;
mod skew;
mod verdict;
mod wait;

pub use args::Args;
pub use findings::{Finding, Outcome, Verdict};
pub use job::{Job, Life, ProcessHistory};
pub use show::{since, text};
pub use verdict::verdict;

use record::error::Report;
use record::exit::Exit;
use record::jsonl;
use record::run::Run;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let job = Job::of(&Run::read("dgl-why", args.file.as_deref(), 0)?)?;
    let verdict = verdict(&job);
    jsonl::print(None, [text(&verdict, !args.brief)])?;
    Ok(Exit::Done)
}
