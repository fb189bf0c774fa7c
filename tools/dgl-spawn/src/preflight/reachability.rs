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

/// A connection that could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachablePair {
    /// The position of the host that tried to connect.
    pub from: usize,
    /// The position of the host that it tried to reach.
    pub to: usize,
    /// The port to which it tried to connect.
    pub port: u16,
    /// Whether the port is one of those that clients listen on, not a server's.
    pub ephemeral: bool,
    /// The error, in the words of the operating system.
    pub why: String,
}

/// A host that others cannot reach or that cannot reach others.
pub struct BlockedHost {
    /// The position of the host.
    pub index: usize,
    /// Whether others do not reach it; otherwise it does not reach them.
    pub inward: bool,
    /// What could not be reached because of it: the same kind of port, with the same error.
    pub pairs: Vec<UnreachablePair>,
}

/// The smallest set of blocked hosts that explains all failures, by taking the host with the most
/// remaining failures again and again.
pub fn blocked_hosts(mut pairs: Vec<UnreachablePair>) -> Vec<BlockedHost> {
    let mut blocked_hosts = Vec::new();
    let key = |pair: &UnreachablePair, inward: bool| {
        let index = if inward { pair.to } else { pair.from };
        (index, inward, pair.ephemeral, pair.why.clone())
    };
    loop {
        let mut counts = BTreeMap::new();
        for pair in &pairs {
            for inward in [false, true] {
                *counts.entry(key(pair, inward)).or_insert(0) += 1;
            }
        }
        // of equals the first host, and preferably one that is not reached
        let rank = |((index, inward, ..), count): &((usize, bool, bool, String), usize)| {
            (*count, *inward, Reverse(*index))
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
            (0..count).for_each(|at| peers(count, at).for_each(|peer| tried[peer] += 1));
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
            ephemeral,
            why: "timed out".into(),
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
                    let ephemeral = blocked.pairs[0].ephemeral;
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
    }
}
