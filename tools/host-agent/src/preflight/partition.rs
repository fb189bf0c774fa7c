//! Checks the partition config, and the files that this host's servers load by it.

use super::files;
use crate::procfs;
use partition::Outline;
use partition::config::MAX_BYTES;
use std::io::{self, Read};
use std::path::Path;
use wire::Text;
use wire::preflight::Finding;

/// Checks the config, the files of this host's partition, and the room for them.
pub fn check(folder: &Text, path: &Text, part: Option<u32>, private_shm: bool) -> Vec<Finding> {
    let file = folder.path().join(path.path());
    let Some(mut opened) = files::open_regular(&file) else {
        return Vec::new();
    };
    let mut text = Vec::new();
    let mut hasher = blake3::Hasher::new();
    // whatever cannot be read, or is beyond the length of any config, is no part of one
    let _ = opened.by_ref().take(MAX_BYTES).read_to_end(&mut text);
    hasher.update(&text);
    // also of what is no config, so that hosts can be compared
    let _ = io::copy(&mut opened, &mut hasher);
    let hash = hasher.finalize().to_hex().to_string();
    let config = Outline::parse(&text);
    let mut findings = Vec::new();
    for map in &config.npy_maps {
        findings.extend(files::missing(&folder.path().join(map)));
    }
    findings.push(Finding::PartitionConfig {
        hash,
        num_parts: config.num_parts,
        graph_name: config.graph_name.clone(),
    });
    if let Some(part) = part {
        match config.files(part) {
            Some(files) => findings.extend(PartFiles::default().check(
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
    procfs::free_bytes(Path::new("/dev/shm"))
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
    fn check(
        mut self,
        workspace: &Path,
        config: &Path,
        part: u32,
        named: &[(String, String)],
        room: Option<u64>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let own = config.parent().unwrap_or(Path::new("."));
        for (key, value) in named {
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
