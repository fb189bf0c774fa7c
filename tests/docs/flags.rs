//! No flag that nothing tries: every one of every tool's `--help` stands in a file of tests that
//! runs this tool. Which words are whose arguments cannot be told more closely, because tests make
//! command lines of pieces.

use support::{commands, flags_of_help, root};

/// Whether a tool or a flag stands in a text as a whole word.
fn stands_in(text: &str, word: &str) -> bool {
    let is_end =
        |next: Option<char>| !next.is_some_and(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    text.match_indices(word).any(|(at, _)| {
        is_end(text[..at].chars().next_back()) && is_end(text[at + word.len()..].chars().next())
    })
}

#[test]
fn every_flag_is_tried_where_its_tool_runs() {
    let folders = std::fs::read_dir(root().join("tests")).unwrap();
    let sources = folders.filter_map(|folder| std::fs::read_dir(folder.unwrap().path()).ok());
    let files = sources.flatten().map(|file| file.unwrap().path());
    let sources = files.filter(|path| {
        path.extension()
            .is_some_and(|end| end == "rs" || end == "txt")
    });
    let texts: Vec<String> = sources
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let is_tried = |tool: &str, flag: &str| {
        // spelt with dashes or underscores
        let spelt = [format!("--{flag}"), format!("--{}", flag.replace('-', "_"))];
        let mut runs = texts.iter().filter(|text| stands_in(text, tool));
        runs.any(|text| spelt.iter().any(|flag| stands_in(text, flag)))
    };
    let flags = commands().flat_map(|tool| {
        flags_of_help(tool)
            .into_iter()
            .map(move |flag| (tool, flag))
    });
    // tests/docs/manual.rs tries --version with all tools at once
    let untried: Vec<_> = flags
        .filter(|(tool, flag)| flag != "version" && !is_tried(tool, flag))
        .collect();
    assert!(untried.is_empty(), "no test tries {untried:?}");
}
