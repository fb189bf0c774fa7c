//! Carries the deliveries out: looks at every host first, then sends to several at once.

use crate::args::Args;
use crate::feed;
use crate::plan::{self, Delivery, Source};
use crate::push::{self, Options, Outcome, Watch};
use crate::relay;
use crate::show::ProgressDisplay;
use crate::target::Target;
use rayon::prelude::*;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Out, Stream};
use record::term::{self, millis};
use record::{Host, Pushed, Record};
use remote::direct::{Door, Wire, WireOptions};
use remote::host_client::{HostClient, HostFailure};
use remote::limit::Limit;
use remote::{self, Kind, Remote, Session, lanes};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use transfer::BEAT;
use wire::files::{FileRequest, Receive};

/// What a file system needs beside the files themselves.
const ROOM_TO_SPARE: u64 = 1 << 20;
/// Hosts that are waited for at once until they are ready: each waits, none computes.
const BEGUN_AT_ONCE: usize = 256;
/// From here on a file is handed on from host to host: a chain costs a login for each of them.
const HANDED_ON: u64 = 16 << 20;

/// How the hosts are reached, where it all goes, and the name of this push.
struct PushContext<'a> {
    args: &'a Args,
    remote: Remote,
    wire: WireOptions,
    limit: Option<Arc<Limit>>,
    stop: Arc<AtomicUsize>,
    base: &'a Path,
    run: String,
}

impl PushContext<'_> {
    fn receive(&self, host: &Host) -> Receive {
        let (dry, fsync) = (self.args.dry_run, self.args.fsync);
        Receive {
            base: self.base.into(),
            run: self.run.clone(),
            host: host.id,
            dry,
            fsync,
            lane: false,
        }
    }

    /// One more connection to a host that receives already.
    fn lane(&self, host: &Host, door: Option<&Door>) -> Option<HostClient> {
        let receive = FileRequest::Receive(Receive {
            lane: true,
            ..self.receive(host)
        });
        let mut client = match door {
            Some(door) => HostClient::through(door, self.stop.clone(), receive).ok()?,
            None => {
                let session = self.remote.open_agent(host).ok()?;
                HostClient::begin(session, self.stop.clone(), receive)
                    .ok()?
                    .0
            }
        };
        client.keep_to(self.limit.clone());
        Some(client)
    }
}

/// A host with what it gets.
struct Task<'a> {
    host: &'a Host,
    deliveries: Vec<&'a Delivery>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// None where it could not be reached or was given up; why is in `broken`.
    target: Option<Target>,
    broken: Option<HostFailure>,
    /// Each of its deliveries has its last word: what breaks now breaks nothing.
    complete: bool,
    /// That it is broken is in the report already.
    reported: bool,
    /// The first of the hosts that share its workspace.
    leader: Option<u32>,
    /// Those that are there already,
    skipped: BTreeSet<u32>,
    /// that another host puts on the storage that both share,
    shared: BTreeSet<u32>,
    /// and that cannot be: why.
    refused: BTreeMap<u32, String>,
}

/// Copies to these hosts what is not there yet, of the deliveries to all: the records of some hosts
/// only are a set with holes.
pub fn run(
    args: &Args,
    stream: &Stream,
    hosts: &[Host],
    deliveries: &[Delivery],
    base: &Path,
) -> Result<Exit, Report> {
    let remote = Remote::new(args.connect.options(), Kind::Ssh { bulk: true })?;
    let stop = cli::signal::stop().map_err(|error| {
        Fault::unreachable("signals", error.to_string())
            .fix("let this user have more processes: ulimit -u")
    })?;
    let mut report = Report::default();
    let run = remote::random_token().map_err(|error| {
        Fault::unreachable("/dev/urandom", error.to_string()).fix("this machine needs one")
    })?;
    let way = PushContext {
        args,
        remote,
        wire: args.wire.options(&args.connect),
        limit: args.wire.limit(),
        stop,
        base,
        run,
    };
    let tasks = open(&way, hosts, deliveries, &mut report)?;
    let at_once = hosts.len().min(usize::from(args.jobs));
    let pool = remote::threads(at_once)?;
    let options = Options {
        verify: args.verify,
        compress: args.compress.wish(),
        streams: lanes::wanted(args.streams, at_once, way.remote.is_ssh()),
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_alive(&tasks, &over));
        report.extend(pool.install(|| carry_out(&way, stream, &tasks, options, deliveries)));
        over.store(true, Ordering::Relaxed);
        pool.install(|| {
            tasks
                .par_iter()
                .filter_map(|task| task.lock().target.take())
                .for_each(|target| target.client.end());
        });
    });
    match i32::try_from(way.stop.load(Ordering::Relaxed)).unwrap_or_default() {
        0 => {
            report.print("part-push");
            Ok(report.exit())
        }
        signal => {
            eprintln!(
                "part-push: interrupted by SIG{}\n  fix: run it again: what is there already is \
                 skipped",
                record::exit::signal_name(signal)
            );
            Ok(Exit::Signal(signal))
        }
    }
}

fn open<'a>(
    way: &PushContext<'_>,
    hosts: &'a [Host],
    deliveries: &'a [Delivery],
    report: &mut Report,
) -> Result<Vec<Task<'a>>, Report> {
    let opened = way.remote.open_agents(hosts);
    let faults: Vec<_> = hosts
        .iter()
        .zip(&opened)
        .filter_map(|(host, opened)| Some((host, opened.as_ref().err()?)))
        .collect();
    report.extend(remote::report(faults, way.args.connect.host_key));
    let mut by_host: HashMap<u32, Vec<&Delivery>> = HashMap::new();
    for delivery in deliveries {
        by_host.entry(delivery.host).or_default().push(delivery);
    }
    let begin = |(host, opened): (&'a Host, Result<Session, remote::HostFault>)| {
        let reported = opened.is_err();
        let target = match opened {
            Ok(session) => {
                let begun = Target::begin(session, way.stop.clone(), way.receive(host));
                begun.map(|mut target| {
                    target.client.keep_to(way.limit.clone());
                    target
                })
            }
            Err(fault) => Err(HostFailure::lost(fault.problem)),
        };
        let (target, broken) =
            target.map_or_else(|broken| (None, Some(broken)), |target| (Some(target), None));
        (
            host,
            State {
                target,
                broken,
                reported,
                ..State::default()
            },
        )
    };
    // all at once: hosts that share a folder wait for another push together
    let pairs: Vec<_> = hosts.iter().zip(opened).collect();
    let begun: Vec<_> = remote::threads(hosts.len().min(BEGUN_AT_ONCE))?
        .install(|| pairs.into_par_iter().map(begin).collect());
    let task = |(host, state): (&'a Host, State)| {
        let deliveries = by_host.remove(&host.id).unwrap_or_default();
        let refused = plan::twice(&deliveries);
        Task {
            host,
            deliveries,
            state: Mutex::new(State { refused, ..state }),
        }
    };
    Ok(begun.into_iter().map(task).collect())
}

fn fault(host: &Host, broken: &HostFailure) -> Fault {
    let (fault, fix) = match broken.lost {
        true => (
            Fault::unreachable(host.place(), broken.why.clone()),
            "run it again: what is there already is skipped",
        ),
        false => (
            Fault::item(host.place(), broken.why.clone()),
            "correct the workspace there, its room or its permissions, then run it again",
        ),
    };
    fault.fix(broken.fix.as_deref().unwrap_or(fix))
}

/// Hosts that have nothing to do just now hear from us.
fn keep_alive(tasks: &[Task<'_>], over: &AtomicBool) {
    let mut last = Instant::now();
    while !over.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(50));
        if last.elapsed() < BEAT {
            continue;
        }
        last = Instant::now();
        for task in tasks {
            // one that is locked is at work
            if let Ok(mut state) = task.state.try_lock()
                && let Some(Err(broken)) = state
                    .target
                    .as_mut()
                    .map(|target| target.client.keep_alive())
            {
                (state.target, state.broken) = (None, Some(broken));
            }
        }
    }
}

fn carry_out(
    way: &PushContext<'_>,
    stream: &Stream,
    tasks: &[Task<'_>],
    options: Options,
    deliveries: &[Delivery],
) -> Report {
    let args = way.args;
    if !args.dry_run && tasks.len() > 1 {
        share(tasks);
    }
    tasks
        .par_iter()
        .for_each(|task| task.look(options, args.dry_run));
    let full = no_room(tasks);
    if args.dry_run {
        tell_plan(tasks);
        return Report([broken(tasks), full].concat());
    }
    let mut out = Out::new("part-push");
    if !args.connect.format.human() {
        out.pass_but(stream, Pushed::TYPE);
    }
    let lacking = || {
        tasks.iter().flat_map(|task| {
            task.lacking()
                .into_iter()
                .map(|delivery| (task.host, delivery))
        })
    };
    let board = Reporter {
        out: Mutex::new(out),
        human: args.connect.format.human(),
        of: u32::try_from(deliveries.len()).unwrap_or(u32::MAX),
        show: ProgressDisplay::new(
            args.progress,
            tasks.iter().map(|task| task.host),
            lacking().map(|(host, delivery)| (host.id, delivery.bytes)),
        ),
        failed: Mutex::default(),
    };
    if full.is_empty() {
        if args.relay {
            hand_on(tasks, way);
        }
        tasks
            .par_iter()
            .for_each(|task| task.push(options, way, &board));
        tasks
            .par_iter()
            .for_each(|task| task.check_shared(options, &board));
    } else {
        // a disk that fills up in the middle helps nobody
        let nothing_sent = HostFailure::reported("nothing was sent: a host has no space left");
        for task in tasks {
            let mut state = task.lock();
            state.reported |= state.broken.is_none();
            state.broken.get_or_insert(nothing_sent.clone());
            drop(state);
            task.give_up(&BTreeSet::new(), &board);
        }
    }
    board.show.end();
    let failed = board
        .failed
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Report([full, failed, broken(tasks)].concat())
}

fn broken(tasks: &[Task<'_>]) -> Vec<Fault> {
    let fault = |task: &Task<'_>| {
        let state = task.lock();
        state
            .broken
            .as_ref()
            .filter(|_| !state.reported && !state.complete)
            .map(|broken| fault(task.host, broken))
    };
    tasks.iter().filter_map(fault).collect()
}

/// Finds out which hosts see the same folder, so that a file for all of them is sent once.
fn share(tasks: &[Task<'_>]) {
    let peers = |task: &Task<'_>| {
        task.on_target(Target::peers)
            .map(|peers| (task.host.id, peers))
    };
    let seen: BTreeMap<u32, Vec<u32>> = tasks.par_iter().filter_map(peers).collect();
    let leaders = plan::leaders(&seen);
    let mut taken: HashMap<(u32, &Path), (u32, u32)> = HashMap::new();
    for task in tasks {
        let Some(leader) = leaders.get(&task.host.id) else {
            continue;
        };
        let mut state = task.lock();
        state.leader = Some(*leader);
        for delivery in &task.deliveries {
            let (file, host) = *taken
                .entry((*leader, &delivery.dst))
                .or_insert((delivery.file, delivery.host));
            if host != delivery.host && file == delivery.file {
                state.shared.insert(delivery.id);
            } else if host != delivery.host {
                state.refused.insert(
                    delivery.id,
                    format!("host {host} shares the folder and gets another file there"),
                );
            }
        }
    }
}

/// Lets the hosts hand on to one another what is large and goes to several. What does not arrive so
/// is sent as if it had never been tried.
fn hand_on(tasks: &[Task<'_>], way: &PushContext<'_>) {
    let mut chains: BTreeMap<u32, Vec<(&Task<'_>, relay::Link<'_>)>> = BTreeMap::new();
    for task in tasks {
        for delivery in task
            .lacking()
            .into_iter()
            .filter(|delivery| delivery.bytes >= HANDED_ON)
        {
            let state = task.lock();
            let Some(target) = state
                .target
                .as_ref()
                .filter(|target| target.partial_bytes(delivery) == 0)
            else {
                continue;
            };
            let Some(agent) = target.ready.agent.clone() else {
                continue;
            };
            let link = relay::Link {
                host: task.host,
                delivery,
                receive: way.receive(task.host),
                agent,
            };
            chains.entry(delivery.file).or_default().push((task, link));
        }
    }
    for chain in chains.into_values().filter(|chain| chain.len() > 1) {
        let (tasks, links): (Vec<&Task<'_>>, Vec<relay::Link<'_>>) = chain.into_iter().unzip();
        let delivery = links[0].delivery;
        let Source::File(path) = &delivery.source else {
            continue;
        };
        let Ok(source) = feed::open(path, delivery) else {
            continue;
        };
        let hops = relay::hops(&links[1..], &way.args.connect.options());
        tasks[0].on_target(|target| target.hand(hops, &source, delivery));
        tasks.par_iter().zip(&links).for_each(|(task, link)| {
            task.on_target(|target| target.claim(&[link.delivery]));
        });
    }
}

/// Hosts that lack the room for what goes to them and to those that share their folder.
fn no_room(tasks: &[Task<'_>]) -> Vec<Fault> {
    let mut needed: BTreeMap<u32, u64> = BTreeMap::new();
    let leader = |task: &Task<'_>| task.lock().leader.unwrap_or(task.host.id);
    for task in tasks {
        let lacking = task.lacking();
        let state = task.lock();
        let Some(target) = &state.target else {
            continue;
        };
        let bytes: u64 = lacking
            .iter()
            .map(|delivery| delivery.bytes - target.partial_bytes(delivery))
            .sum();
        drop(state);
        *needed.entry(leader(task)).or_default() += bytes;
    }
    let fault = |task: &Task<'_>| {
        let needed = needed
            .get(&task.host.id)
            .copied()
            .filter(|needed| *needed > 0)?;
        let free = task.lock().target.as_ref()?.ready.free_bytes?;
        (needed + ROOM_TO_SPARE > free).then(|| {
            let problem = format!(
                "no space left: {} are to be sent, {} are \
                free",
                term::bytes(needed),
                term::bytes(free)
            );
            Fault::item(task.host.place(), problem).fix(
                "make room there, or choose a workspace on a larger disk; nothing was sent \
                    to any host",
            )
        })
    };
    tasks.iter().filter_map(fault).collect()
}

fn tell_plan(tasks: &[Task<'_>]) {
    let mut out = Out::new("part-push");
    for task in tasks.iter().filter(|task| task.lock().target.is_some()) {
        let (send, skipped) = (task.lacking(), task.lock().skipped.len());
        for delivery in &send {
            let source = match &delivery.source {
                Source::File(path) => path.display().to_string(),
                Source::Content(_) => "(made)".to_owned(),
                Source::Folder => "(an empty folder)".to_owned(),
                Source::There => "(not there)".to_owned(),
            };
            let (place, dst, bytes) = (
                task.host.place(),
                delivery.dst.display(),
                term::bytes(delivery.bytes),
            );
            out.write(
                format!(
                    "{}\n",
                    term::plain(&format!("{place}: {source} -> {dst} ({bytes})"))
                )
                .as_bytes(),
            );
        }
        let bytes = term::bytes(send.iter().map(|delivery| delivery.bytes).sum());
        let files = term::count(send.len() as u64, "file");
        out.write(
            format!(
                "{}: {files} to send, {bytes}; {skipped} there already\n",
                task.host.place()
            )
            .as_bytes(),
        );
    }
}

impl<'a> Task<'a> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the host, if it is there; one that breaks is given up.
    fn on_target<T>(&self, act: impl FnOnce(&mut Target) -> Result<T, HostFailure>) -> Option<T> {
        let mut state = self.lock();
        match act(state.target.as_mut()?) {
            Ok(value) => Some(value),
            Err(broken) => {
                (state.target, state.broken) = (None, Some(broken));
                None
            }
        }
    }

    /// What it needs and nobody else brings.
    fn lacking(&self) -> Vec<&'a Delivery> {
        let state = self.lock();
        if state.target.is_none() {
            return Vec::new();
        }
        let lacks = |id: &u32| {
            !state.skipped.contains(id)
                && !state.shared.contains(id)
                && !state.refused.contains_key(id)
        };
        self.deliveries
            .iter()
            .filter(|delivery| lacks(&delivery.id))
            .copied()
            .collect()
    }

    fn look(&self, options: Options, dry: bool) {
        if self.deliveries.is_empty() {
            return;
        }
        let look = |target: &mut Target| {
            // nobody puts there what we have not sent, and 10,000 names cost a host a tenth of a
            // second
            let needless =
                |delivery: &Delivery| target.ready.empty && delivery.source != Source::There;
            let asked: Vec<&Delivery> = self
                .deliveries
                .iter()
                .filter(|delivery| !needless(delivery))
                .copied()
                .collect();
            // a dry run reads nothing but metadata
            let same = target.look(&asked, if dry { None } else { Some(options.verify) })?;
            Ok(asked
                .iter()
                .zip(same)
                .filter(|(_, same)| *same)
                .map(|(delivery, _)| delivery.id)
                .collect())
        };
        let Some(skipped) = self.on_target(look) else {
            return;
        };
        let mut state = self.lock();
        state.skipped = skipped;
        let State {
            skipped, shared, ..
        } = &mut *state;
        shared.retain(|id| !skipped.contains(id));
        drop(state);
        if !dry {
            let lacking = self.lacking();
            let alone: Vec<&Delivery> = lacking
                .into_iter()
                .filter(|delivery| !plan::is_small(delivery))
                .collect();
            self.on_target(|target| target.claim(&alone));
        }
    }

    /// Sends it what it lacks; a record for each delivery, whatever happens.
    fn push(&self, options: Options, way: &PushContext<'_>, board: &Reporter) {
        let begun = Instant::now();
        let was_there = self.lock().target.is_some();
        let lacking = self.lacking();
        let to_send: BTreeSet<u32> = lacking.iter().map(|delivery| delivery.id).collect();
        let (skipped, refused, shared) = {
            let state = self.lock();
            (
                state.skipped.clone(),
                state.refused.clone(),
                state.shared.clone(),
            )
        };
        for delivery in &self.deliveries {
            if skipped.contains(&delivery.id) || refused.contains_key(&delivery.id) {
                let error = refused.get(&delivery.id).cloned();
                board.tell(
                    self.host,
                    delivery,
                    error.is_none(),
                    Outcome {
                        error,
                        sent_bytes: 0,
                        elapsed: Duration::ZERO,
                    },
                );
            }
        }
        let told = HostReporter {
            host: self.host,
            board,
            done: Mutex::new(BTreeSet::new()),
        };
        if !to_send.is_empty() {
            self.on_target(|target| self.send(target, &lacking, options, way, &told));
        }
        let mut done = told
            .done
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let waits_for_others = !shared.is_empty();
        done.extend(skipped.into_iter().chain(refused.into_keys()).chain(shared));
        self.lock().complete =
            was_there && !waits_for_others && done.len() == self.deliveries.len();
        self.give_up(&done, board);
        let state = self.lock();
        let waits = done.len() < self.deliveries.len();
        board
            .show
            .host(self.host, begun.elapsed(), state.broken.is_some() || waits);
    }

    /// Sends these, over a direct connection if there can be one; what is missing when that breaks
    /// goes over the login.
    fn send(
        &self,
        target: &mut Target,
        lacking: &[&'a Delivery],
        options: Options,
        way: &PushContext<'_>,
        told: &HostReporter<'_>,
    ) -> Result<(), HostFailure> {
        let bytes = lacking
            .iter()
            .map(|delivery| delivery.bytes - target.partial_bytes(delivery))
            .sum();
        let (address, place) = (self.host.ip.0, self.host.place());
        if let Some(warning) = target.client.choose_wire(address, bytes, &way.wire)? {
            eprintln!("part-push: {place}: {warning}");
        }
        told.board.show.wire(self.host, target.client.is_direct());
        let door = target.client.door();
        let more = || way.lane(self.host, door.as_ref());
        let sent = push::push(target, lacking, options, &more, told);
        let Err(broken) = sent else { return Ok(()) };
        if !target.client.is_direct() || way.wire.wire == Wire::Direct {
            return Err(broken);
        }
        target.client.take_back()?;
        eprintln!("part-push: {place}: its direct connection broke; its login is used instead");
        told.board.show.wire(self.host, false);
        let missing = self.missing(target, lacking, told)?;
        let more = || way.lane(self.host, None);
        push::push(target, &missing, options, &more, told)
    }

    /// What of these is not there, after a connection broke; of the others that is told.
    fn missing(
        &self,
        target: &mut Target,
        lacking: &[&'a Delivery],
        told: &HostReporter<'_>,
    ) -> Result<Vec<&'a Delivery>, HostFailure> {
        let unknown: Vec<&Delivery> = lacking
            .iter()
            .filter(|delivery| !told.is_done(delivery))
            .copied()
            .collect();
        let there = target.look(&unknown, Some(false))?;
        let (there, missing): (Vec<_>, Vec<_>) = unknown
            .into_iter()
            .zip(there)
            .partition(|(_, there)| *there);
        for (delivery, _) in there {
            let outcome = Outcome {
                error: None,
                sent_bytes: delivery.bytes,
                elapsed: Duration::ZERO,
            };
            told.done(delivery, outcome);
        }
        let missing: Vec<&Delivery> = missing.into_iter().map(|(delivery, _)| delivery).collect();
        let alone: Vec<&Delivery> = missing
            .iter()
            .filter(|delivery| !plan::is_small(delivery))
            .copied()
            .collect();
        target.claim(&alone)?;
        Ok(missing)
    }

    /// A record for each delivery that has none, and why.
    fn give_up(&self, done: &BTreeSet<u32>, board: &Reporter) {
        let state = self.lock();
        let Some(broken) = &state.broken else { return };
        for delivery in self
            .deliveries
            .iter()
            .filter(|delivery| !done.contains(&delivery.id))
        {
            let error = Some(broken.why.clone());
            board.record(
                delivery,
                false,
                &Outcome {
                    error,
                    sent_bytes: 0,
                    elapsed: Duration::ZERO,
                },
            );
        }
    }

    /// Whether what another host has put on shared storage is there for this one too.
    fn check_shared(&self, options: Options, board: &Reporter) {
        let shared = self.lock().shared.clone();
        let files: Vec<&Delivery> = self
            .deliveries
            .iter()
            .filter(|delivery| shared.contains(&delivery.id))
            .copied()
            .collect();
        if files.is_empty() {
            return;
        }
        let there = self
            .on_target(|target| target.look(&files, Some(options.verify)))
            .unwrap_or_else(|| vec![false; files.len()]);
        let broken = self.lock().broken.clone();
        for (delivery, there) in files.into_iter().zip(there) {
            let why = || {
                broken
                    .as_ref()
                    .map_or("the host that shares its folder did not get it", |broken| {
                        &broken.why
                    })
                    .to_owned()
            };
            let error = (!there).then(why);
            board.tell(
                self.host,
                delivery,
                true,
                Outcome {
                    error,
                    sent_bytes: 0,
                    elapsed: Duration::ZERO,
                },
            );
        }
        let mut state = self.lock();
        state.complete = state.broken.is_none();
    }
}

/// Where all that is done is told.
struct Reporter {
    out: Mutex<Out>,
    human: bool,
    of: u32,
    show: ProgressDisplay,
    failed: Mutex<Vec<Fault>>,
}

impl Reporter {
    fn record(&self, delivery: &Delivery, skipped: bool, outcome: &Outcome) {
        if self.human {
            return;
        }
        let line = jsonl::line(&Pushed {
            id: delivery.id,
            of: self.of,
            file: delivery.file,
            host: delivery.host,
            ok: outcome.error.is_none(),
            bytes: delivery.bytes,
            sent_bytes: outcome.sent_bytes,
            skipped: skipped && outcome.error.is_none(),
            elapsed_ms: millis(outcome.elapsed),
            error: outcome.error.clone(),
        });
        self.out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(&line);
    }

    fn tell(&self, host: &Host, delivery: &Delivery, skipped: bool, outcome: Outcome) {
        self.record(delivery, skipped, &outcome);
        if outcome.error.is_none() {
            self.show.file(host, delivery.bytes, skipped);
        }
        if let Some(why) = outcome.error {
            let place = format!("{}: {}", host.place(), delivery.dst.display());
            self.failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Fault::item(place, why));
        }
    }
}

/// The board, for one host.
struct HostReporter<'a> {
    host: &'a Host,
    board: &'a Reporter,
    done: Mutex<BTreeSet<u32>>,
}

impl HostReporter<'_> {
    fn is_done(&self, delivery: &Delivery) -> bool {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.contains(&delivery.id)
    }
}

impl Watch for HostReporter<'_> {
    fn moved(&self, bytes: u64) {
        self.board.show.moved(self.host, bytes);
    }

    fn done(&self, delivery: &Delivery, outcome: Outcome) {
        self.done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(delivery.id);
        self.board.tell(self.host, delivery, false, outcome);
    }
}
