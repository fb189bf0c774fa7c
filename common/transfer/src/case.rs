//! Names that differ only in case are one name on some file systems: FAT, exFAT, NTFS, SMB, and
//! ext4 with casefold.

use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Two paths that would be the same file, or a file and a directory in its place.
pub fn alike<'p>(files: &[&'p Path]) -> Option<(&'p Path, &'p Path)> {
    let fold = |path: &Path| path.to_string_lossy().to_lowercase();
    let mut by_name: HashMap<String, &'p Path> = HashMap::with_capacity(files.len());
    for file in files {
        let other = *by_name.entry(fold(file)).or_insert(file);
        if other != *file {
            return Some((other, file));
        }
    }
    let mut known = HashSet::new();
    for file in files {
        let folders = file.ancestors().skip(1);
        for folder in folders.take_while(|folder| known.insert(*folder)) {
            if let Some(other) = by_name.get(&fold(folder)).filter(|other| **other != folder) {
                return Some((other, file));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_file_system_may_take_for_one() {
        let table: [(&[&str], Option<(&str, &str)>); 8] = [
            (&["/w/a", "/w/b"], None),
            (&["/w/a", "/w/a"], None),
            (&["/w/a", "/w/A"], Some(("/w/a", "/w/A"))),
            (&["/w/É", "/w/é"], Some(("/w/É", "/w/é"))),
            // two directories become one, which has both files
            (&["/w/Data/a", "/w/data/b"], None),
            (
                &["/w/Data/a", "/w/data/A"],
                Some(("/w/Data/a", "/w/data/A")),
            ),
            (
                &["/w/data/x/a", "/w/Data"],
                Some(("/w/Data", "/w/data/x/a")),
            ),
            // in one place anyway
            (&["/w/data/a", "/w/data"], None),
        ];
        for (files, expected) in table {
            let files: Vec<&Path> = files.iter().map(Path::new).collect();
            let expected = expected.map(|(one, other)| (Path::new(one), Path::new(other)));
            assert_eq!(alike(&files), expected, "{files:?}");
        }
    }
}
