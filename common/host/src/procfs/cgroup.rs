//! The limits and events of control groups.

use std::fs;
use std::path::{Path, PathBuf};

/// A directory of the cgroup of a process, in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// The mount point of the hierarchy; in a container this may be the group itself.
    pub mount: PathBuf,
    pub folder: PathBuf,
    /// Whether the hierarchy is version 2; version 1 has other file names.
    pub unified: bool,
}

impl ControlGroup {
    /// The group and those above it.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        let below = |folder: &&Path| folder.starts_with(&self.mount);
        self.folder.ancestors().take_while(below)
    }
}

/// Those that control memory, or another resource with this name.
pub fn groups(controller: &str, cgroup: &str, mounts: &str) -> Vec<ControlGroup> {
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
            list if list.split(',').any(|name| name == controller) => {
                let is_wanted = |kind: &str, options: &str| {
                    kind == "cgroup" && options.split(',').any(|name| name == controller)
                };
                mount(&is_wanted)
            }
            _ => continue,
        };
        found.extend(point.map(|mount| ControlGroup {
            folder: mount.join(path.trim_start_matches('/')),
            mount,
            unified,
        }));
    }
    found
}

fn own_groups(controller: &str) -> Vec<ControlGroup> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    groups(
        controller,
        &text("/proc/self/cgroup"),
        &text("/proc/self/mounts"),
    )
}

/// The lowest limit of the cgroup of this process and of those above it; `None` if there is none.
pub fn memory_limit_bytes() -> Option<u64> {
    let groups = own_groups("memory");
    let files = groups.iter().flat_map(limit_files);
    files
        .filter_map(|file| limit(&fs::read_to_string(file).ok()?))
        .min()
}

/// How many processors the quotas of the cgroup of this process and of those above it amount to,
/// rounded up; `None` without a quota.
pub fn cpu_limit() -> Option<u64> {
    lowest_quota(&own_groups("cpu"))
}

fn lowest_quota(groups: &[ControlGroup]) -> Option<u64> {
    let folders = groups.iter().flat_map(|group| {
        let unified = group.unified;
        group.folders().map(move |folder| (folder, unified))
    });
    let quota = |(folder, unified): (&Path, bool)| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let text = if unified {
            read("cpu.max")?
        } else {
            read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?
        };
        processors(&text)
    };
    folders.filter_map(quota).min()
}

/// From a quota and its period. Without a quota, version 2 has `max`, and version 1 has -1.
fn processors(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    let (quota, period) = (words.next()?.ok()?, words.next()?.ok()?);
    (period > 0).then(|| quota.div_ceil(period).max(1))
}

/// The files that may have limits: in the group and in those above it.
fn limit_files(group: &ControlGroup) -> Vec<PathBuf> {
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
            let groups = groups("memory", cgroup, mounts);
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
    fn quotas_of_processors() {
        let table = [
            ("max 100000\n", None),
            ("-1\n 100000\n", None),
            ("800000 100000\n", Some(8)),
            ("750000\n 100000\n", Some(8)),
            ("10000 100000\n", Some(1)),
            ("100000 0\n", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(processors(text), expected, "{text:?}");
        }
        // the lowest quota of a group and of those above it, in either version
        let mount = std::env::temp_dir().join(format!("cgroup-{}", std::process::id()));
        let folder = mount.join("pod/job");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cpu.max"), "1600000 100000\n").unwrap();
        fs::write(mount.join("pod/cpu.max"), "800000 100000\n").unwrap();
        fs::write(folder.join("cpu.cfs_quota_us"), "300000\n").unwrap();
        fs::write(folder.join("cpu.cfs_period_us"), "100000\n").unwrap();
        let limit = |unified: bool| {
            let (mount, folder) = (mount.clone(), folder.clone());
            lowest_quota(&[ControlGroup {
                mount,
                folder,
                unified,
            }])
        };
        let limits = [limit(true), limit(false), lowest_quota(&[])];
        fs::remove_dir_all(&mount).unwrap();
        assert_eq!(limits, [Some(8), Some(3), None]);
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
