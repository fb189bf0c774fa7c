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
use record::{jsonl, run};
use verdict::Run;

pub fn main(args: Args) -> Result<Exit, Report> {
    let mut records = Run::new(args.lines);
    run::read("dgl-report", args.file.as_deref(), |head, text| {
        records.record(head, text);
    })?;
    let job = plan::JobHistory::of(&records)?;
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
