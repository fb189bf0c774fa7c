//! Files on this machine. They are written under a temporary name beside the final one, and renamed
//! when complete.

use crate::plan::PulledFile;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use transfer::folder::{Folder, Links};
use transfer::lock::{Lock, LockAttempt, Mark};
use transfer::partial::{KeptPartial, PartialNames};
use transfer::parts::Parts;
use transfer::receiver::{Beginning, Destination};
use transfer::source;
use transfer::tree::{Tree, split};
use wire::files::{FileAttributes, FileFault, Open};

const CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

pub const LOCK: &str = ".part-pull.lock";

/// Claims a directory, and makes it if it is missing: two part-pulls that write the same file under
/// the same temporary name would rename it unfinished.
pub fn claim(folder: &Path, run: &str) -> Result<LockAttempt, String> {
    let folder = Folder::open_or_make(folder).map_err(|fault| fault.here())?;
    Lock::take(&folder, LOCK, run).map_err(|error| error.to_string())
}

/// Marks a directory in which files of earlier runs may be, so that no host lists them; a missing
/// directory, and one to which nothing can be written, has no mark.
pub fn mark(folder: &Path, name: &str, run: &str) -> Option<Mark> {
    Mark::put(&Folder::open(folder).ok()?, name, run).ok()
}

/// The umask of this process. It is read once, before there are threads, because reading means
/// setting it.
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let mask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        nix::sys::stat::umask(mask);
        mask.bits()
    })
}

/// The directory on this machine for the files of a host.
pub struct Local {
    pub path: PathBuf,
    /// Once it was opened.
    tree: Option<Tree>,
}

/// The partial file's name: the same for the same version of the file.
fn partial_name(item: &PulledFile) -> OsString {
    let version = format!("{} {:?}", item.there.bytes, item.there.mtime);
    let version = CRC64.checksum(version.as_bytes());
    format!("{}{version:016x}", beginning(item)).into()
}

/// Removes another user's file in the place of the partial file first.
fn own_partial(folder: &Folder, item: &PulledFile) -> PartialNames {
    let names = PartialNames::new(folder.clone(), partial_name(item));
    let me = nix::unistd::geteuid().as_raw();
    let is_own = |meta: fs::Metadata| meta.is_file() && meta.uid() == me && meta.nlink() == 1;
    if !folder.stat(&names.file).is_ok_and(is_own) {
        let _ = names.remove();
    }
    names
}

/// How the names of partial files of all versions begin.
fn beginning(item: &PulledFile) -> String {
    let name = item.dst.file_name().unwrap_or_default();
    format!(".part-pull.{:016x}.", CRC64.checksum(name.as_bytes()))
}

impl Local {
    /// The directory may be missing yet.
    pub fn new(path: PathBuf) -> Local {
        Local { path, tree: None }
    }

    /// Opens the directory, and makes it if it is missing.
    pub fn make(&self) -> Result<Tree, FileFault> {
        let folder = Folder::open_or_make(&self.path)?;
        Ok(Tree::new(folder, &self.path, false))
    }

    /// The directory and the name of a file, if the directory exists.
    fn find<'p>(&mut self, item: &'p PulledFile) -> Result<(Folder, &'p OsStr), FileFault> {
        let (folder, name) = split(&item.dst).ok_or(FileFault::OutOfOrder)?;
        let tree = match &mut self.tree {
            Some(tree) => tree,
            None => {
                let opened = Folder::open(&self.path)?;
                self.tree.insert(Tree::new(opened, &self.path, false))
            }
        };
        Ok((tree.find(folder, Links::Inside)?, name))
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

    /// Gives back the space that killed runs had reserved for the rest of files. No other part-pull
    /// may be at work there.
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

    /// Whether a directory has the name of a file, which would fail only when it is whole.
    pub fn is_occupied(&mut self, item: &PulledFile) -> bool {
        let found = self.find(item).ok();
        let here = found.and_then(|(folder, name)| folder.stat(name).ok());
        !item.there.is_folder() && here.is_some_and(|here| here.is_dir())
    }

    /// Whether another file has its name.
    pub fn has_other(&mut self, item: &PulledFile) -> bool {
        let found = self.find(item).ok();
        let here = found.and_then(|(folder, name)| folder.stat(name).ok());
        here.is_some_and(|here| here.is_file()) && !self.has(item)
    }

    /// Whether the lock that was taken there has another name, too, which differs in case.
    pub fn folds_case(&self) -> bool {
        let folder = Folder::open(&self.path);
        folder.is_ok_and(|folder| folder.stat(LOCK.to_uppercase()).is_ok())
    }

    /// The kept parts of a file: of the partial file, or else of the one with the final name.
    pub fn kept(&mut self, item: &PulledFile) -> Option<KeptPartial> {
        let (folder, name) = self.find(item).ok()?;
        let names = own_partial(&folder, item);
        KeptPartial::find(Some(&names), item.there.bytes, || folder.file(name).ok())
    }

    pub fn make_empty(&self, item: &PulledFile) -> Result<(), FileFault> {
        let made = self.make().and_then(|mut tree| tree.make(&item.dst));
        made.map(drop)
    }
}

/// Requested files that have not ended, by number.
#[derive(Default)]
pub struct PullDestination<'a>(pub BTreeMap<u32, Expected<'a>>);

pub struct Expected<'a> {
    pub file: &'a PulledFile,
    /// The parts that are here.
    kept: Option<KeptPartial>,
    /// How many bytes of these are the same on the host.
    pub kept_bytes: u64,
    pub has_result: bool,
}

impl<'a> Expected<'a> {
    pub fn new(file: &'a PulledFile, kept: Option<KeptPartial>) -> Expected<'a> {
        Expected {
            file,
            kept,
            kept_bytes: 0,
            has_result: false,
        }
    }
}

impl Destination for PullDestination<'_> {
    /// The name, the mode and the time are this machine's choice.
    fn attributes(&self, sent: FileAttributes) -> Result<FileAttributes, FileFault> {
        let expected = self.0.get(&sent.id).ok_or(FileFault::OutOfOrder)?;
        let PulledFile { dst, there, .. } = expected.file;
        if sent.bytes != there.bytes {
            return Err(FileFault::Changed);
        }
        Ok(FileAttributes {
            dst: dst.as_path().into(),
            mode: there.mode & 0o777 & !umask(),
            mtime: Some(there.mtime),
            ..sent
        })
    }

    fn passing(&self, file: &FileAttributes) -> Result<(Option<Folder>, OsString), FileFault> {
        let expected = self.0.get(&file.id).ok_or(FileFault::OutOfOrder)?;
        Ok((None, partial_name(expected.file)))
    }

    fn partial(&mut self, tree: &mut Tree, open: &Open) -> Result<Beginning, FileFault> {
        let expected = self.0.get_mut(&open.file.id);
        let expected = expected.ok_or(FileFault::OutOfOrder)?;
        let (folder, _) = tree.make_parent(&expected.file.dst)?;
        let mut beginning = Beginning {
            names: own_partial(&folder, expected.file),
            keep: Parts::default(),
            replaced: None,
        };
        if let Some(kept) = expected.kept.take() {
            beginning.keep = kept.parts.both(&Parts::of(&open.keep));
            expected.kept_bytes = beginning.keep.bytes();
            let is_copied = kept.is_from_replaced_file && expected.kept_bytes > 0;
            beginning.replaced = is_copied.then_some((kept.file, kept.version));
        }
        Ok(beginning)
    }
}
