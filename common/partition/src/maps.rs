//! node_map and edge_map: the ids of each partition. They are checked before anything is copied,
//! because DGL does not: a hole only shows when a trainer reads another node's features.

use crate::config::{Object, field};
use indexmap::IndexMap;
use record::error::{Fault, Report};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Map {
    /// The path of an .npy file with a partition for each id (reshuffle=False, DGL 0.5 to 0.9).
    Npy {
        path: String,
        /// How many numbers the file must hold.
        ids: u64,
    },
    /// The end of each partition's ids, all of one type, as DGL 0.5 writes it.
    Ends,
    /// Ranges by type for each partition, from DGL 0.6 on.
    Ranges {
        /// Whether all types have the form `src:etype:dst`, which DGL 1.0 and later require for
        /// edge types.
        canonical: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pub map: &'static str,
    pub total: &'static str,
    pub types: &'static str,
}

pub const KEYS: [Keys; 2] = [
    Keys {
        map: "node_map",
        total: "num_nodes",
        types: "ntypes",
    },
    Keys {
        map: "edge_map",
        total: "num_edges",
        types: "etypes",
    },
];

type Ranges<'a> = (&'a str, Vec<[u64; 2]>);

/// Checks that the ranges of all types, part by part, cover 0..total without gaps.
pub fn check(location: &str, fields: &Object, keys: Keys, num_parts: u32) -> Result<Map, Report> {
    let fault = |problem: String| {
        Fault::data(location, problem)
            .fix("partition the graph again, or use the config that partition_graph wrote")
    };
    let total: u64 = field(fields, keys.total).map_err(fault)?;
    let map: &RawValue = field(fields, keys.map).map_err(fault)?;
    let wrong = |error: String| fault(format!("{}: {error}", keys.map)).report();
    match map.get().as_bytes().first() {
        Some(b'"') => Ok(Map::Npy {
            path: field(fields, keys.map).map_err(fault)?,
            ids: total,
        }),
        Some(b'[') => {
            let ranges = [("", from_ends(field(fields, keys.map).map_err(fault)?))];
            tile(&ranges, num_parts, total).map_err(wrong)?;
            Ok(Map::Ends)
        }
        _ => {
            let by_type: Object = field(fields, keys.map).map_err(fault)?;
            let mut ranges = by_type
                .iter()
                .map(|(name, value)| Ok((name.as_str(), ranges(value)?)))
                .collect::<Result<Vec<_>, _>>()
                .map_err(wrong)?;
            let has_ids = fields.contains_key(keys.types);
            let ids = has_ids.then(|| field(fields, keys.types));
            let ids = ids.transpose().map_err(fault)?;
            sort(&mut ranges, &by_type, ids, keys.types).map_err(wrong)?;
            tile(&ranges, num_parts, total).map_err(wrong)?;
            Ok(Map::Ranges {
                canonical: by_type.keys().all(|name| name.split(':').count() == 3),
            })
        }
    }
}

fn parse<T: DeserializeOwned>(value: &RawValue) -> Result<T, String> {
    serde_json::from_str(value.get()).map_err(|error| error.to_string())
}

/// Parses pairs, or only ends, as DGL 0.5 writes and later versions read them.
fn ranges(value: &RawValue) -> Result<Vec<[u64; 2]>, String> {
    if value.get().get(1..).is_some_and(|rest| rest.contains('[')) {
        parse(value)
    } else {
        Ok(from_ends(parse(value)?))
    }
}

fn from_ends(ends: Vec<u64>) -> Vec<[u64; 2]> {
    std::iter::once(0)
        .chain(ends.iter().copied())
        .zip(&ends)
        .map(|(start, end)| [start, *end])
        .collect()
}

/// Sorts the types by their ids, their order in a partition.
fn sort(
    ranges: &mut [Ranges<'_>],
    by_type: &Object,
    ids: Option<IndexMap<String, u32>>,
    key: &str,
) -> Result<(), String> {
    let Some(ids) = ids else {
        return if ranges.len() == 1 {
            Ok(())
        } else {
            Err(format!("has {} types, and {key} is missing", ranges.len()))
        };
    };
    if let Some((unknown, _)) = ranges.iter().find(|(name, _)| !ids.contains_key(*name)) {
        return Err(format!("{unknown:?} is not in {key}"));
    }
    if let Some(missing) = ids.keys().find(|name| !by_type.contains_key(*name)) {
        return Err(format!("{missing:?} of {key} is missing"));
    }
    ranges.sort_by_key(|(name, _)| ids.get(*name));
    let numbered = (0u32..)
        .zip(ranges.iter())
        .all(|(id, (name, _))| ids.get(*name) == Some(&id));
    if numbered {
        Ok(())
    } else {
        Err(format!(
            "{key} does not number its types 0 to {}",
            ranges.len().saturating_sub(1)
        ))
    }
}

fn tile(ranges: &[Ranges<'_>], num_parts: u32, total: u64) -> Result<(), String> {
    let of = |name: &str| {
        if name.is_empty() {
            String::new()
        } else {
            format!("{name:?}: ")
        }
    };
    if let Some((name, parts)) = ranges
        .iter()
        .find(|(_, parts)| parts.len() != num_parts as usize)
    {
        return Err(format!(
            "{}{} ranges for {num_parts} partitions",
            of(name),
            parts.len()
        ));
    }
    let mut next = 0;
    for k in 0..num_parts as usize {
        for (name, parts) in ranges {
            let [start, end] = parts[k];
            if start != next {
                return Err(format!(
                    "{}part-{k} begins at {start}, where the one before it ends at {next}",
                    of(name)
                ));
            }
            if end < start {
                return Err(format!(
                    "{}part-{k} ends at {end}, before it begins at {start}",
                    of(name)
                ));
            }
            next = end;
        }
    }
    if next == total {
        Ok(())
    } else {
        Err(format!("ends at {next} instead of {total}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_map(num_nodes: &str, map: &str, ntypes: &str) -> Result<Map, String> {
        let mut fields = Object::new();
        for (key, text) in [
            ("num_nodes", num_nodes),
            ("node_map", map),
            ("ntypes", ntypes),
        ] {
            if !text.is_empty() {
                fields.insert(
                    key.to_owned(),
                    RawValue::from_string(text.to_owned()).unwrap(),
                );
            }
        }
        check("g.json", &fields, KEYS[0], 2).map_err(|report| report.0[0].problem.clone())
    }

    #[test]
    fn what_each_version_writes() {
        let ranges = |canonical| Ok(Map::Ranges { canonical });
        let npy = Map::Npy {
            path: "/d/node_map.npy".to_owned(),
            ids: 120,
        };
        let table = [
            // 0.5
            ("120", "[68, 120]", "", Ok(Map::Ends)),
            ("120", r#""/d/node_map.npy""#, "", Ok(npy)),
            // from 0.6; a part has the types in the order of their ids, whatever the order in the
            // config
            (
                "120",
                r#"{"_N":[[0,66],[66,120]]}"#,
                r#"{"_N":0}"#,
                ranges(false),
            ),
            (
                "100",
                r#"{"user":[[21,52],[71,100]],"item":[[0,21],[52,71]]}"#,
                r#"{"item":0,"user":1}"#,
                ranges(false),
            ),
            (
                "100",
                r#"{"a:b:c":[[0,21],[52,71]],"a:d:c":[[21,52],[71,100]]}"#,
                r#"{"a:b:c":0,"a:d:c":1}"#,
                ranges(true),
            ),
            // ends by type, which 0.6 and later read
            ("120", r#"{"_N": [ 66,120]}"#, r#"{"_N":0}"#, ranges(false)),
            // a type that is missing in a part
            (
                "3",
                r#"{"a":[[0,1],[2,2]],"b":[[1,2],[2,3]]}"#,
                r#"{"a":0,"b":1}"#,
                ranges(false),
            ),
            (
                "12345678901234567",
                "[1,12345678901234567]",
                "",
                Ok(Map::Ends),
            ),
        ];
        for (total, map, types, expected) in table {
            assert_eq!(node_map(total, map, types), expected, "{map}");
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_would_mix_up_ids() {
        let table = [
            ("", "[1,2]", "", "num_nodes is missing"),
            ("2", "", "", "node_map is missing"),
            ("\"2\"", "[1,2]", "", "num_nodes: invalid type"),
            ("2", "5", "", "node_map: invalid type"),
            ("2", "[1]", "", "node_map: 1 ranges for 2 partitions"),
            (
                "2",
                "[2,1]",
                "",
                "node_map: part-1 ends at 1, before it begins at 2",
            ),
            ("3", "[1,2]", "", "node_map: ends at 2 instead of 3"),
            ("2", "[1,-1]", "", "node_map: invalid value"),
            (
                "2",
                r#"{"_N":[[0,1],[1,2],[2,2]]}"#,
                "",
                "node_map: \"_N\": 3 ranges for 2 partitions",
            ),
            (
                "3",
                r#"{"_N":[[0,1],[2,3]]}"#,
                "",
                "node_map: \"_N\": part-1 begins at 2, where the one before it ends at 1",
            ),
            (
                "3",
                r#"{"_N":[[0,2],[1,3]]}"#,
                "",
                "node_map: \"_N\": part-1 begins at 1, where the one before it ends at 2",
            ),
            (
                "3",
                r#"{"_N":[[1,2],[2,3]]}"#,
                "",
                "node_map: \"_N\": part-0 begins at 1, where the one before it ends at 0",
            ),
            ("3", r#"{"_N":[[0,2,3]]}"#, "", "node_map: "),
            ("3", r#"{"_N":"x"}"#, "", "node_map: invalid type"),
            (
                "3",
                r#"{"a":[1,2],"b":[2,3]}"#,
                "",
                "node_map: has 2 types, and ntypes is missing",
            ),
            (
                "3",
                r#"{"a":[[0,1],[1,3]]}"#,
                r#"{"b":0}"#,
                "node_map: \"a\" is not in ntypes",
            ),
            (
                "3",
                r#"{"a":[[0,1],[1,3]]}"#,
                r#"{"a":0,"b":1}"#,
                "node_map: \"b\" of ntypes is missing",
            ),
            (
                "3",
                r#"{"a":[[0,1],[1,3]]}"#,
                r#"{"a":1}"#,
                "node_map: ntypes does not number its types 0 to 0",
            ),
            (
                "3",
                "{}",
                "",
                "node_map: has 0 types, and ntypes is missing",
            ),
            ("3", "{}", "{}", "node_map: ends at 0 instead of 3"),
        ];
        for (total, map, types, problem) in table {
            let got = node_map(total, map, types).expect_err(map);
            assert!(got.starts_with(problem), "{map}: {got}");
        }
    }
}
