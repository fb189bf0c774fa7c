//! Plans which host reads which chunk of a graph, from host records and the metadata of the chunks.
//! `plan` maps values to values; `disk` reads files and writes none.

pub mod args;
pub mod disk;
pub mod plan;

pub use args::Args;

use chunks::Metadata;
use plan::Layout;
use record::Host;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Stream};
use std::borrow::Cow;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(false)?;
    let hosts: Vec<Host> = stream.require("ipconf-check")?;
    let layout = Layout::new(&args.workspace, &args.rel_data_path)?;
    let place = args.metadata.display().to_string();
    let metadata = Metadata::parse(&place, &disk::read(&args.metadata)?)?;
    let here = std::path::absolute(&args.metadata)
        .map_err(|error| Fault::unreachable(&place, error.to_string()).fix("correct the path"))?;
    let folder = here.parent().unwrap_or(&here);

    let mut report = Report::default();
    let wanted = report.keep(plan::wanted(&metadata, folder, hosts.len()));
    let found = wanted.and_then(|wanted| report.keep(disk::find(wanted)));
    let assigned = args
        .assignment
        .as_deref()
        .map(|folder| report.keep(disk::assignment(folder, &metadata, hosts.len())));
    report.check()?;
    let assigned = assigned.flatten().unwrap_or_default();
    let plan = plan::plan(
        &metadata,
        &hosts,
        &layout,
        found.unwrap_or_default(),
        assigned,
    )?;
    let workspace = std::iter::once(jsonl::line(&plan.workspace));
    let files = plan.files.iter().map(jsonl::line);
    jsonl::print(Some(&stream), workspace.chain(files).map(Cow::Owned))?;
    Ok(Exit::Done)
}
