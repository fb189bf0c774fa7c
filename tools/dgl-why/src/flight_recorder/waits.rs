//! Which operations wait for which ranks, from the dumps of all ranks of a program.

use super::dump::{Dump, Operation, State};
use std::collections::{BTreeMap, BTreeSet};

/// The dumps of a program, by rank.
pub type Dumps = BTreeMap<u32, Dump>;
/// The dumps of the programs of a job, by what their files are named before the rank.
pub type Programs = BTreeMap<String, Dumps>;

/// An operation that has not ended, and its ranks.
#[derive(Debug, PartialEq)]
pub struct Wait<'a> {
    /// The operation as the first of the waiting ranks began it.
    pub operation: &'a Operation,
    /// How many ranks the group has, if a dump tells.
    pub size: Option<usize>,
    /// Those that came and have not ended it, with what they began.
    pub waiting: BTreeMap<u32, &'a Operation>,
    /// Those that did not come.
    pub absent: BTreeSet<u32>,
    /// Those that have no dump.
    pub missing: BTreeSet<u32>,
    /// Those that have overwritten what they did in the group.
    pub unknown: BTreeSet<u32>,
    /// If the ranks came with operations that do not fit together: each of these with its ranks.
    pub different: Vec<(&'a Operation, BTreeSet<u32>)>,
}

impl Wait<'_> {
    /// The ranks that are not there.
    pub fn culprits(&self) -> Vec<u32> {
        self.absent.union(&self.missing).copied().collect()
    }

    /// Whether it is known that all ranks came.
    pub fn is_all_there(&self) -> bool {
        self.size.is_some() && self.culprits().is_empty() && self.unknown.is_empty()
    }
}

/// What ranks wait for: first the causes, then what only waits for ranks that wait themselves.
pub fn find(dumps: &Dumps) -> (Vec<Wait<'_>>, Vec<Wait<'_>>) {
    let groups = groups(dumps);
    let waits = groups.iter().filter_map(|group| group.wait(dumps));
    let waits: Vec<Wait> = waits.chain(pairs(dumps)).collect();
    let waiting: BTreeSet<u32> = waits
        .iter()
        .flat_map(|wait| wait.waiting.keys().copied())
        .collect();
    // where none is to blame, all ranks came and the operation itself is stuck, or ranks wait for
    // each other in a circle
    let class = |wait: &Wait| {
        let waits_itself = wait.absent.is_subset(&waiting);
        match wait.different.is_empty() && wait.missing.is_empty() && waits_itself {
            false => 0,
            true if wait.is_all_there() => 1,
            true => 2,
        }
    };
    let first = waits.iter().map(class).min();
    let (mut causes, mut others): (Vec<_>, Vec<_>) = waits
        .into_iter()
        .partition(|wait| Some(class(wait)) == first);
    causes.sort_by_key(|wait| (wait.different.is_empty(), wait.absent.is_empty()));
    // of many groups that wait for the same ranks one is enough
    let mut named: Vec<Vec<u32>> = Vec::new();
    others.extend(causes.extract_if(.., |wait| {
        let culprits = wait.culprits();
        let is_new = culprits.is_empty() || !named.contains(&culprits);
        named.push(culprits);
        !is_new
    }));
    (causes, others)
}

/// The collective operations of a group.
struct Group<'a> {
    ranks: Option<&'a Vec<u32>>,
    /// For each rank the latest entry of each operation: operations that torch does together have
    /// one number, and only the last entry tells when they have completed.
    operations: BTreeMap<u32, BTreeMap<u64, &'a Operation>>,
}

fn groups(dumps: &Dumps) -> Vec<Group<'_>> {
    // groups of different ranks may have one name
    let mut groups = BTreeMap::new();
    for (rank, dump) in dumps {
        for one in dump.operations.iter().filter(|one| !one.is_p2p) {
            let ranks = dump.ranks(one);
            let group = groups.entry((&one.group, ranks)).or_insert_with(|| Group {
                ranks,
                operations: BTreeMap::new(),
            });
            let of_rank = group.operations.entry(*rank).or_insert_with(BTreeMap::new);
            of_rank.insert(one.sequence, one);
        }
    }
    groups.into_values().collect()
}

impl<'a> Group<'a> {
    /// What its ranks wait for, if they do.
    fn wait(&self, dumps: &Dumps) -> Option<Wait<'a>> {
        let of = |rank: &u32| self.operations.get(rank);
        let last = |rank: &u32| of(rank)?.keys().next_back().copied();
        let members: BTreeSet<u32> = match self.ranks {
            Some(ranks) => ranks.iter().copied().collect(),
            None => self.operations.keys().copied().collect(),
        };
        let is_unknown =
            |rank: &u32| of(rank).is_none() && dumps.get(rank).is_some_and(|one| one.has_forgotten);
        let unknown: BTreeSet<u32> = members.iter().copied().filter(is_unknown).collect();
        let is_here = |rank: &&u32| dumps.contains_key(rank) && !unknown.contains(rank);
        let here: BTreeSet<u32> = members.iter().filter(is_here).copied().collect();

        // operations of a group complete in their order
        let through = |rank: &u32| {
            let mut all = of(rank).into_iter().flatten().rev();
            let completed = all.find(|(_, one)| one.state == State::Completed);
            completed.map_or(0, |(sequence, _)| *sequence)
        };
        let common = here.iter().map(|rank| last(rank).unwrap_or(0)).min()?;
        let first = |state: State, least: u64| {
            let of_rank = |rank: &u32| {
                let from = least.max(through(rank)) + 1;
                let mut open = of(rank)?.range(from..);
                open.find(|(_, one)| one.state == state)
                    .map(|(sequence, _)| *sequence)
            };
            here.iter().filter_map(of_rank).min()
        };
        // one that ended has completed, unless a rank did not come to it
        let pending = first(State::Pending, 0).map(|sequence| (sequence, State::Pending));
        let (sequence, state) =
            pending.or_else(|| Some((first(State::Ended, common)?, State::Ended)))?;
        let waiting = |rank: &u32| {
            let one = of(rank)?.get(&sequence).filter(|one| one.state == state)?;
            Some((*rank, *one))
        };
        let waiting: BTreeMap<u32, &Operation> = here.iter().filter_map(waiting).collect();
        let is_absent = |rank: &&u32| last(rank).unwrap_or(0) < sequence;
        Some(Wait {
            operation: waiting.values().next()?,
            size: self.ranks.map(Vec::len),
            absent: here.iter().filter(is_absent).copied().collect(),
            missing: members
                .iter()
                .copied()
                .filter(|rank| !dumps.contains_key(rank))
                .collect(),
            different: self.different(sequence),
            waiting,
            unknown,
        })
    }

    /// The operations of the first number with which ranks came with different ones, up to one that
    /// has not ended. Tensors count only there: some operations complete with different ones.
    fn different(&self, stuck: u64) -> Vec<(&'a Operation, BTreeSet<u32>)> {
        let numbers: BTreeSet<u64> = self
            .operations
            .values()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect();
        let kinds = |sequence: u64| {
            let mut kinds = BTreeMap::new();
            for (rank, operations) in &self.operations {
                let Some(one) = operations.get(&sequence).copied() else {
                    continue;
                };
                let tensors = if sequence == stuck { one.common() } else { "" };
                let kind = kinds
                    .entry((&one.name, tensors))
                    .or_insert((one, BTreeSet::new()));
                kind.1.insert(*rank);
            }
            kinds.into_values().collect::<Vec<_>>()
        };
        let mut all = numbers.range(..=stuck).map(|sequence| kinds(*sequence));
        all.find(|kinds| kinds.len() > 1).unwrap_or_default()
    }
}

/// The waits of those that send to a rank or receive from it. Their numbers are not alike on two
/// ranks, so that only what has not completed on either is compared.
fn pairs(dumps: &Dumps) -> Vec<Wait<'_>> {
    let open: BTreeMap<u32, Vec<(&Operation, u32)>> = dumps
        .iter()
        .map(|(rank, dump)| (*rank, open_p2p(dump)))
        .collect();
    let mut waits: Vec<Wait> = Vec::new();
    for (rank, operations) in &open {
        let Some((operation, peer)) = operations.first() else {
            continue;
        };
        let of_peer = open.get(peer);
        let is_counterpart = |(one, back): &(&Operation, u32)| {
            let is_other_way = one.name.starts_with("send") != operation.name.starts_with("send");
            back == rank && one.group == operation.group && is_other_way
        };
        let back = of_peer.and_then(|all| all.iter().find(|one| is_counterpart(one)));
        let mut waiting = BTreeMap::from([(*rank, *operation)]);
        waiting.extend(back.map(|(one, _)| (*peer, *one)));
        if waits
            .iter()
            .any(|one| one.waiting.keys().eq(waiting.keys()))
        {
            continue;
        }
        let peer_if = |is_so: bool| is_so.then_some(*peer).into_iter().collect();
        waits.push(Wait {
            operation,
            size: Some(2),
            waiting,
            absent: peer_if(of_peer.is_some() && back.is_none()),
            missing: peer_if(of_peer.is_none()),
            unknown: BTreeSet::new(),
            different: Vec::new(),
        });
    }
    waits
}

/// What a rank sends and receives that has not completed, each with the other rank, from the oldest
/// to the newest. Of those that torch does together only the last entry tells when they completed.
fn open_p2p(dump: &Dump) -> Vec<(&Operation, u32)> {
    let all = || dump.operations.iter().filter(|one| one.is_p2p);
    let states: BTreeMap<_, _> = all()
        .map(|one| ((&one.group, one.sequence), one.state))
        .collect();
    let is_open = |one: &&Operation| states[&(&one.group, one.sequence)] == State::Pending;
    // the recorder names ranks by their places in the group, its own first: `recv 0<-1`
    let peer = |one: &Operation| {
        let position = one.name.rsplit(['>', '<', '-']).next()?;
        dump.ranks(one)?
            .get(position.parse::<usize>().ok()?)
            .copied()
    };
    all()
        .filter(is_open)
        .filter_map(|one| Some((one, peer(one)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dumps of ranks 0, 1 … with groups `a` of all, `b` of ranks 0 and 1, and `c` of ranks 1
    /// and 2. Each word is an operation: its group, name and number, `+` if it completed, `?` if it
    /// ended. A dump begins with `…` if it has forgotten operations; `-` is a rank without one.
    fn dumps(words: &str) -> Dumps {
        let ranks: Vec<&str> = words.split('|').collect();
        let all = (0..ranks.len() as u32).collect();
        let groups = [("a", all), ("b", vec![0, 1]), ("c", vec![1, 2])];
        let groups: BTreeMap<String, Vec<u32>> = groups
            .into_iter()
            .map(|(name, ranks)| (name.to_owned(), ranks))
            .collect();
        let operation = |word: &str| {
            let (word, state) = match word.split_at(word.len() - 1) {
                (word, "+") => (word, State::Completed),
                (word, "?") => (word, State::Ended),
                _ => (word, State::Pending),
            };
            let mut parts = word.split('.');
            let mut part = || parts.next().unwrap_or_default().to_owned();
            let (group, name, number, input) = (part(), part(), part(), part());
            let is_p2p = name.starts_with("send") || name.starts_with("recv");
            Operation {
                group_words: group.clone(),
                group,
                sequence: number.parse().unwrap(),
                is_p2p,
                name: name.replace('_', " "),
                input,
                output: String::new(),
                state,
                frame: None,
                created_ns: 0,
            }
        };
        let dump = |words: &str| Dump {
            groups: groups.clone(),
            operations: words
                .split_whitespace()
                .filter(|word| *word != "…")
                .map(operation)
                .collect(),
            has_forgotten: words.contains('…'),
            ..Dump::default()
        };
        let ranks = ranks
            .into_iter()
            .enumerate()
            .filter(|(_, words)| words.trim() != "-");
        ranks
            .map(|(rank, words)| (rank as u32, dump(words)))
            .collect()
    }

    /// A wait in words: the operation, who waits, and who is absent (a), missing (m), unknown (u).
    fn words(wait: &Wait) -> String {
        let mut text = wait.operation.words();
        let waiting = wait.waiting.keys().copied().collect();
        let sets = [
            ("w", &waiting),
            ("a", &wait.absent),
            ("m", &wait.missing),
            ("u", &wait.unknown),
        ];
        for (name, set) in sets.into_iter().filter(|(_, set)| !set.is_empty()) {
            text += &format!(" {name}{set:?}");
        }
        for (one, ranks) in &wait.different {
            text += &format!(" {} {}{}{ranks:?}", one.name, one.sequence, one.input);
        }
        text
    }

    /// What is found in such dumps: the causes, and what waits for them.
    fn check((given, causes, others): (&str, &str, &str)) {
        let dumps = dumps(given);
        let found = find(&dumps);
        let all = |waits: &[Wait]| waits.iter().map(words).collect::<Vec<_>>().join(", ");
        assert_eq!(
            (all(&found.0), all(&found.1)),
            (causes.into(), others.into()),
            "{given}"
        );
    }

    #[test]
    fn causes_and_what_waits_for_them() {
        let table: [(&str, &str, &str); 17] = [
            ("a.x.1+ | a.x.1+ | a.x.1+", "", ""),
            // operations of which the latest rank has not heard yet
            ("a.x.1+ a.x.2+ | a.x.1+ | a.x.1+", "", ""),
            (
                "a.x.1+ a.x.2 | a.x.1+ | a.x.1+ a.x.2",
                "x 2 of a w{0, 2} a{1}",
                "",
            ),
            ("a.x.1 | - | a.x.1", "x 1 of a w{0, 2} m{1}", ""),
            ("a.x.1 | a.x.1 | a.x.1+", "x 1 of a w{0, 1}", ""),
            // what gloo's recorder notes is decided by those that came less far
            (
                "a.x.1? a.x.2? | a.x.1? | a.x.1? a.x.2?",
                "x 2 of a w{0, 2} a{1}",
                "",
            ),
            (
                "a.x.1? a.x.2 | a.x.1? | a.x.1? a.x.2? a.x.3",
                "x 2 of a w{0} a{1}",
                "",
            ),
            ("a.x.1? | a.x.1? | a.x.1?", "", ""),
            // the buffer of rank 1 has no place left for group b
            ("b.x.7 | … a.x.9+ | a.x.9+", "x 7 of b w{0} u{1}", ""),
            (
                "… a.x.8 | … a.x.6+ a.x.7+ | … a.x.7+ a.x.8",
                "x 8 of a w{0, 2} a{1}",
                "",
            ),
            // rank 0 waits for rank 1, that for rank 2
            (
                "b.x.1 | c.x.1 | a.x.1+",
                "x 1 of c w{1} a{2}",
                "x 1 of b w{0} a{1}",
            ),
            // ranks 0 and 1 wait for each other
            (
                "b.x.1 | a.y.1 | a.y.1",
                "y 1 of a w{1, 2} a{0}, x 1 of b w{0} a{1}",
                "",
            ),
            // one rank that is missing in two groups
            (
                "a.x.1 b.x.1 | - | a.x.1",
                "x 1 of a w{0, 2} m{1}",
                "x 1 of b w{0} m{1}",
            ),
            (
                "a.x.1+ a.y.2+ a.x.3 | a.x.1+ a.x.2+ a.x.3 | a.x.1+ a.x.2+",
                "x 3 of a w{0, 1} a{2} x 2{1, 2} y 2{0}",
                "",
            ),
            (
                "a.x.1.4+ a.x.2.4 | a.x.1.5+ a.x.2.5 | a.x.1.4+ a.x.2.4",
                "x 2 of a w{0, 1, 2} x 24{0, 2} x 25{1}",
                "",
            ),
            // operations that torch does together: only the last entry completes
            (
                "a.x.1 a.x.1 a.end.1+ | a.x.1 a.end.1+ | a.x.1 a.end.1+",
                "",
                "",
            ),
            ("a.x.1 a.x.2+ | a.x.1+ a.x.2+ | a.x.2+", "", ""),
        ];
        table.into_iter().for_each(check);
    }

    #[test]
    fn between_two_ranks() {
        let table = [
            // in group c rank 2 has number 1
            ("a.x.1+ | a.x.1+ | c.recv_1<-0.4", "recv of c w{2} a{1}", ""),
            (
                "a.x.1+ | c.send_0->1.9 | c.recv_1<-0.4",
                "send of c w{1, 2}",
                "",
            ),
            ("a.x.1+ | c.send_0->1.9+ | c.recv_1<-0.4+", "", ""),
            ("b.send_0->1.1 | - | a.x.1+", "send of b w{0} m{1}", ""),
            (
                "b.send_0->1.1 | c.recv_0<-1.1 | a.x.1+",
                "recv of c w{1} a{2}",
                "send of b w{0} a{1}",
            ),
            // sent together: the last entry has completed
            ("b.send_0->1.1 b.send.1+ | a.x.1+ | a.x.1+", "", ""),
        ];
        table.into_iter().for_each(check);
    }
}
