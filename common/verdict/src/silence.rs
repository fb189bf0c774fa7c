//! Finds the process for which the others wait, from the times at which the kernel last saw data on
//! each TCP connection between the processes of a job. It works without stacks and without Python.
//!
//! A process that computes, sleeps or is stopped between two operations has finished its part of
//! the last one, and its peers have begun the next one: data arrived after it last sent any. All
//! others have answered what they received, and wait. Both times belong to one end of a connection,
//! or to the connections of one process, so they come from one clock. The clocks of the hosts may
//! differ, and so may the times at which the hosts were asked.
//!
//! Times are counted in ticks of the kernel, and at the end of an operation the last data may
//! arrive a round trip after the last data was sent, so small differences count as none. If several
//! processes let their peers wait, those that wait for another one of them are not the cause. If
//! more than one is left, or a process has no connection to the job by which it can be judged, the
//! result names none.
//!
//! It names none while data still moves either. Times alone do not show it: the last process of a
//! stream receives and never answers, just as one that does not come. So stacks must confirm that
//! the process itself does not wait for others, and that at least one other process does.
//!
//! Data that a process has not read needs no stack: it is not there to read it, or it waits for
//! another process first, which then has not read what this one sent.

use record::stacks::{self, Member};
use record::{Connection, Role, Stack, term};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A tick of the kernel has up to 10 ms; when two times are compared, one tick may just have ended.
const TICK_MS: u32 = 12;
/// The answer to the last data that a process sent may take this many round trips.
const ROUND_TRIPS: u32 = 2;
/// A job whose connections carried data within this time makes progress.
const QUIET_MS: u32 = 1000;
/// Data that was not acknowledged for this long was lost, or its host hangs. The kernel sends it
/// again after 0.2 to 1 s.
const UNACKNOWLEDGED_MS: u32 = 3000;

/// The conclusions from the connections of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// The process for which the others wait.
    pub culprit: Option<Member>,
    /// Facts about it, and about connections that do not carry data, in sentences without their
    /// full stops. Empty where nothing is certain.
    pub sentences: Vec<String>,
    /// Which processes wait for which, beginning with the process for which others have waited
    /// longest.
    pub waits: Vec<Awaited>,
}

/// A connection of a process to another one of its job, as both see it.
struct PeerLink<'a> {
    own: &'a Connection,
    peer: Member,
    peers: &'a Connection,
}

impl PeerLink<'_> {
    /// How long ago the last data arrived at the peer, if it has not answered. A peer that never
    /// sends anything over this connection does not answer by it.
    fn awaited_ms(&self) -> Option<u32> {
        let sent = self.peers.since_sent_ms?;
        unanswered(Some(sent), self.peers)
    }
}

/// The connections of a process to others of its job.
#[derive(Default)]
struct ProcessLinks<'a> {
    links: Vec<PeerLink<'a>>,
    /// Whether it waits for its own answer, as rank 0 does, which has torch's store.
    waits_for_itself: bool,
}

/// The processes of a job.
type Nodes<'a> = BTreeMap<Member, ProcessLinks<'a>>;

impl ProcessLinks<'_> {
    /// How long ago data arrived after the process last sent any, if it cannot be the answer to
    /// that. `None` if this is unknown.
    fn unanswered_ms(&self) -> Option<Option<u32>> {
        let all = || self.links.iter().map(|link| link.own);
        let sent = all()
            .filter_map(|connection| connection.since_sent_ms)
            .min()?;
        let last = all().filter(|connection| connection.since_received_ms.is_some());
        let last = last.min_by_key(|connection| connection.since_received_ms)?;
        Some(unanswered(Some(sent), last))
    }

    /// Whether the process waits: what it sent last was not answered.
    fn waits(&self) -> bool {
        let sent = self.links.iter().filter_map(|link| link.own.since_sent_ms);
        let Some(last) = sent.min() else { return false };
        let is_last = |link: &&PeerLink<'_>| {
            let sent = link.own.since_sent_ms;
            sent.is_some_and(|sent| sent.saturating_sub(last) <= TICK_MS)
        };
        let mut last = self.links.iter().filter(is_last);
        last.any(|link| link.awaited_ms().is_some())
    }

    fn unread_bytes(&self) -> u64 {
        let unread = self.links.iter().map(|link| link.own.unread_bytes);
        unread.map(u64::from).sum()
    }
}

/// How long ago the last data of a connection arrived, if it arrived after the other data was sent
/// and is no answer to it.
fn unanswered(since_sent_ms: Option<u32>, connection: &Connection) -> Option<u32> {
    let received = connection.since_received_ms?;
    let round_trip_ms = connection.round_trip_us.unwrap_or(0).div_ceil(1000);
    let margin = TICK_MS.saturating_add(round_trip_ms.saturating_mul(ROUND_TRIPS));
    let is_later = since_sent_ms.is_none_or(|sent| sent.saturating_sub(received) > margin);
    is_later.then_some(received)
}

impl Silence {
    /// Concludes from the connections of these stacks. If a job has been inactive for `idle`,
    /// connections that carried data within that time are left out: torch's store and NCCL's
    /// watchdog, for instance, only ask repeatedly whether something has arrived.
    pub fn of(stacks: &[Stack], idle: Option<Duration>) -> Silence {
        let idle_ms = idle.map_or(0, term::millis);
        let (nodes, lost) = nodes(stacks, u32::try_from(idle_ms).unwrap_or(u32::MAX));
        let mut silence = Silence::of_nodes(&nodes, &lost);
        if silence.sentences.is_empty() && !is_moving(&nodes) {
            silence.culprit = culprit(&nodes, stacks);
        }
        let sentence = silence.culprit.map(|member| sentence(member, &nodes));
        silence.sentences.extend(sentence);
        silence
    }

    /// Concludes from the connections of some processes of a job. One that is unknown may be the
    /// process for which the others wait, so none is named.
    pub fn of_some(stacks: &[Stack]) -> Silence {
        let (nodes, lost) = nodes(stacks, 0);
        Silence::of_nodes(&nodes, &lost)
    }

    /// Who waits for whom, and which data was lost.
    fn of_nodes(nodes: &Nodes<'_>, lost: &[UnacknowledgedData]) -> Silence {
        Silence {
            culprit: None,
            sentences: UnacknowledgedData::sentences(lost),
            waits: if is_moving(nodes) {
                Vec::new()
            } else {
                waits(nodes)
            },
        }
    }
}

/// Whether data still moves between the processes.
fn is_moving(nodes: &Nodes<'_>) -> bool {
    let links = nodes.values().flat_map(|node| &node.links);
    let moved_ms = links.filter_map(|link| link.own.since_moved_ms()).min();
    moved_ms.is_some_and(|ms| ms < QUIET_MS)
}

/// Whether the stacks confirm that the others wait for this process: it does not wait for others
/// itself, and another process waits. Between two operations that all have finished, some process
/// has also received the last data; and who is at the end of a stream never answers.
fn lets_others_wait(member: Member, stacks: &[Stack]) -> bool {
    let known = stacks.iter().filter_map(|stack| {
        let of = stack.member()?;
        Some((of, stacks::wait(stack.main_frames()?)))
    });
    let (own, others): (Vec<_>, Vec<_>) = known.partition(|(of, _)| *of == member);
    let waits_for_others =
        |wait: stacks::Wait| wait.is_for_others() || wait == stacks::Wait::Servers;
    let goes_on = |(_, wait): &(Member, Option<stacks::Wait>)| !wait.is_some_and(waits_for_others);
    !own.is_empty() && own.iter().all(goes_on) && others.iter().any(|(_, wait)| wait.is_some())
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
    /// Describes it: `data of workers 1 and 3 came in 5.8 s ago, and it has not answered`.
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

/// Data of a connection that was not acknowledged.
struct UnacknowledgedData {
    sender: Member,
    from: IpAddr,
    to: IpAddr,
    bytes: u64,
    since_ms: u32,
}

impl UnacknowledgedData {
    /// Describes all such data: by the host that is at one end of each of these connections, if
    /// there is a single one, and otherwise by the hosts to which it goes.
    fn sentences(lost: &[UnacknowledgedData]) -> Vec<String> {
        let receivers: BTreeSet<IpAddr> = lost.iter().map(|data| data.to).collect();
        let senders = lost.iter().map(|data| data.from);
        let hosts: BTreeSet<IpAddr> = senders.chain(receivers.iter().copied()).collect();
        let is_at_each =
            |host: &IpAddr| lost.iter().all(|data| [data.from, data.to].contains(host));
        let common: Vec<IpAddr> = hosts.into_iter().filter(is_at_each).collect();
        if let ([host], true) = (&common[..], receivers.len() > 1) {
            let (bytes, senders, since) = UnacknowledgedData::sum(lost.iter());
            return vec![format!(
                "the network loses data to and from {host}: {bytes} of {senders} has not been \
                 acknowledged for {since}"
            )];
        }
        let sentence = |host: IpAddr| {
            let to_host = lost.iter().filter(|data| data.to == host);
            let (bytes, senders, since) = UnacknowledgedData::sum(to_host);
            format!(
                "{host} has not acknowledged {bytes} of {senders} for {since}: it stands still, or \
                 the network loses them"
            )
        };
        receivers.into_iter().map(sentence).collect()
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

/// The processes of the job with their connections to each other, and what was lost between them.
fn nodes(stacks: &[Stack], idle_ms: u32) -> (Nodes<'_>, Vec<UnacknowledgedData>) {
    /// The host, for addresses that every host has, such as 127.0.0.1; and both addresses.
    type ConnectionKey = (Option<u32>, SocketAddr, SocketAddr);
    let mut nodes = Nodes::new();
    let mut ends: HashMap<ConnectionKey, Option<(Member, &Connection)>> = HashMap::new();
    for stack in stacks {
        let Some(member) = stack.role.zip(stack.rank) else {
            continue;
        };
        nodes.entry(member).or_default();
        for connection in &stack.connections {
            let host = connection.local.ip().is_loopback().then_some(stack.host);
            let end = ends.entry((host, connection.local, connection.peer));
            let end = end.or_insert(Some((member, connection)));
            // a child has its parent's connections too, so two processes may have this one
            if end.is_some_and(|(other, _)| other != member) {
                *end = None;
            }
        }
    }
    let mut lost = Vec::new();
    for ((host, local, peer), end) in &ends {
        let Some((member, connection)) = *end else {
            continue;
        };
        let is_lost = connection.unacknowledged_bytes > 0
            && connection.since_acknowledged_ms >= UNACKNOWLEDGED_MS;
        if is_lost {
            lost.push(UnacknowledgedData {
                sender: member,
                from: local.ip(),
                to: peer.ip(),
                bytes: connection.unacknowledged_bytes.into(),
                since_ms: connection.since_acknowledged_ms,
            });
        }
        let Some((peer, peers)) = ends.get(&(*host, *peer, *local)).copied().flatten() else {
            continue;
        };
        if connection.since_moved_ms() < Some(idle_ms) {
            continue;
        }
        let node = nodes.entry(member).or_default();
        if peer == member {
            node.waits_for_itself |= unanswered(connection.since_sent_ms, connection).is_some();
        } else {
            let own = connection;
            node.links.push(PeerLink { own, peer, peers });
        }
    }
    (nodes, lost)
}

/// The processes that have not read something, without those whose own data is not read by another
/// one of them: these may wait for that one.
fn who_does_not_read(nodes: &Nodes<'_>) -> Vec<Member> {
    let links = nodes.values().flat_map(|node| &node.links);
    let unread = links.filter(|link| link.own.unread_bytes > 0);
    let waiting: BTreeSet<Member> = unread.map(|link| link.peer).collect();
    let is_first = |(member, node): &(&Member, &ProcessLinks<'_>)| {
        node.unread_bytes() > 0 && !waiting.contains(member)
    };
    let first = nodes.iter().filter(is_first);
    first.map(|(member, _)| *member).collect()
}

/// The process for which all others wait.
fn culprit(nodes: &Nodes<'_>, stacks: &[Stack]) -> Option<Member> {
    if let [member] = who_does_not_read(nodes)[..] {
        return Some(member);
    }
    let mut silent = Vec::new();
    for (member, node) in nodes {
        let is_silent = node.unanswered_ms()?.is_some() && !node.waits_for_itself && !node.waits();
        if is_silent && lets_others_wait(*member, stacks) {
            silent.push(*member);
        }
    }
    let [member] = silent[..] else {
        return None;
    };
    // a server may hold an answer back until the last trainer has arrived
    let mut trainers = nodes.iter().filter(|(one, _)| one.0 != Role::Server);
    let is_awaited = member.0 != Role::Server || trainers.all(|(_, node)| node.waits());
    is_awaited.then_some(member)
}

/// Which processes wait for which, the longest wait first.
fn waits(nodes: &Nodes<'_>) -> Vec<Awaited> {
    let mut of_silent: BTreeMap<Member, Awaited> = BTreeMap::new();
    for (member, node) in nodes {
        for link in &node.links {
            let Some(since_ms) = link.awaited_ms() else {
                continue;
            };
            let awaited = of_silent.entry(link.peer).or_insert_with(|| Awaited {
                silent: link.peer,
                waiting: BTreeSet::new(),
                since_ms: 0,
                unread_bytes: 0,
            });
            awaited.waiting.insert(*member);
            awaited.since_ms = awaited.since_ms.max(since_ms);
            awaited.unread_bytes += u64::from(link.peers.unread_bytes);
        }
    }
    let mut waits: Vec<Awaited> = of_silent.into_values().collect();
    waits.sort_by_key(|wait| Reverse(wait.since_ms));
    waits
}

/// Describes the process for which the others wait.
fn sentence(culprit: Member, nodes: &Nodes<'_>) -> String {
    let (name, node) = (stacks::names(&[culprit]), &nodes[&culprit]);
    let unread = node.unread_bytes();
    if unread > 0 {
        let unread_links = node.links.iter().filter(|link| link.own.unread_bytes > 0);
        let senders: BTreeSet<Member> = unread_links.map(|link| link.peer).collect();
        let senders = stacks::names(&senders.into_iter().collect::<Vec<_>>());
        let unread = term::bytes(unread);
        return format!("{name} has not read {unread} that {senders} sent it");
    }
    let since = ago(node.unanswered_ms().flatten().unwrap_or_default());
    format!("data came in at {name} {since} ago, and it has sent none since")
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
            let frame = match stack.rank == Some(busy) {
                true => "load (train.py:9)",
                false => "all_reduce (torch/distributed/distributed_c10d.py:1322)",
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

    /// The process that is named if its stack confirms it.
    fn culprit(stacks: &[Stack]) -> Option<u32> {
        let ranks = stacks.iter().filter_map(|stack| stack.rank);
        let silences = ranks.map(|busy| Silence::of(&with_stacks(stacks, busy), None));
        let named: Vec<u32> = silences
            .filter_map(|silence| silence.culprit)
            .map(|(_, rank)| rank)
            .collect();
        assert!(named.len() <= 1, "{named:?}");
        named.first().copied()
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
        assert_eq!(culprit(&all_reduce), Some(1));
        let silence = Silence::of(&with_stacks(&all_reduce, 1), None);
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
        assert_eq!(culprit(&ring), Some(2));
    }

    #[test]
    fn who_waits_for_another_one_is_not_the_cause() {
        // gloo's broadcast from worker 0, which sleeps: worker 1 was to pass it on to worker 3
        let broadcast = workers(&[
            &[(2, both(5872, 5800)), (1, both(5876, 5832))],
            &[(3, both(5428, 5372)), (0, both(5384, 5428))],
            &[(0, both(5460, 5544))],
            &[(1, both(5512, 5568))],
        ]);
        assert_eq!(culprit(&broadcast), Some(0));
    }

    #[test]
    fn what_round_trips_and_ticks_explain_names_nobody() {
        // each has received the answer to its data
        let over = |received| workers(&[&[(1, both(900, received))], &[(0, both(700, 700))]]);
        assert_eq!(culprit(&over(900)), None);
        assert_eq!(culprit(&over(888)), None);
        assert_eq!(culprit(&over(880)), Some(0));
        let mut far = over(500);
        for stack in &mut far {
            stack.connections[0].round_trip_us = Some(200_000);
        }
        assert_eq!(culprit(&far), None);
        // two let a third wait
        let two = workers(&[
            &[(2, both(900, 800))],
            &[(2, both(900, 800))],
            &[(0, both(800, 900)), (1, both(800, 900))],
        ]);
        let mut both_busy = with_stacks(&two, 0);
        both_busy[1].threads = both_busy[0].threads.clone();
        assert_eq!(Silence::of(&both_busy, None).culprit, None);
        // unless one of them waits itself
        let silence = Silence::of(&with_stacks(&two, 1), None);
        assert_eq!(silence.culprit, Some((Role::Worker, 1)));
    }

    #[test]
    fn who_cannot_be_judged_keeps_all_others_from_being_named() {
        let known: [&[_]; 2] = [&[(1, both(900, 800))], &[(0, both(700, 800))]];
        assert_eq!(culprit(&workers(&known)), Some(0));
        // one without a connection, and one that has never sent anything
        assert_eq!(culprit(&workers(&[known[0], known[1], &[]])), None);
        let source: [&[_]; 2] = [&[(1, (Some(900), None))], &[(0, (None, Some(800)))]];
        assert_eq!(culprit(&workers(&source)), None);
    }

    #[test]
    fn a_server_is_named_only_if_all_trainers_wait() {
        let job = |trainer_1| {
            let server = [(1, both(900, 500)), (2, both(900, 900))];
            vec![
                process(Role::Server, 0, &server),
                process(Role::Trainer, 1, &[(0, both(500, 900))]),
                process(Role::Trainer, 2, &[(0, trainer_1)]),
            ]
        };
        // trainer 2 has its answer: the server may keep the one to trainer 1 until it comes too
        assert_eq!(culprit(&job(both(900, 900))), None);
        let mut all_wait = job(both(480, 900));
        all_wait[0].connections[1].since_received_ms = Some(2480);
        assert_eq!(culprit(&all_wait), Some(0));
    }

    #[test]
    fn who_asks_itself_waits() {
        // torch's store is in worker 0; worker 1 has not arrived
        let mut store = workers(&[
            &[(2, both(900, 500)), (1, both(900, 900))],
            &[(0, both(900, 900))],
            &[(0, both(500, 900))],
        ]);
        assert_eq!(culprit(&store), Some(0));
        let mut own = store[0].connections[0].clone();
        own.peer = SocketAddr::new(own.local.ip(), 29500);
        let mut other = own.clone();
        std::mem::swap(&mut other.local, &mut other.peer);
        store[0].connections.extend([own, other]);
        assert_eq!(culprit(&store), None);
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
        assert_eq!(culprit(&polls), None);
        let polls = with_stacks(&polls, 0);
        let silence = Silence::of(&polls, Some(Duration::from_secs(5)));
        assert_eq!(silence.culprit, Some((Role::Worker, 0)));
    }

    #[test]
    fn who_does_not_read_is_named_and_who_does_not_acknowledge_is_told() {
        let mut job = workers(&[&[(1, both(9000, 9000))], &[(0, both(9000, 9000))]]);
        job[1].connections[0].unread_bytes = 1_200_000;
        let silence = Silence::of(&job, None);
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
            let silence = Silence::of(known, None);
            assert_eq!(silence.culprit, None);
            let sentence = "10.77.0.2 has not acknowledged 40 kB of worker 0 for 1 min 4 s: it \
                            stands still, or the network loses them";
            assert_eq!(silence.sentences, [sentence]);
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
        assert_eq!(Silence::of(&stream, None).culprit, None);
        let silence = Silence::of(&with_stacks(&stream, 0), None);
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
        let silence = Silence::of(&hub, None);
        assert_eq!(silence.culprit, Some((Role::Worker, 1)));
        // each waits for the other
        hub[1].connections[0].unread_bytes = 0;
        hub[2].connections[0].unread_bytes = 1000;
        assert_eq!(Silence::of(&hub, None).culprit, None);
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
        assert_eq!(Silence::of(&ring, None).sentences, [sentence]);
    }
}
