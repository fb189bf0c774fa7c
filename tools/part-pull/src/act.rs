//! Lists the files of every host first, then fetches them from several hosts at once.
//!
//! 1. `PullTask::list` asks each host for the files that match; `number` gives each an id.
//! 2. `find_present` finds those that are here already. With --dry-run, it ends with `print_plan`.
//! 3. `claim_all` waits until no other part-pull writes to the directories, and 2 is repeated.
//! 4. Hosts are refused if two of their files would be one here, or if their files do not fit.
//! 5. `PullTask::pull` fetches the rest, over a direct connection or the login.

use crate::args::Args;
use crate::listing::{self, HostListing, Listed};
use crate::local::{self, Local};
use crate::plan::{PulledFile, SelectedFiles};
use crate::pull::{self, PullFault, Received};
use cli::copy::{self, CopyReporter};
use cli::progress::ProgressDisplay;
use rayon::prelude::*;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{Out, Stream};
use record::{Host, Pulled, path_fields, term};
use remote::HostFault;
use remote::direct::WireOptions;
use remote::host_link::HostLink;
use remote::{self, Remote, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use transfer::fates::{Fate, Fates};
use transfer::lock::{self, LockAttempt, Mark, PATIENCE};
use transfer::{LARGE, case, room, source};
use wire::files::{Exposed, FileFault, FileRequest};

const MAX_NAMES: usize = 3;
/// Space that a file system needs beside the files.
const ROOM_TO_SPARE: u64 = 1 << 20;
const AGAIN: &str = "run this again; it skips files that have arrived";
const CORRECT_HERE: &str = "correct this on this machine, or give another directory with --to; \
     then run this again; it skips files that have arrived";

struct PullTask<'a> {
    host: &'a Host,
    link: Result<HostLink, HostFault>,
    items: Vec<PulledFile>,
    /// The patterns that match something.
    matched: BTreeSet<usize>,
    /// How many special files and broken links match.
    left_out: usize,
    /// The first of these, with the reason.
    first_left_out: Option<(PathBuf, FileFault)>,
    local: Local,
    /// While this run alone writes to the local directory.
    claim: Option<LockAttempt>,
    fates: Fates,
}

/// Fetches wanted files that are not here yet.
pub fn run(
    args: &Args,
    stream: &Stream,
    hosts: &[Host],
    workspace: &Path,
    wanted: &SelectedFiles,
) -> Result<Exit, Report> {
    let stop = cli::signal::stop()?;
    let remote = Remote::new(args.connect.options_until(&stop))?;
    // how much there is to bring is not known yet
    let is_much = args.copy.options(&args.connect).may_burden_logins(u64::MAX);
    let remote = remote.for_content(is_much);
    // before there are threads
    local::umask();
    let opened = remote.open_agents(hosts);
    if let Some(signal) = cli::signal::received(&stop) {
        return Ok(Exit::Signal(signal));
    }
    let mut report = remote::report(hosts, &opened);
    let at_once = hosts.len().min(usize::from(args.jobs));
    let pool = remote::threads(at_once)?;
    // a host that --partial has left of several keeps its place
    let alone = hosts.len() == 1 && (hosts[0].of <= 1 || !args.connect.host.is_empty());
    let run = remote::random_token()?;
    // a dry run changes nothing
    let mark = (!args.copy.dry_run).then(|| lock::new_name(local::LOCK));
    let list = |(host, opened)| {
        let folder = folder(args, host, alone);
        let wanted = (wanted, mark.as_deref());
        PullTask::list(host, opened, &stop, workspace, wanted, &folder)
    };
    let pairs: Vec<(&Host, _)> = hosts.iter().zip(opened).collect();
    let folders = hosts.iter().map(|host| folder(args, host, alone));
    let folders: BTreeSet<PathBuf> = folders.chain([args.to.clone()]).collect();
    let marks = mark.as_ref().map(|mark| put_marks(&folders, mark, &run));
    let mut tasks: Vec<PullTask<'_>> = pool.install(|| pairs.into_par_iter().map(list).collect());
    drop(marks);
    if args.copy.dry_run {
        for task in &mut tasks {
            task.items.retain(|item| !is_here(item, &args.to, &folders));
        }
    }
    refuse_endless(&mut tasks);
    let of = number(&mut tasks);
    pool.install(|| tasks.par_iter_mut().for_each(|task| task.find_present()));
    tell_missing(&tasks, wanted);
    if let (true, [task]) = (alone && hosts[0].of > 1, &tasks[..]) {
        task.tell_replaced();
    }
    report.0.extend(unmatched(&tasks, workspace, wanted));
    if args.copy.dry_run {
        report.0.extend(print_plan(&tasks));
    } else {
        let changed = remote.newly_found(hosts);
        let bring = || bring_all(args, (stream, &run), &changed, &stop, &mut tasks, of);
        let brought = pool.install(bring);
        report.0.extend(brought?);
    }
    let known: Vec<_> = report
        .0
        .iter()
        .map(|fault| fault.location.clone())
        .collect();
    report.0.extend(failed_hosts(&tasks, &known));
    report.print("part-pull");
    Ok(cli::signal::received(&stop).map_or_else(|| report.exit(), Exit::Signal))
}

/// Marks the directories for the files, because a host may see them in its workspace.
fn put_marks(folders: &BTreeSet<PathBuf>, mark: &str, run: &str) -> Vec<Mark> {
    let put = |folder: &PathBuf| local::mark(folder, mark, run);
    folders.iter().filter_map(put).collect()
}

/// Whether a listed file is one of those here, in a directory that the host sees in its workspace.
/// Without a mark, its inode shows that.
fn is_here(item: &PulledFile, to: &Path, folders: &BTreeSet<PathBuf>) -> bool {
    let path = item.src.strip_prefix(".").unwrap_or(&item.src);
    let mut below = path.components();
    let mut is_below = false;
    while !below.as_path().as_os_str().is_empty() {
        let here = to.join(below.as_path());
        // what is in the workspace itself is wanted even if that is --to
        is_below = is_below
            || here
                .ancestors()
                .any(|above| above != to && folders.contains(above));
        let is_same = |meta| source::meta(&meta).is_same_version(&item.there);
        if is_below && here.symlink_metadata().is_ok_and(is_same) {
            return true;
        }
        below.next();
        is_below = true;
    }
    false
}

/// The unreported faults of hosts that gave nothing, or not everything.
fn failed_hosts(tasks: &[PullTask<'_>], known: &[String]) -> Vec<Fault> {
    let fault = |task: &PullTask<'_>| {
        let failure = task.link.as_ref().err()?;
        let location = task.host.location();
        let fix = failure
            .fix
            .as_deref()
            .unwrap_or("check --workspace and the host, then run this again");
        (!known.contains(&location))
            .then(|| Fault::unreachable(location, failure.problem.clone()).fix(fix))
    };
    tasks.iter().filter_map(fault).collect()
}

/// Fetches the files of all hosts, `of` in all; returns the faults of single files, and of stdout.
/// The records of hosts in `changed` have new fields.
fn bring_all(
    args: &Args,
    (stream, run): (&Stream, &str),
    changed: &[Host],
    stop: &AtomicUsize,
    tasks: &mut [PullTask<'_>],
    of: u32,
) -> Result<Vec<Fault>, Report> {
    if !claim_all(tasks, run, stop)? {
        // another part-pull is writing there
        tasks
            .iter_mut()
            .for_each(|task| task.link = Err(HostFault::unreachable("interrupted").fix(AGAIN)));
    }
    // the other part-pull may have copied them meanwhile
    tasks.par_iter_mut().for_each(|task| task.find_present());
    tasks.iter_mut().for_each(PullTask::refuse_alike);
    refuse_too_much(args, tasks);
    let reporter = CopyReporter::new(
        "part-pull",
        args.connect.format.human(),
        of,
        progress(args, tasks),
        stream,
        "",
        changed,
    );
    let (wire, limit) = (args.copy.options(&args.connect), args.copy.limit());
    for task in tasks.iter_mut() {
        if let Ok(link) = &mut task.link {
            link.keep_to(limit.clone());
        }
    }
    tasks
        .par_iter_mut()
        .for_each(|task| task.pull(&reporter, &wire));
    Ok(reporter.end())
}

/// Claims the local directories of all hosts that give something; `false` after a signal.
fn claim_all(tasks: &mut [PullTask<'_>], run: &str, stop: &AtomicUsize) -> Result<bool, Report> {
    let lacking = tasks.iter_mut();
    let lacking = lacking.filter(|task| task.fates.count(&Fate::Lacks) > 0);
    let mut lacking: Vec<&mut PullTask<'_>> = lacking.collect();
    // in the same order for all, so that no two wait for each other
    lacking.sort_unstable_by(|one, other| one.local.path.cmp(&other.local.path));
    let parents = lacking.iter().flat_map(|task| {
        let parents = task.items.iter().filter_map(|item| item.dst.parent());
        parents.map(|parent| (parent, &task.local))
    });
    let written: BTreeMap<&Path, &Local> = parents.collect();
    let mut written = written.iter();
    if let Some(folder) = written.find_map(|(folder, local)| local.exposed(folder)) {
        let fix = match folder {
            Exposed::Owned(_) => "give a directory that belongs to you with --to",
            Exposed::Writable(_) => {
                "run chmod o-w on this directory, or chmod +t if others have to write to it too; \
                 or give another one with --to"
            }
        };
        record::tell!("part-pull: {folder}\n  fix: {fix}");
    }
    for task in lacking {
        task.claim = claim(&task.local.path, run, stop)?;
        if task.claim.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until no other part-pull writes to this directory; `None` after a signal.
fn claim(folder: &Path, run: &str, stop: &AtomicUsize) -> Result<Option<LockAttempt>, Fault> {
    let begun = Instant::now();
    let mut is_announced = false;
    while stop.load(Ordering::Relaxed) == 0 {
        let attempt = local::claim(folder, run).map_err(|problem| {
            Fault::item(folder.display().to_string(), problem)
                .fix("make room in it, or give a directory that you can write to with --to")
        })?;
        if let LockAttempt::NoLocks(error) = &attempt {
            record::tell!(
                "part-pull: {}: its file system has no locks ({}), so other part-pulls do not \
                 wait for this one\n  fix: run one at a time",
                folder.display(),
                error.desc()
            );
        }
        if !matches!(attempt, LockAttempt::Busy(_)) {
            return Ok(Some(attempt));
        }
        if !is_announced {
            record::tell!(
                "part-pull: {}: another part-pull writes to it; waiting until it finishes",
                folder.display()
            );
        }
        is_announced = true;
        if begun.elapsed() > PATIENCE {
            let minutes = PATIENCE.as_secs() / 60;
            let why = format!("another part-pull has been writing to it for {minutes} minutes");
            return Err(Fault::item(folder.display().to_string(), why)
                .fix("run it again when the other one has ended"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(None)
}

fn folder(args: &Args, host: &Host, alone: bool) -> PathBuf {
    if alone {
        args.to.clone()
    } else {
        args.to.join(format!("h{}", host.id))
    }
}

/// Refuses the hosts whose files do not fit here, the largest first: a host may announce any size.
fn refuse_too_much(args: &Args, tasks: &mut [PullTask<'_>]) {
    let Some(free) = room::free_bytes(&args.to) else {
        return;
    };
    let mut free = free.saturating_sub(ROOM_TO_SPARE);
    let mut order: Vec<(u64, &mut PullTask<'_>)> = tasks
        .iter_mut()
        .filter(|task| task.link.is_ok())
        .map(|task| (task.needed_bytes(), task))
        .collect();
    order.sort_by_key(|(needed, task)| (*needed, task.host.id));
    for (needed, task) in order {
        if needed <= free {
            free -= needed;
            continue;
        }
        let (needed, free) = (term::bytes(needed), term::bytes(free));
        let why = format!("no space left here: {needed} are to be copied, {free} are free");
        task.link = Err(HostFault::reported(why)
            .fix("make room here, or give a directory on a larger disk with --to"));
    }
}

/// Refuses hosts with so many bytes that the sum of all hosts' might not fit into its type.
fn refuse_endless(tasks: &mut [PullTask<'_>]) {
    let most = u64::MAX / tasks.len().max(1) as u64;
    for task in tasks {
        let mut sizes = task.items.iter().map(PulledFile::bytes);
        let sum = sizes.try_fold(0, u64::checked_add);
        if sum.is_none_or(|sum| sum > most) {
            task.items.clear();
            let problem = format!("its files together have more than {most} bytes");
            task.link = Err(HostFault::reported(problem));
        }
    }
}

fn number(tasks: &mut [PullTask<'_>]) -> u32 {
    let mut of = 0;
    for task in tasks {
        task.fates = Fates::new(of, task.items.len());
        for item in &mut task.items {
            item.id = of;
            of = of.saturating_add(1);
            if let Some(why) = &item.unreadable {
                task.fates.set(item, Fate::Refused(why.clone()));
            }
        }
    }
    of
}

fn unmatched(tasks: &[PullTask<'_>], workspace: &Path, wanted: &SelectedFiles) -> Option<Fault> {
    let asked: Vec<&PullTask<'_>> = tasks.iter().filter(|task| task.link.is_ok()).collect();
    let is_unmatched = |pattern: &usize| {
        let mut tasks = tasks.iter();
        !tasks.any(|task| task.matched.contains(pattern))
    };
    let patterns: Vec<&str> = (0..wanted.patterns.len())
        .filter(is_unmatched)
        .map(|pattern| wanted.patterns[pattern].as_str())
        .collect();
    let who = match asked[..] {
        _ if patterns.is_empty() => return None,
        [] => return None,
        [task] => format!("{} has no file", task.host.location()),
        _ => format!("none of {} hosts has a file", asked.len()),
    };
    let problem = format!(
        "{who} in {} that matches {}",
        workspace.display(),
        patterns.join(" or ")
    );
    Some(Fault::item("pattern", problem).fix(
        "perhaps the job ended before it wrote the file; otherwise write the pattern relative to \
         the workspace, and in quotes: 'model-*.pt', or '**/*.pt' for any directory",
    ))
}

/// Reports for each pattern the hosts without a match, if others have one; and what was left out
/// because it has no content.
fn tell_missing(tasks: &[PullTask<'_>], wanted: &SelectedFiles) {
    let asked: Vec<&PullTask<'_>> = tasks.iter().filter(|task| task.link.is_ok()).collect();
    for (index, pattern) in wanted.patterns.iter().enumerate() {
        let without = asked.iter().filter(|task| !task.matched.contains(&index));
        let without: Vec<String> = without.map(|task| task.host.location()).collect();
        if !without.is_empty() && without.len() < asked.len() {
            let hosts = term::first_few(without, MAX_NAMES);
            record::tell!("part-pull: no file matches {pattern} on {hosts}");
        }
    }
    let count = asked.iter().map(|task| task.left_out).sum();
    let first = asked
        .iter()
        .find_map(|task| Some((task.host, task.first_left_out.as_ref()?)));
    if let Some((host, (path, fault))) = first {
        let path = path.to_string_lossy();
        let more = term::and_more(count, " that have no content");
        record::tell!(
            "part-pull: left out {} on {}: {fault}{more}",
            term::plain(&path),
            host.location()
        );
    }
}

fn progress(args: &Args, tasks: &[PullTask<'_>]) -> ProgressDisplay {
    let missing = tasks.iter().flat_map(|task| {
        let missing = task.lacking().into_iter();
        missing.map(|item| (task.host.id, item.bytes()))
    });
    ProgressDisplay::new(
        "part-pull",
        "here",
        args.copy.progress,
        tasks.iter().map(|task| task.host),
        missing,
    )
}

/// Prints what would be copied; returns the faults of files, and of stdout.
fn print_plan(tasks: &[PullTask<'_>]) -> Vec<Fault> {
    let mut out = Out::new("part-pull");
    for task in tasks {
        for item in task.lacking() {
            let src = item.src.display().to_string();
            copy::print_planned(&mut out, task.host, &src, &item.dst, item.bytes());
        }
    }
    let fault = |task: &PullTask<'_>, (item, why): (&PulledFile, &str)| {
        file_fault(task.host, item, &PullFault::There(why.to_owned()))
    };
    let faults = tasks
        .iter()
        .flat_map(|task| task.unreadable().map(|one| fault(task, one)));
    out.fault().into_iter().chain(faults).collect()
}

impl<'a> PullTask<'a> {
    fn list(
        host: &'a Host,
        opened: Result<Session, HostFault>,
        stop: &Arc<AtomicUsize>,
        workspace: &Path,
        (wanted, mark): (&SelectedFiles, Option<&str>),
        folder: &Path,
    ) -> PullTask<'a> {
        let listed = opened.and_then(|session| {
            let base = workspace.into();
            let give = FileRequest::Give { base };
            let (mut link, _) = HostLink::begin(session, stop.clone(), give)?;
            let listed = listing::list(&mut link, wanted, mark)?;
            Ok((link, listed))
        });
        let (link, listed) = listed.map_or_else(
            |broken| (Err(broken), HostListing::default()),
            |(link, listed)| (Ok(link), listed),
        );
        let item = |(src, there): Listed| PulledFile {
            id: 0,
            dst: folder.join(src.strip_prefix(".").unwrap_or(&src)),
            src,
            // all zeros if the host could not read it
            there: there.as_ref().copied().unwrap_or_default(),
            unreadable: there.err(),
        };
        PullTask {
            host,
            link,
            items: listed.chosen.into_iter().map(item).collect(),
            matched: listed.matched,
            left_out: listed.left_out,
            first_left_out: listed.first_left_out,
            local: Local::new(folder.to_owned(), mark.is_none()),
            claim: None,
            fates: Fates::new(0, 0),
        }
    }

    fn unreadable(&self) -> impl Iterator<Item = (&PulledFile, &str)> {
        let items = self.items.iter();
        items.filter_map(|item| Some((item, item.unreadable.as_deref()?)))
    }

    fn lacking(&self) -> Vec<&PulledFile> {
        self.fates.with(&Fate::Lacks, &self.items)
    }

    /// Finds out which lacking files are here.
    fn find_present(&self) {
        for item in self.lacking() {
            if self.local.has(item) {
                self.fates.set(item, Fate::Present);
            } else if self.local.is_occupied(item) {
                let why = "a directory has its name here".to_owned();
                self.fates.set(item, Fate::Refused(why));
            }
        }
    }

    /// The room that its files need beside the parts that are here.
    fn needed_bytes(&self) -> u64 {
        let of = |item: &PulledFile| {
            let kept = (item.bytes() >= LARGE)
                .then(|| self.local.kept(item))
                .flatten();
            let kept = kept.filter(|kept| !kept.is_from_replaced_file);
            item.room_needed(kept.as_ref())
        };
        self.lacking()
            .into_iter()
            .map(of)
            .fold(0, u64::saturating_add)
    }

    /// Refuses all files if two of them would be one here.
    fn refuse_alike(&mut self) {
        let files: Vec<&Path> = self.items.iter().map(|item| &*item.dst).collect();
        if let Some((one, other)) = case::alike(&files)
            && self.local.folds_case()
        {
            let why = format!(
                "{} and {} would be one file: the file system of --to does not tell upper from \
                 lower case",
                one.display(),
                other.display()
            );
            self.link = Err(HostFault::reported(why).fix(
                "give a directory on another file system, or write patterns that leave one out",
            ));
        }
    }

    /// Tells which files this host's replace. Those may be of another host, because the files of a
    /// single one go to --to itself.
    fn tell_replaced(&self) {
        let mut replaced = self.lacking();
        replaced.retain(|item| self.local.has_other(item));
        if let Some(first) = replaced.first() {
            record::tell!(
                "part-pull: {} will be replaced, {} first\n  fix: to keep what is there, such as \
                 another host's files, give another --to",
                term::count(replaced.len() as u64, "file"),
                term::plain(&first.dst.to_string_lossy())
            );
        }
    }

    fn pull(&mut self, reporter: &CopyReporter, wire: &WireOptions) {
        let begun = Instant::now();
        if self.items.is_empty() {
            if let Err(broken) = &self.link {
                reporter.record(&Pulled {
                    host: self.host.id,
                    error: Some(broken.problem.clone()),
                    ..Pulled::default()
                });
            }
            return;
        }
        let results = PullReporter {
            host: self.host,
            fates: &self.fates,
            reporter,
        };
        for item in self.fates.with(&Fate::Present, &self.items) {
            results.report(item, true, Ok(0));
        }
        for item in &self.items {
            if let Fate::Refused(why) = self.fates.of(item) {
                let fault = match item.unreadable {
                    Some(_) => PullFault::There(why),
                    None => PullFault::Here(why),
                };
                results.done(item, Err(fault));
            }
        }
        let lacking = self.fates.with(&Fate::Lacks, &self.items);
        if let Ok(link) = &mut self.link
            && let Err(broken) = pull_by_wire(link, &self.local, &self.items, wire, &results)
        {
            self.link = Err(broken);
        }
        let why = self.link.as_ref().err();
        let why = why.map_or("it is no longer on the host", |broken| &broken.problem);
        if let Some(claim) = &self.claim {
            self.local.remove_left(claim, &lacking);
        }
        for item in self.lacking() {
            results.done(item, Err(PullFault::There(why.to_owned())));
        }
        let show = &reporter.show;
        show.host(self.host, begun.elapsed(), self.link.is_err());
    }
}

/// Fetches over a direct connection if possible, and over the login what is missing when that
/// breaks.
fn pull_by_wire(
    link: &mut HostLink,
    local: &Local,
    all: &[PulledFile],
    wire: &WireOptions,
    results: &PullReporter<'_>,
) -> Result<(), HostFault> {
    let (host, reporter) = (results.host, results.reporter);
    let missing = results.fates.with(&Fate::Lacks, all);
    let bytes = missing.iter().map(|item| item.bytes()).sum();
    reporter.choose_route(host, link, bytes, wire, &[])?;
    reporter.show_route(host, link);
    let Err(broken) = pull::pull(link, local, &missing, results) else {
        return Ok(());
    };
    reporter.fall_back(host, link, broken, wire.wire)?;
    let missing = results.fates.with(&Fate::Lacks, all);
    pull::pull(link, local, &missing, results)
}

fn file_fault(host: &Host, item: &PulledFile, fault: &PullFault) -> Fault {
    let location = format!("{}: {}", host.location(), item.src.display());
    Fault::item(location, fault.why()).fix(match (&item.unreadable, fault) {
        (Some(_), _) => {
            "let the login read it on the host, or write patterns that leave it out; a link that \
             a pattern names without a wildcard is followed"
        }
        (None, PullFault::Here(_)) => CORRECT_HERE,
        (None, PullFault::There(_)) => AGAIN,
    })
}

pub struct PullReporter<'a> {
    host: &'a Host,
    fates: &'a Fates,
    reporter: &'a CopyReporter,
}

impl PullReporter<'_> {
    /// Bytes that have arrived, or need not.
    pub fn moved(&self, bytes: u64) {
        self.reporter.show.moved(self.host, bytes);
    }

    pub fn done(&self, item: &PulledFile, result: Received) {
        self.report(item, false, result);
    }

    /// These files grew while they were copied; their beginnings are here.
    pub fn grown(&self, files: &[&PulledFile]) {
        let Some(first) = files.first() else { return };
        let more = term::and_more(files.len(), " that grew");
        record::tell!(
            "part-pull: {}: {} grew while it was copied; the first {} are here{more}",
            self.host.location(),
            term::plain(&first.src.to_string_lossy()),
            term::bytes(first.bytes())
        );
    }

    fn report(&self, item: &PulledFile, skipped: bool, result: Received) {
        if !self.fates.report(item) {
            return;
        }
        let (host, reporter) = (self.host, self.reporter);
        let (src, src_b64) = path_fields(item.src.strip_prefix(".").unwrap_or(&item.src));
        let (dst, dst_b64) = path_fields(&item.dst);
        let fault = result.as_ref().err().cloned();
        let error = fault.as_ref().map(|fault| fault.why().to_owned());
        match &result {
            Ok(0) if skipped => reporter.show.file(host, item.bytes(), true),
            Ok(bytes) => reporter.show.file(host, *bytes, false),
            Err(_) => {}
        }
        reporter.record(&Pulled {
            id: Some(item.id),
            of: Some(reporter.of),
            host: host.id,
            src,
            src_b64,
            dst,
            dst_b64,
            ok: error.is_none(),
            bytes: item.bytes(),
            received_bytes: result.unwrap_or(0),
            skipped,
            error,
        });
        if let Some(fault) = fault {
            reporter.fault(file_fault(host, item, &fault));
        }
    }
}
