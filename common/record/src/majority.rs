//! Finds the value that most hosts have, to find those that differ.

use indexmap::IndexMap;
use std::hash::Hash;

/// The most frequent value, the first of equally frequent ones, and its count.
pub fn most_frequent<T: Eq + Hash>(values: impl IntoIterator<Item = T>) -> Option<(T, usize)> {
    let mut counts: IndexMap<T, usize> = IndexMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equals_counts() {
        assert_eq!(most_frequent([1, 2, 3, 2]), Some((2, 2)));
        assert_eq!(most_frequent([3, 1, 1, 3, 2]), Some((3, 2)));
        assert_eq!(most_frequent([0u8; 0]), None);
    }
}
