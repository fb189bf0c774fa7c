//! Files on this machine. They are written under a temporary name beside the final one, and renamed
//! when they are complete.

use crate::plan::PulledFile;
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use transfer::folder::{Folder, Links};
use transfer::lock::{Lock, LockAttempt};
use transfer::partial::{Finish, KeptPartial, Partial, PartialNames};
use transfer::receiver::{Receiver, split};
use transfer::source;
use wire::files::FileFault;

const CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

const LOCK: &str = ".part-pull.lock";

/// Claims a directory, which is made: two part-pulls that write the same file under the same
/// temporary name would rename it unfinished.
pub fn claim(folder: &Path, run: &str) -> Result<LockAttempt, FileFault> {
    let folder = Folder::open_or_make(folder)?;
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

/// The directory on this machine to which the files of a host go.
pub struct Local {
    path: PathBuf,
    /// The directory, once it was opened.
    receiver: Option<Receiver>,
}

/// The name of the partial file in its directory: the same for the same version of the file.
fn partial_name(item: &PulledFile) -> OsString {
    let version = format!("{} {:?}", item.there.bytes, item.there.mtime);
    let version = CRC64.checksum(version.as_bytes());
    format!("{}{version:016x}", beginning(item)).into()
}

/// The partial file; a file of another user in its place is removed first.
fn own_partial(folder: &Folder, item: &PulledFile) -> PartialNames {
    let names = PartialNames::new(folder.clone(), partial_name(item));
    let me = nix::unistd::geteuid().as_raw();
    let is_own = |meta: fs::Metadata| meta.is_file() && meta.uid() == me && meta.nlink() == 1;
    if !folder.stat(&names.file).is_ok_and(is_own) {
        let _ = names.remove();
    }
    names
}

/// How the names of the partial files of all versions of a file begin.
fn beginning(item: &PulledFile) -> String {
    let name = item.dst.file_name().unwrap_or_default();
    format!(".part-pull.{:016x}.", CRC64.checksum(name.as_bytes()))
}

impl Local {
    /// A directory that may be missing yet.
    pub fn new(path: PathBuf) -> Local {
        let receiver = None;
        Local { path, receiver }
    }

    /// The directory, which is made with `make`.
    fn receiver(&mut self, make: bool) -> Result<&mut Receiver, FileFault> {
        if self.receiver.is_none() {
            let folder = match make {
                true => Folder::open_or_make(&self.path)?,
                false => Folder::open(&self.path)?,
            };
            self.receiver = Some(Receiver::new(folder, &self.path, false));
        }
        self.receiver.as_mut().ok_or(FileFault::OutOfOrder)
    }

    /// The directory and the name of a file, if the directory is there.
    fn find<'p>(&mut self, item: &'p PulledFile) -> Result<(Folder, &'p OsStr), FileFault> {
        let (folder, name) = split(&item.dst).ok_or(FileFault::OutOfOrder)?;
        let folder = self.receiver(false)?.find(folder, Links::Inside)?;
        Ok((folder, name))
    }

    /// The directories of these files, and the partial files of earlier runs there.
    fn left<'a>(&mut self, items: &[&'a PulledFile]) -> Vec<(&'a Path, Folder, OsString)> {
        let mut seen = BTreeSet::new();
        let mut left = Vec::new();
        for item in items {
            let parent = item.dst.parent().unwrap_or(Path::new(""));
            if seen.insert(parent)
                && let Ok((folder, _)) = self.find(item)
            {
                let names = folder.names().unwrap_or_default().into_iter();
                let ours = names.filter(|name| name.as_bytes().starts_with(b".part-pull."));
                left.extend(ours.map(|name| (parent, folder.clone(), name)));
            }
        }
        left
    }

    /// Gives back the space that runs which were killed had reserved for the rest of files. No
    /// other part-pull may be at work there.
    pub fn release_left(&mut self, items: &[&PulledFile]) {
        for (_, folder, name) in self.left(items) {
            // a partial file that cannot be released remains
            let _ = PartialNames::new(folder, name).release();
        }
    }

    /// Removes partial files of other versions of the complete files. No other part-pull may be at
    /// work there.
    pub fn remove_left(&mut self, items: &[&PulledFile]) {
        let mut here = HashSet::new();
        for item in items {
            if self.has(item) {
                here.insert((item.dst.parent(), beginning(item)));
            }
        }
        for (parent, folder, name) in self.left(items) {
            let text = name.to_string_lossy();
            let version = text.trim_end_matches(".good").rfind('.').unwrap_or(0);
            if here.contains(&(Some(parent), text[..=version].to_owned())) {
                let _ = folder.remove(&name);
            }
        }
    }

    /// Whether the host's file is already here.
    pub fn has(&mut self, item: &PulledFile) -> bool {
        let found = self.find(item).ok();
        let Some(here) = found.and_then(|(folder, name)| folder.stat(name).ok()) else {
            return false;
        };
        if item.there.is_folder() {
            return here.is_dir();
        }
        let time = (here.mtime(), u32::try_from(here.mtime_nsec()).unwrap_or(0));
        here.is_file()
            && here.len() == item.there.bytes
            && source::same_time(item.there.mtime, time)
    }

    /// The kept parts of a file: of the partial file, or else of the one with the final name.
    pub fn kept(&mut self, item: &PulledFile) -> Option<KeptPartial> {
        let (folder, name) = self.find(item).ok()?;
        let names = own_partial(&folder, item);
        KeptPartial::find(Some(&names), item.there.bytes, || folder.file(name).ok())
    }

    /// Begins a partial file, or resumes it with the parts that are kept.
    pub fn begin(
        &mut self,
        item: &PulledFile,
        kept: Option<&KeptPartial>,
    ) -> Result<Partial, String> {
        let mut begin = || {
            let receiver = self.receiver(true)?;
            receiver.forget();
            let (folder, _) = receiver.make_parent(&item.dst)?;
            let keep = kept.map(|kept| kept.parts.clone()).unwrap_or_default();
            let replaced = kept.filter(|kept| kept.is_from_replaced_file);
            let replaced = replaced.map(|kept| (&kept.file, kept.version));
            let there = &item.there;
            let names = own_partial(&folder, item);
            Partial::begin(names, there.bytes, keep, replaced, there.sparse)
        };
        begin().map_err(|fault| fault.here())
    }

    /// Writes a small file completely.
    pub fn write_small(&mut self, item: &PulledFile, content: &[u8]) -> Result<(), String> {
        let passing = partial_name(item);
        let receiver = self.receiver(true);
        let written = receiver.and_then(|receiver| {
            receiver.write_small(&item.dst, (None, &passing), content, finish_of(item))
        });
        written.map(drop).map_err(|fault| fault.here())
    }

    /// Makes an empty directory.
    pub fn make_empty(&mut self, item: &PulledFile) -> Result<(), String> {
        let made = self
            .receiver(true)
            .and_then(|receiver| receiver.make(&item.dst));
        made.map(drop).map_err(|fault| fault.here())
    }

    /// Gives a file its mode, its time and its name.
    pub fn commit(&mut self, item: &PulledFile, partial: &Partial) -> Result<(), String> {
        let receiver = self.receiver(true);
        let finish = finish_of(item);
        receiver
            .and_then(|receiver| receiver.commit(partial, &item.dst, finish))
            .map_err(|fault| fault.here())
    }

    /// Whoever can write there may have moved directories since the last message.
    pub fn forget(&mut self) {
        self.receiver.iter_mut().for_each(Receiver::forget);
    }
}

fn finish_of(item: &PulledFile) -> Finish {
    Finish {
        mode: item.there.mode & 0o777 & !umask(),
        mtime: Some(item.there.mtime),
        fsync: false,
    }
}
