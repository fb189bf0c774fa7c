//! Files on this machine. They are written under a temporary name beside the final one, and renamed
//! when they are complete.

use crate::plan::Item;
use nix::fcntl::{Flock, FlockArg};
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use transfer::partial::{self, Finish, Partial};
use transfer::parts::Parts;
use transfer::source::{self, Version};
use wire::files::Fault;

const CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

const EARLIER_CHANGED: &str = "the file that is here changed while it was compared";

/// A folder into which no other part-pull writes: two that write the same file under the same
/// temporary name would rename it unfinished.
pub struct Claim {
    path: PathBuf,
    /// The lock; `None` on a file system without locks.
    _lock: Option<Flock<File>>,
}

/// Claims a folder, which is made; `None` if another part-pull has it.
pub fn claim(folder: &Path) -> io::Result<Option<Claim>> {
    fs::create_dir_all(folder)?;
    let path = folder.join(".part-pull.lock");
    let file = OpenOptions::new().create(true).append(true).open(&path)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            // its previous owner removes the lock file
            let mine = lock.metadata()?;
            let same = fs::metadata(&path)
                .is_ok_and(|now| (now.dev(), now.ino()) == (mine.dev(), mine.ino()));
            Ok(same.then_some(Claim {
                path,
                _lock: Some(lock),
            }))
        }
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err(_) => Ok(Some(Claim { path, _lock: None })),
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The umask of this process. It is read once, before there are threads, because reading it means
/// setting it.
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let mask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        nix::sys::stat::umask(mask);
        mask.bits()
    })
}

/// The path of the partial file: the same for the same version of the file.
fn path(item: &Item) -> PathBuf {
    let version = format!("{} {:?}", item.there.bytes, item.there.mtime);
    let version = CRC64.checksum(version.as_bytes());
    item.dst
        .with_file_name(format!("{}{version:016x}", beginning(item)))
}

/// How the names of the partial files of all versions of a file begin.
fn beginning(item: &Item) -> String {
    let name = item.dst.file_name().unwrap_or_default();
    format!(".part-pull.{:016x}.", CRC64.checksum(name.as_bytes()))
}

/// What earlier runs have left of files in the folders of these.
fn left(items: &[&Item]) -> impl Iterator<Item = PathBuf> {
    let folders: BTreeSet<&Path> = items.iter().filter_map(|item| item.dst.parent()).collect();
    let entries = folders
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.starts_with(b".part-pull.")
    })
}

/// Gives back the space that runs which were killed had reserved for the rest of files. No other
/// part-pull may be at work there.
pub fn release_left(items: &[&Item]) {
    for path in left(items) {
        // what cannot be given back stays
        let _ = partial::release(&path);
    }
}

/// Removes what is left of other versions of those files that are here now. No other part-pull may
/// be at work there.
pub fn remove_left(items: &[&Item]) {
    let here = items.iter().filter(|item| is_here(item));
    let here: HashSet<PathBuf> = here
        .map(|item| item.dst.with_file_name(beginning(item)))
        .collect();
    for path in left(items) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let version = name.trim_end_matches(".good").rfind('.').unwrap_or(0);
        if here.contains(&path.with_file_name(&name[..=version])) {
            let _ = partial::remove(&path);
        }
    }
}

fn notes(item: &Item) -> PathBuf {
    partial::notes_of(&path(item))
}

/// Whether the host's file is already here.
pub fn is_here(item: &Item) -> bool {
    let Ok(here) = fs::symlink_metadata(&item.dst) else {
        return false;
    };
    if item.there.is_folder() {
        return here.is_dir();
    }
    let time = (here.mtime(), u32::try_from(here.mtime_nsec()).unwrap_or(0));
    here.is_file() && here.len() == item.there.bytes && source::same_time(item.there.mtime, time)
}

/// The parts of a file that are here and may equal those on the host.
pub struct Kept {
    /// The parts.
    pub parts: Parts,
    /// The file that has them.
    pub file: File,
    /// What the file was like before anything was read of it.
    pub version: Version,
    /// Whether it is the file that has the final name.
    pub is_earlier: bool,
}

/// The kept parts of a file: of the partial file, or else of the one with the final name.
pub fn kept(item: &Item) -> Option<Kept> {
    let path = path(item);
    let bytes = item.there.bytes;
    let parts = partial::kept(&path, &notes(item), bytes);
    let is_earlier = parts.list().is_empty();
    let file = source::open(if is_earlier { &item.dst } else { &path }).ok()?;
    let version = Version::of(&file).ok()?;
    let parts = if is_earlier {
        let length = file.metadata().ok()?.len();
        Parts::beginning(length.min(bytes)).whole_grains(bytes)
    } else {
        parts
    };
    let kept = Kept {
        parts,
        file,
        version,
        is_earlier,
    };
    Some(kept).filter(|kept| !kept.parts.list().is_empty())
}

/// Begins a partial file, resumes it with the parts that are kept, or copies those from an earlier
/// version, which must be what it was when it was compared.
pub fn begin(
    item: &Item,
    keep: Parts,
    earlier: Option<&(File, Version)>,
) -> Result<Partial, String> {
    let begin = |earlier| {
        make_folder(item)?;
        let there = &item.there;
        let (path, notes) = (path(item), notes(item));
        Partial::begin(path, notes, there.bytes, keep, earlier, there.sparse)
    };
    let begun = begin(earlier.map(|(file, _)| file));
    // asked when all is copied, so that no write before or during that is missed
    match earlier {
        Some((file, version)) if Version::of(file).ok().as_ref() != Some(version) => {
            discard(item);
            Err(EARLIER_CHANGED.to_owned())
        }
        _ => begun.map_err(|error| here(&Fault::system(&error))),
    }
}

fn make_folder(item: &Item) -> io::Result<()> {
    item.dst.parent().map_or(Ok(()), fs::create_dir_all)
}

fn finish_of(item: &Item) -> Finish {
    Finish {
        mode: item.there.mode & 0o777 & !umask(),
        mtime: Some(item.there.mtime),
        fsync: false,
    }
}

/// Writes a small file completely.
pub fn write_small(item: &Item, content: &[u8]) -> Result<(), String> {
    make_folder(item).map_err(|error| error.to_string())?;
    partial::write_small(&path(item), &item.dst, content, finish_of(item))
        .map_err(|fault| here(&fault))
}

/// Makes an empty folder.
pub fn make_empty(item: &Item) -> Result<(), String> {
    fs::create_dir_all(&item.dst).map_err(|error| error.to_string())
}

/// Gives a file its mode, its time and its name.
pub fn finish(item: &Item, partial: &Partial) -> Result<(), String> {
    partial
        .finish(&item.dst, finish_of(item))
        .map_err(|fault| here(&fault))
}

/// Removes a partial file.
pub fn discard(item: &Item) {
    let _ = partial::remove(&path(item)).and_then(|()| partial::remove(&notes(item)));
}

/// The message for a fault on this machine.
pub fn here(fault: &Fault) -> String {
    match fault {
        Fault::System(number) => io::Error::from_raw_os_error(*number).to_string(),
        other => other.to_string(),
    }
}
