//! Finds the process for which the others wait, from when the kernel last saw data on the TCP
//! connections between a job's processes. It works without Python too.
//!
//! Data that a process has not read names it: it does not read, or it waits first for another
//! process, which then has not read this one's data. A process in a system call that receives waits
//! too, perhaps for other data.
//!
//! Where everything was read, the kernel knows the order of events at each end: a process that sent
//! data after its peer's last data arrived was not answered. Both times come from one clock and
//! belong to one pair of processes, so differences between the hosts' clocks, the moments when they
//! were asked and the time that data takes do not matter. Times are counted in ticks of the kernel,
//! and a peer that answers at once needs some too, so small differences count as none.
//!
//! That alone names no process: the last one of a stream receives and never answers, as one that is
//! missing does. So the stacks must show that one process does not wait for others, while all
//! others do, or may wait for it by their connections. This process must also have left one of them
//! unanswered, or a graph server has, which holds its answer back until this process asks too, as
//! in a barrier.
//!
//! No process is named while data still moves, if the network loses data, or if a stack is unknown.

use record::stacks::{self, Member, ProcessState, Wait};
use record::{Connection, Role, Stack, term};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A tick of the kernel takes up to 10 ms; when two times are compared, one may just have ended.
const TICK_MS: u32 = 12;
/// The answer to the last data that a process sent may take this many round trips.
const ROUND_TRIPS: u32 = 2;
/// If connections carried data within this time, the job makes progress.
const QUIET_MS: u32 = 1000;
/// Data that was unacknowledged for this long was lost, or its host hangs. The kernel resends it
/// after 0.2 to 1 s.
const UNACKNOWLEDGED_MS: u32 = 3000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// The process for which the others wait.
    pub culprit: Option<Member>,
    /// Certain facts about it, and about connections that carry no data, as sentences without full
    /// stops.
    pub sentences: Vec<String>,
    /// Which processes wait for which, the longest wait first.
    pub waits: Vec<Awaited>,
    /// Since when no process has sent data to another one; `None` if none ever did.
    pub still: Option<Duration>,
}

/// A process of the job or one of its children: whose it is, and the index of its stack.
type Party = (Member, usize);

/// What a process and a peer sent each other over all connections between them: DGL has one for
/// each direction.
#[derive(Default)]
struct Exchange {
    since_sent_ms: Option<u32>,
    since_received_ms: Option<u32>,
    round_trip_us: u32,
    unread_bytes: u64,
}

impl Exchange {
    fn add(&mut self, connection: &Connection) {
        let latest = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        self.since_sent_ms = latest(self.since_sent_ms, connection.since_sent_ms);
        self.since_received_ms = latest(self.since_received_ms, connection.since_received_ms);
        self.round_trip_us = self
            .round_trip_us
            .max(connection.round_trip_us.unwrap_or(0));
        self.unread_bytes += u64::from(connection.unread_bytes);
    }

    /// Whether the process sent data after its peer's last data arrived. A peer that never sends
    /// anything does not answer.
    fn is_unanswered(&self) -> bool {
        is_later(self.since_sent_ms, self.since_received_ms, 0)
    }
}

/// Whether the first of two events was later than the second by more than these round trips
/// explain. Both are given by how long ago they were.
fn is_later(first_ms: Option<u32>, second_ms: Option<u32>, round_trips_us: u32) -> bool {
    let margin = TICK_MS.saturating_add(round_trips_us.div_ceil(1000));
    first_ms
        .zip(second_ms)
        .is_some_and(|(first, second)| second.saturating_sub(first) > margin)
}

#[derive(Default)]
struct Exchanges {
    /// By the clock of the first process's host.
    by_pair: BTreeMap<(Party, Party), Exchange>,
    /// Processes that wait for their own answer, as rank 0 does, which has torch's store.
    wait_for_themselves: BTreeSet<Member>,
    lost: Vec<UnacknowledgedData>,
}

impl Silence {
    /// Concludes from the connections of these stacks. If they are not of the whole job, no process
    /// is named, because the others may wait for one that is unknown. If a job has been inactive
    /// for `idle`, connections that carried data within that time are left out: torch's store and
    /// NCCL's watchdog, for instance, only poll.
    pub fn of(stacks: &[Stack], is_whole: bool, idle: Option<Duration>) -> Silence {
        let idle_ms = idle.map_or(0, term::millis);
        let all = Exchanges::of(stacks, u32::try_from(idle_ms).unwrap_or(u32::MAX));
        let mut silence = all.silence();
        if is_whole && silence.sentences.is_empty() && !all.is_moving() {
            silence.culprit = all.culprit(stacks);
        }
        let sentence = silence.culprit.map(|member| all.sentence(member));
        silence.sentences.extend(sentence);
        silence
    }
}

/// A process, and all that wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    pub silent: Member,
    pub waiting: BTreeSet<Member>,
    /// How long ago the last data arrived from the process that has waited longest.
    pub since_ms: u32,
    /// Bytes that arrived and that it has not read.
    pub unread_bytes: u64,
}

impl Awaited {
    /// For example `data of workers 1 and 3 came in 5.8 s ago, and it has not answered`.
    pub fn words(&self) -> String {
        let waiting = stacks::names(&self.waiting.iter().copied().collect::<Vec<_>>());
        let answer = match self.unread_bytes {
            0 => "it has not answered".to_owned(),
            unread => format!("it has not read {}", term::bytes(unread)),
        };
        format!(
            "data of {waiting} came in {} ago, and {answer}",
            ago(self.since_ms)
        )
    }
}

/// Whether the main thread is in a system call that receives data or waits for some.
fn receives(stack: &Stack) -> bool {
    let state = stack.state.as_ref();
    const CALLS: [&str; 9] = [
        "recvfrom",
        "recvmsg",
        "read",
        "poll",
        "ppoll",
        "select",
        "pselect6",
        "epoll_wait",
        "epoll_pwait",
    ];
    let call = stack
        .main_thread()
        .and_then(|main| main.system_call.as_deref());
    call.is_some_and(|call| CALLS.contains(&call)) || state.is_some_and(ProcessState::receives)
}

struct UnacknowledgedData {
    sender: Member,
    from: IpAddr,
    to: IpAddr,
    bytes: u64,
    since_ms: u32,
}

impl UnacknowledgedData {
    fn new(sender: Member, connection: &Connection) -> Option<UnacknowledgedData> {
        let is_lost = connection.unacknowledged_bytes > 0
            && connection.since_acknowledged_ms >= UNACKNOWLEDGED_MS;
        is_lost.then(|| UnacknowledgedData {
            sender,
            from: connection.local.ip(),
            to: connection.peer.ip(),
            bytes: connection.unacknowledged_bytes.into(),
            since_ms: connection.since_acknowledged_ms,
        })
    }

    /// Names the one host at an end of all these connections, otherwise the hosts to which the data
    /// goes.
    fn sentences(lost: &[UnacknowledgedData]) -> Vec<String> {
        let receivers: BTreeSet<IpAddr> = lost.iter().map(|data| data.to).collect();
        let senders = lost.iter().map(|data| data.from);
        let hosts: BTreeSet<IpAddr> = senders.chain(receivers.iter().copied()).collect();
        let common: Vec<IpAddr> = hosts
            .into_iter()
            .filter(|host| lost.iter().all(|data| [data.from, data.to].contains(host)))
            .collect();
        if let ([host], true) = (&common[..], receivers.len() > 1) {
            let (bytes, senders, since) = UnacknowledgedData::sum(lost.iter());
            return vec![format!(
                "the network loses data to and from {host}: {bytes} of {senders} has not been \
                 acknowledged for {since}"
            )];
        }
        receivers.into_iter().map(|host| {
            let to_host = lost.iter().filter(|data| data.to == host);
            let (bytes, senders, since) = UnacknowledgedData::sum(to_host);
            format!(
                "{host} has not acknowledged {bytes} of {senders} for {since}: it stands still, or \
                 the network loses them"
            )
        }).collect()
    }

    /// The bytes, whose they are, and for how long, in words.
    fn sum<'a>(lost: impl Iterator<Item = &'a UnacknowledgedData>) -> (String, String, String) {
        let (mut senders, mut bytes, mut since_ms) = (BTreeSet::new(), 0, 0);
        for data in lost {
            senders.insert(data.sender);
            bytes += data.bytes;
            since_ms = since_ms.max(data.since_ms);
        }
        let senders = stacks::names(&senders.into_iter().collect::<Vec<_>>());
        (term::bytes(bytes), senders, ago(since_ms))
    }
}

impl Exchanges {
    /// Concludes nothing from connections that carried data within `idle_ms`.
    fn of(stacks: &[Stack], idle_ms: u32) -> Exchanges {
        /// The host, only for addresses that every host has, such as 127.0.0.1; and both addresses.
        type ConnectionKey = (Option<u32>, SocketAddr, SocketAddr);
        let mut ends: HashMap<ConnectionKey, Option<(Party, &Connection)>> = HashMap::new();
        for (index, stack) in stacks.iter().enumerate() {
            let Some(member) = stack.role.zip(stack.rank) else {
                continue;
            };
            for connection in &stack.connections {
                let host = connection.local.ip().is_loopback().then_some(stack.host);
                let end = ends
                    .entry((host, connection.local, connection.peer))
                    .or_insert(Some(((member, index), connection)));
                // a child has its parent's connections too; no other processes share one
                if end.is_some_and(|((other, _), _)| other != member) {
                    *end = None;
                }
            }
        }
        let mut all = Exchanges::default();
        for ((host, local, peer), end) in &ends {
            let Some((process, connection)) = *end else {
                continue;
            };
            let lost = UnacknowledgedData::new(process.0, connection);
            all.lost.extend(lost);
            let Some((peer, _)) = ends.get(&(*host, *peer, *local)).copied().flatten() else {
                continue;
            };
            if connection.since_moved_ms() < Some(idle_ms) {
                continue;
            }
            if process.0 != peer.0 {
                all.by_pair
                    .entry((process, peer))
                    .or_default()
                    .add(connection);
            } else if is_later(connection.since_received_ms, connection.since_sent_ms, 0) {
                all.wait_for_themselves.insert(process.0);
            }
        }
        all
    }

    fn silence(&self) -> Silence {
        Silence {
            culprit: None,
            sentences: UnacknowledgedData::sentences(&self.lost),
            waits: if self.is_moving() {
                Vec::new()
            } else {
                self.waits()
            },
            still: self.still_ms().map(|ms| Duration::from_millis(ms.into())),
        }
    }

    fn still_ms(&self) -> Option<u32> {
        let exchanges = self.by_pair.values();
        exchanges.filter_map(|one| one.since_sent_ms).min()
    }

    fn is_moving(&self) -> bool {
        self.still_ms().is_some_and(|ms| ms < QUIET_MS)
    }

    fn culprit(&self, stacks: &[Stack]) -> Option<Member> {
        let receive: BTreeSet<Member> = stacks
            .iter()
            .filter(|stack| receives(stack))
            .filter_map(Stack::member)
            .collect();
        if let [member] = self.non_readers(&receive)[..] {
            return Some(member);
        }
        let waits = self.waits_by_stack(stacks)?;
        let at_work: Vec<Member> = waits
            .iter()
            .filter(|(_, wait)| wait.is_none())
            .map(|(member, _)| *member)
            .filter(|member| !self.wait_for_themselves.contains(member))
            .collect();
        if at_work.is_empty() {
            return self.last_receiver(stacks);
        }
        let awaited = self.awaited();
        let only: Vec<&Member> = at_work
            .iter()
            .filter(|silent| {
                at_work
                    .iter()
                    .filter(|member| member != silent)
                    .all(|member| leads_to(&awaited, *member, **silent))
            })
            .collect();
        let [member] = only[..] else {
            return None;
        };
        let holds_answers = |silent: &Member| waits.get(silent) == Some(&Some(Wait::Requests));
        let mut silent = self.waits().into_iter().map(|wait| wait.silent);
        let is_silent = self.last_received(*member).is_some()
            || silent.any(|silent| silent == *member || holds_answers(&silent));
        let is_awaited = waits.values().flatten().any(|wait| *wait != Wait::Requests)
            || receive.iter().any(|other| other != member);
        (is_silent && is_awaited).then_some(*member)
    }

    /// If no stack is known and all processes may wait: the only one that has received data and
    /// sent none since, if all others are in a lock of the kernel, as in gloo, and it is not: a
    /// Python up to 3.10 sleeps as if it waited for data. In a lock too, it may have been sent data
    /// by those who came later, and wait for one that called another operation.
    fn last_receiver(&self, stacks: &[Stack]) -> Option<Member> {
        let waits = self.waits();
        let silent = waits.iter().map(|wait| wait.silent);
        let silent: Vec<Member> = silent
            .filter(|member| self.last_received(*member).is_some())
            .collect();
        let [silent] = silent[..] else {
            return None;
        };
        let is_clear = |stack: &Stack| {
            let is_locked = stack.state.as_ref().is_some_and(ProcessState::is_locked);
            let is_silent = stack.member() == Some(silent);
            stack.threads.is_empty() && is_locked != is_silent && stack.role != Some(Role::Server)
        };
        let mut members = stacks.iter().filter(|stack| stack.member().is_some());
        members.all(is_clear).then_some(silent)
    }

    /// How each process waits for others by its stack, if it does. `None` if that is unknown of
    /// one, or if it waits for its samplers, which may wait for others in turn.
    fn waits_by_stack(&self, stacks: &[Stack]) -> Option<BTreeMap<Member, Option<Wait>>> {
        let with_peers: BTreeSet<Member> = self
            .by_pair
            .keys()
            .map(|(party, _)| *party)
            .filter(|(_, index)| stacks[*index].parent.is_some())
            .map(|(member, _)| member)
            .collect();
        let known: BTreeMap<Member, Option<Wait>> = stacks
            .iter()
            .filter_map(|stack| {
                let (member, wait) = (stack.member()?, stack.wait()?);
                match wait {
                    Some(Wait::Samplers) if with_peers.contains(&member) => None,
                    Some(Wait::Samplers | Wait::Threads) => Some((member, None)),
                    wait => Some((member, wait)),
                }
            })
            .collect();
        stacks
            .iter()
            .filter_map(|stack| stack.role.zip(stack.rank))
            .all(|member| known.contains_key(&member))
            .then_some(known)
    }

    fn exchanges_of(&self, member: Member) -> impl Iterator<Item = (Member, &Exchange)> {
        self.by_pair
            .iter()
            .filter(move |((process, _), _)| process.0 == member)
            .map(|((_, peer), exchange)| (peer.0, exchange))
    }

    fn since_sent_ms(&self, member: Member) -> Option<u32> {
        self.exchanges_of(member)
            .filter_map(|(_, exchange)| exchange.since_sent_ms)
            .min()
    }

    /// When data last came in, if later than any that the process sent, and no answer to it.
    fn last_received(&self, member: Member) -> Option<u32> {
        let last = self
            .exchanges_of(member)
            .map(|(_, exchange)| exchange)
            .filter(|exchange| exchange.since_received_ms.is_some())
            .min_by_key(|exchange| exchange.since_received_ms)?;
        let round_trips_us = last.round_trip_us.saturating_mul(ROUND_TRIPS);
        let is_later = is_later(
            last.since_received_ms,
            self.since_sent_ms(member),
            round_trips_us,
        );
        last.since_received_ms.filter(|_| is_later)
    }

    /// The process for which each process waits, if it waits for a single one.
    fn awaited(&self) -> BTreeMap<Member, Member> {
        let members: BTreeSet<Member> = self.by_pair.keys().map(|(party, _)| party.0).collect();
        members
            .into_iter()
            .filter_map(|member| Some((member, self.awaited_by(member)?)))
            .collect()
    }

    /// The only process for which that one waits, although its stack may not show it: of the data
    /// that it sent last, only that to this one was not answered.
    fn awaited_by(&self, member: Member) -> Option<Member> {
        let last_ms = self
            .since_sent_ms(member)
            .map(|ms| ms.saturating_add(TICK_MS));
        let silent: BTreeSet<Member> = self
            .exchanges_of(member)
            .filter(|(_, one)| one.is_unanswered() && one.since_sent_ms <= last_ms)
            .map(|(peer, _)| peer)
            .collect();
        silent.first().copied().filter(|_| silent.len() == 1)
    }

    /// The reader, the sender, and how many bytes the reader has not read.
    fn unread(&self) -> impl Iterator<Item = (Member, Member, u64)> {
        self.by_pair
            .iter()
            .map(|((reader, sender), one)| (reader.0, sender.0, one.unread_bytes))
            .filter(|(.., bytes)| *bytes > 0)
    }

    /// The processes that have not read something, except those that may wait for another one
    /// first: it has not read their data, or their system call receives.
    fn non_readers(&self, receive: &BTreeSet<Member>) -> Vec<Member> {
        let waiting: BTreeSet<Member> = self.unread().map(|(_, sender, _)| sender).collect();
        let readers: BTreeSet<Member> = self.unread().map(|(reader, ..)| reader).collect();
        readers
            .difference(&waiting)
            .copied()
            .filter(|reader| !receive.contains(reader))
            .collect()
    }

    fn waits(&self) -> Vec<Awaited> {
        let mut of_silent: BTreeMap<Member, Awaited> = BTreeMap::new();
        for ((silent, waiting), at_silent) in &self.by_pair {
            let is_unanswered = self
                .by_pair
                .get(&(*waiting, *silent))
                .is_some_and(Exchange::is_unanswered);
            let Some(since_ms) = at_silent.since_received_ms.filter(|_| is_unanswered) else {
                continue;
            };
            let awaited = of_silent.entry(silent.0).or_insert_with(|| Awaited {
                silent: silent.0,
                waiting: BTreeSet::new(),
                since_ms: 0,
                unread_bytes: 0,
            });
            awaited.waiting.insert(waiting.0);
            awaited.since_ms = awaited.since_ms.max(since_ms);
            awaited.unread_bytes += at_silent.unread_bytes;
        }
        let mut waits: Vec<Awaited> = of_silent.into_values().collect();
        waits.sort_by_key(|wait| Reverse(wait.since_ms));
        waits
    }

    fn sentence(&self, culprit: Member) -> String {
        let name = stacks::names(&[culprit]);
        let unread = || self.unread().filter(|(reader, ..)| *reader == culprit);
        let bytes: u64 = unread().map(|(.., bytes)| bytes).sum();
        if bytes > 0 {
            let senders: BTreeSet<Member> = unread().map(|(_, sender, _)| sender).collect();
            let senders = stacks::names(&senders.into_iter().collect::<Vec<_>>());
            return format!(
                "{name} has not read {} that {senders} sent it",
                term::bytes(bytes)
            );
        }
        match self.last_received(culprit) {
            Some(ms) => format!(
                "data came in at {name} {} ago, and it has sent none since",
                ago(ms)
            ),
            None => {
                let sent = ago(self.since_sent_ms(culprit).unwrap_or_default());
                format!("all others wait, and {name} last sent data {sent} ago")
            }
        }
    }
}

/// Whether a process waits for `silent`, directly or through others.
fn leads_to(awaited: &BTreeMap<Member, Member>, member: Member, silent: Member) -> bool {
    let next = |member: &Member| awaited.get(member).copied();
    // some may wait for each other
    let mut passed = BTreeSet::new();
    std::iter::successors(next(&member), next)
        .take_while(|member| passed.insert(*member))
        .any(|member| member == silent)
}

fn ago(ms: u32) -> String {
    term::seconds(Duration::from_millis(ms.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Thread;

    /// Since when a process has sent nothing over a connection, and since when it has received
    /// nothing, in milliseconds beyond 2 seconds.
    type SilenceTimes = (Option<u32>, Option<u32>);

    fn address(of: u32, to: u32) -> SocketAddr {
        format!("10.77.0.{}:{}", of + 1, 5000 + to).parse().unwrap()
    }

    /// A process and its connections, each to the process of that number.
    fn process(role: Role, number: u32, connections: &[(u32, SilenceTimes)]) -> Stack {
        let ago = |ms: u32| 2000 + ms;
        let connection = |(peer, (sent, received)): &(u32, SilenceTimes)| Connection {
            local: address(number, *peer),
            peer: address(*peer, number),
            since_sent_ms: sent.map(ago),
            since_received_ms: received.map(ago),
            since_acknowledged_ms: sent.unwrap_or(0),
            segments_sent: 1,
            segments_received: 1,
            round_trip_us: Some(200),
            unacknowledged_bytes: 0,
            unsent_bytes: 0,
            unread_bytes: 0,
        };
        Stack {
            host: number,
            role: Some(role),
            rank: Some(number),
            connections: connections.iter().map(connection).collect(),
            ..Stack::default()
        }
    }

    fn both(sent: u32, received: u32) -> SilenceTimes {
        (Some(sent), Some(received))
    }

    fn workers(all: &[&[(u32, SilenceTimes)]]) -> Vec<Stack> {
        let workers = all.iter().zip(0..);
        workers
            .map(|(connections, number)| process(Role::Worker, number, connections))
            .collect()
    }

    /// Adds stacks: all wait in a collective, except process `busy`.
    fn with_stacks(stacks: &[Stack], busy: u32) -> Vec<Stack> {
        let mut stacks = stacks.to_vec();
        for stack in &mut stacks {
            let frame = if stack.rank == Some(busy) {
                "load (train.py:9)"
            } else {
                "all_reduce (torch/distributed/distributed_c10d.py:1322)"
            };
            let frames = vec![frame.to_owned()];
            let thread = Thread {
                frames,
                ..Thread::default()
            };
            stack.threads = vec![thread];
        }
        stacks
    }

    /// The process that is named if that one is at work.
    fn culprit(stacks: &[Stack], busy: u32) -> Option<u32> {
        let silence = Silence::of(&with_stacks(stacks, busy), true, None);
        silence.culprit.map(|(_, rank)| rank)
    }

    #[test]
    fn who_was_sent_something_and_has_sent_nothing_since_is_named() {
        // gloo's all_reduce on four hosts with different clocks; worker 1 sleeps
        let all_reduce = workers(&[
            &[(1, both(8356, 8376)), (3, both(8356, 8356))],
            &[(0, both(8888, 8868)), (2, both(8888, 8868))],
            &[(1, both(8204, 8224)), (3, both(8204, 8204))],
            &[(0, both(8176, 8176)), (2, both(8176, 8176))],
        ]);
        assert_eq!(culprit(&all_reduce, 1), Some(1));
        // it has answered all that it was sent
        assert_eq!(culprit(&all_reduce, 3), None);
        let silence = Silence::of(&with_stacks(&all_reduce, 1), true, None);
        let sentence = "data came in at worker 1 10.9 s ago, and it has sent none since";
        assert_eq!(silence.sentences, [sentence]);
        let words: Vec<String> = silence.waits.iter().map(Awaited::words).collect();
        assert_eq!(
            words,
            ["data of workers 0 and 2 came in 10.9 s ago, and it has not answered"]
        );

        // a ring in which each sends to the next one and gets nothing back; worker 2 sleeps
        let ring = workers(&[
            &[(1, (Some(700), None)), (2, (None, Some(760)))],
            &[(2, (Some(500), None)), (0, (None, Some(500)))],
            &[(0, (Some(860), None)), (1, (None, Some(800)))],
        ]);
        assert_eq!(culprit(&ring, 2), Some(2));
        assert_eq!(culprit(&ring, 1), None);
    }

    #[test]
    fn who_waits_is_not_the_cause_although_its_stack_does_not_show_it() {
        // each sends to the next worker; worker 0 loads data, and worker 3 waits in C++
        let ring = workers(&[
            &[(1, both(7556, 7328)), (3, both(8116, 7328))],
            &[(2, both(6364, 6356)), (0, both(6916, 7056))],
            &[(1, both(6292, 6316)), (3, both(6292, 6852))],
            &[(2, both(6892, 6332)), (0, both(6892, 7680))],
        ]);
        let mut stacks = with_stacks(&ring, 0);
        stacks[3].threads = stacks[0].threads.clone();
        let silence = Silence::of(&stacks, true, None);
        assert_eq!(silence.culprit, Some((Role::Worker, 0)));
        // worker 2 may be at work too
        stacks[2].threads = stacks[0].threads.clone();
        assert_eq!(Silence::of(&stacks, true, None).culprit, None);
    }

    #[test]
    fn what_round_trips_and_ticks_explain_names_nobody() {
        // each has received the answer to its data
        let over = |received| workers(&[&[(1, both(900, received))], &[(0, both(700, 700))]]);
        assert_eq!(culprit(&over(900), 0), None);
        assert_eq!(culprit(&over(888), 0), None);
        assert_eq!(culprit(&over(880), 0), Some(0));
        let mut far = over(500);
        for stack in &mut far {
            stack.connections[0].round_trip_us = Some(200_000);
        }
        assert_eq!(culprit(&far, 0), None);
        // two let a third wait
        let two = workers(&[
            &[(2, both(900, 800))],
            &[(2, both(900, 800))],
            &[(0, both(800, 900)), (1, both(800, 900))],
        ]);
        let mut both_busy = with_stacks(&two, 0);
        both_busy[1].threads = both_busy[0].threads.clone();
        assert_eq!(Silence::of(&both_busy, true, None).culprit, None);
        // unless one of them waits itself
        assert_eq!(culprit(&two, 1), Some(1));
    }

    #[test]
    fn who_cannot_be_judged_keeps_all_others_from_being_named() {
        let known: [&[_]; 2] = [&[(1, both(900, 800))], &[(0, both(700, 800))]];
        assert_eq!(culprit(&workers(&known), 0), Some(0));
        // one without a connection waits, if its stack shows that
        let mut three = with_stacks(&workers(&[known[0], known[1], &[]]), 0);
        assert_eq!(
            Silence::of(&three, true, None).culprit,
            Some((Role::Worker, 0))
        );
        three[2].threads.clear();
        assert_eq!(Silence::of(&three, true, None).culprit, None);
        // a source only sends
        let source: [&[_]; 2] = [&[(1, (Some(900), None))], &[(0, (None, Some(800)))]];
        assert_eq!(culprit(&workers(&source), 0), None);
        // all are at work
        let mut all = with_stacks(&workers(&known), 0);
        all[1].threads = all[0].threads.clone();
        assert_eq!(Silence::of(&all, true, None).culprit, None);
    }

    #[test]
    fn who_waits_for_samplers_that_may_wait_for_others_is_not_named() {
        let mut all = with_stacks(
            &workers(&[&[(1, both(900, 800))], &[(0, both(700, 800))]]),
            0,
        );
        let frames = [
            "recv (graphlearn_torch/channel/shm_channel.py:66)",
            "__next__ (graphlearn_torch/distributed/dist_loader.py:289)",
            "main (train.py:9)",
        ];
        all[0].threads[0].frames = frames.map(str::to_owned).to_vec();
        let mut sampler = process(Role::Worker, 0, &[(1, both(800, 800))]);
        sampler.parent = Some(1);
        sampler.connections[0].local.set_port(6000);
        all.push(sampler);
        // it has no connection to another process
        assert_eq!(
            Silence::of(&all, true, None).culprit,
            Some((Role::Worker, 0))
        );
        let mut peers = all[2].connections[0].clone();
        std::mem::swap(&mut peers.local, &mut peers.peer);
        all[1].connections.push(peers);
        assert_eq!(Silence::of(&all, true, None).culprit, None);
    }

    #[test]
    fn a_server_is_named_only_if_it_works_at_a_request() {
        // trainer 1 is in DGL's barrier, and server 0 does not answer
        let mut job = vec![
            process(Role::Server, 0, &[(1, both(900, 500)), (2, both(900, 908))]),
            process(Role::Trainer, 1, &[(0, both(500, 900))]),
            process(Role::Trainer, 2, &[(0, both(908, 900))]),
        ];
        assert_eq!(culprit(&job, 0), Some(0));
        // it waits for requests, so it keeps the answer until trainer 2 has come too
        let mut holds = with_stacks(&job, 2);
        holds[0].threads[0].frames = vec!["recv_request (dgl/distributed/rpc.py:781)".to_owned()];
        let silence = Silence::of(&holds, true, None);
        assert_eq!(silence.culprit, Some((Role::Trainer, 2)));
        let sentence = "all others wait, and trainer 2 last sent data 2.9 s ago";
        assert_eq!(silence.sentences, [sentence]);
        // no trainer waits
        holds[1].threads = holds[2].threads.clone();
        assert_eq!(Silence::of(&holds, true, None).culprit, None);
        // all of its answers have come in
        job[0].connections[0].since_sent_ms = Some(2500);
        job[1].connections[0].since_received_ms = Some(2500);
        assert_eq!(culprit(&job, 2), None);
    }

    #[test]
    fn who_asks_itself_waits() {
        // torch's store is in worker 0; worker 1 has not arrived
        let mut store = workers(&[
            &[(2, both(900, 500)), (1, both(900, 900))],
            &[(0, both(900, 900))],
            &[(0, both(500, 900))],
        ]);
        assert_eq!(culprit(&store, 0), Some(0));
        let mut own = store[0].connections[0].clone();
        own.peer = SocketAddr::new(own.local.ip(), 29500);
        let mut other = own.clone();
        std::mem::swap(&mut other.local, &mut other.peer);
        store[0].connections.extend([own, other]);
        assert_eq!(culprit(&store, 0), None);
    }

    #[test]
    fn connections_over_which_data_still_go_are_left_out() {
        let mut polls = workers(&[
            &[(1, both(9000, 8000)), (2, both(9000, 9000))],
            &[(0, both(8000, 9000))],
            &[(0, both(9000, 9000))],
        ]);
        for number in [0, 1] {
            let mut asks = polls[number].connections[0].clone();
            asks.local.set_port(6000);
            asks.peer.set_port(6000);
            (asks.since_sent_ms, asks.since_received_ms) = (Some(100), Some(100));
            polls[number].connections.push(asks);
        }
        assert_eq!(culprit(&polls, 0), None);
        let polls = with_stacks(&polls, 0);
        let silence = Silence::of(&polls, true, Some(Duration::from_secs(5)));
        assert_eq!(silence.culprit, Some((Role::Worker, 0)));
    }

    #[test]
    fn who_does_not_read_is_named_and_who_does_not_acknowledge_is_told() {
        let mut job = workers(&[&[(1, both(9000, 9000))], &[(0, both(9000, 9000))]]);
        job[1].connections[0].unread_bytes = 1_200_000;
        let silence = Silence::of(&job, true, None);
        assert_eq!(silence.culprit, Some((Role::Worker, 1)));
        assert_eq!(
            silence.sentences,
            ["worker 1 has not read 1.2 MB that worker 0 sent it"]
        );

        job[1].connections[0].unread_bytes = 0;
        job[0].connections[0].unacknowledged_bytes = 40_000;
        job[0].connections[0].since_acknowledged_ms = 64_000;
        // retransmissions count as sent data
        job[0].connections[0].since_sent_ms = Some(600);
        for known in [&job[..], &job[..1]] {
            let silence = Silence::of(known, true, None);
            assert_eq!(silence.culprit, None);
            let sentence = "10.77.0.2 has not acknowledged 40 kB of worker 0 for 1 min 4 s: it \
                            stands still, or the network loses them";
            assert_eq!(silence.sentences, [sentence]);
        }
    }

    #[test]
    fn without_stacks_the_kernel_shows_who_does_not_wait() {
        // worker 2 has received data and sent none since
        let silent = workers(&[
            &[(1, both(9000, 9500)), (2, both(9000, 9500))],
            &[(0, both(9500, 9000)), (2, both(9000, 9500))],
            &[(0, both(9500, 9000)), (1, both(9500, 9000))],
        ]);
        let (futex, poll) = (('S', "futex_wait_queue"), ('S', "do_poll"));
        let (recv, nanosleep, computes) =
            (('S', "wait_woken"), ('S', "hrtimer_nanosleep"), ('R', ""));
        for (states, is_named) in [
            ([futex, futex, nanosleep], true),
            ([recv, recv, nanosleep], true),
            ([futex, futex, computes], true),
            ([futex, futex, ('D', "nfs_wait")], true),
            ([futex, futex, ('S', "locks_lock_inode_wait")], true),
            // one that spins while it waits: its connections show for whom
            ([futex, computes, computes], true),
            // all seem to wait, and only it in another way
            ([futex, futex, poll], true),
            ([futex, poll, futex], false),
            ([poll; 3], false),
            // it may wait for one that called another operation
            ([futex; 3], false),
            ([futex, futex, ('S', "unknown")], false),
        ] {
            let mut stacks = silent.clone();
            for (stack, (letter, function)) in stacks.iter_mut().zip(states) {
                let function = (!function.is_empty()).then(|| function.to_owned());
                stack.state = Some(ProcessState { letter, function });
            }
            let expected = is_named.then_some((Role::Worker, 2));
            let culprit = Silence::of(&stacks, true, None).culprit;
            assert_eq!(culprit, expected, "{states:?}");
        }
    }

    #[test]
    fn without_stacks_who_is_at_the_end_of_a_stream_is_not_named() {
        // worker 0 evaluates, and all others wait for the next data of its stream
        let stream = workers(&[
            &[(1, both(20, 272)), (2, both(264, 260)), (3, both(256, 256))],
            &[(0, both(284, 12)), (2, both(12, 252)), (3, both(252, 248))],
            &[(3, both(92, 336)), (1, both(340, 96)), (0, both(340, 344))],
            &[(2, both(304, 60)), (0, both(304, 304)), (1, both(304, 304))],
        ]);
        assert_eq!(Silence::of(&stream, true, None).culprit, None);
        let silence = Silence::of(&with_stacks(&stream, 0), true, None);
        assert_eq!(silence.culprit, None);
    }

    #[test]
    fn who_reads_nothing_because_it_waits_for_another_one_is_not_named() {
        // worker 0 asks all others, and is to read their answers in turn; worker 1 is stopped
        let mut hub = workers(&[
            &[(1, both(900, 980)), (2, both(900, 890))],
            &[(0, both(980, 900))],
            &[(0, both(890, 900))],
        ]);
        hub[1].connections[0].unread_bytes = 1000;
        hub[0].connections[1].unread_bytes = 1000;
        let silence = Silence::of(&hub, true, None);
        assert_eq!(silence.culprit, Some((Role::Worker, 1)));
        // each waits for the other
        hub[1].connections[0].unread_bytes = 0;
        hub[2].connections[0].unread_bytes = 1000;
        assert_eq!(Silence::of(&hub, true, None).culprit, None);
    }

    #[test]
    fn who_waits_for_one_that_waits_for_another_is_not_named() {
        // worker 0 has sent all others the sum of their last values, and reads the next ones in
        // turn with recv of its own; worker 2 sleeps
        let mut star = workers(&[
            &[
                (1, both(900, 600)),
                (2, both(900, 1200)),
                (3, both(900, 600)),
            ],
            &[(0, both(600, 900))],
            &[(0, both(1200, 900))],
            &[(0, both(600, 900))],
        ]);
        star[0].connections[2].unread_bytes = 8;
        let star = with_stacks(&star, 2);
        let in_script = |calls: [Option<&str>; 4]| {
            let mut stacks = star.clone();
            for (stack, call) in stacks.iter_mut().zip(calls) {
                stack.threads[0].frames = vec!["exchange (train.py:9)".to_owned()];
                stack.threads[0].system_call = call.map(str::to_owned);
            }
            Silence::of(&stacks, true, None).culprit
        };
        let recv = Some("recvfrom");
        let named = Some((Role::Worker, 2));
        assert_eq!(in_script([recv, recv, None, recv]), named);
        assert_eq!(
            in_script([recv, recv, Some("clock_nanosleep"), recv]),
            named
        );
    }

    #[test]
    fn the_host_at_one_end_of_all_lost_data_is_told() {
        let mut ring = workers(&[
            &[(1, both(9000, 9000)), (2, both(9000, 9000))],
            &[(2, both(9000, 9000)), (0, both(9000, 9000))],
            &[(0, both(9000, 9000)), (1, both(9000, 9000))],
        ]);
        for stack in &mut ring[..2] {
            stack.connections[0].unacknowledged_bytes = 4000;
            stack.connections[0].since_acknowledged_ms = 32_500;
        }
        let sentence = "the network loses data to and from 10.77.0.2: 8.0 kB of workers 0 and 1 \
                        has not been acknowledged for 32.5 s";
        assert_eq!(Silence::of(&ring, true, None).sentences, [sentence]);
    }
}
