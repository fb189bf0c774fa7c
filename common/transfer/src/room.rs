//! The room that is left on a file system.

use nix::sys::statvfs::{Statvfs, statvfs};
use std::path::Path;

/// How much an ordinary user may still write where a directory is or will be; `None` if unknown.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let room = of_folder(folder)?;
    // tmpfs with `size=0` has no size
    (room.blocks() > 0).then(|| room.blocks_available() * room.fragment_size())
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
