//! No flag that nothing tries: every one of every tool's `--help` stands in a test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use support::{root, scratch, sh};

const TOOLS: [&str; 7] = ["ipconf-check", "host-probe", "part-map", "part-push", "dgl-env", "dgl-spawn", "dgl-reap"];

/// The long flags that a help text lists, each at the beginning of its line.
fn flags(help: &str) -> Vec<&str> {
    let words = help.lines().filter_map(|line| line.split_whitespace().find(|word| !word.starts_with('-') || word.starts_with("--")));
    words.filter(|word| word.starts_with("--") && word.len() > 2).collect()
}

/// Whether a flag stands in a text as a whole word, spelt with dashes or underscores.
fn stands_in(text: &str, flag: &str) -> bool {
    let spelt = [flag.to_owned(), format!("--{}", flag[2..].replace('-', "_"))];
    let whole = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || "-_".contains(next));
    spelt.iter().any(|flag| text.match_indices(flag.as_str()).any(|(at, _)| whole(&text[at + flag.len()..])))
}

#[test]
fn every_flag_stands_in_a_test() {
    let folder = scratch("flags");
    let sources = std::fs::read_dir(root().join("tests")).unwrap().map(|entry| entry.unwrap().path());
    let rust = sources.filter(|path| path.extension().is_some_and(|end| end == "rs") && !path.ends_with("flags.rs"));
    let text: String = rust.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let mut untried = Vec::new();
    for tool in TOOLS {
        let help = sh(&folder, &format!("{tool} --help")).out;
        let flags = flags(&help);
        assert!(flags.len() > 3 && flags.contains(&"--version"), "{tool}: {flags:?}");
        untried.extend(flags.into_iter().filter(|flag| !stands_in(&text, flag)).map(|flag| format!("{tool} {flag}")));
    }
    assert!(untried.is_empty(), "no test tries {untried:?}");
}

#[test]
fn a_flag_is_a_whole_word() {
    assert_eq!(flags("Options:\n      --host <ID>\n  -h, --help\n          Print --this\n"), ["--host", "--help"]);
    assert!(stands_in("x --num_servers=2", "--num-servers") && stands_in("'--host'", "--host"));
    assert!(!stands_in("x --host-key y", "--host") && !stands_in("--num-servers_x", "--num-servers"));
}
