//! The resources that hosts and processes use: records, and the busiest hosts for the status line.

use record::term;
use record::{Process, Sample};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::supervise::Usage;

/// The records of a host's report: one of the host, and one of each process. `owners` are the
/// process records, in the order of the report.
pub fn samples<'a>(
    host: u32,
    owners: impl Iterator<Item = &'a Process>,
    usage: &Usage,
    time_ms: u64,
) -> Vec<Sample> {
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    let common = Sample {
        host,
        time_ms,
        interval_ms: Some(usage.interval_ms),
        ..Sample::default()
    };
    let used = &usage.host;
    let of_host = Sample {
        cpu_s: Some(seconds(used.cpu_ms)),
        cpus: Some(used.cpus),
        mem_used_bytes: Some(used.mem_used_bytes),
        mem_bytes: Some(used.mem_bytes),
        shm_used_bytes: Some(used.shm_used_bytes),
        net_rx_bytes: Some(used.net_rx_bytes),
        net_tx_bytes: Some(used.net_tx_bytes),
        disk_read_bytes: Some(used.disk_read_bytes),
        disk_write_bytes: Some(used.disk_write_bytes),
        gpus: usage.gpus.clone(),
        ..common
    };
    let of_processes = owners.zip(&usage.processes).map(|(owner, used)| Sample {
        id: Some(owner.id),
        role: Some(owner.role),
        rank: Some(owner.rank),
        cpu_s: Some(seconds(used.cpu_ms)),
        rss_bytes: Some(used.rss_bytes),
        shm_bytes: Some(used.shm_bytes),
        ..common.clone()
    });
    [of_host].into_iter().chain(of_processes).collect()
}

/// The last report of each host.
#[derive(Debug, Default)]
pub struct Busiest {
    hosts: BTreeMap<u32, Figures>,
}

/// The figures of one host.
#[derive(Clone, Copy, Debug)]
struct Figures {
    cpu_percent: u64,
    memory_percent: u64,
    /// Bytes per second, received and sent.
    network: u64,
}

impl Busiest {
    /// Adds the report of a host.
    pub fn update(&mut self, host: u32, usage: &Usage) {
        let used = &usage.host;
        let percent = |part: u64, whole: u64| {
            u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
        };
        let bytes = used.net_rx_bytes.saturating_add(used.net_tx_bytes);
        let whole = usage.interval_ms.saturating_mul(u64::from(used.cpus));
        self.hosts.insert(
            host,
            Figures {
                cpu_percent: percent(used.cpu_ms, whole).min(100),
                memory_percent: percent(used.mem_used_bytes, used.mem_bytes).min(100),
                network: percent(bytes, usage.interval_ms).saturating_mul(10),
            },
        );
    }

    /// The highest value of each figure and its host if there are several: `CPU 97 % (host 2),
    /// memory 41 % (host 0), network 118 MB/s (host 2)`. Empty before the first report.
    pub fn text(&self) -> String {
        let most = |figure: fn(&Figures) -> u64| {
            let figures = self
                .hosts
                .iter()
                .map(|(host, usage)| (figure(usage), *host));
            figures.max_by_key(|(value, host)| (*value, std::cmp::Reverse(*host)))
        };
        let shown = |name: &str, figure: fn(&Figures) -> u64, unit: fn(u64) -> String| {
            let (value, host) = most(figure)?;
            Some(match self.hosts.len() {
                1 => format!("{name} {}", unit(value)),
                _ => format!("{name} {} (host {host})", unit(value)),
            })
        };
        let percent = |value: u64| format!("{value} %");
        let rate = |value: u64| term::rate(value, Duration::from_secs(1));
        let figures = [
            shown("CPU", |usage| usage.cpu_percent, percent),
            shown("memory", |usage| usage.memory_percent, percent),
            shown("network", |usage| usage.network, rate),
        ];
        figures.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Gpu, Role};
    use wire::supervise::{HostUsage, ProcessUsage};

    fn usage(cpu_ms: u64, mem_used_bytes: u64, net_rx_bytes: u64) -> Usage {
        Usage {
            interval_ms: 5000,
            host: HostUsage {
                cpu_ms,
                cpus: 4,
                mem_used_bytes,
                mem_bytes: 1000,
                net_rx_bytes,
                net_tx_bytes: 0,
                ..HostUsage::default()
            },
            processes: vec![ProcessUsage {
                index: 0,
                cpu_ms: 1500,
                rss_bytes: 9,
                shm_bytes: 3,
            }],
            gpus: vec![Gpu {
                index: 1,
                util_percent: 97.0,
                mem_used_bytes: 5,
                mem_bytes: 8,
            }],
        }
    }

    #[test]
    fn the_busiest_of_each_is_shown() {
        let mut busiest = Busiest::default();
        assert_eq!(busiest.text(), "");
        busiest.update(0, &usage(5000, 410, 0));
        assert_eq!(busiest.text(), "CPU 25 %, memory 41 %, network 0 B/s");
        busiest.update(2, &usage(19_400, 300, 590_000_000));
        busiest.update(3, &usage(19_400, 300, 5));
        assert_eq!(
            busiest.text(),
            "CPU 97 % (host 2), memory 41 % (host 0), network 118 MB/s (host 2)"
        );
        busiest.update(2, &Usage::default());
        busiest.update(3, &usage(u64::MAX, u64::MAX, u64::MAX));
        assert!(
            busiest.text().starts_with("CPU 100 % (host 3)"),
            "whatever a host says"
        );
    }

    #[test]
    fn a_record_of_the_host_and_one_of_each_process() {
        let process: Process = serde_json::from_str(
            r#"{"id":7,"of":8,"host":1,"ip":"10.0.0.1","role":"trainer","rank":3,"argv":["t"]}"#,
        )
        .unwrap();
        let samples = samples(1, [&process].into_iter(), &usage(2500, 10, 20), 99);
        assert_eq!(samples.len(), 2);
        assert_eq!(
            (samples[0].id, samples[0].cpus, samples[0].rss_bytes),
            (None, Some(4), None)
        );
        assert_eq!(
            (samples[0].cpu_s, samples[0].net_rx_bytes),
            (Some(2.5), Some(20))
        );
        let cards = samples
            .iter()
            .map(|sample| sample.gpus.first().map(|gpu| gpu.util_percent));
        assert_eq!(cards.collect::<Vec<_>>(), [Some(97.0), None]);
        let of_process = &samples[1];
        assert_eq!(
            (of_process.id, of_process.role, of_process.rank),
            (Some(7), Some(Role::Trainer), Some(3))
        );
        assert_eq!(
            (of_process.cpu_s, of_process.rss_bytes, of_process.shm_bytes),
            (Some(1.5), Some(9), Some(3))
        );
        assert_eq!(
            (of_process.cpus, of_process.interval_ms, of_process.time_ms),
            (None, Some(5000), 99)
        );
    }
}
