//! The directory for a tool's incomplete files, in a directory to which others may write.
//!
//! Only this user can write to it, and it has a mark: another user may give one of this user's
//! directories its name, but cannot put the mark into it. So whatever has a name in it was made by
//! this user's tools, and can be written and removed.

use crate::folder::Folder;
use std::ffi::OsStr;
use std::fs::File;
use std::io;

/// File systems without modes are mounted so by default.
const OPEN: &str = "other users can write to each new directory here, whatever mode it is given, \
    and so change incomplete files; use a directory on another file system, or mount this one with \
    dir_mode=0700 (SMB), umask=077 (FAT, NTFS) or metadata (WSL)";

/// `None` if the tool with this mark has not made the directory, or if other users could have put
/// something into it.
pub fn open(base: &Folder, name: &OsStr, mark: &str) -> Option<Folder> {
    let folder = base.folder(name).ok().filter(Folder::is_private)?;
    let mark = folder.stat(mark).ok()?;
    mark.is_file().then_some(folder)
}

/// Also returns its mark, which it has before it gets its name. Another user may have put another
/// directory in its place, which would have files or be open to others.
pub fn make(base: &Folder, name: &str, mark: &str) -> io::Result<(Folder, File)> {
    let new = format!("{name}.new");
    base.make_new(&new, 0o700)?;
    let folder = base.folder(&new)?;
    if !folder.is_private() || !folder.names()?.is_empty() {
        let _ = base.remove_folder(&new);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, OPEN));
    }
    let mark = folder.create(mark, &[])?;
    base.rename(&new, base, name)?;
    Ok((folder, mark))
}

/// Removes a directory that has nothing but its mark. Otherwise it keeps the mark.
pub fn remove_empty(base: &Folder, name: &OsStr, folder: &Folder, mark: &str) {
    if folder.names().is_ok_and(|names| names == [mark]) {
        let _ = folder.remove(mark);
        if base.remove_folder(name).is_err() {
            // another process has put something there in between
            let _ = folder.create(mark, &[]);
        }
    }
}

/// Whether this is the name of a partial file: two words of hexadecimal digits, for the file's
/// place and its version.
pub fn is_partial_key(key: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = |word: &str| word.len() == 16 && word.bytes().all(is_hex);
    key.split_once('.')
        .is_some_and(|(location, version)| is_number(location) && is_number(version))
}
