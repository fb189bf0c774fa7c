//! Hands on large files for several hosts: they leave this machine once, and each host passes them
//! to the next. The actions of [`Chain`] are carried out here, with one thread for each host.
//!
//! Nothing depends on it: a host that is left out is served separately, from the point that it has
//! reached. No host is trusted with the content: each piece is signed here, with a key for this
//! file, and hosts refuse from one another what is not.

use crate::blocks::{self, AHEAD};
use crate::chain::{self, Action, Chain, Rank, Source as From};
use crate::compression::Compression;
use crate::context::PushContext;
use crate::feed::{self, small};
use crate::plan::{self, Delivery, Source, key};
use crate::push::{self, Options};
use crate::reporter::{HostReporter, Outcome, Reporter};
use crate::target::{Kept, Target};
use crate::task::Task;
use cli::progress::Route;
use parking_lot::{Mutex, MutexGuard};
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
use wire::files::{BLOCK, Begin, FileEvent, FileRequest, HandOn, Hex, PIECES_AT_ONCE, SignedPiece};

/// How often a thread checks what others want of its host.
const TURN: Duration = Duration::from_millis(50);

/// One host of a chain.
struct Member<'t, 'a> {
    task: &'t Task<'a>,
    delivery: &'a Delivery,
    kept: u64,
    /// The port on which its agent listens, and its public key.
    listens: (u16, String),
}

/// Lets the hosts hand on to one another what is large and goes to several.
pub fn all(tasks: &[Task<'_>], context: &PushContext<'_>, options: Options, board: &Reporter) {
    // before it is sent a block waits for its turn, and nothing comes of the one before
    let block_takes = context.limit.as_ref().map(|limit| limit.takes(2 * BLOCK));
    let block_takes = block_takes.unwrap_or_default();
    let mut by_file: BTreeMap<u32, Vec<Member<'_, '_>>> = BTreeMap::new();
    for task in tasks {
        for delivery in task.lacking() {
            if plan::is_handed_on(delivery)
                && let Some((kept, listens)) = task.for_chain(delivery)
            {
                let member = Member {
                    task,
                    delivery,
                    kept,
                    listens,
                };
                by_file.entry(delivery.file).or_default().push(member);
            }
        }
    }
    for mut members in by_file.into_values() {
        chain::order(&mut members, |member| Rank {
            was_refused: member.task.was_refused.load(Ordering::Relaxed),
            kept: member.kept,
            address: u32::from(member.task.host.ip.0),
        });
        for members in members.chunks(usize::from(context.args.jobs)) {
            if members.len() > 1 {
                hand_on(members, options, (context.wire.wire, block_takes), board);
            }
        }
    }
}

fn hand_on(
    members: &[Member<'_, '_>],
    options: Options,
    (wire, block_takes): (Wire, Duration),
    board: &Reporter,
) {
    let delivery = members[0].delivery;
    let Source::File(path) = &delivery.source else {
        return;
    };
    // a fault of the source is reported when the file is sent to each host
    let Ok(file) = feed::open(delivery) else {
        return;
    };
    // each host can still get it from here
    let Ok(signer) = Identity::new() else {
        return;
    };
    let empty = vec![Parts::default(); members.len()];
    let relay = Relay {
        members,
        file,
        path,
        options,
        wire,
        board,
        signer,
        begun: Instant::now(),
        state: Mutex::new(State {
            chain: Chain::new(delivery.bytes, empty, block_takes),
            orders: members.iter().map(|_| VecDeque::new()).collect(),
            asked: BTreeSet::new(),
            wrong: None,
        }),
    };
    std::thread::scope(|scope| {
        for index in 0..members.len() {
            let relay = &relay;
            let serve = move || relay.serve(index);
            if std::thread::Builder::new()
                .spawn_scoped(scope, serve)
                .is_err()
            {
                // without a thread, the host is served separately
                relay.update(|chain| chain.lost(index));
            }
        }
    });
}

/// One file on its way to all hosts of a chain.
struct Relay<'r, 't, 'a> {
    members: &'r [Member<'t, 'a>],
    file: File,
    path: &'r Path,
    options: Options,
    wire: Wire,
    board: &'r Reporter,
    /// Signs the pieces of this file.
    signer: Identity,
    begun: Instant,
    state: Mutex<State>,
}

struct State {
    chain: Chain,
    /// The actions that the thread of each host has to carry out.
    orders: Vec<VecDeque<Action>>,
    /// Which host was asked to hand on to which, unless that one has refused it since.
    asked: BTreeSet<(usize, usize)>,
    /// What is wrong with the source, so that nobody gets it.
    wrong: Option<String>,
}

/// The next step of a thread.
enum Turn {
    /// It waits for its host and for others.
    Wait,
    /// It sends the file to its host.
    Feed,
    /// Its host is not part of the chain any longer.
    Leave,
}

/// A thread's own view of its host.
#[derive(Default)]
struct View {
    /// How many bytes were reported to the progress display.
    counted: u64,
    /// How many bytes left this machine for the host.
    sent: u64,
    /// The last of our questions that the host has answered.
    synced: u64,
    /// Whether the host takes the file.
    joined: bool,
    /// Whether the host has renamed the file.
    landed: bool,
}

impl Relay<'_, '_, '_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Handles an event, and queues the resulting actions for the threads.
    fn update(&self, change: impl FnOnce(&mut Chain) -> Vec<Action>) {
        let mut state = self.lock();
        for action in change(&mut state.chain) {
            let (Action::HandOn { from: index, .. }
            | Action::KeepBack { from: index, .. }
            | Action::Feed(index)
            | Action::Finish(index)
            | Action::LeaveOut(index)) = action;
            state.orders[index].push_back(action);
        }
    }

    fn serve(&self, index: usize) {
        let member = &self.members[index];
        let mut view = View::default();
        member.task.begun.get_or_init(|| self.begun);
        let served = member.task.on_target(|target| {
            target.client.hears_of_chains = true;
            let served = self.serve_host(index, target, &mut view);
            target.client.hears_of_chains = false;
            let Err(broken) = served else { return Ok(()) };
            self.update(|chain| chain.lost(index));
            self.take_back(index, target, broken)
        });
        if served.is_none() {
            self.update(|chain| chain.lost(index));
        }
    }

    /// A host's direct connection broke. If its login is still there, the host is served separately
    /// over it.
    fn take_back(
        &self,
        index: usize,
        target: &mut Target,
        broken: HostFault,
    ) -> Result<(), HostFault> {
        let Member { task, delivery, .. } = &self.members[index];
        let client = &mut target.client;
        self.board
            .copy
            .fall_back(task.host, client, broken, self.wire)?;
        target.claim(&[delivery])
    }

    fn serve_host(
        &self,
        index: usize,
        target: &mut Target,
        view: &mut View,
    ) -> Result<(), HostFault> {
        self.join(index, target, view)?;
        loop {
            match self.turn(index, target, view)? {
                Turn::Leave => {
                    self.leave(index, target, view);
                    return Ok(());
                }
                Turn::Feed => self.feed(index, target, view)?,
                Turn::Wait if self.is_over(index, view) => {
                    self.end(index, target, view);
                    return Ok(());
                }
                Turn::Wait => target.client.exchange(TURN)?,
            }
        }
    }

    /// Whether nobody needs this host any longer, and it needs nobody.
    fn is_over(&self, index: usize, view: &View) -> bool {
        let state = self.lock();
        let is_wrong = state.wrong.is_some();
        match state.chain.is_in(index) {
            // what it has was right, whatever the file here has become since
            true if state.chain.is_finished(index) => {
                view.landed && (is_wrong || state.chain.is_over())
            }
            true => is_wrong,
            false => true,
        }
    }

    /// Makes the host begin the file, with the parts that it has.
    fn join(&self, index: usize, target: &mut Target, view: &mut View) -> Result<(), HostFault> {
        let delivery = self.members[index].delivery;
        let Kept {
            parts: kept,
            earlier,
            blocks,
        } = target.resume(delivery, &self.file)?;
        self.lock().chain.begins(index, kept.bytes(), self.now());
        target.client.send(FileRequest::Begin(Begin {
            file: small(delivery),
            key: key(delivery),
            keep: kept.list().to_vec(),
            earlier,
            chained: Some(self.signer.public_key().to_string()),
            sparse: feed::is_sparse(&self.file),
        }));
        self.sign(delivery, &blocks, target);
        let number = target.client.sync();
        view.counted = kept.bytes();
        let host = self.members[index].task.host;
        self.board.copy.show.moved(host, view.counted);
        loop {
            match target.client.take_event().map(|(event, _)| event) {
                Some(FileEvent::Synced { number: event }) if event == number => break,
                Some(event) => self.handle_event(index, event, view)?,
                None => target.client.exchange(TURN)?,
            }
            self.find_delays();
            if !self.lock().chain.is_in(index) {
                target.client.forget_syncs();
                return Ok(());
            }
        }
        self.update(|chain| {
            let mut actions = chain.joined(index, self.now());
            actions.extend(chain.arrived(index, kept, self.now()));
            actions
        });
        view.joined = true;
        if self.lock().chain.source(index) != From::Us {
            self.board.copy.show.route(host, Route::Chain);
        }
        Ok(())
    }

    fn find_delays(&self) {
        self.update(|chain| chain.find_delays(self.now()));
    }

    /// Handles events of the host, and carries out actions.
    fn turn(&self, index: usize, target: &mut Target, view: &mut View) -> Result<Turn, HostFault> {
        while let Some((event, _)) = target.client.take_event() {
            self.handle_event(index, event, view)?;
        }
        self.find_delays();
        let mut turn = Turn::Wait;
        loop {
            let order = self.lock().orders[index].pop_front();
            let Some(order) = order else {
                return Ok(turn);
            };
            let id = self.members[index].delivery.id;
            match order {
                Action::HandOn { to, .. } => self.send_hand_on(index, to, target),
                Action::KeepBack { to, .. } => {
                    let host = self.members[to].task.host.id;
                    target.client.send(FileRequest::KeepBack { id, host });
                }
                Action::Finish(_) => target.client.send(FileRequest::End { id }),
                Action::Feed(_) => turn = Turn::Feed,
                Action::LeaveOut(_) => return Ok(Turn::Leave),
            }
        }
    }

    /// Brings a host the signatures of what it has kept: those behind it may get that from it.
    fn sign(&self, delivery: &Delivery, blocks: &[SummedBlock], target: &mut Target) {
        let sign = |((at, end), sum): &SummedBlock| {
            let (at, length) = (*at, end - at);
            let signature = self.signer.sign(&content::statement_of(at, length, sum));
            SignedPiece {
                at,
                length,
                signature: Hex(signature),
            }
        };
        for blocks in blocks.chunks(PIECES_AT_ONCE) {
            target.client.send(FileRequest::Sign {
                id: delivery.id,
                pieces: blocks.iter().map(sign).collect(),
            });
        }
    }

    fn send_hand_on(&self, index: usize, to: usize, target: &mut Target) {
        let next = &self.members[to];
        let mut state = self.lock();
        let parts = state.chain.missing(to);
        state.asked.insert((index, to));
        drop(state);
        let (port, peer) = next.listens.clone();
        target.client.send(FileRequest::HandOn(HandOn {
            id: self.members[index].delivery.id,
            key: key(next.delivery),
            host: next.task.host.id,
            there: next.delivery.id,
            address: next.task.host.ip.0,
            port,
            peer,
            parts,
        }));
    }

    fn handle_event(
        &self,
        index: usize,
        event: FileEvent,
        view: &mut View,
    ) -> Result<(), HostFault> {
        let delivery = self.members[index].delivery;
        match event {
            FileEvent::Arrived { id, parts } if id == delivery.id => {
                let there = Parts::of(&parts).whole_grains(delivery.bytes);
                let arrived = there.bytes().saturating_sub(view.counted);
                view.counted += arrived;
                let (host, show) = (self.members[index].task.host, &self.board.copy.show);
                show.moved(host, arrived);
                if self.lock().chain.source(index) != From::Us {
                    show.handed_on(host, arrived);
                }
                self.update(|chain| chain.arrived(index, there, self.now()));
            }
            // an event about an earlier file
            FileEvent::Arrived { .. } => {}
            FileEvent::HandedOn {
                id,
                host,
                problem: Some(_),
                unreached,
            } if id == delivery.id => {
                let to = self
                    .members
                    .iter()
                    .position(|member| member.task.host.id == host);
                if let Some(to) = to {
                    self.update(|chain| chain.broke(index, to, unreached));
                }
            }
            FileEvent::HandedOn { .. } => {}
            FileEvent::Refused { id, peer } if id == delivery.id => {
                self.refused(index, &peer);
            }
            FileEvent::Refused { .. } => {}
            FileEvent::Landed { done, failed } => {
                if done.contains(&delivery.id) {
                    view.landed = true;
                    self.done(index, view.sent, None);
                }
                for (_, fault) in failed.iter().filter(|(id, _)| *id == delivery.id) {
                    // a host that cannot write the file here cannot write it in any other way
                    self.done(index, view.sent, Some(push::why(delivery, fault)));
                    self.update(|chain| chain.lost(index));
                }
            }
            FileEvent::Synced { number } => view.synced = number,
            other => return Err(HostFault::unexpected(&other)),
        }
        Ok(())
    }

    /// The host has refused what another one handed on.
    fn refused(&self, index: usize, peer: &str) {
        let mut members = self.members.iter();
        let from = members.position(|member| member.listens.1 == peer);
        let Some(from) = from.filter(|from| self.lock().asked.remove(&(*from, index))) else {
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
        self.update(|chain| chain.refused(from, index));
    }

    fn done(&self, index: usize, sent_bytes: u64, error: Option<String>) {
        let member = &self.members[index];
        let reporter = HostReporter {
            host: member.task.host,
            fates: &member.task.fates,
            board: self.board,
        };
        let outcome = Outcome {
            error,
            sent_bytes,
            elapsed: self.begun.elapsed(),
        };
        reporter.done(member.delivery, outcome);
    }

    /// Sends the host its missing parts, until it is left out.
    fn feed(&self, index: usize, target: &mut Target, view: &mut View) -> Result<(), HostFault> {
        let missing = self.lock().chain.missing(index);
        let mut compression = Compression::new(self.options.compress);
        compression.begin(view.sent);
        let mut buffer = Vec::new();
        for (begin, end) in missing {
            let mut pieces = Pieces::new(&self.file, begin, end - begin);
            loop {
                let piece = match pieces.read_next(&mut buffer) {
                    Ok(Some(piece)) => piece,
                    Ok(None) => break,
                    Err(error) => {
                        self.fail(source::why(&error));
                        return Ok(());
                    }
                };
                let client = &mut target.client;
                let gone = view.sent.saturating_sub(client.pending());
                let packed = !piece.is_zeros && compression.pays(&buffer, gone);
                let to = (self.members[index].delivery.id, &piece);
                let how = (packed, Some(&self.signer));
                view.sent += blocks::send(client, &self.file, to, &mut buffer, how)?;
                if !self.drain(index, target, view, AHEAD)? {
                    return Ok(());
                }
                if compression.wants_rate(view.sent) {
                    if !self.wait_until_arrived(index, target, view)? {
                        return Ok(());
                    }
                    compression.measure(view.sent);
                }
            }
        }
        if !self.drain(index, target, view, 0)? {
            return Ok(());
        }
        if let Some(why) = target.client.source_fault() {
            self.fail(why);
            return Ok(());
        }
        match feed::changed(self.members[index].delivery) {
            Some(why) => self.fail(why),
            None => self.update(|chain| chain.confirm(index)),
        }
        Ok(())
    }

    /// Waits until the host has what was sent; returns whether the host is still fed.
    fn wait_until_arrived(
        &self,
        index: usize,
        target: &mut Target,
        view: &mut View,
    ) -> Result<bool, HostFault> {
        let number = target.client.sync();
        while view.synced < number {
            if !self.drain(index, target, view, 0)? {
                return Ok(false);
            }
            target.client.exchange(TURN)?;
        }
        Ok(true)
    }

    /// Waits until at most this many bytes wait to be sent; returns whether the host is still fed.
    fn drain(
        &self,
        index: usize,
        target: &mut Target,
        view: &mut View,
        most: u64,
    ) -> Result<bool, HostFault> {
        loop {
            match self.turn(index, target, view)? {
                Turn::Leave => {
                    // carried out when the others are told
                    self.lock().orders[index].push_front(Action::LeaveOut(index));
                    return Ok(false);
                }
                Turn::Feed | Turn::Wait => {}
            }
            let state = self.lock();
            if state.wrong.is_some() || !state.chain.is_in(index) {
                return Ok(false);
            }
            drop(state);
            let pending = target.client.pending();
            if pending <= most {
                return Ok(true);
            }
            target.client.exchange(TURN)?;
            if target.client.pending() < pending {
                self.lock().chain.fed(index, self.now());
            }
        }
    }

    /// The source has changed, so nobody gets the file.
    fn fail(&self, why: String) {
        self.lock().wrong.get_or_insert(why);
    }

    /// Leaves the host to be served separately, with the parts that it has.
    fn leave(&self, index: usize, target: &mut Target, view: &View) {
        let delivery = self.members[index].delivery;
        target.client.send(FileRequest::Close { id: delivery.id });
        target.client.forget_syncs();
        // what it had before is known already
        if view.joined {
            let there = self.lock().chain.there(index).clone();
            target.go_on_with(delivery, there, view.counted);
        }
    }

    /// Reports the end: the host has the file, or nobody gets it.
    fn end(&self, index: usize, target: &mut Target, view: &View) {
        let id = self.members[index].delivery.id;
        let state = self.lock();
        let wrong = state.wrong.clone().filter(|_| state.chain.is_in(index));
        drop(state);
        target.client.forget_syncs();
        match wrong {
            Some(why) if !view.landed => {
                target.client.send(FileRequest::Discard { id });
                self.done(index, view.sent, Some(why));
            }
            _ => target.client.send(FileRequest::Close { id }),
        }
    }
}
