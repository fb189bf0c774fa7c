//! The name that somebody may have meant, of those that are there.

use std::path::Path;

/// A folder may hold more files than anybody wants to wait for.
const MAX_FILES: usize = 10_000;

/// More letters apart are two words: `edge_feat.dgl` is not `node_feat.dgl`.
const MAX_SLIPS: usize = 2;

/// The most similar of some names, if one differs in few enough letters to be the same word.
pub fn name(wrong: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let most = wrong.chars().count().div_ceil(4).min(MAX_SLIPS);
    let distance =
        |name: &String| strsim::damerau_levenshtein(&wrong.to_lowercase(), &name.to_lowercase());
    names
        .into_iter()
        .map(|name| (distance(&name), name))
        .filter(|(distance, name)| *distance <= most && name != wrong)
        .min()
        .map(|(_, name)| name)
}

/// The name of a file beside a file that is not there.
pub fn file(missing: &Path) -> Option<String> {
    let folder = missing.parent()?;
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let files = std::fs::read_dir(folder).ok()?.take(MAX_FILES).flatten();
    let names = files.filter(|file| file.path().is_file());
    name(
        missing.file_name()?.to_str()?,
        names.filter_map(|file| file.file_name().into_string().ok()),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_a_slip_is_recognised() {
        let there = ["train.py", "model.py", "ip_config.txt", "g.json"];
        let table = [
            ("trian.py", Some("train.py")),
            ("Train.py", Some("train.py")),
            ("ip-config.txt", Some("ip_config.txt")),
            ("ipconfig.txt", Some("ip_config.txt")),
            ("h.json", Some("g.json")),
            ("test.py", None),
            ("train.py", None),
            ("", None),
        ];
        for (wrong, meant) in table {
            let names = there.iter().map(|name| (*name).to_owned());
            assert_eq!(super::name(wrong, names).as_deref(), meant, "{wrong}");
        }
    }
}
