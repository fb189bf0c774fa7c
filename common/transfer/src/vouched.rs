//! Whether what other hosts bring of a file is what the tool has read of it.
//!
//! The tool vouches for the file piece by piece: it tells the digest of each. What another host
//! brings is written, but it counts only when the tool has vouched for it. Both come over
//! connections of their own, in any order, and their pieces need not be the same.

use crate::parts::Parts;
use crate::{content, sums};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use wire::files::Sum;

/// What is known of a piece's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// It is all zeros.
    Zeros,
    /// It has this checksum.
    Sum(Sum),
}

impl Digest {
    /// Whether two pieces of the same bytes have the same content; `None` if that does not show.
    fn is_same(&self, other: &Digest) -> Option<bool> {
        match (self, other) {
            (Digest::Zeros, Digest::Zeros) => Some(true),
            (Digest::Sum(one), Digest::Sum(other)) => Some(one == other),
            _ => None,
        }
    }

    /// Whether a part of a file has this content.
    pub fn is_of(&self, file: &File, begin: u64, end: u64) -> io::Result<bool> {
        match self {
            Digest::Sum(sum) => Ok(sums::of_part(file, begin, end)? == *sum),
            Digest::Zeros => is_zeros(file, begin, end),
        }
    }
}

fn is_zeros(file: &File, begin: u64, end: u64) -> io::Result<bool> {
    let mut buffer = vec![0; 256 << 10];
    let mut at = begin;
    while at < end {
        let room = buffer
            .len()
            .min(usize::try_from(end - at).unwrap_or(usize::MAX));
        file.read_exact_at(&mut buffer[..room], at)?;
        if !content::is_zeros(&buffer[..room]) {
            return Ok(false);
        }
        at += room as u64;
    }
    Ok(true)
}

/// What the tool vouches for of one file, and what others have brought and does not count yet. Each
/// piece that is brought carries a note of the caller's.
#[derive(Debug)]
pub struct Vouched<N> {
    /// The pieces that the tool vouches for and that do not count yet, by begin and end.
    pieces: BTreeMap<(u64, u64), Digest>,
    /// The length of the longest of them.
    longest: u64,
    /// What was brought, by its begin; no two overlap.
    brought: BTreeMap<u64, Brought<N>>,
}

#[derive(Clone, Copy, Debug)]
struct Brought<N> {
    end: u64,
    /// `None` if it is only a part of what was brought with one digest.
    digest: Option<Digest>,
    note: N,
}

/// What has become of a piece that the tool vouches for.
#[derive(Debug)]
pub enum Verdict<N> {
    /// Its content is here, and counts from now on.
    Right {
        /// The offset of its begin in the file.
        begin: u64,
        /// The offset of its end in the file.
        end: u64,
        /// The digest and the note that it was brought with, if it was brought as one piece.
        whole: Option<(Digest, N)>,
    },
    /// Other content was brought, and is forgotten.
    Wrong(N),
}

impl<N: Copy> Default for Vouched<N> {
    fn default() -> Vouched<N> {
        Vouched {
            pieces: BTreeMap::new(),
            longest: 0,
            brought: BTreeMap::new(),
        }
    }
}

impl<N: Copy> Vouched<N> {
    /// The tool vouches for a piece.
    pub fn vouch(&mut self, begin: u64, end: u64, digest: Digest) {
        self.longest = self.longest.max(end.saturating_sub(begin));
        self.pieces.insert((begin, end), digest);
    }

    /// A piece was brought and written. What was brought in its place before does not count any
    /// more.
    pub fn bring(&mut self, begin: u64, end: u64, digest: Option<Digest>, note: N) {
        self.forget(begin, end);
        let brought = Brought { end, digest, note };
        self.brought.insert(begin, brought);
    }

    /// How many pieces were brought and do not count yet.
    pub fn waiting(&self) -> usize {
        self.brought.len()
    }

    /// What was brought with another note is forgotten, unless it counts.
    pub fn keep_only(&mut self, is_kept: impl Fn(&N) -> bool) {
        self.brought.retain(|_, brought| is_kept(&brought.note));
    }

    /// Something else was written in the place of what was brought.
    pub fn forget(&mut self, begin: u64, end: u64) {
        for (at, _) in self.brought_in(begin, end) {
            self.brought.remove(&at);
        }
    }

    fn brought_in(&self, begin: u64, end: u64) -> Vec<(u64, Brought<N>)> {
        let before = self.brought.range(..end).rev();
        before
            .take_while(|(_, brought)| brought.end > begin)
            .map(|(at, brought)| (*at, *brought))
            .collect()
    }

    /// The next piece of a part of the file of which it shows now whether it is right. `counted`
    /// is what counts already; `is_of` reads whether a piece as it was written has a digest.
    pub fn next_verdict(
        &mut self,
        (begin, end): (u64, u64),
        counted: &Parts,
        is_of: &dyn Fn(u64, u64, &Digest) -> io::Result<bool>,
    ) -> io::Result<Option<Verdict<N>>> {
        let pieces = self.pieces.range(..(end, 0)).rev();
        let pieces: Vec<_> = pieces
            .take_while(|((at, _), _)| at.saturating_add(self.longest) > begin)
            .filter(|((_, until), _)| *until > begin)
            .map(|(piece, digest)| (*piece, *digest))
            .collect();
        for ((begin, end), digest) in pieces {
            if counted.has(begin, end) {
                self.pieces.remove(&(begin, end));
                continue;
            }
            let brought = self.brought_in(begin, end);
            let Some(&(at, one)) = brought.first() else {
                continue;
            };
            // a digest of another kind shows nothing
            let whole = one.digest.filter(|_| (at, one.end) == (begin, end));
            let shown = whole.and_then(|theirs| Some((digest.is_same(&theirs)?, theirs)));
            let is_right = match shown {
                Some((same, _)) => same,
                None if is_here((begin, end), counted, &brought) => is_of(begin, end, &digest)?,
                None => continue,
            };
            if !is_right {
                self.forget(begin, end);
                return Ok(Some(Verdict::Wrong(one.note)));
            }
            self.count(begin, end);
            let whole = shown.map(|(_, theirs)| (theirs, one.note));
            return Ok(Some(Verdict::Right { begin, end, whole }));
        }
        Ok(None)
    }

    /// A piece counts: what was brought of it does not wait any more.
    fn count(&mut self, begin: u64, end: u64) {
        self.pieces.remove(&(begin, end));
        for (at, brought) in self.brought_in(begin, end) {
            self.brought.remove(&at);
            let rest = Brought {
                digest: None,
                ..brought
            };
            if at < begin {
                self.brought.insert(at, Brought { end: begin, ..rest });
            }
            if brought.end > end {
                self.brought.insert(end, rest);
            }
        }
    }
}

/// Whether all of a piece counts or was brought.
fn is_here<N>((begin, end): (u64, u64), counted: &Parts, brought: &[(u64, Brought<N>)]) -> bool {
    let mut here = counted.both(&Parts::of(&[(begin, end)]));
    brought.iter().for_each(|(at, one)| here.add(*at, one.end));
    here.has(begin, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Digest = Digest::Sum(Sum([1; 32]));
    const B: Digest = Digest::Sum(Sum([2; 32]));

    /// Pieces such as `0-10 a, 10-20 zeros`.
    fn pieces(text: &str) -> Vec<(u64, u64, Digest)> {
        let piece = |piece: &str| {
            let (range, digest) = piece.split_once(' ').unwrap();
            let (begin, end) = range.split_once('-').unwrap();
            let digest = match digest {
                "a" => A,
                "b" => B,
                _ => Digest::Zeros,
            };
            (begin.parse().unwrap(), end.parse().unwrap(), digest)
        };
        let pieces = text.split(", ").filter(|piece| !piece.is_empty());
        pieces.map(piece).collect()
    }

    /// All that shows, as text; a piece that is read has the digest `A`.
    fn verdicts(vouched: &mut Vouched<char>, counted: &Parts) -> String {
        let mut counted = counted.clone();
        let mut all = Vec::new();
        while let Some(verdict) = vouched
            .next_verdict((0, 100), &counted, &|_, _, digest| Ok(*digest == A))
            .unwrap()
        {
            all.push(match verdict {
                Verdict::Right { begin, end, whole } => {
                    counted.add(begin, end);
                    let note = whole.map_or("read".to_owned(), |(_, note)| note.to_string());
                    format!("{begin}-{end} {note}")
                }
                Verdict::Wrong(note) => format!("not {note}"),
            });
        }
        all.join(", ")
    }

    #[test]
    fn only_what_the_tool_vouches_for_counts() {
        // the tool vouches for | another host, x, brings | what counts before | what shows | how
        // many pieces wait
        let table = [
            ("0-10 a", "", (0, 0), "", 0),
            ("", "0-10 a", (0, 0), "", 1),
            ("0-10 a", "0-10 a", (0, 0), "0-10 x", 0),
            ("0-10 a", "0-10 b", (0, 0), "not x", 0),
            ("0-10 b", "0-10 a", (0, 0), "not x", 0),
            // zeros are told as such, or are read
            ("0-10 zeros", "0-10 zeros", (0, 0), "0-10 x", 0),
            ("0-10 a", "0-10 zeros", (0, 0), "0-10 read", 0),
            ("0-10 zeros", "0-10 a", (0, 0), "not x", 0),
            // pieces of another size are read when all of them is here
            ("0-20 a", "0-10 b", (0, 0), "", 1),
            ("0-20 a", "0-10 b, 10-20 b", (0, 0), "0-20 read", 0),
            ("0-20 b", "10-20 a", (0, 10), "not x", 0),
            // of a piece that was brought across the borders of the tool's the rest waits
            ("5-15 a", "0-20 b", (0, 0), "5-15 read", 2),
            // what counts already is not looked at
            ("0-10 a", "10-20 a", (0, 10), "", 1),
            (
                "0-10 a, 10-20 a",
                "0-10 a, 10-20 b",
                (0, 0),
                "not x, 0-10 x",
                0,
            ),
        ];
        for (theirs, brought, (begin, end), expected, waiting) in table {
            let counted = Parts::of(&[(begin, end)]);
            for vouched_first in [false, true] {
                let mut vouched = Vouched::default();
                for vouches in [vouched_first, !vouched_first] {
                    for (begin, end, digest) in pieces(if vouches { theirs } else { brought }) {
                        match vouches {
                            true => vouched.vouch(begin, end, digest),
                            false => vouched.bring(begin, end, Some(digest), 'x'),
                        }
                    }
                }
                let shown = verdicts(&mut vouched, &counted);
                let case = format!("{theirs} | {brought} | {counted:?}");
                assert_eq!(
                    (shown.as_str(), vouched.waiting()),
                    (expected, waiting),
                    "{case}"
                );
            }
        }
    }

    #[test]
    fn what_was_brought_last_is_what_is_judged() {
        let (nothing, mut vouched) = (Parts::default(), Vouched::default());
        vouched.bring(0, 10, Some(B), 'x');
        vouched.bring(0, 10, Some(A), 'y');
        vouched.vouch(0, 10, A);
        assert_eq!(verdicts(&mut vouched, &nothing), "0-10 y");
        // the tool itself has sent a part of it meanwhile
        let mut vouched = Vouched::default();
        vouched.vouch(0, 10, A);
        vouched.bring(0, 10, Some(B), 'x');
        vouched.forget(5, 10);
        let counted = Parts::of(&[(5, 10)]);
        assert_eq!(verdicts(&mut vouched, &counted), "");
        vouched.bring(0, 5, Some(A), 'y');
        assert_eq!(verdicts(&mut vouched, &counted), "0-10 read");
        // what one brings is not judged together with what another has brought
        let mut vouched = Vouched::default();
        vouched.bring(0, 5, Some(B), 'x');
        vouched.keep_only(|note| *note == 'y');
        vouched.bring(5, 10, Some(A), 'y');
        vouched.vouch(0, 10, A);
        assert_eq!(
            (verdicts(&mut vouched, &nothing), vouched.waiting()),
            (String::new(), 1)
        );
    }

    #[test]
    fn a_file_is_read_for_its_digest() {
        let path = std::env::temp_dir().join(format!("dgl-tools-vouched-{}", std::process::id()));
        std::fs::write(&path, [&[0; 300_000][..], b"word"].concat()).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let word = Digest::Sum(sums::of_bytes(b"word"));
        let table = [
            (Digest::Zeros, 0, 300_000, true),
            (Digest::Zeros, 0, 300_001, false),
            (word, 300_000, 300_004, true),
            (word, 300_000, 300_003, false),
        ];
        for (digest, begin, end, expected) in table {
            assert_eq!(digest.is_of(&file, begin, end).unwrap(), expected);
        }
        assert!(
            Digest::Zeros.is_of(&file, 0, 300_005).is_err() || !word.is_of(&file, 0, 1).unwrap()
        );
    }
}
