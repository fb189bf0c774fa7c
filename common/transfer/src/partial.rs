//! A file that comes in parts: under a name of its own, readable by nobody else, until it is whole.
//!
//! While its parts come in order, its length says what is there. Where they come in any order, a
//! second file beside it does: a line for each part, see [`Parts::line`], to which every connection
//! adds its own.

use crate::GRAIN;
use crate::parts::Parts;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::stat::futimens;
use nix::sys::statvfs::fstatvfs;
use nix::sys::time::TimeSpec;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use wire::files::Fault;

/// So much room is taken ahead of what is written, so that a disk that becomes full is known before
/// the link has carried it in vain.
const AHEAD: u64 = 16 << 20;
/// What has come in any order is written down so often: as much comes again after the power went.
const NOTED: u64 = 4 << 20;

/// What a file becomes when it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Permission bits.
    pub mode: u32,
    /// When it was changed, seconds and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    /// It is put on the disk first.
    pub fsync: bool,
}

/// A file on its way.
#[derive(Debug)]
pub struct Partial {
    file: File,
    path: PathBuf,
    notes: PathBuf,
    /// The size that it will have.
    bytes: u64,
    parts: Parts,
    /// Open while parts come in any order.
    noted: Option<Notes>,
    /// Room is taken up to here; `None` where the file system cannot.
    reserved: Option<u64>,
}

/// The lines beside it.
#[derive(Debug)]
struct Notes {
    lines: File,
    /// What is not written down yet.
    part: (u64, u64),
}

/// Where the lines of a file are that lies beside others.
pub fn notes_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".good");
    name.into()
}

/// What is there of a file of so many bytes, as far as its length and its lines tell.
pub fn kept(path: &Path, notes: &Path, bytes: u64) -> Parts {
    let Ok(length) =
        fs::symlink_metadata(path).map(|meta| if meta.is_file() { meta.len() } else { 0 })
    else {
        return Parts::default();
    };
    let parts = match fs::read_to_string(notes) {
        Ok(text) => Parts::parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Parts::beginning(length),
        Err(_) => Parts::default(),
    };
    let end = |&(begin, end): &(u64, u64)| (begin, end.min(length));
    let there = Parts::of(&parts.list().iter().map(end).collect::<Vec<_>>());
    if length > bytes {
        Parts::default()
    } else {
        there.whole_grains(bytes)
    }
}

impl Partial {
    /// Begins a file, or goes on with what is kept of it. Fails at once where there is no room for
    /// the rest.
    pub fn begin(path: PathBuf, notes: PathBuf, bytes: u64, keep: Parts) -> io::Result<Partial> {
        let file = open(&path)?;
        file.set_len(keep.list().last().map_or(0, |(_, end)| *end))?;
        remove(&notes)?;
        let room = fstatvfs(&file)?;
        let free = room.blocks_available() * room.fragment_size();
        if bytes.saturating_sub(keep.bytes()) > free {
            return Err(Errno::ENOSPC.into());
        }
        let mut partial = Partial {
            file,
            path,
            notes,
            bytes,
            parts: keep,
            noted: None,
            reserved: Some(0),
        };
        if !partial.parts.is_beginning() {
            partial.scatter()?;
        }
        Ok(partial)
    }

    /// One more writer of a file that another one has begun: its parts come in any order.
    pub fn join(path: PathBuf, notes: PathBuf, bytes: u64) -> io::Result<Partial> {
        let file = OpenOptions::new().write(true).open(&path)?;
        let mut partial = Partial {
            file,
            path,
            notes,
            bytes,
            parts: Parts::default(),
            noted: None,
            reserved: Some(0),
        };
        partial.noted = Some(partial.open_notes()?);
        Ok(partial)
    }

    /// From here on parts come in any order, also from others.
    pub fn scatter(&mut self) -> io::Result<()> {
        if self.noted.is_none() {
            let mut noted = self.open_notes()?;
            let text: String = self
                .parts
                .list()
                .iter()
                .map(|(begin, end)| Parts::line(*begin, *end))
                .collect();
            noted.lines.write_all(text.as_bytes())?;
            self.noted = Some(noted);
        }
        Ok(())
    }

    fn open_notes(&self) -> io::Result<Notes> {
        let lines = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.notes)?;
        Ok(Notes {
            lines,
            part: (0, 0),
        })
    }

    /// What has come.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Where a part ends, if it has its place there.
    fn end_of(&self, at: u64, length: u64) -> Result<u64, Fault> {
        let end = at
            .checked_add(length)
            .filter(|end| *end <= self.bytes)
            .ok_or(Fault::OutOfOrder)?;
        if self.noted.is_none() && at != self.parts.first() {
            return Err(Fault::OutOfOrder);
        }
        Ok(end)
    }

    /// Makes a part all zeros; where the file system can, it takes no room.
    pub fn write_zeros(&mut self, at: u64, length: u64) -> Result<(), Fault> {
        let end = self.end_of(at, length)?;
        if at == end {
            return Ok(());
        }
        let written = self.make_hole(at, end).and_then(|()| self.note(at, end));
        written.map_err(|error| Fault::system(&error))?;
        self.parts.add(at, end);
        Ok(())
    }

    fn make_hole(&self, at: u64, end: u64) -> io::Result<()> {
        // the length says what has come; setting it could take away what another one writes
        self.file.write_all_at(&[0], end - 1)?;
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        if fallocate(&self.file, flags, number(at), number(end - at)).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; usize::try_from(GRAIN.min(end - at)).unwrap_or(0)];
        let mut next = at;
        while next < end {
            let count = zeros
                .len()
                .min(usize::try_from(end - next).unwrap_or(usize::MAX));
            self.file.write_all_at(&zeros[..count], next)?;
            next += count as u64;
        }
        Ok(())
    }

    /// Writes a part.
    pub fn write(&mut self, at: u64, content: &[u8]) -> Result<(), Fault> {
        let end = self.end_of(at, content.len() as u64)?;
        let written = self
            .reserve(at, end)
            .and_then(|()| self.file.write_all_at(content, at));
        written
            .and_then(|()| self.note(at, end))
            .map_err(|error| Fault::system(&error))?;
        self.parts.add(at, end);
        Ok(())
    }

    fn reserve(&mut self, at: u64, end: u64) -> io::Result<()> {
        let Some(reserved) = self.reserved else {
            return Ok(());
        };
        if at <= reserved && end <= reserved && reserved - at <= AHEAD {
            return Ok(());
        }
        let until = (at + AHEAD).max(end).min(self.bytes);
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        match fallocate(
            &self.file,
            FallocateFlags::FALLOC_FL_KEEP_SIZE,
            number(at),
            number((until - at).max(1)),
        ) {
            Err(error @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EIO)) => Err(error.into()),
            Err(Errno::EINTR) => Ok(()),
            // the file system has no such thing, or the write will say what is wrong
            Err(_) => {
                self.reserved = None;
                Ok(())
            }
            Ok(()) => {
                self.reserved = Some(until);
                Ok(())
            }
        }
    }

    /// Writes down now and then what has come in any order.
    fn note(&mut self, at: u64, end: u64) -> io::Result<()> {
        let Some(noted) = &mut self.noted else {
            return Ok(());
        };
        if noted.part.1 != at {
            noted.flush()?;
            noted.part = (at, at);
        }
        noted.part.1 = end;
        if noted.part.1 - noted.part.0 >= NOTED {
            noted.flush()
        } else {
            Ok(())
        }
    }

    /// All that came is written down.
    pub fn flush(&mut self) -> io::Result<()> {
        self.noted.as_mut().map_or(Ok(()), Notes::flush)
    }

    /// Gives it its mode, its time and its name. It must be whole.
    pub fn finish(&mut self, dst: &Path, finish: Finish) -> Result<(), Fault> {
        if self.noted.is_some() {
            self.flush().map_err(|error| Fault::system(&error))?;
            // with what others wrote
            let text = fs::read_to_string(&self.notes).map_err(|error| Fault::system(&error))?;
            self.parts = Parts::parse(&text);
        }
        let length = self
            .file
            .metadata()
            .map_err(|error| Fault::system(&error))?
            .len();
        if !self.parts.is_whole(self.bytes) || length != self.bytes {
            return Err(Fault::NotWhole);
        }
        let finished = stamp(&self.file, finish)
            .and_then(|()| fs::rename(&self.path, dst))
            .and_then(|()| remove(&self.notes));
        finished.map_err(|error| Fault::system(&error))
    }

    /// Removes what has come.
    pub fn discard(self) {
        let _ = remove(&self.path).and_then(|()| remove(&self.notes));
    }
}

impl Notes {
    fn flush(&mut self) -> io::Result<()> {
        let (begin, end) = std::mem::take(&mut self.part);
        // whoever reads it counts on the end of the line, so it is written at once
        if begin < end {
            self.lines.write_all(Parts::line(begin, end).as_bytes())
        } else {
            Ok(())
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

/// Writes a whole small file under a passing name, and gives it its own. Nothing stays of one that
/// fails.
pub fn write_small(
    passing: &Path,
    dst: &Path,
    content: &[u8],
    finish: Finish,
) -> Result<(), Fault> {
    let write = || {
        remove(passing)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(passing)?;
        file.write_all(content)?;
        stamp(&file, finish)?;
        fs::rename(passing, dst)
    };
    write().map_err(|error| {
        let _ = remove(passing);
        Fault::system(&error)
    })
}

fn stamp(file: &File, finish: Finish) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(finish.mode & 0o7777))?;
    if let Some((seconds, nanos)) = finish.mtime {
        let time = TimeSpec::new(seconds, i64::from(nanos.min(999_999_999)));
        futimens(file, &time, &time)?;
    }
    if finish.fsync {
        file.sync_all()
    } else {
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NOFOLLOW.bits();
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
    // one that an older version left may be open to others
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Removes a file that need not be there.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
