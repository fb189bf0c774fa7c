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
        Some(_) => plan::numbered(&metadata),
        None => plan::sources(&metadata, args.random, &args.given)?,
    };
    let numbered = match &args.parmetis {
        Some(path) => disk::numbered(path, Numbered::new(plan::all_nodes(&metadata)))?,
        None => Vec::new(),
    };
    let parts = args.num_parts;

    // a source is read once: it may be a pipe, or have the name of a file that is written. What is
    // written has its name only when everything is checked; one type at a time is in memory
    let mut files = disk::Files::begin(&args.to)?;
    let mut report = Report::default();
    let mut counts = Vec::new();
    for ((name, nodes), source) in metadata.node_types.iter().zip(&sources) {
        let assigned = assigned(source, *nodes, parts, &numbered);
        let Some(assigned) = report.keep(assigned) else {
            continue;
        };
        let of_type = counted(&assigned, parts);
        match assignment::problem(&of_type, *nodes, parts) {
            Some(problem) => {
                let fault = Fault::data(format!("{}: {name}", source.option()), problem);
                let fix = "give one partition for each node, in the order of the chunks";
                report.push(fault.fix(fix));
            }
            None => files.write(&format!("{name}.txt"), |file| {
                let mut parts = assigned.iter();
                parts.try_for_each(|part| writeln!(file, "{part}"))
            })?,
        }
        counts.push(of_type);
    }
    report.check()?;
    plan::check_empty(&counts, parts)?;

    write_meta(&mut files, parts, args.random.is_some())?;
    files.name_all()?;
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

/// Writes what DGL wants to know of the assignment.
fn write_meta(files: &mut disk::Files, parts: u32, is_random: bool) -> Result<(), Report> {
    let algorithm = if is_random { "random" } else { "metis" };
    files.write("partition_meta.json", |file| {
        let version = "1.0.0";
        writeln!(
            file,
            "{{\"version\": \"{version}\", \"num_parts\": {parts}, \"algo_name\": \"{algorithm}\"}}"
        )
    })
}

/// The partition of each node of a type; `numbered` has those of all types, if ParMETIS found them.
fn assigned<'a>(
    source: &Source,
    nodes: u64,
    parts: u32,
    numbered: &'a [u32],
) -> Result<Cow<'a, [u32]>, Report> {
    match source {
        Source::Drawn(seed) => Ok(assignment::random(*seed, nodes, parts).collect()),
        Source::File(path) => disk::given(path).map(Cow::Owned),
        Source::Numbered(own) => Ok(Cow::Borrowed(&numbered[own.clone()])),
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
