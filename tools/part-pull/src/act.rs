//! Lists the files of every host first, then brings them from several at once.

use crate::args::Args;
use crate::local::{self, LARGE};
use crate::plan::{self, Item, Wanted};
use crate::site::Site;
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::{Out, Stream};
use common::quote;
use common::record::{Host, Pulled, path_fields};
use common::remote::lanes::{self, Lanes};
use common::remote::{self, CALL_SH, Kind, Remote};
use common::term;
use rayon::prelude::*;
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const HOST_SH: &str = include_str!("host.sh");
/// So many files travel in one archive, so that each is soon known to be whole.
const BATCH: usize = 1000;

const AGAIN: &str = "run this again: what is here already does not come again";

/// A host with what it gives.
struct Task<'a> {
    host: &'a Host,
    site: Result<Site, String>,
    items: Vec<Item>,
    /// The id of its first item.
    first: u32,
}

/// Brings all that is wanted and not here yet.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], workspace: &Path, wanted: &Wanted) -> Result<Exit, Report> {
    let remote = Remote::new(&args.connect, Kind::Ssh { bulk: true })?;
    let stop = common::signal::stop()
        .map_err(|error| Fault::unreachable("signals", error.to_string()).fix("let this user have more processes: ulimit -u"))?;
    let script = [CALL_SH.as_bytes(), b"base=", &quote::sh(workspace.as_os_str().as_bytes()), b"\n", HOST_SH.as_bytes()].concat();
    let opened = remote.open_all(hosts, |_| script.clone())?;
    let faults: Vec<_> = hosts.iter().zip(&opened).filter_map(|(host, opened)| Some((host, opened.as_ref().err()?))).collect();
    let mut report = remote::report(faults, args.connect.host_key);
    let at_once = hosts.len().min(usize::from(args.jobs));
    let pool = remote::threads(at_once)?;
    let alone = hosts.len() == 1;
    let pairs: Vec<_> = hosts.iter().zip(opened).collect();
    let mut tasks: Vec<Task<'_>> = pool.install(|| {
        pairs.into_par_iter().map(|(host, opened)| Task::list(host, opened, &stop, wanted, &folder(args, host, alone))).collect()
    });
    let of = number(&mut tasks);
    report.0.extend(unmatched(&tasks, wanted));
    if args.dry_run {
        tell_plan(&tasks);
    } else {
        let claims = claim_all(args, &tasks, &stop)?;
        if claims.is_none() {
            // another one is writing there
            tasks.iter_mut().for_each(|task| task.site = Err("interrupted".to_owned()));
        }
        let board = Board { out: Mutex::new(Out::new("part-pull")), human: args.connect.format.human(), of, faults: Mutex::default() };
        if !board.human {
            board.out.lock().unwrap_or_else(PoisonError::into_inner).pass(stream);
        }
        let streams = lanes::wanted(args.streams, at_once, remote.is_ssh());
        let more = |host: &Host| Site::new(remote.open(host, &script).ok()?, stop.clone()).ok();
        pool.install(|| tasks.par_iter_mut().for_each(|task| task.pull(&board, streams, &more)));
        report.0.extend(board.faults.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    let known = report.0.iter().map(|fault| fault.place.clone()).collect::<Vec<_>>();
    for task in &tasks {
        if let (Err(why), place) = (&task.site, task.host.place())
            && !known.contains(&place)
        {
            report.push(Fault::unreachable(place, why.clone()).fix("look at --workspace and at the host, then run this again"));
        }
    }
    report.print("part-pull");
    match i32::try_from(stop.load(Ordering::Relaxed)).unwrap_or_default() {
        0 => Ok(report.exit()),
        signal => Ok(Exit::Signal(signal)),
    }
}

/// The folders of all hosts that have something to give; `None` when a signal ends the waiting.
fn claim_all(args: &Args, tasks: &[Task<'_>], stop: &AtomicUsize) -> Result<Option<Vec<local::Claim>>, Fault> {
    let lacks = |task: &&Task<'_>| task.items.iter().any(|item| !is_here(item));
    let mut folders: Vec<PathBuf> = tasks.iter().filter(lacks).map(|task| folder(args, task.host, tasks.len() == 1)).collect();
    // in one order for all, so that no two wait for one another
    folders.sort_unstable();
    folders.iter().map(|folder| claim(folder, stop)).collect()
}

/// Waits until no other part-pull brings files to this folder; `None` when a signal ends the waiting.
fn claim(folder: &Path, stop: &AtomicUsize) -> Result<Option<local::Claim>, Fault> {
    let mut told = false;
    while stop.load(Ordering::Relaxed) == 0 {
        let fault = |error: io::Error| Fault::item(folder.display().to_string(), error.to_string());
        let claim = local::claim(folder).map_err(|error| fault(error).fix("give a folder that you can write to with --to"))?;
        if claim.is_some() {
            return Ok(claim);
        }
        if !told {
            eprintln!("part-pull: {}: another part-pull brings files there; waiting for its end", folder.display());
        }
        told = true;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(None)
}

fn folder(args: &Args, host: &Host, alone: bool) -> PathBuf {
    if alone { args.to.clone() } else { args.to.join(format!("h{}", host.id)) }
}

/// Gives every item its number; how many there are.
fn number(tasks: &mut [Task<'_>]) -> u32 {
    let mut of = 0;
    for task in tasks {
        task.first = of;
        of += u32::try_from(task.items.len()).unwrap_or(u32::MAX);
    }
    of
}

fn unmatched(tasks: &[Task<'_>], wanted: &Wanted) -> Option<Fault> {
    let none = tasks.iter().all(|task| task.items.is_empty()) && tasks.iter().any(|task| task.site.is_ok());
    let problem = || format!("no host has a file that matches {}", wanted.patterns.join(" "));
    none.then(|| Fault::item("pattern", problem()).fix("write it relative to the workspace, and in quotes: 'model-*.pt'"))
}

fn tell_plan(tasks: &[Task<'_>]) {
    let mut out = Out::new("part-pull");
    for task in tasks {
        for item in task.items.iter().filter(|item| !is_here(item)) {
            let (place, src, dst) = (task.host.place(), item.src.display(), item.dst.display());
            let line = format!("{place}: {src} -> {dst} ({})", term::bytes(item.there.bytes));
            out.write(format!("{}\n", term::plain(&line)).as_bytes());
        }
    }
}

fn is_here(item: &Item) -> bool {
    std::fs::symlink_metadata(&item.dst).is_ok_and(|here| plan::is_here(&here, &item.there))
}

impl<'a> Task<'a> {
    fn list(
        host: &'a Host,
        opened: Result<remote::Running, remote::HostFault>,
        stop: &Arc<AtomicUsize>,
        wanted: &Wanted,
        folder: &Path,
    ) -> Task<'a> {
        let site =
            opened.map_err(|fault| fault.problem).and_then(|running| Site::new(running, stop.clone()).map_err(|error| error.to_string()));
        let listed = site.and_then(|mut site| {
            let listed = site.list(wanted).map_err(|error| error.to_string())?;
            Ok((site, listed))
        });
        let (site, listed) = listed.map_or_else(|why| (Err(why), Vec::new()), |(site, listed)| (Ok(site), listed));
        let item = |(src, there): (PathBuf, _)| Item { dst: folder.join(src.strip_prefix(".").unwrap_or(&src)), src, there };
        Task { host, site, items: listed.into_iter().map(item).collect(), first: 0 }
    }

    fn pull(&mut self, board: &Board, streams: (usize, u64), more: &dyn Fn(&Host) -> Option<Site>) {
        let begun = Instant::now();
        let open = || more(self.host);
        let mut lanes = Lanes::new(streams, &open);
        let mut came: HashMap<PathBuf, Result<u64, String>> = HashMap::new();
        let here: Vec<bool> = self.items.iter().map(is_here).collect();
        let missing: Vec<&Item> = self.items.iter().zip(&here).filter(|(_, here)| !**here).map(|(item, _)| item).collect();
        let (small, large): (Vec<&Item>, Vec<&Item>) = missing.iter().partition(|item| item.there.bytes < LARGE);
        if let Ok(site) = &mut self.site
            && let Err(error) = bring(site, &mut lanes, &small, &large, &mut came)
        {
            self.site = Err(error.to_string());
        }
        let bytes = came.values().flatten().sum();
        if self.items.is_empty() {
            if let Err(why) = &self.site {
                board.record(&Pulled { host: self.host.id, error: Some(why.clone()), ..Pulled::default() });
            }
            return;
        }
        for (at, (item, &skipped)) in self.items.iter().zip(&here).enumerate() {
            let result = match (skipped, came.remove(&item.src), &self.site) {
                (true, ..) => Ok(0),
                (false, Some(result), _) => result,
                (false, None, Err(why)) => Err(why.clone()),
                (false, None, Ok(_)) => Err("it was not there any more".to_owned()),
            };
            board.tell(self.host, self.first + u32::try_from(at).unwrap_or(0), item, skipped, result);
        }
        let (place, files, rate) = (self.host.place(), term::count(missing.len() as u64, "file"), rate(bytes, begun));
        eprintln!("part-pull: {place}: {files}, {}; {} here already{rate}", term::bytes(bytes), here.len() - missing.len());
    }
}

/// Brings the files, and gives them their names a batch at a time, so that what has come stays when the host is lost.
fn bring(
    site: &mut Site,
    lanes: &mut Lanes<'_, Site>,
    small: &[&Item],
    large: &[&Item],
    came: &mut HashMap<PathBuf, Result<u64, String>>,
) -> io::Result<()> {
    for batch in small.chunks(BATCH) {
        let (mut written, linked) = site.archive(batch)?;
        for item in linked {
            written.push((item, site.large(item, lanes)?));
        }
        confirm(site, written, came)?;
    }
    for item in large {
        let written = site.large(item, lanes)?;
        confirm(site, vec![(item, written)], came)?;
    }
    Ok(())
}

fn rate(bytes: u64, begun: Instant) -> String {
    match bytes > 1_000_000 {
        true => format!(", {}", term::rate(bytes, begun.elapsed())),
        false => String::new(),
    }
}

/// Gives the files that have come their names, but for those that changed on the host meanwhile.
fn confirm(site: &mut Site, written: Vec<(&Item, io::Result<u64>)>, came: &mut HashMap<PathBuf, Result<u64, String>>) -> io::Result<()> {
    let names: Vec<PathBuf> = written.iter().map(|(item, _)| item.src.clone()).collect();
    let there = site.look(&names)?;
    for ((item, written), now) in written.into_iter().zip(there) {
        let result = written.and_then(|bytes| {
            if now == Some(item.there) {
                return local::finish(item).map(|()| bytes);
            }
            local::discard(item);
            Err(io::Error::other("it changed on the host while it was read"))
        });
        came.insert(item.src.clone(), result.map_err(|error| error.to_string()));
    }
    Ok(())
}

/// Where all that is done is told.
struct Board {
    out: Mutex<Out>,
    human: bool,
    of: u32,
    faults: Mutex<Vec<Fault>>,
}

impl Board {
    fn record(&self, record: &Pulled) {
        if !self.human {
            self.out.lock().unwrap_or_else(PoisonError::into_inner).record(record);
        }
    }

    fn tell(&self, host: &Host, id: u32, item: &Item, skipped: bool, result: Result<u64, String>) {
        let (src, src_b64) = path_fields(item.src.strip_prefix(".").unwrap_or(&item.src));
        let (dst, dst_b64) = path_fields(&item.dst);
        let error = result.as_ref().err().cloned();
        self.record(&Pulled {
            id: Some(id),
            of: Some(self.of),
            host: host.id,
            src,
            src_b64,
            dst,
            dst_b64,
            ok: error.is_none(),
            bytes: item.there.bytes,
            received_bytes: result.unwrap_or(0),
            skipped,
            error: error.clone(),
        });
        if let Some(why) = error {
            let place = format!("{}: {}", host.place(), item.src.display());
            self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(Fault::item(place, why).fix(AGAIN));
        }
    }
}
