//! What users read: `--help` and the manual pages. Both say the same as the tools do.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use support::{SCRIPTS, aliases_of_help, commands, flags_of_help, root, scratch, sh};

type Names = BTreeSet<String>;

/// What stands behind the first text, up to the second.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split_once(from).unwrap().1.split_once(to).unwrap().0
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The flags of a tool, each with all of its names.
fn names_of_flags(tool: &str) -> Names {
    &flags_of_help(tool) | &aliases_of_help(tool)
}

/// The paths of all manual pages, those that describe no command too.
fn all_pages() -> Vec<String> {
    let files = std::fs::read_dir(root().join("man")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.map(|name| format!("man/{name}")).collect()
}

/// Where a page names a section of another one, the other has it.
#[test]
fn sections_that_pages_name_are_there() {
    let mut seen = 0;
    for name in all_pages() {
        let text = read(&name);
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(section) = line.strip_prefix(".Sx ") else {
                continue;
            };
            let section = section.trim_end_matches([' ', '.', ',', ';', ':']);
            let other = match &lines[number + 1..] {
                ["in", link, ..] => link.strip_prefix(".Xr ").map(|link| {
                    let mut words = link.split(' ');
                    format!("man/{}.{}", words.next().unwrap(), words.next().unwrap())
                }),
                _ => None,
            };
            // a list names the page before its sections
            let listed = lines[..number].iter().rev();
            let listed = listed.take_while(|line| line.starts_with(".Sx ")).count();
            let heads = lines[number - listed - 1].strip_suffix(" :");
            let heads = heads
                .and_then(|line| line.strip_prefix(".Xr "))
                .map(|link| {
                    let (page, part) = link.split_once(' ').unwrap();
                    format!("man/{page}.{part}")
                });
            let location = other.or(heads).unwrap_or_else(|| name.clone());
            let text = read(&location);
            let is_there = [".Ss", ".Sh"]
                .iter()
                .any(|kind| text.contains(&format!("\n{kind} {section}\n")));
            assert!(is_there, "{name}: {location} has no section {section}");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

/// What follows a macro on the lines of a page that begin so: `.It Fl -a | Fl -b` has the flags a
/// and b.
fn flags_of(page: &str, begin: &str) -> Names {
    let lines = page.lines().filter(|line| line.starts_with(begin));
    let words = lines.flat_map(|line| {
        line.split("Fl -")
            .skip(1)
            .filter_map(|rest| rest.split([' ', ')']).next())
    });
    words.map(str::to_owned).collect()
}

#[test]
fn pages_have_the_flags_of_the_tools() {
    let mut all = Names::new();
    // the page of two tools is a file with a link to it
    let mut of_pages: BTreeMap<PathBuf, Names> = BTreeMap::new();
    for tool in commands() {
        let mut help = names_of_flags(tool);
        // dgl-tools(7) has these, which all tools have
        for of_all in ["help", "version"] {
            assert!(help.remove(of_all), "{tool}: {help:?}");
        }
        assert!(help.len() > 1 || tool == "dgl-why", "{tool}: {help:?}");
        let path = root().join(format!("man/{tool}.1")).canonicalize().unwrap();
        of_pages.entry(path).or_default().extend(help.clone());
        all.extend(help);
    }
    for (path, help) in of_pages {
        let page = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            flags_of(&page, ".It "),
            help,
            "{}: the page (left) and --help (right)",
            path.display()
        );
    }
    let of_all = Names::from(["help", "version"].map(str::to_owned));
    assert!(flags_of(&read("man/dgl-tools.7"), ".").is_superset(&of_all));
    all.extend(of_all);
    for name in all_pages() {
        let unknown: Vec<_> = flags_of(&read(&name), ".")
            .difference(&all)
            .cloned()
            .collect();
        assert!(unknown.is_empty(), "{name}: no tool has {unknown:?}");
    }
}

/// The tools that the lines of an example run, with the flags they are given; what stands in quotes
/// or behind -- is not theirs.
fn stages(text: &str, help: &BTreeMap<&str, Names>) -> Vec<(String, String)> {
    let lines = text.replace("\\e\n", " ").replace("\\\n", " ");
    let mut stages = Vec::new();
    for stage in lines.lines().flat_map(|line| line.split('|')) {
        let unquoted: String = stage.split('\'').step_by(2).collect();
        let words: Vec<&str> = unquoted
            .split_whitespace()
            .take_while(|word| *word != "--")
            .collect();
        let Some(at) = words.iter().rposition(|word| help.contains_key(word)) else {
            continue;
        };
        let flags = words[at..]
            .iter()
            .filter_map(|word| word.strip_prefix("--")?.split('=').next());
        stages.extend(flags.map(|flag| (words[at].to_owned(), flag.to_owned())));
    }
    stages
}

#[test]
fn slow_examples_have_flags_that_their_tools_have() {
    let dashed = |flags: Names| flags.iter().map(|flag| flag.replace('_', "-")).collect();
    let mut help: BTreeMap<&'static str, Names> = commands()
        .map(|tool| (tool, dashed(names_of_flags(tool))))
        .collect();
    // what a script of GraphStorm's is given stands among the flags, and gs-copy takes the line of
    // gs-launch
    let of_launch = help["gs-launch"].clone();
    let of_scripts = [
        "cf",
        "save-model-path",
        "save-prediction-path",
        "restore-model-path",
    ];
    for tool in ["gs-copy", "gs-launch"] {
        let flags = help.get_mut(tool).unwrap();
        flags.extend(
            of_scripts
                .map(str::to_owned)
                .into_iter()
                .chain(of_launch.clone()),
        );
    }
    let mut texts: Vec<(String, String)> = Vec::new();
    for name in all_pages() {
        let page = read(&name);
        let displays = page
            .split("\n.Bd -literal")
            .skip(1)
            .filter_map(|rest| rest.split("\n.Ed").next());
        let lines = page
            .lines()
            .filter_map(|line| line.strip_prefix(".Dl ").or(line.strip_prefix(".Ql ")));
        texts.push((name, displays.chain(lines).collect::<Vec<_>>().join("\n")));
    }
    let indented: Vec<String> = read("README.md")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("    ")?.to_owned()))
        .collect();
    texts.push(("README.md".to_owned(), indented.join("\n")));
    texts.extend(commands().map(|tool| {
        let shown = sh(&scratch(), &format!("{tool} --help")).out;
        (
            format!("{tool} --help"),
            shown
                .split_once("Examples:")
                .map_or(String::new(), |(_, examples)| examples.to_owned()),
        )
    }));
    let mut seen = 0;
    for (location, text) in texts {
        for (tool, flag) in stages(&text, &help) {
            seen += 1;
            assert!(
                help[tool.as_str()].contains(&flag.replace('_', "-")),
                "{location}: {tool} has no --{flag}"
            );
        }
    }
    assert!(seen > 100, "{seen}");
}

/// The variants of an enum of common/wire as the page has them.
fn variants(module: &str, name: &str) -> Names {
    let source = read(&format!("common/wire/src/{module}.rs"));
    let body = between(&source, &format!("pub enum {name} {{"), "\n}");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| snake_case(line.split(['(', ',', ' ']).next().unwrap()))
        .collect()
}

#[test]
fn the_protocol_of_host_agent_has_every_request_and_event() {
    let page = read("common/wire/host-agent-protocol.7");
    let described = |text: &str, begin: &str| -> Names {
        let items = text.lines().filter_map(|line| line.strip_prefix(begin));
        let names = items.flat_map(|line| line.split([' ', ',']));
        names
            .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
            .map(str::to_owned)
            .collect()
    };
    for (kind, section) in [("Request", "REQUESTS"), ("Event", "EVENTS")] {
        let text = between(&page, &format!("\n.Sh {section}\n"), "\n.Sh ");
        assert_eq!(described(text, ".It Cm "), variants("lib", kind), "{kind}");
    }
    let mut steps = &variants("files", "FileRequest") | &variants("files", "FileStep");
    // flattened: its own variants are what is sent
    steps.remove("step");
    assert_eq!(described(&page, ".It Ic "), steps);
}

/// As serde writes the names of variants.
fn snake_case(name: &str) -> String {
    let letters = name.chars().enumerate().map(|(at, c)| {
        if c.is_uppercase() && at > 0 {
            format!("_{}", c.to_ascii_lowercase())
        } else {
            c.to_ascii_lowercase().to_string()
        }
    });
    letters.collect()
}

#[test]
fn help_fits_a_screen() {
    let folder = scratch();
    // lines of a terminal of 80 columns: -h in one of the usual height, --help in a tall one
    for (help, most) in [("-h", 30), ("--help", 80)] {
        for tool in commands() {
            let shown = sh(&folder, &format!("COLUMNS=80 {tool} {help}")).out;
            assert!(
                shown.lines().count() <= most
                    && shown.lines().all(|line| line.chars().count() <= 80),
                "{tool} {help}:\n{shown}"
            );
            assert_eq!(
                shown.contains("Examples:"),
                help == "--help" || SCRIPTS.contains(&tool),
                "{tool} {help}:\n{shown}"
            );
        }
    }
}

/// The fields of a type of the schema, and those of what failed first within it.
fn fields_of(schema: &Value, name: &str) -> Names {
    let properties = schema["$defs"][name]["properties"].as_object().unwrap();
    let mut fields: Names = properties.keys().cloned().collect();
    fields.remove("type");
    if fields.contains("first_failure") {
        let inner = fields_of(schema, "FirstFailure");
        fields.extend(inner.iter().map(|field| format!("first_failure.{field}")));
    }
    fields
}

#[test]
fn the_manual_has_every_record_and_field() {
    let schema: Value = serde_json::from_str(&read("common/record/records.schema.json")).unwrap();
    let manual = read("man/dgl-tools-records.5");
    let records = between(&manual, ".Sh RECORDS\n", "\n.Sh ");
    let described: Vec<(&str, &str)> = records
        .split("\n.Ss ")
        .skip(1)
        .map(|section| section.split_once('\n').unwrap())
        .collect();

    let kinds = schema["allOf"].as_array().unwrap();
    let kind = |rule: &Value| {
        rule["if"]["properties"]["type"]["const"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let names: Names = kinds.iter().map(kind).collect();
    assert!(names.len() > 10, "{names:?}");
    assert_eq!(
        described
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect::<Names>(),
        names,
        "types: the manual (left), the schema (right)"
    );

    for (kind, text) in described {
        let items = text.lines().filter_map(|line| line.strip_prefix(".It Va "));
        let items: Names = items
            .flat_map(|line| line.split(" , "))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            items,
            fields_of(&schema, kind),
            "{kind}: the manual (left), the schema (right)"
        );
    }
}

#[test]
fn dgl_tools_7_has_every_variable() {
    let source = read("tools/ipconf-check/src/args.rs");
    let mut read_here: Names = source
        .split("env = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect();
    for path in [
        "common/cli/src/lib.rs",
        "common/remote/src/bootstrap.rs",
        "common/remote/src/bootstrap.sh",
    ] {
        let text = read(path);
        let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        read_here.extend(
            words
                .filter(|word| word.starts_with("DGL_TOOLS_"))
                .map(str::to_owned),
        );
    }
    let manual = read("man/dgl-tools.7");
    let described = manual
        .lines()
        .filter_map(|line| line.strip_prefix(".It Ev "));
    assert_eq!(described.map(str::to_owned).collect::<Names>(), read_here);
}

#[test]
fn dgl_mk_7_has_every_target_and_variable() {
    let (makefile, page) = (read("dgl.mk"), read("man/dgl.mk.7"));
    let targets = between(&makefile, "\n.PHONY:", "\n").split_whitespace();
    let described = page.lines().filter_map(|line| line.strip_prefix(".It Cm "));
    assert_eq!(
        described.collect::<BTreeSet<_>>(),
        targets.collect::<BTreeSet<_>>()
    );
    let begins = makefile
        .match_indices("$(")
        .map(|(at, _)| &makefile[at + 2..]);
    let names = begins.filter_map(|rest| rest.split([')', ':']).next());
    let is_variable = |name: &&str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let outside = ["CARGO_TARGET_DIR", "MAKECMDGOALS", "MAKEFILE_LIST", "PATH"];
    let read_here = names
        .filter(is_variable)
        .filter(|name| !outside.contains(name));
    let items = page.lines().filter_map(|line| line.strip_prefix(".It Va "));
    let described = items.flat_map(|line| line.split(" , "));
    assert_eq!(
        described.collect::<BTreeSet<_>>(),
        read_here.collect::<BTreeSet<_>>()
    );
}
