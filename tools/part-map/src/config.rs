//! The partition config, as the versions of DGL write it. What is not understood here is kept as it stands, numbers included.

use common::error::{Fault, Report};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

/// A JSON object whose values stay as they were written.
pub type Object = IndexMap<String, Box<RawValue>>;

/// Keys of a part that are files of the partition (DGL 0.5 to 2.4). A part has one of the graphs and both features.
pub const GRAPHS: [&str; 2] = ["part_graph", "part_graph_graphbolt"];
pub const FEATURES: [&str; 2] = ["node_feats", "edge_feats"];
/// Keys that are .npy files where DGL did not reshuffle (0.5 to 0.9).
pub const MAPS: [&str; 2] = ["node_map", "edge_map"];

/// A partition config that was read.
#[derive(Debug)]
pub struct PartConfig {
    /// Its name, for messages.
    pub place: String,
    /// The folder it lies in.
    pub folder: PathBuf,
    /// `graph_name`.
    pub graph_name: String,
    /// `num_parts`.
    pub num_parts: u32,
    /// `part-0` and so on.
    pub parts: Vec<Object>,
    fields: Object,
}

impl PartConfig {
    /// Reads it and checks that it is one.
    pub fn read(path: &Path) -> Result<PartConfig, Report> {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Fault::unreachable(&place, error.to_string()).fix("name the JSON file that partition_graph wrote, such as out/GRAPH_NAME.json")
        })?;
        let absolute = std::path::absolute(path).map_err(|error| Fault::unreachable(&place, error.to_string()))?;
        let folder = absolute.parent().map(Path::to_owned).unwrap_or_default();
        PartConfig::parse(&text, &place, folder)
    }

    fn parse(text: &str, place: &str, folder: PathBuf) -> Result<PartConfig, Report> {
        let not_one = |problem: String| Fault::data(place, problem).fix("name the JSON file that partition_graph wrote");
        let fields: Object = serde_json::from_str(text).map_err(|error| not_one(format!("not a partition config: {error}")))?;
        let graph_name: String = field(&fields, "graph_name").map_err(&not_one)?;
        let num_parts: u32 = field(&fields, "num_parts").map_err(&not_one)?;
        if graph_name.is_empty() || graph_name.contains(['/', '\0']) {
            return Err(Fault::data(place, format!("graph_name {graph_name:?} cannot be a file's name")).report());
        }
        let mut report = Report::default();
        let mut parts = Vec::new();
        for k in 0..num_parts.min(MAX_PARTS) {
            match field(&fields, &format!("part-{k}")) {
                Ok(part) => parts.push(part),
                Err(problem) => report.push(Fault::data(place, problem).fix("partition the graph again: the config is not whole")),
            }
        }
        if num_parts == 0 || num_parts > MAX_PARTS {
            report.push(not_one(format!("num_parts is {num_parts}")));
        }
        report.check()?;
        Ok(PartConfig { place: place.to_owned(), folder, graph_name, num_parts, parts, fields })
    }

    /// The value of a top-level key, where it is text.
    pub fn text(&self, key: &str) -> Option<String> {
        self.fields.get(key).and_then(|value| text(value))
    }

    /// The config with other paths: those of the parts by part and key, those of the maps by key.
    pub fn rewritten(&self, parts: &[IndexMap<String, String>], maps: &IndexMap<String, String>) -> Result<String, Fault> {
        let failed = |error: serde_json::Error| Fault::data(&self.place, error.to_string());
        let mut fields = self.fields.clone();
        for (key, path) in maps {
            fields.insert(key.clone(), serde_json::value::to_raw_value(path).map_err(failed)?);
        }
        for (k, (part, paths)) in self.parts.iter().zip(parts).enumerate() {
            let mut part = part.clone();
            for (key, path) in paths {
                part.insert(key.clone(), serde_json::value::to_raw_value(path).map_err(failed)?);
            }
            fields.insert(format!("part-{k}"), serde_json::value::to_raw_value(&part).map_err(failed)?);
        }
        let mut text = String::from("{\n");
        for (at, (key, value)) in fields.iter().enumerate() {
            let comma = if at + 1 < fields.len() { "," } else { "" };
            text += &format!("    {}: {value}{comma}\n", serde_json::to_string(key).map_err(failed)?);
        }
        Ok(text + "}\n")
    }
}

/// As many as hosts of the largest job that is thinkable.
const MAX_PARTS: u32 = 1 << 20;

/// The value, where it is text.
pub fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn field<'a, T: Deserialize<'a>>(fields: &'a Object, key: &str) -> Result<T, String> {
    let value = fields.get(key).ok_or_else(|| format!("{key} is missing"))?;
    serde_json::from_str(value.get()).map_err(|error| format!("{key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PartConfig, String> {
        PartConfig::parse(text, "g.json", PathBuf::from("/d")).map_err(|report| report.0[0].to_string())
    }

    #[test]
    fn what_is_not_understood_stays() {
        let text = r#"{"graph_name":"g","num_parts":1,"node_map":"/x/node_map.npy","halo_hops":1.0,"big":12345678901234567890123,
            "part-0":{"part_graph":"a","future":1e400}}"#;
        let config = parse(text).unwrap();
        let parts = [IndexMap::from([("part_graph".to_owned(), "b c".to_owned())])];
        let maps = IndexMap::from([("node_map".to_owned(), "data/n.npy".to_owned())]);
        let written = config.rewritten(&parts, &maps).unwrap();
        assert_eq!(
            written,
            "{\n    \"graph_name\": \"g\",\n    \"num_parts\": 1,\n    \"node_map\": \"data/n.npy\",\n    \"halo_hops\": 1.0,\n    \
             \"big\": 12345678901234567890123,\n    \"part-0\": {\"part_graph\":\"b c\",\"future\":1e400}\n}\n"
        );
    }

    #[test]
    fn what_is_no_config_is_refused() {
        let table = [
            ("", "not a partition config"),
            ("[]", "not a partition config"),
            ("{}", "graph_name is missing"),
            (r#"{"graph_name":"g"}"#, "num_parts is missing"),
            (r#"{"graph_name":"g","num_parts":-1}"#, "num_parts: "),
            (r#"{"graph_name":"../g","num_parts":1,"part-0":{}}"#, "cannot be a file's name"),
            (r#"{"graph_name":"g","num_parts":0}"#, "num_parts is 0"),
            (r#"{"graph_name":"g","num_parts":4000000000}"#, "part-0 is missing"),
            (r#"{"graph_name":"g","num_parts":2,"part-0":{}}"#, "part-1 is missing"),
        ];
        for (text, problem) in table {
            let got = parse(text).err().unwrap_or_default();
            assert!(got.contains(problem), "{text}: {got}");
        }
    }
}
