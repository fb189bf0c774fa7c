//! The directory of a push below its workspace, with partial files, and what remains of it.
//!
//! These are on the file system of the finished files, and other users cannot read them:
//!
//!     .part-push.RUN.ID   the directory of a push on this host; removed at its end, unless a disk
//!                         is too full to move a part of a large file out of it
//!     .part-push.lock     the lock of the running push; on shared storage its hosts hold it
//!                         together, and other pushes wait
//!     .part-push.kept/    the parts of large files that arrived before a push was interrupted
//!
//! A push has its directory only while it holds the lock, so a push that takes the lock knows that
//! all other directories belong to dead pushes.

use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use transfer::folder::Folder;
use transfer::lock::{self, Lock, LockAttempt};
use transfer::own_folder::{self, is_partial_key};
use transfer::partial::PartialNames;
use wire::files::FileFault;

/// Fewer bytes of a file are not worth keeping; they are sent again.
const WORTH_KEEPING: u64 = 1 << 20;
/// Kept parts older than this are removed, but only at the end of a push that has begun its files,
/// so a push that resumes them always finds them first.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

const PREFIX: &str = record::RESERVED;
const LOCK: &str = ".part-push.lock";
const KEPT: &str = ".part-push.kept";
/// Marks the directories that part-push makes. Others are not touched, and in marked ones only
/// files with part-push's names.
const MADE_HERE: &str = ".made-by-part-push";
/// The name of a small file until it is complete.
pub const SMALL: &str = "one";
/// Directories that a push makes in its own for a moment.
const PEERS: &str = "peers";
const NEW_KEPT: &str = "kept";

/// It has its directory while it holds the lock.
pub struct PushFolder {
    base: Folder,
    run: String,
    name: String,
    /// Whether the push has asked for kept parts of its files, or has sent some.
    has_begun: AtomicBool,
    /// Or why nothing can be written.
    held: Mutex<Result<LockedFolder, FileFault>>,
}

/// The directory and the lock of a push that may write.
struct LockedFolder {
    folder: Folder,
    /// Whether the file system shows other permissions than those that it was given.
    ignores_modes: bool,
    /// `None` if the file system has no locks.
    _lock: Option<Lock>,
}

/// The result of `enter`.
#[derive(Debug, Default)]
pub struct Entered {
    /// The other push, which holds the lock.
    pub busy: Option<String>,
    /// Why other hosts do not see the lock.
    pub unlocked: Option<String>,
}

/// Whether this name of a push is safe as a part of a file name.
pub fn is_word(run: &str) -> bool {
    (1..=64).contains(&run.len()) && run.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl PushFolder {
    /// It has not entered the workspace yet.
    pub fn new(base: Folder, run: &str, host: u32) -> PushFolder {
        PushFolder {
            base,
            run: run.to_owned(),
            name: format!("{PREFIX}{run}.{host}"),
            has_begun: AtomicBool::new(false),
            held: Mutex::new(Err(FileFault::OutOfOrder)),
        }
    }

    /// Takes the lock unless another push holds it, and cleans up after dead pushes. Succeeds if no
    /// room is left for the lock: perhaps nothing has to be written.
    pub fn enter(&self) -> io::Result<Entered> {
        let mut held = self.held.lock();
        if held.is_ok() {
            return Ok(Entered::default());
        }
        let (entered, now_held) = match self.take() {
            Err(error) if is_full(&error) => (Entered::default(), Err(error.into())),
            taken => taken?,
        };
        *held = now_held;
        Ok(entered)
    }

    fn take(&self) -> io::Result<(Entered, Result<LockedFolder, FileFault>)> {
        let (lock, unlocked) = match Lock::take(&self.base, LOCK, &self.run)? {
            LockAttempt::Taken(lock) => (Some(lock), lock::local_option(&self.base)),
            LockAttempt::NoLocks(error) => (None, Some(error.desc())),
            LockAttempt::Busy(busy) => {
                let entered = Entered {
                    busy: Some(busy),
                    unlocked: None,
                };
                return Ok((entered, Err(FileFault::OutOfOrder)));
            }
        };
        if unlocked.is_none() {
            self.salvage_dead();
        }
        let (folder, ignores_modes) = self.make()?;
        let entered = Entered {
            busy: None,
            unlocked: unlocked.map(str::to_owned),
        };
        let held = LockedFolder {
            folder,
            ignores_modes,
            _lock: lock,
        };
        Ok((entered, Ok(held)))
    }

    fn salvage_dead(&self) {
        let others = push_folders(&self.base).into_iter();
        for other in others.filter(|other| !belongs(other, &self.run)) {
            match made_here(&self.base, &other) {
                Some(folder) => salvage(&self.base, &other, &folder),
                // it is empty if a push was killed before it got its mark, or after it lost it
                None => drop(self.base.remove_folder(&other)),
            }
        }
    }

    /// Also returns whether the file system ignores modes.
    fn make(&self) -> io::Result<(Folder, bool)> {
        let (folder, mark) = own_folder::make(&self.base, &self.name, MADE_HERE)?;
        let keeps = |mode| {
            let given = mark.set_permissions(Permissions::from_mode(mode));
            given.is_ok()
                && mark
                    .metadata()
                    .is_ok_and(|meta| meta.mode() & 0o777 == mode)
        };
        // it may show the same ones for all files, and one of these by chance
        let keeps_modes = keeps(0o640) & keeps(0o600);
        // while there is room: a full disk takes no new directory
        let _ = kept_or_new(&self.base, &folder);
        Ok((folder, !keeps_modes))
    }

    /// The directory of a push whose process on this host has ended.
    pub fn abandoned(base: &Path, run: &str, host: u32) -> Option<PushFolder> {
        let push_folder = PushFolder::new(Folder::open(base).ok()?, run, host);
        let folder = made_here(&push_folder.base, OsStr::new(&push_folder.name))?;
        // a push that holds the lock has already cleaned up
        let LockAttempt::Taken(lock) = Lock::take(&push_folder.base, LOCK, run).ok()? else {
            return None;
        };
        let _lock = Some(lock);
        *push_folder.held.lock() = Ok(LockedFolder {
            folder,
            ignores_modes: false,
            _lock,
        });
        Some(push_folder)
    }

    /// The workspace.
    pub fn base(&self) -> &Folder {
        &self.base
    }

    /// The directory of partial files; it exists only while the push holds the lock.
    pub fn folder(&self) -> Result<Folder, FileFault> {
        let held = self.held.lock();
        let folder = held.as_ref().map(|held| held.folder.clone());
        folder.map_err(Clone::clone)
    }

    pub fn ignores_modes(&self) -> bool {
        self.held
            .lock()
            .as_ref()
            .is_ok_and(|held| held.ignores_modes)
    }

    /// The push asks for kept parts of its files, or sends some.
    pub fn begin_files(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// The hosts of this push that see the same workspace.
    pub fn peers(&self) -> Vec<u32> {
        // makes a network file system read the directory again
        if let Ok(folder) = self.folder() {
            let _ = folder.make(PEERS, 0o700);
            let _ = folder.remove_folder(PEERS);
        }
        let own = format!("{PREFIX}{}.", self.run);
        let push_folders = push_folders(&self.base).into_iter();
        // another user may make directories with such names
        push_folders
            .filter(|push_folder| made_here(&self.base, push_folder).is_some())
            .filter_map(|push_folder| push_folder.to_str()?.strip_prefix(&own)?.parse().ok())
            .collect()
    }

    /// Takes over the partial file of an earlier push by renaming it, so that no other push takes
    /// it over too.
    pub fn claim(&self, part: &PartialNames, key: &str) {
        if part.folder.stat(&part.file).is_err()
            && let Some(kept) = kept(&self.base)
        {
            let _ = PartialNames::new(kept, key).rename(part);
        }
    }

    /// Removes the kept parts of a file that is complete now.
    pub fn forget_kept(&self, key: &str) {
        let Some(kept) = kept(&self.base) else { return };
        let location = key.split('.').next().unwrap_or(key);
        for name in parts_in(&kept) {
            if name.to_string_lossy().split('.').next() == Some(location) {
                let _ = kept.remove(name);
            }
        }
    }

    /// Removes the directory of the push, except for partial files that are worth keeping, and
    /// releases the lock.
    pub fn leave(&self) {
        let held = std::mem::replace(&mut *self.held.lock(), Err(FileFault::OutOfOrder));
        let Ok(held) = held else { return };
        // a push that has begun its files has already taken its own kept parts out of there
        if self.has_begun.load(Ordering::Relaxed)
            && let Some(kept) = kept(&self.base)
        {
            expire(&kept, SystemTime::now());
        }
        salvage(&self.base, OsStr::new(&self.name), &held.folder);
        if let Some(kept) = kept(&self.base) {
            own_folder::remove_empty(&self.base, OsStr::new(KEPT), &kept, MADE_HERE);
        }
    }
}

/// A partial file in the directory of a push, and the notes on its parts.
pub fn part(push_folder: &Folder, key: &str) -> PartialNames {
    PartialNames {
        folder: push_folder.clone(),
        file: format!("part.{key}").into(),
        notes: format!("good.{key}").into(),
    }
}

fn kept(base: &Folder) -> Option<Folder> {
    made_here(base, OsStr::new(KEPT))
}

fn made_here(base: &Folder, name: &OsStr) -> Option<Folder> {
    own_folder::open(base, name, MADE_HERE)
}

/// Includes the notes on the parts.
fn parts_in(kept: &Folder) -> impl Iterator<Item = OsString> {
    let is_part = |name: &OsString| {
        let name = name.to_str().unwrap_or_default();
        is_partial_key(name.strip_suffix(".good").unwrap_or(name))
    };
    let names = kept.names().unwrap_or_default().into_iter();
    names.filter(is_part)
}

fn push_folders(base: &Folder) -> Vec<OsString> {
    let is_push_folder = |name: &OsString| {
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        rest.is_some_and(|rest| rest.contains('.')) && base.folder(name).is_ok()
    };
    let names = base.names().unwrap_or_default().into_iter();
    names.filter(is_push_folder).collect()
}

fn belongs(push_folder: &OsStr, run: &str) -> bool {
    let own = format!("{PREFIX}{run}.");
    push_folder.as_bytes().starts_with(own.as_bytes())
}

/// Removes the directory of a push, except for partial files that are worth keeping. If a full disk
/// has no room to move one, or something cannot be removed, the directory keeps its mark, so that
/// the next push tries again.
fn salvage(base: &Folder, name: &OsStr, push_folder: &Folder) {
    let names = push_folder.names().unwrap_or_default();
    let keys = names
        .iter()
        .filter_map(|name| name.to_str()?.strip_prefix("part."))
        .filter(|key| is_partial_key(key));
    let has_no_room = |key: &&str| {
        // another host that leaves may just have removed the directory, because it was empty
        let kept = keep(base, push_folder, key).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => keep(base, push_folder, key),
            _ => Err(error),
        });
        kept.is_err_and(|error| is_full(&error))
    };
    let not_moved: Vec<&str> = keys.filter(has_no_room).collect();
    let is_removed = |name: &&OsString| {
        let name = name.to_str().unwrap_or_default();
        let key = name.strip_prefix("part.").or(name.strip_prefix("good."));
        // older versions had a file `owner`
        [SMALL, "owner"].contains(&name)
            || key.is_some_and(|key| is_partial_key(key) && !not_moved.contains(&key))
    };
    // a push was killed while it had these
    for name in [PEERS, NEW_KEPT] {
        if let Ok(folder) = push_folder.folder(name) {
            let _ = folder.remove(MADE_HERE);
            let _ = push_folder.remove_folder(name);
        }
    }
    let mut is_empty = not_moved.is_empty();
    for name in names.iter().filter(is_removed) {
        is_empty &= push_folder.remove(name).is_ok();
    }
    if is_empty && push_folder.remove(MADE_HERE).is_ok() {
        let _ = base.remove_folder(name);
    }
}

/// Moves a partial file out of the directory of a push if it is worth keeping.
fn keep(base: &Folder, push_folder: &Folder, key: &str) -> io::Result<()> {
    let part = part(push_folder, key);
    if part.kept(u64::MAX).bytes() < WORTH_KEEPING {
        return Ok(());
    }
    part.rename(&PartialNames::new(kept_or_new(base, push_folder)?, key))
}

/// A new directory has its mark before it gets its name, because another user might put another
/// directory in its place in between. It replaces an empty one that has lost its mark.
fn kept_or_new(base: &Folder, push_folder: &Folder) -> io::Result<Folder> {
    if let Some(kept) = kept(base) {
        return Ok(kept);
    }
    push_folder.make(NEW_KEPT, 0o700)?;
    let new = push_folder.folder(NEW_KEPT)?;
    // an earlier attempt may have left it
    if let Err(error) = new.create(MADE_HERE, &[])
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    // another host may just have made it
    match push_folder.rename(NEW_KEPT, base, KEPT) {
        Ok(()) => Ok(new),
        Err(error) => kept(base).ok_or(error),
    }
}

fn is_full(error: &io::Error) -> bool {
    let full = [nix::libc::ENOSPC, nix::libc::EDQUOT];
    error
        .raw_os_error()
        .is_some_and(|number| full.contains(&number))
}

/// Removes kept parts that are too old. A time far in the future comes from a clock that was years
/// ahead, and counts as old too.
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

/// Whether it has only files of part-push.
pub fn is_empty(base: &Path) -> Result<bool, FileFault> {
    let names = match Folder::open(base) {
        Err(FileFault::System(nix::libc::ENOENT)) => return Ok(true),
        opened => opened?.names()?,
    };
    let is_ours = |name: &OsString| name.as_bytes().starts_with(PREFIX.as_bytes());
    Ok(names.iter().all(is_ours))
}

/// Whether a directory of this name is part-push's own, and its files incomplete.
pub fn is_ours(name: &OsStr) -> bool {
    let word = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    word.is_some_and(|word| word == "kept" || word.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_with_the_mark_are_of_other_hosts() {
        use std::fs;
        let base = std::env::temp_dir().join(format!("dgl-tools-peers-{}", std::process::id()));
        let folder = Folder::open_or_make(&base).unwrap();
        let push = PushFolder::new(folder.clone(), "run", 0);
        push.enter().unwrap();
        own_folder::make(&folder, ".part-push.run.1", MADE_HERE).unwrap();
        fs::create_dir(base.join(".part-push.run.2")).unwrap();
        let mut peers = push.peers();
        peers.sort_unstable();
        assert_eq!(peers, [0, 1]);
        fs::remove_dir_all(base).unwrap();
    }

    /// Another host made the directory for them at the same time, and removed it when it left.
    #[test]
    fn parts_are_kept_by_the_host_that_was_second_to_make_their_directory() {
        use std::fs;
        let base = std::env::temp_dir().join(format!("dgl-tools-second-{}", std::process::id()));
        let folder = Folder::open_or_make(&base).unwrap();
        let push = PushFolder::new(folder, "run", 0);
        push.enter().unwrap();
        let own = base.join(".part-push.run.0");
        fs::rename(base.join(KEPT), own.join(NEW_KEPT)).unwrap();
        let key = format!("{:016x}.{:016x}", 1, 2);
        let part = fs::File::create(own.join(format!("part.{key}"))).unwrap();
        part.set_len(WORTH_KEEPING).unwrap();
        push.leave();
        assert!(base.join(KEPT).join(key).exists());
        assert!(!own.exists());
        fs::remove_dir_all(base).unwrap();
    }

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
        let part = |index: usize| format!("{index:016x}.{index:016x}");
        for (index, (_, time, _)) in table.into_iter().enumerate() {
            let file = File::create(folder.join(part(index))).unwrap();
            file.set_modified(time).unwrap();
        }
        let other = File::create(folder.join("thesis.txt")).unwrap();
        other.set_modified(now - days(9000)).unwrap();
        expire(&Folder::open(&folder).unwrap(), now);
        for (index, (name, _, stays)) in table.into_iter().enumerate() {
            assert_eq!(folder.join(part(index)).exists(), stays, "{name}");
        }
        assert!(folder.join("thesis.txt").exists(), "it is not of part-push");
        fs::remove_dir_all(folder).unwrap();
    }
}
