//! Commands and what they print, as text that is compared. A line of a file begins with what it is:
//!
//!     # a comment
//!     ## the name of a case, which has its own directory
//!     < a file in this directory, whose lines follow, each behind |
//!     $ a command in sh, which goes on behind >; commands.sh has what it can use beside the tools
//!     | what it prints on stdout
//!     ! what it prints on stderr
//!     = its status, unless this is 0
//!
//! Each command begins with `case.sh`, if the case has such a file. PWD stands for the directory
//! and … for anything: a line of nothing else stands for any number of lines. `make cases` writes
//! what is printed into the files, and keeps lines that are right with their ….
//!
//! What takes seconds is in a file of its own, whose name begins with `slow_`.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{Ran, in_form, root, scratch, sh_for_cases, write};

/// Each file is a test, so that they run beside each other.
macro_rules! files {
    ($($name:ident)*) => {
        const FILES: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

files! {
    bind dgl_env dgl_env_plan dgl_env_refusals dgl_launch dgl_spawn dgl_why dgl_why_logs flags
    graphstorm host_agent host_lab host_probe host_swap ipconf_check messages_command_lines
    slow_dgl_env slow_dgl_env_command slow_dgl_report slow_dgl_spawn slow_dgl_why
    slow_every_tool slow_host_agent slow_host_probe slow_job_ends slow_jobs slow_messages_files
    slow_part_map slow_part_pull slow_part_push slow_pipelines slow_streams streams
}

#[test]
fn every_file_is_a_test() {
    let files = std::fs::read_dir(root().join("tests/cases")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names
        .filter_map(|name| Some(name.strip_suffix(".txt")?.to_owned()))
        .collect();
    assert_eq!(names, FILES.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn every_message_says_what_to_do() {
    for name in FILES.iter().filter(|name| name.contains("messages_")) {
        for step in parse(&std::fs::read_to_string(path(name)).unwrap()) {
            let message: Vec<&str> = step.lines("! ").collect();
            let tool = message.first().and_then(|line| line.split(':').next());
            if let Some(Err(why)) = tool.map(|tool| in_form(tool, &message.join("\n"))) {
                panic!("{name}: {}: {why}", step.head);
            }
        }
    }
}

fn path(name: &str) -> PathBuf {
    root().join(format!("tests/cases/{name}.txt"))
}

/// A comment, the name of a case, a file or a command, and the lines that belong to it.
struct Step {
    head: String,
    body: Vec<String>,
}

impl Step {
    /// What follows a mark, of the lines that begin with it.
    fn lines<'a>(&'a self, mark: &'static str) -> impl Iterator<Item = &'a str> {
        let line = move |line: &'a String| match line.strip_prefix(mark) {
            None if line == mark.trim_end() => Some(""),
            rest => rest,
        };
        self.body.iter().filter_map(line)
    }
}

fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines().map(str::to_owned) {
        match steps.last_mut() {
            Some(step) if line.starts_with(['>', '|', '!', '=']) => step.body.push(line),
            _ => steps.push(Step {
                head: line,
                body: Vec::new(),
            }),
        }
    }
    steps
}

/// What a command printed, as lines of a file.
fn printed(ran: &Ran, folder: &Path) -> Vec<String> {
    let marked = |mark: &'static str, text: &str| -> Vec<String> {
        let text = text.replace(&folder.display().to_string(), "PWD");
        let lines = text.lines().map(|line| format!("{mark} {line}"));
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    let status = (ran.status != 0).then(|| format!("= {}", ran.status));
    let lines = [marked("|", &ran.out), marked("!", &ran.err)].concat();
    lines.into_iter().chain(status).collect()
}

/// Whether a line is as expected, where `…` stands for anything.
fn line_matches(expected: &str, line: &str) -> bool {
    let Some((first, rest)) = expected.split_once('…') else {
        return expected == line;
    };
    let Some(line) = line.strip_prefix(first) else {
        return false;
    };
    let starts = line.char_indices().map(|(start, _)| start);
    let mut starts = starts.chain([line.len()]);
    starts.any(|start| line_matches(rest, &line[start..]))
}

/// Whether all lines are as expected, where one of nothing but `…` stands for any number of them.
fn all_match(expected: &[&String], lines: &[String]) -> bool {
    let Some((first, rest)) = expected.split_first() else {
        return lines.is_empty();
    };
    if let Some(mark) = first.strip_suffix(" …").filter(|mark| mark.len() == 1) {
        let of_mark = lines.iter().take_while(|line| line.starts_with(mark));
        return (0..=of_mark.count()).any(|count| all_match(rest, &lines[count..]));
    }
    let Some((line, others)) = lines.split_first() else {
        return false;
    };
    line_matches(first, line) && all_match(rest, others)
}

/// What is wrong with what a command prints; the step has the right lines then.
fn compare(step: &mut Step, folder: &Path) -> Option<String> {
    let script = step.head.strip_prefix("$ ")?.to_owned();
    let script: Vec<&str> = std::iter::once(&script[..])
        .chain(step.lines("> "))
        .collect();
    let lines = printed(&sh_for_cases(folder, &script.join("\n")), folder);
    let (more, expected): (Vec<_>, Vec<_>) =
        step.body.iter().partition(|line| line.starts_with('>'));
    if all_match(&expected, &lines) {
        return None;
    }
    let wrong = format!(
        "{}\n{}\nprinted\n{}\n\n",
        step.head,
        step.body.join("\n"),
        lines.join("\n")
    );
    // in the words of the file where these still hold
    let words = |line: String| {
        let mut known = expected.iter().filter(|known| known.len() > "| …".len());
        let known = known.find(|known| line_matches(known, &line));
        known.map_or(line.clone(), |known| (*known).clone())
    };
    step.body = more
        .into_iter()
        .cloned()
        .chain(lines.into_iter().map(words))
        .collect();
    Some(wrong)
}

fn check(name: &str) {
    let mut steps = parse(&std::fs::read_to_string(path(name)).unwrap());
    let (mut folder, mut wrong) = (scratch(), String::new());
    for step in &mut steps {
        if step.head.starts_with("## ") {
            folder = scratch();
        } else if let Some(file) = step.head.strip_prefix("< ") {
            let lines = step.lines("| ").map(|line| format!("{line}\n"));
            write(&folder, file, lines.collect::<String>());
        } else {
            wrong.extend(compare(step, &folder));
        }
    }
    if std::env::var_os("DGL_TOOLS_WRITE_CASES").is_some() {
        let lines = steps
            .into_iter()
            .flat_map(|step| [vec![step.head], step.body].concat());
        let lines = lines.map(|line| line + "\n");
        std::fs::write(path(name), lines.collect::<String>()).unwrap();
    } else if !wrong.is_empty() {
        panic!("{}\n{wrong}", path(name).display());
    }
}
