//! Files on this machine. They are written under a temporary name, on the file system of the final
//! one, and renamed when complete:
//!
//!     .part-pull.lock    the lock of the running part-pull, in the directory for a host's files
//!     .part-pull.WORD/   the parts of large files that belong into the directory above it, which
//!                        are kept when a part-pull is interrupted
//!     .part-pull.WORD    a small file that is being written
//!
//! Each word is random, so that others who can write there cannot take the name before.

use crate::plan::PulledFile;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use transfer::folder::{Folder, Links, exposed};
use transfer::lock::{Lock, LockAttempt, Mark};
use transfer::own_folder::{self, is_partial_key};
use transfer::partial::{KeptPartial, PartialNames};
use transfer::parts::Parts;
use transfer::receiver::{Beginning, Destination};
use transfer::source;
use transfer::tree::{Tree, split};
use wire::files::{Exposed, FileAttributes, FileFault, Open};

const CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

const PREFIX: &str = ".part-pull.";
pub const LOCK: &str = ".part-pull.lock";
/// Marks the directories of partial files.
const MADE_HERE: &str = ".made-by-part-pull";

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
    /// Nothing is written to it.
    is_only_read: bool,
    /// Once it was opened.
    tree: OnceCell<Tree>,
}

/// The partial file's name: the same for the same version of the file. Its first half depends on
/// the file's name only.
fn partial_key(item: &PulledFile) -> String {
    let version = format!("{} {:?}", item.there.bytes, item.there.mtime);
    let version = CRC64.checksum(version.as_bytes());
    format!("{:016x}.{version:016x}", location(item))
}

fn location(item: &PulledFile) -> u64 {
    CRC64.checksum(item.dst.file_name().unwrap_or_default().as_bytes())
}

fn new_name() -> io::Result<String> {
    let word = remote::random_token().map_err(|fault| io::Error::other(fault.problem))?;
    Ok(format!("{PREFIX}{word}"))
}

/// Includes the names of earlier versions, which had partial files beside the final ones.
fn is_temporary(name: &OsStr) -> bool {
    let word = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    word.is_some_and(|word| {
        let word = word.strip_suffix(".new").unwrap_or(word);
        let word = word.strip_suffix(".good").unwrap_or(word);
        let is_random = word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_random || is_partial_key(word)
    })
}

/// The directory of partial files in a directory of files.
fn own_folder(folder: &Folder) -> Option<Folder> {
    let names = folder.names().unwrap_or_default().into_iter();
    let mut names = names.filter(|name| is_temporary(name));
    names.find_map(|name| own_folder::open(folder, &name, MADE_HERE))
}

/// Where the partial files of a directory go.
enum PartialFiles {
    /// A directory to which only this user can write.
    Own(Folder),
    /// The directory itself: its file system shows every directory as writable for others. Each
    /// partial file has a name that nobody knows, so none is continued later.
    Beside(Folder),
}

impl PartialFiles {
    /// Makes the own directory if it is missing.
    fn of(folder: &Folder) -> Result<PartialFiles, FileFault> {
        if let Some(own) = own_folder(folder) {
            return Ok(PartialFiles::Own(own));
        }
        match own_folder::make(folder, &new_name()?, MADE_HERE) {
            Ok((own, _)) => Ok(PartialFiles::Own(own)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Ok(PartialFiles::Beside(folder.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Another part-pull, from which no lock kept it, may have removed it.
    fn is_removed(&self) -> bool {
        matches!(self, PartialFiles::Own(own) if own.stat(MADE_HERE).is_err())
    }

    /// The partial file that is to be continued or begun.
    fn names(&self, item: &PulledFile) -> io::Result<PartialNames> {
        Ok(match self {
            PartialFiles::Own(own) => PartialNames::new(own.clone(), partial_key(item)),
            PartialFiles::Beside(folder) => PartialNames::new(folder.clone(), new_name()?),
        })
    }
}

impl Local {
    /// The directory may be missing yet.
    pub fn new(path: PathBuf, is_only_read: bool) -> Local {
        Local {
            path,
            is_only_read,
            tree: OnceCell::new(),
        }
    }

    /// Whose content other users can replace: a directory below this one, or one above it.
    pub fn exposed(&self, path: &Path) -> Option<Exposed> {
        match self.tree.get() {
            Some(tree) => tree.exposed(path),
            None => exposed(path, &|_| false),
        }
    }

    /// Opens the directory, and makes it if it is missing.
    pub fn make(&self) -> Result<Tree, FileFault> {
        let folder = Folder::open_or_make(&self.path)?;
        Ok(Tree::new(folder, &self.path, false))
    }

    /// The directory and the name of a file, if the directory exists.
    fn find<'p>(&self, item: &'p PulledFile) -> Result<(Folder, &'p OsStr), FileFault> {
        let (folder, name) = split(&item.dst).ok_or(FileFault::OutOfOrder)?;
        let tree = match self.tree.get() {
            Some(tree) => tree,
            None => {
                let opened = Folder::open(&self.path)?;
                self.tree.get_or_init(|| {
                    if self.is_only_read {
                        Tree::only_read(opened, &self.path)
                    } else {
                        Tree::new(opened, &self.path, false)
                    }
                })
            }
        };
        Ok((tree.find(folder, Links::Inside)?, name))
    }

    /// The directories of these files, and the names of part-pull's own in them.
    fn left<'a>(&self, items: &[&'a PulledFile]) -> Vec<(&'a Path, Folder, OsString)> {
        let mut seen = BTreeSet::new();
        let mut left = Vec::new();
        for item in items {
            let parent = item.dst.parent().unwrap_or(Path::new(""));
            if seen.insert(parent)
                && let Ok((folder, _)) = self.find(item)
            {
                let names = folder.names().unwrap_or_default().into_iter();
                let ours = names.filter(|name| is_temporary(name));
                left.extend(ours.map(|name| (parent, folder.clone(), name)));
            }
        }
        left
    }

    /// Removes partial files of other versions of the complete files, and what killed runs have
    /// left. Without the claim, they may be those of another part-pull that is at work.
    pub fn remove_left(&self, _: &LockAttempt, items: &[&PulledFile]) {
        let mut here = HashSet::new();
        for item in items {
            if self.has(item) {
                here.insert((item.dst.parent(), format!("{:016x}", location(item))));
            }
        }
        for (parent, folder, name) in self.left(items) {
            let Some(own) = own_folder::open(&folder, &name, MADE_HERE) else {
                remove_unmarked(&folder, &name);
                continue;
            };
            for part in parts_in(&own) {
                let key = part.file.to_string_lossy();
                let location = key.split('.').next().unwrap_or(&key);
                if here.contains(&(Some(parent), location.to_owned())) {
                    let _ = part.remove();
                }
            }
            own_folder::remove_empty(&folder, &name, &own, MADE_HERE);
        }
    }

    pub fn has(&self, item: &PulledFile) -> bool {
        let Ok((folder, name)) = self.find(item) else {
            return false;
        };
        let Ok(here) = folder.stat(name) else {
            return false;
        };
        if item.there.is_folder() {
            return here.is_dir();
        }
        let time = (here.mtime(), u32::try_from(here.mtime_nsec()).unwrap_or(0));
        let is_foreign = |tree: &Tree| tree.is_foreign(&folder, &here).unwrap_or(true);
        here.is_file()
            && here.len() == item.there.bytes
            && source::same_time(item.there.mtime, time)
            && !self.tree.get().is_some_and(is_foreign)
    }

    /// Whether a directory has the name of a file, which would fail only when it is whole.
    pub fn is_occupied(&self, item: &PulledFile) -> bool {
        let found = self.find(item).ok();
        let here = found.and_then(|(folder, name)| folder.stat(name).ok());
        !item.there.is_folder() && here.is_some_and(|here| here.is_dir())
    }

    /// Whether another file has its name.
    pub fn has_other(&self, item: &PulledFile) -> bool {
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
    pub fn kept(&self, item: &PulledFile) -> Option<KeptPartial> {
        let (folder, name) = self.find(item).ok()?;
        let names = own_folder(&folder).map(|own| PartialNames::new(own, partial_key(item)));
        let replaced = || folder.file(name).ok();
        KeptPartial::find(names.as_ref(), item.there.bytes, replaced)
    }
}

/// The partial files in a directory of them.
fn parts_in(own: &Folder) -> Vec<PartialNames> {
    let names = own.names().unwrap_or_default().into_iter();
    let parts = names.filter(|name| name.to_str().is_some_and(is_partial_key));
    let names = |name| PartialNames::new(own.clone(), name);
    parts.map(names).collect()
}

/// A killed run has left it: a small file, or an empty directory that was to get its mark.
fn remove_unmarked(folder: &Folder, name: &OsStr) {
    let me = nix::unistd::geteuid().as_raw();
    match folder.stat(name) {
        Ok(meta) if meta.is_dir() => drop(folder.remove_folder(name)),
        Ok(meta) if meta.is_file() && meta.uid() == me => drop(folder.remove(name)),
        _ => {}
    }
}

#[derive(Default)]
pub struct PullDestination<'a> {
    /// Requested files that have not ended, by number.
    pub expected: BTreeMap<u32, Expected<'a>>,
    /// The directory of the last file, and where its partial files go, so that its names need not
    /// be read for each file.
    last: Option<(PathBuf, PartialFiles)>,
}

pub struct Expected<'a> {
    pub file: &'a PulledFile,
    /// The parts that are here.
    kept: Option<KeptPartial>,
    /// How many bytes of these are the same on the host.
    pub kept_bytes: u64,
    /// How many bytes may still arrive that are no holes.
    pub content_left: u64,
    pub has_result: bool,
}

impl<'a> Expected<'a> {
    pub fn new(file: &'a PulledFile, kept: Option<KeptPartial>) -> Expected<'a> {
        // blocks that begin behind other parts are not those that the host has counted
        let counted = file.there.sent.filter(|_| kept.is_none());
        Expected {
            file,
            kept,
            kept_bytes: 0,
            content_left: counted.unwrap_or(file.bytes()),
            has_result: false,
        }
    }
}

impl Destination for PullDestination<'_> {
    /// The name, the mode and the time are this machine's choice.
    fn attributes(&self, sent: FileAttributes) -> Result<FileAttributes, FileFault> {
        let expected = self.expected.get(&sent.id);
        let expected = expected.ok_or(FileFault::OutOfOrder)?;
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
        if !self.expected.contains_key(&file.id) {
            return Err(FileFault::OutOfOrder);
        }
        Ok((None, new_name()?.into()))
    }

    fn partial(&mut self, tree: &mut Tree, open: &Open) -> Result<Beginning, FileFault> {
        let expected = self.expected.get_mut(&open.file.id);
        let expected = expected.ok_or(FileFault::OutOfOrder)?;
        let (folder, _) = tree.make_parent(&expected.file.dst)?;
        let parent = expected.file.dst.parent().unwrap_or(Path::new(""));
        let last = self.last.take();
        let last = last.filter(|(of, partials)| of == parent && !partials.is_removed());
        let (_, partials) = match last {
            Some(last) => self.last.insert(last),
            None => {
                let partials = PartialFiles::of(&folder)?;
                self.last.insert((parent.to_owned(), partials))
            }
        };
        let mut beginning = Beginning {
            names: partials.names(expected.file)?,
            keep: Parts::default(),
            replaced: None,
        };
        if let Some(kept) = expected.kept.take() {
            beginning.keep = kept.parts.both(&Parts::of(&open.keep));
            expected.kept_bytes = beginning.keep.bytes();
            let is_copied = kept.is_from_replaced_file && expected.kept_bytes > 0;
            if is_copied {
                let sum = open.keep_sum.as_deref().ok_or(FileFault::OutOfOrder)?;
                beginning.replaced = Some((kept.file, *sum));
            }
        }
        Ok(beginning)
    }
}
