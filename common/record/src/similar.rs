//! Finds existing names and paths that resemble a wrong one.

use std::path::{Path, PathBuf};

/// More would take too long to compare.
const MAX_FILES: usize = 10_000;

/// With more, names are different words: `edge_feat.dgl` is not `node_feat.dgl`.
const MAX_SLIPS: usize = 2;

/// The most similar name that differs in few enough letters to be meant. One that differs only in
/// its digits, such as `part1` from `part0`, is another thing.
pub fn name(wrong: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let most = wrong.chars().count().div_ceil(4).min(MAX_SLIPS);
    let distance =
        |name: &String| strsim::damerau_levenshtein(&wrong.to_lowercase(), &name.to_lowercase());
    let without_digits = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "");
    let letters = without_digits(wrong);
    names
        .into_iter()
        .map(|name| (distance(&name), name))
        .filter(|(distance, name)| *distance <= most && without_digits(name) != letters)
        .min()
        .map(|(_, name)| name)
}

/// An existing path that differs in the first missing name.
pub fn path(missing: &Path) -> Option<PathBuf> {
    let wrong = missing
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .last()?;
    let folder = wrong
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let names = std::fs::read_dir(folder.unwrap_or(Path::new(".")))
        .ok()?
        .flatten()
        .take(MAX_FILES)
        .filter_map(|entry| entry.file_name().into_string().ok());
    let name = name(wrong.file_name()?.to_str()?, names)?;
    let rest = missing.strip_prefix(wrong).ok()?;
    let meant: PathBuf = wrong.with_file_name(name).join(rest).components().collect();
    meant.exists().then_some(meant)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_a_slip_is_recognized() {
        let there = ["train.py", "model.py", "ip_config.txt", "g.json", "part0"];
        let table = [
            ("trian.py", Some("train.py")),
            ("Train.py", Some("train.py")),
            ("ip-config.txt", Some("ip_config.txt")),
            ("ipconfig.txt", Some("ip_config.txt")),
            ("h.json", Some("g.json")),
            ("test.py", None),
            ("trian1.py", Some("train.py")),
            ("part1", None),
            ("part01", None),
            ("prat1", Some("part0")),
            ("train.py", None),
            ("", None),
        ];
        for (wrong, meant) in table {
            let names = there.iter().map(|name| (*name).to_owned());
            assert_eq!(super::name(wrong, names).as_deref(), meant, "{wrong}");
        }
    }
}
