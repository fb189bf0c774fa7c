//! Carries out the deliveries: first examines every host, then sends to several at once.
//!
//! 1. `open` logs in to all hosts; `turn::wait` waits until no other push writes to a workspace.
//! 2. `share` finds hosts that see the same directory, and `Target::inspect` what each host has.
//! 3. If the files do not fit on one host, nothing is sent. With --dry-run, it ends with
//!    `print_plan`.
//! 4. `send` sends small files, then large ones that hosts hand on, then the rest. Hosts of shared
//!    storage take over what a lost host leaves, and check that they see its files.

use crate::args::Args;
use crate::connection::PushConnection;
use crate::context::PushContext;
use crate::hand_on;
use crate::plan::{self, Delivery, DeliverySource};
use crate::reporter::Reporter;
use crate::target::{Target, TargetState};
use crate::turn;
use cli::copy;
use cli::progress::{self, ProgressDisplay};
use parking_lot::Mutex;
use rayon::prelude::*;
use record::error::{Fault, Report};
use record::exit::{Exit, SignalNumber};
use record::jsonl::{Out, Stream};
use record::term;
use record::{Host, Pushed, Record, is_job_name};
use remote::HostFault;
use remote::{self, Remote, Session};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use transfer::fates::{Fate, Fates};
use transfer::parts::Parts;
use transfer::{case, source};
use wire::files::{Exposed, PublicKey};

/// Space that a file system needs beside the files.
const ROOM_TO_SPARE: u64 = 1 << 20;
/// More jobs of a user hardly run in one directory of a host, which may claim any number.
const JOBS_NAMED: usize = 10;
/// For directories and for the push itself.
const INODES_TO_SPARE: u64 = 16;

/// Copies to these hosts the files that they lack. `deliveries` has those to all hosts; if only
/// some are chosen, the set of records has holes.
pub fn run(
    args: &Args,
    stream: &Stream,
    hosts: &[Host],
    deliveries: &[Delivery],
    base: &Path,
) -> Result<Exit, Report> {
    let stop = cli::signal::stop()?;
    let wire = args.copy.options(&args.connect);
    let remote = Remote::new(args.connect.options_until(&stop))?;
    let remote = remote.for_content(wire.may_burden_logins(most_for_a_host(deliveries)));
    let mut report = Report::default();
    let context = PushContext {
        args,
        remote,
        wire,
        limit: args.copy.limit(),
        stop,
        base,
        is_dry: args.copy.dry_run || !plan::is_written(deliveries),
        run: remote::random_token()?,
    };
    let targets = open(&context, hosts, deliveries, &mut report)?;
    turn::wait(&context, &targets)?;
    if let Some(signal) = context.signal() {
        return Ok(interrupted(signal));
    }
    warn(&context, &targets);
    let at_once = hosts.len().min(usize::from(args.jobs));
    let pool = remote::threads(at_once)?;
    report.extend(pool.install(|| carry_out(&context, stream, &targets, deliveries)));
    pool.install(|| {
        targets
            .par_iter()
            .filter_map(|target| target.lock().connection.take())
            .for_each(|connection| connection.link.end());
    });
    Ok(match context.signal() {
        None => {
            report.print("part-push");
            report.exit()
        }
        Some(signal) => interrupted(signal),
    })
}

fn most_for_a_host(deliveries: &[Delivery]) -> u64 {
    let mut bytes: HashMap<u32, u64> = HashMap::new();
    for delivery in deliveries {
        *bytes.entry(delivery.host).or_default() += delivery.bytes;
    }
    bytes.into_values().max().unwrap_or(0)
}

fn interrupted(signal: SignalNumber) -> Exit {
    record::tell!(
        "part-push: interrupted by SIG{signal}\n  \
         fix: run the same command again; copied files are skipped"
    );
    Exit::Signal(signal)
}

fn open<'a>(
    context: &PushContext<'_>,
    hosts: &'a [Host],
    deliveries: &'a [Delivery],
    report: &mut Report,
) -> Result<Vec<Target<'a>>, Report> {
    let opened = context.remote.open_agents(hosts);
    report.extend(remote::report(hosts, &opened));
    let mut by_host: HashMap<u32, Vec<&Delivery>> = HashMap::new();
    for delivery in deliveries {
        by_host.entry(delivery.host).or_default().push(delivery);
    }
    let begin = |(host, opened): (&'a Host, Result<Session, HostFault>)| {
        let reported = opened.is_err();
        let begun = opened.and_then(|session| {
            let (stop, receive) = (context.stop.clone(), context.receive(host));
            PushConnection::begin(session, stop, receive, context.comparison())
        });
        let (connection, broken) = match begun {
            Ok(mut connection) => {
                connection.link.keep_to(context.limit.clone());
                (Some(connection), None)
            }
            Err(broken) => (None, Some(broken)),
        };
        (
            host,
            TargetState {
                connection,
                broken,
                reported,
                ..TargetState::default()
            },
        )
    };
    let pairs: Vec<_> = hosts.iter().zip(opened).collect();
    let begun: Vec<_> =
        turn::threads(hosts.len())?.install(|| pairs.into_par_iter().map(begin).collect());
    let target = |(host, state): (&'a Host, TargetState)| {
        let deliveries = by_host.remove(&host.id).unwrap_or_default();
        Target {
            host,
            fates: fates(&deliveries),
            deliveries,
            begun: OnceLock::new(),
            state: Mutex::new(state),
        }
    };
    let targets: Vec<_> = begun.into_iter().map(target).collect();
    Ok(targets)
}

/// Warns about new directories to which a group can write, and about locks that other hosts do not
/// see.
fn warn(context: &PushContext<'_>, targets: &[Target<'_>]) {
    let mut unlocked: BTreeMap<String, Vec<&Host>> = BTreeMap::new();
    let mut open_to_group: Vec<&Host> = Vec::new();
    for target in targets {
        let Some(connection) = &mut target.lock().connection else {
            continue;
        };
        if let Some(why) = connection.ready.unlocked.take() {
            unlocked.entry(why).or_default().push(target.host);
        }
        if std::mem::take(&mut connection.ready.open_to_group) {
            open_to_group.push(target.host);
        }
    }
    if !open_to_group.is_empty() {
        record::tell!(
            "part-push: {}: members of a group can write to the new directory {}, as the umask \
             of the login allows\n  fix: if they should not, run chmod g-w on it there",
            name_first(&open_to_group),
            context.base.display()
        );
    }
    for (why, hosts) in unlocked {
        record::tell!(
            "part-push: {}: other hosts do not see a lock on {} ({}), so other pushes to it do \
             not wait for this one\n  fix: mount that file system with locks (Lustre: -o flock; \
             NFS: without nolock and local_lock), or run one push at a time",
            name_first(&hosts),
            context.base.display(),
            wire::shown(&why)
        );
    }
}

/// Warns about directories in which other users of a host could replace what is copied there: of
/// each host, the first one.
fn warn_of_others(targets: &[Target<'_>]) {
    let mut exposed: BTreeMap<Exposed, Vec<&Host>> = BTreeMap::new();
    for target in targets {
        if let Some(connection) = &mut target.lock().connection
            && let Some(folder) = connection.ready.exposed.take()
        {
            exposed.entry(folder).or_default().push(target.host);
        }
    }
    for (folder, hosts) in exposed {
        let fix = match folder {
            Exposed::Owned(_) => "choose a workspace in a directory that belongs to you",
            Exposed::Writable(_) => {
                "run chmod o-w on this directory of the host, or chmod +t if others have to write \
                 to it too; or choose another workspace"
            }
        };
        record::tell!("part-push: {}: {folder}\n  fix: {fix}", name_first(&hosts));
    }
}

/// Warns about jobs whose files this push replaces: a data loader, a late import or a restart would
/// load the new ones.
fn warn_of_jobs(context: &PushContext<'_>, targets: &[Target<'_>]) {
    let mut jobs: BTreeMap<String, Vec<&Host>> = BTreeMap::new();
    let found = targets
        .par_iter()
        .map(|target| (target, target.jobs_of_replaced()));
    for (target, names) in found.collect::<Vec<_>>() {
        let names = names.into_iter();
        for name in names.filter(|name| is_job_name(name)).take(JOBS_NAMED) {
            jobs.entry(name).or_default().push(target.host);
        }
    }
    for (name, hosts) in jobs {
        record::tell!(
            "part-push: {}: job {name} runs in {}, where files are replaced now\n  fix: give the \
             next job another --workspace, or copy again when that one has finished",
            name_first(&hosts),
            context.base.display()
        );
    }
}

fn name_first(hosts: &[&Host]) -> String {
    term::first_few(hosts.iter().map(|host| host.location()), 1)
}

/// Marks every delivery as lacking, and refuses those whose destination is taken.
fn fates(deliveries: &[&Delivery]) -> Fates {
    let first = deliveries.first().map_or(0, |delivery| delivery.id);
    let fates = Fates::new(first, deliveries.len());
    let mut refused = plan::twice(deliveries);
    for delivery in deliveries {
        if let Some(why) = refused.remove(&delivery.id) {
            fates.set(*delivery, Fate::Refused(why));
        }
    }
    fates
}

fn carry_out(
    context: &PushContext<'_>,
    stream: &Stream,
    targets: &[Target<'_>],
    deliveries: &[Delivery],
) -> Report {
    let dry = context.args.copy.dry_run;
    if !dry && targets.len() > 1 {
        share(targets);
    }
    targets
        .par_iter()
        .for_each(|target| target.inspect(context));
    warn_of_others(targets);
    let unfit = [no_room(targets), names_alike(context, targets)].concat();
    if dry {
        let unwritten = print_plan(targets);
        return Report([broken(targets), unfit, Vec::from_iter(unwritten)].concat());
    }
    let reporter = new_reporter(context, stream, targets, deliveries.len());
    if unfit.is_empty() {
        warn_of_jobs(context, targets);
        send(context, targets, &reporter);
    } else {
        send_nothing(targets, &reporter);
    }
    Report([unfit, reporter.copy.end(), broken(targets)].concat())
}

fn new_reporter(
    context: &PushContext<'_>,
    stream: &Stream,
    targets: &[Target<'_>],
    deliveries: usize,
) -> Reporter {
    let args = context.args;
    let changed = context
        .remote
        .newly_found(targets.iter().map(|target| target.host));
    let lacking = targets.iter().flat_map(|target| {
        target
            .lacking()
            .into_iter()
            .map(|delivery| (target.host.id, delivery.bytes))
    });
    let show = ProgressDisplay::new(
        "part-push",
        "there",
        args.copy.progress,
        targets.iter().map(|target| target.host),
        lacking,
    );
    Reporter {
        copy: copy::CopyReporter::new(
            "part-push",
            args.connect.format.human(),
            u32::try_from(deliveries).unwrap_or(u32::MAX),
            show,
            stream,
            Pushed::TYPE,
            &changed,
        ),
        failed: Mutex::default(),
    }
}

fn send(context: &PushContext<'_>, targets: &[Target<'_>], reporter: &Reporter) {
    if choose_routes(targets, context, reporter) {
        // small files first, so that scripts do not wait for large maps
        targets
            .par_iter()
            .for_each(|target| target.push_small(context, reporter));
        hand_on::all(targets, context, reporter);
    }
    targets
        .par_iter()
        .for_each(|target| target.push(context, reporter));
    loop {
        choose_writers(targets, |delivery| {
            reporter.has_failed(delivery.host, delivery.file)
        });
        let lack = |target: &&Target<'_>| target.fates.count(&Fate::Lacks) > 0;
        let writers: Vec<_> = targets.iter().filter(lack).collect();
        if writers.is_empty() {
            break;
        }
        writers
            .par_iter()
            .for_each(|target| target.push(context, reporter));
    }
    targets
        .par_iter()
        .for_each(|target| target.check_shared(context, reporter));
}

/// Gives up all hosts because one cannot take its files: sending nothing is better than filling a
/// disk in the middle of a push.
fn send_nothing(targets: &[Target<'_>], reporter: &Reporter) {
    let nothing_sent = HostFault::reported("nothing was sent: a host cannot take its files");
    for target in targets {
        let mut state = target.lock();
        state.reported |= state.broken.is_none();
        state.broken.get_or_insert(nothing_sent.clone());
        drop(state);
        target.give_up(&target.deliveries, reporter);
    }
}

fn broken(targets: &[Target<'_>]) -> Vec<Fault> {
    let fault = |target: &Target<'_>| {
        let state = target.lock();
        let unreported = |_: &&HostFault| !state.reported && !state.complete;
        let broken = state.broken.as_ref().filter(unreported)?;
        let mut fault = broken.fault(target.host);
        let fix = if broken.is_unreachable {
            "run the same command again; copied files are skipped"
        } else {
            "fix the problem on the host and run the same command again; copied files are skipped"
        };
        fault.fix.get_or_insert_with(|| fix.to_owned());
        Some(fault)
    };
    targets.iter().filter_map(fault).collect()
}

/// Finds hosts that see the same directory, so that a file for all of them is sent once.
fn share(targets: &[Target<'_>]) {
    let peers = |target: &Target<'_>| {
        target
            .on_connection(PushConnection::peers)
            .map(|peers| (target.host.id, peers.into_iter().collect()))
    };
    let seen: BTreeMap<u32, BTreeSet<u32>> = targets.par_iter().filter_map(peers).collect();
    let leaders = plan::leaders(&seen);
    for target in targets {
        target.lock().leader = leaders.get(&target.host.id).copied();
    }
    choose_writers(targets, |_| false);
}

/// Of hosts that share a directory, the first one writes each file there. A host that was given up
/// leaves to the next one what it could not write.
fn choose_writers(targets: &[Target<'_>], has_failed: impl Fn(&Delivery) -> bool) {
    let mut files: HashMap<(u32, &[u8]), (&Delivery, Option<u32>)> = HashMap::new();
    for target in targets {
        let state = target.lock();
        let Some(leader) = state.leader else { continue };
        for delivery in &target.deliveries {
            let place = (leader, delivery.dst.as_os_str().as_bytes());
            let (first, writer) = files.entry(place).or_insert((delivery, None));
            let fate = if first.file != delivery.file {
                Fate::Refused(format!(
                    "host {} shares the directory and gets another file of this name",
                    first.host
                ))
            } else if state.connection.is_none() && has_failed(delivery) {
                continue;
            } else {
                match *writer.get_or_insert(delivery.host) {
                    host if host == delivery.host => Fate::Lacks,
                    host => Fate::Shared(host),
                }
            };
            target.fates.set(*delivery, fate);
        }
    }
}

/// Chooses the connection for content to each host. A host that may receive files from others gets
/// their keys. Returns whether there are any.
fn choose_routes(targets: &[Target<'_>], context: &PushContext<'_>, reporter: &Reporter) -> bool {
    let keys = hosts_of_chains(targets);
    targets
        .par_iter()
        .for_each(|target| target.choose_route(context, &keys, reporter));
    !keys.is_empty()
}

/// The public keys of all hosts that get a file which other hosts get too. A host that announces
/// the key of another one gains nothing: the key admits neither.
fn hosts_of_chains(targets: &[Target<'_>]) -> Vec<PublicKey> {
    let shared = hand_on::shared_files(targets).into_iter().flatten();
    let by_id: BTreeMap<u32, &Target<'_>> =
        shared.map(|(target, _)| (target.host.id, target)).collect();
    let key = |target: &Target<'_>| target.lock().connection.as_ref()?.ready.key;
    unshared(by_id.into_values().filter_map(key).collect())
}

/// The keys that only one host announces.
fn unshared(mut keys: Vec<PublicKey>) -> Vec<PublicKey> {
    keys.sort_unstable();
    let alone = keys.chunk_by(|key, next| key == next);
    alone
        .filter_map(|same| <[PublicKey; 1]>::try_from(same).ok())
        .flatten()
        .collect()
}

/// The space that a file needs on its host beside the parts that are there: less than its size if
/// it has holes. Small files are not examined, because each of many hosts may get 10,000 of them.
fn room(delivery: &Delivery, kept: &Parts) -> u64 {
    if let DeliverySource::File(path) = &delivery.source
        && !plan::is_small(delivery)
        && let Ok((file, meta)) = source::open(path)
        && source::is_sparse(&meta)
    {
        let missing = kept.missing(delivery.bytes).into_iter();
        return missing
            .map(|(begin, end)| source::room_needed(&file, begin, end))
            .sum();
    }
    delivery.bytes - kept.bytes()
}

/// What is to be put into the directory of a host, or of several that share one.
#[derive(Clone, Copy, Default)]
struct Needs {
    bytes: u64,
    files: u64,
}

/// The faults of hosts without enough space for their files and for those of hosts that share their
/// directory.
fn no_room(targets: &[Target<'_>]) -> Vec<Fault> {
    let mut needs: BTreeMap<u32, Needs> = BTreeMap::new();
    let leader = |target: &Target<'_>| target.lock().leader.unwrap_or(target.host.id);
    for target in targets {
        let lacking = target.lacking();
        let state = target.lock();
        let Some(connection) = &state.connection else {
            continue;
        };
        let bytes: u64 = lacking
            .iter()
            .map(|delivery| room(delivery, &connection.kept(delivery)))
            .sum();
        let is_new = |delivery: &&&Delivery| !connection.is_occupied(delivery);
        let files = lacking.iter().filter(is_new).count() as u64;
        drop(state);
        let needs = needs.entry(leader(target)).or_default();
        needs.bytes += bytes;
        needs.files += files;
    }
    let fault = |target: &Target<'_>| {
        let Needs { bytes, files } = needs.get(&target.host.id).copied()?;
        let state = target.lock();
        let ready = &state.connection.as_ref()?.ready;
        let is_more = |needed: u64, spare: u64, free: Option<u64>| {
            free.filter(|free| needed > 0 && needed.saturating_add(spare) > *free)
        };
        let (problem, fix) = if let Some(free) = is_more(bytes, ROOM_TO_SPARE, ready.free_bytes) {
            let (needed, free) = (term::bytes(bytes), term::bytes(free));
            (
                format!("no space left: {needed} are to be sent, {free} are free"),
                "make room on the host, or choose a workspace on a larger disk",
            )
        } else {
            let free = is_more(files, INODES_TO_SPARE, ready.free_inodes)?;
            let files = term::count(files, "new file");
            (
                format!("not enough inodes: {files} to send, {free} inodes free (df -i)"),
                "remove small files on the host, or choose a workspace on another file system",
            )
        };
        let fix = format!("{fix}; nothing was sent to any host");
        Some(Fault::item(target.host.location(), problem).fix(fix))
    };
    targets.iter().filter_map(fault).collect()
}

/// The faults of hosts that would take two of their files for one.
fn names_alike(context: &PushContext<'_>, targets: &[Target<'_>]) -> Vec<Fault> {
    let all = targets.iter().flat_map(|target| &target.deliveries);
    let names: BTreeMap<u32, &Path> = all.map(|one| (one.file, &*one.dst)).collect();
    if case::alike(&Vec::from_iter(names.into_values())).is_none() {
        return Vec::new();
    }
    let fault = |target: &Target<'_>| {
        let files = target.deliveries.iter().map(|delivery| &*delivery.dst);
        let (one, other) = case::alike(&files.collect::<Vec<_>>())?;
        let host = target.host.id;
        let folds_case = target
            .on_connection(|connection| connection.folds_case(context.base, &context.run, host))?;
        let problem = format!(
            "{} and {} have the same name there: its file system does not tell upper from lower \
             case",
            one.display(),
            other.display()
        );
        let fix = "rename one of them, or choose a workspace on another file system; nothing was \
                   sent to any host";
        folds_case.then(|| Fault::item(target.host.location(), problem).fix(fix))
    };
    targets.iter().filter_map(fault).collect()
}

/// Prints what would be sent; returns the fault of stdout.
fn print_plan(targets: &[Target<'_>]) -> Option<Fault> {
    let mut out = Out::new("part-push");
    for target in targets
        .iter()
        .filter(|target| target.lock().connection.is_some())
    {
        let (send, skipped) = (target.lacking(), target.fates.count(&Fate::Present));
        for delivery in &send {
            let source = match &delivery.source {
                DeliverySource::File(path) => path.display().to_string(),
                DeliverySource::Content(_) => "(made)".to_owned(),
                DeliverySource::Folder => "(an empty directory)".to_owned(),
                DeliverySource::MustExist => "(not there)".to_owned(),
            };
            copy::print_planned(
                &mut out,
                target.host,
                &source,
                &delivery.dst,
                delivery.bytes,
            );
        }
        let bytes = send.iter().map(|delivery| delivery.bytes).sum();
        let sizes = (send.len() as u64, bytes);
        let summary = progress::summary(sizes, skipped as u64, "to copy", "there");
        out.write(format!("{}: {summary}\n", target.host.location()).as_bytes());
    }
    out.fault()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::files::Hex;

    #[test]
    fn a_key_that_two_hosts_announce_admits_neither() {
        let [a, b, c] = [1, 2, 3].map(|byte| Hex([byte; 32]));
        assert_eq!(unshared(vec![b, a, b, c]), [a, c]);
        assert_eq!(unshared(vec![a, a, a]), []);
    }
}
