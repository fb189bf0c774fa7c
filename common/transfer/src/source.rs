//! Reads the files that are sent.

#![expect(
    clippy::disallowed_methods,
    reason = "files that the user names are only read"
)]

use crate::content;
use crate::simulated::{Call, before};
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use wire::files::{BLOCK, Meta};

/// The most zeros in one message. A host whose file system cannot make a hole writes them, and
/// sends nothing meanwhile.
const MOST_ZEROS: u64 = 64 << 20;

/// The problem of a file that ended too early.
pub const SHORTER: &str = "it became shorter while it was read";

/// Opens a regular file. A FIFO or device does not block.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() {
        Ok((file, meta))
    } else {
        Err(io::Error::other("it is not a regular file any more"))
    }
}

/// Returns fewer bytes than the buffer has only at the end of the file.
pub fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    before(Call::Read)?;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
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

/// How many bytes of an open file are sent, unless these are all.
pub fn sent_bytes(file: &File) -> Option<u64> {
    let meta = file.metadata().ok().filter(is_sparse)?;
    let sent = room_needed(file, 0, meta.len());
    (sent < meta.len()).then_some(sent)
}

/// The space that a copy of this part needs: the blocks that [`Pieces`] sends. Compression does
/// not count, because the copy may have to do without it.
pub fn room_needed(file: &File, begin: u64, end: u64) -> u64 {
    let mut offset = begin;
    let mut needed = 0;
    while offset < end {
        let data = hole_until(file, offset).unwrap_or(offset).min(end);
        if data == end {
            break;
        }
        offset += (data - offset) / BLOCK * BLOCK;
        let data_end = data_until(file, data).unwrap_or(end).min(end);
        let length = (data_end - offset).next_multiple_of(BLOCK);
        let next = offset.saturating_add(length).min(end);
        needed += next - offset;
        offset = next;
    }
    needed
}

/// The space on the disk, in bytes.
pub fn room(meta: &Metadata) -> u64 {
    meta.blocks().saturating_mul(512) // whatever the blocks of its file system are
}

pub fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SHORTER.to_owned(),
        _ => error.to_string(),
    }
}

#[derive(Debug)]
pub struct Pieces<'f> {
    file: &'f File,
    offset: u64,
    end: u64,
}

/// Content of at most a block, or any number of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePiece {
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
    /// Zeros need not be sent.
    pub is_zeros: bool,
}

impl Pieces<'_> {
    pub fn new(file: &File, offset: u64, length: u64) -> Pieces<'_> {
        let end = offset.saturating_add(length);
        Pieces { file, offset, end }
    }

    /// Reads the next piece into the buffer, unless it is all zeros; returns `None` at the end. If
    /// the file ends earlier, that is an error after its last piece, see [`why`].
    pub fn read_next(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<SourcePiece>> {
        let (offset, left) = (self.offset, self.end - self.offset);
        if left == 0 {
            return Ok(None);
        }
        let (length, is_zeros) = match hole(self.file, offset, left) {
            Some(length) => (length, true),
            None => {
                buffer.resize(usize::try_from(left.min(BLOCK)).unwrap_or(0), 0);
                let count = read_at(self.file, offset, buffer)?;
                buffer.truncate(count);
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                (count as u64, content::is_hole(buffer))
            }
        };
        self.offset += length;
        Ok(Some(SourcePiece {
            offset,
            length,
            is_zeros,
        }))
    }
}

/// The length of the hole at an offset, at most `most` bytes and in whole blocks unless all of
/// `most` is a hole; `None` where there is data.
fn hole(source: &File, offset: u64, most: u64) -> Option<u64> {
    let bytes = hole_until(source, offset)?.saturating_sub(offset).min(most);
    let whole = if bytes == most {
        bytes
    } else {
        bytes - bytes % BLOCK
    };
    Some(whole.min(MOST_ZEROS)).filter(|whole| *whole > 0)
}

/// Where the next hole begins; `None` if the file system does not report holes.
pub(crate) fn data_until(file: &File, offset: u64) -> Option<u64> {
    let hole = lseek(file, i64::try_from(offset).ok()?, Whence::SeekHole).ok()?;
    u64::try_from(hole).ok().filter(|hole| *hole > offset)
}

/// `None` where there is data, or where the file system does not report holes.
pub(crate) fn hole_until(file: &File, offset: u64) -> Option<u64> {
    let from = i64::try_from(offset).ok()?;
    match lseek(file, from, Whence::SeekData) {
        Ok(data) => u64::try_from(data).ok().filter(|data| *data > offset),
        // only a hole follows
        Err(Errno::ENXIO) => {
            let length = file.metadata().ok()?.len();
            Some(length).filter(|end| *end > offset)
        }
        Err(_) => None,
    }
}

pub fn meta(meta: &Metadata) -> Meta {
    let nanos = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
    Meta {
        bytes: meta.len(),
        mode: meta.mode(),
        mtime: (meta.mtime(), nanos),
        inode: meta.ino(),
        sent: None,
        sum: None,
        foreign: false,
    }
}

/// The first and last second that file systems can store. Linux stores these instead of times
/// beyond them (timestamp_truncate in its fs/inode.c).
mod limits {
    /// Of ext3 and XFS: 32 bits. ext4 and XFS with bigtime begin here, too.
    pub const FIRST: [i64; 2] = [i32::MIN as i64, 0];
    /// ext3 and XFS, NFS 3, ext4 and XFS with bigtime.
    pub const LAST: [i64; 4] = [
        i32::MAX as i64,
        u32::MAX as i64,
        15_032_385_535,
        16_299_260_424,
    ];
}

/// Whether a file system that was given the first time may report the second. File systems have
/// steps of 2 s (FAT), 1 s, 10 ms (exFAT), 1 ms, 1 us, 100 ns (NTFS) or 1 ns; some servers of SMB
/// round up. A time beyond what they can store is reported as their first or last one.
pub fn same_time(given: (i64, u32), reported: (i64, u32)) -> bool {
    let is_last = given.0 > reported.0 && limits::LAST.contains(&reported.0);
    let is_first = given.0 < reported.0 && limits::FIRST.contains(&reported.0);
    if is_last || is_first {
        return true;
    }
    const SECOND: i128 = 1_000_000_000;
    const STEPS: [i128; 6] = [100, 1_000, 1_000_000, 10_000_000, SECOND, 2 * SECOND];
    let nanos = |(seconds, nanos): (i64, u32)| i128::from(seconds) * SECOND + i128::from(nanos);
    let (given, reported) = (nanos(given), nanos(reported));
    let rounds = |step: &i128| {
        let down = given - given.rem_euclid(*step);
        reported == down || reported == down + step
    };
    // whole seconds may be those of an archive, which has a version of the file for each
    let mut steps = STEPS
        .iter()
        .filter(|step| **step < SECOND || given % SECOND != 0);
    given == reported || steps.any(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_in_blocks_holes_and_zeros() {
        let path = std::env::temp_dir().join(format!("dgl-tools-pieces-{}", std::process::id()));
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // a block and a half, zeros that were written, a hole of two blocks, a few bytes
        let data = 3 * BLOCK / 2;
        file.write_all_at(&vec![7; data as usize], 0).unwrap();
        file.write_all_at(&vec![0; (5 * BLOCK / 2) as usize], data)
            .unwrap();
        file.set_len(6 * BLOCK).unwrap();
        file.write_all_at(b"end", 6 * BLOCK).unwrap();
        let read = |offset, length| {
            let (mut pieces, mut buffer) = (Pieces::new(&file, offset, length), Vec::new());
            let mut all = Vec::new();
            while let Some(piece) = pieces.read_next(&mut buffer)? {
                assert!(
                    piece.is_zeros || buffer.len() as u64 == piece.length,
                    "{piece:?}"
                );
                all.push((piece.offset, piece.length, piece.is_zeros));
            }
            Ok::<_, io::Error>(all)
        };
        let all = read(0, 6 * BLOCK + 3).unwrap();
        let whole = all.iter().map(|(_, length, _)| length).sum::<u64>();
        assert_eq!(whole, 6 * BLOCK + 3);
        assert_eq!(all[..2], [(0, BLOCK, false), (BLOCK, BLOCK, false)]);
        let zeros = all[2..].iter().filter(|(_, _, is_zeros)| *is_zeros);
        assert_eq!(zeros.map(|(_, length, _)| length).sum::<u64>(), 4 * BLOCK);
        assert_eq!(all.last(), Some(&(6 * BLOCK, 3, false)));
        assert_eq!(read(5, 3).unwrap(), [(5, 3, false)]);
        assert_eq!(read(5, 0).unwrap(), []);
        let short = read(6 * BLOCK, 4).unwrap_err();
        assert_eq!(why(&short), SHORTER);
    }

    /// As much as the pieces have that are not zeros.
    #[test]
    fn a_copy_needs_room_for_each_block_with_data() {
        let path = std::env::temp_dir().join(format!("dgl-tools-data-{}", std::process::id()));
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
        assert_eq!(room_needed(&file, 0, 1 << 20), 1 << 20);
        assert_eq!(sent_bytes(&file), None);
        let write = |offset, bytes: usize| file.write_all_at(&vec![7; bytes], offset).unwrap();
        file.set_len(8 << 20).unwrap();
        write(3 << 20, 1 << 20);
        assert_eq!(room_needed(&file, 0, 4 << 20), 2 << 20);
        assert_eq!(sent_bytes(&file), Some(2 << 20));
        // a few bytes in the middle of a block, and some in each of two blocks
        write((5 << 20) + 500_000, 10);
        write((7 << 20) - 5000, 10_000);
        let sent = |begin, end| {
            let (mut pieces, mut buffer) = (Pieces::new(&file, begin, end - begin), Vec::new());
            let mut sent = 0;
            while let Some(piece) = pieces.read_next(&mut buffer).unwrap() {
                sent += if piece.is_zeros { 0 } else { piece.length };
            }
            sent
        };
        for (begin, end) in [
            (1 << 20, 8 << 20),
            (5_000_000, 7_500_000),
            (5 << 20, (5 << 20) + 9),
        ] {
            assert_eq!(room_needed(&file, begin, end), sent(begin, end), "{begin}");
        }
        assert_eq!(sent_bytes(&file), Some(5 << 20));
        // with data in each block, nothing is left out
        for block in 0..8 {
            write(block << 20, 1);
        }
        assert!(is_sparse(&file.metadata().unwrap()));
        assert_eq!(sent_bytes(&file), None);
    }

    #[test]
    fn a_time_may_lose_what_is_finer_than_a_file_system() {
        let given = (100, 123_456_789);
        for (reported, expected) in [
            ((100, 123_456_789), true),
            ((100, 123_456_700), true),
            ((100, 123_456_000), true),
            ((100, 123_000_000), true),
            ((100, 0), true),
            ((100, 120_000_000), true),
            ((100, 100_000_000), false),
            ((100, 123_456_800), true),
            ((100, 124_000_000), true),
            ((101, 0), true),
            ((102, 0), true),
            ((99, 0), false),
            ((103, 0), false),
            ((101, 123_456_789), false),
        ] {
            assert_eq!(same_time(given, reported), expected, "{reported:?}");
        }
        for (given, reported, expected) in [
            ((101, 5), (100, 0), true),
            ((101, 5), (103, 0), false),
            ((101, 0), (101, 0), true),
            ((101, 0), (100, 0), false),
            ((101, 0), (102, 0), false),
            ((-1, 500_000_000), (-1, 0), true),
            // beyond what ext4 and NFS 3 can store
            ((i64::MAX, 5), (15_032_385_535, 0), true),
            ((i64::MAX, 5), (15_032_385_534, 0), false),
            ((4_294_967_296, 0), (4_294_967_295, 0), true),
            ((4_294_967_294, 0), (4_294_967_295, 0), false),
            ((i64::MIN, 0), (-2_147_483_648, 0), true),
            ((i64::MIN, 0), (-2_147_483_647, 0), false),
        ] {
            assert_eq!(
                same_time(given, reported),
                expected,
                "{given:?} {reported:?}"
            );
        }
    }
}
