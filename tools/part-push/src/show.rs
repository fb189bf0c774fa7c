//! What people see on stderr: a bar a host and one for all on a terminal, a line now and then
//! elsewhere, a line a host at its end.

use crate::args::CompressWhen;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use record::Host;
use record::term;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// More bars than these leave no room for anything else.
const BARS: usize = 16;
/// Without a terminal, a line so often.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How far it is.
pub struct ProgressDisplay {
    silent: bool,
    lines: bool,
    bars: MultiProgress,
    total: ProgressBar,
    hosts: BTreeMap<u32, (ProgressBar, Mutex<Count>)>,
    begun: Instant,
    last_line: Mutex<Instant>,
}

#[derive(Default)]
struct Count {
    files: u64,
    bytes: u64,
    skipped: u64,
    /// Over what the content goes; `None` until something does.
    direct: Option<bool>,
}

impl ProgressDisplay {
    /// For these hosts, and what is to be sent: host and bytes.
    pub fn new<'a>(
        progress: CompressWhen,
        hosts: impl Iterator<Item = &'a Host>,
        send: impl Iterator<Item = (u32, u64)>,
    ) -> ProgressDisplay {
        let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
        send.for_each(|(host, bytes)| *sizes.entry(host).or_default() += bytes);
        let terminal = progress == CompressWhen::Always
            || (progress == CompressWhen::Auto && std::io::stderr().is_terminal());
        let target = if terminal {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bars = MultiProgress::with_draw_target(target);
        let few = sizes.len() <= BARS;
        let bar = |host: &Host| {
            let size = sizes.get(&host.id).copied().unwrap_or(0);
            let bar = if few && size > 0 {
                bars.add(ProgressBar::new(size))
            } else {
                ProgressBar::hidden()
            };
            (
                host.id,
                (
                    bar.with_style(style("")).with_prefix(host.place()),
                    Mutex::default(),
                ),
            )
        };
        let hosts = hosts.map(bar).collect();
        let total = bars
            .add(ProgressBar::new(sizes.values().sum()))
            .with_style(style("  {eta} left"))
            .with_prefix("all");
        let lines = !terminal && progress == CompressWhen::Auto;
        ProgressDisplay {
            silent: progress == CompressWhen::Never,
            lines,
            bars,
            total,
            hosts,
            begun: Instant::now(),
            last_line: Mutex::new(Instant::now()),
        }
    }

    /// Content goes to a host over a direct connection from here on, or over its login.
    pub fn wire(&self, host: &Host, direct: bool) {
        if let Some((bar, count)) = self.hosts.get(&host.id) {
            lock(count).direct = Some(direct);
            let behind = if direct { " direct" } else { "" };
            bar.set_prefix(format!("{}{behind}", host.place()));
        }
    }

    /// Over what content goes, of all hosts that it goes to.
    fn wires(&self) -> String {
        let wires = self
            .hosts
            .values()
            .filter_map(|(_, count)| lock(count).direct);
        let (direct, by_login): (Vec<bool>, Vec<bool>) = wires.partition(|direct| *direct);
        match (direct.len(), by_login.len()) {
            (_, 0) => "directly".to_owned(),
            (0, _) => "through logins".to_owned(),
            (direct, by_login) => format!("{direct} directly and {by_login} through logins"),
        }
    }

    /// So many bytes more went to a host, or need not go.
    pub fn moved(&self, host: &Host, bytes: u64) {
        self.total.inc(bytes);
        if let Some((bar, _)) = self.hosts.get(&host.id) {
            bar.inc(bytes);
        }
        let mut last = lock(&self.last_line);
        if self.lines && last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            let (done, all) = (self.total.position(), self.total.length().unwrap_or(0));
            let took = self.begun.elapsed();
            let left = took.mul_f64(all.saturating_sub(done) as f64 / done.max(1) as f64);
            let (rate, left) = (term::rate(done, took), term::seconds(left));
            eprintln!(
                "part-push: {} of {}, {}, {rate}, {left} left",
                term::bytes(done),
                term::bytes(all),
                self.wires()
            );
        }
    }

    /// A file is there, or was there already.
    pub fn file(&self, host: &Host, bytes: u64, skipped: bool) {
        let Some((_, count)) = self.hosts.get(&host.id) else {
            return;
        };
        let mut count = lock(count);
        match skipped {
            true => count.skipped += 1,
            false => {
                count.files += 1;
                count.bytes += bytes;
            }
        }
    }

    /// A host is done.
    pub fn host(&self, host: &Host, took: Duration, trouble: bool) {
        let Some((bar, count)) = self.hosts.get(&host.id) else {
            return;
        };
        bar.finish_and_clear();
        if self.silent {
            return;
        }
        let Count {
            files,
            bytes,
            skipped,
            direct,
        } = *lock(count);
        let way = match direct {
            Some(true) => ", directly",
            _ => ", through its login",
        };
        let rate = match bytes > 1_000_000 && !took.is_zero() {
            true => format!(", {}{way}", term::rate(bytes, took)),
            false => String::new(),
        };
        let trouble = if trouble {
            "; not all of it arrived"
        } else {
            ""
        };
        let (place, files, bytes) = (host.place(), term::count(files, "file"), term::bytes(bytes));
        self.bars.suspend(|| {
            eprintln!(
                "part-push: {place}: {files}, {bytes}; {skipped} there already{rate}{trouble}"
            );
        });
    }

    /// All is done.
    pub fn end(&self) {
        self.total.finish_and_clear();
    }
}

fn style(behind: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(&format!(
        "{{prefix:>24}} {{bar:20}} {{bytes:>10}} of {{total_bytes:10}} {{bytes_per_sec}}{behind}"
    ));
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
