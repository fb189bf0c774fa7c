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
//! It names none while data still moves either. Where stacks were read, they must agree: the
//! process itself does not wait for others, and at least one other process does.

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
        let mut silence = Silence::of_nodes(&nodes, lost);
        if silence.sentences.is_empty() && !is_moving(&nodes) {
            silence.culprit = culprit(&nodes).filter(|member| {
                let does_not_read = nodes[member].unread_bytes() > 0;
                does_not_read || may_let_others_wait(*member, stacks)
            });
        }
        let sentence = silence.culprit.map(|member| sentence(member, &nodes));
        silence.sentences.extend(sentence);
        silence
    }

    /// Concludes from the connections of some processes of a job. One that is unknown may be the
    /// process for which the others wait, so none is named.
    pub fn of_some(stacks: &[Stack]) -> Silence {
        let (nodes, lost) = nodes(stacks, 0);
        Silence::of_nodes(&nodes, lost)
    }

    /// Who waits for whom, and which data was lost.
    fn of_nodes(nodes: &Nodes<'_>, lost: Vec<UnacknowledgedData>) -> Silence {
        Silence {
            culprit: None,
            sentences: lost.into_iter().map(|data| data.sentence()).collect(),
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

/// Whether the stacks, if there are any, agree that the others wait for this process: it does not
/// wait for others itself, and another process waits. Between two operations that all have
/// finished, some process has also received the last data.
fn may_let_others_wait(member: Member, stacks: &[Stack]) -> bool {
    let known = stacks.iter().filter_map(|stack| {
        let of = stack.member()?;
        Some((of, stacks::wait(stack.main_frames()?)))
    });
    let (own, others): (Vec<_>, Vec<_>) = known.partition(|(of, _)| *of == member);
    let mut own = own.into_iter().filter_map(|(_, wait)| wait);
    let somebody_waits = others.is_empty() || others.iter().any(|(_, wait)| wait.is_some());
    !own.any(|wait| wait.is_for_others() || wait == stacks::Wait::Servers) && somebody_waits
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

/// Data that a host does not acknowledge.
struct UnacknowledgedData {
    from: Vec<Member>,
    to: IpAddr,
    bytes: u64,
    since_ms: u32,
}

impl UnacknowledgedData {
    fn sentence(&self) -> String {
        format!(
            "{} has not acknowledged {} of {} for {}: it stands still, or the network loses them",
            self.to,
            term::bytes(self.bytes),
            stacks::names(&self.from),
            ago(self.since_ms)
        )
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
    let mut lost: BTreeMap<IpAddr, UnacknowledgedData> = BTreeMap::new();
    for ((host, local, peer), end) in &ends {
        let Some((member, connection)) = *end else {
            continue;
        };
        let is_lost = connection.unacknowledged_bytes > 0
            && connection.since_acknowledged_ms >= UNACKNOWLEDGED_MS;
        if is_lost {
            let lost = lost.entry(peer.ip()).or_insert_with(|| UnacknowledgedData {
                from: Vec::new(),
                to: peer.ip(),
                bytes: 0,
                since_ms: 0,
            });
            lost.from.push(member);
            lost.bytes += u64::from(connection.unacknowledged_bytes);
            lost.since_ms = lost.since_ms.max(connection.since_acknowledged_ms);
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
    for data in lost.values_mut() {
        data.from.sort_unstable();
        data.from.dedup();
    }
    (nodes, lost.into_values().collect())
}

/// The process for which all others wait.
fn culprit(nodes: &Nodes<'_>) -> Option<Member> {
    let unread = nodes.iter().filter(|(_, node)| node.unread_bytes() > 0);
    if let [member] = unread.map(|(member, _)| *member).collect::<Vec<_>>()[..] {
        return Some(member);
    }
    let mut silent = Vec::new();
    for (member, node) in nodes {
        if node.unanswered_ms()?.is_some() && !node.waits_for_itself && !node.waits() {
            silent.push(*member);
        }
    }
    let [member] = silent[..] else {
        return None;
    };
    // a server may hold an answer back until the last trainer has arrived
    let mut trainers = nodes.iter().filter(|(member, _)| member.0 != Role::Server);
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

    fn culprit(stacks: &[Stack]) -> Option<u32> {
        let silence = Silence::of(stacks, None);
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
        assert_eq!(culprit(&all_reduce), Some(1));
        let silence = Silence::of(&all_reduce, None);
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
        assert_eq!(culprit(&two), None);
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
}
