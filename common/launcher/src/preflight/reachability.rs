//! Decides which hosts connect to which, and finds the hosts that explain the failures.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Up to this many hosts, each connects to all others: 32 x 31 x 2 connections take milliseconds.
const ALL_PAIRS: usize = 32;

/// The hosts to which host `index` of `count` connects. If there are many, these are the first one
/// and those at a distance of 1, 2, 4, 8 … That is enough: a firewall blocks a whole host or rack,
/// and as many hosts connect to a host as it connects to.
pub fn peers(count: usize, index: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |peer| {
        let steps = (peer + count - index) % count;
        *peer != index && (count <= ALL_PAIRS || steps.is_power_of_two() || *peer == 0)
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachablePair {
    /// The host that tried to connect or to send.
    pub from: usize,
    /// The host that it tried to reach.
    pub to: usize,
    pub port: u16,
    pub failure: PairFailure,
}

/// What failed, with the operating system's error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PairFailure {
    /// The connection to a server's port.
    Port(String),
    /// The connection to a port that clients listen on.
    EphemeralPort(String),
    /// Large packets, while small ones arrive.
    LargePackets,
}

pub struct BlockedHost {
    pub index: usize,
    /// Whether others cannot reach it; otherwise it cannot reach them.
    pub inward: bool,
    /// The pairs that it explains, all with the same failure.
    pub pairs: Vec<UnreachablePair>,
}

/// A small set of blocked hosts that explains all failures: repeatedly takes the host with the most
/// unexplained failures.
pub fn blocked_hosts(mut pairs: Vec<UnreachablePair>) -> Vec<BlockedHost> {
    let mut blocked_hosts = Vec::new();
    let key = |pair: &UnreachablePair, inward: bool| {
        let index = if inward { pair.to } else { pair.from };
        (index, inward, pair.failure.clone())
    };
    loop {
        let mut counts = BTreeMap::new();
        for pair in &pairs {
            for inward in [false, true] {
                *counts.entry(key(pair, inward)).or_insert(0) += 1;
            }
        }
        // among equals the first host, and preferably one that is not reached or cannot send
        let rank = |((index, inward, failure), count): &((usize, bool, PairFailure), usize)| {
            let is_preferred = *inward != (*failure == PairFailure::LargePackets);
            (*count, is_preferred, Reverse(*index))
        };
        let Some((most, _)) = counts.into_iter().rev().max_by_key(rank) else {
            return blocked_hosts;
        };
        let explained = pairs.extract_if(.., |pair| key(pair, most.1) == most);
        blocked_hosts.push(BlockedHost {
            index: most.0,
            inward: most.1,
            pairs: explained.collect(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_tried() {
        assert_eq!(peers(4, 1).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(peers(1, 0).count(), 0);
        assert_eq!(
            peers(100, 98).collect::<Vec<_>>(),
            [0, 2, 6, 14, 30, 62, 99]
        );
        for count in [2, 33, 257] {
            let mut tried = vec![0; count];
            (0..count)
                .for_each(|host_index| peers(count, host_index).for_each(|peer| tried[peer] += 1));
            assert!(
                tried.iter().all(|tries| *tries > 0 && *tries < count),
                "{count}: {tried:?}"
            );
        }
    }

    #[test]
    fn few_walls_explain_all() {
        let pair = |from, to, ephemeral| UnreachablePair {
            from,
            to,
            port: 30050,
            failure: if ephemeral {
                PairFailure::EphemeralPort("timed out".into())
            } else {
                PairFailure::Port("timed out".into())
            },
        };
        let shown = |pairs: Vec<UnreachablePair>| -> Vec<(usize, bool, Vec<usize>, bool)> {
            blocked_hosts(pairs)
                .into_iter()
                .map(|blocked| {
                    let other =
                        |pair: &UnreachablePair| if blocked.inward { pair.from } else { pair.to };
                    let others = blocked.pairs.iter().map(other).collect();
                    let failure = &blocked.pairs[0].failure;
                    let ephemeral = matches!(failure, PairFailure::EphemeralPort(_));
                    (blocked.index, blocked.inward, others, ephemeral)
                })
                .collect()
        };
        // the ephemeral ports of host 2 are closed
        let closed = vec![pair(0, 2, true), pair(1, 2, true), pair(3, 2, true)];
        assert_eq!(shown(closed), [(2, true, vec![0, 1, 3], true)]);
        // host 1 reaches no other host
        let locked = vec![
            pair(1, 0, false),
            pair(1, 2, false),
            pair(1, 0, true),
            pair(1, 2, true),
        ];
        assert_eq!(
            shown(locked),
            [(1, false, vec![0, 2], false), (1, false, vec![0, 2], true)]
        );
        // two hosts that do not reach each other
        assert_eq!(
            shown(vec![pair(0, 1, false), pair(1, 0, false)]),
            [(0, true, vec![1], false), (1, true, vec![0], false)]
        );
        assert_eq!(shown(Vec::new()), []);
        // large packets: a single pair is reported for its sender, several for the host that they
        // share
        let lost = |from, to| UnreachablePair {
            failure: PairFailure::LargePackets,
            ..pair(from, to, false)
        };
        assert_eq!(shown(vec![lost(1, 2)]), [(1, false, vec![2], false)]);
        assert_eq!(
            shown(vec![lost(0, 2), lost(1, 2)]),
            [(2, true, vec![0, 1], false)]
        );
    }
}
