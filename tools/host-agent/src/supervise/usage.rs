//! Measures the resources that the job's processes and their host use, from one look to the next,
//! by reading /proc at a slow pace. Children count with the process that was started, as samplers
//! with their trainer.

use super::gpus::GpuWatch;
use crate::procfs::{self, HostCounters, Stat};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};
use wire::supervise::{HostUsage, ProcessUsage, Usage};

/// The last look, and when the next one is due.
#[derive(Debug)]
pub struct UsageWatch {
    pace: Duration,
    looked: Instant,
    host: HostCounters,
    /// The processor time of each process of the job, by process id and start time.
    cpu_ticks: HashMap<(i32, u64), u64>,
    /// The GPU watch, if GPUs are wanted and there are any.
    gpus: Option<GpuWatch>,
}

impl UsageWatch {
    /// Looks for the first time; `None` if nobody wants to know.
    pub fn begin(pace_ms: u64, gpus: bool) -> Option<UsageWatch> {
        (pace_ms > 0).then(|| UsageWatch {
            gpus: gpus.then(GpuWatch::begin).flatten(),
            pace: Duration::from_millis(pace_ms),
            looked: Instant::now(),
            host: procfs::host_counters(),
            cpu_ticks: HashMap::new(),
        })
    }

    /// Whether it is time to look again.
    pub fn is_due(&self) -> bool {
        self.looked.elapsed() >= self.pace
    }

    /// The resources used since the last look by the host and by each of the processes, which are
    /// given by index and process id.
    pub fn look(&mut self, processes: &[(u32, i32)]) -> Usage {
        let interval = self.looked.elapsed();
        self.looked = Instant::now();
        let host = procfs::host_counters();
        let before = std::mem::replace(&mut self.host, host);
        let stats: BTreeMap<i32, Stat> = procfs::pids()
            .into_iter()
            .filter_map(|pid| Some((pid, procfs::stat(pid)?)))
            .collect();
        let families = families(&stats, processes);
        let mut seen = HashMap::new();
        let mut told = Vec::with_capacity(families.len());
        for (index, family) in families {
            let mut ticks = 0;
            for pid in &family {
                let stat = &stats[pid];
                let key = (*pid, stat.start_ticks);
                let earlier = self.cpu_ticks.get(&key).copied().unwrap_or(0);
                ticks += stat.cpu_ticks.saturating_sub(earlier);
                seen.insert(key, stat.cpu_ticks);
            }
            let memory = family.iter().filter_map(|pid| procfs::status(*pid));
            let (mut own_bytes, mut shm_bytes) = (0, 0);
            for status in memory {
                own_bytes += status.rss_bytes.saturating_sub(status.shm_bytes);
                // the members of a family share these pages
                shm_bytes = status.shm_bytes.max(shm_bytes);
            }
            told.push(ProcessUsage {
                index,
                cpu_ms: procfs::ticks_to_ms(ticks),
                rss_bytes: own_bytes + shm_bytes,
                shm_bytes,
            });
        }
        self.cpu_ticks = seen;
        Usage {
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            host: difference(&before, &self.host),
            processes: told,
            gpus: self.gpus.as_mut().map_or(Vec::new(), GpuWatch::look),
        }
    }
}

fn difference(before: &HostCounters, now: &HostCounters) -> HostUsage {
    let memory = procfs::memory_use();
    HostUsage {
        cpu_ms: procfs::ticks_to_ms(now.cpu_ticks.saturating_sub(before.cpu_ticks)),
        cpus: now.cpus,
        mem_used_bytes: memory.used_bytes,
        mem_bytes: memory.bytes,
        shm_used_bytes: memory.shm_used_bytes,
        net_rx_bytes: now.net_rx_bytes.saturating_sub(before.net_rx_bytes),
        net_tx_bytes: now.net_tx_bytes.saturating_sub(before.net_tx_bytes),
        disk_read_bytes: now.disk_read_bytes.saturating_sub(before.disk_read_bytes),
        disk_write_bytes: now.disk_write_bytes.saturating_sub(before.disk_write_bytes),
    }
}

/// Each process with its descendants. A process that was started below another one of the job
/// counts with the closest.
pub fn families(
    stats: &BTreeMap<i32, Stat>,
    processes: &[(u32, i32)],
) -> Vec<(u32, BTreeSet<i32>)> {
    let roots: HashMap<i32, usize> = processes
        .iter()
        .enumerate()
        .map(|(at, (_, pid))| (*pid, at))
        .collect();
    let mut families: Vec<(u32, BTreeSet<i32>)> = processes
        .iter()
        .map(|(index, _)| (*index, BTreeSet::new()))
        .collect();
    for pid in stats.keys() {
        // process ids that are reused could close a circle
        let ancestors = std::iter::successors(Some(*pid), |pid| Some(stats.get(pid)?.parent));
        if let Some(at) = ancestors.take(64).find_map(|pid| roots.get(&pid)) {
            families[*at].1.insert(*pid);
        }
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_count_with_who_was_started() {
        let stat = |parent| Stat {
            state: 'S',
            parent,
            group: 0,
            session: 0,
            cpu_ticks: 0,
            children_ticks: 0,
            start_ticks: 0,
        };
        let parents = [
            (1, 0),
            (10, 1),
            (11, 10),
            (12, 11),
            (20, 1),
            (30, 1),
            (31, 30),
        ];
        let stats = parents.map(|(pid, parent)| (pid, stat(parent))).into();
        let found = families(&stats, &[(0, 10), (1, 20), (2, 99)]);
        assert_eq!(
            found,
            [(0, [10, 11, 12].into()), (1, [20].into()), (2, [].into())]
        );
    }

    #[test]
    fn a_process_that_computes_is_seen_to() {
        assert!(UsageWatch::begin(0, true).is_none());
        let mut watch = UsageWatch::begin(1, false).unwrap();
        let own = std::process::id().cast_signed();
        watch.look(&[(7, own)]);
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {
            std::hint::black_box(procfs::pids());
        }
        let usage = watch.look(&[(7, own)]);
        let process = usage.processes[0];
        assert_eq!(process.index, 7);
        assert!(process.cpu_ms > 0 && process.rss_bytes > 0, "{process:?}");
        assert!(usage.interval_ms >= 200 && usage.host.cpus > 0, "{usage:?}");
        assert!(
            usage.host.mem_used_bytes < usage.host.mem_bytes,
            "{usage:?}"
        );
    }
}
