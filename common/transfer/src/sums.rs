//! Compares the parts of a file at both ends, by checksums of its pieces.

use crate::GRAIN;
use crate::parts::Parts;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::files::{Hex, Sum};

/// The most checksums in one message, not counting pieces that parts cut.
const MOST: u64 = 1 << 14;
/// The size of a checksum in a message.
const SUM_BYTES: u64 = 32;
/// More is read by several threads; one sums up 2 GB a second.
const MUCH: u64 = 64 << 20;
/// No more threads, because other jobs run on the host too.
const THREADS: usize = 4;

/// All checksums are sent, and a piece that differs is sent whole; together that is least if a
/// piece is as large as all checksums.
fn piece(bytes: u64) -> u64 {
    let best = bytes.saturating_mul(SUM_BYTES).isqrt();
    best.max(bytes.div_ceil(MOST))
        .max(GRAIN)
        .next_power_of_two()
}

/// Called with the number of bytes that were just read; returns whether to go on.
pub type Watch<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// For work that stops when a flag is set.
pub fn until(stop: &AtomicBool) -> impl Fn(u64) -> bool + Sync {
    move |_| !stop.load(Ordering::Relaxed)
}

/// Cuts the parts at multiples of a size, whatever the parts are.
fn cut(parts: &Parts, size: u64) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    for &(begin, end) in parts.list() {
        let mut offset = begin;
        while offset < end {
            let next = end.min((offset / size + 1) * size);
            pieces.push((offset, next));
            offset = next;
        }
    }
    pieces
}

/// The begin and end of each piece.
fn pieces(parts: &Parts, bytes: u64) -> Vec<(u64, u64)> {
    cut(parts, piece(bytes))
}

/// Fails if a piece cannot be read completely, or if the result is no longer needed.
pub fn of(watch: Watch<'_>, file: &File, parts: &Parts, bytes: u64) -> io::Result<Vec<Sum>> {
    let pieces = pieces(parts, bytes);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if parts.bytes() > MUCH {
        processors.min(THREADS)
    } else {
        1
    };
    let each = pieces.len().div_ceil(threads).max(1);
    let sum_all = |pieces: &[(u64, u64)]| {
        let mut buffer = vec![0; 256 << 10];
        let sums = pieces
            .iter()
            .map(|(begin, end)| sum_of(watch, file, *begin, *end, &mut buffer));
        sums.collect::<io::Result<Vec<Sum>>>()
    };
    std::thread::scope(|scope| {
        let mut chunks = pieces.chunks(each);
        let first = chunks.next().unwrap_or_default();
        let threads: Vec<_> = chunks
            .map(|pieces| {
                let sum = move || sum_all(pieces);
                let thread = std::thread::Builder::new().spawn_scoped(scope, sum);
                (pieces, thread.ok())
            })
            .collect();
        let mut all = sum_all(first)?;
        for (pieces, thread) in threads {
            let sums = match thread {
                Some(thread) => thread
                    .join()
                    .map_err(|_| io::Error::other("a thread ended"))?,
                None => sum_all(pieces),
            };
            all.extend(sums?);
        }
        Ok(all)
    })
}

fn sum_of(
    watch: Watch<'_>,
    file: &File,
    begin: u64,
    end: u64,
    buffer: &mut [u8],
) -> io::Result<Sum> {
    let mut hasher = blake3::Hasher::new();
    let mut offset = begin;
    while offset < end {
        let room = buffer
            .len()
            .min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        match file.read_at(&mut buffer[..room], offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                offset += count as u64;
                check(watch, count as u64)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Hex(*hasher.finalize().as_bytes()))
}

/// Fails if the result is no longer needed.
pub(crate) fn check(watch: Watch<'_>, bytes: u64) -> io::Result<()> {
    if watch(bytes) {
        Ok(())
    } else {
        Err(io::Error::other("nobody needs it any longer"))
    }
}

/// Fails if it cannot be read completely, or if the result is no longer needed.
pub fn of_beginning(watch: Watch<'_>, file: &File, bytes: u64) -> io::Result<Sum> {
    sum_of(watch, file, 0, bytes, &mut vec![0; 256 << 10])
}

/// The parts with equal checksums at both ends, and the [`total`] of these checksums.
pub fn same(parts: &Parts, bytes: u64, ours: &[Sum], theirs: &[Sum]) -> (Parts, Sum) {
    let pieces = pieces(parts, bytes).into_iter();
    let both = pieces.zip(ours.iter().zip(theirs));
    let same = both.filter(|(_, (ours, theirs))| ours == theirs);
    let (same, sums): (Vec<_>, Vec<_>) = same.map(|(piece, (ours, _))| (piece, *ours)).unzip();
    (Parts::of(&same), total(&sums))
}

/// One checksum for the checksums of all pieces.
pub fn total(sums: &[Sum]) -> Sum {
    let mut hasher = blake3::Hasher::new();
    for sum in sums {
        hasher.update(&sum.0);
    }
    Hex(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content;
    use std::sync::atomic::AtomicU64;
    use wire::files::BLOCK;

    #[test]
    fn pieces_end_at_multiples_of_their_size_at_both_ends() {
        let size = GRAIN;
        let parts = Parts::of(&[(0, size + 1), (2 * size + 5, 4 * size)]);
        assert_eq!(
            cut(&parts, size),
            [
                (0, size),
                (size, size + 1),
                (2 * size + 5, 3 * size),
                (3 * size, 4 * size)
            ]
        );
        assert_eq!(cut(&Parts::default(), 5), []);
        assert_eq!(piece(2 << 30), 256 << 10);
        for huge in [1 << 40, 1 << 50] {
            assert!(huge / piece(huge) <= MOST);
        }
    }

    #[test]
    fn what_differs_is_told_from_what_is_the_same() {
        let (a, b) = (content::sum(b"a"), content::sum(b"b"));
        // a file of small pieces, and one whose pieces are larger than blocks
        for (bytes, size) in [(4 * GRAIN, GRAIN), (64 << 30, 4 * BLOCK)] {
            assert_eq!(piece(bytes), size);
            let parts = Parts::of(&[(0, size + 1), (2 * size, 3 * size)]);
            let ours = [a; 3];
            let table = [
                ([a, a, a], vec![(0, size + 1), (2 * size, 3 * size)]),
                ([a, b, a], vec![(0, size), (2 * size, 3 * size)]),
                ([b, a, a], vec![(size, size + 1), (2 * size, 3 * size)]),
                ([a, a, b], vec![(0, size + 1)]),
                ([b, b, b], vec![]),
            ];
            for (theirs, expected) in table {
                let (same, sum) = same(&parts, bytes, &ours, &theirs);
                assert_eq!(same.list(), expected);
                // as who has only these parts computes it
                assert_eq!(sum, total(&vec![a; pieces(&same, bytes).len()]));
            }
            let (fewer, _) = same(&parts, bytes, &ours, &[a, a]);
            assert_eq!(fewer.list(), [(0, size + 1)]);
        }
    }

    #[test]
    fn several_threads_sum_up_what_one_does() {
        let path = std::env::temp_dir().join(format!("dgl-tools-sums-{}", std::process::id()));
        std::fs::write(&path, vec![7; usize::try_from(MUCH).unwrap() + 5]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (bytes, mut buffer) = (MUCH + 5, vec![0; 4096]);
        let read = AtomicU64::new(0);
        let watch = |bytes| read.fetch_add(bytes, Ordering::Relaxed) < u64::MAX;
        let sums = of(&watch, &file, &Parts::beginning(bytes), bytes).unwrap();
        assert_eq!(read.into_inner(), bytes);
        let pieces = cut(&Parts::beginning(bytes), piece(bytes));
        assert_eq!(sums.len(), pieces.len());
        for ((begin, end), sum) in pieces.into_iter().zip(sums) {
            assert_eq!(
                sum_of(&|_| true, &file, begin, end, &mut buffer).unwrap(),
                sum
            );
        }
    }
}
