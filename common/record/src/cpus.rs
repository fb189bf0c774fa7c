//! Lists of processors, as the kernel, taskset(1) and process records write them: `0-3,8`.

use std::collections::BTreeSet;

/// More than a Linux kernel can be built for.
const MOST: u32 = 8192;

/// `None` if the text is no list, or empty.
pub fn parse(text: &str) -> Option<BTreeSet<u32>> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        (first <= last && last < MOST).then_some(first..=last)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    ranges.map(|ranges| ranges.into_iter().flatten().collect())
}

pub fn list(cpus: impl IntoIterator<Item = u32>) -> String {
    let cpus: BTreeSet<u32> = cpus.into_iter().collect();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    ranges
        .iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let table: [(&str, Option<&[u32]>); 9] = [
            ("0-3,8,10-11", Some(&[0, 1, 2, 3, 8, 10, 11])),
            ("5", Some(&[5])),
            ("", None),
            ("3-1", None),
            ("1,", None),
            ("-1", None),
            ("x", None),
            ("0-4000000000", None),
            ("0 ,1", None),
        ];
        for (text, expected) in table {
            let found = parse(text).map(Vec::from_iter);
            assert_eq!(found.as_deref(), expected, "{text:?}");
            if let Some(cpus) = found {
                assert_eq!(list(cpus.into_iter().rev()), text);
            }
        }
    }
}
