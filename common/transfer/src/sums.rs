//! Whether what one end has of a file is what the other end has: sums of its pieces, compared one
//! after the other.

use crate::content;
use crate::parts::Parts;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use wire::files::Sum;

/// A piece has one sum; what is behind the first that differs is sent again.
const PIECE: u64 = 4 << 20;
/// So many sums are in one message at most.
const MOST: u64 = 1 << 14;

/// The size of the pieces of a file of so many bytes.
fn piece(bytes: u64) -> u64 {
    PIECE.max(bytes.div_ceil(MOST).next_multiple_of(1 << 20))
}

/// Begin and end of each piece of the parts of a file of so many bytes, in order.
pub fn pieces(parts: &Parts, bytes: u64) -> Vec<(u64, u64)> {
    let size = piece(bytes);
    let cut = |&(begin, end): &(u64, u64)| {
        let begins = (0..(end - begin).div_ceil(size)).map(move |number| begin + number * size);
        begins.map(move |at| (at, end.min(at + size)))
    };
    parts.list().iter().flat_map(cut).collect()
}

/// The sum of each piece; an error where one cannot be read whole.
pub fn of(file: &File, parts: &Parts, bytes: u64) -> io::Result<Vec<Sum>> {
    let mut buffer = vec![0; 256 << 10];
    pieces(parts, bytes)
        .into_iter()
        .map(|(begin, end)| sum_of(file, begin, end, &mut buffer))
        .collect()
}

fn sum_of(file: &File, begin: u64, end: u64, buffer: &mut [u8]) -> io::Result<Sum> {
    let mut hasher = blake3::Hasher::new();
    let mut at = begin;
    while at < end {
        let room = buffer
            .len()
            .min(usize::try_from(end - at).unwrap_or(usize::MAX));
        match file.read_at(&mut buffer[..room], at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Sum(*hasher.finalize().as_bytes()))
}

/// The sum of a whole file, up to its end.
pub fn of_whole(file: &File) -> io::Result<Sum> {
    let mut buffer = vec![0; 256 << 10];
    sum_of(file, 0, file.metadata()?.len(), &mut buffer)
}

/// The sum of what is in memory.
pub fn of_bytes(bytes: &[u8]) -> Sum {
    content::sum(bytes)
}

/// The pieces in front of the first whose sums differ: where one differs, another file was there.
pub fn same(parts: &Parts, bytes: u64, ours: &[Sum], theirs: &[Sum]) -> Parts {
    let equal = ours
        .iter()
        .zip(theirs)
        .take_while(|(ours, theirs)| ours == theirs)
        .count();
    Parts::of(&pieces(parts, bytes)[..equal.min(pieces(parts, bytes).len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_the_same_way_at_both_ends() {
        let parts = Parts::of(&[(0, PIECE + 1), (2 * PIECE, 3 * PIECE)]);
        assert_eq!(
            pieces(&parts, 4 * PIECE),
            [(0, PIECE), (PIECE, PIECE + 1), (2 * PIECE, 3 * PIECE)]
        );
        assert_eq!(pieces(&Parts::default(), 5), []);
        let huge = 1 << 50;
        assert!(pieces(&Parts::beginning(huge), huge).len() as u64 <= MOST);
    }

    #[test]
    fn what_is_behind_the_first_difference_does_not_count() {
        let parts = Parts::of(&[(0, PIECE + 1), (2 * PIECE, 3 * PIECE)]);
        let (a, b) = (of_bytes(b"a"), of_bytes(b"b"));
        let table = [
            ([a, a, a], vec![(0, PIECE + 1), (2 * PIECE, 3 * PIECE)]),
            ([a, b, a], vec![(0, PIECE)]),
            ([b, a, a], vec![]),
            ([a, a, b], vec![(0, PIECE + 1)]),
        ];
        for (theirs, expected) in table {
            assert_eq!(
                same(&parts, 4 * PIECE, &[a, a, a], &theirs).list(),
                expected
            );
        }
        assert_eq!(
            same(&parts, 4 * PIECE, &[a, a], &[a, a]).list(),
            [(0, PIECE + 1)]
        );
    }
}
