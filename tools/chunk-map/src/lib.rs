//! Plans which host reads which chunk of a graph, from host records and the metadata of the chunks.
//! `plan` maps values to values; `disk` reads assignments.

pub mod args;
pub mod disk;
pub mod plan;

pub use args::Args;

use partition::chunks::Metadata;
use partition::files::{self, Item, Source, path_on_hosts};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Stream};
use record::{Host, Workspace, ip_config};
use std::borrow::Cow;

const IP_CONFIG: &str = "ip_config.txt";

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(false)?;
    let hosts: Vec<Host> = stream.require("ipconf-check")?;
    let workspace = path_on_hosts("--workspace", &args.workspace, None, &hosts)?;
    let data = &args.rel_data_path;
    let data = path_on_hosts("--rel-data-path", data, Some(&workspace), &hosts)?;
    let metadata = Metadata::read(&args.metadata)?;
    let here = std::path::absolute(&args.metadata).map_err(|error| {
        let location = args.metadata.display().to_string();
        Fault::unreachable(location, error.to_string()).fix("correct the path")
    })?;
    let here = here.parent().unwrap_or(&here);

    let mut report = Report::default();
    let chunks = report.keep(plan::chunks(&metadata, here, &data, hosts.len()));
    let assignment = args.assignment.as_deref().and_then(|folder| {
        let there = data.join("assignment");
        report.keep(disk::assignment(folder, &metadata, hosts.len(), &there))
    });
    let fix = "correct the path in the metadata; it is absolute, or relative to its folder";
    let mut items = Vec::new();
    if let Some(chunks) = chunks {
        let metadata = Source::Made(chunks.metadata);
        items.push(Item::new("config", data.join("metadata.json"), metadata));
        items.extend(assignment.into_iter().flatten());
        items.extend(
            report
                .keep(files::find(chunks.wanted, fix))
                .unwrap_or_default(),
        );
    }
    report.check()?;
    let made = Source::Made(ip_config(&hosts));
    items.insert(0, Item::new("ip_config", workspace.join(IP_CONFIG), made));
    let workspace = jsonl::line(&Workspace {
        workspace: workspace.display().to_string(),
        ip_config: IP_CONFIG.to_owned(),
    });
    let files = files::records(items)?;
    let lines = std::iter::once(workspace).chain(files.iter().map(jsonl::line));
    jsonl::print(Some(&stream), lines.map(Cow::Owned))?;
    Ok(Exit::Done)
}
