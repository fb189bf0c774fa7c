//! The memory limits and events of control groups.

use std::fs;
use std::path::{Path, PathBuf};

/// A directory of the memory cgroup of a process, in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGroup {
    /// The mount point of the hierarchy; in a container this may be the group itself.
    pub mount: PathBuf,
    pub folder: PathBuf,
    /// Whether the hierarchy is version 2; version 1 has other file names.
    pub unified: bool,
}

impl MemoryGroup {
    /// The group and those above it.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        let below = |folder: &&Path| folder.starts_with(&self.mount);
        self.folder.ancestors().take_while(below)
    }
}

pub fn memory_groups(cgroup: &str, mounts: &str) -> Vec<MemoryGroup> {
    let mount = |is_wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, point, kind, options, ..] = words[..] else {
                return None;
            };
            is_wanted(kind, options).then(|| PathBuf::from(point))
        })
    };
    let mut found = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let unified = controllers.is_empty();
        let point = match controllers {
            "" => mount(&|kind, _| kind == "cgroup2"),
            list if list.split(',').any(|name| name == "memory") => {
                let is_memory = |kind: &str, options: &str| {
                    kind == "cgroup" && options.split(',').any(|name| name == "memory")
                };
                mount(&is_memory)
            }
            _ => continue,
        };
        found.extend(point.map(|mount| MemoryGroup {
            folder: mount.join(path.trim_start_matches('/')),
            mount,
            unified,
        }));
    }
    found
}

/// The lowest limit of the cgroup of this process and of those above it; `None` if there is none.
pub fn memory_limit_bytes() -> Option<u64> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = memory_groups(&text("/proc/self/cgroup"), &text("/proc/self/mounts"));
    let files = groups.iter().flat_map(limit_files);
    files
        .filter_map(|file| limit(&fs::read_to_string(file).ok()?))
        .min()
}

/// The files that may have limits: in the group and in those above it.
fn limit_files(group: &MemoryGroup) -> Vec<PathBuf> {
    let name = if group.unified {
        "memory.max"
    } else {
        "memory.limit_in_bytes"
    };
    group.folders().map(|folder| folder.join(name)).collect()
}

/// `None` for no limit: version 2 has `max` then, and version 1 the largest possible number of
/// pages.
fn limit(text: &str) -> Option<u64> {
    const NONE: u64 = 1 << 62;
    text.trim().parse().ok().filter(|bytes| *bytes < NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_limits_may_stand() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let files = |cgroup: &str| {
            let groups = memory_groups(cgroup, mounts);
            let files = groups.iter().flat_map(limit_files);
            files
                .map(|file| file.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            files("4:memory:/a/b\n2:cpu:/x\n"),
            [
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
        assert_eq!(
            files("0::/job\n"),
            [
                "/sys/fs/cgroup/unified/job/memory.max",
                "/sys/fs/cgroup/unified/memory.max",
            ]
        );
    }

    #[test]
    fn what_is_no_limit() {
        let table = [
            ("max\n", None),
            ("9223372036854771712\n", None),
            ("8589934592\n", Some(8 << 30)),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(limit(text), expected, "{text:?}");
        }
    }
}
