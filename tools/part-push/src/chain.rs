//! Which host hands a file on to which, and what is done when one of them cannot: a state machine
//! without a clock and without connections. Events go in, actions come out.

use std::time::Duration;
use transfer::parts::Parts;

/// A host to which nothing comes for so long, although there is something for it, is left out. What
/// waits here for its turn under a limit comes on top of it.
const STALL: Duration = Duration::from_secs(10);
/// A host has so long to begin the file,
const BEGIN: Duration = Duration::from_secs(30);
/// and longer where it copies what it has of it: a disk that copies fewer bytes a second is broken.
const COPIES: f64 = 20e6;
/// A host is slow if it is this many bytes behind the one before it.
const BEHIND: u64 = 64 << 20;
/// A host is judged slow only after it was observed for this long.
const OBSERVED: Duration = Duration::from_secs(4);
/// A host that is this many times slower than the one before it is left out, because it delays
/// those behind it.
const SLOWER: f64 = 3.0;
/// A host that cannot reach this many others hands nothing on, because a firewall drops what goes
/// from host to host.
const UNREACHED: u32 = 2;

/// Where a host gets a file from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This machine.
    Us,
    /// The host with this place in the chain.
    Host(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    /// It was asked to take the file.
    Joins,
    /// It takes the file as it comes.
    Takes,
    /// It has all that comes.
    Whole,
    /// It was told so, and gives the file its name.
    Finished,
    /// It is not part of the chain any longer.
    Out,
}

/// An action. Hosts are named by their places in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// This machine sends the host its missing parts.
    Feed(usize),
    /// One host hands on to another the parts that it lacks.
    HandOn {
        /// The host that hands on.
        from: usize,
        /// The host that receives.
        to: usize,
    },
    /// One host stops handing on to another.
    KeepBack {
        /// The host that hands on.
        from: usize,
        /// The host that received.
        to: usize,
    },
    /// The host has the whole file, which is renamed.
    Finish(usize),
    /// The host is served separately.
    LeaveOut(usize),
}

#[derive(Debug)]
struct ChainMember {
    life: MemberState,
    source: Source,
    there: Parts,
    /// How many bytes it had at first.
    kept: u64,
    /// When the first and the last bytes came.
    arrived: Option<(Duration, Duration)>,
    /// Since when parts are available that have not come to it.
    waits: Option<Duration>,
    /// How long it may take to begin.
    begins_within: Duration,
    /// How many hosts it could not reach.
    unreached: u32,
    /// Whether the file here stayed the same while it was read for this host.
    confirmed: bool,
}

impl ChainMember {
    /// The rate in bytes a second since the first bytes came.
    fn rate(&self, now: Duration) -> f64 {
        let Some((begun, last)) = self.arrived else {
            return 0.0;
        };
        let until = if self.has_all() { last } else { now };
        let took = until.saturating_sub(begun).as_secs_f64().max(0.1);
        // a host may tell of less than it has told of before
        self.there.bytes().saturating_sub(self.kept) as f64 / took
    }

    fn has_all(&self) -> bool {
        matches!(self.life, MemberState::Whole | MemberState::Finished)
    }

    fn takes_part(&self) -> bool {
        self.life == MemberState::Takes || self.has_all()
    }
}

/// The hosts that get one file.
#[derive(Debug)]
pub struct Chain {
    bytes: u64,
    members: Vec<ChainMember>,
    /// A host to which nothing comes for so long is left out.
    patience: Duration,
}

impl Chain {
    /// For a file of so many bytes. The hosts have these parts of it and get it in this order, each
    /// from the one before. A block may take as long as `block_takes` by a limit of ours.
    pub fn new(bytes: u64, kept: Vec<Parts>, block_takes: Duration) -> Chain {
        let member = |(index, there): (usize, Parts)| ChainMember {
            life: MemberState::Joins,
            source: index.checked_sub(1).map_or(Source::Us, Source::Host),
            kept: there.bytes(),
            there,
            arrived: None,
            waits: None,
            begins_within: BEGIN,
            unreached: 0,
            confirmed: false,
        };
        Chain {
            bytes,
            members: kept.into_iter().enumerate().map(member).collect(),
            patience: STALL + block_takes,
        }
    }

    /// The parts that a host lacks.
    pub fn missing(&self, index: usize) -> Vec<(u64, u64)> {
        self.members[index].there.missing(self.bytes)
    }

    /// The parts that a host has.
    pub fn there(&self, index: usize) -> &Parts {
        &self.members[index].there
    }

    /// Where a host gets the file from.
    pub fn source(&self, index: usize) -> Source {
        self.members[index].source
    }

    /// Whether a host is still in the chain.
    pub fn is_in(&self, index: usize) -> bool {
        self.members[index].life != MemberState::Out
    }

    /// Whether it was told to give the file its name.
    pub fn is_finished(&self, index: usize) -> bool {
        self.members[index].life == MemberState::Finished
    }

    /// Whether nobody waits for anything any longer.
    pub fn is_over(&self) -> bool {
        let over = |member: &ChainMember| match member.life {
            MemberState::Out | MemberState::Finished => true,
            MemberState::Joins | MemberState::Takes | MemberState::Whole => false,
        };
        self.members.iter().all(over)
    }

    /// The host is asked to begin the file with so many bytes of what it has.
    pub fn begins(&mut self, index: usize, kept: u64, now: Duration) {
        let member = &mut self.members[index];
        member.waits = Some(now);
        member.begins_within = BEGIN + Duration::from_secs_f64(kept as f64 / COPIES);
    }

    /// A host takes the file from here on.
    pub fn joined(&mut self, index: usize, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.members[index].life != MemberState::Joins {
            return actions;
        }
        self.members[index].life = MemberState::Takes;
        self.members[index].waits = Some(now);
        self.get_from(index, self.members[index].source, &mut actions);
        for child in self.children(index) {
            self.get_from(child, Source::Host(index), &mut actions);
        }
        // it may have had the whole file before
        let there = self.members[index].there.clone();
        actions.extend(self.arrived(index, there, now));
        actions
    }

    /// Those that wait for what a host has, or for the word that all of it was right.
    fn children(&self, index: usize) -> Vec<usize> {
        let waits =
            |member: &ChainMember| !matches!(member.life, MemberState::Finished | MemberState::Out);
        let children = self.members.iter().enumerate();
        children
            .filter(|(_, member)| member.source == Source::Host(index) && waits(member))
            .map(|(child, _)| child)
            .collect()
    }

    /// From here on, a host gets the file from this source.
    fn get_from(&mut self, index: usize, source: Source, actions: &mut Vec<Action>) {
        self.members[index].source = source;
        match self.members[index].life {
            MemberState::Takes => {}
            // nothing comes of it any more, but whoever is first is who confirms the file
            MemberState::Whole if source == Source::Us => return self.feed(index, actions),
            MemberState::Joins | MemberState::Whole | MemberState::Finished | MemberState::Out => {
                return;
            }
        }
        // what it did behind another host does not count any longer
        let member = &mut self.members[index];
        (member.arrived, member.waits) = (None, None);
        member.kept = member.there.bytes();
        match source {
            Source::Us => self.feed(index, actions),
            Source::Host(from) if self.members[from].unreached >= UNREACHED => {
                self.leave(index, actions);
            }
            Source::Host(from) if self.members[from].takes_part() => {
                actions.push(Action::HandOn { from, to: index });
            }
            // it follows when that host has joined
            Source::Host(_) => {}
        }
    }

    /// What is read from here on may not be what was read before.
    fn feed(&mut self, index: usize, actions: &mut Vec<Action>) {
        self.members[index].confirmed = false;
        actions.push(Action::Feed(index));
    }

    /// A host reports the parts that it has.
    pub fn arrived(&mut self, index: usize, there: Parts, now: Duration) -> Vec<Action> {
        let bytes = self.bytes;
        let member = &mut self.members[index];
        if !member.takes_part() {
            return Vec::new();
        }
        if there.bytes() > member.there.bytes() {
            let begun = member.arrived.map_or(now, |(begun, _)| begun);
            member.arrived = Some((begun, now));
            member.waits = (member.source == Source::Us).then_some(now);
        }
        let had_all = member.has_all();
        member.there = there;
        if !had_all && member.there.is_whole(bytes) {
            member.life = MemberState::Whole;
        }
        self.finish_whole()
    }

    /// Those that have all of a file that was confirmed.
    fn finish_whole(&mut self) -> Vec<Action> {
        let is_right = |index: &usize| {
            self.members[*index].life == MemberState::Whole && self.is_confirmed(*index)
        };
        let right: Vec<usize> = (0..self.members.len()).filter(is_right).collect();
        for index in &right {
            self.members[*index].life = MemberState::Finished;
        }
        right.into_iter().map(Action::Finish).collect()
    }

    /// Whether the file here was the same when it had been read for the host from which all that
    /// this one gets comes in the end.
    fn is_confirmed(&self, index: usize) -> bool {
        let mut first = index;
        while let Source::Host(from) = self.members[first].source {
            first = from;
        }
        self.members[first].confirmed
    }

    /// All that a host lacked was read, and it is still the same file.
    pub fn confirm(&mut self, index: usize) -> Vec<Action> {
        self.members[index].confirmed = true;
        self.finish_whole()
    }

    /// This machine has sent something to a host that it feeds.
    pub fn fed(&mut self, index: usize, now: Duration) {
        self.members[index].waits = Some(now);
    }

    /// A host reports that another one gets no more from it.
    pub fn broke(&mut self, from: usize, to: usize, unreached: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        if unreached {
            self.members[from].unreached += 1;
        }
        let member = &self.members[to];
        if member.source == Source::Host(from) && member.life == MemberState::Takes {
            self.leave(to, &mut actions);
        }
        actions
    }

    /// A host reports that another one hands on other content than was read here. Which of them is
    /// at fault cannot be known: it gets the file from the one before that.
    pub fn refused(&mut self, from: usize, to: usize) -> Vec<Action> {
        let mut actions = Vec::new();
        let member = &self.members[to];
        if member.source == Source::Host(from) && member.life == MemberState::Takes {
            actions.push(Action::KeepBack { from, to });
            self.get_from(to, self.source_of(from), &mut actions);
        }
        actions
    }

    /// Where a host gets the file from, past those that have left.
    fn source_of(&self, index: usize) -> Source {
        let mut source = self.members[index].source;
        // one that has finished keeps its source even when that has left
        while let Source::Host(from) = source
            && self.members[from].life == MemberState::Out
        {
            source = self.members[from].source;
        }
        source
    }

    /// A host is lost, or cannot have the file at all.
    pub fn lost(&mut self, index: usize) -> Vec<Action> {
        let mut actions = Vec::new();
        self.leave(index, &mut actions);
        // nobody is there to be served separately
        actions.retain(|action| *action != Action::LeaveOut(index));
        actions
    }

    fn leave(&mut self, index: usize, actions: &mut Vec<Action>) {
        let was = std::mem::replace(&mut self.members[index].life, MemberState::Out);
        if was == MemberState::Out {
            return;
        }
        let source = self.source_of(index);
        if matches!(was, MemberState::Joins | MemberState::Takes) {
            if let (Source::Host(from), MemberState::Takes) = (source, was) {
                actions.push(Action::KeepBack { from, to: index });
            }
            actions.push(Action::LeaveOut(index));
        }
        for child in self.children(index) {
            self.get_from(child, source, actions);
        }
    }

    /// Looks for hosts that delay others.
    pub fn find_delays(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        for index in 0..self.members.len() {
            self.wait_since(index, now);
            if self.is_stalled(index, now) || self.is_slow(index, now) {
                self.leave(index, &mut actions);
            }
        }
        actions
    }

    fn wait_since(&mut self, index: usize, now: Duration) {
        let there_for_it = match (self.members[index].life, self.members[index].source) {
            (MemberState::Takes, Source::Host(from)) => {
                let more = self.members[from].there.without(&self.members[index].there);
                !more.list().is_empty()
            }
            // what is sent to it says so
            (MemberState::Takes, Source::Us) | (MemberState::Joins, _) => return,
            (MemberState::Whole | MemberState::Finished | MemberState::Out, _) => false,
        };
        let member = &mut self.members[index];
        member.waits = there_for_it.then(|| member.waits.unwrap_or(now));
    }

    fn is_stalled(&self, index: usize, now: Duration) -> bool {
        let member = &self.members[index];
        let waits = |member: &ChainMember, limit: Duration| {
            let waits = member.waits.map(|since| now.saturating_sub(since));
            matches!(member.life, MemberState::Joins | MemberState::Takes)
                && waits.is_some_and(|waits| waits > limit)
        };
        let is_held_up = match member.source {
            Source::Us => false,
            Source::Host(from) => waits(&self.members[from], self.patience / 2),
        };
        let limit = match member.life {
            MemberState::Joins => member.begins_within,
            _ => self.patience,
        };
        waits(member, limit) && !is_held_up
    }

    fn is_slow(&self, index: usize, now: Duration) -> bool {
        let member = &self.members[index];
        let (MemberState::Takes, Source::Host(from)) = (member.life, member.source) else {
            return false;
        };
        let before = &self.members[from];
        let observed = |member: &ChainMember| {
            member
                .arrived
                .is_some_and(|(begun, _)| now.saturating_sub(begun) > OBSERVED)
        };
        let behind = before.there.bytes().saturating_sub(member.there.bytes());
        observed(member)
            && observed(before)
            && behind > BEHIND
            && member.rate(now) * SLOWER < before.rate(now)
    }
}

/// What decides the place of a host in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Whether another host has refused what it handed on.
    pub was_refused: bool,
    /// How much of the file it has.
    pub kept: u64,
    /// Its address.
    pub address: u32,
}

/// Sorts the hosts of a chain. Those that have most of the file come first, so that least leaves
/// this machine; then by address, because neighbours in a switch usually have neighbouring
/// addresses, so that no link between switches is crossed twice. The last one hands nothing on.
pub fn order<T>(hosts: &mut [T], rank: impl Fn(&T) -> Rank) {
    hosts.sort_by_key(|host| {
        let rank = rank(host);
        (rank.was_refused, std::cmp::Reverse(rank.kept), rank.address)
    });
}

#[cfg(test)]
mod tests {
    use super::Action::{Feed, Finish, HandOn, KeepBack, LeaveOut};
    use super::*;

    const MB: u64 = 1 << 20;
    const SIZE: u64 = 1000 * MB;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// So many hosts that have nothing.
    fn begun(hosts: usize) -> Chain {
        Chain::new(SIZE, vec![Parts::default(); hosts], Duration::ZERO)
    }

    /// Three hosts that take what comes.
    fn three() -> Chain {
        let mut chain = begun(3);
        let mut actions = Vec::new();
        for index in [1, 0, 2] {
            actions.extend(chain.joined(index, at(0)));
        }
        let handed = [HandOn { from: 0, to: 1 }, HandOn { from: 1, to: 2 }];
        assert_eq!(actions, [&[Feed(0)], &handed[..]].concat());
        chain
    }

    fn come(chain: &mut Chain, bytes: [u64; 3], now: Duration) -> Vec<Action> {
        let arrived = bytes.iter().enumerate();
        arrived
            .flat_map(|(index, bytes)| chain.arrived(index, Parts::beginning(*bytes), now))
            .collect()
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_was_the_same_to_the_end() {
        let mut chain = three();
        assert_eq!(come(&mut chain, [SIZE, MB, 0], at(1)), []);
        assert_eq!(chain.confirm(0), [Finish(0)]);
        assert_eq!(come(&mut chain, [SIZE, SIZE, MB], at(2)), [Finish(1)]);
        assert!(!chain.is_over());
        assert_eq!(come(&mut chain, [SIZE, SIZE, SIZE], at(3)), [Finish(2)]);
        assert!(chain.is_over());
    }

    #[test]
    fn who_cannot_go_on_is_left_out_and_the_next_one_gets_it_from_the_one_before() {
        let relinked = HandOn { from: 0, to: 2 };
        let kept_back = KeepBack { from: 0, to: 1 };
        let mut chain = three();
        come(&mut chain, [5 * MB, 4 * MB, 3 * MB], at(1));
        assert_eq!(chain.lost(1), [kept_back, relinked]);
        assert_eq!(chain.missing(2), [(3 * MB, SIZE)]);

        let mut chain = three();
        assert_eq!(chain.broke(0, 1, false), [kept_back, LeaveOut(1), relinked]);
        // that came too late
        assert_eq!(chain.broke(1, 2, false), []);

        // the first: this machine feeds the next
        let mut chain = three();
        assert_eq!(chain.lost(0), [Feed(1)]);
        assert_eq!(chain.lost(1), [Feed(2)]);
        assert_eq!(chain.lost(2), []);
        assert!(chain.is_over());
    }

    #[test]
    fn a_host_that_has_all_and_is_lost_leaves_no_gap() {
        let mut chain = three();
        chain.confirm(0);
        come(&mut chain, [SIZE, SIZE, MB], at(1));
        assert_eq!(chain.lost(1), [HandOn { from: 0, to: 2 }]);
        assert_eq!(chain.lost(0), [Feed(2)]);
        // the other way round: who is lost first had finished too
        let mut chain = three();
        come(&mut chain, [SIZE, SIZE, MB], at(1));
        assert_eq!(chain.confirm(0), [Finish(0), Finish(1)]);
        assert_eq!(chain.lost(0), []);
        assert_eq!(chain.lost(1), [Feed(2)]);
    }

    #[test]
    fn who_refuses_what_another_hands_on_gets_it_from_the_one_before_that() {
        let mut chain = three();
        come(&mut chain, [SIZE, 5 * MB, 3 * MB], at(1));
        assert_eq!(chain.confirm(0), [Finish(0)]);
        let expected = [KeepBack { from: 1, to: 2 }, HandOn { from: 0, to: 2 }];
        assert_eq!(chain.refused(1, 2), expected);
        assert_eq!(chain.refused(1, 2), [], "that came too late");
        // the one before that does no better: this machine is left
        let expected = [KeepBack { from: 0, to: 2 }, Feed(2)];
        assert_eq!(chain.refused(0, 2), expected);
        assert_eq!(come(&mut chain, [SIZE, SIZE, SIZE], at(2)), [Finish(1)]);
        // what was read for it has to be confirmed too
        assert_eq!(chain.confirm(2), [Finish(2)]);
        assert!(chain.is_over());

        // two hosts at once get it from here, and each waits for its own
        let mut chain = three();
        come(&mut chain, [5 * MB, 4 * MB, 3 * MB], at(1));
        assert_eq!(chain.refused(0, 1)[1..], [Feed(1)]);
        assert_eq!(come(&mut chain, [SIZE, SIZE, SIZE], at(2)), []);
        assert_eq!(chain.confirm(1), [Finish(1), Finish(2)]);
        assert_eq!(chain.lost(0), []);
        assert!(chain.is_over());
    }

    #[test]
    fn where_hosts_cannot_reach_one_another_all_but_the_first_are_served_apart() {
        let mut chain = begun(6);
        (0..6).for_each(|index| drop(chain.joined(index, at(0))));
        let first = chain.broke(0, 1, true);
        assert!(first.contains(&LeaveOut(1)) && first.contains(&HandOn { from: 0, to: 2 }));
        let all = chain.broke(0, 2, true);
        let left: Vec<Action> = all
            .into_iter()
            .filter(|action| matches!(action, LeaveOut(_) | HandOn { .. }))
            .collect();
        assert_eq!(left, [2, 3, 4, 5].map(LeaveOut));
        assert!(chain.is_in(0));
    }

    #[test]
    fn who_takes_nothing_is_left_out_where_there_is_something_for_it() {
        let mut chain = three();
        come(&mut chain, [50 * MB, 40 * MB, 40 * MB], at(1));
        chain.fed(0, at(20));
        // host 2 has what host 1 has; host 1 waits from here on
        assert_eq!(chain.find_delays(at(20)), []);
        assert_eq!(chain.find_delays(at(29)), []);
        chain.fed(0, at(31));
        let expected = [
            KeepBack { from: 0, to: 1 },
            LeaveOut(1),
            HandOn { from: 0, to: 2 },
        ];
        assert_eq!(chain.find_delays(at(31)), expected);
        // the first, to which nothing goes any more
        assert_eq!(chain.find_delays(at(42))[..2], [LeaveOut(0), Feed(2)]);

        // who waits for one that stands still is not at fault, even where it waits longer
        let mut chain = three();
        come(&mut chain, [50 * MB, 40 * MB, 30 * MB], at(1));
        chain.fed(0, at(2));
        chain.find_delays(at(2));
        chain.fed(0, at(12));
        come(&mut chain, [50 * MB, 45 * MB, 30 * MB], at(3));
        chain.find_delays(at(3));
        chain.fed(0, at(13));
        assert_eq!(chain.find_delays(at(13)), []);
        chain.fed(0, at(14));
        assert_eq!(
            chain.find_delays(at(14))[1..],
            [LeaveOut(1), HandOn { from: 0, to: 2 }]
        );

        // one that does not even begin
        let mut chain = begun(2);
        // what is done here before that does not count
        chain.joined(0, at(50));
        chain.fed(0, at(100));
        assert_eq!(chain.find_delays(at(100)), []);
        chain.begins(1, 0, at(100));
        chain.fed(0, at(130));
        assert_eq!(chain.find_delays(at(130)), []);
        assert_eq!(chain.find_delays(at(131)), [LeaveOut(1)]);

        // one that copies what it has has longer
        let mut chain = begun(1);
        chain.begins(0, 2_000_000_000, at(0));
        assert_eq!(chain.find_delays(at(130)), []);
        assert_eq!(chain.find_delays(at(131)), [LeaveOut(0)]);
    }

    #[test]
    fn a_limit_of_ours_is_no_stall_of_theirs() {
        // a block of 1 MiB at 100 kB/s
        let mut chain = Chain::new(SIZE, vec![Parts::default(); 2], at(11));
        (0..2).for_each(|index| drop(chain.joined(index, at(0))));
        chain.fed(0, at(0));
        assert_eq!(chain.find_delays(at(21)), []);
        assert_eq!(chain.find_delays(at(22))[..2], [LeaveOut(0), Feed(1)]);
    }

    #[test]
    fn what_is_read_once_more_is_confirmed_once_more() {
        let mut chain = three();
        come(&mut chain, [5 * MB, 4 * MB, 3 * MB], at(1));
        assert_eq!(chain.confirm(0), []);
        // it is lost with bytes that it has not handed on: these are read again
        assert_eq!(chain.lost(0), [Feed(1)]);
        assert_eq!(come(&mut chain, [0, SIZE, SIZE], at(2)), []);
        assert_eq!(chain.confirm(1), [Finish(1), Finish(2)]);
        assert_eq!(chain.confirm(1), []);
        assert!(chain.is_over());
    }

    #[test]
    fn whoever_is_left_is_told_that_the_file_was_right() {
        // the second has all from before, and the first is lost while it begins
        let kept = vec![Parts::beginning(SIZE); 2];
        let mut chain = Chain::new(SIZE, kept, Duration::ZERO);
        assert_eq!(chain.joined(1, at(0)), []);
        assert_eq!(chain.lost(0), [Feed(1)]);
        assert_eq!(chain.confirm(1), [Finish(1)]);
        assert!(chain.is_over());
    }

    #[test]
    fn a_host_that_takes_back_what_it_has_told_harms_nobody() {
        let mut chain = three();
        chain.fed(0, at(1));
        come(&mut chain, [500 * MB, 300 * MB, 0], at(1));
        for second in 2..9 {
            chain.fed(0, at(second));
            come(&mut chain, [500 * MB + second, 0, 0], at(second));
            chain.find_delays(at(second));
        }
        assert!(chain.is_in(0));
    }

    #[test]
    fn who_is_much_slower_than_the_one_before_is_left_out() {
        // megabytes a second of hosts 0, 1 and 2, and who is left out after 6 s
        let table = [
            ([100, 100, 100], None),
            ([100, 40, 40], None),
            ([100, 30, 30], Some(1)),
            ([100, 100, 10], Some(2)),
            // all are slow: the uplink is
            ([10, 3, 3], None),
        ];
        for (rates, left) in table {
            let mut chain = three();
            for second in 1..=7 {
                chain.fed(0, at(second));
                come(
                    &mut chain,
                    rates.map(|rate| rate * (second - 1) * MB + 1),
                    at(second),
                );
            }
            let actions = chain.find_delays(at(7));
            let out = actions.iter().find_map(|action| match action {
                LeaveOut(index) => Some(*index),
                _ => None,
            });
            assert_eq!(out, left, "{rates:?}: {actions:?}");
        }
    }

    #[test]
    fn what_hosts_have_from_before_comes_first() {
        let rank = |was_refused, kept, address| Rank {
            was_refused,
            kept,
            address,
        };
        let mut hosts = [
            rank(true, 9, 1),
            rank(false, 0, 9),
            rank(false, 5, 7),
            rank(false, 0, 3),
            rank(false, 8, 8),
        ];
        order(&mut hosts, |host| *host);
        assert_eq!(hosts.map(|host| host.address), [8, 7, 3, 9, 1]);
        let kept = vec![Parts::beginning(SIZE), Parts::default()];
        let mut chain = Chain::new(SIZE, kept, Duration::ZERO);
        assert_eq!(chain.joined(0, at(0)), [Feed(0)]);
        assert_eq!(chain.joined(1, at(0)), [HandOn { from: 0, to: 1 }]);
        assert_eq!(chain.confirm(0), [Finish(0)]);
    }
}
