//! The resources that hosts and processes used, as lines to draw: a panel for each quantity, with
//! one scale.

use record::Sample;
use record::term;
use std::collections::BTreeMap;
use verdict::JobHistory;

/// The most points of a line that its drawing can show separately.
pub const POINTS: usize = 60;

/// A quantity of all hosts or processes that have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The name of the quantity.
    pub name: &'static str,
    /// The top of the scale, which begins at 0.
    pub top: f64,
    /// The unit of the values.
    pub unit: Unit,
    /// The lines by the ids of the hosts or processes.
    pub lines: BTreeMap<u32, Curve>,
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number with one digit behind the point.
    Number,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    Rate,
    /// Per cent.
    Percent,
}

impl Unit {
    /// The value in words.
    pub fn words(self, value: f64) -> String {
        match self {
            Unit::Number => format!("{value:.1}"),
            Unit::Bytes => term::bytes(value as u64),
            Unit::Rate => format!("{}/s", term::bytes(value as u64)),
            Unit::Percent => format!("{value:.0} %"),
        }
    }
}

/// The values of one host or process.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Points of time, from 0 to 1 of the page's length, and value.
    pub points: Vec<(f64, f64)>,
    /// The mean over time.
    pub mean: f64,
    /// The largest value.
    pub most: f64,
}

/// A quantity, with the function that takes it from a sample.
type SampledQuantity = (&'static str, Unit, fn(&Sample) -> Option<f64>);

const OF_HOSTS: [SampledQuantity; 6] = [
    ("Processors in use", Unit::Number, processors),
    ("Memory in use", Unit::Bytes, |sample| {
        Some(sample.usage.mem_used_bytes? as f64)
    }),
    ("/dev/shm in use", Unit::Bytes, |sample| {
        Some(sample.usage.shm_used_bytes? as f64)
    }),
    ("Network, in and out", Unit::Rate, |sample| {
        let both = sample.usage.net_rx_bytes? as f64 + sample.usage.net_tx_bytes? as f64;
        Some(both / seconds(sample)?)
    }),
    ("Disks, read and written", Unit::Rate, |sample| {
        let both = sample.usage.disk_read_bytes? as f64 + sample.usage.disk_write_bytes? as f64;
        Some(both / seconds(sample)?)
    }),
    ("GPUs at work", Unit::Percent, |sample| {
        let sum: f64 = sample.usage.gpus.iter().map(|gpu| gpu.util_percent).sum();
        (!sample.usage.gpus.is_empty()).then(|| sum / sample.usage.gpus.len() as f64)
    }),
];

const OF_PROCESSES: [SampledQuantity; 2] = [
    ("Processors in use", Unit::Number, processors),
    ("Resident memory", Unit::Bytes, |sample| {
        Some(sample.usage.rss_bytes? as f64)
    }),
];

/// The length of the interval.
pub fn seconds(sample: &Sample) -> Option<f64> {
    let interval_ms = sample.interval_ms.filter(|length| *length > 0)?;
    Some(interval_ms as f64 / 1e3)
}

/// How many processors it used.
pub fn processors(sample: &Sample) -> Option<f64> {
    Some(sample.usage.cpu_s? / seconds(sample)?)
}

/// The resources that hosts used: the quantities with samples.
pub fn of_hosts(job: &JobHistory, began_ms: u64, length_ms: u64) -> Vec<Panel> {
    let host = |sample: &Sample| sample.is_of_host().then_some(sample.host);
    panels(job, &OF_HOSTS, host, began_ms, length_ms)
}

/// The resources that processes used.
pub fn of_processes(job: &JobHistory, began_ms: u64, length_ms: u64) -> Vec<Panel> {
    panels(job, &OF_PROCESSES, |sample| sample.id, began_ms, length_ms)
}

fn panels(
    job: &JobHistory,
    quantities: &[SampledQuantity],
    id: fn(&Sample) -> Option<u32>,
    began_ms: u64,
    length_ms: u64,
) -> Vec<Panel> {
    let panel = |(name, unit, value): &SampledQuantity| {
        let mut points: BTreeMap<u32, Vec<(u64, f64)>> = BTreeMap::new();
        for sample in &job.samples {
            if let (Some(id), Some(value)) = (id(sample), value(sample)) {
                let time_ms = sample.time_ms.saturating_sub(began_ms);
                points.entry(id).or_default().push((time_ms, value));
            }
        }
        let lines = points.into_iter();
        let lines: BTreeMap<u32, Curve> = lines
            .map(|(id, points)| (id, line(points, length_ms)))
            .collect();
        let most = lines.values().map(|line| line.most).fold(0.0, f64::max);
        (!lines.is_empty()).then(|| Panel {
            name,
            top: top(most, *unit),
            unit: *unit,
            lines,
        })
    };
    quantities.iter().filter_map(panel).collect()
}

/// A line of at most [`POINTS`] points. If several coincide, the largest is kept, because readers
/// look for peaks.
fn line(mut points: Vec<(u64, f64)>, length_ms: u64) -> Curve {
    points.sort_by_key(|(time, _)| *time);
    let count = points.len().max(1) as f64;
    let mean = points.iter().map(|(_, value)| value).sum::<f64>() / count;
    let most = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let mut kept: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for (time, value) in points {
        let fraction = (time as f64 / length_ms.max(1) as f64).clamp(0.0, 1.0);
        let position = (fraction * (POINTS - 1) as f64).round() as usize;
        let point = kept.entry(position).or_insert((fraction, value));
        if value > point.1 {
            *point = (fraction, value);
        }
    }
    Curve {
        points: kept.into_values().collect(),
        mean,
        most,
    }
}

/// The top of a scale: 1, 2 or 5 times a power of ten, above the largest value.
fn top(most: f64, unit: Unit) -> f64 {
    if unit == Unit::Percent {
        return 100.0;
    }
    let steps = (-1..19).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    steps.into_iter().find(|step| *step >= most).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Usage;

    fn sample(host: u32, time_ms: u64, cpu_s: f64) -> Sample {
        Sample {
            host,
            time_ms,
            interval_ms: Some(5000),
            usage: Usage {
                cpu_s: Some(cpu_s),
                ..Usage::default()
            },
            ..Sample::default()
        }
    }

    #[test]
    fn quantities_without_a_sample_are_not_drawn() {
        let job = JobHistory {
            samples: vec![
                sample(0, 1000, 5.0),
                sample(1, 1000, 15.0),
                sample(0, 2000, 10.0),
            ],
            ..JobHistory::default()
        };
        let panels = of_hosts(&job, 0, 2000);
        let [panel] = &panels[..] else {
            panic!("{panels:?}")
        };
        assert_eq!((panel.name, panel.top), ("Processors in use", 5.0));
        assert_eq!(panel.lines[&0].points, [(0.5, 1.0), (1.0, 2.0)]);
        assert_eq!((panel.lines[&0].mean, panel.lines[&1].most), (1.5, 3.0));
        assert!(of_processes(&job, 0, 2000).is_empty());
    }

    #[test]
    fn peaks_are_kept() {
        let points = (0..10_000).map(|time| (time, if time == 77 { 9.0 } else { 1.0 }));
        let line = line(points.collect(), 10_000);
        assert!(line.points.len() <= POINTS);
        assert_eq!(
            line.points
                .iter()
                .filter(|(_, value)| *value == 9.0)
                .count(),
            1
        );
    }

    #[test]
    fn scales_are_round() {
        for (most, expected) in [(0.0, 0.1), (3.0, 5.0), (12.0, 20.0), (1e9, 1e9)] {
            assert_eq!(top(most, Unit::Number), expected);
            assert_eq!(top(most, Unit::Percent), 100.0);
        }
    }
}
