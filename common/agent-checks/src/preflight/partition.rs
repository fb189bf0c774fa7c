//! Checks the partition config and the files of this host's partition.

use super::files;
use host::procfs;
use partition::Outline;
use partition::config::MAX_BYTES;
use record::term;
use std::io::Read;
use std::path::Path;
use transfer::room::free_bytes;
use wire::files::Hex;
use wire::preflight::{Finding, Problem, Subject};

/// Checks the config, the files that the graph servers of this host load, and the room for them in
/// /dev/shm.
pub fn check(folder: &Path, path: &Path, part: Option<u32>, private_shm: bool) -> Vec<Finding> {
    let file = folder.join(path);
    let Some(opened) = files::open_regular(&file) else {
        return Vec::new();
    };
    let mut text = Vec::new();
    // a file that cannot be read, or is longer than any config, has no partitions; its beginning is
    // reported all the same, so that hosts can be compared
    let _ = opened.take(MAX_BYTES).read_to_end(&mut text);
    let mut findings = vec![Finding::Content {
        program: None,
        file: "the partition config".to_owned(),
        hash: Hex(blake3::hash(&text).into()),
    }];
    let config = Outline::parse(&text);
    let maps = config.npy_maps.iter();
    let mut problems: Vec<Problem> = maps
        .filter_map(|map| files::missing(&folder.join(map)))
        .collect();
    match config.num_parts {
        Some(num_parts) => findings.push(Finding::Graph {
            num_parts,
            graph_name: config.graph_name.clone().unwrap_or_default(),
        }),
        None => {
            let problem = "this is not a partition config: num_parts is missing";
            problems.push(Problem::new(Subject::Copy, problem));
        }
    }
    if let Some(part) = part {
        problems.extend(match config.files(part) {
            Some(named) => check_part(folder, &file, part, &named, room(private_shm)),
            None => {
                let problem = format!(
                    "{} has no part-{part}, which is this host's",
                    file.display()
                );
                vec![Problem::new(Subject::Copy, problem)]
            }
        });
    }
    findings.extend(problems.into_iter().map(Finding::from));
    findings
}

/// A private /dev/shm has half of the memory, the default of tmpfs(5).
fn room(private_shm: bool) -> Option<u64> {
    if private_shm {
        return procfs::memory_bytes().map(|bytes| bytes / 2);
    }
    free_bytes(Path::new("/dev/shm"))
}

/// Looks up the files by the keys and paths in the config.
fn check_part(
    workspace: &Path,
    config: &Path,
    part: u32,
    named: &[(String, String)],
    room: Option<u64>,
) -> Vec<Problem> {
    let config_folder = config.parent().unwrap_or(Path::new("."));
    let mut problems = Vec::new();
    // if the graph has two formats, the script chooses the one to load
    let (mut graph_bytes, mut other_bytes) = (None, 0u64);
    let mut no_graph = None;
    for (key, value) in named {
        let file = config_folder.join(value);
        let is_graph = key.starts_with("part_graph");
        let fault = files::missing(&file);
        let is_elsewhere =
            Path::new(value).is_relative() && files::is_readable(&workspace.join(value));
        match (fault, is_graph) {
            (None, _) => {
                let bytes = file.metadata().map_or(0, |meta| meta.len());
                if is_graph {
                    graph_bytes = graph_bytes.max(Some(bytes));
                } else {
                    other_bytes = other_bytes.saturating_add(bytes);
                }
            }
            (Some(_), _) if is_elsewhere => {
                graph_bytes = graph_bytes.or(Some(0));
                let problem = format!("no such file: {}", file.display());
                problems.push(Problem::new(Subject::OldPath, problem));
            }
            (fault, true) => no_graph = fault,
            (fault, false) => problems.extend(fault),
        }
    }
    if graph_bytes.is_none() {
        problems.push(no_graph.unwrap_or_else(|| {
            let problem = format!("{} names no graph for part-{part}", config.display());
            Problem::new(Subject::Copy, problem)
        }));
    }
    let need = other_bytes.saturating_add(graph_bytes.unwrap_or(0));
    if let Some(free) = room.filter(|room| need > *room) {
        let problem = format!(
            "its partition needs {} in /dev/shm; {} are free",
            term::bytes(need),
            term::bytes(free)
        );
        problems.push(Problem::new(Subject::SharedMemoryRoom, problem));
    }
    problems
}
