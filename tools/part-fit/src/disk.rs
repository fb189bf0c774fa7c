//! Reads a partition config, and finds the sizes of the files of its parts.

use crate::model::Files;
use crate::plan::Part;
use partition::config::{DGL_GRAPH, FEATURES, GRAPHBOLT_GRAPH};
use partition::maps::Map;
use partition::{PartConfig, npy};
use record::FileCopy;
use record::error::{Fault, Report};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

const AGAIN: &str = "partition the graph again, or correct the path; it is relative to the \
    directory of the config";

/// Finds a file of a config on this machine.
type FindFile<'a> = &'a dyn Fn(&str) -> Result<PathBuf, Fault>;

/// Reads the parts at the paths of a config; reports all missing files at once.
pub fn parts_of_config(path: &Path) -> Result<Vec<Part>, Report> {
    let config = PartConfig::read(path)?;
    parts(&config, &|name| Ok(config.path_here(name)))
}

/// Reads the parts that part-map's records copy from this machine. `workspace` is the directory of
/// the job on the hosts.
pub fn parts_of_records(files: &[FileCopy], workspace: &Path) -> Result<Vec<Part>, Report> {
    let mut by_destination = HashMap::new();
    for file in files {
        by_destination.insert(file.destination()?, file);
    }
    let config = files.iter().find(|file| file.kind == "config");
    let Some((config, text)) = config.and_then(|file| Some((file, file.content.as_ref()?))) else {
        return Err(
            Fault::data("stdin", "no file record has the partition config")
                .fix("put part-map --part-config … before part-fit, or give --part-config")
                .report(),
        );
    };
    let path = config.destination()?;
    let config = PartConfig::parse(text.as_bytes(), &path.display().to_string(), path.clone())?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    // a path of the config is relative to its directory or to the workspace
    parts(&config, &|name| {
        let there = [folder.join(name), workspace.join(name)];
        let file = there.iter().find_map(|path| by_destination.get(path));
        let source = file.map_or(Ok(None), |file| file.source())?;
        source.ok_or_else(|| {
            let problem = format!("{name} of the config is not copied from this machine");
            Fault::data("stdin", problem).fix(
                "name the config where the parts can be read with --part-config, or leave part-fit \
                 out",
            )
        })
    })
}

fn parts(config: &PartConfig, find: FindFile<'_>) -> Result<Vec<Part>, Report> {
    let mut report = Report::default();
    let numbers = 0..config.parts.len();
    let [nodes, edges] = config.maps.each_ref().map(|map| {
        report
            .keep(owned(map, config.parts.len(), find))
            .unwrap_or_default()
    });
    let files: Vec<Files> = numbers
        .filter_map(|part| report.keep(files(config, part, find)))
        .collect();
    report.check()?;
    let parts = nodes.into_iter().zip(edges).zip(files);
    let part = |((nodes, edges), files)| Part {
        nodes,
        edges,
        files,
    };
    Ok(parts.map(part).collect())
}

/// How many ids each part owns. Up to DGL 0.9, this may require reading an .npy file.
fn owned(map: &Map, parts: usize, find: FindFile<'_>) -> Result<Vec<u64>, Fault> {
    let path = match map {
        Map::Npy { path, .. } => find(path)?,
        Map::Ends { owned } | Map::Ranges { owned, .. } => return Ok(owned.clone()),
    };
    let location = path.display().to_string();
    let file = File::open(&path)
        .map_err(|error| Fault::unreachable(&location, error.to_string()).fix(AGAIN))?;
    npy::counts(BufReader::with_capacity(1 << 20, file), parts)
        .map_err(|problem| Fault::data(&location, problem).fix(AGAIN))
}

fn files(config: &PartConfig, part: usize, find: FindFile<'_>) -> Result<Files, Report> {
    let mut report = Report::default();
    let size = |key: &str| -> Result<u64, Fault> {
        // a config without features, or without any graph, is refused
        let Some(name) = config.path_of(part, key) else {
            return Ok(0);
        };
        let path = find(&name)?;
        let unreadable = |error: std::io::Error| {
            Fault::unreachable(path.display().to_string(), error.to_string()).fix(AGAIN)
        };
        Ok(path.metadata().map_err(unreadable)?.len())
    };
    let [dgl, node_features, edge_features] =
        [DGL_GRAPH, FEATURES[0], FEATURES[1]].map(|key| report.keep(size(key)).unwrap_or(0));
    let graphbolt = match size(GRAPHBOLT_GRAPH) {
        // of two forms, only one may have been copied
        Err(_) if dgl > 0 => 0,
        size => report.keep(size).unwrap_or(0),
    };
    report.check().map(|()| Files {
        dgl,
        graphbolt,
        node_features,
        edge_features,
    })
}
