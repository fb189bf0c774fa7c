//! What ARCHITECTURE.md promises about directions: which crate may know which, which module may,
//! and what a planner may not touch.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

// ---- crates

/// The crates below a package that are linked into it, by name.
fn linked_into(package: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "-p", package])
        .args(["-e", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "cargo tree -p {package}: {errors}");
    let names = String::from_utf8(tree.stdout).unwrap();
    names
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The packages of this repository, below a directory of it.
fn packages(below: &str) -> Vec<String> {
    let folders = fs::read_dir(Path::new(ROOT).join(below)).unwrap();
    let mut names: Vec<String> = folders
        .map(|folder| folder.unwrap().path())
        .filter(|folder| folder.join("Cargo.toml").exists())
        .map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn what_links_ssh_or_clap_does_not_go_to_hosts() {
    let linked = linked_into("host-agent");
    for unwanted in [
        "ssh2",
        "libssh2-sys",
        "openssl-sys",
        "clap",
        "cli",
        "remote",
    ] {
        assert!(!linked.contains(unwanted), "host-agent links {unwanted}");
    }
}

/// What each package of this repository names in its manifest of the others, but for its tests.
fn named_in_manifests() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--offline",
            "--no-deps",
            "--format-version",
            "1",
        ])
        .current_dir(ROOT)
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let ours = package["dependencies"].as_array().unwrap().iter();
            let ours = ours.filter(|other| other["kind"].is_null() && !other["path"].is_null());
            let names = ours.map(|other| other["name"].as_str().unwrap().to_owned());
            (
                package["name"].as_str().unwrap().to_owned(),
                names.collect(),
            )
        })
        .collect()
}

/// The words of a list in deny.toml.
fn listed_in_deny(name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(ROOT).join("deny.toml")).unwrap();
    let list = text.split_once(&format!("\n{name} = [")).unwrap().1;
    let list = list.split_once(']').unwrap().0;
    let words = list.split('"').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// Whether the licences that are allowed satisfy an SPDX expression. AND binds closer than OR, and
/// old manifests have a slash for OR.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let text = expression.replace('/', " OR ");
    let Some((before, rest)) = text.split_once('(') else {
        let of_all = |all: &str| all.split(" AND ").all(|one| allowed.contains(one.trim()));
        return text.split(" OR ").any(of_all);
    };
    let (inner, after) = rest.split_once(')').unwrap();
    let word = if is_allowed(inner, allowed) {
        "MIT"
    } else {
        "none"
    };
    is_allowed(&format!("{before}{word}{after}"), allowed)
}

#[test]
fn dependencies_have_permissive_licences_and_come_from_the_registry() {
    let targets = listed_in_deny("targets");
    let mut command = Command::new(env!("CARGO"));
    // not --offline: crates of the other target may not have been fetched yet
    command.args(["metadata", "--locked", "--format-version", "1"]);
    for target in &targets {
        command.args(["--filter-platform", target]);
    }
    let metadata = command.current_dir(ROOT).output().unwrap();
    let errors = String::from_utf8_lossy(&metadata.stderr);
    assert!(metadata.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let allowed = listed_in_deny("allow");
    assert!(allowed.contains("MIT"), "{allowed:?}");
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = &package["name"];
        if package["source"].is_null() {
            let dependencies = package["dependencies"].as_array().unwrap();
            let wild = |one: &&Value| one["req"] == "*" && one["path"].is_null();
            wrong.extend(
                dependencies
                    .iter()
                    .filter(wild)
                    .map(|one| format!("{name} takes any version of {}", one["name"])),
            );
            continue;
        }
        let source = &package["source"];
        if source != "registry+https://github.com/rust-lang/crates.io-index" {
            wrong.push(format!("{name} comes from {source}"));
        }
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence, &allowed) {
            wrong.push(format!("{name} has the licence {licence}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn licences_are_read_as_spdx_has_them() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Zlib".to_owned()]);
    let table = [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND GPL-3.0 OR Zlib", true),
        ("(MIT OR GPL-3.0) AND Zlib", true),
        ("(MIT OR Zlib) AND GPL-3.0", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", false),
    ];
    for (expression, expected) in table {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}

/// A cargo without `deny`, as where cargo-deny is not installed.
#[test]
fn make_deny_fails_where_it_checks_nothing() {
    let folder = support::scratch();
    support::executable(&folder, "cargo", "#!/bin/sh\nexit 101\n");
    let make = format!("PATH=$PWD:$PATH exec make -C '{ROOT}' deny");
    let ran = support::sh(&folder, &make);
    let is_named = ran.err.contains("cargo install cargo-deny");
    ran.ends(2);
    assert!(is_named);
}

#[test]
fn crates_know_only_those_below_them() {
    let map = fs::read_to_string(Path::new(ROOT).join("ARCHITECTURE.md")).unwrap();
    let crates: Vec<&str> = map
        .lines()
        .filter_map(|line| line.strip_prefix("    common/"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let mut listed = crates.clone();
    listed.sort_unstable();
    assert_eq!(listed, packages("common"));
    let named = named_in_manifests();
    for (position, package) in crates.iter().enumerate() {
        let below = &crates[position + 1..];
        let wrong: Vec<&String> = named[*package]
            .iter()
            .filter(|name| !below.contains(&name.as_str()))
            .collect();
        assert!(wrong.is_empty(), "{package} names {wrong:?}");
    }
    let tools = packages("tools");
    for tool in &tools {
        let other = tools.iter().find(|other| named[tool].contains(*other));
        assert_eq!(other, None, "{tool} names another tool");
    }
}

// ---- files

/// All files below a directory, but what was built.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with('.') || name.starts_with("target") || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Those with such an ending, below directories of the repository.
fn sources(folders: &[&str], ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        files(&Path::new(ROOT).join(folder), &mut found);
    }
    found.retain(|path| path.extension().is_some_and(|name| name == ending));
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(ROOT).unwrap().display().to_string()
}

/// The directories src/ of all crates.
fn crate_sources() -> Vec<PathBuf> {
    ["common", "tools"]
        .into_iter()
        .flat_map(|kind| {
            packages(kind)
                .into_iter()
                .map(move |name| Path::new(ROOT).join(kind).join(name).join("src"))
        })
        .collect()
}

#[test]
fn of_scripts_for_hosts_two_are_left() {
    let mut scripts = Vec::new();
    for src in crate_sources() {
        files(&src, &mut scripts);
    }
    scripts.retain(|path| {
        path.extension()
            .is_some_and(|end| end == "sh" || end == "py")
    });
    let scripts: Vec<String> = scripts.iter().map(|path| shown(path)).collect();
    assert_eq!(
        scripts,
        [
            "common/remote/src/bootstrap.sh",
            "tools/host-agent/src/python_facts.py"
        ]
    );
}

/// `eprintln!` panics where nobody reads stderr any longer, which would end a tool and its job;
/// `record::tell!` does not. What host-agent prints goes to whoever has started it for that alone.
#[test]
fn no_tool_ends_because_nobody_reads_what_it_says() {
    let mut wrong = Vec::new();
    for src in crate_sources() {
        for path in sources(&[&shown(&src)], "rs") {
            let mut macros = vec!["eprint!", "eprintln!"];
            if !shown(&src).contains("host-agent") {
                macros.extend(["print!", "println!"]);
            }
            for (number, line) in code(&path) {
                if macros.iter().any(|name| line.contains(name)) {
                    wrong.push(format!("{}:{number}: {}", shown(&path), line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// ---- planners

#[test]
fn planners_open_read_and_print_nothing() {
    let outside = [
        "std::fs",
        "std::env",
        "std::process",
        "stdin()",
        "stdout()",
        "stderr()",
        "Instant::now",
        "SystemTime",
        "urandom",
        "random_token",
        "println!",
        "print!",
        "eprint!",
        "current_dir",
        "canonicalize",
        "path::absolute",
        "metadata()",
    ];
    let mut wrong = Vec::new();
    for src in crate_sources() {
        let plan = src.join("plan.rs");
        if !plan.exists() {
            continue;
        }
        for (number, line) in code(&plan) {
            for word in outside.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{number}: {word}", shown(&plan)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The lines of a source with their numbers, without comments and without its tests, which stand
/// at the end.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|two| two[0] == "#[cfg(test)]" && two[1].starts_with("mod "))
        .unwrap_or(lines.len());
    (1..)
        .zip(&lines[..tests])
        .map(|(number, line)| (number, line.split("//").next().unwrap().to_owned()))
        .collect()
}

// ---- names

/// The only names that several types may have, each with the reason.
const SHARED_NAMES: [(&str, &str); 5] = [
    (
        "Args",
        "the command line, which is declared in the same way by each tool",
    ),
    ("Exited", "the event of an agent, and the record made of it"),
    (
        "Listening",
        "the event of an agent, and the record made of it",
    ),
    ("Output", "bytes from an agent, and the record of a line"),
    (
        "Started",
        "the event of an agent, and the record made of it",
    ),
];

/// The name of the type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let public = ["pub ", "pub(crate) "].map(|word| line.strip_prefix(word));
    let declaration = public.into_iter().flatten().next().unwrap_or(line);
    let (keyword, rest) = declaration.split_once(' ')?;
    let end = rest.find(|c: char| !c.is_alphanumeric());
    let name = &rest[..end.unwrap_or(rest.len())];
    ["struct", "enum", "trait"]
        .contains(&keyword)
        .then_some(name)
}

#[test]
fn a_type_name_is_declared_once() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let folders: Vec<String> = crate_sources().iter().map(|src| shown(src)).collect();
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    for path in sources(&folders, "rs") {
        for (number, line) in code(&path) {
            if let Some(name) = declared(&line) {
                let place = format!("{}:{number}", shown(&path));
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    let is_shared = |name: &str| SHARED_NAMES.iter().any(|(shared, _)| *shared == name);
    let repeated = |places: &[String]| places.len() > 1;
    let wrong: Vec<_> = places
        .iter()
        .filter(|(name, places)| repeated(places) != is_shared(name))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (name, _) in SHARED_NAMES {
        assert!(places.contains_key(name), "{name}: no type has this name");
    }
}

#[test]
fn declarations_of_types_are_recognized() {
    let table = [
        ("pub struct Job<'a> {", Some("Job")),
        ("    enum Phase {", Some("Phase")),
        ("pub(crate) trait Open: Send {", Some("Open")),
        ("pub fn structure() {", None),
        ("struct Sum(u64);", Some("Sum")),
    ];
    for (line, name) in table {
        assert_eq!(declared(line), name, "{line}");
    }
}

// ---- modules

/// A module by its path below the crate: `run::launcher`; the crate itself is empty.
type Module = Vec<String>;

/// The modules of a crate, with their code as one text.
struct Crate {
    modules: BTreeMap<Module, String>,
}

impl Crate {
    fn read(src: &Path) -> Crate {
        let mut paths = Vec::new();
        files(src, &mut paths);
        let has_lib = src.join("lib.rs").exists();
        let mut modules = BTreeMap::new();
        for path in paths {
            let name = path.strip_prefix(src).unwrap().with_extension("");
            let mut module: Module = name
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            let is_rust = path.extension().is_some_and(|end| end == "rs");
            if !is_rust || (has_lib && module == ["main"]) {
                continue;
            }
            if module == ["lib"] || module == ["main"] || module.last().unwrap() == "mod" {
                module.pop();
            }
            let text: Vec<String> = code(&path).into_iter().map(|(_, line)| line).collect();
            modules.insert(module, text.join("\n"));
        }
        Crate { modules }
    }

    /// The module that has what a path names, seen from a module; `None` for what is not in this
    /// crate.
    fn module_of(&self, from: &Module, path: &str) -> Option<Module> {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut module = match parts[0] {
            "crate" => Vec::new(),
            "self" | "super" => from.clone(),
            child if self.modules.contains_key(&below(from, child)) => {
                parts.insert(0, "self");
                from.clone()
            }
            _ => return None,
        };
        let mut parts = parts.into_iter().peekable();
        while let Some(step) = parts.next_if(|part| ["crate", "self", "super"].contains(part)) {
            if step == "super" {
                module.pop();
            }
        }
        while let Some(child) =
            parts.next_if(|part| self.modules.contains_key(&below(&module, part)))
        {
            module.push(child.to_owned());
        }
        // what a module hands on is in the module that it comes from
        let name = parts.next().unwrap_or_default();
        let handed_on = imports(&self.modules[&module], "pub use ")
            .into_iter()
            .find(|path| path.rsplit("::").next() == Some(name));
        match handed_on {
            Some(path) => self.module_of(&module, &path).or(Some(module)),
            None => Some(module),
        }
    }

    /// The modules that a module names, those of its own directory and its mod.rs among them. That
    /// a mod.rs declares a file does not count.
    fn named_by(&self, module: &Module) -> BTreeSet<Module> {
        let text = &self.modules[module];
        imports(text, "use ")
            .into_iter()
            .chain(paths(text))
            .filter_map(|path| self.module_of(module, &path))
            .filter(|other| other != module)
            .collect()
    }

    /// The modules that can be reached from themselves, if there are any.
    fn in_circles(&self) -> Vec<String> {
        let named: BTreeMap<&Module, BTreeSet<Module>> = self
            .modules
            .keys()
            .map(|module| (module, self.named_by(module)))
            .collect();
        let comes_back = |start: &Module| {
            let (mut next, mut seen) = (vec![start], BTreeSet::new());
            while let Some(module) = next.pop() {
                for other in &named[module] {
                    if other == start {
                        return true;
                    }
                    if seen.insert(other) {
                        next.push(other);
                    }
                }
            }
            false
        };
        self.modules
            .keys()
            .filter(|module| comes_back(module))
            .map(|module| module.join("::"))
            .collect()
    }
}

fn below(module: &Module, child: &str) -> Module {
    module.iter().cloned().chain([child.to_owned()]).collect()
}

/// The paths of a text's imports: `use a::{b, c::{self, d as e}};` are a::b, a::c, a::c::d.
fn imports(text: &str, keyword: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(keyword) {
        let word_begins = at == 0 || rest[..at].ends_with(|c: char| c.is_whitespace());
        rest = &rest[at + keyword.len()..];
        if let (true, Some(end)) = (word_begins, rest.find(';')) {
            expand("", &rest[..end], &mut found);
        }
    }
    found
}

fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        let name = tree.split_whitespace().next().unwrap_or_default();
        let path = format!("{prefix}{name}");
        if !name.is_empty() {
            found.push(path.strip_suffix("::self").unwrap_or(&path).to_owned());
        }
        return;
    };
    let prefix = format!("{prefix}{head}");
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&prefix, &inner[begin..at], found);
                begin = at + 1;
            }
            _ => {}
        }
    }
    expand(&prefix, &inner[begin..], found);
}

/// The paths that a text names in place: `crate::plan::Job`, `super::lost`.
fn paths(text: &str) -> Vec<String> {
    let of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !of_path(c))
        .filter(|word| word.starts_with("crate::") || word.starts_with("super::"))
        // a list in braces, which imports() reads
        .filter(|word| !word.ends_with("::"))
        .map(|word| word.trim_end_matches(':').to_owned())
        .collect()
}

#[test]
fn no_modules_name_each_other_in_a_circle() {
    let circles: Vec<String> = crate_sources()
        .iter()
        .flat_map(|src| {
            let of_crate = shown(src);
            Crate::read(src)
                .in_circles()
                .into_iter()
                .map(move |module| format!("{of_crate}: {module}"))
        })
        .collect();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn the_reader_of_paths_finds_circles() {
    let modules = [
        (vec![], "pub use a::Made;"),
        (vec!["a"], "use crate::folder::{self, b::{C, D as E}};"),
        (vec!["folder"], "mod b; pub use b::C;"),
        (vec!["folder", "b"], "fn f() -> crate::Made {}"),
        (vec!["apart"], "use super::folder::C;"),
    ];
    let made = Crate {
        modules: modules
            .into_iter()
            .map(|(module, text)| {
                let module = module.into_iter().map(str::to_owned).collect();
                (module, text.to_owned())
            })
            .collect(),
    };
    assert_eq!(made.in_circles(), ["a", "folder", "folder::b"]);
}
