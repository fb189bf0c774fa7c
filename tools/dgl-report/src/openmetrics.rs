//! The figures of a job as OpenMetrics text, for Prometheus' textfile collector: read from the
//! stream while the job runs, and written to a file that always is whole.
//!
//! All are gauges, which OpenMetrics and Prometheus' older text format write alike.

use crate::samples;
use record::error::{Fault, Report};
use record::exit::{Exit, signal_number};
use record::profile::TimeShares;
use record::{Exited, Host, Profile, Role, Sample, Started, Summary};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file is written at most so often; Prometheus reads it every 15 s or so.
const PACE: Duration = Duration::from_secs(1);

/// Reads the stream to its end and keeps the file up to date.
pub fn write(input: impl BufRead, file: &Path) -> Result<(), Report> {
    let mut metrics = Metrics::default();
    let mut written: Option<Instant> = None;
    for line in input.lines() {
        let line = line.map_err(|error| Fault::data("stdin", error.to_string()).report())?;
        let is_news = metrics.add(&line);
        if is_news && written.is_none_or(|at| at.elapsed() >= PACE) {
            replace(file, &metrics.text())?;
            written = Some(Instant::now());
        }
    }
    replace(file, &metrics.text())
}

/// Writes a file beside it, whose name the collector does not read, and gives it the name.
fn replace(file: &Path, text: &str) -> Result<(), Report> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = file.with_file_name(name);
    let written = write_whole(&beside, text).and_then(|()| fs::rename(&beside, file));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        Fault::unreachable(file.display().to_string(), error.to_string())
            .fix("name a file in a folder that exists, such as node_exporter's textfile directory")
            .report()
    })
}

fn write_whole(path: &PathBuf, text: &str) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())
}

/// What a line of the stream may tell.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Host(Box<Host>),
    Started(Started),
    Exited(Exited),
    Sample(Box<Sample>),
    Profile(Box<Profile>),
    Stalled,
    Resumed,
    Summary(Box<Summary>),
    #[serde(other)]
    Other,
}

/// The name of a family, its unit and what it is.
type Family = (&'static str, &'static str, &'static str);

/// The names and values of labels.
type Labels = Vec<(&'static str, String)>;

/// The latest value of each figure.
#[derive(Debug, Default)]
struct Metrics {
    hosts: BTreeMap<u32, String>,
    values: BTreeMap<Family, BTreeMap<Labels, f64>>,
}

const PROCESS_UP: Family = ("dgl_process_up", "", "Whether the process runs.");
const EXIT_STATUS: Family = (
    "dgl_process_exit_status",
    "",
    "The exit status of a process, 128 and the number if by a signal.",
);
const STALLED: Family = (
    "dgl_job_stalled",
    "",
    "Whether no process has moved for long.",
);
const JOB_STATUS: Family = ("dgl_job_exit_status", "", "The exit status of the job.");
const TIME: Family = (
    "dgl_process_time_ratio",
    "ratio",
    "The share of the main thread's time, as recorded.",
);

/// A figure of a sample.
type Figure = (Family, fn(&Sample) -> Option<f64>);

const OF_HOSTS: [Figure; 8] = [
    (
        ("dgl_host_cpu_cores", "cores", "Processors in use."),
        samples::processors,
    ),
    (
        ("dgl_host_memory_used_bytes", "bytes", "Main memory in use."),
        |one| count(one.mem_used_bytes),
    ),
    (("dgl_host_memory_bytes", "bytes", "Main memory."), |one| {
        count(one.mem_bytes)
    }),
    (
        (
            "dgl_host_shm_used_bytes",
            "bytes",
            "Memory in use in /dev/shm.",
        ),
        |one| count(one.shm_used_bytes),
    ),
    (
        (
            "dgl_host_net_received_bytes_per_second",
            "",
            "Bytes received a second.",
        ),
        |one| rate(one, one.net_rx_bytes),
    ),
    (
        (
            "dgl_host_net_sent_bytes_per_second",
            "",
            "Bytes sent a second.",
        ),
        |one| rate(one, one.net_tx_bytes),
    ),
    (
        (
            "dgl_host_disk_read_bytes_per_second",
            "",
            "Bytes read a second.",
        ),
        |one| rate(one, one.disk_read_bytes),
    ),
    (
        (
            "dgl_host_disk_written_bytes_per_second",
            "",
            "Bytes written a second.",
        ),
        |one| rate(one, one.disk_write_bytes),
    ),
];

const OF_PROCESSES: [Figure; 3] = [
    (
        ("dgl_process_cpu_cores", "cores", "Processors in use."),
        samples::processors,
    ),
    (
        ("dgl_process_resident_bytes", "bytes", "Resident memory."),
        |one| count(one.rss_bytes),
    ),
    (
        (
            "dgl_process_shm_bytes",
            "bytes",
            "Resident memory that is shared.",
        ),
        |one| count(one.shm_bytes),
    ),
];

fn count(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64)
}

/// Bytes a second.
fn rate(sample: &Sample, bytes: Option<u64>) -> Option<f64> {
    Some(count(bytes)? / samples::seconds(sample)?)
}

impl Metrics {
    /// Notes what the line tells; whether that changes a figure. Lines that are none of ours, or
    /// cut, tell nothing.
    fn add(&mut self, line: &str) -> bool {
        let Ok(line) = serde_json::from_str(line) else {
            return false;
        };
        match line {
            Line::Host(host) => {
                let name = host.name.unwrap_or_else(|| host.ip.to_string());
                self.hosts.insert(host.id, name);
                return false;
            }
            Line::Other => return false,
            Line::Started(one) => {
                let labels = self.process(one.host, Some(one.role), Some(one.rank));
                self.remove(EXIT_STATUS, &labels);
                self.set(PROCESS_UP, labels, 1.0);
            }
            Line::Exited(one) => {
                let labels = self.process(one.host, Some(one.role), Some(one.rank));
                self.set(PROCESS_UP, labels.clone(), 0.0);
                let signal = one.signal.as_deref().and_then(signal_number);
                let by_signal = signal.map(|number| Exit::Signal(number).code());
                if let Some(status) = one.code.or(by_signal) {
                    self.set(EXIT_STATUS, labels, f64::from(status));
                }
            }
            Line::Sample(sample) => self.add_sample(&sample),
            Line::Profile(profile) => self.add_profile(&profile),
            Line::Stalled => self.set(STALLED, Labels::new(), 1.0),
            Line::Resumed => self.set(STALLED, Labels::new(), 0.0),
            Line::Summary(end) if end.tool.is_none() => {
                self.set(JOB_STATUS, Labels::new(), f64::from(end.code));
            }
            Line::Summary(_) => return false,
        }
        true
    }

    fn host(&self, id: u32) -> Labels {
        let name = self.hosts.get(&id).cloned();
        vec![("host", name.unwrap_or_else(|| id.to_string()))]
    }

    fn process(&self, host: u32, role: Option<Role>, rank: Option<u32>) -> Labels {
        let mut labels = self.host(host);
        labels.extend(role.map(|role| ("role", role.name().to_owned())));
        labels.extend(rank.map(|rank| ("rank", rank.to_string())));
        labels
    }

    fn set(&mut self, family: Family, labels: Labels, value: f64) {
        self.values.entry(family).or_default().insert(labels, value);
    }

    fn remove(&mut self, family: Family, labels: &Labels) {
        if let Some(values) = self.values.get_mut(&family) {
            values.remove(labels);
        }
    }

    fn add_sample(&mut self, sample: &Sample) {
        let figures: &[Figure] = match sample.is_of_host() {
            true => &OF_HOSTS,
            false => &OF_PROCESSES,
        };
        let labels = self.process(sample.host, sample.role, sample.rank);
        for (family, value) in figures {
            if let Some(value) = value(sample) {
                self.set(*family, labels.clone(), value);
            }
        }
        for gpu in &sample.gpus {
            let mut labels = self.host(sample.host);
            labels.push(("gpu", gpu.index.to_string()));
            let used = ("dgl_gpu_memory_used_bytes", "bytes", "GPU memory in use.");
            let busy = (
                "dgl_gpu_busy_ratio",
                "ratio",
                "The share of time in which it computed.",
            );
            self.set(used, labels.clone(), gpu.mem_used_bytes as f64);
            self.set(busy, labels, gpu.util_percent / 100.0);
        }
    }

    fn add_profile(&mut self, profile: &Profile) {
        if profile.is_child() || profile.samples == 0 {
            return;
        }
        let shares = TimeShares::of(profile);
        let parts = [
            ("computing", shares.computing),
            ("loading", shares.loading),
            ("servers", shares.servers),
            ("others", shares.others),
        ];
        for (activity, share) in parts {
            let mut labels = self.process(profile.host, profile.role, profile.rank);
            labels.push(("activity", activity.to_owned()));
            self.set(TIME, labels, (share * 1e4).round() / 1e4);
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for ((name, unit, help), values) in &self.values {
            let _ = writeln!(text, "# TYPE {name} gauge");
            if !unit.is_empty() {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            let _ = writeln!(text, "# HELP {name} {help}");
            for (labels, value) in values {
                let labels = labels
                    .iter()
                    .map(|(name, value)| format!("{name}={value:?}"));
                let labels = labels.collect::<Vec<_>>().join(",");
                let _ = match labels.is_empty() {
                    true => writeln!(text, "{name} {value}"),
                    false => writeln!(text, "{name}{{{labels}}} {value}"),
                };
            }
        }
        text + "# EOF\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::too_many_lines, reason = "it is a whole file")]
    #[test]
    fn the_latest_figures_are_kept() {
        let mut metrics = Metrics::default();
        let process = r#""host":0,"id":4,"role":"trainer","rank":1"#;
        let sample = r#""time_ms":9,"interval_ms":5000"#;
        let lines = [
            (
                r#""host","id":0,"of":1,"ip":"10.0.0.1","port":1,"name":"gpu\"1""#.to_owned(),
                false,
            ),
            (format!(r#""started",{process},"pid":7,"time_ms":1"#), true),
            (
                format!(r#""sample","host":0,{sample},"cpu_s":10,"mem_bytes":64"#),
                true,
            ),
            (
                format!(r#""sample",{process},{sample},"cpu_s":2.5,"rss_bytes":7"#),
                true,
            ),
            (
                format!(r#""sample","host":0,{sample},"cpu_s":5,"mem_bytes":64"#),
                true,
            ),
            (
                format!(r#""exited",{process},"signal":"KILL","elapsed_ms":9"#),
                true,
            ),
            (
                r#""output","id":4,"stream":"stdout","line":"x","time_ms":9"#.to_owned(),
                false,
            ),
            ("torn".to_owned(), false),
        ];
        for (line, is_news) in lines {
            assert_eq!(
                metrics.add(&format!("{{\"type\":{line}}}")),
                is_news,
                "{line}"
            );
        }
        let expected = r#"# TYPE dgl_host_cpu_cores gauge
# UNIT dgl_host_cpu_cores cores
# HELP dgl_host_cpu_cores Processors in use.
dgl_host_cpu_cores{host="gpu\"1"} 1
# TYPE dgl_host_memory_bytes gauge
# UNIT dgl_host_memory_bytes bytes
# HELP dgl_host_memory_bytes Main memory.
dgl_host_memory_bytes{host="gpu\"1"} 64
# TYPE dgl_process_cpu_cores gauge
# UNIT dgl_process_cpu_cores cores
# HELP dgl_process_cpu_cores Processors in use.
dgl_process_cpu_cores{host="gpu\"1",role="trainer",rank="1"} 0.5
# TYPE dgl_process_exit_status gauge
# HELP dgl_process_exit_status The exit status of a process, 128 and the number if by a signal.
dgl_process_exit_status{host="gpu\"1",role="trainer",rank="1"} 137
# TYPE dgl_process_resident_bytes gauge
# UNIT dgl_process_resident_bytes bytes
# HELP dgl_process_resident_bytes Resident memory.
dgl_process_resident_bytes{host="gpu\"1",role="trainer",rank="1"} 7
# TYPE dgl_process_up gauge
# HELP dgl_process_up Whether the process runs.
dgl_process_up{host="gpu\"1",role="trainer",rank="1"} 0
# EOF
"#;
        assert_eq!(metrics.text(), expected);
    }
}
