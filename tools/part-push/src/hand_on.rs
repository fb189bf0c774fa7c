//! Hands on large files for several hosts: they leave this machine once, and each host passes them
//! to the next. One loop serves all hosts of a chain, feeds [`Chain`] with what they report, and
//! carries out its actions.
//!
//! Nothing depends on it: a host that is left out is served separately, from the point that it has
//! reached. No host is trusted with the content: each piece is signed here, with a key for this
//! file, and hosts refuse from one another what is not.

use crate::blocks::{self, AHEAD};
use crate::chain::{self, Action, Chain, Rank, Source as From};
use crate::compression::Compression;
use crate::context::PushContext;
use crate::feed::{self, small};
use crate::plan::{self, Delivery, DeliverySource, key};
use crate::push::{self, Options};
use crate::reporter::{HostReporter, Outcome, Reporter};
use crate::target::{Kept, Target};
use crate::task::Task;
use cli::progress::Route;
use rayon::prelude::*;
use remote::HostFault;
use remote::direct::Wire;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tls::Identity;
use transfer::content;
use transfer::parts::Parts;
use transfer::source::{self, Pieces};
use transfer::sums::SummedBlock;
use wire::files::{BLOCK, FileEvent, FileRequest, HandOn, Hex, Open, PIECES_AT_ONCE, SignedPiece};

/// How long the loop waits for one host before it looks at the others again. To look costs some
/// system calls for each of them, and nobody else waits for longer than that.
const TURN: Duration = Duration::from_millis(20);

/// One host of a chain.
struct ChainHost<'t, 'a> {
    task: &'t Task<'a>,
    delivery: &'a Delivery,
    /// The connection, which is given back to the task in the end.
    target: Target,
    rank: Rank,
    /// The port on which its agent listens, and its public key.
    listens: (u16, String),
    /// Why nothing more comes over the connection.
    broken: Option<HostFault>,
    /// Whether it needs nothing from the loop any longer.
    is_served: bool,
    /// The parts that it had at first.
    kept: Parts,
    /// The question whose answer shows that it has begun the file; `None` once it has.
    joins: Option<u64>,
    /// What this machine sends it.
    feeding: Option<Feeding>,
    /// How many bytes were reported to the progress display.
    counted: u64,
    /// How many bytes left this machine for the host.
    sent: u64,
    /// The last of our questions that the host has answered.
    answered: u64,
    /// Whether the host has renamed the file.
    landed: bool,
}

/// What this machine sends to one host.
struct Feeding {
    /// The parts that are not read yet.
    missing: VecDeque<(u64, u64)>,
    compression: Compression,
    /// The question whose answer shows how quick the link is.
    measures: Option<u64>,
}

/// Lets the hosts hand on to one another what is large and goes to several.
pub fn all(tasks: &[Task<'_>], context: &PushContext<'_>, options: Options, board: &Reporter) {
    // before it is sent a block waits for its turn, and nothing comes of the one before
    let block_takes = context.limit.as_ref().map(|limit| limit.takes(2 * BLOCK));
    let block_takes = block_takes.unwrap_or_default();
    let mut by_file: BTreeMap<u32, Vec<(&Task<'_>, &Delivery)>> = BTreeMap::new();
    for task in tasks {
        for delivery in task.lacking() {
            if plan::is_handed_on(delivery) {
                let hosts = by_file.entry(delivery.file).or_default();
                hosts.push((task, delivery));
            }
        }
    }
    for hosts in by_file.into_values() {
        let begin = |(task, delivery)| ChainHost::begin(task, delivery);
        let mut members: Vec<ChainHost<'_, '_>> = hosts.into_iter().filter_map(begin).collect();
        chain::order(&mut members, |member| member.rank);
        while !members.is_empty() {
            let at_once = members.len().min(usize::from(context.args.jobs));
            let rest = members.split_off(at_once);
            hand_on(members, options, (context.wire.wire, block_takes), board);
            members = rest;
        }
    }
}

fn hand_on(
    mut members: Vec<ChainHost<'_, '_>>,
    options: Options,
    (wire, block_takes): (Wire, Duration),
    board: &Reporter,
) {
    // a fault of the source is reported when the file is sent to each host, and without a key each
    // host can still get it from here
    if let [first, _, ..] = &members[..]
        && let DeliverySource::File(path) = &first.delivery.source
        && let Ok(file) = feed::open(first.delivery)
        && let Ok(signer) = Identity::new()
    {
        let empty = vec![Parts::default(); members.len()];
        let mut relay = Relay {
            chain: Chain::new(first.delivery.bytes, empty, block_takes),
            members: &mut members,
            file: &file,
            path,
            options,
            board,
            signer,
            begun: Instant::now(),
            asked: BTreeSet::new(),
            wrong: None,
        };
        relay.run();
    }
    let give_back = |member: ChainHost<'_, '_>| member.give_back(wire, board);
    members.into_par_iter().for_each(give_back);
}

impl<'t, 'a> ChainHost<'t, 'a> {
    /// Takes over the connection of a host to which others may hand on.
    fn begin(task: &'t Task<'a>, delivery: &'a Delivery) -> Option<ChainHost<'t, 'a>> {
        let (kept, listens) = task.for_chain(delivery)?;
        let rank = Rank {
            was_refused: task.was_refused.load(Ordering::Relaxed),
            kept,
            address: u32::from(task.host.ip.0),
        };
        let mut target = task.lock().target.take()?;
        target.client.hear_of_chains(true);
        Some(ChainHost {
            task,
            delivery,
            rank,
            listens,
            target,
            broken: None,
            is_served: false,
            kept: Parts::default(),
            joins: None,
            feeding: None,
            counted: 0,
            sent: 0,
            answered: 0,
            landed: false,
        })
    }

    /// Whether the next piece for it can be read.
    fn takes_more(&self) -> bool {
        let is_fed = |feeding: &Feeding| feeding.measures.is_none();
        !self.is_served
            && self.feeding.as_ref().is_some_and(is_fed)
            && self.target.client.pending() <= AHEAD
    }

    /// Gives back the connection. If it was a direct one that broke, and the login is still there,
    /// the host is served separately over it.
    fn give_back(mut self, wire: Wire, board: &Reporter) {
        let client = &mut self.target.client;
        client.hear_of_chains(false);
        let used = match self.broken {
            None => Ok(()),
            Some(broken) => {
                let fallen = board.copy.fall_back(self.task.host, client, broken, wire);
                fallen.and_then(|()| self.target.claim(&[self.delivery]))
            }
        };
        let mut state = self.task.lock();
        match used {
            Ok(()) => state.target = Some(self.target),
            Err(broken) => state.broken = Some(broken),
        }
    }
}

/// One file on its way to all hosts of a chain.
struct Relay<'r, 't, 'a> {
    members: &'r mut [ChainHost<'t, 'a>],
    chain: Chain,
    file: &'r File,
    path: &'r Path,
    options: Options,
    board: &'r Reporter,
    /// Signs the pieces of this file.
    signer: Identity,
    begun: Instant,
    /// Which host was asked to hand on to which, unless that one has refused it since.
    asked: BTreeSet<(usize, usize)>,
    /// What is wrong with the source, so that nobody gets it.
    wrong: Option<String>,
}

impl Relay<'_, '_, '_> {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Serves all hosts until none needs anything any longer.
    fn run(&mut self) {
        // what they have is compared at the same time
        let file = self.file;
        let resume = |member: &mut ChainHost<'_, '_>| member.target.resume(member.delivery, file);
        let kept: Vec<_> = self.members.par_iter_mut().map(resume).collect();
        for (index, kept) in kept.into_iter().enumerate() {
            match kept {
                Ok(kept) => self.begin(index, kept),
                Err(broken) => self.lose(index, broken),
            }
        }
        while self.members.iter().any(|member| !member.is_served) {
            for index in 0..self.members.len() {
                if let Err(broken) = self.serve(index) {
                    self.lose(index, broken);
                }
            }
            let delays = self.chain.find_delays(self.now());
            self.act(delays);
            self.exchange();
        }
    }

    /// Asks a host to begin the file, with the parts that it has.
    fn begin(&mut self, index: usize, kept: Kept) {
        let now = self.now();
        let member = &mut self.members[index];
        let (delivery, client) = (member.delivery, &mut member.target.client);
        member.task.begun.get_or_init(|| self.begun);
        client.send(FileRequest::Open(Open {
            file: small(delivery),
            key: key(delivery),
            keep: kept.parts.list().to_vec(),
            earlier: kept.earlier,
            chained: Some(self.signer.public_key().to_string()),
            sparse: feed::is_sparse(self.file),
        }));
        for blocks in kept.blocks.chunks(PIECES_AT_ONCE) {
            client.send(FileRequest::Sign {
                id: delivery.id,
                pieces: blocks
                    .iter()
                    .map(|block| sign(&self.signer, block))
                    .collect(),
            });
        }
        member.joins = Some(client.sync());
        member.counted = kept.parts.bytes();
        member.kept = kept.parts;
        self.chain.begins(index, member.counted, now);
        self.board.copy.show.moved(member.task.host, member.counted);
    }

    /// The host takes what comes from here on.
    fn joined(&mut self, index: usize) {
        let now = self.now();
        self.members[index].joins = None;
        let kept = std::mem::take(&mut self.members[index].kept);
        let mut actions = self.chain.joined(index, now);
        actions.extend(self.chain.arrived(index, kept, now));
        self.act(actions);
        if self.chain.source(index) != From::Us {
            let host = self.members[index].task.host;
            self.board.copy.show.route(host, Route::Chain);
        }
    }

    /// Nothing more comes over the connection to a host.
    fn lose(&mut self, index: usize, broken: HostFault) {
        let member = &mut self.members[index];
        (member.broken, member.is_served) = (Some(broken), true);
        let actions = self.chain.lost(index);
        self.act(actions);
    }

    /// Handles what a host has reported, and sends it what comes next from here.
    fn serve(&mut self, index: usize) -> Result<(), HostFault> {
        while !self.members[index].is_served
            && let Some((event, _)) = self.members[index].target.client.take_event()
        {
            self.handle_event(index, event)?;
        }
        if self.members[index].is_served {
            return Ok(());
        }
        let is_wrong = self.wrong.is_some();
        let is_over = match self.chain.is_finished(index) {
            // what it has was right, whatever the file here has become since
            true => self.members[index].landed && (is_wrong || self.chain.is_over()),
            false => is_wrong || !self.chain.is_in(index),
        };
        match is_over {
            true => self.end(index),
            false => self.feed(index)?,
        }
        Ok(())
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::HandOn { from, to } => self.send_hand_on(from, to),
                Action::KeepBack { from, to } => {
                    let host = self.members[to].task.host.id;
                    self.send(from, |id| FileRequest::StopHandOn { id, host });
                }
                Action::Finish(index) => self.send(index, |id| FileRequest::Commit { id }),
                Action::Feed(index) => {
                    let mut compression = Compression::new(self.options.compress);
                    compression.begin(self.members[index].sent);
                    self.members[index].feeding = Some(Feeding {
                        missing: self.chain.missing(index).into(),
                        compression,
                        measures: None,
                    });
                }
                Action::LeaveOut(index) => self.leave(index),
            }
        }
    }

    fn send(&mut self, index: usize, request: impl FnOnce(u32) -> FileRequest) {
        let member = &mut self.members[index];
        if !member.is_served {
            member.target.client.send(request(member.delivery.id));
        }
    }

    fn send_hand_on(&mut self, from: usize, to: usize) {
        self.asked.insert((from, to));
        let next = &self.members[to];
        let (port, peer) = next.listens.clone();
        let hand_on = HandOn {
            id: self.members[from].delivery.id,
            key: key(next.delivery),
            host: next.task.host.id,
            there: next.delivery.id,
            address: next.task.host.ip.0,
            port,
            peer,
            parts: self.chain.missing(to),
        };
        self.send(from, |_| FileRequest::HandOn(hand_on));
    }

    fn handle_event(&mut self, index: usize, event: FileEvent) -> Result<(), HostFault> {
        let delivery = self.members[index].delivery;
        match event {
            FileEvent::Arrived { id, parts } if id == delivery.id => {
                let there = Parts::of(&parts).whole_grains(delivery.bytes);
                self.arrived(index, there);
            }
            FileEvent::HandedOn {
                id,
                host,
                problem: Some(_),
                unreached,
            } if id == delivery.id => {
                let mut members = self.members.iter();
                if let Some(to) = members.position(|member| member.task.host.id == host) {
                    let actions = self.chain.broke(index, to, unreached);
                    self.act(actions);
                }
            }
            FileEvent::Refused { id, peer } if id == delivery.id => self.refused(index, &peer),
            // of this file or, too late, of an earlier one
            FileEvent::Arrived { .. } | FileEvent::HandedOn { .. } | FileEvent::Refused { .. } => {}
            FileEvent::Landed { done, failed } => {
                if done.contains(&delivery.id) {
                    self.members[index].landed = true;
                    self.done(index, None);
                }
                for (_, fault) in failed.iter().filter(|(id, _)| *id == delivery.id) {
                    // a host that cannot write the file here cannot write it in any other way
                    self.done(index, Some(push::why(delivery, fault)));
                    let actions = self.chain.lost(index);
                    self.act(actions);
                }
            }
            FileEvent::Synced { number } => {
                self.members[index].answered = number;
                if self.members[index].joins == Some(number) {
                    self.joined(index);
                }
            }
            other => return Err(HostFault::unexpected(&other)),
        }
        Ok(())
    }

    /// The parts that a host has now.
    fn arrived(&mut self, index: usize, there: Parts) {
        let member = &mut self.members[index];
        let arrived = there.bytes().saturating_sub(member.counted);
        member.counted += arrived;
        let (host, show) = (member.task.host, &self.board.copy.show);
        show.moved(host, arrived);
        if self.chain.source(index) != From::Us {
            show.handed_on(host, arrived);
        }
        let actions = self.chain.arrived(index, there, self.now());
        self.act(actions);
    }

    /// The host has refused what another one handed on.
    fn refused(&mut self, index: usize, peer: &str) {
        let mut members = self.members.iter();
        let from = members.position(|member| member.listens.1 == peer);
        let Some(from) = from.filter(|from| self.asked.remove(&(*from, index))) else {
            return;
        };
        // what was read before and after the change cannot be the same
        if let Some(why) = feed::changed(self.members[index].delivery) {
            return self.fail(why);
        }
        let [it, other] = [index, from].map(|at| self.members[at].task.host.location());
        record::tell!(
            "part-push: {it}: refused what {other} handed on of {}: it is not what was read here; \
             nothing of it is kept, and the file comes from elsewhere\n  fix: look for what is \
             broken, or who is at work, on {other}; if nothing is, on {it}, which says so",
            self.path.display()
        );
        let task = self.members[from].task;
        task.was_refused.store(true, Ordering::Relaxed);
        let actions = self.chain.refused(from, index);
        self.act(actions);
    }

    fn done(&self, index: usize, error: Option<String>) {
        let member = &self.members[index];
        let reporter = HostReporter {
            host: member.task.host,
            fates: &member.task.fates,
            board: self.board,
        };
        let outcome = Outcome {
            error,
            sent_bytes: member.sent,
            elapsed: self.begun.elapsed(),
        };
        reporter.done(member.delivery, outcome);
    }

    /// Sends a host the next piece of what it lacks, unless enough waits to be sent.
    fn feed(&mut self, index: usize) -> Result<(), HostFault> {
        let member = &mut self.members[index];
        let Some(feeding) = &mut member.feeding else {
            return Ok(());
        };
        let client = &mut member.target.client;
        if let Some(number) = feeding.measures {
            if member.answered < number {
                return Ok(());
            }
            feeding.compression.measure(member.sent);
            feeding.measures = None;
        }
        let Some(&(begin, end)) = feeding.missing.front() else {
            if client.pending() == 0 {
                self.fed(index);
            }
            return Ok(());
        };
        if client.pending() > AHEAD {
            return Ok(());
        }
        feeding.missing.pop_front();
        let mut buffer = client.buffer();
        match Pieces::new(self.file, begin, end - begin).read_next(&mut buffer) {
            Ok(Some(piece)) => {
                let gone = member.sent.saturating_sub(client.pending());
                let packed = !piece.is_zeros && feeding.compression.pays(&buffer, gone);
                let to = (member.delivery.id, &piece);
                let how = (packed, Some(&self.signer));
                member.sent += blocks::send(client, self.file, to, &mut buffer, how)?;
                let next = piece.offset + piece.length;
                if next < end {
                    feeding.missing.push_front((next, end));
                }
                if feeding.compression.wants_rate(member.sent) {
                    feeding.measures = Some(client.sync());
                }
            }
            Ok(None) => {}
            Err(error) => self.fail(source::why(&error)),
        }
        Ok(())
    }

    /// All that a host lacked was read and sent.
    fn fed(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.feeding = None;
        let wrong = member.target.client.source_fault();
        match wrong.or_else(|| feed::changed(member.delivery)) {
            Some(why) => self.fail(why),
            None => {
                let actions = self.chain.confirm(index);
                self.act(actions);
            }
        }
    }

    /// Sends and receives on all connections. Waits for the first of them, which usually is the one
    /// that is fed, unless the next piece can be read.
    fn exchange(&mut self) {
        let mut limit = match self.members.iter().any(ChainHost::takes_more) {
            true => Duration::ZERO,
            false => TURN,
        };
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            if member.is_served {
                continue;
            }
            let pending = member.target.client.pending();
            let exchanged = member.target.client.exchange(limit);
            limit = Duration::ZERO;
            if member.target.client.pending() < pending {
                self.chain.fed(index, self.begun.elapsed());
            }
            if let Err(broken) = exchanged {
                self.lose(index, broken);
            }
        }
    }

    /// The source has changed, so nobody gets the file.
    fn fail(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }

    /// Leaves a host to be served separately, with the parts that it has.
    fn leave(&mut self, index: usize) {
        self.send(index, |id| FileRequest::Abandon { id, keep: true });
        let member = &mut self.members[index];
        member.is_served = true;
        member.target.client.forget_syncs();
        // what it had before is known already
        if member.joins.is_none() {
            let there = self.chain.there(index).clone();
            member
                .target
                .go_on_with(member.delivery, there, member.counted);
        }
    }

    /// The host has the file, or nobody gets it.
    fn end(&mut self, index: usize) {
        let is_without = self.chain.is_in(index) && !self.members[index].landed;
        let wrong = self.wrong.clone().filter(|_| is_without);
        let keep = wrong.is_none();
        self.send(index, |id| FileRequest::Abandon { id, keep });
        if wrong.is_some() {
            self.done(index, wrong);
        }
        let member = &mut self.members[index];
        member.is_served = true;
        member.target.client.forget_syncs();
    }
}

/// Signs a block that a host has kept, so that it can hand that on too.
fn sign(signer: &Identity, ((at, end), sum): &SummedBlock) -> SignedPiece {
    let (at, length) = (*at, end - at);
    SignedPiece {
        at,
        length,
        signature: Hex(signer.sign(&content::statement_of(at, length, sum))),
    }
}
