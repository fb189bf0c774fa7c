//! Finds what ended a job, or what it waits for, from its records or logs.

pub mod args;
mod input;

pub use args::Args;

use record::error::Report;
use record::exit::Exit;
use record::jsonl;
use verdict::RunOutcome;

pub fn main(args: Args) -> Result<Exit, Report> {
    let verdict = verdict::verdict(&input::history(&args.files)?);
    let has_evidence = !args.brief || verdict.outcome == RunOutcome::Unknown;
    jsonl::print(None, [verdict::text(&verdict, has_evidence)])?;
    Ok(match verdict.outcome {
        RunOutcome::Unknown | RunOutcome::NotFound => Exit::ItemFailed,
        _ => Exit::Done,
    })
}
