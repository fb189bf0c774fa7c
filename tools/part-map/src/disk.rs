//! Examines the files that a config names: whether they exist and can be read, how large and how
//! old they are, and how they begin.

use crate::format::{Format, HEAD};
use crate::plan::{Item, Source, WantedFile};
use record::LocalFile;
use record::error::{Fault, Report};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// The files that GraphStorm puts beside its config, although no config names them, and looks for
/// there on the hosts: statistics of labels, the users' ids of nodes (seen with 0.4.2), how the
/// graph was constructed, which goes into saved models (0.5), features for WholeGraph (its source).
const OF_GRAPHSTORM: [&str; 7] = [
    "node_label_stats.json",
    "edge_label_stats.json",
    "node_mapping.pt",
    "edge_mapping.pt",
    "raw_id_mappings",
    "data_transform_new.json",
    "wholegraph",
];

/// GraphStorm's files beside a config, relative to its folder. A folder that cannot be listed is
/// reported when one of its files is missed.
pub fn of_graphstorm(folder: &Path) -> Vec<PathBuf> {
    let files = |name: &&str| {
        let walk = WalkDir::new(folder.join(name)).sort_by_file_name();
        let found = walk.into_iter().filter_map(Result::ok);
        found.filter(|entry| entry.path().is_file())
    };
    OF_GRAPHSTORM
        .iter()
        .flat_map(files)
        .filter_map(|entry| Some(entry.path().strip_prefix(folder).ok()?.to_owned()))
        .collect()
}

/// Finds the files that the config names; everything that is missing or wrong is reported at once.
pub fn find(wanted: impl Iterator<Item = WantedFile>) -> Result<Vec<Item>, Report> {
    let mut report = Report::default();
    let mut found = Vec::new();
    for WantedFile {
        host,
        kind,
        candidates,
        dst,
        key,
        required,
        format,
    } in wanted
    {
        let path = candidates.iter().find(|candidate| candidate.is_file());
        match (path, candidates.first()) {
            (Some(path), _) => {
                let here = report.keep(look(path, format).map_err(Report::from));
                found.extend(here.map(|here| Item {
                    host,
                    kind,
                    dst,
                    key,
                    source: Source::Copied(here),
                }));
            }
            (None, Some(first)) if required => {
                let name = key.map_or(String::new(), |key| key.to_string());
                let fault = Fault::data(name, format!("no such file: {}", first.display()))
                    .did_you_mean(first);
                report.push(fault.fix(
                    "run partition_graph again, or correct the path; it is \
                    relative to the folder of the config",
                ));
            }
            (None, _) => {}
        }
    }
    report.check()?;
    Ok(found)
}

/// Examines a file, which must be readable and begin as its format does.
pub fn look(path: &Path, format: Format) -> Result<LocalFile, Fault> {
    let place = || path.display().to_string();
    let failed = |error: std::io::Error| {
        Fault::unreachable(place(), error.to_string()).fix("make it readable, or leave it out")
    };
    let mut file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if format != Format::Any {
        let mut head = Vec::with_capacity(HEAD);
        file.by_ref()
            .take(HEAD as u64)
            .read_to_end(&mut head)
            .map_err(failed)?;
        format
            .check(&head, meta.len())
            .map_err(|(problem, fix)| Fault::data(place(), problem).fix(fix))?;
    }
    let path = std::path::absolute(path).map_err(failed)?;
    Ok(LocalFile::of(path, &meta))
}

/// The identities of the graph's files on this machine, including its config. If they lie in a
/// script folder, they are not copied to every host as scripts.
pub fn identities(config: &Path, wanted: &[WantedFile]) -> HashSet<(u64, u64)> {
    let of = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|meta| (meta.dev(), meta.ino()))
    };
    let named = wanted
        .iter()
        .filter_map(|wanted| wanted.candidates.iter().find_map(|path| of(path)));
    named.chain(of(config)).collect()
}
