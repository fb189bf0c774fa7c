//! Decides whether other users can change or replace a file or directory from which programs run.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// In a directory with this bit, users cannot remove or rename files of others.
const STICKY: u32 = 0o1000;

#[derive(Debug, PartialEq)]
pub enum Exposure {
    /// The directory, or a link to it, belongs to another user.
    Owned,
    /// Its mode lets others write.
    Writable,
}

/// Whether it belongs to this user, to root, or to the owner of `/`, who is root outside of a user
/// namespace.
pub fn is_trusted(meta: &Metadata) -> bool {
    [0, nix::unistd::geteuid().as_raw()].contains(&meta.uid())
        || fs::metadata("/").is_ok_and(|root| root.uid() == meta.uid())
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
    let link = fs::symlink_metadata(folder).ok()?;
    let meta = fs::metadata(folder).ok()?;
    if !is_trusted(&link) || !is_trusted(&meta) {
        return Some(Exposure::Owned);
    }
    (others_write(&meta) && meta.mode() & STICKY == 0).then_some(Exposure::Writable)
}
