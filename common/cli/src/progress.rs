//! Progress on stderr: on a terminal a bar for each host and one for all, elsewhere a line every
//! few seconds; and a line when a host is finished.

use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use record::Host;
use record::term;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// With more bars, nothing else would fit on the screen.
const MOST_BARS: usize = 16;
/// Without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    Direct,
    Login,
    /// Another host passes it on.
    Chain,
}

pub struct ProgressDisplay {
    tool: &'static str,
    /// Where files are that need not be copied: `there` or `here`.
    here: &'static str,
    is_silent: bool,
    prints_lines: bool,
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
    /// In bytes.
    handed_on: u64,
    is_over: bool,
}

impl ProgressDisplay {
    /// `send` has hosts and sizes of what will be copied.
    pub fn new<'a>(
        tool: &'static str,
        here: &'static str,
        progress: ProgressWhen,
        hosts: impl Iterator<Item = &'a Host>,
        send: impl Iterator<Item = (u32, u64)>,
    ) -> ProgressDisplay {
        let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
        send.for_each(|(host, bytes)| *sizes.entry(host).or_default() += bytes);
        let shows_bars = progress == ProgressWhen::Always
            || (progress == ProgressWhen::Auto && std::io::stderr().is_terminal());
        let target = if shows_bars {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bars = MultiProgress::with_draw_target(target);
        let hosts = hosts.map(|host| {
            let size = sizes.get(&host.id).copied().unwrap_or(0);
            let mut bar = ProgressBar::hidden();
            if sizes.len() <= MOST_BARS && size > 0 {
                bar = bars.add(ProgressBar::new(size));
            }
            let bar = bar.with_style(style("")).with_prefix(host.location());
            (host.id, (bar, Mutex::default()))
        });
        let hosts = hosts.collect();
        let total = bars
            .add(ProgressBar::new(sizes.values().sum()))
            .with_style(style("  {eta} left"))
            .with_prefix("all");
        ProgressDisplay {
            tool,
            here,
            is_silent: progress == ProgressWhen::Never,
            prints_lines: !shows_bars && progress == ProgressWhen::Auto,
            bars,
            total,
            hosts,
            begun: Instant::now(),
            last_line: Mutex::new(Instant::now()),
        }
    }

    /// From now on.
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

    /// The number of hosts on each route, in words; empty until something is sent.
    fn routes(&self) -> String {
        let routes = self.hosts.values().filter_map(|(_, count)| {
            let count = count.lock();
            count.route.filter(|_| !count.is_over)
        });
        let mut numbers: BTreeMap<Route, usize> = BTreeMap::new();
        routes.for_each(|route| *numbers.entry(route).or_default() += 1);
        in_words(&numbers)
    }

    /// By another host.
    pub fn handed_on(&self, host: &Host, bytes: u64) {
        if let Some((_, count)) = self.hosts.get(&host.id) {
            count.lock().handed_on += bytes;
        }
    }

    /// Counts bytes that were sent to the host, or need not be.
    pub fn moved(&self, host: &Host, bytes: u64) {
        self.total.inc(bytes);
        if let Some((bar, _)) = self.hosts.get(&host.id) {
            bar.inc(bytes);
        }
        let mut last = self.last_line.lock();
        if self.prints_lines && last.elapsed() >= LINE_EVERY {
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

    /// A file is complete now, or was before.
    pub fn file(&self, host: &Host, bytes: u64, skipped: bool) {
        let Some((_, count)) = self.hosts.get(&host.id) else {
            return;
        };
        let mut count = count.lock();
        if skipped {
            count.skipped += 1;
        } else {
            count.files += 1;
            count.bytes += bytes;
        }
    }

    /// Finishes the host, with `trouble` if something failed there.
    pub fn host(&self, host: &Host, took: Duration, trouble: bool) {
        let Some((bar, count)) = self.hosts.get(&host.id) else {
            return;
        };
        bar.finish_and_clear();
        if self.is_silent {
            return;
        }
        let mut count = count.lock();
        count.is_over = true;
        let mut ending = String::new();
        if count.bytes > 1_000_000 && !took.is_zero() {
            ending = format!(", {}", term::rate(count.bytes, took));
            ending += match count.route {
                Some(Route::Chain) => ", through a chain",
                Some(Route::Direct) => ", directly",
                Some(Route::Login) | None => ", through its login",
            };
            if count.handed_on > 0 && count.route != Some(Route::Chain) {
                ending += &format!(" and {} through a chain", term::bytes(count.handed_on));
            }
        }
        let copied = match (count.files, trouble) {
            (0, true) => "nothing was copied".to_owned(),
            (files, _) => {
                let copied = format!("copied{ending}");
                summary((files, count.bytes), count.skipped, &copied, self.here)
            }
        };
        let trouble = if trouble && count.files > 0 {
            "; not all of it arrived"
        } else {
            ""
        };
        let (tool, location) = (self.tool, host.location());
        self.bars
            .suspend(|| record::tell!("{tool}: {location}: {copied}{trouble}"));
    }

    pub fn end(&self) {
        self.total.finish_and_clear();
    }
}

/// What is copied to or from a host, and how many files need not be, because they are `here`:
/// `2 files, 3.1 MB copied; 1 already there`.
pub fn summary((files, bytes): (u64, u64), skipped: u64, copied: &str, here: &str) -> String {
    let (count, size) = (term::count(files, "file"), term::bytes(bytes));
    match (files, skipped) {
        (0, 0) => "nothing to copy".to_owned(),
        (0, 1) => format!("nothing to copy: 1 file is {here} already"),
        (0, _) => format!("nothing to copy: {skipped} files are {here} already"),
        (_, 0) => format!("{count}, {size} {copied}"),
        _ => format!("{count}, {size} {copied}; {skipped} already {here}"),
    }
}

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
