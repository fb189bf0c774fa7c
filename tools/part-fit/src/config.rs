//! Reads from a partition config how large its parts are and where their files are.

use indexmap::IndexMap;
use record::error::Fault;
use serde::Deserialize;
use serde_json::Value;

/// A partition takes some 600 bytes of a config, so this is one of 100,000 partitions.
pub const MAX_BYTES: u64 = 64 << 20;

const NAME_IT: &str = "name the JSON file that partition_graph wrote";

/// The part of a partition config that matters here.
#[derive(Debug, PartialEq)]
pub struct Config {
    /// The parts of the graph.
    pub parts: Vec<Part>,
}

/// A part.
#[derive(Debug, Default, PartialEq)]
pub struct Part {
    /// The numbers of nodes and edges that the part owns; `None` if .npy files tell which these are
    /// (DGL up to 0.9).
    pub own: Option<[u64; 2]>,
    /// The files of the part.
    pub files: Files,
}

/// The files of a part, as the config names them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Files {
    /// DGL's form of the graph.
    pub part_graph: Option<String>,
    /// Graphbolt's form of it.
    pub part_graph_graphbolt: Option<String>,
    /// The features of nodes.
    pub node_feats: String,
    /// The features of edges.
    pub edge_feats: String,
}

/// The assignment of ids to parts.
enum Map {
    /// An .npy file has the part of each id.
    Npy,
    Spans(ByRange),
}

/// Ranges by their ends, for one type (DGL 0.5), or by type.
#[derive(Deserialize)]
#[serde(untagged)]
enum ByRange {
    Ends(Vec<u64>),
    ByType(IndexMap<String, Spans>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Spans {
    Ends(Vec<u64>),
    Ranges(Vec<[u64; 2]>),
}

impl Map {
    /// How many ids part `k` owns.
    fn of_part(&self, k: usize) -> Result<Option<u64>, String> {
        let ends = |ends: &[u64]| {
            let end = ends.get(k)?;
            let begin = k
                .checked_sub(1)
                .map_or(Some(&0), |before| ends.get(before))?;
            end.checked_sub(*begin)
        };
        let spans = |spans: &Spans| match spans {
            Spans::Ends(all) => ends(all),
            Spans::Ranges(all) => all.get(k).and_then(|[begin, end]| end.checked_sub(*begin)),
        };
        let count = match self {
            Map::Npy => return Ok(None),
            Map::Spans(ByRange::Ends(all)) => ends(all),
            Map::Spans(ByRange::ByType(types)) => types.values().map(spans).sum(),
        };
        count
            .map(Some)
            .ok_or_else(|| format!("has no range of part-{k}"))
    }
}

/// Parses a config. part-map checks whether its ranges are complete.
pub fn parse(text: &[u8], place: &str) -> Result<Config, Fault> {
    let not_one = |problem: String| {
        Fault::data(place, format!("not a partition config: {problem}")).fix(NAME_IT)
    };
    let mut fields: IndexMap<String, Value> =
        serde_json::from_slice(text).map_err(|error| not_one(error.to_string()))?;
    let mut take = |name: &str| {
        fields
            .swap_remove(name)
            .ok_or_else(|| not_one(format!("{name} is missing")))
    };
    let num_parts = take("num_parts")?.as_u64().unwrap_or(0);
    let mut map = |name: &str| -> Result<Map, Fault> {
        match take(name)? {
            Value::String(_) => Ok(Map::Npy),
            spans => serde_json::from_value(spans)
                .map(Map::Spans)
                .map_err(|_| not_one(format!("{name} is not a map"))),
        }
    };
    let (nodes, edges) = (map("node_map")?, map("edge_map")?);
    let part = |k: u64| {
        let files = serde_json::from_value(take(&format!("part-{k}"))?)
            .map_err(|error| not_one(format!("part-{k}: {error}")))?;
        let k = usize::try_from(k).unwrap_or(usize::MAX);
        let own = |map: &Map, name: &str| {
            map.of_part(k)
                .map_err(|problem| not_one(format!("{name} {problem}")))
        };
        let counts = (own(&nodes, "node_map")?, own(&edges, "edge_map")?);
        Ok(Part {
            own: counts.0.zip(counts.1).map(|(nodes, edges)| [nodes, edges]),
            files,
        })
    };
    let parts = (0..num_parts)
        .map(part)
        .collect::<Result<Vec<_>, Fault>>()?;
    if parts.is_empty() {
        return Err(not_one("it has no parts".to_owned()));
    }
    Ok(Config { parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: &str = r#""part-0":{"part_graph":"0/g","node_feats":"0/n","edge_feats":"0/e"},
        "part-1":{"part_graph_graphbolt":"1/b","node_feats":"1/n","edge_feats":"1/e"}"#;

    fn own(maps: &str) -> Result<Vec<Option<[u64; 2]>>, String> {
        let text = format!(r#"{{"num_parts":2,{maps},{PARTS}}}"#);
        let config = parse(text.as_bytes(), "g.json").map_err(|fault| fault.problem)?;
        Ok(config.parts.iter().map(|part| part.own).collect())
    }

    #[test]
    fn how_many_nodes_and_edges_are_a_parts_own() {
        let both = |first, second| Ok(vec![Some(first), Some(second)]);
        let table = [
            (
                r#""node_map":[68,120],"edge_map":[1,4]"#,
                both([68, 1], [52, 3]),
            ),
            (
                r#""node_map":{"a":[[0,2],[5,9]],"b":[[2,5],[9,9]]},"edge_map":{"e":[7,9]}"#,
                both([5, 7], [4, 2]),
            ),
            (
                r#""node_map":"n.npy","edge_map":"e.npy""#,
                Ok(vec![None, None]),
            ),
        ];
        for (maps, expected) in table {
            assert_eq!(own(maps), expected, "{maps}");
        }
    }

    #[test]
    fn what_is_no_config_is_refused() {
        let table = [
            (
                r#""node_map":[68],"edge_map":[1,4]"#,
                "node_map has no range of part-1",
            ),
            (
                r#""node_map":[2,1],"edge_map":[1,4]"#,
                "node_map has no range of part-1",
            ),
            (r#""node_map":[1,2]"#, "edge_map is missing"),
            (r#""node_map":[1,2],"edge_map":5"#, "edge_map is not a map"),
        ];
        for (maps, problem) in table {
            let got = own(maps).unwrap_err();
            assert!(got.ends_with(problem), "{maps}: {got}");
        }
        for (text, problem) in [
            ("x", "expected value"),
            (
                r#"{"num_parts":0,"node_map":[],"edge_map":[]}"#,
                "it has no parts",
            ),
            (
                r#"{"num_parts":1,"node_map":[1],"edge_map":[1]}"#,
                "part-0 is missing",
            ),
        ] {
            let got = parse(text.as_bytes(), "g.json").unwrap_err();
            assert!(got.problem.contains(problem), "{text}: {got}");
        }
    }
}
