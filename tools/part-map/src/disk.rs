//! Files of the graph that no config names, and under what other names its files are here.

use partition::files::WantedFile;
use std::collections::HashSet;
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
