//! From the metadata of a graph in chunks to the partition of each node, drawn, given or of
//! ParMETIS. `plan` and `npy` are values to values; `disk` reads and writes.

pub mod args;
pub mod disk;
pub mod npy;
pub mod plan;

pub use args::Args;

use chunks::{Metadata, assignment};
use plan::{Numbered, Source};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl;
use std::borrow::Cow;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let place = args.metadata.display().to_string();
    let metadata = Metadata::parse(&place, &disk::read(&args.metadata)?)?;
    let sources = match &args.parmetis {
        Some(path) => plan::numbered(&metadata, path),
        None => plan::sources(&metadata, args.random, &args.given)?,
    };
    let parts = args.num_parts;

    // everything is checked before anything is written; one type at a time is in memory
    let mut report = Report::default();
    let mut counts = Vec::new();
    for ((name, nodes), source) in metadata.node_types.iter().zip(&sources) {
        let Some(assigned) = report.keep(assigned(source, *nodes, parts)) else {
            continue;
        };
        let of_type = counted(&assigned, parts);
        if let Some(problem) = assignment::problem(&of_type, *nodes, parts) {
            let fault = Fault::data(format!("{}: {name}", source.option()), problem);
            report.push(fault.fix("give one partition for each node, in the order of the chunks"));
        }
        counts.push(of_type);
    }
    report.check()?;
    plan::check_empty(&counts, parts)?;

    disk::make_folder(&args.to)?;
    for ((name, nodes), source) in metadata.node_types.iter().zip(&sources) {
        let assigned = assigned(source, *nodes, parts)?;
        disk::write(&args.to.join(format!("{name}.txt")), |file| {
            assigned
                .iter()
                .try_for_each(|part| writeln!(file, "{part}"))
        })?;
    }
    let algorithm = if args.random.is_some() {
        "random"
    } else {
        "metis"
    };
    disk::write(&args.to.join("partition_meta.json"), |file| {
        let version = "1.0.0";
        writeln!(
            file,
            "{{\"version\": \"{version}\", \"num_parts\": {parts}, \"algo_name\": \"{algorithm}\"}}"
        )
    })?;
    let lines = metadata
        .node_types
        .iter()
        .zip(&counts)
        .flat_map(|((name, _), of_type)| {
            let line = move |(part, nodes): (usize, &u64)| format!("{name} {part} {nodes}\n");
            of_type.iter().enumerate().map(line)
        });
    jsonl::print(None, lines.map(|line| Cow::Owned(line.into_bytes())))?;
    Ok(Exit::Done)
}

/// The partition of each node of a type.
fn assigned(source: &Source, nodes: u64, parts: u32) -> Result<Vec<u32>, Report> {
    match source {
        Source::Drawn(seed) => Ok(assignment::random(*seed, nodes, parts).collect()),
        Source::File(path) => disk::given(path),
        Source::Numbered { path, own, all } => {
            disk::numbered(path, Numbered::new(own.clone(), *all))
        }
    }
}

/// How many nodes each named partition has; numbers beyond a million count as one partition.
fn counted(assigned: &[u32], parts: u32) -> Vec<u64> {
    let mut counts = vec![0; parts as usize];
    for part in assigned {
        let place = (*part).min(1 << 20) as usize;
        if counts.len() <= place {
            counts.resize(place + 1, 0);
        }
        counts[place] += 1;
    }
    counts
}
