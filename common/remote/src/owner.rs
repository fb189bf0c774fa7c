//! Decides whether other users can change or replace a file or directory from which programs run.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use transfer::folder::resolution;
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

/// The first directory or link on the way to this directory, through links too, that another user
/// owns or may write to. What is above the user's home does not count, as in sshd's StrictModes.
pub fn exposed(folder: &Path) -> Option<(PathBuf, Exposure)> {
    let folder = std::path::absolute(folder).ok()?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let homes = [home.clone(), home.and_then(|home| home.canonicalize().ok())];
    let is_above_home = |path: &PathBuf| {
        let mut homes = homes.iter().flatten();
        homes.any(|home| home != path && home.starts_with(path))
    };
    let mut met = resolution(&folder).into_iter();
    met.find_map(|path| {
        let exposure = exposure(&path).filter(|_| !is_above_home(&path))?;
        Some((path, exposure))
    })
}

/// A link is not followed.
fn exposure(path: &Path) -> Option<Exposure> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !is_trusted(path) {
        return Some(Exposure::Owned);
    }
    (meta.is_dir() && others_write(&meta) && meta.mode() & STICKY == 0)
        .then_some(Exposure::Writable)
}
