//! Turns the records of a run into a page. [`plan`] and [`page`] map values to values.

pub mod args;
pub mod page;
pub mod plan;
pub mod samples;

pub use args::Args;

use record::error::Report;
use record::exit::Exit;
use record::jsonl;
use record::run::Run;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let run = Run::read("dgl-report", args.file.as_deref(), args.lines)?;
    let job = plan::Job::of(&run)?;
    let run = plan::run(&job, args.lines);
    jsonl::print(None, [page::page(&run)])?;
    Ok(Exit::Done)
}
