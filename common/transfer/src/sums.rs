//! Compares the parts of a file at both ends, by checksums of its pieces.

use crate::GRAIN;
use crate::content;
use crate::parts::Parts;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::files::{BLOCK, Hex, Sum};

/// The most checksums in one message, not counting pieces that parts cut.
const MOST: u64 = 1 << 14;
/// The size of a checksum in a message.
const SUM_BYTES: u64 = 32;
/// More bytes than this are read by several threads; one thread sums up 2 GB a second.
const MUCH: u64 = 64 << 20;
/// The most threads, because other jobs run on the host too.
const THREADS: usize = 4;

/// The size of the pieces of a file. A piece that differs is sent whole, and so are all checksums;
/// their sum is least if a piece is as large as all checksums together.
fn piece(bytes: u64) -> u64 {
    let best = bytes.saturating_mul(SUM_BYTES).isqrt();
    best.max(bytes.div_ceil(MOST))
        .max(GRAIN)
        .next_power_of_two()
}

/// Cuts the parts of a file at multiples of a size, whatever the parts are.
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

/// The begin and end of each block of the parts: where a piece is more than a block, several blocks
/// make one up.
fn blocks(parts: &Parts, bytes: u64) -> Vec<(u64, u64)> {
    cut(parts, piece(bytes).min(BLOCK))
}

/// The checksum of each piece; fails if one cannot be read completely.
pub fn of(file: &File, parts: &Parts, bytes: u64) -> io::Result<Vec<Sum>> {
    let sums = of_blocks(&AtomicBool::new(false), file, parts, bytes)?;
    let blocks: Vec<_> = blocks(parts, bytes).into_iter().zip(sums).collect();
    Ok(pieces_of(&blocks, bytes).map(sum_of_piece).collect())
}

/// The begin and end of a block of a file, and its checksum.
pub type SummedBlock = ((u64, u64), Sum);

fn pieces_of(blocks: &[SummedBlock], bytes: u64) -> impl Iterator<Item = &[SummedBlock]> {
    let size = piece(bytes);
    blocks.chunk_by(move |(one, _), (next, _)| one.1 == next.0 && next.0 % size != 0)
}

fn sum_of_piece(blocks: &[SummedBlock]) -> Sum {
    let sums: Vec<u8> = blocks.iter().flat_map(|(_, sum)| sum.0).collect();
    content::sum(&sums)
}

/// The checksum of each block; fails soon after it is told to stop.
pub fn of_blocks(
    stop: &AtomicBool,
    file: &File,
    parts: &Parts,
    bytes: u64,
) -> io::Result<Vec<Sum>> {
    let blocks = blocks(parts, bytes);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if parts.bytes() > MUCH {
        processors.min(THREADS)
    } else {
        1
    };
    let each = blocks.len().div_ceil(threads).max(1);
    let sum_all = |blocks: &[(u64, u64)]| {
        let mut buffer = vec![0; 256 << 10];
        let sums = blocks.iter().map(|(begin, end)| {
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("nobody needs it any longer"));
            }
            sum_of(file, *begin, *end, &mut buffer)
        });
        sums.collect::<io::Result<Vec<Sum>>>()
    };
    std::thread::scope(|scope| {
        let mut chunks = blocks.chunks(each);
        let own = chunks.next().unwrap_or_default();
        let threads: Vec<_> = chunks
            .map(|blocks| {
                let sum = move || sum_all(blocks);
                let thread = std::thread::Builder::new().spawn_scoped(scope, sum);
                (blocks, thread.ok())
            })
            .collect();
        let mut all = sum_all(own)?;
        for (blocks, thread) in threads {
            let sums = match thread {
                Some(thread) => thread
                    .join()
                    .map_err(|_| io::Error::other("a thread ended"))?,
                None => sum_all(blocks),
            };
            all.extend(sums?);
        }
        Ok(all)
    })
}

fn sum_of(file: &File, begin: u64, end: u64, buffer: &mut [u8]) -> io::Result<Sum> {
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
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Hex(*hasher.finalize().as_bytes()))
}

/// The checksum of a whole file.
pub fn of_whole(file: &File) -> io::Result<Sum> {
    sum_of(file, 0, file.metadata()?.len(), &mut vec![0; 256 << 10])
}

/// The blocks of those pieces whose checksums are equal at both ends. Here they are known of each
/// block, there of each piece.
pub fn equal(parts: &Parts, bytes: u64, ours: &[Sum], theirs: &[Sum]) -> Vec<SummedBlock> {
    let blocks = blocks(parts, bytes).into_iter();
    let blocks: Vec<_> = blocks.zip(ours.iter().copied()).collect();
    pieces_of(&blocks, bytes)
        .zip(theirs)
        .filter(|(piece, theirs)| sum_of_piece(piece) == **theirs)
        .flat_map(|(piece, _)| piece)
        .copied()
        .collect()
}

/// The parts whose checksums are equal at both ends.
pub fn same(parts: &Parts, bytes: u64, ours: &[Sum], theirs: &[Sum]) -> Parts {
    let equal = equal(parts, bytes, ours, theirs).into_iter();
    Parts::of(&equal.map(|(block, _)| block).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // a file of small pieces, and one whose pieces are of four blocks
        for (bytes, size) in [(4 * GRAIN, GRAIN), (64 << 30, 4 * BLOCK)] {
            assert_eq!(piece(bytes), size);
            let parts = Parts::of(&[(0, size + 1), (2 * size, 3 * size)]);
            let ours = vec![a; blocks(&parts, bytes).len()];
            let there = |pieces: [Sum; 3]| {
                let blocks = blocks(&parts, bytes).into_iter();
                let of_piece = |offset: u64| pieces[usize::try_from(offset / size).unwrap()];
                let blocks: Vec<_> = blocks.map(|block| (block, of_piece(block.0))).collect();
                pieces_of(&blocks, bytes)
                    .map(sum_of_piece)
                    .collect::<Vec<_>>()
            };
            let table = [
                ([a, a, a], vec![(0, size + 1), (2 * size, 3 * size)]),
                ([a, b, a], vec![(0, size), (2 * size, 3 * size)]),
                ([b, a, a], vec![(size, size + 1), (2 * size, 3 * size)]),
                ([a, a, b], vec![(0, size + 1)]),
                ([b, b, b], vec![]),
            ];
            for (theirs, expected) in table {
                let same = same(&parts, bytes, &ours, &there(theirs));
                assert_eq!(same.list(), expected);
            }
            let fewer = same(&parts, bytes, &ours, &there([a, a, a])[..2]);
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
        let sums = of(&file, &Parts::beginning(bytes), bytes).unwrap();
        let pieces = cut(&Parts::beginning(bytes), piece(bytes));
        assert_eq!(sums.len(), pieces.len());
        for ((begin, end), sum) in pieces.into_iter().zip(sums) {
            let block = sum_of(&file, begin, end, &mut buffer).unwrap();
            assert_eq!(content::sum(&block.0), sum);
        }
    }
}
