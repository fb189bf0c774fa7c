//! Tells what ended a job, or what it waits for, from its records and the dumps of torch's
//! flight recorder. All but flight_recorder::read maps values to values.

pub mod args;
mod findings;
mod flight_recorder;
mod job;
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
    let dumps = args.flight_recorder.as_deref().map(flight_recorder::read);
    let dumps = dumps.transpose()?;
    let verdict = match (&dumps, args.file.as_deref()) {
        (Some(dumps), None) => flight_recorder::verdict(dumps),
        (dumps, file) => {
            let job = Job::of(&Run::read("dgl-why", file, 0)?)?;
            let mut verdict = verdict(&job);
            if let Some(dumps) = dumps {
                flight_recorder::add(&mut verdict, dumps, &job);
            }
            verdict
        }
    };
    jsonl::print(None, [text(&verdict, !args.brief)])?;
    Ok(Exit::Done)
}
