//! Reads the metadata and whole assignments, and checks that chunks exist and can be read.

use crate::plan::{Assigned, Found, Wanted};
use chunks::{Metadata, assignment};
use record::LocalFile;
use record::error::{Fault, Report};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// A chunk takes some 100 bytes of the metadata, so this is a graph of half a million chunks.
const MAX_METADATA_BYTES: u64 = 64 << 20;
/// More partitions than any cluster has hosts; a larger number is a mistake.
const MAX_PARTS: u32 = 1 << 20;

const READABLE: &str = "make it readable, or correct the path";

fn failed(path: &Path) -> impl Fn(io::Error) -> Report {
    move |error| {
        let fault = Fault::unreachable(path.display().to_string(), error.to_string());
        fault.fix(READABLE).report()
    }
}

/// The text of the metadata.
pub fn read(path: &Path) -> Result<Vec<u8>, Report> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed(path))?;
    let mut limited = file.take(MAX_METADATA_BYTES + 1);
    limited.read_to_end(&mut text).map_err(failed(path))?;
    if text.len() as u64 > MAX_METADATA_BYTES {
        let problem = format!("more than {MAX_METADATA_BYTES} bytes: not the metadata of chunks");
        return Err(Fault::data(path.display().to_string(), problem)
            .fix("name the metadata.json that chunk_graph.py wrote")
            .report());
    }
    Ok(text)
}

fn look(path: &Path) -> Result<LocalFile, Report> {
    let meta = File::open(path)
        .and_then(|file| file.metadata())
        .map_err(failed(path))?;
    let path = std::path::absolute(path).map_err(failed(path))?;
    Ok(LocalFile::of(path, &meta))
}

/// Finds the chunks; all that are missing or empty are reported at once.
pub fn find(wanted: Vec<Wanted>) -> Result<Vec<Found>, Report> {
    let mut report = Report::default();
    let mut found = Vec::new();
    for wanted in wanted {
        let Some(path) = wanted.candidates.iter().find(|path| path.is_file()) else {
            let problem = format!("no such file: {}", wanted.named);
            report.push(Fault::data(&wanted.key, problem).fix(
                "correct the path in the metadata; it is absolute, or relative to its folder",
            ));
            continue;
        };
        let Some(here) = report.keep(look(path)) else {
            continue;
        };
        if here.bytes == 0 {
            let fault = Fault::data(path.display().to_string(), "is empty");
            report.push(fault.fix("write the chunks again: their disk may have been full"));
        }
        found.push(Found { wanted, here });
    }
    report.check()?;
    Ok(found)
}

/// Reads and checks the files of an assignment completely: a wrong one would end the pipeline only
/// after an hour.
pub fn assignment(
    folder: &Path,
    metadata: &Metadata,
    hosts: usize,
) -> Result<Vec<Assigned>, Report> {
    let mut report = Report::default();
    let mut assigned = Vec::new();
    let parts = u32::try_from(hosts).unwrap_or(u32::MAX);
    for (name, nodes) in &metadata.node_types {
        let path = folder.join(format!("{name}.txt"));
        let place = path.display().to_string();
        let Some(counts) = report.keep(counts(&path)) else {
            continue;
        };
        if let Some(problem) = assignment::problem(&counts, *nodes, parts) {
            report.push(Fault::data(&place, problem).fix(format!(
                "write it anew for {hosts} hosts, a line a node: part-assign does"
            )));
        }
        assigned.extend(report.keep(look(&path)).map(|here| Assigned {
            name: name.clone(),
            here,
        }));
    }
    report.check()?;
    Ok(assigned)
}

/// The number of nodes of each partition.
fn counts(path: &Path) -> Result<Vec<u64>, Report> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed(path))?);
    let (mut counts, mut line, mut number) = (Vec::new(), Vec::new(), 0u64);
    while reader.read_until(b'\n', &mut line).map_err(failed(path))? > 0 {
        number += 1;
        let part = assignment::of_line(&line).filter(|part| *part < MAX_PARTS);
        let Some(part) = part else {
            let place = format!("{}:{number}", path.display());
            return Err(Fault::data(place, "is not a number of a partition")
                .fix("write a number a line, that of the partition of the node")
                .report());
        };
        if counts.len() <= part as usize {
            counts.resize(part as usize + 1, 0);
        }
        counts[part as usize] += 1;
        line.clear();
    }
    Ok(counts)
}
