//! Plans, copies, and finds the files by the rules of each version of DGL: the bytes are the same.
//! On the partitions that DGL itself wrote, and on configs of all shapes with unusual names.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use clap::Parser;
use part_map::args::Args;
use part_map::map;
use part_map::plan::FilePlan;
use proptest::prelude::*;
use record::{Host, IpAddr};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const PARTS: u32 = 2;
const WAYS: [&str; 3] = ["config", "workspace", "absolute"];

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn plan(config: &Path, flags: &[&str]) -> Result<FilePlan, String> {
    let hosts: Vec<Host> = (0..PARTS)
        .map(|id| Host {
            id,
            of: PARTS,
            ip: IpAddr([10, 0, 0, id as u8 + 1].into()),
            port: 30050,
            ..Host::default()
        })
        .collect();
    let args = [
        "part-map",
        "--workspace",
        "/ws",
        "--part-config",
        config.to_str().unwrap(),
    ];
    let args = Args::parse_from(args.into_iter().chain(flags.iter().copied()));
    map(&args, &hosts).map_err(|report| format!("{report:?}"))
}

/// What each host has after the copy, by absolute path.
fn delivered(plan: &FilePlan) -> Vec<BTreeMap<PathBuf, Vec<u8>>> {
    let of_host = |k: u32| {
        let files = plan
            .files
            .iter()
            .filter(move |file| file.host.is_none_or(|host| host == k));
        files.map(|file| {
            let content = match (&file.content, file.source().unwrap()) {
                (Some(content), None) => content.clone().into_bytes(),
                (None, Some(path)) => fs::read(path).unwrap(),
                other => panic!("{other:?}"),
            };
            (file.destination().unwrap(), content)
        })
    };
    (0..PARTS).map(|k| of_host(k).collect()).collect()
}

/// The path that DGL opens for a part's file: relative to the working directory in 0.5, and to the
/// config's directory from 0.6 on.
fn part_file(config: &Path, path: &str, old: bool) -> PathBuf {
    if old {
        Path::new("/ws").join(path)
    } else {
        config.parent().unwrap().join(path)
    }
}

/// Compares what DGL finds on the hosts with the files here: `expected` by part and key, the maps
/// under no part.
fn check(plan: &FilePlan, paths: &str, expected: &BTreeMap<(Option<u32>, String), Vec<u8>>) {
    let graph = plan.graph.as_ref().unwrap();
    let config = Path::new("/ws").join(&graph.part_config);
    let hosts = delivered(plan);
    for ((part, key), bytes) in expected {
        for (k, host) in (0u32..)
            .zip(&hosts)
            .filter(|(k, _)| part.is_none_or(|part| part == *k))
        {
            let written: Value = serde_json::from_slice(&host[&config]).unwrap();
            let lookups = match part {
                None => vec![Path::new("/ws").join(written[key].as_str().unwrap())],
                Some(_) => {
                    let path = written[format!("part-{k}")][key].as_str().unwrap();
                    // --paths config is not for 0.5
                    let rules = if paths == "config" {
                        &[false][..]
                    } else {
                        &[false, true]
                    };
                    rules
                        .iter()
                        .map(|old| part_file(&config, path, *old))
                        .collect()
                }
            };
            for file in lookups {
                assert!(
                    host.get(&file) == Some(bytes),
                    "{paths}: {part:?} {key}: {} on host {k}",
                    file.display()
                );
            }
        }
    }
}

/// The files that a config names, as DGL 0.5 (absolute paths) or a later version wrote it.
fn named_files(config: &Value, folder: &Path) -> BTreeMap<(Option<u32>, String), Vec<u8>> {
    let mut files = BTreeMap::new();
    for key in ["node_map", "edge_map"] {
        if let Some(path) = config[key].as_str() {
            files.insert((None, key.to_owned()), fs::read(folder.join(path)).unwrap());
        }
    }
    for k in 0..PARTS {
        for (key, path) in config[format!("part-{k}")].as_object().unwrap() {
            files.insert(
                (Some(k), key.clone()),
                fs::read(folder.join(path.as_str().unwrap())).unwrap(),
            );
        }
    }
    files
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn what_dgl_itself_wrote() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut seen = 0;
    for fixture in fs::read_dir(fixtures)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().join("g.json").exists())
    {
        let folder = scratch(&format!("wrote/{}", fixture.file_name().display()));
        copy_folder(&fixture.path(), &folder);
        let text = fs::read_to_string(folder.join("g.json")).unwrap();
        // where it was written, and in a directory that was moved since: the absolute paths of old
        // versions are dangling
        let written =
            serde_json::from_str(&text.replace("@HERE@", folder.to_str().unwrap())).unwrap();
        let expected = named_files(&written, &folder);
        for here in [folder.to_str().unwrap(), "/was/here/once"] {
            fs::write(folder.join("g.json"), text.replace("@HERE@", here)).unwrap();
            for paths in WAYS {
                let plan = plan(&folder.join("g.json"), &["--paths", paths])
                    .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
                check(&plan, paths, &expected);
                assert_eq!(
                    plan.files.len(),
                    expected.len() + 2,
                    "those files, the config and the ip_config"
                );
            }
        }
        seen += 1;
    }
    assert_eq!(seen, 15);
}

const GRAPH: &[u8] = b"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd";
const TENSORS: &[u8] = b"\x3f\x44\xa2\x3f\xbe\x9f\x5a\xdd";

/// A partition in a form that a version of DGL or a user may have left.
#[derive(Debug, Clone)]
struct Shape {
    graph_name: String,
    /// `part{k}` of a usual partition.
    folder: String,
    /// The config is in a directory of its own, beside that of its parts.
    config_apart: bool,
    /// Every file in a directory of its own.
    spread: bool,
    absolute: bool,
    /// 0 ends, 1 ranges, 2 .npy
    maps: u8,
    graphbolt: bool,
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 '\"\\\\$`;&*?~#%äß雪\u{301}-]{1,12}"
        .prop_filter("a name of its own", |name| !name.starts_with('~'))
}

fn shape() -> impl Strategy<Value = Shape> {
    (name(), name(), any::<(bool, bool, bool, bool)>(), 0..3u8).prop_map(
        |(graph_name, folder, (config_apart, spread, absolute, graphbolt), maps)| Shape {
            graph_name,
            folder,
            config_apart,
            spread,
            absolute,
            maps,
            graphbolt,
        },
    )
}

impl Shape {
    #[expect(clippy::too_many_lines, reason = "it writes each file of a partition")]
    /// Writes it; the config, and the files that it names.
    fn write(&self, root: &Path) -> (PathBuf, BTreeMap<(Option<u32>, String), Vec<u8>>) {
        let config_folder = if self.config_apart {
            root.join("configs")
        } else {
            root.to_owned()
        };
        fs::create_dir_all(&config_folder).unwrap();
        let above = if self.config_apart { "../" } else { "" };
        let mut expected = BTreeMap::new();
        let mut file = |part: Option<u32>, key: &str, below: String, bytes: Vec<u8>| {
            let path = root.join(&below);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
            expected.insert((part, key.to_owned()), bytes);
            if self.absolute {
                path.to_str().unwrap().to_owned()
            } else {
                format!("{above}{below}")
            }
        };
        let mut config = json!({"graph_name": self.graph_name, "num_parts": PARTS, "num_nodes": 4,
            "num_edges": 6, "halo_hops": 1});
        let npy = |ids: usize| {
            let header = format!(
                "{:117}\n",
                format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({ids},), }}")
            );
            [
                b"\x93NUMPY\x01\x00v\x00",
                header.as_bytes(),
                &vec![0; 8 * ids],
            ]
            .concat()
        };
        (config["node_map"], config["edge_map"]) = match self.maps {
            0 => (json!([1, 4]), json!([3, 6])),
            1 => (
                json!({"_N": [[0, 1], [1, 4]]}),
                json!({"_N:_E:_N": [[0, 3], [3, 6]]}),
            ),
            _ => (
                json!(file(None, "node_map", "n.npy".to_owned(), npy(4))),
                json!(file(None, "edge_map", "e.npy".to_owned(), npy(6))),
            ),
        };
        for k in 0..PARTS {
            let mut keys = vec![
                ("node_feats", "node_feat.dgl", TENSORS),
                ("edge_feats", "edge_feat.dgl", TENSORS),
                ("part_graph", "graph.dgl", GRAPH),
            ];
            if self.graphbolt {
                keys.push((
                    "part_graph_graphbolt",
                    "fused_csc_sampling_graph.pt",
                    b"PK\x03\x04",
                ));
            }
            for (key, name, magic) in keys {
                let apart = if self.spread {
                    format!("{key}/")
                } else {
                    String::new()
                };
                let bytes = [magic, format!("{key} of {k}").as_bytes()].concat();
                config[format!("part-{k}")][key] = json!(file(
                    Some(k),
                    key,
                    format!("{}{k}/{apart}{name}", self.folder),
                    bytes
                ));
            }
        }
        let path = config_folder.join("c.json");
        fs::write(&path, config.to_string()).unwrap();
        (path, expected)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn whatever_its_shape(shape in shape()) {
        let root = scratch("shapes");
        let (config, expected) = shape.write(&root);
        for paths in WAYS {
            let plan = plan(&config, &["--paths", paths]).unwrap();
            check(&plan, paths, &expected);
        }
    }
}
