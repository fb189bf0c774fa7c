//! Finds hosts that differ from the others: one slow or full host makes all others wait.

use crate::findings::Finding;
use crate::job::Job;
use record::term::{self, bytes};
use record::{Culprit, Role, Sample};
use std::collections::BTreeMap;
use std::time::Duration;

/// A quantity that is compared between hosts, and the difference from which on it is reported.
struct Quantity {
    /// The sentence that reports it, from the host, its value, and that of the others.
    text: fn(&str, f64, f64) -> String,
    /// The factor by which the value must exceed the median of the others.
    factor: f64,
    /// The difference by which it must also exceed that median.
    least: f64,
    fix: Option<&'static str>,
}

const PARTITION: Quantity = Quantity {
    text: |host, own, others| {
        format!(
            "the partition of {host} has {}, those of the others {}",
            bytes(own as u64),
            bytes(others as u64)
        )
    },
    factor: 1.5,
    // differences below a megabyte cannot be noticed
    least: 1e6,
    fix: Some("partition anew with METIS and balance_ntypes, or give that host more processors"),
};

const START: Quantity = Quantity {
    text: |host, own, others| {
        format!(
            "{host} is slow: its servers listened {} after their start, those of \
                 the others after {}",
            seconds(own),
            seconds(others)
        )
    },
    factor: 2.0,
    // python and torch alone take some seconds to load, with variation
    least: 5.0,
    fix: Some("look at what else runs on that host, at its disk and at its limits"),
};

const PROCESSOR: Quantity = Quantity {
    text: |host, own, others| {
        format!(
            "the trainers of {host} took {} of CPU time, those of the others {}",
            seconds(own),
            seconds(others)
        )
    },
    factor: 2.0,
    least: 10.0,
    fix: None,
};

const MEMORY: Quantity = Quantity {
    text: |host, own, others| {
        format!(
            "the servers of {host} took {} of memory, those of the others {}",
            bytes(own as u64),
            bytes(others as u64)
        )
    },
    factor: 1.5,
    least: 256e6,
    fix: None,
};

const COPY: Quantity = Quantity {
    text: |host, own, others| {
        format!(
            "a gigabyte takes {} to {host}, {} to the others",
            seconds(own),
            seconds(others)
        )
    },
    factor: 3.0,
    least: 5.0,
    fix: Some("look at that host's network and disk"),
};

const BUSY: Quantity = Quantity {
    text: |host, own, others| {
        format!("{host} used {own:.1} processors on average, the others {others:.1}")
    },
    factor: 2.0,
    least: 1.0,
    fix: None,
};

const NETWORK: Quantity = Quantity {
    text: |host, own, others| {
        format!(
            "{host} moved {}/s over the network on average, the others {}/s",
            bytes(own as u64),
            bytes(others as u64)
        )
    },
    factor: 2.0,
    least: 10e6,
    fix: None,
};

/// The share of a whole from which on it counts as full.
const FULL: f64 = 0.95;

fn seconds(value: f64) -> String {
    term::seconds(Duration::from_secs_f64(value.clamp(0.0, 1e9)))
}

/// A value for each host that has one.
type Values = BTreeMap<u32, f64>;

/// The differences between hosts.
pub fn findings(job: &Job) -> Vec<Finding> {
    let records = job.records;
    let partitions: Values = records
        .hosts
        .iter()
        .map(|host| (host.id, partition_bytes(job, host.id) as f64))
        .filter(|(_, bytes)| *bytes > 0.0)
        .collect();
    let mut found: Vec<Option<Finding>> = vec![
        outlier(job, &PARTITION, &partitions).map(|(host, finding)| {
            let of_host = records
                .files
                .iter()
                .filter(|file| file.host == Some(host) && file.kind == "partition");
            finding.shown_by_all(of_host.max_by_key(|file| file.bytes))
        }),
        outlier(job, &START, &starts(job)).map(|(host, finding)| {
            let of_host = records.listening.iter().filter(|one| one.host == host);
            finding
                .shown_by_all(records.started.iter().find(|one| one.host == host))
                .shown_by_all(of_host.max_by_key(|one| one.time_ms))
        }),
        outlier(job, &COPY, &copies(job)).map(|(host, finding)| {
            let of_host = records.pushed.iter().filter(|one| one.host == host);
            finding.shown_by_all(of_host.max_by_key(|one| one.sent_bytes))
        }),
    ];
    let exits: [(&Quantity, Role, fn(&record::Exited) -> Option<f64>); 2] = [
        (&PROCESSOR, Role::Trainer, |exited| exited.cpu_s),
        (&MEMORY, Role::Server, |exited| {
            Some(exited.max_rss_bytes? as f64)
        }),
    ];
    for (quantity, role, value) in exits {
        let mut values = Values::new();
        for exited in job.lives.iter().filter_map(|life| life.exited) {
            if let Some(value) = value(exited).filter(|_| exited.role == role) {
                *values.entry(exited.host).or_default() += value;
            }
        }
        found.push(outlier(job, quantity, &values).map(|(host, finding)| {
            let exits = job.lives.iter().filter_map(|life| life.exited);
            finding.shown_by_all(
                exits
                    .filter(|one| one.host == host && one.role == role)
                    .take(2),
            )
        }));
    }
    found.extend(of_samples(job));
    found.into_iter().flatten().collect()
}

/// The size of the files in a host's partition.
pub fn partition_bytes(job: &Job, host: u32) -> u64 {
    let of_host = job
        .records
        .files
        .iter()
        .filter(|file| file.host == Some(host) && file.kind == "partition");
    of_host.map(|file| file.bytes).fold(0, u64::saturating_add)
}

/// How long the servers took until they listened, the slowest of each host.
fn starts(job: &Job) -> Values {
    let mut values = Values::new();
    for life in &job.lives {
        if let (Some(started), Some(listening)) = (life.started, life.listening) {
            let took = listening.time_ms.saturating_sub(started.time_ms) as f64 / 1e3;
            let slowest = values.entry(life.process.host).or_insert(took);
            *slowest = slowest.max(took);
        }
    }
    values
}

/// Seconds for a gigabyte, for hosts to which enough was sent to tell.
fn copies(job: &Job) -> Values {
    const ENOUGH_BYTES: u64 = 50_000_000;
    let mut sent: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for one in &job.records.pushed {
        let (bytes, elapsed_ms) = sent.entry(one.host).or_default();
        *bytes = bytes.saturating_add(one.sent_bytes);
        *elapsed_ms = one.elapsed_ms.max(*elapsed_ms);
    }
    sent.into_iter()
        .filter(|(_, (bytes, _))| *bytes >= ENOUGH_BYTES)
        .map(|(host, (bytes, elapsed_ms))| (host, elapsed_ms as f64 * 1e6 / bytes as f64))
        .collect()
}

/// The host that is furthest above the median of the others, if that is far enough.
fn outlier(job: &Job, quantity: &Quantity, values: &Values) -> Option<(u32, Finding)> {
    let (host, own) = values
        .iter()
        .max_by(|one, other| one.1.total_cmp(other.1))?;
    let others: Vec<f64> = values
        .iter()
        .filter(|(other, _)| *other != host)
        .map(|(_, value)| *value)
        .collect();
    let others = median(others)?;
    if *own < others * quantity.factor || own - others < quantity.least {
        return None;
    }
    let mut finding = Finding::new((quantity.text)(&job.host(*host), *own, others));
    finding = finding.on_account_of(of_host(*host));
    finding.fix = quantity.fix;
    Some((*host, finding))
}

fn of_host(host: u32) -> Culprit {
    Culprit {
        host,
        id: None,
        role: None,
        rank: None,
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0),
        _ => values.get(middle).copied(),
    }
}

/// The findings from samples: hosts that do more than the others, and memory that is full.
fn of_samples(job: &Job) -> Vec<Option<Finding>> {
    let hosts = || {
        job.records
            .samples
            .iter()
            .filter(|sample| sample.is_of_host())
    };
    let mean = |value: fn(&Sample) -> Option<f64>| -> Values {
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for sample in hosts() {
            let seconds = sample.interval_ms.unwrap_or(0) as f64 / 1e3;
            if let Some(value) = value(sample).filter(|_| seconds > 0.0) {
                let (sum, time) = sums.entry(sample.host).or_default();
                *sum += value;
                *time += seconds;
            }
        }
        sums.into_iter()
            .map(|(host, (sum, time))| (host, sum / time))
            .collect()
    };
    let network = |sample: &Sample| Some(sample.net_rx_bytes? as f64 + sample.net_tx_bytes? as f64);
    let of_means = [
        (&BUSY, mean(|sample| sample.cpu_s)),
        (&NETWORK, mean(network)),
    ];
    let mut found: Vec<Option<Finding>> = of_means
        .iter()
        .map(|(quantity, values)| {
            let (host, finding) = outlier(job, quantity, values)?;
            Some(finding.shown_by_all(hosts().rfind(|one| one.host == host)))
        })
        .collect();
    let fullest = hosts()
        .filter_map(|sample| {
            let (used, all) = (sample.mem_used_bytes?, sample.mem_bytes?);
            Some((used as f64 / all.max(1) as f64, used, all, sample))
        })
        .max_by(|one, other| one.0.total_cmp(&other.0));
    found.push(
        fullest
            .filter(|(share, ..)| *share >= FULL)
            .map(|(_, used, all, sample)| {
                let host = job.host(sample.host);
                Finding::new(format!(
                    "the memory of {host} was full: {} of {}",
                    bytes(used),
                    bytes(all)
                ))
                .since(sample.time_ms)
                .on_account_of(of_host(sample.host))
                .shown_by(sample)
            }),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, middle) in [
            (vec![], None),
            (vec![3.0], Some(3.0)),
            (vec![5.0, 1.0], Some(3.0)),
            (vec![9.0, 1.0, 2.0], Some(2.0)),
        ] {
            assert_eq!(median(values.clone()), middle, "{values:?}");
        }
    }
}
