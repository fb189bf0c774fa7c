//! Formats profiles for people: the lines at which processes of a kind spent their time, and how
//! much they differ.

use crate::groups::{self, ProcessKind};
use indexmap::IndexMap;
use record::profile::{self, LineCount};
use record::stacks;
use record::{Profile, term};
use std::time::Duration;

/// Longer lines would wrap on a terminal.
const COLUMNS: usize = 100;
/// Lines of a kind of processes, and of their other threads.
const MAIN_LINES: usize = 8;
const OTHER_LINES: usize = 3;
/// A smaller share is not shown.
const LEAST_SHARE: f64 = 0.01;

/// The threads of a name, `None` for main threads, of processes of a kind.
type ThreadsOfKind<'p> = (Option<&'p str>, ProcessKind);

/// A process, and its share of samples at a line.
struct Share<'p> {
    profile: &'p Profile,
    share: f64,
}

/// The length of the recording, the process for which the others wait if one stands out, and where
/// the time went.
pub fn text(profiles: &[Profile]) -> String {
    let read: Vec<&Profile> = profiles
        .iter()
        .filter(|profile| profile.samples > 0)
        .collect();
    let mut text = vec![head(&read)];
    if let Some(slow) = profile::slow(profiles) {
        let sentence = format!("{}.", slow.sentence(stacks::names));
        text.push(term::wrapped(&term::plain(&sentence), COLUMNS, "") + "\n");
    }
    let mut kinds: IndexMap<ThreadsOfKind<'_>, Vec<&Profile>> = IndexMap::new();
    for profile in &read {
        for thread in &profile.threads {
            let name = thread
                .name
                .as_deref()
                .filter(|name| *name != stacks::MAIN_THREAD);
            let of_kind = kinds
                .entry((name, groups::kind_of_profile(profile)))
                .or_default();
            of_kind.push(profile);
        }
    }
    kinds.sort_by_cached_key(|(name, kind), _| (name.is_some(), kind.order()));
    text.extend(
        kinds
            .iter()
            .filter_map(|(threads, profiles)| kind_text(*threads, profiles)),
    );
    text.join("\n")
}

fn head(read: &[&Profile]) -> String {
    let most =
        |value: fn(&Profile) -> u64| read.iter().map(|profile| value(profile)).max().unwrap_or(0);
    let missed: u64 = read.iter().map(|profile| u64::from(profile.missed)).sum();
    let samples = most(|profile| u64::from(profile.samples));
    let mut head = format!(
        "{} for {}, {} of each",
        term::count(read.len() as u64, "Python"),
        term::seconds(Duration::from_millis(most(|profile| profile.elapsed_ms))),
        term::count(samples, "sample"),
    );
    if missed > 0 {
        head += &format!("; {missed} missed in sum");
    }
    head + "\n"
}

/// All lines of main threads; of other threads, only lines at which they compute.
fn kind_text((name, kind): ThreadsOfKind<'_>, profiles: &[&Profile]) -> Option<String> {
    let mut lines: IndexMap<(String, Option<stacks::Wait>), (LineCount, Vec<Share<'_>>)> =
        IndexMap::new();
    for profile in profiles {
        let all = profile.lines_of(name.unwrap_or(stacks::MAIN_THREAD));
        for line in all {
            let samples = if name.is_some() {
                line.active
            } else {
                line.samples
            };
            let share = f64::from(samples) / f64::from(profile.samples);
            let key = (line.line.clone(), line.wait);
            let (_, shares) = lines.entry(key).or_insert_with(|| (line, Vec::new()));
            shares.push(Share { profile, share });
        }
    }
    let count = profiles.len();
    let mean =
        |shares: &[Share<'_>]| shares.iter().map(|share| share.share).sum::<f64>() / count as f64;
    lines.retain(|_, (_, shares)| mean(shares) >= LEAST_SHARE);
    if lines.is_empty() {
        return None;
    }
    lines.sort_by(|_, (_, a), _, (_, b)| mean(b).total_cmp(&mean(a)));
    let holders = profiles
        .iter()
        .map(|profile| (profile.host, profile.rank, profile.pid));
    let who = groups::who(kind, &holders.collect::<Vec<_>>());
    let (mut text, most) = match name {
        None => (format!("{who}:\n"), MAIN_LINES),
        Some(name) => (
            format!("thread {} of {who} computes:\n", term::plain(name)),
            OTHER_LINES,
        ),
    };
    for (line, shares) in lines.values().take(most) {
        let words = line.words();
        let row = format!(
            "  {:>4}  {}{words}",
            percent(mean(shares)),
            span(shares, count)
        );
        text += &(term::cut(&term::plain(&row), COLUMNS) + "\n");
    }
    if lines.len() > most {
        text += &format!("        and {} more lines\n", lines.len() - most);
    }
    Some(text)
}

/// The smallest and the largest share, and the rank of the largest, if processes differ.
fn span(shares: &[Share<'_>], count: usize) -> String {
    let Some(most) = shares.iter().max_by(|a, b| a.share.total_cmp(&b.share)) else {
        return String::new();
    };
    let least = if shares.len() == count {
        shares.iter().map(|share| share.share).fold(1.0, f64::min)
    } else {
        0.0
    };
    // smaller differences are chance, or do not matter
    if count == 1 || most.share - least < 0.1 {
        return String::new();
    }
    let rank = most
        .profile
        .rank
        .map_or(String::new(), |rank| format!(" of {rank}"));
    format!("({} to {}{rank})  ", percent(least), percent(most.share))
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}
