//! Detects whether the kernel killed a process because memory ran out, by the counter of its cgroup
//! or, without one, of the whole host.

use host::procfs::{self, cgroup};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The counter of the whole host.
const HOST: &str = "/proc/vmstat";
/// If the memory of the whole host runs out, the kernel kills the process that has most of it. One
/// that had less than this part was killed by somebody else.
const LEAST_PART: u64 = 200;

/// How long a kill may explain a death. The kernel counts it before the process has ended, which
/// takes long if the process is large or waits for a disk.
const NEWS: Duration = Duration::from_secs(3);

/// The counters at the last two calls of `age`: a kill since the earlier call may explain a death
/// that was not reported yet.
#[derive(Debug, Default)]
pub struct OomWatch {
    counts: BTreeMap<PathBuf, [u64; 2]>,
    aged: Option<Instant>,
    /// By the index of the process on the host, the closest first. A cgroup may end with its last
    /// process, but those above it have counted the kill, too.
    counters_of: BTreeMap<u32, Vec<PathBuf>>,
}

impl OomWatch {
    /// Finds the counters of a running process. A process may move into another cgroup, so this is
    /// repeated.
    pub fn examine(&mut self, index: u32, pid: u32) {
        let paths = counters_of(pid);
        for path in &paths {
            let counts = self.counts.entry(path.clone());
            counts.or_insert_with(|| [read(path).unwrap_or(0); 2]);
        }
        self.counters_of.insert(index, paths);
    }

    /// Ages the counters, so that old kills no longer explain deaths.
    pub fn age(&mut self, now: Instant) {
        if self.aged.is_some_and(|aged| now < aged + NEWS) {
            return;
        }
        self.aged = Some(now);
        for (path, counts) in &mut self.counts {
            *counts = [counts[1], read(path).unwrap_or(counts[1])];
        }
    }

    /// Whether the kernel killed this process, which had this much memory and died of a KILL that
    /// the supervisor did not send.
    pub fn killed(&mut self, index: u32, bytes: u64) -> bool {
        let host_bytes = procfs::memory_bytes().unwrap_or(0);
        let mut killed = None;
        for path in self.counters_of.get(&index).into_iter().flatten() {
            let (Some(count), Some(counts)) = (read(path), self.counts.get_mut(path)) else {
                continue;
            };
            let is_small = path == Path::new(HOST) && bytes < host_bytes / LEAST_PART;
            let is_news = !is_small && count > counts[0];
            // the closest that still exists
            if !*killed.get_or_insert(is_news) {
                return false;
            }
            // one death is one count
            if is_news {
                *counts = [counts[0] + 1, counts[1].max(counts[0] + 1)];
            }
        }
        killed.unwrap_or(false)
    }
}

fn counters_of(pid: u32) -> Vec<PathBuf> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut found = counters(
        &text(&format!("/proc/{pid}/cgroup")),
        &text("/proc/self/mounts"),
    );
    found.retain(|path| read(path).is_some());
    if found.is_empty() {
        found.push(HOST.into());
    }
    found
}

fn read(path: &Path) -> Option<u64> {
    procfs::number_of(&fs::read_to_string(path).ok()?, "oom_kill ")
}

/// The files that may have a counter for a process, the closest first.
fn counters(cgroup: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for group in cgroup::groups("memory", cgroup, mounts) {
        let file = if group.unified {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        // in a container the mount may be the cgroup itself
        found.extend(group.folders().map(|folder| folder.join(file)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_kernel_counts() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup \
            rw,relatime,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = |cgroup: &str| {
            counters(cgroup, mounts)
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found("4:memory:/a/b\n2:cpu:/\n"),
            [
                "/sys/fs/cgroup/memory/a/b/memory.oom_control",
                "/sys/fs/cgroup/memory/a/memory.oom_control",
                "/sys/fs/cgroup/memory/memory.oom_control"
            ]
        );
        assert_eq!(found("0::/\n"), ["/sys/fs/cgroup/unified/memory.events"]);
        assert_eq!(
            found("0::/user.slice\n")[0],
            "/sys/fs/cgroup/unified/user.slice/memory.events"
        );
        assert!(found("").is_empty());
    }

    #[test]
    fn a_kill_is_news_until_its_process_has_ended() {
        let file = std::env::temp_dir().join(format!("oom-watch-{}", std::process::id()));
        let counted = |count: u64| fs::write(&file, format!("oom_kill {count}\n")).unwrap();
        let begun = Instant::now();
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        counted(4);
        let mut watch = OomWatch::default();
        watch.counts.insert(file.clone(), [4, 4]);
        let files = vec![file.clone()];
        watch.counters_of = BTreeMap::from([(0, files.clone()), (1, files)]);
        watch.age(begun);
        assert!(!watch.killed(0, 0), "no kill was counted");
        counted(5);
        for second in 1..=5 {
            watch.age(after(second));
        }
        assert!(watch.killed(0, 0), "it took seconds to end");
        assert!(!watch.killed(1, 0), "one death is one count");
        counted(6);
        watch.age(after(6));
        watch.age(after(9));
        assert!(!watch.killed(1, 0), "that was long ago");
        fs::remove_file(&file).unwrap();
    }

    /// systemd removes the cgroup of a scope with its last process.
    #[test]
    fn a_cgroup_that_is_gone_has_been_counted_above() {
        let scope = std::env::temp_dir().join(format!("oom-watch-scope-{}", std::process::id()));
        let slice = scope.with_extension("slice");
        let counted = |file: &Path, count: u64| fs::write(file, format!("oom_kill {count}\n"));
        counted(&scope, 0).unwrap();
        counted(&slice, 7).unwrap();
        let paths = vec![scope.clone(), slice.clone()];
        let mut watch = OomWatch {
            counts: BTreeMap::from([(scope.clone(), [0; 2]), (slice.clone(), [7; 2])]),
            counters_of: (0..3).map(|index| (index, paths.clone())).collect(),
            ..OomWatch::default()
        };
        counted(&slice, 8).unwrap();
        assert!(!watch.killed(0, 0), "somebody else's process was killed");
        counted(&scope, 1).unwrap();
        assert!(watch.killed(0, 0));
        fs::remove_file(&scope).unwrap();
        assert!(!watch.killed(1, 0), "one death is one count above, too");
        counted(&slice, 9).unwrap();
        assert!(watch.killed(2, 0));
        fs::remove_file(&slice).unwrap();
    }

    #[test]
    fn a_small_process_is_not_what_the_kernel_kills_of_a_whole_host() {
        let count = read(Path::new(HOST)).unwrap();
        let host_bytes = procfs::memory_bytes().unwrap();
        for (bytes, is_killed) in [(1 << 20, false), (host_bytes / 100, true)] {
            let mut watch = OomWatch::default();
            // as if there had been a kill since
            watch.counts.insert(HOST.into(), [count.wrapping_sub(1); 2]);
            watch.counters_of.insert(0, vec![HOST.into()]);
            if count > 0 || !is_killed {
                assert_eq!(watch.killed(0, bytes), is_killed, "{bytes}");
            }
        }
    }
}
