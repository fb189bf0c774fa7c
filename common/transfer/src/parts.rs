//! The parts of a file that are present.

use crate::GRAIN;

/// Each part has its begin and end in bytes; they are in order and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(Vec<(u64, u64)>);

impl Parts {
    pub fn beginning(bytes: u64) -> Parts {
        let mut parts = Parts::default();
        parts.add(0, bytes);
        parts
    }

    /// The list may be in any order; empty parts are left out.
    pub fn of(list: &[(u64, u64)]) -> Parts {
        let mut sorted: Vec<_> = list
            .iter()
            .copied()
            .filter(|(begin, end)| begin < end)
            .collect();
        sorted.sort_unstable();
        let mut parts = Parts::default();
        for (begin, end) in sorted {
            match parts.0.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => parts.0.push((begin, end)),
            }
        }
        parts
    }

    pub fn add(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        // usually it continues the last one
        if let Some(last) = self.0.last_mut()
            && last.1 == begin
        {
            last.1 = end;
            return;
        }
        self.0.push((begin, end));
        *self = Parts::of(&self.0);
    }

    pub fn list(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(begin, end)| end - begin).sum()
    }

    pub fn is_whole(&self, bytes: u64) -> bool {
        bytes == 0 || self.0 == [(0, bytes)]
    }

    /// The number of bytes before the first gap.
    pub fn first(&self) -> u64 {
        self.0
            .first()
            .filter(|(begin, _)| *begin == 0)
            .map_or(0, |(_, end)| *end)
    }

    pub fn is_beginning(&self) -> bool {
        self.0.len() == usize::from(self.first() > 0)
    }

    pub fn missing(&self, bytes: u64) -> Vec<(u64, u64)> {
        let mut covered = 0;
        let mut missing = Vec::new();
        for &(begin, end) in &self.0 {
            if begin.min(bytes) > covered {
                missing.push((covered, begin.min(bytes)));
            }
            covered = covered.max(end);
        }
        if covered < bytes {
            missing.push((covered, bytes));
        }
        missing
    }

    pub fn both(&self, other: &Parts) -> Parts {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(left_part), Some(right_part)) = (left.peek(), right.peek()) {
            let begin = left_part.0.max(right_part.0);
            let end = left_part.1.min(right_part.1);
            if begin < end {
                both.push((begin, end));
            }
            if left_part.1 <= right_part.1 {
                left.next()
            } else {
                right.next()
            };
        }
        Parts(both)
    }

    /// The bytes among the first `bytes`, cut to whole [`GRAIN`]s except at the end of the file.
    pub fn whole_grains(&self, bytes: u64) -> Parts {
        // a host may report parts beyond the end of the file
        let up = |offset: u64| offset.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX);
        let down = |offset: u64| {
            if offset >= bytes {
                bytes
            } else {
                offset - offset % GRAIN
            }
        };
        Parts::of(
            &self
                .0
                .iter()
                .map(|&(begin, end)| (up(begin), down(end)))
                .collect::<Vec<_>>(),
        )
    }

    /// A line of the notes of a partial file.
    pub fn line(begin: u64, end: u64) -> String {
        format!("{begin} {end}\n")
    }

    /// The first line may be a single number, the end of the beginning. A line that was not written
    /// to its end may name a wrong part, which does no harm: each part is compared with the other
    /// end before it counts.
    pub fn parse(text: &str) -> Parts {
        let number = |word: &str| word.parse::<u64>().ok();
        let part = |(row, line): (usize, &str)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [end] if row == 0 => Some((0, number(end)?)),
                [begin, end] => Some((number(begin)?, number(end)?)),
                _ => None,
            }
        };
        Parts::of(
            &text
                .lines()
                .enumerate()
                .filter_map(part)
                .collect::<Vec<_>>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_and_what_lacks_is_the_rest() {
        let table: [(&[(u64, u64)], &[(u64, u64)], u64, &[(u64, u64)]); 7] = [
            (&[], &[], 10, &[(0, 10)]),
            (&[], &[], 0, &[]),
            (&[(0, 10)], &[(0, 10)], 10, &[]),
            (&[(4, 6), (0, 2)], &[(0, 2), (4, 6)], 10, &[(2, 4), (6, 10)]),
            (&[(4, 6), (0, 4), (9, 8)], &[(0, 6)], 6, &[]),
            (&[(2, 9), (3, 4)], &[(2, 9)], 9, &[(0, 2)]),
            (&[(12, 20)], &[(12, 20)], 10, &[(0, 10)]),
        ];
        for (list, expected, bytes, missing) in table {
            let mut added = Parts::default();
            list.iter().for_each(|(begin, end)| added.add(*begin, *end));
            assert_eq!(
                (added.list(), added.missing(bytes).as_slice()),
                (expected, missing),
                "{list:?}"
            );
            assert_eq!(Parts::of(list), added);
            let text: String = list
                .iter()
                .map(|(begin, end)| Parts::line(*begin, *end))
                .collect();
            assert_eq!(Parts::parse(&text), added, "{text}");
        }
        assert!(
            Parts::beginning(10).is_whole(10)
                && !Parts::beginning(9).is_whole(10)
                && Parts::default().is_whole(0)
        );
        assert!(
            Parts::beginning(9).is_beginning()
                && Parts::default().is_beginning()
                && !Parts::of(&[(1, 2)]).is_beginning()
        );
    }

    #[test]
    fn parts_are_compared() {
        let table: [(&[(u64, u64)], &[(u64, u64)], &[(u64, u64)]); 6] = [
            // one, another, in both
            (&[], &[(0, 5)], &[]),
            (&[(0, 5)], &[], &[]),
            (&[(0, 5)], &[(0, 5)], &[(0, 5)]),
            (&[(0, 9)], &[(2, 3), (5, 20)], &[(2, 3), (5, 9)]),
            (&[(0, 2), (4, 6)], &[(1, 5)], &[(1, 2), (4, 5)]),
            (&[(2, 4)], &[(0, 2), (4, 9)], &[]),
        ];
        for (one, other, both) in table {
            let (one, other) = (Parts::of(one), Parts::of(other));
            assert_eq!(one.both(&other).list(), both, "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_line_that_broke_off_says_no_more() {
        for (text, expected) in [
            ("", 0),
            ("4194304", 4_194_304),
            ("77\n100 2", 77),
            ("0 5\n1", 5),
            ("x", 0),
            ("0 5 6\n", 0),
        ] {
            assert_eq!(Parts::parse(text), Parts::beginning(expected), "{text:?}");
        }
    }

    #[test]
    fn only_whole_grains_are_gone_on_with() {
        let table = [
            ((0, GRAIN + 5), 10 * GRAIN, vec![(0, GRAIN)]),
            ((5, 3 * GRAIN), 10 * GRAIN, vec![(GRAIN, 3 * GRAIN)]),
            ((0, GRAIN + 5), GRAIN + 5, vec![(0, GRAIN + 5)]),
            ((0, 9 * GRAIN), GRAIN + 5, vec![(0, GRAIN + 5)]),
            ((1, 2), GRAIN, vec![]),
            ((u64::MAX - 1, u64::MAX), GRAIN, vec![]),
        ];
        for (part, bytes, expected) in table {
            assert_eq!(
                Parts::of(&[part]).whole_grains(bytes).list(),
                expected,
                "{part:?} {bytes}"
            );
        }
    }
}
