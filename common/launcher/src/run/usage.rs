//! The resources that hosts and processes use: records, and the busiest hosts for the status line.

use record::term::{self, millis};
use record::{Process, Sample, Usage};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::supervise::Sampled;

/// The records of a host's report: one of the host, and one of each process. `owners` are the
/// process records, in the order of the report.
pub fn samples<'a>(
    host: u32,
    owners: impl Iterator<Item = &'a Process>,
    sampled: &Sampled,
    time_ms: u64,
) -> Vec<Sample> {
    let sample = |usage: &Usage| Sample {
        host,
        time_ms,
        interval_ms: Some(sampled.interval_ms),
        usage: usage.clone(),
        ..Sample::default()
    };
    let of_processes = owners.zip(&sampled.processes);
    let of_processes = of_processes.map(|(owner, (_, usage))| Sample {
        id: Some(owner.id),
        role: Some(owner.role),
        rank: Some(owner.rank),
        ..sample(usage)
    });
    [sample(&sampled.host)]
        .into_iter()
        .chain(of_processes)
        .collect()
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
    pub fn update(&mut self, host: u32, sampled: &Sampled) {
        let used = &sampled.host;
        let percent = |part: u64, whole: u64| {
            u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
        };
        let known = |value: Option<u64>| value.unwrap_or(0);
        let bytes = known(used.net_rx_bytes).saturating_add(known(used.net_tx_bytes));
        let cpu = Duration::try_from_secs_f64(used.cpu_s.unwrap_or(0.0).max(0.0));
        let cpu = cpu.unwrap_or(Duration::MAX);
        let cpus = u64::from(used.cpus.unwrap_or(0));
        let whole_ms = sampled.interval_ms.saturating_mul(cpus);
        self.hosts.insert(
            host,
            Figures {
                cpu_percent: percent(millis(cpu), whole_ms).min(100),
                memory_percent: percent(known(used.mem_used_bytes), known(used.mem_bytes)).min(100),
                network: percent(bytes, sampled.interval_ms).saturating_mul(10),
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

    fn sampled(cpu_s: f64, mem_used_bytes: u64, net_rx_bytes: u64) -> Sampled {
        Sampled {
            interval_ms: 5000,
            host: Usage {
                cpu_s: Some(cpu_s),
                cpus: Some(4),
                mem_used_bytes: Some(mem_used_bytes),
                mem_bytes: Some(1000),
                net_rx_bytes: Some(net_rx_bytes),
                gpus: vec![Gpu {
                    index: 1,
                    util_percent: 97.0,
                    mem_used_bytes: 5,
                    mem_bytes: 8,
                }],
                ..Usage::default()
            },
            processes: vec![(
                0,
                Usage {
                    cpu_s: Some(1.5),
                    rss_bytes: Some(9),
                    ..Usage::default()
                },
            )],
        }
    }

    #[test]
    fn the_busiest_of_each_is_shown() {
        let mut busiest = Busiest::default();
        assert_eq!(busiest.text(), "");
        busiest.update(0, &sampled(5.0, 410, 0));
        assert_eq!(busiest.text(), "CPU 25 %, memory 41 %, network 0 B/s");
        busiest.update(2, &sampled(19.4, 300, 590_000_000));
        busiest.update(3, &sampled(19.4, 300, 5));
        assert_eq!(
            busiest.text(),
            "CPU 97 % (host 2), memory 41 % (host 0), network 118 MB/s (host 2)"
        );
        busiest.update(2, &Sampled::default());
        busiest.update(3, &sampled(f64::MAX, u64::MAX, u64::MAX));
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
        let sampled = sampled(2.5, 10, 20);
        let samples = samples(1, [&process].into_iter(), &sampled, 99);
        let of_host = Sample {
            host: 1,
            time_ms: 99,
            interval_ms: Some(5000),
            usage: sampled.host,
            ..Sample::default()
        };
        let of_process = Sample {
            id: Some(7),
            role: Some(Role::Trainer),
            rank: Some(3),
            usage: sampled.processes[0].1.clone(),
            ..of_host
        };
        assert_eq!(samples, [of_host, of_process]);
    }
}
