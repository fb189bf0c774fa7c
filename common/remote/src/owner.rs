//! Decides whether other users can change or replace a file or directory from which programs run.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use transfer::owner::STICKY;
pub use transfer::owner::is_path_trusted as is_trusted;

#[derive(Debug, PartialEq)]
pub enum Exposure {
    /// The directory, or a link to it, belongs to another user.
    Owned,
    /// Its mode lets others write.
    Writable,
}

pub fn others_write(meta: &Metadata) -> bool {
    meta.mode() & 0o22 != 0
}

/// The first of a directory and those above it whose content another user could replace; up to the
/// user's home, as in sshd's StrictModes.
pub fn exposed(folder: &Path) -> Option<(PathBuf, Exposure)> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    // links in the path could be replaced, too
    [std::path::absolute, Path::canonicalize]
        .into_iter()
        .find_map(|resolve| {
            let folder = resolve(folder).ok()?;
            let home = home.as_deref().and_then(|home| resolve(home).ok());
            let above_home = home.as_deref().and_then(Path::parent);
            folder
                .ancestors()
                .take_while(|path| home.is_none() || Some(*path) != above_home)
                .find_map(|path| Some((path.to_owned(), exposure(path)?)))
        })
}

fn exposure(folder: &Path) -> Option<Exposure> {
    let meta = fs::metadata(folder).ok()?;
    let real = folder.canonicalize().ok()?;
    if !is_trusted(folder) || !is_trusted(&real) {
        return Some(Exposure::Owned);
    }
    (others_write(&meta) && meta.mode() & STICKY == 0).then_some(Exposure::Writable)
}
