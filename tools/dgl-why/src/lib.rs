//! Tells what ended a job, or what it waits for, from its records alone. Everything maps values to
//! values.

pub mod args;
pub mod findings;
mod job;
mod lives;
pub mod plan;
mod records;
mod show;
mod skew;
mod wait;

pub use args::Args;
pub use findings::{Finding, Outcome, Verdict};
pub use lives::Life;
pub use plan::verdict;
pub use records::Records;
pub use show::{since, text};

use record::error::Report;
use record::exit::Exit;
use record::jsonl;
use record::run::Run;
use std::borrow::Cow;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let run = Run::read("dgl-why", args.file.as_deref(), 0)?;
    let verdict = verdict(&Records::of_run(&run)?);
    let text = text(&verdict, !args.brief).into_bytes();
    jsonl::print(None, [Cow::Owned(text)])?;
    Ok(Exit::Done)
}
