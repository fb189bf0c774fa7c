//! Measures the resources that the job's processes and their host use, by reading /proc at long
//! intervals. Children count as part of the started process, such as samplers of a trainer.

use super::gpu_watch::GpuWatch;
use super::members::{Running, families};
use host::procfs::{self, HostCounters};
use record::Usage;
use record::term::millis;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use wire::supervise::Sampled;

/// The last sample, and when the next one is due.
#[derive(Debug)]
pub struct UsageWatch {
    pace: Duration,
    checked_at: Instant,
    counters: HostCounters,
    /// The CPU time of each process of the job, by process id and start time.
    cpu_ticks: HashMap<(i32, u64), u64>,
    /// The GPU watch, if GPUs are wanted and there are any.
    gpus: Option<GpuWatch>,
}

impl UsageWatch {
    /// Takes the first sample; `None` if no usage was requested.
    pub fn begin(pace_ms: u64, gpus: bool) -> Option<UsageWatch> {
        (pace_ms > 0).then(|| UsageWatch {
            gpus: gpus.then(GpuWatch::begin).flatten(),
            pace: Duration::from_millis(pace_ms),
            checked_at: Instant::now(),
            counters: procfs::host_counters(),
            cpu_ticks: HashMap::new(),
        })
    }

    /// Whether the next sample is due.
    pub fn is_due(&self) -> bool {
        self.checked_at.elapsed() >= self.pace
    }

    /// The resources that the host and each process have used since the last sample.
    pub fn sample(&mut self, running: &[Running]) -> Sampled {
        let interval = self.checked_at.elapsed();
        self.checked_at = Instant::now();
        let counters = procfs::host_counters();
        let before = std::mem::replace(&mut self.counters, counters);
        let stats = procfs::stats();
        let families = families(
            &stats,
            running.iter().map(|process| (process.index, process.pid)),
        );
        let mut seen = HashMap::new();
        let mut processes = Vec::with_capacity(families.len());
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
            let usage = Usage {
                cpu_s: Some(seconds(ticks)),
                rss_bytes: Some(own_bytes + shm_bytes),
                shm_bytes: Some(shm_bytes),
                ..Usage::default()
            };
            processes.push((index, usage));
        }
        self.cpu_ticks = seen;
        Sampled {
            interval_ms: millis(interval),
            host: Usage {
                gpus: self.gpus.as_mut().map_or(Vec::new(), GpuWatch::sample),
                ..usage_between(&before, &counters)
            },
            processes,
        }
    }
}

fn usage_between(before: &HostCounters, now: &HostCounters) -> Usage {
    let grown = |counter: fn(&HostCounters) -> u64| counter(now).saturating_sub(counter(before));
    Usage {
        cpu_s: Some(seconds(grown(|host| host.cpu_ticks))),
        cpus: Some(now.cpus),
        mem_used_bytes: Some(now.mem_used_bytes),
        mem_bytes: Some(now.mem_bytes),
        shm_used_bytes: Some(now.shm_used_bytes),
        net_rx_bytes: Some(grown(|host| host.net_rx_bytes)),
        net_tx_bytes: Some(grown(|host| host.net_tx_bytes)),
        disk_read_bytes: Some(grown(|host| host.disk_read_bytes)),
        disk_write_bytes: Some(grown(|host| host.disk_write_bytes)),
        ..Usage::default()
    }
}

fn seconds(ticks: u64) -> f64 {
    Duration::from_millis(procfs::ticks_to_ms(ticks)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_a_process_that_computes_is_measured() {
        assert!(UsageWatch::begin(0, true).is_none());
        let mut watch = UsageWatch::begin(1, false).unwrap();
        let this_process = Running {
            index: 7,
            pid: std::process::id().cast_signed(),
            role: job::Role::Worker,
            rank: 0,
            serves: false,
        };
        watch.sample(&[this_process]);
        let begun = Instant::now();
        // on a busy machine it may get no processor for a while
        let used_ticks = || procfs::stat(this_process.pid).map_or(0, |stat| stat.cpu_ticks);
        while begun.elapsed() < Duration::from_millis(200) || used_ticks() < 5 {
            std::hint::black_box(procfs::pids());
        }
        let sampled = watch.sample(&[this_process]);
        let [(index, process)] = &sampled.processes[..] else {
            panic!("{sampled:?}");
        };
        assert_eq!(*index, 7);
        assert!(process.cpu_s > Some(0.0) && process.rss_bytes > Some(0));
        assert!(sampled.interval_ms >= 200 && sampled.host.cpus > Some(0));
        assert!(sampled.host.mem_used_bytes < sampled.host.mem_bytes);
    }
}
