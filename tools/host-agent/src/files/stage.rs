//! The stage of a push in a folder: where partial files lie, how others see that the push is alive,
//! and what it leaves.
//!
//! Everything lies in that folder, on the file system on which the files will be, and can be read
//! by nobody else:
//!
//!     .part-push.RUN.ID   the stage of a push on this host; removed at its end, however that comes
//!     .part-push.lock     a link that names the running push; on shared storage its hosts enter
//!                         together, and others wait
//!     .part-push.kept/    the parts of large files that came before a push was interrupted
//!
//! A stage belongs to whoever holds the lock on its file `owner`, which the kernel releases with
//! the process. Only on network file systems, whose locks need not reach from host to host, does
//! the time of the last sign of life decide.

use crate::procfs::boot_id;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{self, FsType, fstatfs};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use transfer::folder::Folder;
use transfer::partial::Names;
use transfer::parts::Parts;
use wire::Failure;
use wire::files::FileFault;

/// On a network file system a stage that was not touched for this many seconds is abandoned; its
/// owner touches it every ten seconds.
const UNTOUCHED: i64 = 120;
/// Fewer bytes of a file than this are not worth keeping; they are sent again.
const WORTH_KEEPING: u64 = 1 << 20;
/// What nobody came back for is removed at the end of a push that has begun its files: whoever
/// comes back to it, after however long and whatever the clock did meanwhile, finds it.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// The names of a machine and a boot are shorter.
const MOST_OF_OWNER: u64 = 4096;

const PREFIX: &str = record::RESERVED;
const LOCK: &str = ".part-push.lock";
const KEPT: &str = ".part-push.kept";
/// Which machine has made a stage, in a file that its process locks.
const OWNER: &str = "owner";
/// A file in the folders that part-push makes. Another user may rename a folder of this user's to
/// such a name, but cannot put this file into it: what lacks it is not touched.
const MADE_HERE: &str = ".made-by-part-push";
/// The mode of the folders of a workspace that are missing, before the umask.
const NEW_FOLDER: u32 = 0o755;

/// The stage of a push.
pub struct Stage {
    base: Folder,
    run: String,
    name: String,
    pub folder: Folder,
    /// Whether the push has come as far as to ask for what was kept of its files, or to send some.
    has_begun: AtomicBool,
    /// The lock, held as long as the push runs here; `None` for another push's stage, or if the
    /// file system has no locks.
    _owner: Option<Flock<File>>,
}

fn name(run: &str, host: u32) -> String {
    format!("{PREFIX}{run}.{host}")
}

/// The folder of a stage that this user's push has made.
fn folder(base: &Folder, run: &str, host: u32) -> Option<Folder> {
    let folder = base.folder(name(run, host)).ok();
    folder.filter(Folder::is_ours)
}

/// Whether the name of a push can stand in a file's name.
pub fn is_word(run: &str) -> bool {
    (1..=64).contains(&run.len()) && run.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl Stage {
    /// Opens a folder for a push, which is not at work there before it has entered.
    pub fn open(base: &Path, run: &str, host: u32) -> Result<Stage, Failure> {
        let failed = |fault: FileFault| Failure::new(format!("{}: {fault}", base.display()));
        let folder = Folder::open_or_make(base, NEW_FOLDER).map_err(failed)?;
        Stage::make(folder, run, host).map_err(|error| failed(error.into()))
    }

    /// Makes this push the one that is at work, and puts away what dead pushes have left. Returns
    /// the name of the push that is at work instead, if there is one.
    pub fn enter(&self) -> io::Result<Option<String>> {
        let mut holder = self.lock()?;
        if let Some(dead) = &holder
            && !self.is_at_work(dead)
        {
            self.unlock(OsStr::new(dead));
            holder = self.lock()?;
        }
        if holder.is_none() {
            for other in stages(&self.base) {
                if *other != *self.name
                    && self.is_dead(&other)
                    && let Ok(folder) = self.base.folder(&other)
                    && folder.is_private()
                    && has(&folder, MADE_HERE)
                {
                    salvage(&self.base, &other, &folder);
                }
            }
        }
        Ok(holder)
    }

    /// Leaves the folder to other pushes until this one enters again.
    pub fn let_go(&self) {
        let is_held = |holder: OsString| *holder == *self.run;
        if self.base.link_target(LOCK).is_ok_and(is_held) {
            let _ = self.base.remove(LOCK);
        }
    }

    /// The stage of a push whose process on this host has ended.
    pub fn abandoned(base: &Path, run: &str, host: u32) -> Option<Stage> {
        let base = Folder::open(base).ok()?;
        let folder = folder(&base, run, host)?;
        Some(Stage::of(base, run, host, (folder, None)))
    }

    fn of(
        base: Folder,
        run: &str,
        host: u32,
        (folder, owner): (Folder, Option<Flock<File>>),
    ) -> Stage {
        Stage {
            base,
            run: run.to_owned(),
            name: name(run, host),
            folder,
            has_begun: AtomicBool::new(false),
            _owner: owner,
        }
    }

    /// The folder in which the stage lies.
    pub fn base(&self) -> &Folder {
        &self.base
    }

    /// Notes that the push asks for what was kept of its files, or sends some.
    pub fn begin_files(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Makes a stage, which has its owner before it has its name.
    fn make(base: Folder, run: &str, host: u32) -> io::Result<Stage> {
        let new = format!("{PREFIX}new.{run}.{host}");
        base.make(&new, 0o700)?;
        let folder = base.folder(&new)?;
        if !folder.is_ours() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let text = format!("{}\n{}\n", this_machine(), boot_id());
        folder.create(OWNER, text.as_bytes())?;
        folder.create(MADE_HERE, &[])?;
        let owner = Flock::lock(folder.file(OWNER)?, FlockArg::LockExclusiveNonblock).ok();
        base.rename(&new, &base, name(run, host))?;
        Ok(Stage::of(base, run, host, (folder, owner)))
    }

    /// Makes this push the one that is at work, unless another one is, which is returned.
    fn lock(&self) -> io::Result<Option<String>> {
        match self.base.link(LOCK, OsStr::new(&self.run)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Ok(()) => return Ok(None),
            // links are not known here
            Err(error) if error.raw_os_error() == Some(nix::libc::EPERM) => return Ok(None),
            Err(error) => return Err(error),
        }
        match self.base.link_target(LOCK) {
            Ok(holder) if *holder == *self.run => Ok(None),
            Ok(holder) => Ok(Some(holder.to_string_lossy().into_owned())),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(io::Error::other(
                format!("{LOCK} there is no lock of part-push; remove it"),
            )),
            // it has just been removed
            Err(_) => Ok(Some(String::new())),
        }
    }

    /// Removes another push's lock. Somebody else may have just removed it and made another one.
    fn unlock(&self, holder: &OsStr) {
        if self.base.rename(LOCK, &self.folder, "lock").is_err() {
            return;
        }
        if let Ok(other) = self.folder.link_target("lock")
            && other != holder
        {
            let _ = self.base.link(LOCK, &other);
        }
        let _ = self.folder.remove("lock");
    }

    /// Whether any host of a push is alive.
    fn is_at_work(&self, run: &str) -> bool {
        stages(&self.base)
            .iter()
            .any(|stage| belongs(stage, run) && !self.is_dead(stage))
    }

    /// Whether the process that made a stage has ended. Of another user's stage only its time
    /// counts.
    fn is_dead(&self, stage: &OsStr) -> bool {
        // a stage without its name may not have its owner yet
        let folder = match belongs(stage, "new") {
            true => None,
            false => self.base.folder(stage).ok().filter(Folder::is_private),
        };
        let owner = match folder.map(|folder| folder.file(OWNER)) {
            Some(Ok(owner)) => owner,
            // it had its owner before its name, so somebody was about to remove it
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound && is_local(&self.base) => {
                return true;
            }
            _ => return self.is_untouched(stage),
        };
        let mut text = String::new();
        let _ = (&owner).take(MOST_OF_OWNER).read_to_string(&mut text);
        let locks = match Flock::lock(owner, FlockArg::LockExclusiveNonblock) {
            Ok(_) => true,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => return false,
            Err(_) => false,
        };
        if locks && is_local(&self.base) {
            return true;
        }
        let (machine, kernel) = text.trim_end().split_once('\n').unwrap_or_default();
        // what runs on the same kernel sees the same locks
        match kernel == boot_id() {
            true if locks => true,
            // the host has been restarted; but two hosts of one push may have the same name
            false if machine == this_machine() && !belongs(stage, &self.run) => true,
            _ => self.is_untouched(stage),
        }
    }

    /// Whether a stage was not touched for long, by the clock of the file system, which is that of
    /// our own stage.
    fn is_untouched(&self, stage: &OsStr) -> bool {
        self.folder.touch();
        match (self.base.stat(stage), self.folder.metadata()) {
            (Ok(theirs), Ok(ours)) => ours.mtime().saturating_sub(theirs.mtime()) > UNTOUCHED,
            // it has just disappeared
            _ => false,
        }
    }

    /// The hosts of this push whose stages are visible from this one.
    pub fn peers(&self) -> Vec<u32> {
        // makes a network file system look again
        let _ = self.folder.make("peers", 0o700);
        let _ = self.folder.remove_folder("peers");
        let own = format!("{PREFIX}{}.", self.run);
        let stages = stages(&self.base).into_iter();
        stages
            .filter_map(|stage| stage.to_str()?.strip_prefix(&own)?.parse().ok())
            .collect()
    }

    /// Takes over the partial file of an earlier push. It is renamed, so that no other push takes
    /// it over too.
    pub fn claim(&self, key: &str, bytes: u64) -> Parts {
        let part = part(&self.folder, key);
        if self.folder.stat(&part.file).is_err()
            && let Some(kept) = kept(&self.base)
            && Names::new(kept, key).rename(&part).is_ok()
        {
            // an older version has kept what it had reserved, too
            let _ = part.release();
        }
        part.kept(bytes)
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

    /// Removes the stage; partial files that are worth it are kept.
    pub fn leave(&self) {
        // what this push has come back for it has taken out of there, if it came so far
        if self.has_begun.load(Ordering::Relaxed)
            && let Some(kept) = kept(&self.base)
        {
            expire(&kept, SystemTime::now());
        }
        salvage(&self.base, OsStr::new(&self.name), &self.folder);
        if let Some(kept) = kept(&self.base)
            && kept.names().is_ok_and(|names| names == [MADE_HERE])
        {
            let _ = kept.remove(MADE_HERE);
            let _ = self.base.remove_folder(KEPT);
        }
        if !self.is_at_work(&self.run) {
            self.let_go();
        }
    }
}

/// A partial file in a stage, and its notes.
pub fn part(stage: &Folder, key: &str) -> Names {
    Names {
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

/// The stages of all pushes in a folder.
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
        let kinds = ["part.", "good."];
        let name = name.to_string_lossy();
        name == "lock" || kinds.iter().any(|kind| name.starts_with(kind))
    };
    let mut is_empty = true;
    for name in names.iter().filter(is_of_push) {
        is_empty &= stage.remove(name).is_ok();
    }
    if is_empty && stage.remove(OWNER).is_ok() && stage.remove(MADE_HERE).is_ok() {
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
        let _ = part.rename(&Names::new(kept, key));
    }
}

/// Makes the folder of what is kept. It has its mark before it has its name, because somebody might
/// put another folder in its place in between.
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

/// Whether locks on this file system are visible to all who see its files.
fn is_local(folder: &Folder) -> bool {
    // of linux/magic.h; nix has it for glibc alone
    const XFS_SUPER_MAGIC: FsType = FsType(0x5846_5342);
    const LOCAL: [FsType; 6] = [
        statfs::EXT4_SUPER_MAGIC,
        XFS_SUPER_MAGIC,
        statfs::BTRFS_SUPER_MAGIC,
        statfs::TMPFS_MAGIC,
        statfs::OVERLAYFS_SUPER_MAGIC,
        statfs::F2FS_SUPER_MAGIC,
    ];
    folder.as_file().is_ok_and(|folder| {
        fstatfs(folder).is_ok_and(|system| LOCAL.contains(&system.filesystem_type()))
    })
}

fn this_machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Whether a folder has only files of part-push.
pub fn is_empty(base: &Path) -> Result<bool, FileFault> {
    let names = match Folder::open(base) {
        Err(FileFault::System(nix::libc::ENOENT)) => return Ok(true),
        opened => opened?.names()?,
    };
    let is_ours = |name: &OsString| name.as_bytes().starts_with(PREFIX.as_bytes());
    Ok(names.iter().all(is_ours))
}

/// Whether a folder with this name is part-push's own, and its files incomplete.
pub fn is_ours(name: &OsStr) -> bool {
    let word = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    word.is_some_and(|word| word == "kept" || word.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_came_back_for_is_removed_on_whichever_side_of_now_its_time_lies() {
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
