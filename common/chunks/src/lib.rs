//! The metadata of a graph in chunks, as DGL's `chunk_graph.py` writes it and DGL's distributed
//! partitioning pipeline (tools/distpartitioning, 1.0 to 2.4) reads it, and the assignment of its
//! nodes to partitions. Everything here maps values to values; nothing is opened.

pub mod assignment;

use record::error::{Fault, Report};
use serde_json::{Map, Value, json};

/// The checked content of a metadata.json.
#[derive(Clone, Debug)]
pub struct Metadata {
    value: Value,
    /// The graph's name.
    pub graph_name: String,
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

impl FileSet {
    /// The place of the set for messages: `edges.author:writes:paper`.
    pub fn place(&self) -> String {
        self.keys.join(".")
    }
}

const AGAIN: &str = "write it as DGL's chunk_graph.py does";

/// Collects the faults of one file.
struct Reader<'a> {
    place: &'a str,
    report: Report,
}

impl Reader<'_> {
    fn wrong(&mut self, key: &str, problem: &str) {
        let fault = Fault::data(format!("{}: {key}", self.place), problem);
        self.report.push(fault.fix(AGAIN));
    }

    fn names(&mut self, value: &Value, key: &str) -> Vec<String> {
        let names = value.get(key).and_then(Value::as_array);
        let names: Option<Vec<String>> = names.and_then(|all| {
            all.iter()
                .map(|name| Some(name.as_str()?.to_owned()))
                .collect()
        });
        match names {
            Some(names) if !names.is_empty() => names,
            _ => {
                self.wrong(key, "is not a list of names");
                Vec::new()
            }
        }
    }

    /// The number of nodes or edges of each type. The pipeline reads `num_…_per_type` from 1.1 on
    /// and `num_…_per_chunk` before; chunk_graph.py writes only the latter, in all releases.
    fn counts(&mut self, value: &Value, of: &str, types: usize) -> Option<Vec<u64>> {
        let (per_type, per_chunk) = (format!("num_{of}_per_type"), format!("num_{of}_per_chunk"));
        let numbers = |list: &Value| -> Option<Vec<u64>> {
            list.as_array()?.iter().map(Value::as_u64).collect()
        };
        let sums = |lists: &Value| -> Option<Vec<u64>> {
            let sum = |list: &Value| Some(numbers(list)?.iter().sum());
            lists.as_array()?.iter().map(sum).collect()
        };
        let given = value.get(&per_type).map(numbers);
        let summed = value.get(&per_chunk).map(sums);
        let key = if given.is_some() {
            &per_type
        } else {
            &per_chunk
        };
        match (given, summed) {
            (None, None) => self.wrong(key, "is missing, and so is the other way to say it"),
            (Some(None), _) => self.wrong(&per_type, "is not a list of numbers"),
            (_, Some(None)) => self.wrong(&per_chunk, "is not a list of lists of numbers"),
            (Some(Some(one)), Some(Some(other))) if one != other => {
                self.wrong(&per_type, &format!("differs from the sums of {per_chunk}"));
            }
            (Some(Some(counts)), _) | (None, Some(Some(counts))) => {
                if counts.len() == types {
                    return Some(counts);
                }
                self.wrong(key, &format!("has {} types for {types}", counts.len()));
            }
        }
        None
    }

    fn set(&mut self, keys: Vec<String>, value: &Value, formats: &[&str]) -> Option<FileSet> {
        let place = keys.join(".");
        let format = value["format"]["name"].as_str().unwrap_or_default();
        if !formats.contains(&format) {
            let problem = format!("format {format:?} is not {}", formats.join(" or "));
            self.wrong(&place, &problem);
        }
        let files = value["data"].as_array();
        let files: Option<Vec<String>> = files.and_then(|all| {
            all.iter()
                .map(|file| Some(file.as_str()?.to_owned()))
                .collect()
        });
        match files {
            Some(files) if !files.is_empty() => Some(FileSet { keys, files }),
            _ => {
                self.wrong(&place, "data is not a list of files");
                None
            }
        }
    }

    /// The sets of the features of nodes or edges.
    fn features(&mut self, value: &Value, of: &str, types: &[String]) -> Vec<FileSet> {
        let empty = Map::new();
        let by_type = match value.get(of) {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(by_type)) => by_type,
            Some(_) => {
                self.wrong(of, "is not an object of types");
                &empty
            }
        };
        let mut sets = Vec::new();
        for (name, features) in by_type {
            if !types.contains(name) {
                self.wrong(&format!("{of}.{name}"), "is not a type of the graph");
            }
            for (feature, data) in features.as_object().unwrap_or(&empty) {
                let keys = vec![of.to_owned(), name.clone(), feature.clone()];
                sets.extend(self.set(keys, data, &["numpy", "parquet"]));
            }
        }
        sets
    }
}

impl Metadata {
    /// Parses a metadata.json and reports all of its faults at once. `place` names the file in
    /// messages.
    pub fn parse(place: &str, text: &[u8]) -> Result<Metadata, Report> {
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            Fault::data(place, format!("not the metadata of chunks: {error}")).fix(AGAIN)
        })?;
        let mut reader = Reader {
            place,
            report: Report::default(),
        };
        let graph_name = value["graph_name"].as_str().unwrap_or_default().to_owned();
        if graph_name.is_empty() {
            reader.wrong("graph_name", "is missing");
        }
        let node_types = reader.names(&value, "node_type");
        // the pipeline has a file TYPE.txt for each
        for name in node_types.iter().filter(|name| !is_file_name(name)) {
            reader.wrong(
                "node_type",
                &format!("{name:?} cannot be the name of a file"),
            );
        }
        let edge_types = reader.names(&value, "edge_type");
        let num_nodes = reader.counts(&value, "nodes", node_types.len());
        reader.counts(&value, "edges", edge_types.len());
        let mut sets = Vec::new();
        for name in &edge_types {
            let ends: Vec<&str> = name.split(':').collect();
            let known = |end: &str| node_types.iter().any(|name| name == end);
            if ends.len() != 3 || !known(ends[0]) || !known(ends[2]) {
                let problem = format!("{name:?} is not node type:edge type:node type");
                reader.wrong("edge_type", &problem);
            }
            let keys = vec!["edges".to_owned(), name.clone()];
            sets.extend(reader.set(keys, &value["edges"][name], &["csv", "parquet"]));
        }
        sets.extend(reader.features(&value, "node_data", &node_types));
        sets.extend(reader.features(&value, "edge_data", &edge_types));
        reader.report.check()?;
        Ok(Metadata {
            node_types: node_types
                .into_iter()
                .zip(num_nodes.unwrap_or_default())
                .collect(),
            value,
            graph_name,
            sets,
        })
    }

    /// The metadata with other paths (one list for each set) and with the numbers that the pipeline
    /// of 1.1 and later reads. `edge_data` and `node_data` are present even if they are empty,
    /// because the pipeline reads both.
    pub fn rewritten(&self, paths: &[Vec<String>]) -> String {
        let mut value = self.value.clone();
        for (set, paths) in self.sets.iter().zip(paths) {
            let mut place = &mut value;
            for key in &set.keys {
                place = &mut place[key.as_str()];
            }
            place["data"] = json!(paths);
        }
        for of in ["nodes", "edges"] {
            let (per_type, per_chunk) =
                (format!("num_{of}_per_type"), format!("num_{of}_per_chunk"));
            if value.get(&per_type).is_none() {
                let sum = |list: &Value| -> u64 {
                    list.as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_u64)
                        .sum()
                };
                let sums = value[&per_chunk].as_array().into_iter().flatten().map(sum);
                value[&per_type] = json!(sums.collect::<Vec<u64>>());
            }
        }
        for of in ["node_data", "edge_data"] {
            if value[of].is_null() {
                value[of] = json!({});
            }
        }
        format!("{value:#}\n")
    }
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0'])
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
        let places: Vec<String> = read.sets.iter().map(FileSet::place).collect();
        assert_eq!(places, ["edges.a:w:b", "node_data.a.x"]);
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
            ("/graph_name", json!(1), "m: graph_name: is missing"),
            (
                "/node_type",
                json!([1]),
                "m: node_type: is not a list of names",
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
                "num_nodes_per_chunk: has 1 types for 2",
            ),
            (
                "/num_edges_per_chunk",
                json!([5]),
                "num_edges_per_chunk: is not a list of lists",
            ),
            (
                "/edges/a:w:b/data",
                json!([]),
                "m: edges.a:w:b: data is not a list of files",
            ),
            (
                "/edges/a:w:b/format/name",
                json!("numpy"),
                "format \"numpy\" is not csv or parquet",
            ),
            (
                "/node_data",
                json!({"c": {}}),
                "m: node_data.c: is not a type of the graph",
            ),
            ("/node_data", json!([]), "m: node_data: is not an object"),
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
        for at in [
            "/graph_name",
            "/node_type",
            "/num_edges_per_chunk",
            "/edges/a:w:b/data",
        ] {
            *all.pointer_mut(at).unwrap() = json!(7);
        }
        assert!(
            faults_of(&all)
                .lines()
                .filter(|line| line.starts_with("m: "))
                .count()
                >= 4,
            "{}",
            faults_of(&all)
        );
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
