//! The partition config in the forms of DGL's versions: [`PartConfig`] to copy or measure its
//! files, [`Outline`] only to compare it with a job. Unknown fields stay unchanged, including their
//! numbers.

use crate::maps::{self, KEYS, Map};
use indexmap::IndexMap;
use record::error::{Fault, Report};
use record::term;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// A JSON object whose values keep their text.
pub type Object = IndexMap<String, Box<RawValue>>;

/// A part's graph for DGL's own sampling.
pub const DGL_GRAPH: &str = "part_graph";
/// The same for graphbolt, from DGL 2.1 on. A part has one of the two, or both.
pub const GRAPHBOLT_GRAPH: &str = "part_graph_graphbolt";
/// The keys of a part's features; a part has both files, even if they are empty.
pub const FEATURES: [&str; 2] = ["node_feats", "edge_feats"];

/// More partitions than the largest job has hosts.
const MAX_PARTS: u32 = 1 << 20;
/// The config travels in a record of at most 64 MiB, in which a quote takes two bytes. 10,000
/// partitions with 40 types need 10 MB.
pub const MAX_BYTES: u64 = 32 << 20;
/// Further missing parts are not informative.
const MAX_FAULTS: usize = 100;
/// How many characters are shown of a problem, which may quote any value of the config.
const PROBLEM_SHOWN: usize = 500;

const NAME_CONFIG: &str = "name the JSON file that partition_graph wrote";
const AGAIN: &str = "partition the graph again: the config is not whole";

#[derive(Clone, Debug)]
pub struct PartConfig {
    /// For messages.
    pub location: String,
    pub file: PathBuf,
    /// Its paths may be relative to these: its own directory and, if it is a link, its target's.
    pub folders: Vec<PathBuf>,
    /// The reader's working directory, to which its paths may be relative too.
    pub working_folder: Option<PathBuf>,
    pub graph_name: String,
    pub num_parts: u32,
    pub maps: [Map; 2],
    pub parts: Vec<Object>,
    fields: Object,
}

/// The ends of a path, without root or dots: `a/b/c`, `b/c` and `c` of `/a/b/c`, for a directory
/// that was moved after its files were named absolutely.
pub fn path_ends(path: &Path) -> Vec<PathBuf> {
    let names: Vec<Component<'_>> = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    (0..names.len())
        .map(|from| names[from..].iter().collect())
        .collect()
}

impl PartConfig {
    pub fn read(path: &Path) -> Result<PartConfig, Report> {
        let location = path.display().to_string();
        let unreadable = |error: std::io::Error| {
            Fault::unreachable(&location, error.to_string())
                .did_you_mean(path)
                .fix("name the JSON file that partition_graph wrote, such as out/GRAPH_NAME.json")
        };
        let mut text = Vec::new();
        // one extra byte is enough to refuse it
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text))
            .map_err(unreadable)?;
        let config = PartConfig::parse(
            &text,
            &location,
            std::path::absolute(path).map_err(unreadable)?,
        )?;
        let real = path
            .canonicalize()
            .ok()
            .and_then(|real| real.parent().map(Path::to_owned));
        let other = real.filter(|real| !config.folders.contains(real));
        Ok(PartConfig {
            folders: config.folders.into_iter().chain(other).collect(),
            working_folder: std::env::current_dir().ok(),
            ..config
        })
    }

    pub fn parse(text: &[u8], location: &str, file: PathBuf) -> Result<PartConfig, Report> {
        PartConfig::parse_whole(text, location, file).map_err(|mut report| {
            for fault in &mut report.0 {
                fault.problem = term::cut(&fault.problem, PROBLEM_SHOWN);
            }
            report
        })
    }

    fn parse_whole(text: &[u8], location: &str, file: PathBuf) -> Result<PartConfig, Report> {
        let not_one = |problem: String| Fault::data(location, problem).fix(NAME_CONFIG);
        if let Some(fault) = other_file(text, location) {
            return Err(fault.report());
        }
        let fields: Object = serde_json::from_slice(text)
            .map_err(|error| not_one(format!("not a partition config: {error}")))?;
        let graph_name: String = field(&fields, "graph_name").map_err(&not_one)?;
        let num_parts: u32 = field(&fields, "num_parts").map_err(&not_one)?;
        if num_parts == 0 || num_parts > MAX_PARTS {
            return Err(not_one(format!("num_parts is {num_parts}")).report());
        }
        if graph_name.is_empty() || graph_name.contains(['/', '\0']) {
            let fault = Fault::data(
                location,
                format!("graph_name {graph_name:?} cannot be a file's name"),
            );
            return Err(fault.fix("partition the graph under another name").report());
        }
        let (parts, problems) = parts(&fields, num_parts);
        let mut report = Report(
            problems
                .into_iter()
                .map(|problem| Fault::data(location, problem).fix(AGAIN))
                .collect(),
        );
        let maps = KEYS.map(|keys| report.keep(maps::check(location, &fields, keys, num_parts)));
        let ([Some(nodes), Some(edges)], true) = (maps, report.0.is_empty()) else {
            return Err(report);
        };
        if matches!(nodes, Map::Npy { .. }) != matches!(edges, Map::Npy { .. }) {
            return Err(not_one(
                "one of node_map and edge_map is an .npy file, the other is not".to_owned(),
            )
            .report());
        }
        let folders = vec![file.parent().unwrap_or(Path::new("/")).to_owned()];
        Ok(PartConfig {
            location: location.to_owned(),
            file,
            folders,
            working_folder: None,
            graph_name,
            num_parts,
            maps: [nodes, edges],
            parts,
            fields,
        })
    }

    /// The paths at which a file of the config may be: relative to the config's directory, or else
    /// to the working directory; or, because the directory may have moved (0.5, and .npy maps up to
    /// 0.9, have absolute paths), at the end of its path beside the config.
    pub fn candidates(&self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        let path = path.as_ref();
        let mut found: Vec<PathBuf> = self
            .folders
            .iter()
            .map(|folder| folder.join(path))
            .collect();
        if path.is_relative() {
            found.extend(self.working_folder.as_ref().map(|folder| folder.join(path)));
        }
        let ends = path_ends(path);
        for end in &ends[ends.len().saturating_sub(2)..] {
            found.extend(self.folders.iter().map(|folder| folder.join(end)));
        }
        found
    }

    pub fn path_of(&self, part: usize, key: &str) -> Option<String> {
        text(self.parts.get(part)?.get(key)?)
    }

    pub fn all_have(&self, key: &str) -> bool {
        self.parts.iter().all(|part| part.contains_key(key))
    }

    pub fn any_has(&self, key: &str) -> bool {
        self.parts.iter().any(|part| part.contains_key(key))
    }

    /// Sets the path under a key of a part, or of a map; returns whether it changed.
    pub fn set_path(&mut self, part: Option<u32>, key: &str, path: &str) -> Result<bool, Fault> {
        let object = part
            .and_then(|part| self.parts.get_mut(part as usize))
            .unwrap_or(&mut self.fields);
        let is_other = object.get(key).and_then(|value| text(value)).as_deref() != Some(path);
        object.insert(key.to_owned(), raw(&self.location, path)?);
        Ok(is_other)
    }

    /// The text of the config, without the parts' key `dropped`.
    pub fn json(&self, dropped: Option<&str>) -> Result<String, Fault> {
        let mut fields = self.fields.clone();
        for (k, part) in self.parts.iter().enumerate() {
            let mut part = part.clone();
            dropped.map(|key| part.shift_remove(key));
            fields.insert(format!("part-{k}"), raw(&self.location, &part)?);
        }
        let lines: Result<Vec<String>, Fault> = fields
            .iter()
            .map(|(key, value)| Ok(format!("    {}: {value}", raw(&self.location, key)?)))
            .collect();
        Ok(format!("{{\n{}\n}}\n", lines?.join(",\n")))
    }
}

/// The fault of a file that is longer than any partition config, or that DGL's distributed
/// partitioning has beside the config.
pub fn other_file(text: &[u8], location: &str) -> Option<Fault> {
    if text.len() as u64 > MAX_BYTES {
        let problem = format!("more than {MAX_BYTES} bytes: this is not a partition config");
        return Some(Fault::data(location, problem).fix(NAME_CONFIG));
    }
    let fields: Object = serde_json::from_slice(text).ok()?;
    let has = |key: &str| fields.contains_key(key);
    let problem = if has("num_nodes_per_chunk") || has("num_edges_per_chunk") {
        "this is the metadata of a chunked graph, which is not partitioned yet"
    } else if has("algo_name") && !has("graph_name") {
        "this tells how a graph was partitioned, and does not name the files of its partitions"
    } else {
        return None;
    };
    Some(Fault::data(location, problem).fix(
        "name the JSON file that DGL's dispatch_data.py wrote into its --out-dir; \
         dgl-tools-partition(7) has the steps before it",
    ))
}

fn raw(location: &str, value: &(impl Serialize + ?Sized)) -> Result<Box<RawValue>, Fault> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| Fault::data(location, error.to_string()).fix(AGAIN))
}

/// The fields that show whether a config belongs to a job. Any file is accepted: a field that is
/// missing or of another type is `None`.
#[derive(Debug, Default)]
pub struct Outline {
    pub num_parts: Option<u64>,
    /// The name by which the script must load the graph.
    pub graph_name: Option<String>,
    /// Relative to the working directory of the process that loads the graph.
    pub npy_maps: Vec<String>,
    fields: Object,
}

impl Outline {
    pub fn parse(config: &[u8]) -> Outline {
        let fields: Object = serde_json::from_slice(config).unwrap_or_default();
        let maps = KEYS.iter().filter_map(|keys| field(&fields, keys.map).ok());
        Outline {
            num_parts: field(&fields, "num_parts").ok(),
            graph_name: field(&fields, "graph_name").ok(),
            npy_maps: maps.collect(),
            fields,
        }
    }

    /// The keys and paths of the files of a part, if it exists.
    pub fn files(&self, part: u32) -> Option<Vec<(String, String)>> {
        let part: Object = field(&self.fields, &format!("part-{part}")).ok()?;
        let files = part.into_iter().filter(|(key, _)| is_known(key));
        Some(
            files
                .filter_map(|(key, value)| Some((key, text(&value)?)))
                .collect(),
        )
    }
}

fn parts(fields: &Object, num_parts: u32) -> (Vec<Object>, Vec<String>) {
    let mut parts = Vec::new();
    let mut problems = Vec::new();
    for k in 0..num_parts {
        match field::<Object>(fields, &format!("part-{k}")) {
            Ok(part) => {
                problems.extend(
                    problems_of(&part)
                        .into_iter()
                        .map(|problem| format!("part-{k}{problem}")),
                );
                parts.push(part);
            }
            Err(problem) => problems.push(problem),
        }
        if problems.len() >= MAX_FAULTS {
            break;
        }
    }
    (parts, problems)
}

fn problems_of(part: &Object) -> Vec<String> {
    let mut problems = Vec::new();
    if !part.contains_key(DGL_GRAPH) && !part.contains_key(GRAPHBOLT_GRAPH) {
        problems.push(format!(
            " names no graph ({DGL_GRAPH} or {GRAPHBOLT_GRAPH})"
        ));
    }
    problems.extend(
        FEATURES
            .iter()
            .filter(|key| !part.contains_key(**key))
            .map(|key| format!(".{key} is missing")),
    );
    let no_paths = part.iter().filter(|(key, value)| {
        is_known(key) && text(value).is_none_or(|path| Path::new(&path).file_name().is_none())
    });
    problems.extend(no_paths.map(|(key, value)| format!(".{key}: {value} is not a path")));
    problems
}

/// Whether a part's key names a file in DGL 0.5 to 2.4.
pub fn is_known(key: &str) -> bool {
    key == DGL_GRAPH || key == GRAPHBOLT_GRAPH || FEATURES.contains(&key)
}

pub fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

pub(crate) fn field<'a, T: Deserialize<'a>>(fields: &'a Object, key: &str) -> Result<T, String> {
    let value = fields.get(key).ok_or_else(|| format!("{key} is missing"))?;
    serde_json::from_str(value.get()).map_err(|error| format!("{key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outline_of_a_config_and_of_what_is_none() {
        let config = Outline::parse(
            br#"{"graph_name": "g", "node_map": {"_N": [[0, 1]]}, "edge_map": "maps/edge.npy",
            "num_parts": 2, "halo": 1.5,
            "part-0": {"node_feats": "a", "part_graph": "b", "num_nodes": 7, "other": "c"},
            "part-1": {"edge_feats": "d", "part_graph_graphbolt": null}, "part-2": 3}"#,
        );
        assert_eq!(config.num_parts, Some(2));
        assert_eq!(config.graph_name.as_deref(), Some("g"));
        assert_eq!(config.npy_maps, ["maps/edge.npy"]);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let first = [pair("node_feats", "a"), pair("part_graph", "b")];
        assert_eq!(config.files(0).unwrap(), first);
        assert_eq!(config.files(1).unwrap(), [pair("edge_feats", "d")]);
        assert_eq!((config.files(2), config.files(3)), (None, None));
        for text in ["", "[]", r#"{"num_parts": "2"}"#, r#"{"num_parts": 2, x"#] {
            assert_eq!(Outline::parse(text.as_bytes()).num_parts, None, "{text}");
        }
    }

    fn parse(text: &str) -> Result<PartConfig, String> {
        PartConfig::parse(text.as_bytes(), "g.json", PathBuf::from("/d/g.json"))
            .map_err(|report| report.0[0].to_string())
    }

    #[test]
    fn another_file_of_dgl_is_named() {
        let metadata = r#"{"graph_name":"mag","node_type":["paper"],
            "num_nodes_per_chunk":[[10,10]],"edge_type":["paper:cites:paper"]}"#;
        let meta = r#"{"algo_name":"random","num_parts":2,"version":"1.0.0"}"#;
        let long = " ".repeat(MAX_BYTES as usize + 1);
        let table = [
            (metadata, "this is the metadata of a chunked graph"),
            (meta, "this tells how a graph was partitioned"),
            (&long, "more than 33554432 bytes"),
        ];
        for (text, problem) in table {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(problem), "{fault}");
        }
        for text in ["", "{}", r#"{"graph_name":"g","algo_name":"x"}"#] {
            assert!(other_file(text.as_bytes(), "g.json").is_none(), "{text}");
        }
    }

    #[test]
    fn a_problem_quotes_only_the_beginning_of_a_long_value() {
        let long = "é".repeat(1 << 20);
        let table = [
            format!("{long:?}"),
            format!(r#"{{"graph_name":"{long}/","num_parts":1}}"#),
            format!(r#"{{"graph_name":"g","num_parts":"{long}"}}"#),
            format!(r#"{{"graph_name":"g","num_parts":1,"part-0":"{long}"}}"#),
            format!(
                r#"{{"graph_name":"g","num_parts":1,"part-0":{{"node_feats":"a","edge_feats":"b",
                "part_graph":["{long}"]}}}}"#
            ),
        ];
        for text in table {
            let fault = parse(&text).unwrap_err();
            assert!(
                fault.contains("éé") && fault.len() < 3 * PROBLEM_SHOWN,
                "{fault:.900}"
            );
        }
    }

    #[test]
    fn what_is_not_understood_stays() {
        let text = r#"{"graph_name":"g","num_parts":1,"num_nodes":1,"num_edges":2,
            "node_map":"/x/n.npy",
            "edge_map":"/x/e.npy","halo_hops":1.0,"big":12345678901234567890123,
            "part-0":{"part_graph":"a","part_graph_graphbolt":"b","node_feats":"n",
                "edge_feats":"e","future":1e400}}"#;
        let mut config = parse(text).unwrap();
        for (part, key, path) in [
            (Some(0), DGL_GRAPH, "b \"c\""),
            (None, "node_map", "data/n.npy"),
        ] {
            assert!(config.set_path(part, key, path).unwrap());
            assert!(!config.set_path(part, key, path).unwrap());
        }
        let written = config.json(Some(GRAPHBOLT_GRAPH)).unwrap();
        assert_eq!(
            written,
            "{\n    \"graph_name\": \"g\",\n    \"num_parts\": 1,\n    \"num_nodes\": 1,\n    \
             \"num_edges\": 2,\n    \"node_map\": \"data/n.npy\",\n    \
             \"edge_map\": \"/x/e.npy\",\n    \"halo_hops\": 1.0,\n    \"big\": \
             12345678901234567890123,\n    \
             \"part-0\": {\"part_graph\":\"b \
             \\\"c\\\"\",\"node_feats\":\"n\",\"edge_feats\":\"e\",\"future\":1e400}\n}\n"
        );
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_is_no_config_is_refused() {
        const REST: &str = r#""num_nodes":1,"num_edges":1,"node_map":[1],"edge_map":[1]"#;
        const PART: &str = r#"{"part_graph":"g","node_feats":"n","edge_feats":"e"}"#;
        let table = [
            ("".to_owned(), "not a partition config"),
            ("[]".to_owned(), "not a partition config"),
            ("[".repeat(100_000), "not a partition config"),
            ("{}".to_owned(), "graph_name is missing"),
            (r#"{"graph_name":"g"}"#.to_owned(), "num_parts is missing"),
            (
                r#"{"graph_name":"g","num_parts":-1}"#.to_owned(),
                "num_parts: ",
            ),
            (
                format!(r#"{{"graph_name":"../g","num_parts":1,"part-0":{PART},{REST}}}"#),
                "cannot be a file's name",
            ),
            (
                r#"{"graph_name":"g","num_parts":0}"#.to_owned(),
                "num_parts is 0",
            ),
            (
                r#"{"graph_name":"g","num_parts":4000000000}"#.to_owned(),
                "num_parts is 4000000000",
            ),
            (
                r#"{"graph_name":"g","num_parts":1000000}"#.to_owned(),
                "part-0 is missing",
            ),
            (
                format!(r#"{{"graph_name":"g","num_parts":2,"part-0":{PART},{REST}}}"#),
                "part-1 is missing",
            ),
            (
                format!(
                    "{{\"graph_name\":\"g\",\"num_parts\":1,\
                         \"part-0\":{{\"node_feats\":\"n\",\"edge_feats\":\"e\"}},\
                         {REST}}}"
                ),
                "part-0 names no graph",
            ),
            (
                format!(
                    "{{\"graph_name\":\"g\",\"num_parts\":1,\
                         \"part-0\":{{\"part_graph\":\"g\",\"node_feats\":\"n\"}},\
                         {REST}}}"
                ),
                "part-0.edge_feats is missing",
            ),
            (
                format!(
                    r#"{{"graph_name":"g","num_parts":1,"part-0":{},{REST}}}"#,
                    PART.replace("\"n\"", "null")
                ),
                "part-0.node_feats: null is not a path",
            ),
            (
                format!(
                    r#"{{"graph_name":"g","num_parts":1,"part-0":{},{REST}}}"#,
                    PART.replace("\"n\"", r#""\udcff""#)
                ),
                "is not a path",
            ),
            (
                format!(
                    r#"{{"graph_name":"g","num_parts":1,"part-0":{},{REST}}}"#,
                    PART.replace("\"n\"", "\"\"")
                ),
                "part-0.node_feats: \"\" is not a path",
            ),
            (
                format!(r#"{{"graph_name":"g","num_parts":1,"part-0":{PART}}}"#),
                "num_nodes is missing",
            ),
            (
                format!(
                    r#"{{"graph_name":"g","num_parts":1,"part-0":{PART},{}}}"#,
                    REST.replace("\"edge_map\":[1]", "\"edge_map\":\"e.npy\"")
                ),
                "the other is not",
            ),
        ];
        for (text, problem) in table {
            let got = parse(&text).err().unwrap_or_default();
            assert!(
                got.contains(problem),
                "{}: {got}",
                &text[..text.len().min(200)]
            );
        }
    }
}
