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
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::statfs::{self, FsType, statfs};
use nix::sys::time::TimeSpec;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use transfer::partial;
use transfer::parts::Parts;
use wire::Failure;

/// On a network file system a stage that was not touched for this many seconds is abandoned; its
/// owner touches it every ten seconds.
const UNTOUCHED: i64 = 120;
/// Fewer bytes of a file than this are not worth keeping; they are sent again.
const WORTH_KEEPING: u64 = 1 << 20;
/// What nobody came back for is removed at the end of a push that has begun its files: whoever
/// comes back to it, after however long and whatever the clock did meanwhile, finds it.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Other connections note what they have when this one ends, which takes them at most this long.
const LANES_END: Duration = Duration::from_secs(3);

const PREFIX: &str = record::RESERVED;
const LOCK: &str = ".part-push.lock";

/// The stage of a push.
pub struct Stage {
    base: PathBuf,
    run: String,
    pub folder: PathBuf,
    /// Whether the push has come as far as to ask for what was kept of its files, or to send some.
    has_begun: AtomicBool,
    /// The lock, held as long as the push runs here; `None` for another push's stage, or if the
    /// file system has no locks.
    _owner: Option<Flock<File>>,
}

/// The folder of a stage.
pub fn folder(base: &Path, run: &str, host: u32) -> PathBuf {
    base.join(format!("{PREFIX}{run}.{host}"))
}

/// Whether the name of a push can stand in a file's name.
pub fn is_word(run: &str) -> bool {
    (1..=64).contains(&run.len()) && run.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl Stage {
    /// Opens a folder for a push, which is not at work there before it has entered.
    pub fn open(base: &Path, run: &str, host: u32) -> Result<Stage, Failure> {
        let failed = |error: io::Error| Failure::new(format!("{}: {error}", base.display()));
        Stage::make(base, run, host).map_err(failed)
    }

    /// Makes this push the one that is at work, and puts away what dead pushes have left. Returns
    /// the name of the push that is at work instead, if there is one.
    pub fn enter(&self) -> Result<Option<String>, Failure> {
        let failed = |error: io::Error| Failure::new(format!("{}: {error}", self.base.display()));
        let mut holder = self.lock().map_err(failed)?;
        if let Some(dead) = &holder
            && !self.is_at_work(dead)
        {
            self.unlock(Path::new(dead));
            holder = self.lock().map_err(failed)?;
        }
        if holder.is_none() {
            for other in stages(&self.base) {
                if other != self.folder && self.is_dead(&other) {
                    salvage(&self.base, &other);
                }
            }
        }
        Ok(holder)
    }

    /// Leaves the folder to other pushes until this one enters again.
    pub fn let_go(&self) {
        let lock = self.base.join(LOCK);
        if fs::read_link(&lock).is_ok_and(|holder| holder.as_os_str() == self.run.as_str()) {
            let _ = fs::remove_file(lock);
        }
    }

    /// The stage of a push whose process on this host has ended.
    pub fn abandoned(base: &Path, run: &str, host: u32) -> Stage {
        Stage {
            base: base.to_owned(),
            run: run.to_owned(),
            folder: folder(base, run, host),
            has_begun: AtomicBool::new(false),
            _owner: None,
        }
    }

    /// Notes that the push asks for what was kept of its files, or sends some.
    pub fn begin_files(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Makes a stage, which has its owner before it has its name.
    fn make(base: &Path, run: &str, host: u32) -> io::Result<Stage> {
        super::place::make_all(base)?;
        let (folder, new) = (
            folder(base, run, host),
            base.join(format!("{PREFIX}new.{run}.{host}")),
        );
        DirBuilder::new().mode(0o700).create(&new)?;
        create(
            &new.join("owner"),
            &format!("{}\n{}\n", this_machine(), boot_id()),
        )?;
        create(&new.join("lanes"), "")?;
        let owner = Flock::lock(
            File::open(new.join("owner"))?,
            FlockArg::LockExclusiveNonblock,
        )
        .ok();
        fs::rename(&new, &folder)?;
        Ok(Stage {
            base: base.to_owned(),
            run: run.to_owned(),
            folder,
            has_begun: AtomicBool::new(false),
            _owner: owner,
        })
    }

    /// Makes this push the one that is at work, unless another one is, which is returned.
    fn lock(&self) -> io::Result<Option<String>> {
        let lock = self.base.join(LOCK);
        match symlink(&self.run, &lock) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Ok(()) => return Ok(None),
            // links are not known here
            Err(error) if error.raw_os_error() == Some(nix::libc::EPERM) => return Ok(None),
            Err(error) => return Err(error),
        }
        match fs::read_link(&lock) {
            Ok(holder) if holder.as_os_str() == self.run.as_str() => Ok(None),
            Ok(holder) => Ok(Some(holder.to_string_lossy().into_owned())),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(io::Error::other(
                format!("{LOCK} there is no lock of part-push; remove it"),
            )),
            // it has just been removed
            Err(_) => Ok(Some(String::new())),
        }
    }

    /// Removes another push's lock. Somebody else may have just removed it and made another one.
    fn unlock(&self, holder: &Path) {
        let (lock, moved) = (self.base.join(LOCK), self.folder.join("lock"));
        if fs::rename(&lock, &moved).is_err() {
            return;
        }
        if let Ok(other) = fs::read_link(&moved)
            && other != holder
        {
            let _ = symlink(other, &lock);
        }
        let _ = fs::remove_file(&moved);
    }

    /// Whether any host of a push is alive.
    fn is_at_work(&self, run: &str) -> bool {
        stages(&self.base)
            .iter()
            .any(|stage| belongs(stage, run) && !self.is_dead(stage))
    }

    /// Whether the process that made a stage has ended.
    fn is_dead(&self, stage: &Path) -> bool {
        // a stage without its name may not have its owner yet
        let owner = if belongs(stage, "new") {
            None
        } else {
            File::open(stage.join("owner")).ok()
        };
        let Some(owner) = owner else {
            return is_untouched(stage, &self.folder);
        };
        let locks = match Flock::lock(owner, FlockArg::LockExclusiveNonblock) {
            Ok(_) => true,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => return false,
            Err(_) => false,
        };
        if locks && is_local(&self.base) {
            return true;
        }
        let owner = fs::read_to_string(stage.join("owner")).unwrap_or_default();
        let (machine, kernel) = owner.trim_end().split_once('\n').unwrap_or_default();
        // what runs on the same kernel sees the same locks
        match kernel == boot_id() {
            true if locks => true,
            // the host has been restarted; but two hosts of one push may have the same name
            false if machine == this_machine() && !belongs(stage, &self.run) => true,
            _ => is_untouched(stage, &self.folder),
        }
    }

    /// The hosts of this push whose stages are visible from this one.
    pub fn peers(&self) -> Vec<u32> {
        // makes a network file system look again
        let new = self.folder.join("peers");
        let _ = fs::create_dir(&new).and_then(|()| fs::remove_dir(&new));
        let own = format!("{PREFIX}{}.", self.run);
        let number = |stage: &PathBuf| {
            stage
                .file_name()?
                .to_str()?
                .strip_prefix(&own)?
                .parse()
                .ok()
        };
        stages(&self.base).iter().filter_map(number).collect()
    }

    /// The paths of a partial file and its notes.
    pub fn part(&self, key: &str) -> (PathBuf, PathBuf) {
        part(&self.folder, key)
    }

    /// Takes over the partial file of an earlier push. It is renamed, so that no other push takes
    /// it over too.
    pub fn claim(&self, key: &str, bytes: u64) -> Parts {
        let (path, notes) = self.part(key);
        if !path.exists() {
            let left = kept(&self.base).join(key);
            if fs::rename(&left, &path).is_ok() {
                let _ = fs::rename(partial::notes_of(&left), &notes);
                // an older version has kept what it had reserved, too
                let _ = partial::release(&path);
            }
        }
        partial::kept(&path, &notes, bytes)
    }

    /// Removes what is kept for a file that is in its place now.
    pub fn forget_kept(&self, key: &str) {
        let place = key.split('.').next().unwrap_or(key);
        for entry in fs::read_dir(kept(&self.base))
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.file_name().to_string_lossy().split('.').next() == Some(place) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Shows other hosts that the push is alive.
    pub fn sign(folder: &Path) {
        let now = TimeSpec::UTIME_NOW;
        let _ = utimensat(
            nix::fcntl::AT_FDCWD,
            folder,
            &now,
            &now,
            UtimensatFlags::NoFollowSymlink,
        );
    }

    /// Removes the stage; partial files that are worth it are kept.
    pub fn leave(&self) {
        // what this push has come back for it has taken out of there, if it came so far
        if self.has_begun.load(Ordering::Relaxed) {
            expire(&kept(&self.base), SystemTime::now());
        }
        salvage(&self.base, &self.folder);
        let _ = fs::remove_dir(kept(&self.base));
        if !self.is_at_work(&self.run) {
            self.let_go();
        }
    }
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}

/// The paths of a partial file in a stage, and of its notes.
pub fn part(stage: &Path, key: &str) -> (PathBuf, PathBuf) {
    (
        stage.join(format!("part.{key}")),
        stage.join(format!("good.{key}")),
    )
}

/// A lock that a further connection of a push holds as long as it may write.
pub fn lane(stage: &Path) -> Option<Flock<File>> {
    Flock::lock(
        File::open(stage.join("lanes")).ok()?,
        FlockArg::LockSharedNonblock,
    )
    .ok()
}

fn kept(base: &Path) -> PathBuf {
    base.join(".part-push.kept")
}

/// The stages of all pushes in a folder.
fn stages(base: &Path) -> Vec<PathBuf> {
    let is_stage = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix(PREFIX));
        name.is_some_and(|name| name.contains('.')) && path.is_dir()
    };
    fs::read_dir(base)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(is_stage)
        .collect()
}

fn belongs(stage: &Path, run: &str) -> bool {
    stage.file_name().is_some_and(|name| {
        name.to_string_lossy()
            .starts_with(&format!("{PREFIX}{run}."))
    })
}

/// Removes a stage; partial files that are worth it are kept.
fn salvage(base: &Path, stage: &Path) {
    let until = Instant::now() + LANES_END;
    while let Ok(lanes) = File::open(stage.join("lanes"))
        && let Err((_, nix::errno::Errno::EWOULDBLOCK)) =
            Flock::lock(lanes, FlockArg::LockExclusiveNonblock)
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    for entry in fs::read_dir(stage).into_iter().flatten().flatten() {
        if let Some(key) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix("part."))
        {
            keep(base, stage, key);
        }
    }
    let _ = fs::remove_dir_all(stage);
}

fn keep(base: &Path, stage: &Path, key: &str) {
    let (path, notes) = part(stage, key);
    if partial::kept(&path, &notes, u64::MAX).bytes() < WORTH_KEEPING {
        return;
    }
    let _ = partial::release(&path);
    let left = kept(base).join(key);
    let _ = DirBuilder::new().mode(0o700).create(kept(base));
    let _ = partial::remove(&partial::notes_of(&left));
    // the notes first: without them all bytes of the file would count
    let _ = fs::rename(&notes, partial::notes_of(&left));
    let _ = fs::rename(&path, &left);
}

/// Removes what nobody came back for. A clock that stood years ahead has made what seems to come
/// from a time that is far away.
fn expire(kept: &Path, now: SystemTime) {
    for entry in fs::read_dir(kept).into_iter().flatten().flatten() {
        let Ok(time) = entry.metadata().and_then(|meta| meta.modified()) else {
            continue;
        };
        let age = now
            .duration_since(time)
            .unwrap_or_else(|ahead| ahead.duration());
        if age > KEPT_FOR {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a stage was not touched for long, by the clock of the file system, which is that of our
/// own stage.
fn is_untouched(stage: &Path, own: &Path) -> bool {
    Stage::sign(own);
    match (fs::metadata(stage), fs::metadata(own)) {
        (Ok(theirs), Ok(ours)) => ours.mtime().saturating_sub(theirs.mtime()) > UNTOUCHED,
        // it has just disappeared
        _ => false,
    }
}

/// Whether locks on this file system are visible to all who see its files.
fn is_local(folder: &Path) -> bool {
    const LOCAL: [FsType; 6] = [
        statfs::EXT4_SUPER_MAGIC,
        statfs::XFS_SUPER_MAGIC,
        statfs::BTRFS_SUPER_MAGIC,
        statfs::TMPFS_MAGIC,
        statfs::OVERLAYFS_SUPER_MAGIC,
        statfs::F2FS_SUPER_MAGIC,
    ];
    statfs(folder).is_ok_and(|system| LOCAL.contains(&system.filesystem_type()))
}

fn this_machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Whether a folder has only files of part-push.
pub fn is_empty(base: &Path) -> io::Result<bool> {
    match fs::read_dir(base) {
        Ok(mut entries) => Ok(entries.all(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether a folder with this name is part-push's own, and its files incomplete.
pub fn is_ours(name: &OsStr) -> bool {
    let word = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    word.is_some_and(|word| word == "kept" || word.contains('.'))
}

/// Whether a folder is the stage of a push.
pub fn is_stage(folder: &Path) -> bool {
    OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_DIRECTORY.bits())
        .open(folder)
        .is_ok()
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
        expire(&folder, now);
        for (name, _, stays) in table {
            assert_eq!(folder.join(name).exists(), stays, "{name}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
