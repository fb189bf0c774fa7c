//! The stage of a push in a directory: where partial files lie, and what it leaves.
//!
//! Everything lies in that directory, on the file system on which the files will be, and can be
//! read by nobody else:
//!
//!     .part-push.RUN.ID   the stage of a push on this host; removed at its end, however that comes
//!     .part-push.lock     the lock of the running push; on shared storage its hosts have it
//!                         together, and others wait
//!     .part-push.kept/    the parts of large files that came before a push was interrupted
//!
//! A push has a stage only while it has the lock, so that whoever takes the lock knows that all
//! other stages are those of pushes that are dead.

use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use transfer::folder::Folder;
use transfer::lock::{self, Lock, LockAttempt};
use transfer::partial::PartialNames;
use wire::files::FileFault;

/// Fewer bytes of a file than this are not worth keeping; they are sent again.
const WORTH_KEEPING: u64 = 1 << 20;
/// What nobody came back for is removed at the end of a push that has begun its files: whoever
/// comes back to it, after however long and whatever the clock did meanwhile, finds it.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

const PREFIX: &str = record::RESERVED;
const LOCK: &str = ".part-push.lock";
const KEPT: &str = ".part-push.kept";
/// A file in the directories that part-push makes. Another user may rename a directory of this
/// user's to such a name, but cannot put this file into it: what lacks it is not touched.
const MADE_HERE: &str = ".made-by-part-push";
/// The name of a small file before it has its own.
pub const SMALL: &str = "one";

/// What a push has in a directory in which files come.
pub struct Stage {
    base: Folder,
    run: String,
    name: String,
    /// Whether the push has come as far as to ask for what was kept of its files, or to send some.
    has_begun: AtomicBool,
    held: Mutex<Option<LockedStage>>,
}

/// What a push has while it is at work.
struct LockedStage {
    folder: Folder,
    /// `None` where the file system has no locks.
    _lock: Option<Lock>,
}

/// What came of an attempt to be at work.
#[derive(Debug, Default)]
pub struct Entered {
    /// The name of the push that is at work instead.
    pub busy: Option<String>,
    /// Why other hosts do not see the lock.
    pub unlocked: Option<String>,
}

/// Whether the name of a push can stand in a file's name.
pub fn is_word(run: &str) -> bool {
    (1..=64).contains(&run.len()) && run.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl Stage {
    /// A push that is not at work in this directory before it has entered.
    pub fn new(base: Folder, run: &str, host: u32) -> Stage {
        Stage {
            base,
            run: run.to_owned(),
            name: format!("{PREFIX}{run}.{host}"),
            has_begun: AtomicBool::new(false),
            held: Mutex::default(),
        }
    }

    /// Makes this push the one that is at work unless another one is, and puts away what dead
    /// pushes have left.
    pub fn enter(&self) -> io::Result<Entered> {
        let mut held = self.held.lock();
        if held.is_some() {
            return Ok(Entered::default());
        }
        let (lock, unlocked) = match Lock::take(&self.base, LOCK, &self.run)? {
            LockAttempt::Taken(lock) => (Some(lock), lock::local_option(&self.base)),
            LockAttempt::NoLocks(error) => (None, Some(error.desc())),
            LockAttempt::Busy(busy) => {
                return Ok(Entered {
                    busy: Some(busy),
                    unlocked: None,
                });
            }
        };
        if unlocked.is_none() {
            self.salvage_dead();
        }
        *held = Some(LockedStage {
            folder: self.make()?,
            _lock: lock,
        });
        Ok(Entered {
            busy: None,
            unlocked: unlocked.map(str::to_owned),
        })
    }

    fn salvage_dead(&self) {
        let others = stages(&self.base).into_iter();
        for other in others.filter(|other| !belongs(other, &self.run)) {
            if let Ok(folder) = self.base.folder(&other)
                && folder.is_private()
                && has(&folder, MADE_HERE)
            {
                salvage(&self.base, &other, &folder);
            }
        }
    }

    /// Makes the stage, which has its mark before it has its name.
    fn make(&self) -> io::Result<Folder> {
        let new = format!("{}.new", self.name);
        self.base.make(&new, 0o700)?;
        let folder = self.base.folder(&new)?;
        if !folder.is_ours() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        folder.create(MADE_HERE, &[])?;
        self.base.rename(&new, &self.base, &self.name)?;
        Ok(folder)
    }

    /// The stage of a push whose process on this host has ended.
    pub fn abandoned(base: &Path, run: &str, host: u32) -> Option<Stage> {
        let stage = Stage::new(Folder::open(base).ok()?, run, host);
        let folder = stage.base.folder(&stage.name).ok();
        let folder = folder.filter(Folder::is_ours)?;
        // another push that is at work already has put it away
        let LockAttempt::Taken(lock) = Lock::take(&stage.base, LOCK, run).ok()? else {
            return None;
        };
        let _lock = Some(lock);
        *stage.held.lock() = Some(LockedStage { folder, _lock });
        Some(stage)
    }

    /// The directory in which the stage lies.
    pub fn base(&self) -> &Folder {
        &self.base
    }

    /// The directory of partial files; there is none unless the push is at work.
    pub fn folder(&self) -> Result<Folder, FileFault> {
        let held = self.held.lock();
        let folder = held.as_ref().map(|held| held.folder.clone());
        folder.ok_or(FileFault::OutOfOrder)
    }

    /// Notes that the push asks for what was kept of its files, or sends some.
    pub fn begin_files(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// The hosts of this push whose stages are visible from this one.
    pub fn peers(&self) -> Vec<u32> {
        // makes a network file system look again
        if let Ok(folder) = self.folder() {
            let _ = folder.make("peers", 0o700);
            let _ = folder.remove_folder("peers");
        }
        let own = format!("{PREFIX}{}.", self.run);
        let stages = stages(&self.base).into_iter();
        stages
            .filter_map(|stage| stage.to_str()?.strip_prefix(&own)?.parse().ok())
            .collect()
    }

    /// Takes over the partial file of an earlier push. It is renamed, so that no other push takes
    /// it over too.
    pub fn claim(&self, part: &PartialNames, key: &str) {
        if part.folder.stat(&part.file).is_err()
            && let Some(kept) = kept(&self.base)
            && PartialNames::new(kept, key).rename(part).is_ok()
        {
            // an older version has kept what it had reserved, too
            let _ = part.release();
        }
    }

    /// Removes what is kept for a file that is in its place now.
    pub fn forget_kept(&self, key: &str) {
        let Some(kept) = kept(&self.base) else { return };
        let location = key.split('.').next().unwrap_or(key);
        for name in parts_in(&kept) {
            if name.to_string_lossy().split('.').next() == Some(location) {
                let _ = kept.remove(name);
            }
        }
    }

    /// Removes the stage, of which partial files that are worth it are kept, and leaves the
    /// directory to other pushes.
    pub fn leave(&self) {
        let Some(held) = self.held.lock().take() else {
            return;
        };
        // what this push has come back for it has taken out of there, if it came so far
        if self.has_begun.load(Ordering::Relaxed)
            && let Some(kept) = kept(&self.base)
        {
            expire(&kept, SystemTime::now());
        }
        salvage(&self.base, OsStr::new(&self.name), &held.folder);
        if let Some(kept) = kept(&self.base)
            && kept.names().is_ok_and(|names| names == [MADE_HERE])
        {
            let _ = kept.remove(MADE_HERE);
            let _ = self.base.remove_folder(KEPT);
        }
    }
}

/// A partial file in a stage, and its notes.
pub fn part(stage: &Folder, key: &str) -> PartialNames {
    PartialNames {
        folder: stage.clone(),
        file: format!("part.{key}").into(),
        notes: format!("good.{key}").into(),
    }
}

/// What was kept of files; `None` if part-push has not made it, or others could have put something
/// there.
fn kept(base: &Folder) -> Option<Folder> {
    let kept = base.folder(KEPT).ok().filter(Folder::is_private);
    kept.filter(|kept| has(kept, MADE_HERE))
}

fn has(folder: &Folder, file: &str) -> bool {
    folder.stat(file).is_ok_and(|meta| meta.is_file())
}

/// The names of what is kept.
fn parts_in(kept: &Folder) -> impl Iterator<Item = OsString> {
    let names = kept.names().unwrap_or_default().into_iter();
    names.filter(|name| name != MADE_HERE)
}

/// The stages of all pushes in a directory.
fn stages(base: &Folder) -> Vec<OsString> {
    let is_stage = |name: &OsString| {
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        rest.is_some_and(|rest| rest.contains('.')) && base.folder(name).is_ok()
    };
    let names = base.names().unwrap_or_default().into_iter();
    names.filter(is_stage).collect()
}

fn belongs(stage: &OsStr, run: &str) -> bool {
    let own = format!("{PREFIX}{run}.");
    stage.as_bytes().starts_with(own.as_bytes())
}

/// Removes a stage and what pushes put there; partial files that are worth it are kept. A stage
/// from which something cannot be removed keeps its marks, by which the next push removes it.
fn salvage(base: &Folder, name: &OsStr, stage: &Folder) {
    let names = stage.names().unwrap_or_default();
    let keys = names
        .iter()
        .filter_map(|name| name.to_str()?.strip_prefix("part."));
    keys.for_each(|key| keep(base, stage, key));
    let is_of_push = |name: &&OsString| {
        // older versions had a file `owner`
        let kinds = ["part.", "good.", SMALL, "owner"];
        let name = name.to_string_lossy();
        kinds.iter().any(|kind| name.starts_with(kind))
    };
    let mut is_empty = true;
    for name in names.iter().filter(is_of_push) {
        is_empty &= stage.remove(name).is_ok();
    }
    if is_empty && stage.remove(MADE_HERE).is_ok() {
        let _ = base.remove_folder(name);
    }
}

fn keep(base: &Folder, stage: &Folder, key: &str) {
    let part = part(stage, key);
    if part.kept(u64::MAX).bytes() < WORTH_KEEPING {
        return;
    }
    let _ = part.release();
    if base.stat(KEPT).is_err() {
        let _ = make_kept(base, stage);
    }
    if let Some(kept) = kept(base) {
        let _ = part.rename(&PartialNames::new(kept, key));
    }
}

/// Makes the directory of what is kept. It has its mark before it has its name, because somebody
/// might put another directory in its place in between.
fn make_kept(base: &Folder, stage: &Folder) -> io::Result<()> {
    const NEW: &str = "kept";
    stage.make(NEW, 0o700)?;
    stage.folder(NEW)?.create(MADE_HERE, &[])?;
    stage.rename(NEW, base, KEPT)
}

/// Removes what nobody came back for. A clock that stood years ahead has made what seems to come
/// from a time that is far away.
fn expire(kept: &Folder, now: SystemTime) {
    for name in parts_in(kept) {
        let Ok(time) = kept.stat(&name).and_then(|meta| meta.modified()) else {
            continue;
        };
        let age = now
            .duration_since(time)
            .unwrap_or_else(|ahead| ahead.duration());
        if age > KEPT_FOR {
            let _ = kept.remove(name);
        }
    }
}

/// Whether a directory has only files of part-push.
pub fn is_empty(base: &Path) -> Result<bool, FileFault> {
    let names = match Folder::open(base) {
        Err(FileFault::System(nix::libc::ENOENT)) => return Ok(true),
        opened => opened?.names()?,
    };
    let is_ours = |name: &OsString| name.as_bytes().starts_with(PREFIX.as_bytes());
    Ok(names.iter().all(is_ours))
}

/// Whether a directory with this name is part-push's own, and its files incomplete.
pub fn is_ours(name: &OsStr) -> bool {
    let word = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    word.is_some_and(|word| word == "kept" || word.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_came_back_for_is_removed_on_whichever_side_of_now_its_time_lies() {
        use std::fs::{self, File};
        let folder = std::env::temp_dir().join(format!("dgl-tools-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let now = SystemTime::now();
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        let table = [
            ("of now", now, true),
            ("of last week", now - days(6), true),
            ("older", now - days(8), false),
            ("by a clock that was a little ahead", now + days(1), true),
            ("by one that was years ahead", now + days(9000), false),
        ];
        for (name, time, _) in table {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(time).unwrap();
        }
        expire(&Folder::open(&folder).unwrap(), now);
        for (name, _, stays) in table {
            assert_eq!(folder.join(name).exists(), stays, "{name}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
