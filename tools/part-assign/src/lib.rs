//! From the metadata of a graph in chunks to the partition of each node, drawn, given or of
//! ParMETIS. `plan` maps values to values; `disk` reads and writes.

pub mod args;
pub mod disk;
pub mod plan;

pub use args::Args;

use partition::assignment::{self, count};
use partition::chunks::Metadata;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl;
use std::borrow::Cow;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let metadata = Metadata::read(&args.metadata)?;
    let given = match args.given.is_empty() {
        true => Vec::new(),
        false => plan::given_files(&metadata, &args.given)?,
    };
    let mut numbered = match &args.parmetis {
        Some(path) => {
            let nodes = metadata.node_types.iter().map(|(_, nodes)| *nodes as usize);
            disk::numbered(path, nodes.fold(0, usize::saturating_add))?
        }
        None => Vec::new(),
    }
    .into_iter();
    let option = match (args.random, &args.parmetis) {
        (Some(_), _) => "--random",
        (None, Some(_)) => "--parmetis",
        (None, None) => "--given",
    };
    let parts = args.num_parts;

    // a source is read once: it may be a pipe, or have the name of a file that is written. What is
    // written has its name only when everything is checked; one type at a time is in memory
    let mut files = disk::Files::begin(&args.to)?;
    let mut report = Report::default();
    let mut counts = Vec::new();
    for (nth, (name, nodes)) in metadata.node_types.iter().enumerate() {
        let assigned: Result<Vec<u32>, Report> = match (args.random, given.get(nth)) {
            // types must get different random numbers
            (Some(seed), _) => {
                Ok(assignment::random(seed ^ (nth as u64) << 32, *nodes, parts).collect())
            }
            (None, Some(path)) => disk::given(path),
            (None, None) => Ok(numbered.by_ref().take(*nodes as usize).collect()),
        };
        let Some(assigned) = report.keep(assigned) else {
            continue;
        };
        let mut of_type = vec![0; parts as usize];
        assigned.iter().for_each(|part| count(&mut of_type, *part));
        match assignment::problem(&of_type, *nodes, parts) {
            Some(problem) => {
                let fault = Fault::data(format!("{option}: {name}"), problem);
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
    let types = metadata.node_types.iter().zip(&counts);
    let lines = types.flat_map(|((name, _), of_type)| {
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
        writeln!(
            file,
            "{{\"version\": \"1.0.0\", \"num_parts\": {parts}, \"algo_name\": \"{algorithm}\"}}"
        )
    })
}
