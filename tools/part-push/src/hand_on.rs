//! Hands on large files for several hosts: they leave this machine once, and each host passes them
//! to the next. One loop serves all hosts of a chain, feeds [`Chain`] with what they report, and
//! carries out its actions.
//!
//! A chain carries a file from its first byte. A host that breaks or delays the chain, and the
//! hosts behind it, get the rest of the file from here like any other file.
//!
//! No host is trusted with the content. Once the whole file was read, this machine sends each host
//! the checksum over a connection of its own, and a host renames only a file that has it.

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
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};
use transfer::content::FileSum;
use transfer::sender::SourceFile;
use transfer::source::{self, Pieces};
use wire::files::{BLOCK, FileEvent, FileFault, FileRequest, FileStep, HandOn, Open, Upstream};

/// How long the loop waits for one host before it checks the others again. A check costs some
/// system calls for each host, and no other host waits longer than this.
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

/// Has hosts pass on to each other the large files that several of them lack.
pub fn all(targets: &[Target<'_>], context: &PushContext<'_>, reporter: &Reporter) {
    for hosts in shared_files(targets) {
        hand_on(hosts, context, reporter);
    }
}

/// Has hosts pass on one file, if that sends less from here than they lack together.
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
    // all hosts compare what they have at the same time
    let mut members: Vec<_> = hosts.into_par_iter().filter_map(begin).collect();
    // hosts at one switch usually have neighbouring addresses, so that the file crosses each link
    // between switches once
    members.sort_by_key(|host| u32::from(host.target.host.ip.0));
    for chain in members.chunks_mut(usize::from(context.args.jobs)) {
        let lacked: u64 = chain.iter().map(|host| host.lacks).sum();
        if lacked > delivery.bytes {
            let hands_on = Relay::new(chain, &file, path, context, reporter).run();
            if !hands_on {
                // a firewall may drop connections between hosts
                break;
            }
        }
    }
    members.into_par_iter().for_each(give_back);
}

/// A host that gets a file by a chain.
struct ChainMember<'t, 'a> {
    target: &'t Target<'a>,
    delivery: &'a Delivery,
    /// The connection, which is given back at the end.
    connection: PushConnection,
    /// The port on which its agent listens, and its public key.
    listens: (u16, String),
    /// How many bytes of the file it lacks.
    lacks: u64,
    /// The number of the sync that it answers when it has begun the file.
    joins: u64,
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
            broken: None,
        })
    }

    /// Finds out how much it lacks.
    fn compare(&mut self, file: &File) {
        match self.connection.resume(self.delivery, file) {
            Ok(kept) => self.lacks -= kept.parts.bytes(),
            Err(broken) => self.broken = Some(broken),
        }
    }

    /// Gives back the connection. If a direct connection broke and the login did not, the host gets
    /// the file over the login.
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
    file: &'r File,
    path: &'r Path,
    context: &'r PushContext<'r>,
    reporter: &'r Reporter,
    begun: Instant,
    /// The sending to the first host, until everything was sent.
    feeding: Option<Feeding<'r>>,
    /// The checksum of the bytes that were read.
    sum: FileSum,
    /// How many bytes left this machine.
    sent: u64,
    /// The first host that has received other content than was read here.
    refuses: Option<usize>,
}

/// The sending from this machine to the first host.
struct Feeding<'r> {
    pieces: Pieces<'r>,
    compression: Compression,
    /// The number of the sync whose answer shows how fast the link is.
    measures: Option<u64>,
}

impl<'r, 't, 'a> Relay<'r, 't, 'a> {
    fn new(
        members: &'r mut [ChainMember<'t, 'a>],
        file: &'r File,
        path: &'r Path,
        context: &'r PushContext<'r>,
        reporter: &'r Reporter,
    ) -> Relay<'r, 't, 'a> {
        // a block waits for its turn before it is sent, and meanwhile the one before it has arrived
        let limit = context.limit.as_ref();
        let block_takes = limit.map_or(Duration::ZERO, |limit| limit.takes(2 * BLOCK));
        Relay {
            chain: Chain::new(members[0].delivery.bytes, members.len(), block_takes),
            members,
            file,
            path,
            context,
            reporter,
            begun: Instant::now(),
            feeding: None,
            sum: FileSum::default(),
            sent: 0,
            refuses: None,
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Serves all hosts until each has the file or has left the chain; returns whether a host has
    /// got the file from another one.
    fn run(mut self) -> bool {
        for index in 0..self.members.len() {
            self.open(index);
        }
        while !self.chain.is_over() {
            for index in 0..self.members.len() {
                if let Err(broken) = self.serve(index) {
                    self.lose(index, broken);
                }
            }
            if let Some(late) = self.chain.find_delay(self.now()) {
                let actions = self.chain.break_at(late);
                self.act(actions);
            }
            self.exchange();
        }
        for index in 0..self.members.len() {
            self.abandon(index, true);
        }
        self.report_refusal();
        (1..self.members.len()).any(|index| self.chain.has_landed(index))
    }

    /// Asks a host to begin the file.
    fn open(&mut self, index: usize) {
        let before = index.checked_sub(1).map(|before| &self.members[before]);
        let upstream = before.map_or(Upstream::Tool, |before| {
            Upstream::Host(before.listens.1.clone())
        });
        let member = &mut self.members[index];
        member.target.begun.get_or_init(|| self.begun);
        member
            .connection
            .link
            .send(FileRequest::Step(FileStep::Open(Open {
                file: member.delivery.attributes(),
                partial_key: partial_key(member.delivery),
                keep: Vec::new(),
                from_replaced_file: false,
                chained: Some(upstream),
                sparse: source::is_sparse_file(self.file),
            })));
        member.joins = member.connection.link.sync();
    }

    /// Notes that the connection to a host is broken.
    fn lose(&mut self, index: usize, broken: HostFault) {
        self.members[index].broken = Some(broken);
        let actions = self.chain.lost(index);
        self.act(actions);
    }

    /// Handles the events of a host, and sends the first one the next content.
    fn serve(&mut self, index: usize) -> Result<(), HostFault> {
        while self.chain.is_in(index)
            && let Some((event, _)) = self.members[index].connection.link.take_event()
        {
            self.handle_event(index, event)?;
        }
        if index == 0 && self.chain.is_in(0) {
            self.feed()?;
        }
        Ok(())
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Feed => {
                    let bytes = self.members[0].delivery.bytes;
                    let mut compression = Compression::new(self.context.args.compress.wish());
                    compression.begin(0);
                    self.feeding = Some(Feeding {
                        pieces: Pieces::new(self.file, 0, bytes),
                        compression,
                        measures: None,
                    });
                }
                Action::HandOn(to) => self.send_hand_on(to),
                Action::Finish(index) => {
                    let member = &mut self.members[index];
                    member
                        .connection
                        .link
                        .send(FileRequest::Step(FileStep::Commit {
                            id: member.delivery.id,
                            sum: Some(self.sum.sum()),
                        }));
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
        let member = &mut self.members[index];
        if member.broken.is_none() {
            let (id, fault) = (member.delivery.id, None);
            let abandon = FileStep::Abandon { id, keep, fault };
            member.connection.link.send(FileRequest::Step(abandon));
        }
    }

    fn send_hand_on(&mut self, to: usize) {
        let next = &self.members[to];
        let (port, public_key) = next.listens.clone();
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
            FileEvent::Synced { number } if number == member.joins => {
                self.chain.joined(index, self.now())
            }
            FileEvent::Synced { number } => {
                if let Some(feeding) = &mut self.feeding
                    && feeding.measures == Some(number)
                {
                    feeding.compression.measure(self.sent);
                    feeding.measures = None;
                }
                Vec::new()
            }
            other => return Err(HostFault::unexpected(&other)),
        };
        self.act(actions);
        Ok(())
    }

    /// Notes how many bytes a host has.
    fn arrived(&mut self, index: usize, bytes: u64) -> Vec<Action> {
        let member = &self.members[index];
        let before = self.chain.arrived_bytes(index);
        let bytes = bytes.min(member.delivery.bytes);
        let actions = self.chain.arrived(index, bytes, self.now());
        let arrived = self.chain.arrived_bytes(index) - before;
        let (host, show) = (member.target.host, &self.reporter.copy.show);
        show.moved(host, arrived);
        if index > 0 {
            show.handed_on(host, arrived);
        }
        actions
    }

    /// Notes that a host does not get the file by this chain.
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
        };
        let results = member.target.results(self.reporter);
        results.done(member.delivery, outcome);
    }

    /// Whether the next piece can be read.
    fn takes_more(&self) -> bool {
        let is_fed = |feeding: &Feeding<'_>| feeding.measures.is_none();
        self.chain.is_in(0)
            && self.feeding.as_ref().is_some_and(is_fed)
            && self.members[0].connection.link.pending() <= AHEAD
    }

    /// Sends the first host the next piece, unless enough is queued.
    fn feed(&mut self) -> Result<(), HostFault> {
        if !self.takes_more() {
            return Ok(());
        }
        let Some(feeding) = &mut self.feeding else {
            return Ok(());
        };
        let first = &mut self.members[0];
        let link = &mut first.connection.link;
        let mut buffer = link.buffer();
        match feeding.pieces.read_next(&mut buffer) {
            Ok(Some(piece)) => {
                let content = (!piece.is_zeros).then_some(&buffer[..]);
                self.sum.add(piece.length, content);
                let gone = self.sent.saturating_sub(link.pending());
                let packed = !piece.is_zeros && feeding.compression.pays(&buffer, gone);
                let to = (first.delivery.id, &piece);
                self.sent += blocks::send(link, self.file, to, &mut buffer, packed)?;
                if feeding.compression.wants_rate(self.sent) {
                    feeding.measures = Some(link.sync());
                }
            }
            Ok(None) if link.pending() > 0 => {}
            Ok(None) => self.fed(),
            Err(error) => self.fail(&source::why(&error)),
        }
        Ok(())
    }

    /// Notes that the whole file was read and sent.
    fn fed(&mut self) {
        self.feeding = None;
        let first = &mut self.members[0];
        let read = first.connection.link.source_fault().map_or(Ok(()), Err);
        match first.delivery.check(self.file, read) {
            Err(why) => self.fail(&why),
            Ok(()) => {
                let actions = self.chain.confirm();
                self.act(actions);
            }
        }
    }

    /// Notes that the source has changed, so no host of the chain gets the file.
    fn fail(&mut self, why: &str) {
        for index in 0..self.members.len() {
            if self.chain.is_in(index) {
                self.report(index, Some(why.to_owned()));
                self.abandon(index, false);
            }
        }
        self.chain.break_at(0);
    }

    /// Sends and receives on all connections. Unless the next piece can be read, waits for the
    /// first connection, which usually is the one that is fed.
    fn exchange(&mut self) {
        let mut limit = match self.takes_more() {
            true => Duration::ZERO,
            false => TURN,
        };
        for index in 0..self.members.len() {
            if !self.chain.is_in(index) {
                continue;
            }
            let link = &mut self.members[index].connection.link;
            let pending = link.pending();
            let exchanged = link.exchange(limit);
            limit = Duration::ZERO;
            if index == 0 && link.pending() < pending {
                self.chain.fed(self.begun.elapsed());
            }
            if let Err(broken) = exchanged {
                self.lose(index, broken);
            }
        }
    }
}
