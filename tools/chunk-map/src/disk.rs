//! Reads whole assignments.

use partition::assignment::{self, count, read_text, unreadable};
use partition::chunks::Metadata;
use partition::files::{Item, Source, inspect};
use partition::format::Format;
use record::error::{Fault, Report};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Reads and checks the files of an assignment completely: a wrong one would end the pipeline only
/// after an hour. They go to all hosts, into the folder `there`.
pub fn assignment(
    folder: &Path,
    metadata: &Metadata,
    hosts: usize,
    there: &Path,
) -> Result<Vec<Item>, Report> {
    let mut report = Report::default();
    let mut items = Vec::new();
    let parts = u32::try_from(hosts).unwrap_or(u32::MAX);
    for (name, nodes) in &metadata.node_types {
        let name = format!("{name}.txt");
        let path = folder.join(&name);
        let Some(counts) = report.keep(counts(&path)) else {
            continue;
        };
        if let Some(problem) = assignment::problem(&counts, *nodes, parts) {
            let fault = Fault::data(path.display().to_string(), problem);
            report.push(fault.fix(format!(
                "write it anew for {hosts} hosts, a line a node: part-assign does"
            )));
        }
        let here = report.keep(inspect(&path, Format::Any));
        items.extend(here.map(|here| Item::new("chunk", there.join(name), Source::Copied(here))));
    }
    report.check().map(|()| items)
}

/// The number of nodes of each partition.
fn counts(path: &Path) -> Result<Vec<u64>, Report> {
    let file = File::open(path).map_err(unreadable(path))?;
    let mut counts = Vec::new();
    read_text(path, BufReader::with_capacity(1 << 20, file), |part| {
        count(&mut counts, part);
    })?;
    Ok(counts)
}
