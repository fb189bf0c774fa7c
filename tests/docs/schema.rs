//! The JSON Schema of the records: what tools write holds, and what a release had is still there.
//! Of which types it is made, tests of common/record say.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{root, scratch, sh, write};

const SCHEMA: &str = "common/record/records.schema.json";

fn read(path: impl AsRef<Path>) -> Value {
    let path = root().join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What left the records after a release that promised it, and why. Records of old runs have it
/// still; no tool needs it.
const REMOVED: &[(&str, &str)] = &[
    ("file.fetch", "0.3.0: hosts download their parts by a job"),
    ("fit", "0.4.0: a recipe of jq compares sizes with hosts"),
    ("link", "0.3.0: iperf3, run as a job, measures bandwidth"),
    (
        "sample",
        "0.5.0: vmstat, pidstat or nvidia-smi dmon, run as a service of the job",
    ),
    (
        "process.nproc",
        "0.3.0: torchrun is the command of one process",
    ),
    (
        "process.attempt_text",
        "0.5.0: {attempt} is a placeholder or ordinary text, not both",
    ),
    ("reaped.folders", "0.4.0: hosts keep no directories of jobs"),
    (
        "stack.threads[].native",
        "0.3.0: py-spy shows the functions of C and C++",
    ),
];

/// A schema of one release and that of a later state.
struct Releases {
    old: Value,
    new: Value,
}

/// What a schema says, behind its references, each time with what stands beside them.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(name) => root.pointer(&name[1..]).expect(name),
        None => schema,
    }
}

/// The JSON types that a value may have.
fn types<'a>(root: &'a Value, schema: &'a Value) -> BTreeSet<&'a str> {
    let schema = resolved(root, schema);
    let choices = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(choices) = choices {
        return choices.iter().flat_map(|one| types(root, one)).collect();
    }
    schema["type"].as_str().into_iter().collect()
}

impl Releases {
    /// What a program that reads records of the old release would no longer find, or no longer
    /// understand.
    fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let records = self.old["allOf"].as_array().unwrap();
        for record in records {
            let name = record["then"]["$ref"].as_str().unwrap();
            match (self.old.pointer(&name[1..]), self.new.pointer(&name[1..])) {
                (Some(old), Some(new)) => self.compare(name, old, new, &mut broken),
                _ => broken.push(format!("{name}: is gone")),
            }
        }
        let is_removed = |one: &String| {
            let mut removed = REMOVED.iter();
            removed.any(|(what, _)| *one == format!("#/$defs/{what}: is gone"))
        };
        broken.retain(|one| !is_removed(one));
        broken
    }

    fn compare(&self, path: &str, old: &Value, new: &Value, broken: &mut Vec<String>) {
        let of = (types(&self.old, old), types(&self.new, new));
        let is_known =
            |name: &&str| of.0.contains(name) || *name == "integer" && of.0.contains("number");
        // a schema without a type allows any
        if of.1.is_empty() != of.0.is_empty() || !of.1.iter().all(is_known) {
            broken.push(format!("{path}: was {:?}, is {:?}", of.0, of.1));
        }
        let (old, new) = (resolved(&self.old, old), resolved(&self.new, new));
        for word in ["const", "format"] {
            if !old[word].is_null() && old[word] != new[word] {
                broken.push(format!(
                    "{path}: {word} was {}, is {}",
                    old[word], new[word]
                ));
            }
        }
        let names = |schema: &Value| -> BTreeSet<String> {
            let names = schema["required"].as_array().into_iter().flatten();
            names
                .map(|name| name.as_str().unwrap().to_owned())
                .collect()
        };
        for name in names(old).difference(&names(new)) {
            broken.push(format!("{path}.{name}: may be absent"));
        }
        for (name, old) in old["properties"].as_object().into_iter().flatten() {
            match new["properties"].get(name) {
                Some(new) => self.compare(&format!("{path}.{name}"), old, new, broken),
                None => broken.push(format!("{path}.{name}: is gone")),
            }
        }
        for word in ["items", "additionalProperties"] {
            if old[word].is_object() {
                self.compare(&format!("{path}[]"), &old[word], &new[word], broken);
            }
        }
    }
}

/// The schemas of releases, which tests/fixtures keeps.
fn released() -> Vec<PathBuf> {
    let files = std::fs::read_dir(root().join("tests/fixtures")).unwrap();
    files
        .map(|file| file.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".schema.json"))
        .collect()
}

/// Fields are added, never renamed or given another meaning. Where this fails, the change needs a
/// new field or a new type, not a new fixture.
#[test]
fn records_keep_what_each_release_promised() {
    let released = released();
    assert!(!released.is_empty());
    for path in released {
        let (old, new) = (read(&path), read(SCHEMA));
        let broken = Releases { old, new }.broken();
        assert!(broken.is_empty(), "{}: {broken:#?}", path.display());
    }
}

#[test]
fn a_change_that_readers_would_notice_is_found() {
    let old = read(SCHEMA);
    assert_eq!(
        Releases {
            old: old.clone(),
            new: old.clone()
        }
        .broken(),
        [""; 0]
    );
    let (integer, text) = (json!({ "type": "integer" }), json!({ "type": "string" }));
    let table = [
        ("/$defs/pulled", None, "pulled: is gone"),
        (
            "/$defs/exited/properties/code",
            None,
            "exited.code: is gone",
        ),
        (
            "/$defs/exited/properties/code",
            Some(&text),
            "exited.code: was",
        ),
        ("/$defs/exited/properties/cpu_s", Some(&integer), ""),
        (
            "/$defs/file/properties/mode",
            Some(&json!({ "type": "number" })),
            "file.mode: was",
        ),
        (
            "/$defs/exited/properties/role",
            Some(&json!({ "type": "object" })),
            "exited.role: was",
        ),
        ("/$defs/exited/properties/role", Some(&text), ""),
        ("/$defs/exited/properties/more", Some(&text), ""),
        (
            "/$defs/started/required",
            Some(&json!(["type"])),
            "started.pid: may be absent",
        ),
        (
            "/$defs/output/properties/type",
            Some(&json!({ "const": "line" })),
            "output.type: const",
        ),
        ("/$defs/IpAddr/format", None, "host.ip: format was"),
        (
            "/$defs/Thread/properties/frames/items",
            Some(&integer),
            "threads[].frames[]: was",
        ),
        (
            "/$defs/FirstFailure/properties/host",
            None,
            "first_failure.host: is gone",
        ),
        (
            "/$defs/process/properties/env",
            Some(&json!({ "type": "object" })),
            "process.env[]: ",
        ),
    ];
    for (pointer, value, expected) in table {
        let mut new = old.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = new.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => parent.insert(name.to_owned(), value.clone()),
            None => parent.shift_remove(name),
        };
        let broken = Releases {
            old: old.clone(),
            new,
        }
        .broken();
        let is_found = match expected {
            "" => broken.is_empty(),
            _ => broken.iter().any(|one| one.contains(expected)),
        };
        assert!(is_found, "{pointer} {value:?}: {broken:?}");
    }
}

/// Checks each line of the files that it is given, and ends with the types that they have.
const CHECK: &str = r#"
import json, sys
from jsonschema import Draft202012Validator as Validator
schema = json.load(open(sys.argv[1]))
Validator.check_schema(schema)
validator = Validator(schema, format_checker=Validator.FORMAT_CHECKER)
types = set()
for path in sys.argv[2:]:
    for number, line in enumerate(open(path), 1):
        record = json.loads(line)
        types.add(record["type"])
        for error in validator.iter_errors(record):
            print(f"{path}:{number}: {error.json_path}: {error.message}")
print(*sorted(types))
"#;

/// What is wrong with the records of these files, and their types, by a validator that is not ours;
/// `None` where it cannot be had.
fn check(folder: &Path, files: &str) -> Option<String> {
    let pip = format!(
        "'{}/tests/pip.sh' jsonschema jsonschema jsonschema==4.26.0",
        root().display()
    );
    let bin = sh(folder, &pip);
    if bin.status == 69 {
        support::skipped!("{}", bin.err);
        return None;
    }
    write(folder, "check.py", CHECK);
    let (python, schema) = (bin.out.trim(), root().join(SCHEMA));
    let script = format!("'{python}/python' check.py '{}' {files}", schema.display());
    let checked = sh(folder, &script);
    checked.ends(0);
    Some(checked.out)
}

/// The types that the schema knows, sorted.
fn record_types() -> Vec<String> {
    let schema = read(SCHEMA);
    let cases = schema["allOf"].as_array().unwrap().iter();
    let name = |case: &Value| {
        case["then"]["$ref"]
            .as_str()
            .unwrap()
            .replace("#/$defs/", "")
    };
    let mut types: Vec<String> = cases.map(name).collect();
    types.sort();
    types
}

/// Every tool that writes records, on this machine; $JOB is the job's name.
const RUN: &str = r#"
    export DGL_TOOLS_CONNECT=local
    printf '%s\n' 'import time' 'print("begins", flush=True)' 'time.sleep(60)' >w.py
    set -e
    echo 127.0.0.1 >ip.txt
    ipconf-check ip.txt | host-probe >hosts.jsonl
    part-map --part-config "$FIXTURE/g.json" --parts-per-host 2 --workspace "$PWD/ws" <hosts.jsonl |
      part-push >graph.jsonl
    part-pull --workspace "$PWD/ws" --to . '*/g.json' <hosts.jsonl >pulled.jsonl
    part-map --workspace "$PWD/ws2" --extra w.py <hosts.jsonl | part-push |
      dgl-env --role worker -- python3 w.py >job.jsonl
    dgl-spawn --job "$JOB" --wait 1m --grace 1s <job.jsonl >run.jsonl &
    until grep -q begins run.jsonl; do kill -0 $!; sleep 0.1; done
    dgl-reap --list <hosts.jsonl >found.jsonl
    dgl-stacks --job "$JOB" <hosts.jsonl >stacks.jsonl
    dgl-reap --job "$JOB" --grace 1s <hosts.jsonl >reaped.jsonl
    ! wait $!"#;

#[test]
fn slow_records_that_tools_write_are_as_the_schema_says() {
    let folder = scratch();
    let fixture = root().join("tests/fixtures/dgl-1.0.4-homo");
    // another run of this test may be at work on this machine
    let (job, fixture) = (format!("schema-{}", std::process::id()), fixture.display());
    sh(&folder, &format!("JOB='{job}' FIXTURE='{fixture}'; {RUN}")).ends(0);
    let recordings = root().join("tools/dgl-why/tests/recordings");
    let files = format!("*.jsonl $(find '{}' -name '*.jsonl')", recordings.display());
    let Some(checked) = check(&folder, &files) else {
        return;
    };
    // what only a slow reader and a job that stalled and moves again have
    let mut seen = record_types();
    seen.retain(|name| !["dropped", "resumed"].contains(&name.as_str()));
    assert_eq!(checked, format!("{}\n", seen.join(" ")));
}

/// That they are what the types write, a test of common/record says.
#[test]
fn slow_examples_of_the_manual_are_as_the_schema_says() {
    let folder = scratch();
    let manual = std::fs::read_to_string(root().join("man/dgl-tools-records.5")).unwrap();
    let examples = manual.split("\n.Bd -literal -offset indent\n{").skip(1);
    let lines: Vec<String> = examples
        .map(|example| {
            let (example, _) = example.split_once("\n.Ed").unwrap();
            let line = example.replace("\n    ", " ").replace("\n  ", "");
            format!("{{{}\n", line.replace("\\e", "\\"))
        })
        .collect();
    write(&folder, "examples.jsonl", lines.concat());
    if let Some(checked) = check(&folder, "examples.jsonl") {
        assert_eq!(checked, format!("{}\n", record_types().join(" ")));
    }
}

/// A validator that finds nothing wrong would show nothing.
#[test]
fn slow_what_is_not_as_the_schema_says_is_found() {
    let folder = scratch();
    let lines = [
        r#"{"type":"dropped","lines":1,"time_ms":2,"more":true}"#,
        r#"{"type":"of a later version"}"#,
        r#"{"type":"dropped","lines":"1","time_ms":2}"#,
        r#"{"type":"dropped","lines":1}"#,
        r#"{"type":"host","id":0,"of":1,"ip":"h1","port":30050}"#,
        r#"{"type":"host","id":0,"of":1,"ip":"10.0.0.1","port":30050,"cpus":null}"#,
        r#"{"type":"started","id":0,"host":0,"role":"A","rank":0,"pid":1,"time_ms":2}"#,
    ];
    write(&folder, "wrong.jsonl", lines.join("\n"));
    let Some(checked) = check(&folder, "wrong.jsonl") else {
        return;
    };
    let lines = checked
        .lines()
        .filter_map(|line| line.strip_prefix("wrong.jsonl:"));
    let lines: Vec<&str> = lines
        .map(|line| line.split_once(": $").unwrap().0)
        .collect();
    assert_eq!(lines, ["3", "4", "5", "6", "7"], "{checked}");
}
