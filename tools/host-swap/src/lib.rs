//! Makes a stream without lost hosts, from the records of a failed run and of spare hosts. [`plan`]
//! maps values to values.

mod args;
pub mod plan;

pub use args::Args;

use record::error::Report;
use record::exit::Exit;
use record::jsonl::{self, Stream};
use record::run;
use record::term;
use record::{Host, Output, Record as _};
use std::borrow::Cow;
use std::path::Path;

pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(false)?;
    let hosts: Vec<Host> = stream.require("ipconf-check")?;
    let mut lost = plan::LostHosts::default();
    for file in &args.run {
        if let Some(run) = read(file)? {
            lost.learn(&file.display().to_string(), &run, &hosts)?;
        }
    }
    let swapped = plan::swap(&stream, &lost, read(&args.spares)?.as_ref())?;
    for line in &swapped.notices {
        record::tell!("host-swap: {}", term::plain(line));
    }
    jsonl::print(None, swapped.lines.into_iter().map(Cow::Owned))?;
    Ok(Exit::Done)
}

/// Includes failed records; `None` if there are none, because an earlier stage failed and left
/// dgl-spawn nothing to write.
fn read(file: &Path) -> Result<Option<Stream>, Report> {
    let mut stream = Stream::default();
    let fix = "name a file that has records";
    let has_records = run::read_if_any("host-swap", file, fix, |head, text| {
        if head.r#type != Output::TYPE {
            stream.push(head, text);
        }
    })?;
    Ok(has_records.then_some(stream))
}
