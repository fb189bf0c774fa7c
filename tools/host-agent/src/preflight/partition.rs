//! Checks the partition config. It may be very long, so it is read in pieces, and only what matters
//! is kept.

use super::files;
use crate::procfs;
use nix::sys::statvfs::statvfs;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::Path;
use wire::Text;
use wire::preflight::Finding;

/// How much is kept of a text in the config; no path and no name is longer.
const MOST_TEXT: usize = 64 << 10;

/// Checks the config, the files of this host's partition, and the room for them.
pub fn check(folder: &Text, path: &Text, part: Option<u32>, private_shm: bool) -> Vec<Finding> {
    let file = folder.path().join(path.path());
    let Some(opened) = files::open_regular(&file) else {
        return Vec::new();
    };
    let mut reader = HashingReader {
        inner: BufReader::with_capacity(64 << 10, opened),
        hasher: blake3::Hasher::new(),
    };
    let config = read(&mut reader, part);
    // also for a config that is not valid JSON, so that hosts can be compared
    let _ = io::copy(&mut reader, &mut io::sink());
    let hash = reader.hasher.finalize().to_hex().to_string();
    let mut findings = Vec::new();
    // a list of numbers stands in the config itself; DGL up to 0.9 may name a file, relative to the
    // working directory
    for map in [&config.node_map, &config.edge_map]
        .into_iter()
        .flatten()
        .filter(|map| map.ends_with(".npy"))
    {
        findings.extend(files::missing(&folder.path().join(map)));
    }
    findings.push(Finding::PartitionConfig {
        hash,
        num_parts: config.num_parts,
        graph_name: config.graph_name,
    });
    if let Some(part) = part {
        match config.part {
            Some(files) => findings.extend(PartFiles::default().look(
                folder.path(),
                &file,
                part,
                &files,
                room(private_shm),
            )),
            None => findings.push(Finding::NoPartition {
                config: file.into(),
                part,
            }),
        }
    }
    findings
}

/// How much /dev/shm can hold; one of the job's own holds half of the memory, as tmpfs(5) has it.
fn room(private_shm: bool) -> Option<u64> {
    if private_shm {
        return procfs::memory_bytes().map(|bytes| bytes / 2);
    }
    let room = statvfs("/dev/shm").ok()?;
    room.blocks_available().checked_mul(room.fragment_size())
}

/// The files that this host's servers load.
#[derive(Default)]
struct PartFiles {
    /// The size of the graph. If it exists in two forms, the script chooses which of them is
    /// loaded.
    graph_bytes: u64,
    has_graph: bool,
    /// Why the graph cannot be loaded.
    no_graph: Option<Finding>,
    other_bytes: u64,
}

impl PartFiles {
    fn look(
        mut self,
        workspace: &Path,
        config: &Path,
        part: u32,
        named: &NamedFiles,
        room: Option<u64>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let own = config.parent().unwrap_or(Path::new("."));
        for (key, value) in &named.0 {
            findings.extend(self.file(workspace, own, key, value));
        }
        if !self.has_graph {
            let nothing_named = || Finding::NoGraph {
                config: config.into(),
                part,
            };
            findings.push(self.no_graph.take().unwrap_or_else(nothing_named));
        }
        let need_bytes = self.other_bytes.saturating_add(self.graph_bytes);
        if let Some(free_bytes) = room.filter(|room| need_bytes > *room) {
            findings.push(Finding::SmallSharedMemory {
                need_bytes,
                free_bytes,
            });
        }
        findings
    }

    fn file(&mut self, workspace: &Path, own: &Path, key: &str, value: &str) -> Option<Finding> {
        let file = own.join(value);
        let is_graph = key.starts_with("part_graph");
        let Some(fault) = files::missing(&file) else {
            let bytes = file.metadata().map_or(0, |meta| meta.len());
            match is_graph {
                true => (self.has_graph, self.graph_bytes) = (true, self.graph_bytes.max(bytes)),
                false => self.other_bytes = self.other_bytes.saturating_add(bytes),
            }
            return None;
        };
        if Path::new(value).is_relative() && files::is_readable(&workspace.join(value)) {
            self.has_graph = true;
            return Some(Finding::Elsewhere { path: file.into() });
        }
        if is_graph {
            self.no_graph = Some(fault);
            return None;
        }
        Some(fault)
    }
}

/// The part of a partition config that matters.
#[derive(Debug, Default, PartialEq)]
struct Config {
    num_parts: Option<u64>,
    graph_name: Option<String>,
    node_map: Option<String>,
    edge_map: Option<String>,
    part: Option<NamedFiles>,
}

/// The files of one partition that DGL loads.
#[derive(Debug, Default, PartialEq)]
struct NamedFiles(Vec<(String, String)>);

const FILES: [&str; 4] = [
    "node_feats",
    "edge_feats",
    "part_graph",
    "part_graph_graphbolt",
];

/// Reads a config; of a broken one, the part before the error.
fn read(reader: &mut impl Read, part: Option<u32>) -> Config {
    let mut config = Config::default();
    let key = part.map(|part| format!("part-{part}"));
    let visitor = ConfigVisitor {
        config: &mut config,
        part: key,
    };
    let _ = serde_json::Deserializer::from_reader(reader).deserialize_map(visitor);
    config
}

struct ConfigVisitor<'a> {
    config: &'a mut Config,
    part: Option<String>,
}

impl<'de> Visitor<'de> for ConfigVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "num_parts" => self.config.num_parts = map.next_value::<Scalar>()?.number,
                "graph_name" => self.config.graph_name = map.next_value::<Scalar>()?.text,
                "node_map" => self.config.node_map = map.next_value::<Scalar>()?.text,
                "edge_map" => self.config.edge_map = map.next_value::<Scalar>()?.text,
                key if Some(key) == self.part.as_deref() => {
                    self.config.part = Some(map.next_value()?);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for NamedFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NamedFiles, D::Error> {
        struct FilesVisitor;
        impl<'de> Visitor<'de> for FilesVisitor {
            type Value = NamedFiles;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the files of a partition")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedFiles, A::Error> {
                let mut files = NamedFiles::default();
                while let Some(key) = map.next_key::<String>()? {
                    let value = map.next_value::<Scalar>()?.text;
                    files.0.extend(
                        value
                            .filter(|_| FILES.contains(&key.as_str()))
                            .map(|value| (key, value)),
                    );
                }
                Ok(files)
            }
        }
        deserializer.deserialize_map(FilesVisitor)
    }
}

/// A value of which only a text or a whole number is kept.
#[derive(Default)]
struct Scalar {
    text: Option<String>,
    number: Option<u64>,
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct ScalarVisitor;
        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                let kept = (text.len() <= MOST_TEXT).then(|| text.to_owned());
                Ok(Scalar {
                    text: kept,
                    number: None,
                })
            }
            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar {
                    text: None,
                    number: Some(number),
                })
            }
            fn visit_i64<E>(self, _: i64) -> Result<Scalar, E> {
                Ok(Scalar::default())
            }
            fn visit_f64<E>(self, _: f64) -> Result<Scalar, E> {
                Ok(Scalar::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
                Ok(Scalar::default())
            }
            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::default())
            }
        }
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct HashingReader<R> {
    inner: R,
    hasher: blake3::Hasher,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_of_a_partition_config() {
        let text = r#"{"graph_name": "g", "node_map": {"_N": [[0, 1]]}, "edge_map": "maps/edge.npy",
            "num_parts": 2, "halo": 1.5,
            "part-0": {"node_feats": "a", "part_graph": "b", "num_nodes": 7, "other": "c"},
            "part-1": {"edge_feats": "d", "part_graph_graphbolt": null}}"#;
        let config = read(&mut text.as_bytes(), Some(0));
        assert_eq!(
            (config.num_parts, config.graph_name.as_deref()),
            (Some(2), Some("g"))
        );
        assert_eq!(
            (config.node_map, config.edge_map.as_deref()),
            (None, Some("maps/edge.npy"))
        );
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            config.part.unwrap().0,
            [pair("node_feats", "a"), pair("part_graph", "b")]
        );
        let other = read(&mut text.as_bytes(), Some(1)).part.unwrap().0;
        assert_eq!(other, [pair("edge_feats", "d")]);
        assert_eq!(read(&mut text.as_bytes(), Some(2)).part, None);
        assert_eq!(read(&mut text.as_bytes(), None).part, None);
    }

    #[test]
    fn what_is_no_config_has_nothing() {
        for text in [
            "",
            "[]",
            "3",
            "{\"num_parts\": \"2\"}",
            "{\"num_parts\": -1}",
            "{\"num_parts\": [",
            "{\"part-0\": 3}",
        ] {
            assert_eq!(
                read(&mut text.as_bytes(), Some(0)),
                Config::default(),
                "{text}"
            );
        }
        // what stands before the place where it breaks
        assert_eq!(
            read(&mut &b"{\"num_parts\": 2, x"[..], None).num_parts,
            Some(2)
        );
    }
}
