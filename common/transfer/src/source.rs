//! Reads the files that are sent.

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use wire::files::{BLOCK, Meta};

/// The most zeros that one message announces. Where the file system of the host cannot make a hole,
/// the host writes them, and is silent meanwhile.
const MOST_ZEROS: u64 = 64 << 20;

/// Opens a regular file. A symbolic link is not followed, and a FIFO or device does not block.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

/// Fills the buffer from an offset on. Returns the number of bytes, which is less than its size
/// only at the end of the file.
pub fn read_at(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Whether a file occupies less space than its size: it has holes, or its file system compresses.
pub fn is_sparse(meta: &Metadata) -> bool {
    room(meta) < meta.len()
}

/// The space that a file occupies on its disk, in bytes.
pub fn room(meta: &Metadata) -> u64 {
    meta.blocks().saturating_mul(512) // whatever the blocks of its file system are
}

/// The length of the hole at an offset, at most `most` bytes and in whole blocks unless all of
/// `most` is a hole; `None` where there is data.
pub fn hole(source: &File, at: u64, most: u64) -> Option<u64> {
    let bytes = hole_until(source, at)?.saturating_sub(at).min(most);
    let whole = match bytes == most {
        true => bytes,
        false => bytes - bytes % BLOCK,
    };
    Some(whole.min(MOST_ZEROS)).filter(|whole| *whole > 0)
}

/// The end of the hole at an offset; `None` where there is data, or where the file system does not
/// tell.
pub(crate) fn hole_until(file: &File, at: u64) -> Option<u64> {
    let place = i64::try_from(at).ok()?;
    match lseek(file, place, Whence::SeekData) {
        Ok(data) => u64::try_from(data).ok().filter(|data| *data > at),
        // only a hole follows
        Err(Errno::ENXIO) => {
            let length = file.metadata().ok()?.len();
            Some(length).filter(|end| *end > at)
        }
        Err(_) => None,
    }
}

/// What the other end is told about a file.
pub fn meta(meta: &Metadata) -> Meta {
    let nanos = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
    Meta {
        bytes: meta.len(),
        mode: meta.mode(),
        mtime: (meta.mtime(), nanos),
        inode: meta.ino(),
        sparse: is_sparse(meta),
        sum: None,
    }
}

/// Whether a file system that was given the first time may report the second: file systems have
/// steps of 1 s, 1 ms, 1 us, 100 ns or 1 ns.
pub fn same_time(given: (i64, u32), said: (i64, u32)) -> bool {
    given.0 == said.0
        && [1, 100, 1_000, 1_000_000, 1_000_000_000]
            .iter()
            .any(|step| given.1 - given.1 % step == said.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_lose_what_is_finer_than_a_file_system() {
        let given = (100, 123_456_789);
        for (said, expected) in [
            ((100, 123_456_789), true),
            ((100, 123_456_700), true),
            ((100, 123_456_000), true),
            ((100, 123_000_000), true),
            ((100, 0), true),
            ((100, 100_000_000), false),
            ((101, 0), false),
        ] {
            assert_eq!(same_time(given, said), expected, "{said:?}");
        }
    }
}
