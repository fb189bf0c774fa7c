//! Turns the records of a run into a page. [`plan`] and [`page`] map values to values.

pub mod args;
pub mod export;
pub mod page;
pub mod plan;
pub mod profiles;

pub use args::{Args, ReportFormat};

use record::Profile;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl;
use verdict::Run;

pub fn main(args: Args) -> Result<Exit, Report> {
    let run = Run::read("dgl-report", args.file.as_deref(), args.lines)?;
    let job = plan::JobHistory::of(&run)?;
    let text = match args.format {
        ReportFormat::Html => page::page(&plan::run(&job, args.lines)),
        ReportFormat::Folded => export::folded(recorded(&job)?),
    };
    jsonl::print(None, [text])?;
    Ok(Exit::Done)
}

/// Folded stacks need at least one profile.
fn recorded(job: &plan::JobHistory) -> Result<&[Profile], Report> {
    if job.profiles.iter().all(|profile| profile.samples == 0) {
        return Err(Fault::data("stdin", "no profile record in the input")
            .fix(
                "record the job while it runs: ipconf-check ip_config.txt | dgl-stacks --job \
                 NAME --record 30s",
            )
            .report());
    }
    Ok(&job.profiles)
}
