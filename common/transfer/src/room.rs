//! Room for a file that is received, so that a full disk is noticed before anything is sent, and no
//! other program takes the room meanwhile.
//!
//! A disk reserves room at once. A file system in memory (tmpfs) takes a quarter of a second for
//! each GB, so a thread reserves the room there while the first parts are written, from the end of
//! the file backwards, until both meet. Only comparing the free space would be as fast, but the
//! file would fail if other programs took the space later.

use crate::parts::Parts;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::{Statvfs, fstatvfs, statvfs};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};

/// How much the thread reserves at once: a quarter of a millisecond, for which a writer may have to
/// wait.
const SLICE: u64 = 1 << 20;

/// The file whose room was reserved last. The next reservation waits for its end, because only then
/// the free space is known.
static LAST: Mutex<Weak<Reserving>> = Mutex::new(Weak::new());

/// When this is dropped, what is reserved stays reserved, and no more is added.
#[derive(Debug)]
pub(crate) struct Room(Option<Arc<Reserving>>);

#[derive(Debug)]
struct Reserving {
    file: File,
    state: Mutex<RoomState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct RoomState {
    /// The parts that are neither reserved nor written.
    left: Parts,
    failed: Option<Errno>,
}

impl Room {
    /// Fails with `ENOSPC` if there is not enough for all that is missing.
    pub(crate) fn take(file: &File, there: &Parts, bytes: u64) -> io::Result<Room> {
        let left = Parts::of(&there.missing(bytes));
        if fstatfs(file)?.filesystem_type() != TMPFS_MAGIC {
            check(file, &left)?;
            for (begin, end) in left.list() {
                reserve(file, *begin, *end)?;
            }
            return Ok(Room(None));
        }
        let mut last = LAST.lock();
        if let Some(last) = last.upgrade() {
            last.join();
        }
        check(file, &left)?;
        let reserving = Arc::new(Reserving {
            file: file.try_clone()?,
            state: Mutex::new(RoomState { left, failed: None }),
            thread: Mutex::default(),
        });
        let for_thread = Arc::clone(&reserving);
        let thread = Builder::new().spawn(move || for_thread.reserve())?;
        *reserving.thread.lock() = Some(thread);
        *last = Arc::downgrade(&reserving);
        Ok(Room(Some(reserving)))
    }

    /// A part is about to be written, so that no room has to be reserved for it. Fails if other
    /// programs have left too little for the whole file.
    pub(crate) fn fill(&self, begin: u64, end: u64) -> io::Result<()> {
        let Some(reserving) = &self.0 else {
            return Ok(());
        };
        let mut state = reserving.state.lock();
        if let Some(failed) = state.failed {
            return Err(failed.into());
        }
        state.left = state.left.without(&Parts::of(&[(begin, end)]));
        Ok(())
    }

    /// Reserves no more once it returns.
    pub(crate) fn stop(&self) {
        if let Some(reserving) = &self.0 {
            reserving.state.lock().left = Parts::default();
            reserving.join();
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Reserving {
    fn reserve(&self) {
        while let Some((begin, end)) = self.next_slice() {
            if let Err(error) = reserve(&self.file, begin, end) {
                let error = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                self.state.lock().failed = Some(error);
                return;
            }
        }
    }

    fn next_slice(&self) -> Option<(u64, u64)> {
        let mut state = self.state.lock();
        let (begin, end) = *state.left.list().last()?;
        let slice = (begin.max(end.saturating_sub(SLICE)), end);
        state.left = state.left.without(&Parts::of(&[slice]));
        Some(slice)
    }

    /// Several threads may wait.
    fn join(&self) {
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

/// How much an ordinary user may still write where a directory is or will be; `None` if unknown.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    free(&of_folder(folder)?)
}

/// How many files an ordinary user may still make there; `None` if that has no limit of its own.
pub fn free_inodes(folder: &Path) -> Option<u64> {
    let room = of_folder(folder)?;
    (room.files() > 0).then(|| room.files_available())
}

fn of_folder(folder: &Path) -> Option<Statvfs> {
    let existing = folder.ancestors().find(|folder| folder.is_dir())?;
    statvfs(existing).ok()
}

/// `None` if the file system has no size, as tmpfs with `size=0`.
fn free(room: &Statvfs) -> Option<u64> {
    (room.blocks() > 0).then(|| room.blocks_available() * room.fragment_size())
}

fn check(file: &File, missing: &Parts) -> io::Result<()> {
    match free(&fstatvfs(file)?) {
        Some(free) if missing.bytes() > free => Err(Errno::ENOSPC.into()),
        _ => Ok(()),
    }
}

/// Where the file system cannot reserve, the writes report a full disk.
fn reserve(file: &File, begin: u64, end: u64) -> io::Result<()> {
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    loop {
        let flags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(file, flags, number(begin), number(end - begin)) {
            Err(Errno::EINTR) => {}
            Err(error @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EIO)) => return Err(error.into()),
            Ok(()) | Err(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    /// A file in memory that has no name.
    fn in_memory(name: &str) -> File {
        let path = format!("/dev/shm/dgl-tools-room-{name}-{}", std::process::id());
        let mut options = File::options();
        let file = options.write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    fn occupied(file: &File) -> u64 {
        file.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn room_in_memory_is_reserved_beside_what_is_written() {
        let file = in_memory("beside");
        assert_eq!(fstatfs(&file).unwrap().filesystem_type(), TMPFS_MAGIC);
        let bytes = 16 * SLICE + 100;
        let there = Parts::beginning(SLICE);
        let room = Room::take(&file, &there, bytes).unwrap();
        room.fill(SLICE, 2 * SLICE).unwrap();
        file.write_all_at(&[1; SLICE as usize], SLICE).unwrap();
        let reserving = room.0.as_ref().unwrap();
        reserving.join();
        assert_eq!(reserving.next_slice(), None);
        assert!(occupied(&file) >= bytes - SLICE, "{}", occupied(&file));
        assert_eq!(file.metadata().unwrap().len(), 2 * SLICE);
        // the next one begins after it, and no more is reserved once it is stopped
        let other = in_memory("behind");
        let room = Room::take(&other, &Parts::default(), 32 * SLICE).unwrap();
        room.stop();
        let stopped = occupied(&other);
        assert_eq!(room.0.as_ref().unwrap().next_slice(), None);
        drop(room);
        assert_eq!(occupied(&other), stopped);
    }

    #[test]
    fn a_writer_hears_that_others_have_taken_the_room() {
        let file = in_memory("taken");
        let room = Room::take(&file, &Parts::default(), SLICE).unwrap();
        assert!(Room::take(&file, &Parts::default(), 1 << 60).is_err());
        room.fill(0, 10).unwrap();
        let state = &room.0.as_ref().unwrap().state;
        state.lock().failed = Some(Errno::ENOSPC);
        let error = room.fill(10, 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ENOSPC as i32));
    }
}
