//! The tools stand in the same groups and order wherever they are listed.

use support::{commands, root, scratch, sh};

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The commands that a text names, each where it stands first.
fn named(text: &str) -> Vec<String> {
    let is_mark = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    let mut named: Vec<String> = Vec::new();
    for word in text.split(is_mark) {
        if commands().any(|command| command == word) && !named.iter().any(|name| name == word) {
            named.push(word.to_owned());
        }
    }
    named
}

fn part<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).unwrap().1.split_once(end).unwrap().0
}

#[test]
fn every_list_of_tools_has_the_same_order() {
    let script = root().join("tools/dgl-tools/dgl-tools");
    let listed = sh(&scratch(), &script.display().to_string());
    let groups: Vec<&str> = listed.out.split("\n\n").nth(1).unwrap().lines().collect();
    let tools: Vec<&str> = groups
        .iter()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .collect();
    assert_eq!(tools, commands().collect::<Vec<_>>());
    let headings: Vec<&str> = groups
        .iter()
        .filter(|line| !line.starts_with(' '))
        .copied()
        .collect();

    let readme = read("README.md");
    let table = part(&readme, "\n## The tools\n", "\nNames begin");
    let first_cells: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .filter(|cell| !cell.starts_with('|'))
        .collect();
    assert_eq!(first_cells, headings);
    let page = read("man/dgl-tools.7");
    let bash = read("completions/dgl-tools.bash");
    let zsh = read("completions/_dgl-tools");
    let makefile = read("Makefile");
    for (name, text) in [
        ("README", table),
        (
            "dgl-tools(7)",
            part(&page, "Those of every pipeline:", "reach no\nhost"),
        ),
        ("bash", part(&bash, "complete -o default", "\n")),
        ("zsh", part(&zsh, "#compdef", "\n")),
        ("Makefile", part(&makefile, "\nTOOLS =", "\nCOMMANDS")),
    ] {
        assert_eq!(named(text), tools, "{name}");
    }
}

#[test]
fn dgl_tools_runs_no_tool() {
    let script = root().join("tools/dgl-tools/dgl-tools");
    let run = |words: &str| sh(&scratch(), &format!("{} {words}", script.display()));
    assert_eq!(run("--help").out, run("").out);
    run("--version").ends(0).out_has("0.");
    run("part-map --help")
        .gives(2, "")
        .err_has("  fix: run the tool itself");
}
