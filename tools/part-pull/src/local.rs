//! Files on this machine. They are written under a temporary name beside the final one, and renamed
//! when they are complete.

use crate::plan::Item;
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use transfer::folder::{Folder, Links};
use transfer::lock::{Attempt, Lock};
use transfer::partial::{self, Finish, Names, Partial};
use transfer::parts::Parts;
use transfer::source::{self, Version};
use wire::files::FileFault;

const CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

const EARLIER_CHANGED: &str = "the file that is here changed while it was compared";
const LOCK: &str = ".part-pull.lock";
/// The mode of a new folder, before the umask.
const NEW_FOLDER: u32 = 0o777;

/// Claims a folder, which is made: two part-pulls that write the same file under the same temporary
/// name would rename it unfinished.
pub fn claim(folder: &Path, run: &str) -> Result<Attempt, FileFault> {
    let folder = Folder::open_or_make(folder, NEW_FOLDER)?;
    Ok(Lock::take(&folder, LOCK, run)?)
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

/// The folder and the name of a file. The folder is made with `make`.
fn destination(item: &Item, make: bool) -> Result<(Folder, &OsStr), FileFault> {
    let folder = match make {
        true => Folder::open_or_make(&item.folder, NEW_FOLDER)?,
        false => Folder::open(&item.folder)?,
    };
    let below = item.dst.strip_prefix(&item.folder).unwrap_or(&item.dst);
    let name = below.file_name().unwrap_or_default();
    let parent = below.parent().unwrap_or(Path::new(""));
    Ok((folder.descend(parent, Links::Inside, make)?, name))
}

/// The partial file in its folder: the same for the same version of the file.
fn partial_names(folder: &Folder, item: &Item) -> Names {
    let version = format!("{} {:?}", item.there.bytes, item.there.mtime);
    let version = CRC64.checksum(version.as_bytes());
    Names::new(folder.clone(), format!("{}{version:016x}", beginning(item)))
}

/// The same; what another user has put there in its place is removed first.
fn own_partial(folder: &Folder, item: &Item) -> Names {
    let names = partial_names(folder, item);
    let me = nix::unistd::geteuid().as_raw();
    let is_own = |meta: fs::Metadata| meta.is_file() && meta.uid() == me && meta.nlink() == 1;
    if !folder.stat(&names.file).is_ok_and(is_own) {
        let _ = names.remove();
    }
    names
}

/// How the names of the partial files of all versions of a file begin.
fn beginning(item: &Item) -> String {
    let name = item.dst.file_name().unwrap_or_default();
    format!(".part-pull.{:016x}.", CRC64.checksum(name.as_bytes()))
}

/// The folders of these files, and what earlier runs have left there.
fn left<'a>(items: &[&'a Item]) -> impl Iterator<Item = (&'a Path, Folder, OsString)> {
    let mut seen = BTreeSet::new();
    let mut first = items.to_vec();
    first.retain(|item| seen.insert(item.dst.parent()));
    first.into_iter().flat_map(|item| {
        let folder = destination(item, false).map(|(folder, _)| folder).ok();
        let names = folder.as_ref().and_then(|folder| folder.names().ok());
        let names = names.unwrap_or_default().into_iter();
        let ours = names.filter(|name| name.as_bytes().starts_with(b".part-pull."));
        let parent = item.dst.parent().unwrap_or(Path::new(""));
        ours.filter_map(move |name| Some((parent, folder.clone()?, name)))
    })
}

/// Gives back the space that runs which were killed had reserved for the rest of files. No other
/// part-pull may be at work there.
pub fn release_left(items: &[&Item]) {
    for (_, folder, name) in left(items) {
        // what cannot be given back stays
        let _ = Names::new(folder, name).release();
    }
}

/// Removes what is left of other versions of those files that are here now. No other part-pull may
/// be at work there.
pub fn remove_left(items: &[&Item]) {
    let here = items.iter().filter(|item| is_here(item));
    let here: HashSet<(Option<&Path>, String)> = here
        .map(|item| (item.dst.parent(), beginning(item)))
        .collect();
    for (parent, folder, name) in left(items) {
        let text = name.to_string_lossy();
        let version = text.trim_end_matches(".good").rfind('.').unwrap_or(0);
        if here.contains(&(Some(parent), text[..=version].to_owned())) {
            let _ = folder.remove(&name);
        }
    }
}

/// Whether the host's file is already here.
pub fn is_here(item: &Item) -> bool {
    let Some(here) = destination(item, false)
        .ok()
        .and_then(|(folder, name)| folder.stat(name).ok())
    else {
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
    let (folder, name) = destination(item, false).ok()?;
    let names = own_partial(&folder, item);
    let bytes = item.there.bytes;
    let parts = names.kept(bytes);
    let is_earlier = parts.list().is_empty();
    let file = folder.file(if is_earlier { name } else { &names.file });
    let file = file.ok()?;
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
        let (folder, _) = destination(item, true)?;
        let there = &item.there;
        let names = own_partial(&folder, item);
        let partial = Partial::begin(names, there.bytes, keep, earlier, there.sparse)?;
        Ok::<_, FileFault>(partial)
    };
    let begun = begin(earlier.map(|(file, _)| file));
    // asked when all is copied, so that no write before or during that is missed
    match earlier {
        Some((file, version)) if Version::of(file).ok().as_ref() != Some(version) => {
            discard(item);
            Err(EARLIER_CHANGED.to_owned())
        }
        _ => begun.map_err(|fault| fault.here()),
    }
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
    let write = || {
        let (folder, name) = destination(item, true)?;
        let passing = partial_names(&folder, item).file;
        let (passing, dst) = ((&folder, passing.as_os_str()), (&folder, name));
        partial::write_small(passing, dst, content, finish_of(item))
    };
    write().map_err(|fault| fault.here())
}

/// Makes an empty folder.
pub fn make_empty(item: &Item) -> Result<(), String> {
    let made = destination(item, true).and_then(|(folder, name)| {
        let empty = folder.descend(Path::new(name), Links::Inside, true);
        empty.map(drop)
    });
    made.map_err(|fault| fault.here())
}

/// Gives a file its mode, its time and its name.
pub fn finish(item: &Item, partial: &Partial) -> Result<(), String> {
    destination(item, true)
        .and_then(|dst| partial.finish((&dst.0, dst.1), finish_of(item)))
        .map_err(|fault| fault.here())
}

/// Removes a partial file.
pub fn discard(item: &Item) {
    if let Ok((folder, _)) = destination(item, false) {
        let _ = partial_names(&folder, item).remove();
    }
}
