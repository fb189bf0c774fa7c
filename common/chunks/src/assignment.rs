//! The assignment of nodes to partitions: one file for each node type, one line for each node, as
//! DGL's distributed partitioning pipeline reads it.

/// Draws a partition for each of `nodes` nodes; every partition is equally likely. The same seed
/// gives the same assignment.
pub fn random(seed: u64, nodes: u64, parts: u32) -> impl Iterator<Item = u32> {
    let mut state = seed;
    (0..nodes).map(move |_| {
        // splitmix64 (Steele, Lea and Flood, 2014): its high half is even enough to scale
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        // below `parts`, so it fits
        u32::try_from(((mixed >> 32) * u64::from(parts)) >> 32).unwrap_or(0)
    })
}

/// What is wrong with an assignment, in words; `None` if nothing is. `counts` holds the number of
/// nodes of each partition that was named, `nodes` the number of nodes in the metadata, `parts` the
/// number of partitions wanted.
pub fn problem(counts: &[u64], nodes: u64, parts: u32) -> Option<String> {
    let found: u64 = counts.iter().sum();
    let beyond = (parts as usize..counts.len()).find(|part| counts[*part] > 0);
    match beyond {
        Some(part) => Some(format!(
            "names partition {part}; they are 0 to {}",
            parts - 1
        )),
        None if found != nodes => Some(format!("has {found} nodes, the metadata {nodes}")),
        None => None,
    }
}

/// The partition that a line names; `None` if the line is not a number.
pub fn of_line(line: &[u8]) -> Option<u32> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_is_as_likely() {
        let draw = |seed| random(seed, 30_000, 3).collect::<Vec<u32>>();
        let drawn = draw(7);
        for part in 0..3 {
            let count = drawn.iter().filter(|other| **other == part).count();
            assert!((9_500..10_500).contains(&count), "{part}: {count}");
        }
        assert!(drawn.iter().all(|part| *part < 3));
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
    }

    #[test]
    fn what_can_be_wrong() {
        assert_eq!(problem(&[2, 3], 5, 2), None);
        assert_eq!(problem(&[2, 3, 0], 5, 2), None, "nobody goes there");
        let told = |counts: &[u64]| problem(counts, 5, 2).unwrap();
        assert_eq!(told(&[2, 3, 1]), "names partition 2; they are 0 to 1");
        assert_eq!(told(&[2, 2]), "has 4 nodes, the metadata 5");
        assert_eq!(of_line(b"12\r\n"), Some(12));
        assert_eq!([&b"-1"[..], b"", b"1 2"].map(of_line), [None; 3]);
    }
}
