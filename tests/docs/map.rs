//! ARCHITECTURE.md and CONTRIBUTING.md: the files that they name, and the map of the tests.

use std::path::Path;
use support::{read, root, sh};

/// Where the paths begin that are written in full.
const FOLDERS: [&str; 10] = [
    "benchmark/",
    "common/",
    "completions/",
    "examples/",
    "fuzz/",
    "man/",
    "packaging/",
    "site/",
    "tests/",
    "tools/",
];
/// Parts of names that stand for others.
const PLACEHOLDERS: [&str; 4] = ["TOOL", "NAME", "X.Y.Z", "*"];

/// The source files of Rust, from the root.
fn sources() -> Vec<String> {
    let found = sh(&root(), "find common tools tests packaging -name '*.rs'");
    found.out.lines().map(str::to_owned).collect()
}

/// The words of a document that may be names of files.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "_-./*".contains(c);
    let words = text.split(move |c| !in_name(c));
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(|word| !PLACEHOLDERS.iter().any(|part| word.contains(part)))
}

#[test]
fn files_that_documents_name_are_there() {
    let sources = sources();
    let mut missing = Vec::new();
    let mut seen = 0;
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        for name in names(&read(&root(), document)) {
            let is_whole = FOLDERS.iter().any(|folder| name.starts_with(folder));
            let is_there = if is_whole {
                root().join(name).exists()
            } else if name.ends_with(".rs") {
                let end = format!("/{name}");
                sources.iter().any(|source| source.ends_with(&end))
            } else {
                continue;
            };
            seen += 1;
            if !is_there {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(seen > 100, "{seen}");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_map_of_the_tests_has_every_file() {
    let text = read(&root(), "CONTRIBUTING.md");
    let (_, map) = text.split_once("| directory of tests/ |").unwrap();
    let is_in_map = |source: &str| {
        let (folder, file) = source.rsplit_once('/').unwrap();
        match folder.strip_prefix("tests/") {
            Some(folder) => map.lines().any(|line| {
                let row = line.strip_prefix(&format!("| {folder}/ |"));
                row.is_some_and(|row| names(row).any(|name| name == file))
            }),
            None => names(map).any(|name| name == source),
        }
    };
    let is_test = |source: &str| {
        let folder = Path::new(source).parent().unwrap();
        if source.starts_with("tests/") {
            folder.components().count() == 2 && folder.join("main.rs") != Path::new(source)
        } else {
            folder.ends_with("tests")
        }
    };
    let sources = sources();
    let tests = sources.iter().filter(|source| is_test(source));
    let tests: Vec<&String> = tests
        .filter(|source| {
            !source.starts_with("tests/bench/") && !source.starts_with("tests/support/")
        })
        .collect();
    assert!(tests.len() > 50, "{tests:?}");
    let missing: Vec<_> = tests.iter().filter(|test| !is_in_map(test)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
