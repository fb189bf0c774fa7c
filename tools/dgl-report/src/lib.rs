//! Turns the records of a run into a page. [`plan`] and [`page`] map values to values.

pub mod args;
pub mod page;
pub mod plan;
pub mod samples;

pub use args::Args;

use record::error::Report;
use record::exit::Exit;
use record::jsonl::{self, Stream};
use std::borrow::Cow;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::of_run("dgl-report", args.file.as_deref())?;
    let run = plan::run(&plan::Records::of(&stream)?, args.lines);
    jsonl::print(None, [Cow::Owned(page::page(&run).into_bytes())])?;
    Ok(Exit::Done)
}
