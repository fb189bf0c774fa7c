//! Finds what ended a job, or what it waits for, from its records.

pub mod args;

pub use args::Args;

use record::error::Report;
use record::exit::Exit;
use record::jsonl;
use verdict::{JobHistory, Run};

pub fn main(args: Args) -> Result<Exit, Report> {
    let job = JobHistory::of(&Run::read("dgl-why", args.file.as_deref(), 0)?)?;
    let verdict = verdict::verdict(&job);
    jsonl::print(None, [verdict::text(&verdict, !args.brief)])?;
    Ok(Exit::Done)
}
