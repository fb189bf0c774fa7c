//! How a file passes along a chain of hosts, and what is done when one of them cannot: a state
//! machine without a clock or connections. Events go in, actions come out.
//!
//! The first host gets the file from this machine, each other host from the one before it. A host
//! that breaks, or delays those behind it, leaves the chain, and so do those behind it, up to the
//! first that has the whole file. They get the rest from this machine.

use std::time::Duration;

/// A host is left out if it receives nothing for this long although there is something for it. A
/// limit here adds the time for which a block waits.
const STALL: Duration = Duration::from_secs(10);
/// How long a host may take to begin the file, however busy its disk is.
const BEGIN: Duration = Duration::from_secs(30);
/// A host this many bytes behind the one before it is slow.
const BEHIND: u64 = 64 << 20;
/// A host is judged slow only after this long.
const OBSERVED: Duration = Duration::from_secs(4);
/// A host that is this many times slower than the one before it delays those behind it, and is left
/// out.
const SLOWER: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Asked to begin the file.
    Joining,
    Receiving,
    /// It has all bytes, but was not asked to rename the file.
    Whole,
    /// Asked to rename the file.
    Finishing,
    /// It has renamed the file.
    Landed,
    Out,
}

/// Hosts are named by their indices in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The host before this one hands the file on to it.
    HandOn(usize),
    /// The host has the whole file, and renames it.
    Finish(usize),
    /// The host gets the rest from this machine.
    LeaveOut(usize),
}

#[derive(Debug)]
struct ChainProgress {
    stage: Stage,
    arrived_bytes: u64,
    /// When the first and the last bytes arrived.
    arrived: Option<(Duration, Duration)>,
    /// When something last arrived, or there was nothing to send.
    progressed: Duration,
}

impl ChainProgress {
    /// In bytes per second since the first bytes arrived.
    fn rate(&self, now: Duration) -> f64 {
        let Some((first, last)) = self.arrived else {
            return 0.0;
        };
        let until = if self.has_all() { last } else { now };
        self.arrived_bytes as f64 / until.saturating_sub(first).as_secs_f64().max(0.1)
    }

    fn has_all(&self) -> bool {
        use Stage::{Finishing, Landed, Whole};
        matches!(self.stage, Whole | Finishing | Landed)
    }

    fn was_observed(&self, now: Duration) -> bool {
        let first = self.arrived.map(|(first, _)| first);
        first.is_some_and(|first| now.saturating_sub(first) > OBSERVED)
    }
}

#[derive(Debug)]
pub struct Chain {
    bytes: u64,
    members: Vec<ChainProgress>,
    /// How long a host may receive nothing.
    patience: Duration,
    /// Whether the file here was read completely and did not change meanwhile.
    is_confirmed: bool,
}

impl Chain {
    /// A limit here may delay each block by `block_takes`.
    pub fn new(bytes: u64, hosts: usize, block_takes: Duration) -> Chain {
        let member = || ChainProgress {
            stage: Stage::Joining,
            arrived_bytes: 0,
            arrived: None,
            progressed: Duration::ZERO,
        };
        Chain {
            bytes,
            members: std::iter::repeat_with(member).take(hosts).collect(),
            patience: STALL + block_takes,
            is_confirmed: false,
        }
    }

    pub fn is_in(&self, index: usize) -> bool {
        self.members[index].stage != Stage::Out
    }

    /// Whether this machine can send to the first host.
    pub fn is_fed(&self) -> bool {
        !matches!(self.members[0].stage, Stage::Joining | Stage::Out)
    }

    /// Whether a host was asked to rename the file and has not answered.
    pub fn is_finishing(&self, index: usize) -> bool {
        self.members[index].stage == Stage::Finishing
    }

    pub fn has_landed(&self, index: usize) -> bool {
        self.members[index].stage == Stage::Landed
    }

    pub fn arrived_bytes(&self, index: usize) -> u64 {
        self.members[index].arrived_bytes
    }

    /// Whether each host has the file or has left.
    pub fn is_over(&self) -> bool {
        self.awaited().is_none()
    }

    /// The host to wait for: the first that will report more about the file, which usually is the
    /// one that is fed.
    pub fn awaited(&self) -> Option<usize> {
        (0..self.members.len()).find(|index| self.is_in(*index) && !self.has_landed(*index))
    }

    /// A host has begun the file.
    pub fn joined(&mut self, index: usize, now: Duration) -> Vec<Action> {
        let member = &mut self.members[index];
        if member.stage != Stage::Joining {
            return Vec::new();
        }
        (member.stage, member.progressed) = (Stage::Receiving, now);
        let have_both_joined =
            |to: &usize| (to - 1..=*to).all(|index| self.members[index].stage != Stage::Joining);
        let links = (index.max(1)..=index + 1).filter(|to| *to < self.members.len());
        links.filter(have_both_joined).map(Action::HandOn).collect()
    }

    /// A host has this many bytes of the file.
    pub fn arrived(&mut self, index: usize, bytes: u64, now: Duration) -> Vec<Action> {
        let member = &mut self.members[index];
        if member.stage == Stage::Receiving && bytes > member.arrived_bytes {
            let first = member.arrived.map_or(now, |(first, _)| first);
            member.arrived = Some((first, now));
            (member.arrived_bytes, member.progressed) = (bytes, now);
            if bytes >= self.bytes {
                member.stage = Stage::Whole;
            }
        }
        self.finish_whole()
    }

    /// The file was read completely, and has not changed meanwhile.
    pub fn confirm(&mut self) -> Vec<Action> {
        self.is_confirmed = self.is_in(0);
        self.finish_whole()
    }

    fn finish_whole(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            if self.is_confirmed && member.stage == Stage::Whole {
                member.stage = Stage::Finishing;
                actions.push(Action::Finish(index));
            }
        }
        actions
    }

    pub fn fed(&mut self, now: Duration) {
        self.members[0].progressed = now;
    }

    pub fn landed(&mut self, index: usize) {
        if self.is_finishing(index) {
            self.members[index].stage = Stage::Landed;
        }
    }

    /// A host is lost, or cannot have the file in this way.
    pub fn lost(&mut self, index: usize) -> Vec<Action> {
        if self.is_in(index) {
            // what it has does not count any more
            self.members[index].stage = Stage::Joining;
        }
        self.break_at(index)
    }

    /// Nothing more arrives from this host on, up to the first that has the whole file.
    pub fn break_at(&mut self, index: usize) -> Vec<Action> {
        // without the first host, nothing confirms what the others have
        let is_unproved = index == 0 && !self.is_confirmed;
        let mut actions = Vec::new();
        let behind = self.members.iter_mut().enumerate().skip(index);
        for (index, member) in behind.take_while(|(_, member)| is_unproved || !member.has_all()) {
            if member.stage != Stage::Out {
                member.stage = Stage::Out;
                actions.push(Action::LeaveOut(index));
            }
        }
        actions
    }

    /// The first host that delays others.
    pub fn find_delay(&mut self, now: Duration) -> Option<usize> {
        for index in 1..self.members.len() {
            let available = self.members[index - 1].arrived_bytes;
            let member = &mut self.members[index];
            if member.stage == Stage::Receiving && member.arrived_bytes >= available {
                member.progressed = now;
            }
        }
        let mut hosts = 0..self.members.len();
        hosts.find(|index| self.is_stalled(*index, now) || self.is_slow(*index, now))
    }

    fn is_stalled(&self, index: usize, now: Duration) -> bool {
        let member = &self.members[index];
        let limit = match member.stage {
            Stage::Joining => BEGIN,
            Stage::Receiving => self.patience,
            _ => return false,
        };
        now.saturating_sub(member.progressed) > limit
    }

    fn is_slow(&self, index: usize, now: Duration) -> bool {
        let Some(before) = index.checked_sub(1).map(|index| &self.members[index]) else {
            return false;
        };
        let member = &self.members[index];
        let behind = before.arrived_bytes.saturating_sub(member.arrived_bytes);
        member.stage == Stage::Receiving
            && member.was_observed(now)
            && before.was_observed(now)
            && behind > BEHIND
            && member.rate(now) * SLOWER < before.rate(now)
    }
}

#[cfg(test)]
mod tests {
    use super::Action::{Finish, HandOn, LeaveOut};
    use super::*;

    const MB: u64 = 1 << 20;
    const SIZE: u64 = 1000 * MB;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Three hosts that take what comes.
    fn three() -> Chain {
        let mut chain = Chain::new(SIZE, 3, Duration::ZERO);
        let mut actions = Vec::new();
        for index in [1, 0, 2] {
            actions.extend(chain.joined(index, seconds(0)));
        }
        assert_eq!(actions, [HandOn(1), HandOn(2)]);
        assert_eq!(chain.joined(2, seconds(0)), [], "it has joined already");
        chain
    }

    fn come(chain: &mut Chain, bytes: [u64; 3], now: Duration) -> Vec<Action> {
        let arrived = bytes.iter().enumerate();
        arrived
            .flat_map(|(index, bytes)| chain.arrived(index, *bytes, now))
            .collect()
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_was_the_same_to_the_end() {
        let mut chain = three();
        assert_eq!(come(&mut chain, [SIZE, MB, 0], seconds(1)), []);
        assert_eq!(chain.confirm(), [Finish(0)]);
        assert_eq!(come(&mut chain, [SIZE, SIZE, MB], seconds(2)), [Finish(1)]);
        assert!(!chain.is_over());
        assert_eq!(
            come(&mut chain, [SIZE, SIZE, SIZE], seconds(3)),
            [Finish(2)]
        );
        chain.landed(0);
        chain.landed(2);
        assert!(chain.has_landed(0) && chain.is_finishing(1) && !chain.is_over());
        chain.landed(1);
        assert!(chain.is_over());
    }

    #[test]
    fn who_breaks_takes_those_behind_along_up_to_one_that_has_all() {
        let (some, two) = ([5 * MB, 4 * MB, 3 * MB], [SIZE, SIZE, MB]);
        // what hosts have, whether it is confirmed, who is lost, and who leaves with it
        let table = [
            (some, false, 0, vec![LeaveOut(0), LeaveOut(1), LeaveOut(2)]),
            (some, false, 1, vec![LeaveOut(1), LeaveOut(2)]),
            (some, false, 2, vec![LeaveOut(2)]),
            (two, true, 0, vec![LeaveOut(0)]),
            (two, true, 1, vec![LeaveOut(1), LeaveOut(2)]),
            // nothing confirms any more what they have
            (two, false, 0, vec![LeaveOut(0), LeaveOut(1), LeaveOut(2)]),
            (two, false, 1, vec![LeaveOut(1), LeaveOut(2)]),
        ];
        for (bytes, is_confirmed, lost, expected) in table {
            let mut chain = three();
            come(&mut chain, bytes, seconds(1));
            if is_confirmed {
                chain.confirm();
            }
            assert_eq!(chain.lost(lost), expected, "{bytes:?} {lost}");
            assert_eq!(chain.lost(lost), [], "it is lost already");
            assert!(
                (0..lost).all(|index| chain.is_in(index)),
                "{bytes:?} {lost}"
            );
        }
        let mut chain = three();
        assert_eq!(chain.break_at(1), [LeaveOut(1), LeaveOut(2)]);
        assert_eq!(chain.break_at(1), [], "that came too late");
        assert_eq!(come(&mut chain, [SIZE, SIZE, 0], seconds(1)), []);
        assert_eq!(chain.confirm(), [Finish(0)]);
        chain.landed(0);
        chain.landed(1);
        assert!(chain.is_over() && !chain.has_landed(1));
    }

    /// Without a wait for it, the loop would spin while a host writes a large file to its disk.
    #[test]
    fn a_host_that_still_writes_is_waited_for_although_the_first_has_left_or_has_the_file() {
        let mut chain = three();
        assert_eq!(chain.awaited(), Some(0));
        come(&mut chain, [SIZE; 3], seconds(1));
        chain.confirm();
        assert_eq!(chain.awaited(), Some(0));
        chain.landed(0);
        assert_eq!(chain.awaited(), Some(1));
        chain.lost(1);
        assert_eq!(chain.awaited(), Some(2));
        chain.landed(2);
        assert_eq!((chain.awaited(), chain.is_over()), (None, true));
        let mut chain = three();
        come(&mut chain, [SIZE; 3], seconds(1));
        chain.confirm();
        chain.lost(0);
        assert_eq!((chain.awaited(), chain.is_over()), (Some(1), false));
    }

    #[test]
    fn who_gets_nothing_although_there_is_something_delays_others() {
        // what hosts have after 9 s, and who is late after 11 s
        let table = [
            ([9 * MB, 9 * MB, 9 * MB], None),
            ([9 * MB, 9 * MB, 2 * MB], None),
            ([9 * MB, 0, 0], Some(1)),
            ([9 * MB, 9 * MB, 0], Some(2)),
            ([0, 0, 0], Some(0)),
        ];
        for (there, late) in table {
            let mut chain = three();
            chain.arrived(0, there[0].min(MB), seconds(0));
            assert_eq!(chain.find_delay(seconds(0)), None);
            come(&mut chain, there, seconds(9));
            assert_eq!(chain.find_delay(seconds(11)), late, "{there:?}");
        }
        // what waits here for its turn comes on top of it
        let mut chain = Chain::new(SIZE, 1, seconds(5));
        chain.joined(0, seconds(0));
        assert_eq!(chain.find_delay(seconds(15)), None);
        assert_eq!(chain.find_delay(seconds(16)), Some(0));
        chain.fed(seconds(16));
        assert_eq!(chain.find_delay(seconds(16)), None);
        // who does not begin
        let mut chain = Chain::new(SIZE, 2, Duration::ZERO);
        chain.joined(1, seconds(1));
        assert_eq!(chain.find_delay(seconds(30)), None);
        assert_eq!(chain.find_delay(seconds(31)), Some(0));
    }

    #[test]
    fn who_is_much_slower_than_the_one_before_delays_others() {
        // megabytes a second of hosts 0, 1 and 2, and who is slow after 6 s
        let table = [
            ([100, 100, 100], None),
            ([100, 40, 40], None),
            ([100, 30, 30], Some(1)),
            ([100, 100, 10], Some(2)),
            // all are slow: the uplink is
            ([10, 3, 3], None),
        ];
        for (rates, slow) in table {
            let mut chain = three();
            for second in 1..=7 {
                let there = rates.map(|rate| rate * (second - 1) * MB + 1);
                come(&mut chain, there, seconds(second));
            }
            assert_eq!(chain.find_delay(seconds(7)), slow, "{rates:?}");
        }
    }

    #[test]
    fn a_host_that_takes_back_what_it_has_reported_harms_nobody() {
        let mut chain = three();
        come(&mut chain, [500 * MB, 300 * MB, 0], seconds(1));
        for second in 2..9 {
            come(&mut chain, [500 * MB + second, 0, 0], seconds(second));
            assert_eq!(chain.find_delay(seconds(second)), None);
        }
        assert_eq!(chain.arrived_bytes(1), 300 * MB);
    }
}
