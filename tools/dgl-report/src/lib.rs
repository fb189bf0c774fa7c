//! From the records of a run to a page to look at. [`plan`] and [`page`] are values to values.

pub mod args;
pub mod page;
pub mod plan;

pub use args::Args;

use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Stream};
use std::borrow::Cow;
use std::path::Path;

/// Does what the command line says.
pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = read(args.file.as_deref())?;
    let run = plan::run(&plan::Records::of(&stream)?, args.lines);
    jsonl::print(None, [Cow::Owned(page::page(&run).into_bytes())])?;
    Ok(Exit::Done)
}

/// A run that failed or was cut short is what people want to look at: holes are all right.
fn read(file: Option<&Path>) -> Result<Stream, Report> {
    match file.filter(|file| *file != "-") {
        None => Stream::from_stdin(true),
        Some(file) => {
            let unreadable = |error: std::io::Error| {
                Fault::unreachable(file.display().to_string(), error.to_string())
            };
            let opened = std::fs::File::open(file).map_err(|error| {
                unreadable(error).fix("name the file that has dgl-spawn's records")
            })?;
            Stream::read(opened, true).map_err(|mut report| {
                report.0.iter_mut().for_each(|fault| {
                    fault.place = fault
                        .place
                        .replacen("stdin", &file.display().to_string(), 1);
                });
                report
            })
        }
    }
}
