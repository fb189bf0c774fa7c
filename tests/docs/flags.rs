//! No flag that nothing tries: every one of every tool's `--help` stands in a test.

use support::{commands, flags_of_help, root};

/// Whether a flag stands in a text as a whole word, spelt with dashes or underscores.
fn stands_in(text: &str, flag: &str) -> bool {
    let spelt = [
        flag.to_owned(),
        format!("--{}", flag[2..].replace('-', "_")),
    ];
    let whole = |rest: &str| {
        !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || "-_".contains(next))
    };
    spelt.iter().any(|flag| {
        text.match_indices(flag.as_str())
            .any(|(at, _)| whole(&text[at + flag.len()..]))
    })
}

#[test]
fn every_flag_stands_in_a_test() {
    let folders = std::fs::read_dir(root().join("tests")).unwrap();
    let sources = folders.filter_map(|folder| std::fs::read_dir(folder.unwrap().path()).ok());
    let rust = sources.flatten().map(|file| file.unwrap().path());
    let rust = rust.filter(|path| {
        path.extension().is_some_and(|end| end == "rs") && !path.ends_with("docs/flags.rs")
    });
    let text: String = rust
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let mut untried = Vec::new();
    for tool in commands() {
        let flags = flags_of_help(tool)
            .into_iter()
            .map(|flag| format!("--{flag}"));
        untried.extend(
            flags
                .filter(|flag| !stands_in(&text, flag))
                .map(|flag| format!("{tool} {flag}")),
        );
    }
    assert!(untried.is_empty(), "no test tries {untried:?}");
}

#[test]
fn a_flag_is_a_whole_word() {
    assert!(stands_in("x --num_servers=2", "--num-servers") && stands_in("'--host'", "--host"));
    assert!(
        !stands_in("x --host-key y", "--host") && !stands_in("--num-servers_x", "--num-servers")
    );
}
