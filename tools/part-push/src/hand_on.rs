//! Hands on large files for several hosts: they leave this machine once, and each host passes them
//! to the next. One loop serves all hosts of a chain, feeds [`Chain`] with what they report, and
//! carries out its actions.
//!
//! A chain carries a file from its first byte. Hosts that leave it without the file form another
//! chain if that spares this machine something. Otherwise each gets the rest of the file from here
//! like any other file; so does a host that broke a chain or delayed others.
//!
//! No host is trusted with the content. Once the whole file was read, this machine sends each host
//! the checksum over a connection of its own, and a host renames only a file that has it.

use crate::blocks::{self, AHEAD};
use crate::chain::{Action, Chain};
use crate::compression::Compression;
use crate::context::PushContext;
use crate::feed::{self, attributes};
use crate::plan::{self, Delivery, DeliverySource, partial_key};
use crate::push;
use crate::reporter::{HostReporter, Outcome, Reporter};
use crate::target::Target;
use crate::task::Task;
use cli::progress::Route;
use rayon::prelude::*;
use remote::HostFault;
use remote::direct::Wire;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use transfer::content::FileSum;
use transfer::source::{self, Pieces};
use wire::files::{BLOCK, FileEvent, FileFault, FileRequest, HandOn, Open, Upstream};

/// How long the loop waits for one host before it checks the others again. A check costs some
/// system calls for each host, and no other host waits longer than this.
const TURN: Duration = Duration::from_millis(20);
/// No other chain is formed once this many hosts could not be reached by the hosts before them: a
/// firewall drops connections between hosts.
const UNREACHED: u32 = 2;

/// A host that gets a file by a chain.
struct ChainHost<'t, 'a> {
    task: &'t Task<'a>,
    delivery: &'a Delivery,
    /// The connection, which is given back to the task at the end.
    target: Target,
    /// The port on which its agent listens, and its public key.
    listens: (u16, String),
    /// How many bytes of the file it lacks.
    lacks: u64,
    /// How many bytes were reported to the progress display.
    counted: u64,
    /// Why nothing more arrives over the connection.
    broken: Option<HostFault>,
    /// Whether another chain may bring it the file.
    is_left: bool,
    /// Whether it needs nothing more from the loop.
    is_served: bool,
    /// The number of the sync that it answers when it has begun the file.
    joins: u64,
    /// The number of the last sync that it has answered.
    answered: u64,
    /// Whether it has renamed the file.
    landed: bool,
    /// Whether the host has received other content than was read here.
    refuses: bool,
}

/// The settings that the chains of one push share.
#[derive(Clone, Copy)]
struct ChainContext<'f> {
    compress: Option<bool>,
    wire: Wire,
    /// How long a block may take because of the limit on the rate.
    block_takes: Duration,
    reporter: &'f Reporter,
}

/// Has hosts pass on to each other the large files that several of them need.
pub fn all(tasks: &[Task<'_>], context: &PushContext<'_>, reporter: &Reporter) {
    // a block waits for its turn before it is sent, and meanwhile the one before it has arrived
    let block_takes = context.limit.as_ref().map(|limit| limit.takes(2 * BLOCK));
    let chain_context = ChainContext {
        compress: context.args.compress.wish(),
        wire: context.wire.wire,
        block_takes: block_takes.unwrap_or_default(),
        reporter,
    };
    let mut by_file: BTreeMap<u32, Vec<(&Task<'_>, &Delivery)>> = BTreeMap::new();
    for task in tasks {
        for delivery in task.lacking() {
            if plan::is_handed_on(delivery) {
                let hosts = by_file.entry(delivery.file).or_default();
                hosts.push((task, delivery));
            }
        }
    }
    for hosts in by_file.into_values().filter(|hosts| hosts.len() > 1) {
        let begin = |(task, delivery)| ChainHost::begin(task, delivery);
        let members = hosts.into_iter().filter_map(begin).collect();
        hand_on(members, usize::from(context.args.jobs), chain_context);
    }
}

/// Has hosts pass on one file, as long as a chain sends less from here than all hosts lack.
fn hand_on(mut members: Vec<ChainHost<'_, '_>>, at_once: usize, context: ChainContext<'_>) {
    // a fault of the source is reported when the file is sent to each host
    if let [first, _, ..] = &members[..]
        && let DeliverySource::File(path) = &first.delivery.source
        && let Ok(file) = feed::open(first.delivery)
    {
        let bytes = first.delivery.bytes;
        // all hosts compare what they have at the same time
        members.par_iter_mut().for_each(|host| host.compare(&file));
        let mut unreached = 0;
        let lacked = |hosts: &[ChainHost<'_, '_>]| hosts.iter().map(|host| host.lacks).sum::<u64>();
        while lacked(&members) > bytes && unreached < UNREACHED {
            // hosts at one switch usually have neighbouring addresses, so that the file crosses
            // each link between switches once; the last host hands nothing on
            members.sort_by_key(|host| {
                let was_refused = host.task.was_refused.load(Ordering::Relaxed);
                (was_refused, u32::from(host.task.host.ip.0))
            });
            let rest = members.split_off(at_once.min(members.len()));
            unreached += Relay::new(&mut members, &file, path, context).run();
            let goes_on = |host: &ChainHost<'_, '_>| host.is_left && host.broken.is_none();
            let (left, done): (Vec<_>, Vec<_>) = members.into_iter().partition(goes_on);
            done.into_par_iter()
                .for_each(|host| host.give_back(context));
            members = left.into_iter().chain(rest).collect();
        }
    }
    members
        .into_par_iter()
        .for_each(|host| host.give_back(context));
}

impl<'t, 'a> ChainHost<'t, 'a> {
    /// Takes over the connection of a host that may join the chain.
    fn begin(task: &'t Task<'a>, delivery: &'a Delivery) -> Option<ChainHost<'t, 'a>> {
        let mut state = task.lock();
        let listens = state.target.as_ref()?.link.listens()?;
        let mut target = state.target.take()?;
        target.link.hear_of_chains(true);
        Some(ChainHost {
            task,
            delivery,
            target,
            listens,
            lacks: delivery.bytes,
            counted: 0,
            broken: None,
            is_left: false,
            is_served: false,
            joins: 0,
            answered: 0,
            landed: false,
            refuses: false,
        })
    }

    /// Finds out how much it lacks.
    fn compare(&mut self, file: &File) {
        match self.target.resume(self.delivery, file) {
            Ok(kept) => self.lacks -= kept.parts.bytes(),
            Err(broken) => (self.broken, self.lacks) = (Some(broken), 0),
        }
    }

    /// Gives back the connection. If a direct connection broke and the login did not, the host gets
    /// the file over the login.
    fn give_back(mut self, context: ChainContext<'_>) {
        let link = &mut self.target.link;
        link.hear_of_chains(false);
        let used = match self.broken {
            None => Ok(()),
            Some(broken) => {
                let copy = &context.reporter.copy;
                let fallen = copy.fall_back(self.task.host, link, broken, context.wire);
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
    context: ChainContext<'r>,
    begun: Instant,
    /// The sending to the first host, until everything was sent.
    feeding: Option<Feeding<'r>>,
    /// The checksum of the bytes that were read.
    sum: FileSum,
    /// How many bytes left this machine.
    sent: u64,
    /// What is wrong with the source; in that case no host gets the file.
    wrong: Option<String>,
    /// How many hosts could not be reached by the hosts before them.
    unreached: u32,
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
        members: &'r mut [ChainHost<'t, 'a>],
        file: &'r File,
        path: &'r Path,
        context: ChainContext<'r>,
    ) -> Relay<'r, 't, 'a> {
        let bytes = members[0].delivery.bytes;
        Relay {
            chain: Chain::new(bytes, members.len(), context.block_takes),
            members,
            file,
            path,
            context,
            begun: Instant::now(),
            feeding: None,
            sum: FileSum::default(),
            sent: 0,
            wrong: None,
            unreached: 0,
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Serves all hosts until none needs anything more; returns how many could not be reached by
    /// the hosts before them.
    fn run(mut self) -> u32 {
        for index in 0..self.members.len() {
            self.begin(index);
        }
        while self.members.iter().any(|member| !member.is_served) {
            for index in 0..self.members.len() {
                if let Err(broken) = self.serve(index) {
                    self.lose(index, broken);
                }
            }
            if let Some(late) = self.chain.find_delay(self.now()) {
                self.break_at(late);
            }
            self.exchange();
        }
        self.report_refusal();
        self.unreached
    }

    /// Asks a host to begin the file.
    fn begin(&mut self, index: usize) {
        let before = index.checked_sub(1).map(|before| &self.members[before]);
        let upstream = before.map_or(Upstream::Tool, |before| {
            Upstream::Host(before.listens.1.clone())
        });
        let member = &mut self.members[index];
        let (delivery, link) = (member.delivery, &mut member.target.link);
        member.task.begun.get_or_init(|| self.begun);
        link.send(FileRequest::Open(Open {
            file: attributes(delivery),
            partial_key: partial_key(delivery),
            keep: Vec::new(),
            from_replaced_file: false,
            chained: Some(upstream),
            sparse: feed::is_sparse(self.file),
        }));
        member.joins = link.sync();
        (member.is_left, member.is_served, member.refuses) = (false, false, false);
    }

    /// Notes that the connection to a host is broken.
    fn lose(&mut self, index: usize, broken: HostFault) {
        let member = &mut self.members[index];
        (member.broken, member.is_served) = (Some(broken), true);
        let actions = self.chain.lost(index);
        self.act(actions);
    }

    /// Removes a host and those behind it from the chain; they get the rest of the file from here.
    fn break_at(&mut self, index: usize) {
        let actions = self.chain.break_at(index);
        self.act(actions);
        self.members[index].is_left = false;
    }

    /// Handles the events of a host, and sends it the next content from here.
    fn serve(&mut self, index: usize) -> Result<(), HostFault> {
        while !self.members[index].is_served
            && let Some((event, _)) = self.members[index].target.link.take_event()
        {
            self.handle_event(index, event)?;
        }
        if self.members[index].is_served {
            return Ok(());
        }
        let is_wrong = self.wrong.is_some();
        let is_over = match self.chain.is_finished(index) {
            // its copy was right, even if the file here has changed since
            true => self.members[index].landed && (is_wrong || self.chain.is_over()),
            false => is_wrong || !self.chain.is_in(index),
        };
        match is_over {
            true => self.end(index),
            false if index == 0 => self.feed()?,
            false => {}
        }
        Ok(())
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Feed => {
                    let bytes = self.members[0].delivery.bytes;
                    let mut compression = Compression::new(self.context.compress);
                    compression.begin(0);
                    self.feeding = Some(Feeding {
                        pieces: Pieces::new(self.file, 0, bytes),
                        compression,
                        measures: None,
                    });
                }
                Action::HandOn(to) => self.send_hand_on(to),
                Action::Finish(index) => {
                    let sum = Some(self.sum.sum());
                    self.send(index, |id| FileRequest::Commit { id, sum });
                }
                Action::LeaveOut(index) => self.leave(index),
            }
        }
    }

    fn send(&mut self, index: usize, request: impl FnOnce(u32) -> FileRequest) {
        let member = &mut self.members[index];
        if !member.is_served {
            member.target.link.send(request(member.delivery.id));
        }
    }

    fn send_hand_on(&mut self, to: usize) {
        let next = &self.members[to];
        let (port, public_key) = next.listens.clone();
        let hand_on = HandOn {
            id: self.members[to - 1].delivery.id,
            partial_key: partial_key(next.delivery),
            host: next.task.host.id,
            other_id: next.delivery.id,
            address: next.task.host.ip.0,
            port,
            public_key,
        };
        let show = &self.context.reporter.copy.show;
        show.route(next.task.host, Route::Chain);
        self.send(to - 1, |_| FileRequest::HandOn(hand_on));
    }

    fn handle_event(&mut self, index: usize, event: FileEvent) -> Result<(), HostFault> {
        let delivery = self.members[index].delivery;
        match event {
            // what arrives before the host has joined belongs to an earlier chain
            FileEvent::Arrived { id, bytes } if self.has_joined(index) && id == delivery.id => {
                self.arrived(index, bytes);
            }
            FileEvent::HandedOn {
                id,
                problem: Some(_),
                unreached,
                ..
            } if self.has_joined(index) && id == delivery.id => {
                self.unreached += u32::from(unreached);
                if index + 1 < self.members.len() {
                    self.break_at(index + 1);
                }
            }
            FileEvent::Arrived { .. } | FileEvent::HandedOn { .. } => {}
            FileEvent::Landed { done, failed } => {
                if done.contains(&delivery.id) {
                    self.members[index].landed = true;
                    self.done(index, None);
                }
                for (_, fault) in failed.iter().filter(|(id, _)| *id == delivery.id) {
                    self.failed(index, fault);
                }
            }
            FileEvent::Synced { number } => {
                self.members[index].answered = number;
                if self.has_joined(index) {
                    let actions = self.chain.joined(index, self.now());
                    self.act(actions);
                }
            }
            other => return Err(HostFault::unexpected(&other)),
        }
        Ok(())
    }

    fn has_joined(&self, index: usize) -> bool {
        let member = &self.members[index];
        member.answered >= member.joins
    }

    /// Notes how many bytes a host has.
    fn arrived(&mut self, index: usize, bytes: u64) {
        let member = &mut self.members[index];
        let bytes = bytes.min(member.delivery.bytes);
        let arrived = bytes.saturating_sub(member.counted);
        member.counted += arrived;
        let (host, show) = (member.task.host, &self.context.reporter.copy.show);
        show.moved(host, arrived);
        if index > 0 {
            show.handed_on(host, arrived);
        }
        let actions = self.chain.arrived(index, bytes, self.now());
        self.act(actions);
    }

    /// Notes that a host does not get the file by this chain.
    fn failed(&mut self, index: usize, fault: &FileFault) {
        let is_finished = self.chain.is_finished(index);
        let actions = self.chain.lost(index);
        if is_finished && *fault == FileFault::OtherSum {
            self.leave(index);
            let member = &mut self.members[index];
            member.refuses = true;
            // it is not known yet how much of it is right
            member.lacks = member.delivery.bytes;
            // everything that arrived at the first host came from here
            member.is_left = index > 0;
        } else {
            // a host that cannot write the file now cannot write it over another route
            let why = push::why(self.members[index].delivery, fault);
            self.done(index, Some(why));
        }
        self.act(actions);
    }

    /// Names the first host that received other content than was read here, and the host before it.
    /// The hosts behind it received theirs from it.
    fn report_refusal(&self) {
        let Some(index) = self.members.iter().position(|member| member.refuses) else {
            return;
        };
        let Some(before) = index.checked_sub(1) else {
            return;
        };
        let [refusing, refused] = [index, before].map(|index| self.members[index].task);
        let [location, other] = [refusing, refused].map(|task| task.host.location());
        record::tell!(
            "part-push: {location}: rejected the content of {} that {other} passed on: it is not \
             what was read here, and is sent again\n  fix: look for what is broken, or who is at \
             work, on {other}; if nothing is, on {location}, which says so",
            self.path.display()
        );
        refused.was_refused.store(true, Ordering::Relaxed);
    }

    fn done(&self, index: usize, error: Option<String>) {
        let member = &self.members[index];
        let host_reporter = HostReporter {
            host: member.task.host,
            fates: &member.task.fates,
            reporter: self.context.reporter,
        };
        let outcome = Outcome {
            error,
            sent_bytes: if index == 0 { self.sent } else { 0 },
            elapsed: self.begun.elapsed(),
        };
        host_reporter.done(member.delivery, outcome);
    }

    /// Whether the next piece can be read.
    fn takes_more(&self) -> bool {
        let is_fed = |feeding: &Feeding<'_>| feeding.measures.is_none();
        let first = &self.members[0];
        !first.is_served
            && self.feeding.as_ref().is_some_and(is_fed)
            && first.target.link.pending() <= AHEAD
    }

    /// Sends the first host the next piece, unless enough is queued.
    fn feed(&mut self) -> Result<(), HostFault> {
        let Some(feeding) = &mut self.feeding else {
            return Ok(());
        };
        let first = &mut self.members[0];
        let link = &mut first.target.link;
        if let Some(number) = feeding.measures {
            if first.answered < number {
                return Ok(());
            }
            feeding.compression.measure(self.sent);
            feeding.measures = None;
        }
        if link.pending() > AHEAD {
            return Ok(());
        }
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
            Err(error) => self.fail(source::why(&error)),
        }
        Ok(())
    }

    /// Notes that the whole file was read and sent.
    fn fed(&mut self) {
        self.feeding = None;
        let first = &mut self.members[0];
        let wrong = first.target.link.source_fault();
        match wrong.or_else(|| feed::changed(first.delivery)) {
            Some(why) => self.fail(why),
            None => {
                let actions = self.chain.confirm();
                self.act(actions);
            }
        }
    }

    /// Sends and receives on all connections. Unless the next piece can be read, waits for the
    /// first connection, which usually is the one that is fed.
    fn exchange(&mut self) {
        let mut limit = match self.takes_more() {
            true => Duration::ZERO,
            false => TURN,
        };
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            if member.is_served {
                continue;
            }
            let pending = member.target.link.pending();
            let exchanged = member.target.link.exchange(limit);
            limit = Duration::ZERO;
            if index == 0 && member.target.link.pending() < pending {
                self.chain.fed(self.begun.elapsed());
            }
            if let Err(broken) = exchanged {
                self.lose(index, broken);
            }
        }
    }

    /// Notes that the source has changed, so no host gets the file.
    fn fail(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }

    /// Lets a host leave the chain and keep its parts.
    fn leave(&mut self, index: usize) {
        self.send(index, |id| FileRequest::Abandon { id, keep: true });
        let member = &mut self.members[index];
        (member.is_served, member.is_left) = (true, true);
        member.lacks = member.delivery.bytes - self.chain.arrived_bytes(index);
        member.target.link.forget_syncs();
        member.target.left_chain(member.delivery, member.counted);
    }

    /// Ends the part of a host: it has the file, or no host gets it.
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
        member.target.link.forget_syncs();
    }
}
