//! The assignment of nodes to partitions: one file for each node type, one line for each node, as
//! DGL's distributed partitioning pipeline reads it.

use record::error::{Fault, Report};
use std::io::{self, BufRead};
use std::path::Path;

/// More partitions than any cluster has hosts; a larger number is a mistake.
pub const MAX_PARTS: u32 = 1 << 20;

pub const NO_PARTITION: &str = "is not a number of a partition";
pub const ONE_A_NODE: &str = "give a number for each node, from 0 on";

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

/// Counts a node of a partition.
pub fn count(counts: &mut Vec<u64>, part: u32) {
    let part = part as usize;
    if counts.len() <= part {
        counts.resize(part + 1, 0);
    }
    counts[part] += 1;
}

/// Reads a text with a partition for each node.
pub fn read_text(
    path: &Path,
    input: impl BufRead,
    mut take: impl FnMut(u32),
) -> Result<(), Report> {
    let take = |line: &[u8]| {
        let text = std::str::from_utf8(line).unwrap_or_default();
        let part = text.trim().parse().ok().filter(|part| *part < MAX_PARTS);
        part.map(&mut take).ok_or_else(|| NO_PARTITION.to_owned())
    };
    each_line(path, input, take, ONE_A_NODE)
}

/// Reads lines up to the end, or to the first for which `take` says what is wrong with it.
pub fn each_line(
    path: &Path,
    mut input: impl BufRead,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
    fix: &str,
) -> Result<(), Report> {
    let (mut line, mut number) = (Vec::new(), 0u64);
    while input
        .read_until(b'\n', &mut line)
        .map_err(unreadable(path))?
        > 0
    {
        number += 1;
        take(&line).map_err(|problem| {
            Fault::data(format!("{}:{number}", path.display()), problem).fix(fix)
        })?;
        line.clear();
    }
    Ok(())
}

/// The report about a file that cannot be read or written.
pub fn unreadable(path: &Path) -> impl Fn(io::Error) -> Report {
    move |error| {
        let fault = Fault::unreachable(path.display().to_string(), error.to_string());
        fault
            .fix("correct the path, or make it accessible")
            .report()
    }
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
        let reported = |counts: &[u64]| problem(counts, 5, 2).unwrap();
        assert_eq!(reported(&[2, 3, 1]), "names partition 2; they are 0 to 1");
        assert_eq!(reported(&[2, 2]), "has 4 nodes, the metadata 5");
        let read = |text: &str| {
            let mut counts = Vec::new();
            let read = read_text(Path::new("f"), text.as_bytes(), |part| {
                count(&mut counts, part);
            });
            read.map(|()| counts)
                .map_err(|report| report.0[0].location.clone())
        };
        assert_eq!(read("1\r\n2\n 1"), Ok(vec![0, 2, 1]));
        for wrong in ["1\n-1", "1\n\n", "1\n1 2", "1\n1048576"] {
            assert_eq!(read(wrong), Err("f:2".to_owned()), "{wrong:?}");
        }
    }
}
