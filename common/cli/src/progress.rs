//! Progress on stderr: on a terminal a bar for each host and one for all; elsewhere a line every
//! few seconds. A line for each host at its end.

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use record::Host;
use record::term;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// With more bars than this, nothing else would fit on the screen.
const BARS: usize = 16;
/// Without a terminal, a line is printed at this interval.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// When progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressWhen {
    /// Bars on a terminal; elsewhere a line from time to time, and one for each host that is
    /// finished.
    Auto,
    /// Bars.
    Always,
    /// Nothing.
    Never,
}

/// The route of content to or from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// A direct connection, beside the login.
    Direct,
    /// The login.
    Login,
    /// Another host passes it on.
    Chain,
}

/// Shows the progress of a copy.
pub struct ProgressDisplay {
    tool: &'static str,
    /// The word for existing files that need not be copied, in messages: `there` or `here`.
    here: &'static str,
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
    /// The route of the content; `None` until something is sent.
    route: Option<Route>,
    /// How many bytes other hosts passed on.
    handed_on: u64,
    over: bool,
}

impl ProgressDisplay {
    /// Creates the display for these hosts and for deliveries of host and bytes.
    pub fn new<'a>(
        (tool, here): (&'static str, &'static str),
        progress: ProgressWhen,
        hosts: impl Iterator<Item = &'a Host>,
        send: impl Iterator<Item = (u32, u64)>,
    ) -> ProgressDisplay {
        let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
        send.for_each(|(host, bytes)| *sizes.entry(host).or_default() += bytes);
        let terminal = progress == ProgressWhen::Always
            || (progress == ProgressWhen::Auto && std::io::stderr().is_terminal());
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
                    bar.with_style(style("")).with_prefix(host.location()),
                    Mutex::default(),
                ),
            )
        };
        let hosts = hosts.map(bar).collect();
        let total = bars
            .add(ProgressBar::new(sizes.values().sum()))
            .with_style(style("  {eta} left"))
            .with_prefix("all");
        let lines = !terminal && progress == ProgressWhen::Auto;
        ProgressDisplay {
            tool,
            here,
            silent: progress == ProgressWhen::Never,
            lines,
            bars,
            total,
            hosts,
            begun: Instant::now(),
            last_line: Mutex::new(Instant::now()),
        }
    }

    /// From now on, content of this host uses this route.
    pub fn route(&self, host: &Host, route: Route) {
        if let Some((bar, count)) = self.hosts.get(&host.id) {
            count.lock().route = Some(route);
            let behind = match route {
                Route::Direct => " direct",
                Route::Login => "",
                Route::Chain => " chain",
            };
            bar.set_prefix(format!("{}{behind}", host.location()));
        }
    }

    /// How many hosts use each route, in words; empty until something is sent.
    fn routes(&self) -> String {
        let routes = self.hosts.values().filter_map(|(_, count)| {
            let count = count.lock();
            count.route.filter(|_| !count.over)
        });
        let mut numbers: BTreeMap<Route, usize> = BTreeMap::new();
        routes.for_each(|route| *numbers.entry(route).or_default() += 1);
        in_words(&numbers)
    }

    /// Another host has passed on this many bytes to the host.
    pub fn handed_on(&self, host: &Host, bytes: u64) {
        if let Some((_, count)) = self.hosts.get(&host.id) {
            count.lock().handed_on += bytes;
        }
    }

    /// This many more bytes were sent to the host, or need not be.
    pub fn moved(&self, host: &Host, bytes: u64) {
        self.total.inc(bytes);
        if let Some((bar, _)) = self.hosts.get(&host.id) {
            bar.inc(bytes);
        }
        let mut last = self.last_line.lock();
        if self.lines && last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            let (done, all) = (self.total.position(), self.total.length().unwrap_or(0));
            let took = self.begun.elapsed();
            let left = took.mul_f64(all.saturating_sub(done) as f64 / done.max(1) as f64);
            let (rate, left) = (term::rate(done, took), term::seconds(left));
            record::tell!(
                "{}: {} of {}, {}, {rate}, {left} left",
                self.tool,
                term::bytes(done),
                term::bytes(all),
                self.routes()
            );
        }
    }

    /// A file is complete, or was complete before.
    pub fn file(&self, host: &Host, bytes: u64, skipped: bool) {
        let Some((_, count)) = self.hosts.get(&host.id) else {
            return;
        };
        let mut count = count.lock();
        match skipped {
            true => count.skipped += 1,
            false => {
                count.files += 1;
                count.bytes += bytes;
            }
        }
    }

    /// A host is finished. `trouble` says whether something failed there.
    pub fn host(&self, host: &Host, took: Duration, trouble: bool) {
        let Some((bar, count)) = self.hosts.get(&host.id) else {
            return;
        };
        bar.finish_and_clear();
        if self.silent {
            return;
        }
        count.lock().over = true;
        let Count {
            files,
            bytes,
            skipped,
            route,
            handed_on,
            ..
        } = *count.lock();
        let route = match (route, handed_on) {
            (Some(Route::Chain), _) => ", through a chain".to_owned(),
            (Some(Route::Direct), 0) => ", directly".to_owned(),
            (_, 0) => ", through its login".to_owned(),
            (Some(Route::Direct), most) => {
                format!(", directly and {} through a chain", term::bytes(most))
            }
            (_, most) => format!(
                ", through its login and {} through a chain",
                term::bytes(most)
            ),
        };
        let rate = match bytes > 1_000_000 && !took.is_zero() {
            true => format!(", {}{route}", term::rate(bytes, took)),
            false => String::new(),
        };
        let trouble = if trouble {
            "; not all of it arrived"
        } else {
            ""
        };
        let (location, files, bytes) = (
            host.location(),
            term::count(files, "file"),
            term::bytes(bytes),
        );
        self.bars.suspend(|| {
            record::tell!(
                "{}: {location}: {files}, {bytes}; {skipped} {} already{rate}{trouble}",
                self.tool,
                self.here
            );
        });
    }

    /// All hosts are finished.
    pub fn end(&self) {
        self.total.finish_and_clear();
    }
}

/// The routes and their numbers of hosts, in words.
fn in_words(numbers: &BTreeMap<Route, usize>) -> String {
    let label = |route: &Route| match route {
        Route::Direct => "directly",
        Route::Login => "through logins",
        Route::Chain => "through a chain",
    };
    if let Some((route, _)) = numbers.first_key_value().filter(|_| numbers.len() == 1) {
        return label(route).to_owned();
    }
    let counts: Vec<String> = numbers
        .iter()
        .map(|(route, hosts)| format!("{hosts} {}", label(route)))
        .collect();
    match counts.split_last() {
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "directly".to_owned(),
    }
}

fn style(behind: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(&format!(
        "{{prefix:>24}} {{bar:20}} {{bytes:>10}} of {{total_bytes:10}} {{bytes_per_sec}}{behind}"
    ));
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_in_words() {
        let table: [(&[(Route, usize)], &str); 5] = [
            (&[], "directly"),
            (&[(Route::Direct, 3)], "directly"),
            (&[(Route::Chain, 1)], "through a chain"),
            (
                &[(Route::Direct, 3), (Route::Login, 1)],
                "3 directly and 1 through logins",
            ),
            (
                &[(Route::Direct, 1), (Route::Login, 2), (Route::Chain, 7)],
                "1 directly, 2 through logins and 7 through a chain",
            ),
        ];
        for (routes, expected) in table {
            assert_eq!(in_words(&routes.iter().copied().collect()), expected);
        }
    }
}
