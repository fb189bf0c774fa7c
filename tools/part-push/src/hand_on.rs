//! Hands on large files for several hosts: they leave this machine once, and each host passes them
//! to the next. One loop serves all hosts of a chain, feeds [`Chain`] with what they report, and
//! carries out its actions.
//!
//! A chain carries a file from its first byte. A host that breaks or delays it, and the hosts
//! behind, get the rest from here like any other file.
//!
//! No host is trusted with the content. Once the whole file was read, this machine sends each host
//! the checksum over its own connection, and a host renames only a file that has it.

use crate::blocks::{self, AHEAD};
use crate::chain::{Action, Chain};
use crate::compression::Compression;
use crate::connection::PushConnection;
use crate::context::PushContext;
use crate::plan::{self, Delivery, DeliverySource, partial_key};
use crate::push;
use crate::reporter::{Outcome, Reporter};
use crate::target::Target;
use cli::progress::Route;
use rayon::prelude::*;
use remote::HostFault;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use transfer::content::FileSum;
use transfer::parts::Parts;
use transfer::sender::{self, Outlet, SourceFile};
use transfer::source::SourcePiece;
use wire::files::{
    BLOCK, FileEvent, FileFault, FileRequest, FileStep, HandOn, Open, PublicKey, Upstream,
};

/// How long the loop waits for one host, and so the longest wait of the others. Each check costs
/// some system calls for each host.
const TURN: Duration = Duration::from_millis(20);

/// The hosts that lack each large file which several hosts lack.
pub fn shared_files<'t, 'a>(targets: &'t [Target<'a>]) -> Vec<Vec<(&'t Target<'a>, &'a Delivery)>> {
    let mut by_file: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for target in targets {
        for delivery in target.lacking() {
            if plan::is_handed_on(delivery) {
                let hosts = by_file.entry(delivery.file).or_default();
                hosts.push((target, delivery));
            }
        }
    }
    by_file
        .into_values()
        .filter(|hosts| hosts.len() > 1)
        .collect()
}

pub fn all(targets: &[Target<'_>], context: &PushContext<'_>, reporter: &Reporter) {
    for hosts in shared_files(targets) {
        hand_on(hosts, context, reporter);
    }
}

/// Has hosts pass on one file, if less is sent from here than they lack together.
fn hand_on(hosts: Vec<(&Target<'_>, &Delivery)>, context: &PushContext<'_>, reporter: &Reporter) {
    let (_, delivery) = hosts[0];
    // a fault of the source is reported when the file is sent to each host
    let DeliverySource::File(path) = &delivery.source else {
        return;
    };
    let Ok(file) = delivery.open() else {
        return;
    };
    let give_back = |host: ChainMember<'_, '_>| host.give_back(context, reporter);
    let begin = |(target, delivery)| {
        let mut host = ChainMember::begin(target, delivery)?;
        host.compare(&file);
        if host.broken.is_none() {
            return Some(host);
        }
        give_back(host);
        None
    };
    // all hosts compare at the same time
    let mut members: Vec<_> = hosts.into_par_iter().filter_map(begin).collect();
    // hosts at one switch usually have neighbouring addresses, so the file crosses each link
    // between switches once
    members.sort_by_key(|host| u32::from(host.target.host.ip.0));
    for chain in members.chunks_mut(usize::from(context.args.jobs)) {
        let lacked: u64 = chain.iter().map(|host| host.lacks).sum();
        if lacked > delivery.bytes {
            let hands_on = Relay::new(chain, path, context, reporter).run();
            if !hands_on {
                // a firewall may drop connections between hosts
                break;
            }
        }
    }
    members.into_par_iter().for_each(give_back);
}

struct ChainMember<'t, 'a> {
    target: &'t Target<'a>,
    delivery: &'a Delivery,
    /// Given back at the end.
    connection: PushConnection,
    /// Its agent's port and public key.
    listens: (u16, PublicKey),
    /// In bytes of the file.
    lacks: u64,
    /// The number of the sync that it answers when it has begun the file.
    joins: u64,
    /// The number of the last sync that it has answered.
    answered: u64,
    /// Why nothing more arrives over the connection.
    broken: Option<HostFault>,
}

impl<'t, 'a> ChainMember<'t, 'a> {
    /// Takes over the connection of a host that may join the chain.
    fn begin(target: &'t Target<'a>, delivery: &'a Delivery) -> Option<ChainMember<'t, 'a>> {
        let mut state = target.lock();
        let listens = state.connection.as_ref()?.link.listens()?;
        let mut connection = state.connection.take()?;
        connection.link.hear_of_chains(true);
        Some(ChainMember {
            target,
            delivery,
            connection,
            listens,
            lacks: delivery.bytes,
            joins: 0,
            answered: 0,
            broken: None,
        })
    }

    fn compare(&mut self, file: &File) {
        match self.connection.resume(self.delivery, file) {
            Ok(kept) => self.lacks -= kept.parts.bytes(),
            Err(broken) => self.broken = Some(broken),
        }
    }

    /// Gives back the connection. If only a direct connection broke, the host gets the file over
    /// the login.
    fn give_back(mut self, context: &PushContext<'_>, reporter: &Reporter) {
        let link = &mut self.connection.link;
        link.hear_of_chains(false);
        let used = self.broken.map_or(Ok(()), |broken| {
            let (host, wire) = (self.target.host, context.wire.wire);
            reporter.copy.fall_back(host, link, broken, wire)
        });
        let mut state = self.target.lock();
        match used {
            Ok(()) => state.connection = Some(self.connection),
            Err(broken) => state.broken = Some(broken),
        }
    }
}

/// One file on its way to all hosts of a chain.
struct Relay<'r, 't, 'a> {
    members: &'r mut [ChainMember<'t, 'a>],
    chain: Chain,
    path: &'r Path,
    reporter: &'r Reporter,
    begun: Instant,
    compression: Compression,
    /// Of the bytes that were read.
    sum: FileSum,
    /// Bytes that left this machine.
    sent: u64,
    /// The first host that has received other content than was read here.
    refuses: Option<usize>,
}

impl<'r, 't, 'a> Relay<'r, 't, 'a> {
    fn new(
        members: &'r mut [ChainMember<'t, 'a>],
        path: &'r Path,
        context: &PushContext<'_>,
        reporter: &'r Reporter,
    ) -> Relay<'r, 't, 'a> {
        // a block waits for its turn before it is sent, and meanwhile the one before it has arrived
        let limit = context.limit.as_ref();
        let block_takes = limit.map_or(Duration::ZERO, |limit| limit.takes(2 * BLOCK));
        Relay {
            chain: Chain::new(members[0].delivery.bytes, members.len(), block_takes),
            members,
            path,
            reporter,
            begun: Instant::now(),
            compression: Compression::new(context.args.compress.wish()),
            sum: FileSum::default(),
            sent: 0,
            refuses: None,
        }
    }

    /// Serves all hosts until each has the file or has left the chain; returns whether one got the
    /// file from another.
    fn run(mut self) -> bool {
        let delivery = self.members[0].delivery;
        let Ok(()) = sender::send(&mut self, &[delivery]);
        self.turn_while(|relay| !relay.chain.is_over());
        for index in 0..self.members.len() {
            self.abandon(index, true);
        }
        self.report_refusal();
        (1..self.members.len()).any(|index| self.chain.has_landed(index))
    }

    fn turn_while(&mut self, goes_on: impl Fn(&Relay<'r, 't, 'a>) -> bool) {
        while goes_on(self) {
            self.turn(TURN);
        }
    }

    /// Sends and receives on all connections, and handles what has arrived. Waits for at most
    /// `limit` for one host.
    fn turn(&mut self, limit: Duration) {
        let awaited = self.chain.awaited();
        for index in 0..self.members.len() {
            let is_awaited = awaited == Some(index);
            let limit = if is_awaited { limit } else { Duration::ZERO };
            if let Err(broken) = self.serve(index, limit) {
                self.lose(index, broken);
            }
        }
        if let Some(late) = self.chain.find_delay(self.begun.elapsed()) {
            let actions = self.chain.break_at(late);
            self.act(actions);
        }
    }

    fn lose(&mut self, index: usize, broken: HostFault) {
        self.members[index].broken = Some(broken);
        let actions = self.chain.lost(index);
        self.act(actions);
    }

    /// Whether more than this many bytes wait for the first host.
    fn has_pending(&self, bytes: u64) -> bool {
        self.chain.is_in(0) && self.members[0].connection.link.pending() > bytes
    }

    fn serve(&mut self, index: usize, limit: Duration) -> Result<(), HostFault> {
        if !self.chain.is_in(index) {
            return Ok(());
        }
        let link = &mut self.members[index].connection.link;
        if self.chain.has_landed(index) {
            link.expects_nothing();
        }
        let pending = link.pending();
        link.exchange(limit)?;
        if index == 0 && link.pending() < pending {
            self.chain.fed(self.begun.elapsed());
        }
        while self.chain.is_in(index)
            && let Some((event, _)) = self.members[index].connection.link.take_event()
        {
            self.handle_event(index, event)?;
        }
        Ok(())
    }

    fn send(&mut self, index: usize, step: FileStep) {
        let member = &mut self.members[index];
        if member.broken.is_none() {
            member.connection.link.send(FileRequest::Step(step));
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::HandOn(to) => self.send_hand_on(to),
                Action::Finish(index) => {
                    let (id, sum) = (self.members[index].delivery.id, Some(self.sum.sum()));
                    self.send(index, FileStep::Commit { id, sum });
                }
                Action::LeaveOut(index) => {
                    self.abandon(index, true);
                    let (member, bytes) =
                        (&mut self.members[index], self.chain.arrived_bytes(index));
                    member.connection.left_chain(member.delivery, bytes);
                }
            }
        }
    }

    fn abandon(&mut self, index: usize, keep: bool) {
        let (id, fault) = (self.members[index].delivery.id, None);
        self.send(index, FileStep::Abandon { id, keep, fault });
    }

    fn send_hand_on(&mut self, to: usize) {
        let next = &self.members[to];
        let (port, public_key) = next.listens;
        let hand_on = FileRequest::HandOn(HandOn {
            id: self.members[to - 1].delivery.id,
            partial_key: partial_key(next.delivery),
            other_id: next.delivery.id,
            address: next.target.host.ip.0,
            port,
            public_key,
        });
        let show = &self.reporter.copy.show;
        show.route(next.target.host, Route::Chain);
        self.members[to - 1].connection.link.send(hand_on);
    }

    fn handle_event(&mut self, index: usize, event: FileEvent) -> Result<(), HostFault> {
        let member = &self.members[index];
        let id = member.delivery.id;
        let actions = match event {
            FileEvent::Arrived { id: of, bytes } if of == id => self.arrived(index, bytes),
            FileEvent::NotHandedOn { id: of, .. } if of == id && index + 1 < self.members.len() => {
                self.chain.break_at(index + 1)
            }
            FileEvent::Arrived { .. } | FileEvent::NotHandedOn { .. } => Vec::new(),
            FileEvent::Landed { done, failed } => {
                let fault = failed.iter().find(|(failed, _)| *failed == id);
                if let Some((_, fault)) = fault {
                    self.failed(index, fault)
                } else {
                    if done.contains(&id) {
                        self.chain.landed(index);
                        self.report(index, None);
                    }
                    Vec::new()
                }
            }
            FileEvent::Synced { number } => {
                self.members[index].answered = number;
                let has_joined = number == self.members[index].joins;
                if has_joined {
                    self.chain.joined(index, self.begun.elapsed())
                } else {
                    Vec::new()
                }
            }
            other => return Err(HostFault::unexpected(&other)),
        };
        self.act(actions);
        Ok(())
    }

    fn arrived(&mut self, index: usize, bytes: u64) -> Vec<Action> {
        let member = &self.members[index];
        let before = self.chain.arrived_bytes(index);
        let bytes = bytes.min(member.delivery.bytes);
        let actions = self.chain.arrived(index, bytes, self.begun.elapsed());
        let arrived = self.chain.arrived_bytes(index) - before;
        let (host, show) = (member.target.host, &self.reporter.copy.show);
        show.moved(host, arrived);
        if index > 0 {
            show.handed_on(host, arrived);
        }
        actions
    }

    /// The host does not get the file by this chain.
    fn failed(&mut self, index: usize, fault: &FileFault) -> Vec<Action> {
        if self.chain.is_finishing(index) && *fault == FileFault::OtherSum {
            let first = self.refuses.map_or(index, |first| first.min(index));
            self.refuses = Some(first);
        } else {
            // a host that cannot write the file now cannot write it over another route
            let why = push::why(self.members[index].delivery, fault);
            self.report(index, Some(why));
        }
        self.chain.lost(index)
    }

    /// Names the first host that received other content than was read here, and the host before it.
    /// The hosts behind it received theirs from it, and the first host of the chain from here.
    fn report_refusal(&self) {
        let Some(index) = self.refuses.filter(|index| *index > 0) else {
            return;
        };
        let [refusing, before] = [index, index - 1].map(|index| self.members[index].target.host);
        let [location, other] = [refusing, before].map(record::Host::location);
        record::tell!(
            "part-push: {location}: rejected the content of {} that {other} passed on: it is not \
             what was read here, and is sent again\n  fix: check {other} for faulty disks or \
             memory and for intruders; then {location}, which reports this",
            self.path.display()
        );
    }

    fn report(&self, index: usize, error: Option<String>) {
        let member = &self.members[index];
        let outcome = Outcome {
            error,
            sent_bytes: if index == 0 { self.sent } else { 0 },
            elapsed: self.begun.elapsed(),
            ..Outcome::default()
        };
        member.target.done(member.delivery, outcome, self.reporter);
    }
}

/// Sends the file to the first host, while all hosts are served.
impl<'a> Outlet<&'a Delivery> for Relay<'_, '_, 'a> {
    type Broken = Infallible;

    /// The file is complete: from now on, hosts may rename it.
    fn step(&mut self, _: FileStep, _: &[u8]) -> Result<(), Infallible> {
        let actions = self.chain.confirm();
        self.act(actions);
        Ok(())
    }

    fn open(&mut self, _: &'a Delivery, _: &File) -> Result<Parts, Infallible> {
        let mut upstream = Upstream::Tool;
        for member in &mut *self.members {
            member.target.begun.get_or_init(|| self.begun);
            let link = &mut member.connection.link;
            link.send(FileRequest::Step(FileStep::Open(Open {
                file: member.delivery.attributes(),
                partial_key: partial_key(member.delivery),
                keep: Vec::new(),
                keep_sum: None,
                chained: Some(upstream),
            })));
            member.joins = link.sync();
            upstream = Upstream::Host(member.listens.1);
        }
        self.turn_while(|relay| relay.chain.is_in(0) && !relay.chain.is_fed());
        self.compression.begin(0);
        Ok(Parts::default())
    }

    fn write(
        &mut self,
        file: &'a Delivery,
        source: &File,
        piece: &SourcePiece,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Infallible> {
        let content = (!piece.is_zeros).then_some(&buffer[..]);
        self.sum.add(piece.length, content);
        let link = &mut self.members[0].connection.link;
        let gone = self.sent.saturating_sub(link.pending());
        let packed = !piece.is_zeros && self.compression.pays(buffer, gone);
        match blocks::send(link, source, (file.id, piece), buffer, packed) {
            Ok(bytes) => self.sent += bytes,
            Err(broken) => self.lose(0, broken),
        }
        self.turn(Duration::ZERO);
        if self.compression.wants_rate(self.sent) {
            let number = self.members[0].connection.link.sync();
            self.turn_while(|relay| relay.chain.is_in(0) && relay.members[0].answered < number);
            self.compression.measure(self.sent);
        }
        self.turn_while(|relay| relay.has_pending(AHEAD));
        Ok(())
    }

    fn wants(&mut self, _: u32) -> bool {
        self.chain.is_in(0)
    }

    fn read_all(&mut self) -> Result<io::Result<()>, Infallible> {
        self.turn_while(|relay| relay.has_pending(0));
        let fault = self.members[0].connection.link.source_fault();
        Ok(fault.map_or(Ok(()), Err))
    }

    /// The source has changed, so no host of the chain gets the file.
    fn abandon(&mut self, _: &'a Delivery, why: String) -> Result<(), Infallible> {
        for index in 0..self.members.len() {
            if self.chain.is_in(index) {
                self.report(index, Some(why.clone()));
                Relay::abandon(self, index, false);
            }
        }
        self.chain.break_at(0);
        Ok(())
    }
}
