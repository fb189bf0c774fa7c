//! Plans which host sends to which, and finds slow hosts and links.

use record::error::Fault;
use record::term;
use record::{Host, Link};
use std::collections::BTreeMap;

/// A rate below this part of the median is slow: network interfaces and switches differ by factors
/// of ten, noise by less than two.
const SLOW: f64 = 0.5;
/// Further links tell nothing new.
const MOST_LINKS: usize = 20;

/// The distance between sender and receiver in each round. Over all rounds each host exchanges data
/// with each other one.
pub fn distances(hosts: usize, limit: Option<u32>) -> std::ops::RangeInclusive<usize> {
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    1..=(hosts / 2).min(limit)
}

/// The rate in bytes a second; `None` if the time is too short to divide by.
pub fn rate(bytes: u64, time_us: u64) -> Option<u64> {
    (u128::from(bytes) * 1_000_000)
        .checked_div(time_us.into())
        .and_then(|rate| u64::try_from(rate).ok())
}

/// The median; of two values in the middle, the lower.
pub fn median(values: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.into_iter().collect();
    values.sort_unstable();
    let middle = values.len().checked_sub(1)? / 2;
    values.get(middle).copied()
}

/// The rates of each host: those at which it sent and those at which it received.
pub fn by_host(links: &[Link]) -> BTreeMap<u32, [Vec<u64>; 2]> {
    let mut hosts: BTreeMap<u32, [Vec<u64>; 2]> = BTreeMap::new();
    for link in links {
        if let Some(rate) = link.rate_bytes_per_s {
            hosts.entry(link.from).or_default()[0].push(rate);
            hosts.entry(link.to).or_default()[1].push(rate);
        }
    }
    hosts
}

/// Warnings about rates below half of the median: hosts in one direction, and links between hosts
/// that are not slow themselves.
pub fn slow(hosts: &[Host], links: &[Link]) -> Vec<Fault> {
    let Some(usual) = median(links.iter().filter_map(|link| link.rate_bytes_per_s)) else {
        return Vec::new();
    };
    let is_slow = |rate: u64| (rate as f64) < usual as f64 * SLOW;
    let location = |id: u32| record::location_of(hosts, id);
    let compared = |rate: u64| {
        format!(
            "{}/s, where the median is {}/s",
            term::bytes(rate),
            term::bytes(usual)
        )
    };
    let mut faults = Vec::new();
    let mut slow_ends = [Vec::new(), Vec::new()];
    for (id, rates) in by_host(links) {
        for (end, word) in ["sends", "receives"].into_iter().enumerate() {
            let Some(rate) = median(rates[end].iter().copied()).filter(|rate| is_slow(*rate))
            else {
                continue;
            };
            slow_ends[end].push(id);
            let problem = format!("it {word} {}", compared(rate));
            faults.push(
                Fault::data(format!("warning: {}", location(id)), problem)
                    .fix("look at its interface and cable (ethtool), or take another host"),
            );
        }
    }
    let single = links.iter().filter_map(|link| {
        let rate = link.rate_bytes_per_s.filter(|rate| is_slow(*rate))?;
        let explained = slow_ends[0].contains(&link.from) || slow_ends[1].contains(&link.to);
        (!explained).then(|| {
            let location = format!("warning: {} to {}", location(link.from), location(link.to));
            Fault::data(location, compared(rate)).fix("look at the switches between them")
        })
    });
    faults.extend(single.take(MOST_LINKS));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_host_meets_each_other_in_half_as_many_rounds() {
        for hosts in 0..12 {
            let mut met = BTreeSet::new();
            for distance in distances(hosts, None) {
                for from in 0..hosts {
                    let to = (from + distance) % hosts;
                    assert_ne!(from, to);
                    met.insert((from.min(to), from.max(to)));
                }
            }
            assert_eq!(met.len(), hosts * hosts.saturating_sub(1) / 2, "{hosts}");
        }
        assert_eq!(distances(10, Some(2)), 1..=2);
        assert_eq!(distances(10, Some(9)), 1..=5);
    }

    #[test]
    fn rates_and_medians() {
        assert_eq!(rate(500, 250_000), Some(2_000));
        assert_eq!(rate(500, 0), None);
        assert_eq!(rate(u64::MAX, 1), None);
        assert_eq!(median([]), None);
        assert_eq!(median([3, 1, 2]), Some(2));
        assert_eq!(median([4, 1, 2, 3]), Some(2));
    }

    fn links(rates: &[(u32, u32, u64)]) -> Vec<Link> {
        let link = |(from, to, rate): &(u32, u32, u64)| Link {
            from: *from,
            to: *to,
            ok: true,
            rate_bytes_per_s: Some(*rate),
            ..Link::default()
        };
        rates.iter().map(link).collect()
    }

    #[test]
    fn slow_hosts_are_named_and_links_that_no_host_explains() {
        let hosts: Vec<Host> = (0..4)
            .map(|id| Host {
                id,
                ..Host::default()
            })
            .collect();
        let all = |slow: &[(u32, u32)]| -> Vec<Link> {
            let pairs = (0..4).flat_map(|from| (0..4).map(move |to| (from, to)));
            let rates: Vec<(u32, u32, u64)> = pairs
                .filter(|(from, to)| from != to)
                .map(|(from, to)| (from, to, if slow.contains(&(from, to)) { 10 } else { 100 }))
                .collect();
            links(&rates)
        };
        let table: [(&[(u32, u32)], &[&str]); 4] = [
            (&[], &[]),
            (
                &[(0, 2)],
                &["warning: host 0 (0.0.0.0) to host 2 (0.0.0.0): 10 B/s, where the median is"],
            ),
            (
                &[(1, 0), (1, 2), (1, 3)],
                &["warning: host 1 (0.0.0.0): it sends 10 B/s, where the median is 100 B/s"],
            ),
            (
                &[(0, 1), (2, 1), (3, 1)],
                &["warning: host 1 (0.0.0.0): it receives 10 B/s"],
            ),
        ];
        for (slowly, wanted) in table {
            let reported: Vec<String> = slow(&hosts, &all(slowly))
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(reported.len(), wanted.len(), "{reported:?}");
            for (reported, wanted) in reported.iter().zip(wanted) {
                assert!(reported.starts_with(wanted), "{reported}");
            }
        }
        assert!(slow(&hosts, &[]).is_empty());
    }
}
