//! The metadata of a graph in chunks, as DGL's `chunk_graph.py` writes it and DGL's distributed
//! partitioning pipeline (tools/distpartitioning, 1.0 to 2.4) reads it.

use crate::assignment::unreadable;
use indexmap::IndexMap;
use record::error::{Fault, Report};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The checked content of a metadata.json.
#[derive(Clone, Debug)]
pub struct Metadata {
    value: Value,
    num_edges: Vec<u64>,
    /// The node types, each with its number of nodes.
    pub node_types: Vec<(String, u64)>,
    /// The files of the graph: one set for the edges of each type and one for each feature.
    pub sets: Vec<FileSet>,
}

/// The files of one subject, in the order of their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSet {
    /// The keys under which the set stands in the metadata: `edges` and a type, or `node_data` or
    /// `edge_data`, a type and a feature.
    pub keys: Vec<String>,
    /// The paths of the files, as the metadata has them.
    pub files: Vec<String>,
}

/// The fields that the pipeline reads. It takes the numbers of nodes and edges from
/// `num_…_per_type` from 1.1 on and from `num_…_per_chunk` before; chunk_graph.py writes only the
/// latter, in all releases.
#[derive(Deserialize)]
struct Fields {
    graph_name: String,
    node_type: Vec<String>,
    edge_type: Vec<String>,
    num_nodes_per_type: Option<Vec<u64>>,
    num_nodes_per_chunk: Option<Vec<Vec<u64>>>,
    num_edges_per_type: Option<Vec<u64>>,
    num_edges_per_chunk: Option<Vec<Vec<u64>>>,
    edges: IndexMap<String, Files>,
    node_data: Option<Features>,
    edge_data: Option<Features>,
}

/// The files of each feature of each type.
type Features = IndexMap<String, IndexMap<String, Files>>;

#[derive(Deserialize)]
struct Files {
    format: Format,
    data: Vec<String>,
}

#[derive(Deserialize)]
struct Format {
    name: String,
}

/// A chunk takes some 100 bytes of the metadata, so this is a graph of half a million chunks.
const MAX_BYTES: u64 = 64 << 20;

const AGAIN: &str = "write it as DGL's chunk_graph.py does";

/// Checks the names of types and their counts; returns the latter.
fn counts(
    of: &str,
    types: &[String],
    per_type: Option<Vec<u64>>,
    per_chunk: Option<Vec<Vec<u64>>>,
) -> Result<Vec<u64>, String> {
    if types.is_empty() {
        return Err(format!("has no types of {of}"));
    }
    let sum = |counts: &Vec<u64>| {
        counts
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(*one))
    };
    let sums = per_chunk.map(|chunks| chunks.iter().map(sum).collect::<Vec<u64>>());
    let counts = match (per_type, sums) {
        (Some(counts), Some(sums)) if counts != sums => {
            return Err(format!(
                "num_{of}_per_type differs from the sums of num_{of}_per_chunk"
            ));
        }
        (Some(counts), _) | (None, Some(counts)) => counts,
        (None, None) => {
            return Err(format!(
                "num_{of}_per_chunk or num_{of}_per_type is missing"
            ));
        }
    };
    match counts.len() == types.len() {
        true => Ok(counts),
        false => Err(format!(
            "the numbers of {of} are those of {} types, of {}",
            counts.len(),
            types.len()
        )),
    }
}

/// The files of the edges of each type and of the features of each type.
fn sets(
    (node_types, node_data): (&[String], Option<Features>),
    (edge_types, edge_data): (&[String], Option<Features>),
    mut edges: IndexMap<String, Files>,
    wrong: &mut dyn FnMut(String),
) -> Vec<FileSet> {
    let mut sets = Vec::new();
    for name in edge_types {
        let ends: Vec<&str> = name.split(':').collect();
        let known = |end: &str| node_types.iter().any(|name| name == end);
        if ends.len() != 3 || !known(ends[0]) || !known(ends[2]) {
            wrong(format!(
                "edge_type: {name:?} is not node type:edge type:node type"
            ));
        }
        match edges.swap_remove(name) {
            Some(files) => sets.push((vec!["edges".to_owned(), name.clone()], files, "csv")),
            None => wrong(format!("edges.{name} is missing")),
        }
    }
    let features = [
        ("node_data", node_data, node_types),
        ("edge_data", edge_data, edge_types),
    ];
    for (of, by_type, types) in features {
        for (name, features) in by_type.unwrap_or_default() {
            if !types.contains(&name) {
                wrong(format!("{of}.{name} is not a type of the graph"));
            }
            let set =
                |(feature, files)| (vec![of.to_owned(), name.clone(), feature], files, "numpy");
            sets.extend(features.into_iter().map(set));
        }
    }
    for (keys, files, format) in &sets {
        let (set, name) = (keys.join("."), &files.format.name);
        if name != format && name != "parquet" {
            wrong(format!("{set}: format {name:?} is not {format} or parquet"));
        }
        if files.data.is_empty() {
            wrong(format!("{set}: data has no files"));
        }
    }
    let sets = sets.into_iter().map(|(keys, files, _)| FileSet {
        keys,
        files: files.data,
    });
    sets.collect()
}

impl Metadata {
    /// Reads and checks a metadata.json.
    pub fn read(path: &Path) -> Result<Metadata, Report> {
        let mut text = Vec::new();
        File::open(path)
            // a byte too many is enough to refuse it
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text))
            .map_err(unreadable(path))?;
        let location = path.display().to_string();
        if text.len() as u64 > MAX_BYTES {
            let problem = format!("more than {MAX_BYTES} bytes: not the metadata of chunks");
            return Err(Fault::data(location, problem)
                .fix("name the metadata.json that chunk_graph.py wrote")
                .report());
        }
        Metadata::parse(&location, &text)
    }

    /// Parses a metadata.json and reports all of its faults at once. `location` names the file in
    /// messages.
    pub fn parse(location: &str, text: &[u8]) -> Result<Metadata, Report> {
        let read = || Ok((serde_json::from_slice(text)?, serde_json::from_slice(text)?));
        let (value, fields): (Value, Fields) = read().map_err(|error: serde_json::Error| {
            Fault::data(location, format!("not the metadata of chunks: {error}")).fix(AGAIN)
        })?;
        let mut report = Report::default();
        let mut wrong = |problem: String| report.push(Fault::data(location, problem).fix(AGAIN));
        let (node_types, edge_types) = (fields.node_type, fields.edge_type);
        if fields.graph_name.is_empty() {
            wrong("graph_name is empty".to_owned());
        }
        // the pipeline has a file TYPE.txt for each
        for name in &node_types {
            if name.is_empty() || name.contains(['/', '\0']) {
                wrong(format!("node_type: {name:?} cannot be the name of a file"));
            }
        }
        let mut counted = |counts: Result<Vec<u64>, String>| {
            counts.unwrap_or_else(|problem| {
                wrong(problem);
                Vec::new()
            })
        };
        let num_nodes = counted(counts(
            "nodes",
            &node_types,
            fields.num_nodes_per_type,
            fields.num_nodes_per_chunk,
        ));
        let num_edges = counted(counts(
            "edges",
            &edge_types,
            fields.num_edges_per_type,
            fields.num_edges_per_chunk,
        ));
        let sets = sets(
            (&node_types, fields.node_data),
            (&edge_types, fields.edge_data),
            fields.edges,
            &mut wrong,
        );
        report.check()?;
        Ok(Metadata {
            node_types: node_types.into_iter().zip(num_nodes).collect(),
            num_edges,
            value,
            sets,
        })
    }

    /// The metadata with other paths (one list for each set) and with the numbers that the pipeline
    /// of 1.1 and later reads. `edge_data` and `node_data` are present even if they are empty,
    /// because the pipeline reads both.
    pub fn rewritten(&self, paths: &[Vec<String>]) -> String {
        let mut value = self.value.clone();
        for (set, paths) in self.sets.iter().zip(paths) {
            let mut files = &mut value;
            for key in &set.keys {
                files = &mut files[key.as_str()];
            }
            files["data"] = json!(paths);
        }
        let num_nodes = self.node_types.iter().map(|(_, nodes)| *nodes);
        value["num_nodes_per_type"] = num_nodes.collect();
        value["num_edges_per_type"] = json!(self.num_edges);
        for of in ["node_data", "edge_data"] {
            if value[of].is_null() {
                value[of] = json!({});
            }
        }
        format!("{value:#}\n")
    }
}

/// The host that reads a file, given the number of files and hosts. The files are split as evenly
/// as possible and in order; the first hosts read one more. The pipeline does the same in all
/// releases (numpy's array_split over its processes) where it has as many partitions as processes.
pub fn reader_of(file: usize, files: usize, hosts: usize) -> usize {
    let (few, more) = (files / hosts, files % hosts);
    let in_larger = more * (few + 1);
    match file < in_larger {
        true => file / (few + 1),
        false => more + (file - in_larger) / few.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let files =
            |names: &[&str], format: &str| json!({"format": {"name": format}, "data": names});
        json!({
            "graph_name": "g", "node_type": ["a", "b"], "edge_type": ["a:w:b"],
            "num_nodes_per_chunk": [[3, 2], [1, 1]], "num_edges_per_chunk": [[5, 5]],
            "edges": {"a:w:b": files(&["e0", "e1"], "csv")},
            "node_data": {"a": {"x": files(&["x0", "x1"], "numpy")}},
        })
    }

    fn faults_of(value: &Value) -> String {
        let report = Metadata::parse("m", value.to_string().as_bytes()).unwrap_err();
        let lines: Vec<String> = report.0.iter().map(Fault::to_string).collect();
        lines.join("\n")
    }

    #[test]
    fn what_it_says_and_says_anew() {
        let read = Metadata::parse("m", metadata().to_string().as_bytes()).unwrap();
        assert_eq!(read.node_types, [("a".to_owned(), 5), ("b".to_owned(), 2)]);
        let sets: Vec<String> = read.sets.iter().map(|set| set.keys.join(".")).collect();
        assert_eq!(sets, ["edges.a:w:b", "node_data.a.x"]);
        let paths = [vec!["E0".to_owned(), "E1".to_owned()], vec!["X".to_owned()]];
        let anew: Value = serde_json::from_str(&read.rewritten(&paths)).unwrap();
        assert_eq!(anew["edges"]["a:w:b"]["data"], json!(["E0", "E1"]));
        assert_eq!(anew["node_data"]["a"]["x"]["data"], json!(["X"]));
        assert_eq!(
            (&anew["num_nodes_per_type"], &anew["num_edges_per_type"]),
            (&json!([5, 2]), &json!([10]))
        );
        assert_eq!(anew["edge_data"], json!({}));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let table: &[(&str, Value, &str)] = &[
            ("/graph_name", json!(""), "m: graph_name is empty"),
            (
                "/node_type",
                json!([1]),
                "m: not the metadata of chunks: invalid type: integer `1`, expected a string",
            ),
            (
                "/edge_type/0",
                json!("a:w"),
                "\"a:w\" is not node type:edge type:node type",
            ),
            ("/edge_type/0", json!("a:w:c"), "\"a:w:c\" is not node type"),
            (
                "/num_nodes_per_chunk",
                json!([[3, 2]]),
                "m: the numbers of nodes are those of 1 types, of 2",
            ),
            (
                "/num_edges_per_chunk",
                json!([5]),
                "m: not the metadata of chunks: invalid type: integer `5`, expected a sequence",
            ),
            (
                "/edges/a:w:b/data",
                json!([]),
                "m: edges.a:w:b: data has no files",
            ),
            (
                "/edges/a:w:b/format/name",
                json!("numpy"),
                "format \"numpy\" is not csv or parquet",
            ),
            (
                "/node_data",
                json!({"c": {}}),
                "m: node_data.c is not a type of the graph",
            ),
            (
                "/node_data/a/x/format/name",
                json!("csv"),
                "\"csv\" is not numpy or parquet",
            ),
        ];
        for (at, with, problem) in table {
            let mut value = metadata();
            *value.pointer_mut(at).unwrap() = with.clone();
            assert!(
                faults_of(&value).contains(problem),
                "{at}: {}",
                faults_of(&value)
            );
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let mut all = metadata();
        for (at, with) in [
            ("/graph_name", json!("")),
            ("/node_type/1", json!("c")),
            ("/num_edges_per_chunk", json!([])),
            ("/edges/a:w:b/data", json!([])),
        ] {
            *all.pointer_mut(at).unwrap() = with;
        }
        let faults = faults_of(&all);
        let lines = faults.lines().filter(|line| line.starts_with("m: "));
        assert_eq!(lines.count(), 4, "{faults}");
        for name in ["", "../a", "b/c"] {
            let mut named = metadata();
            named["node_type"][1] = json!(name);
            let problem = format!("m: node_type: {name:?} cannot be the name of a file");
            assert!(
                faults_of(&named).contains(&problem),
                "{}",
                faults_of(&named)
            );
        }
        let mut twice = metadata();
        twice["num_nodes_per_type"] = json!([5, 3]);
        assert!(faults_of(&twice).contains("differs from the sums of num_nodes_per_chunk"));
        assert!(Metadata::parse("m", b"[").is_err());
    }

    #[test]
    fn files_are_split_as_numpy_splits() {
        let split = |files: usize, hosts: usize| -> Vec<usize> {
            (0..files)
                .map(|file| reader_of(file, files, hosts))
                .collect()
        };
        assert_eq!(split(10, 4), [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]);
        assert_eq!(split(4, 2), [0, 0, 1, 1]);
        assert_eq!(split(2, 3), [0, 1]);
        assert_eq!(split(3, 1), [0, 0, 0]);
    }
}
