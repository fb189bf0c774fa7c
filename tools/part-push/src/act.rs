//! Carries the deliveries out: looks at every host first, then sends to several at once.

use crate::args::Args;
use crate::feed;
use crate::plan::{self, Delivery, Source};
use crate::push::{self, Options, Outcome, Watch};
use crate::relay;
use crate::show::Show;
use crate::site::{BEAT, Broken, Site};
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::{self, Out, Stream};
use common::quote;
use common::record::{Host, Pushed, Record};
use common::remote::{self, CALL_SH, Kind, Remote, lanes};
use common::term::{self, millis};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const HOST_SH: &str = include_str!("host.sh");
/// What a file system needs beside the files themselves.
const ROOM_TO_SPARE: u64 = 1 << 20;

/// How the hosts are reached, where it all goes, and the name of this push.
struct Way<'a> {
    args: &'a Args,
    remote: Remote,
    stop: Arc<AtomicUsize>,
    base: &'a Path,
    run: String,
}

impl Way<'_> {
    fn script(&self, host: &Host, lane: bool) -> Vec<u8> {
        let flag = |on: bool| if on { "1" } else { "" };
        let [dry, fsync, lane] = [self.args.dry_run, self.args.fsync, lane].map(flag);
        let about = format!("\nrun={} me={} dry={dry} fsync={fsync} lane={lane}\n", self.run, host.id);
        [CALL_SH.as_bytes(), b"base=", &quote::sh(self.base.as_os_str().as_bytes()), about.as_bytes(), HOST_SH.as_bytes()].concat()
    }

    /// One more connection to a host that receives already.
    fn lane(&self, host: &Host) -> Option<Site> {
        let running = self.remote.open(host, &self.script(host, true)).ok()?;
        Site::new(running, self.stop.clone()).ok()
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
    site: Option<Site>,
    broken: Option<Broken>,
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

/// Copies to these hosts what is not there yet, of the deliveries to all: the records of some hosts only are a set with holes.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], deliveries: &[Delivery], base: &Path) -> Result<Exit, Report> {
    let remote = Remote::new(&args.connect, Kind::Ssh { bulk: true })?;
    let stop = common::signal::stop()
        .map_err(|error| Fault::unreachable("signals", error.to_string()).fix("let this user have more processes: ulimit -u"))?;
    let mut report = Report::default();
    let run =
        remote::random_token().map_err(|error| Fault::unreachable("/dev/urandom", error.to_string()).fix("this machine needs one"))?;
    let way = Way { args, remote, stop, base, run };
    let tasks = open(&way, hosts, deliveries, &mut report)?;
    let at_once = hosts.len().min(usize::from(args.jobs));
    let pool = remote::threads(at_once)?;
    let options = Options {
        verify: args.verify,
        fsync: args.fsync,
        compress: args.compress.wish(),
        piece: push::piece(at_once),
        streams: lanes::wanted(args.streams, at_once, way.remote.is_ssh()),
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_alive(&tasks, &over));
        report.extend(pool.install(|| carry_out(&way, stream, &tasks, options, deliveries)));
        over.store(true, Ordering::Relaxed);
        pool.install(|| tasks.par_iter().filter_map(|task| task.lock().site.take()).for_each(Site::end));
    });
    match i32::try_from(way.stop.load(Ordering::Relaxed)).unwrap_or_default() {
        0 => {
            report.print("part-push");
            Ok(report.exit())
        }
        signal => {
            eprintln!(
                "part-push: interrupted by SIG{}\n  fix: run it again: what is there already is skipped",
                common::signal::name(signal)
            );
            Ok(Exit::Signal(signal))
        }
    }
}

fn open<'a>(way: &Way<'_>, hosts: &'a [Host], deliveries: &'a [Delivery], report: &mut Report) -> Result<Vec<Task<'a>>, Report> {
    let opened = way.remote.open_all(hosts, |host| way.script(host, false))?;
    let faults: Vec<_> = hosts.iter().zip(&opened).filter_map(|(host, opened)| Some((host, opened.as_ref().err()?))).collect();
    report.extend(remote::report(faults, way.args.connect.host_key));
    let mut by_host: HashMap<u32, Vec<&Delivery>> = HashMap::new();
    for delivery in deliveries {
        by_host.entry(delivery.host).or_default().push(delivery);
    }
    let task = |(host, opened): (&'a Host, Result<_, remote::HostFault>)| {
        let reported = opened.is_err();
        let site = match opened {
            Ok(running) => Site::new(running, way.stop.clone()),
            Err(fault) => Err(Broken { why: fault.problem, lost: true }),
        };
        let (site, broken) = site.map_or_else(|broken| (None, Some(broken)), |site| (Some(site), None));
        let deliveries = by_host.remove(&host.id).unwrap_or_default();
        Task { host, deliveries, state: Mutex::new(State { site, broken, reported, ..State::default() }) }
    };
    Ok(hosts.iter().zip(opened).map(task).collect())
}

fn fault(host: &Host, broken: &Broken) -> Fault {
    match broken.lost {
        true => Fault::unreachable(host.place(), broken.why.clone()).fix("run it again: what is there already is skipped"),
        false => {
            Fault::item(host.place(), broken.why.clone()).fix("correct the workspace there, its room or its permissions, then run it again")
        }
    }
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
                && let Some(Err(broken)) = state.site.as_mut().map(Site::beat)
            {
                (state.site, state.broken) = (None, Some(broken));
            }
        }
    }
}

fn carry_out(way: &Way<'_>, stream: &Stream, tasks: &[Task<'_>], options: Options, deliveries: &[Delivery]) -> Report {
    let args = way.args;
    if !args.dry_run && tasks.len() > 1 {
        share(tasks);
    }
    tasks.par_iter().for_each(|task| task.look(options, args.dry_run));
    let full = no_room(tasks);
    if args.dry_run {
        tell_plan(tasks);
        return Report([broken(tasks), full].concat());
    }
    let mut out = Out::new("part-push");
    if !args.connect.format.human() {
        out.pass_but(stream, Pushed::TYPE);
    }
    let lacking = || tasks.iter().flat_map(|task| task.lacking().into_iter().map(|delivery| (task.host, delivery)));
    let board = Board {
        out: Mutex::new(out),
        human: args.connect.format.human(),
        of: u32::try_from(deliveries.len()).unwrap_or(u32::MAX),
        show: Show::new(args.progress, tasks.iter().map(|task| task.host), lacking().map(|(host, delivery)| (host.id, delivery.bytes))),
        failed: Mutex::default(),
    };
    if full.is_empty() {
        if args.relay {
            hand_on(tasks, way);
        }
        tasks.par_iter().for_each(|task| task.push(options, way, &board));
        tasks.par_iter().for_each(|task| task.check_shared(options, &board));
    } else {
        // a disk that fills up in the middle helps nobody
        let nothing_sent = Broken::said("nothing was sent: a host has no space left");
        for task in tasks {
            let mut state = task.lock();
            state.reported |= state.broken.is_none();
            state.broken.get_or_insert(nothing_sent.clone());
            drop(state);
            task.give_up(&BTreeSet::new(), &board);
        }
    }
    board.show.end();
    let failed = board.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    Report([full, failed, broken(tasks)].concat())
}

fn broken(tasks: &[Task<'_>]) -> Vec<Fault> {
    let fault = |task: &Task<'_>| {
        let state = task.lock();
        state.broken.as_ref().filter(|_| !state.reported).map(|broken| fault(task.host, broken))
    };
    tasks.iter().filter_map(fault).collect()
}

/// Finds out which hosts see the same folder, so that a file for all of them is sent once.
fn share(tasks: &[Task<'_>]) {
    let peers = |task: &Task<'_>| task.on_site(|site| site.peers()).map(|peers| (task.host.id, peers));
    let seen: BTreeMap<u32, Vec<u32>> = tasks.par_iter().filter_map(peers).collect();
    let leaders = plan::leaders(&seen);
    let mut taken: HashMap<(u32, &Path), (u32, u32)> = HashMap::new();
    for task in tasks {
        let Some(leader) = leaders.get(&task.host.id) else { continue };
        let mut state = task.lock();
        state.leader = Some(*leader);
        for delivery in &task.deliveries {
            let (file, host) = *taken.entry((*leader, &delivery.dst)).or_insert((delivery.file, delivery.host));
            if host != delivery.host && file == delivery.file {
                state.shared.insert(delivery.id);
            } else if host != delivery.host {
                state.refused.insert(delivery.id, format!("host {host} shares the folder and gets another file there"));
            }
        }
    }
}

/// Lets the hosts hand on to one another what is large and goes to several. What does not arrive so is sent as if it had never been tried.
fn hand_on(tasks: &[Task<'_>], way: &Way<'_>) {
    // its lines say where a part of a file goes
    if way.base.as_os_str().as_bytes().contains(&b'\n') {
        return;
    }
    let mut chains: BTreeMap<u32, Vec<(&Task<'_>, &Delivery)>> = BTreeMap::new();
    for task in tasks {
        for delivery in task.lacking().into_iter().filter(|delivery| !plan::is_small(delivery)) {
            let has_some = task.lock().site.as_ref().is_some_and(|site| site.partial(delivery).is_some());
            if !has_some {
                chains.entry(delivery.file).or_default().push((task, delivery));
            }
        }
    }
    for chain in chains.into_values().filter(|chain| chain.len() > 1) {
        let (first, delivery) = chain[0];
        let Source::File(path) = &delivery.source else { continue };
        let Ok(source) = feed::open(path, delivery) else { continue };
        let hosts: Vec<_> = chain.iter().map(|(task, delivery)| (task.host, *delivery)).collect();
        let header = relay::header(&hosts, &way.args.connect, way.base, &way.run);
        first.on_site(|site| site.hand(header, source, delivery));
        chain.par_iter().for_each(|(task, delivery)| {
            task.on_site(|site| site.claim(&[*delivery]));
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
        let Some(site) = &state.site else { continue };
        let there = |delivery: &Delivery| site.partial(delivery).map_or(0, |(_, bytes)| bytes);
        let bytes: u64 = lacking.iter().map(|delivery| delivery.bytes - there(delivery)).sum();
        drop(state);
        *needed.entry(leader(task)).or_default() += bytes;
    }
    let fault = |task: &Task<'_>| {
        let needed = needed.get(&task.host.id).copied().filter(|needed| *needed > 0)?;
        let free = task.lock().site.as_ref()?.free_bytes()?;
        (needed + ROOM_TO_SPARE > free).then(|| {
            let problem = format!("no space left: {} are to be sent, {} are free", term::bytes(needed), term::bytes(free));
            Fault::item(task.host.place(), problem)
                .fix("make room there, or choose a workspace on a larger disk; nothing was sent to any host")
        })
    };
    tasks.iter().filter_map(fault).collect()
}

fn tell_plan(tasks: &[Task<'_>]) {
    let mut out = Out::new("part-push");
    for task in tasks.iter().filter(|task| task.lock().site.is_some()) {
        let (send, skipped) = (task.lacking(), task.lock().skipped.len());
        for delivery in &send {
            let source = match &delivery.source {
                Source::File(path) => path.display().to_string(),
                Source::Content(_) => "(made)".to_owned(),
                Source::Folder => "(an empty folder)".to_owned(),
                Source::There => "(not there)".to_owned(),
            };
            let (place, dst, bytes) = (task.host.place(), delivery.dst.display(), term::bytes(delivery.bytes));
            out.write(format!("{}\n", term::plain(&format!("{place}: {source} -> {dst} ({bytes})"))).as_bytes());
        }
        let bytes = term::bytes(send.iter().map(|delivery| delivery.bytes).sum());
        let files = term::count(send.len() as u64, "file");
        out.write(format!("{}: {files} to send, {bytes}; {skipped} there already\n", task.host.place()).as_bytes());
    }
}

impl<'a> Task<'a> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the host, if it is there; one that breaks is given up.
    fn on_site<T>(&self, act: impl FnOnce(&mut Site) -> Result<T, Broken>) -> Option<T> {
        let mut state = self.lock();
        match act(state.site.as_mut()?) {
            Ok(value) => Some(value),
            Err(broken) => {
                (state.site, state.broken) = (None, Some(broken));
                None
            }
        }
    }

    /// What it needs and nobody else brings.
    fn lacking(&self) -> Vec<&'a Delivery> {
        let state = self.lock();
        if state.site.is_none() {
            return Vec::new();
        }
        let lacks = |id: &u32| !state.skipped.contains(id) && !state.shared.contains(id) && !state.refused.contains_key(id);
        self.deliveries.iter().filter(|delivery| lacks(&delivery.id)).copied().collect()
    }

    fn look(&self, options: Options, dry: bool) {
        if self.deliveries.is_empty() {
            return;
        }
        let look = |site: &mut Site| {
            // nobody puts there what we have not sent, and 10,000 names cost a host a tenth of a second
            let needless = |delivery: &Delivery| site.was_empty() && delivery.source != Source::There;
            let asked: Vec<&Delivery> = self.deliveries.iter().filter(|delivery| !needless(delivery)).copied().collect();
            // a dry run reads nothing but metadata
            let same = site.look(&asked, if dry { None } else { Some(options.verify) })?;
            Ok(asked.iter().zip(same).filter(|(_, same)| *same).map(|(delivery, _)| delivery.id).collect())
        };
        let Some(skipped) = self.on_site(look) else { return };
        let mut state = self.lock();
        state.skipped = skipped;
        let State { skipped, shared, .. } = &mut *state;
        shared.retain(|id| !skipped.contains(id));
        drop(state);
        if !dry {
            let lacking = self.lacking();
            let alone: Vec<&Delivery> = lacking.into_iter().filter(|delivery| !plan::is_small(delivery)).collect();
            self.on_site(|site| site.claim(&alone));
        }
    }

    /// Sends it what it lacks; a record for each delivery, whatever happens.
    fn push(&self, options: Options, way: &Way<'_>, board: &Board) {
        let begun = Instant::now();
        let lacking = self.lacking();
        let to_send: BTreeSet<u32> = lacking.iter().map(|delivery| delivery.id).collect();
        let (skipped, refused, shared) = {
            let state = self.lock();
            (state.skipped.clone(), state.refused.clone(), state.shared.clone())
        };
        for delivery in &self.deliveries {
            if skipped.contains(&delivery.id) || refused.contains_key(&delivery.id) {
                let error = refused.get(&delivery.id).cloned();
                board.tell(self.host, delivery, error.is_none(), Outcome { error, sent_bytes: 0, elapsed: Duration::ZERO });
            }
        }
        let told = Told { host: self.host, board, done: Mutex::new(BTreeSet::new()) };
        if !to_send.is_empty() {
            self.on_site(|site| push::push(site, &lacking, options, &|| way.lane(self.host), &told));
        }
        let mut done = told.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.extend(skipped.into_iter().chain(refused.into_keys()).chain(shared));
        self.give_up(&done, board);
        let state = self.lock();
        let waits = done.len() < self.deliveries.len();
        board.show.host(self.host, begun.elapsed(), state.broken.is_some() || waits);
    }

    /// A record for each delivery that has none, and why.
    fn give_up(&self, done: &BTreeSet<u32>, board: &Board) {
        let state = self.lock();
        let Some(broken) = &state.broken else { return };
        for delivery in self.deliveries.iter().filter(|delivery| !done.contains(&delivery.id)) {
            let error = Some(broken.why.clone());
            board.record(delivery, false, &Outcome { error, sent_bytes: 0, elapsed: Duration::ZERO });
        }
    }

    /// Whether what another host has put on shared storage is there for this one too.
    fn check_shared(&self, options: Options, board: &Board) {
        let shared = self.lock().shared.clone();
        let files: Vec<&Delivery> = self.deliveries.iter().filter(|delivery| shared.contains(&delivery.id)).copied().collect();
        if files.is_empty() {
            return;
        }
        let there = self.on_site(|site| site.look(&files, Some(options.verify))).unwrap_or_else(|| vec![false; files.len()]);
        let broken = self.lock().broken.clone();
        for (delivery, there) in files.into_iter().zip(there) {
            let why = || broken.as_ref().map_or("the host that shares its folder did not get it", |broken| &broken.why).to_owned();
            let error = (!there).then(why);
            board.tell(self.host, delivery, true, Outcome { error, sent_bytes: 0, elapsed: Duration::ZERO });
        }
    }
}

/// Where all that is done is told.
struct Board {
    out: Mutex<Out>,
    human: bool,
    of: u32,
    show: Show,
    failed: Mutex<Vec<Fault>>,
}

impl Board {
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
        self.out.lock().unwrap_or_else(PoisonError::into_inner).write(&line);
    }

    fn tell(&self, host: &Host, delivery: &Delivery, skipped: bool, outcome: Outcome) {
        self.record(delivery, skipped, &outcome);
        if outcome.error.is_none() {
            self.show.file(host, delivery.bytes, skipped);
        }
        if let Some(why) = outcome.error {
            let place = format!("{}: {}", host.place(), delivery.dst.display());
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).push(Fault::item(place, why));
        }
    }
}

/// The board, for one host.
struct Told<'a> {
    host: &'a Host,
    board: &'a Board,
    done: Mutex<BTreeSet<u32>>,
}

impl Watch for Told<'_> {
    fn moved(&self, bytes: u64) {
        self.board.show.moved(self.host, bytes);
    }

    fn done(&self, delivery: &Delivery, outcome: Outcome) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).insert(delivery.id);
        self.board.tell(self.host, delivery, false, outcome);
    }
}
