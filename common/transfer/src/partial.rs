//! A partial file, under a name of its own and unreadable for others until it is whole.
//!
//! While its parts arrive in order, its length shows what is present. If they arrive in any order,
//! a second file has a line for each part (see [`Parts::line`]). Several threads may write one
//! [`Partial`].

use crate::GRAIN;
use crate::content;
use crate::folder::Folder;
use crate::parts::Parts;
use crate::simulated::{Call, before, flush, sync};
use crate::source;
use crate::sums::{self, Watch};
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt, PermissionsExt};
use wire::files::{FileFault, Sum};

/// Parts that arrive in any order are noted after this many bytes, which is also the most that is
/// sent again after a loss of power.
const NOTED: u64 = 4 << 20;

/// How much of a replaced file is copied by one system call, where the kernel can do that.
const COPIED_AT_ONCE: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    pub mode: u32,
    /// In seconds and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    /// Whether the file is written to the disk (fsync) first.
    pub fsync: bool,
}

#[derive(Debug)]
pub struct Partial {
    file: File,
    names: PartialNames,
    /// The size of the whole file.
    bytes: u64,
    state: Mutex<PartialState>,
}

#[derive(Debug)]
struct PartialState {
    parts: Parts,
    /// Open while parts come in any order.
    noted: Option<Notes>,
}

/// The file of notes.
#[derive(Debug)]
struct Notes {
    lines: File,
    /// The part that is not noted yet.
    part: (u64, u64),
}

#[derive(Clone, Debug)]
pub struct PartialNames {
    pub folder: Folder,
    pub file: OsString,
    /// Missing while parts come in order.
    pub notes: OsString,
}

impl PartialNames {
    pub fn new(folder: Folder, file: impl Into<OsString>) -> PartialNames {
        let file = file.into();
        let mut notes = file.clone();
        notes.push(".good");
        PartialNames {
            folder,
            file,
            notes,
        }
    }

    /// The parts that are present, by the length of the file and its notes.
    pub fn kept(&self, bytes: u64) -> Parts {
        let Ok(length) = self
            .folder
            .file(&self.file)
            .and_then(|file| Ok(file.metadata()?.len()))
        else {
            return Parts::default();
        };
        let notes = self.folder.file(&self.notes).and_then(io::read_to_string);
        let parts = match notes {
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

    /// The notes move first: without them all bytes of the file would count.
    pub fn rename(&self, new: &PartialNames) -> io::Result<()> {
        new.folder.remove(&new.notes)?;
        let _ = self.folder.rename(&self.notes, &new.folder, &new.notes);
        self.folder.rename(&self.file, &new.folder, &new.file)
    }

    pub fn remove(&self) -> io::Result<()> {
        self.folder.remove(&self.file)?;
        self.folder.remove(&self.notes)
    }
}

/// The parts that are present and may equal those of the other end.
pub struct KeptPartial {
    pub parts: Parts,
    pub file: File,
    pub is_from_replaced_file: bool,
}

impl KeptPartial {
    /// The parts of a partial file or, if it has none, of the file that is to be replaced.
    pub fn find(
        partial: Option<&PartialNames>,
        bytes: u64,
        replaced: impl FnOnce() -> Option<File>,
    ) -> Option<KeptPartial> {
        let parts = partial.map(|names| names.kept(bytes)).unwrap_or_default();
        let is_from_replaced_file = parts.list().is_empty();
        let file = match partial.filter(|_| !is_from_replaced_file) {
            Some(names) => names.folder.file(&names.file).ok()?,
            None => replaced()?,
        };
        let parts = if is_from_replaced_file {
            Parts::beginning(file.metadata().ok()?.len().min(bytes)).whole_grains(bytes)
        } else {
            parts
        };
        let kept = KeptPartial {
            parts,
            file,
            is_from_replaced_file,
        };
        Some(kept).filter(|kept| !kept.parts.list().is_empty())
    }
}

impl Partial {
    /// Begins a file, or resumes one with the parts that are kept; `keep` is copied from the
    /// `replaced` file, and must have this sum.
    pub fn begin(
        names: PartialNames,
        bytes: u64,
        keep: Parts,
        replaced: Option<(&File, Sum)>,
        watch: Watch<'_>,
    ) -> Result<Partial, FileFault> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT;
        let file = names.folder.open_file(&names.file, flags)?;
        // a file that an older version left may be open to others
        before(Call::Change)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let end = keep.list().last().map_or(0, |(_, end)| *end);
        before(Call::Change)?;
        file.set_len(if replaced.is_some() { 0 } else { end })?;
        names.folder.remove(&names.notes)?;
        if let Some((replaced, sum)) = replaced {
            let mut parts = keep.list().iter();
            let copied = parts.try_for_each(|range| copy(watch, replaced, &file, *range));
            // the copy is checked, because the file may have changed since it was compared: a write
            // through a memory map changes its times later, or never
            let sums = copied.and_then(|()| {
                before(Call::Change)?;
                file.set_len(end)?;
                sums::of(watch, &file, &keep, bytes)
            });
            let is_same = match sums {
                Ok(sums) => sums::total(&sums) == sum,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
                Err(error) => return Err(error.into()),
            };
            if !is_same {
                names.remove()?;
                return Err(FileFault::EarlierChanged);
            }
        }
        let mut state = PartialState {
            parts: keep,
            noted: None,
        };
        if !state.parts.is_beginning() {
            // parts may arrive in any order from here on
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND;
            let mut lines = names.folder.open_file(&names.notes, flags)?;
            let there = state.parts.list().iter();
            let text: String = there
                .map(|(begin, end)| Parts::line(*begin, *end))
                .collect();
            before(Call::Write)?;
            lines.write_all(text.as_bytes())?;
            let part = (0, 0);
            state.noted = Some(Notes { lines, part });
        }
        Ok(Partial {
            file,
            names,
            bytes,
            state: Mutex::new(state),
        })
    }

    pub fn parts(&self) -> Parts {
        self.state.lock().parts.clone()
    }

    /// Parts can be read from it, whatever name it has by now.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fails if the part does not lie within the file, or is out of order.
    fn end_of(&self, offset: u64, length: u64) -> Result<u64, FileFault> {
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= self.bytes)
            .ok_or(FileFault::OutOfOrder)?;
        let state = self.state.lock();
        if state.noted.is_none() && offset != state.parts.first() {
            return Err(FileFault::OutOfOrder);
        }
        Ok(end)
    }

    /// Without content, writes zeros.
    pub fn put(&self, offset: u64, length: u64, content: Option<&[u8]>) -> Result<(), FileFault> {
        let end = self.end_of(offset, length)?;
        // zeros may be sent as content
        match content.filter(|content| !content::is_hole(content)) {
            Some(content) => {
                before(Call::Write)?;
                self.file.write_all_at(content, offset)?;
            }
            None if offset == end => {}
            None => self.make_hole(offset, end)?,
        }
        Ok(self.note(offset, end)?)
    }

    /// Takes no space if the file system supports holes.
    fn make_hole(&self, offset: u64, end: u64) -> io::Result<()> {
        // the length shows what has arrived, and setting it could remove what another thread wrote
        before(Call::Write)?;
        self.file.write_all_at(&[0], end - 1)?;
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        before(Call::Change)?;
        if fallocate(&self.file, flags, number(offset), number(end - offset)).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; usize::try_from(GRAIN.min(end - offset)).unwrap_or(0)];
        let mut next = offset;
        while next < end {
            let count = zeros
                .len()
                .min(usize::try_from(end - next).unwrap_or(usize::MAX));
            self.file.write_all_at(&zeros[..count], next)?;
            next += count as u64;
        }
        Ok(())
    }

    /// If parts arrive in any order, writes the notes now and then.
    fn note(&self, offset: u64, end: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.parts.add(offset, end);
        let Some(noted) = &mut state.noted else {
            return Ok(());
        };
        if noted.part.1 != offset {
            noted.flush()?;
            noted.part = (offset, offset);
        }
        noted.part.1 = end;
        if noted.part.1 - noted.part.0 >= NOTED {
            noted.flush()
        } else {
            Ok(())
        }
    }

    /// Gives the file its mode, time and name. All parts must be present.
    pub fn finish(
        &self,
        (folder, dst): (&Folder, &OsStr),
        finish: Finish,
    ) -> Result<(), FileFault> {
        if !self.parts().is_whole(self.bytes) || self.file.metadata()?.len() != self.bytes {
            return Err(FileFault::NotWhole);
        }
        // what could not be stored may still be read from the cache (fsync(2)), so that a
        // comparison would find it whole
        complete(&self.file, finish, || self.discard())?;
        self.names.folder.rename(&self.names.file, folder, dst)?;
        Ok(self.names.folder.remove(&self.names.notes)?)
    }

    /// Keeps what has arrived.
    pub fn keep(&self) {
        if self.parts().list().is_empty() {
            self.discard();
        }
    }

    pub fn discard(&self) {
        let _ = self.names.remove();
    }
}

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Holes stay holes where this file is empty, and file systems that share blocks take no space.
fn copy(watch: Watch<'_>, from: &File, to: &File, (begin, end): (u64, u64)) -> io::Result<()> {
    let mut offset = begin;
    while offset < end {
        if let Some(data) = source::hole_until(from, offset) {
            offset = data;
            continue;
        }
        let most = end.min(offset + COPIED_AT_ONCE);
        let hole = source::data_until(from, offset).map_or(most, |hole| hole.min(most));
        copy_data(from, to, offset, hole)?;
        sums::check(watch, hole - offset)?;
        offset = hole;
    }
    Ok(())
}

fn copy_data(mut from: &File, mut to: &File, begin: u64, end: u64) -> io::Result<()> {
    before(Call::Write)?;
    from.seek(SeekFrom::Start(begin))?;
    to.seek(SeekFrom::Start(begin))?;
    // io::copy uses copy_file_range(2) where the kernel and the file system can do that
    if io::copy(&mut from.take(end - begin), &mut to)? == end - begin {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

impl Notes {
    fn flush(&mut self) -> io::Result<()> {
        let (begin, end) = std::mem::take(&mut self.part);
        // in one write, because readers rely on the line end
        if begin < end {
            before(Call::Write)?;
            self.lines.write_all(Parts::line(begin, end).as_bytes())
        } else {
            Ok(())
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(noted) = &mut self.state.get_mut().noted {
            let _ = noted.flush();
        }
    }
}

/// A failure leaves nothing behind.
pub(crate) fn write_small(
    (passing, name): (&Folder, &OsStr),
    (folder, dst): (&Folder, &OsStr),
    content: &[u8],
    finish: Finish,
) -> Result<(), FileFault> {
    let write = || {
        let file = match passing.create(name, content) {
            // left by a push that a loss of power has ended
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                passing.remove(name)?;
                passing.create(name, content)?
            }
            created => created?,
        };
        complete(&file, finish, || ())?;
        passing.rename(name, folder, dst)
    };
    write().map_err(|error: io::Error| {
        let _ = passing.remove(name);
        error.into()
    })
}

/// Stores the content first, because writing it back later could change the time that is set here.
/// Nothing is left to flush then: mode and time are not cached.
///
/// Calls `not_stored` if the content was not stored. Other failures leave it whole.
fn complete(file: &File, finish: Finish, not_stored: impl Fn()) -> io::Result<()> {
    flush(file).inspect_err(|_| not_stored())?;
    before(Call::Change)?;
    file.set_permissions(Permissions::from_mode(finish.mode & 0o7777))?;
    if let Some((seconds, nanos)) = finish.mtime {
        let time = TimeSpec::new(seconds, i64::from(nanos.min(999_999_999)));
        // scratch file systems purge what was not accessed for long
        before(Call::Change)?;
        futimens(file, &TimeSpec::UTIME_OMIT, &time)?;
    }
    if finish.fsync {
        sync(file).inspect_err(|_| not_stored())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::BufRead as _;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    /// A new directory, and a file in it.
    fn folder(name: &str) -> PathBuf {
        let name = format!("dgl-tools-partial-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> PartialNames {
        PartialNames::new(Folder::open(folder).unwrap(), "part")
    }

    /// The sum of these parts of a file.
    fn sum(file: &File, parts: &Parts, bytes: u64) -> Sum {
        sums::total(&sums::of(&|_| true, file, parts, bytes).unwrap())
    }

    const FINISH: Finish = Finish {
        mode: 0o644,
        mtime: None,
        fsync: false,
    };

    #[test]
    fn what_is_the_same_is_taken_over_and_the_rest_is_written() {
        let folder = folder("earlier");
        let grain = usize::try_from(GRAIN).unwrap();
        let replaced = vec![1; 3 * grain];
        fs::write(folder.join("dst"), &replaced).unwrap();
        let (begin, end) = (GRAIN, 2 * GRAIN);
        let keep = Parts::of(&[(0, begin), (end, 3 * GRAIN)]);
        let opened = Folder::open(&folder).unwrap();
        let dst = (&opened, OsStr::new("dst"));
        let from = File::open(folder.join("dst")).unwrap();
        let begin_with = |keep| {
            let from = Some((&from, sum(&from, &keep, 3 * GRAIN)));
            Partial::begin(names(&folder), 3 * GRAIN, keep, from, &|_| true).unwrap()
        };
        let partial = begin_with(keep);
        assert_eq!(partial.finish(dst, FINISH), Err(FileFault::NotWhole));
        assert_eq!(fs::read(folder.join("dst")).unwrap(), replaced);

        let keep = Parts::of(&[(0, begin), (end, 3 * GRAIN)]);
        let partial = begin_with(keep);
        let content = vec![2; grain];
        partial.put(begin, GRAIN, Some(&content)).unwrap();
        partial.finish(dst, FINISH).unwrap();
        let expected = [vec![1; grain], vec![2; grain], vec![1; grain]].concat();
        assert!(fs::read(folder.join("dst")).unwrap() == expected);

        fs::remove_dir_all(folder).unwrap();
    }

    /// A write through a memory map to a page that is dirty already changes neither of its times.
    #[test]
    fn what_changed_after_it_was_compared_is_not_taken_over() {
        const WRITER: &str = "import mmap, sys\n\
            file = open(sys.argv[1], 'r+b')\n\
            memory = mmap.mmap(file.fileno(), 0)\n\
            for line in sys.stdin:\n    offset, value = map(int, line.split())\n    \
            memory[offset] = value\n    print(flush=True)";
        let folder = folder("changed");
        let grain = usize::try_from(GRAIN).unwrap();
        let path = folder.join("dst");
        fs::write(&path, vec![1; 3 * grain]).unwrap();
        let mut python = Command::new("python3");
        python.args(["-c", WRITER]).arg(&path);
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = python.spawn().unwrap();
        let mut input = python.stdin.take().unwrap();
        let mut output = io::BufReader::new(python.stdout.take().unwrap());
        let mut write = |offset: u64, value: u8| {
            writeln!(input, "{offset} {value}").unwrap();
            output.read_line(&mut String::new()).unwrap();
        };
        let (between, kept) = (GRAIN, 2 * GRAIN + 5);
        write(kept, 1);

        let file = File::open(&path).unwrap();
        let keep = Parts::of(&[(0, GRAIN), (2 * GRAIN, 3 * GRAIN)]);
        let compared = sum(&file, &keep, 3 * GRAIN);
        let begin = || {
            let (names, replaced) = (names(&folder), Some((&file, compared)));
            Partial::begin(names, 3 * GRAIN, keep.clone(), replaced, &|_| true).err()
        };
        write(between, 2);
        assert_eq!(begin(), None);
        write(kept, 2);
        assert_eq!(begin(), Some(FileFault::EarlierChanged));
        assert!(!folder.join("part").exists());
        write(kept, 1);
        drop(input);
        python.wait().unwrap();
        assert_eq!(begin(), None);
        let shorter = File::options().write(true).open(&path).unwrap();
        shorter.set_len(2 * GRAIN).unwrap();
        assert_eq!(begin(), Some(FileFault::EarlierChanged));
        fs::remove_dir_all(folder).unwrap();
    }

    /// The holes of the replaced file are not written, so what a loss of power has left there would
    /// stay.
    #[test]
    fn a_partial_file_is_emptied_before_a_file_with_holes_is_copied_to_it() {
        let folder = folder("emptied");
        let replaced = File::create_new(folder.join("dst")).unwrap();
        replaced.set_len(2 * GRAIN).unwrap();
        replaced.write_all_at(b"end", 2 * GRAIN - 3).unwrap();
        fs::write(folder.join("part"), b"stale").unwrap();
        let names = names(&folder);
        assert_eq!(names.kept(2 * GRAIN).list(), []);
        let replaced = File::open(folder.join("dst")).unwrap();
        let keep = Parts::beginning(2 * GRAIN);
        let from = Some((&replaced, sum(&replaced, &keep, 2 * GRAIN)));
        let partial = Partial::begin(names, 2 * GRAIN, keep, from, &|_| true).unwrap();
        let opened = Folder::open(&folder).unwrap();
        partial
            .finish((&opened, OsStr::new("new")), FINISH)
            .unwrap();
        let content = |name| fs::read(folder.join(name)).unwrap();
        assert!(content("new") == content("dst"));
        fs::remove_dir_all(folder).unwrap();
    }
}
