//! Decides which host tries to reach which, and finds the hosts that explain the failures.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Up to this many hosts, each tries to reach all others: 32 x 31 x 2 connections take
/// milliseconds.
const ALL_PAIRS: usize = 32;

/// The hosts that host `index` of `count` tries to reach. If there are many, those 1, 2, 4, 8 …
/// places on, and the first. A firewall concerns a host or a rack, and each host is tried from as
/// many places as it tries.
pub fn peers(count: usize, index: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |peer| {
        let steps = (peer + count - index) % count;
        *peer != index && (count <= ALL_PAIRS || steps.is_power_of_two() || *peer == 0)
    })
}

/// One host that does not reach another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachablePair {
    /// The position of the host that tried to connect, or that sent.
    pub from: usize,
    /// The position of the host that it tried to reach.
    pub to: usize,
    /// The port to which it tried to connect.
    pub port: u16,
    /// What failed.
    pub failure: PairFailure,
}

/// What failed between two hosts; an error is in the words of the operating system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PairFailure {
    /// The connection to a server's port.
    Port(String),
    /// The connection to a port that clients listen on.
    EphemeralPort(String),
    /// Large packets: small ones arrive.
    LargePackets,
}

/// A host that others cannot reach or that cannot reach others.
pub struct BlockedHost {
    /// The position of the host.
    pub index: usize,
    /// Whether others do not reach it; otherwise it does not reach them.
    pub inward: bool,
    /// What could not be reached because of it, with the same failure.
    pub pairs: Vec<UnreachablePair>,
}

/// The smallest set of blocked hosts that explains all failures, by taking the host with the most
/// remaining failures again and again.
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
        // of equals the first host, and preferably one that is not reached, or that cannot send
        let rank = |((index, inward, failure), count): &((usize, bool, PairFailure), usize)| {
            let is_preferred = *inward != (*failure == PairFailure::LargePackets);
            (*count, is_preferred, Reverse(*index))
        };
        let Some((most, _)) = counts.into_iter().rev().max_by_key(rank) else {
            return blocked_hosts;
        };
        let own = pairs.extract_if(.., |pair| key(pair, most.1) == most);
        blocked_hosts.push(BlockedHost {
            index: most.0,
            inward: most.1,
            pairs: own.collect(),
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
            failure: match ephemeral {
                true => PairFailure::EphemeralPort("timed out".into()),
                false => PairFailure::Port("timed out".into()),
            },
        };
        let shown = |pairs: Vec<UnreachablePair>| -> Vec<(usize, bool, Vec<usize>, bool)> {
            blocked_hosts(pairs)
                .into_iter()
                .map(|blocked| {
                    let other = |pair: &UnreachablePair| match blocked.inward {
                        true => pair.from,
                        false => pair.to,
                    };
                    let others = blocked.pairs.iter().map(other).collect();
                    let failure = &blocked.pairs[0].failure;
                    let ephemeral = matches!(failure, PairFailure::EphemeralPort(_));
                    (blocked.index, blocked.inward, others, ephemeral)
                })
                .collect()
        };
        // host 2 lets nobody in to its ephemeral ports
        let closed = vec![pair(0, 2, true), pair(1, 2, true), pair(3, 2, true)];
        assert_eq!(shown(closed), [(2, true, vec![0, 1, 3], true)]);
        // host 1 gets nowhere
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
        // neither of two reaches the other
        assert_eq!(
            shown(vec![pair(0, 1, false), pair(1, 0, false)]),
            [(0, true, vec![1], false), (1, true, vec![0], false)]
        );
        assert_eq!(shown(Vec::new()), []);
        // large packets: one pair is worded from the side that sends, several by the host they
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
