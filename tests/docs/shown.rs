//! Commands that README and the manual show with what they print: each runs on real hosts, and
//! must print that.

use serde_json::Value;
use std::path::PathBuf;
use support::{Cluster, Turn, first_free, root, scratch, sh, write};

/// Values that differ from run to run, and from machine to machine.
const VOLATILE: &[&str] = &[
    "MASTER_PORT",
    "OMP_NUM_THREADS",
    "age_s",
    "cpu_s",
    "cpus",
    "elapsed_ms",
    "gpus",
    "master_port",
    "max_rss_bytes",
    "mem_bytes",
    "mtime_nsec",
    "mtime_s",
    "nofile",
    "numa_cores",
    "pid",
    "python_path",
    "rss_bytes",
    "shm_bytes",
    "shm_free_bytes",
    "silent_s",
    "since_ms",
    "tid",
    "time_ms",
];

const TRAIN: &str = r#"import os
rank, host = os.environ["RANK"], os.environ["GROUP_RANK"]
assert open(f"shards/{host}.npz").read() == f"shard of {host}\n"
open(f"model-{rank}.pt", "w").write(rank)
print("step 0 loss 1.2")
"#;

/// A command with what it prints.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The commands of a block. A command goes on behind a `\` or a `|`. What is printed goes on in a
/// line that begins with four blanks, where it has one, or with two within a record, where it has
/// none.
fn commands(block: &str) -> Vec<Shown> {
    let mut commands: Vec<Shown> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push(Shown {
                command: command.to_owned(),
                output: Vec::new(),
            });
            continue;
        }
        let last = commands.last_mut();
        let Shown { command, output } = last.unwrap_or_else(|| panic!("no command: {block}"));
        match output.last_mut() {
            None if command.ends_with(['\\', '|']) => *command += &format!("\n{line}"),
            Some(before) if line.starts_with("    ") => *before += &line[3..],
            Some(record) if record.starts_with('{') && line.starts_with("  ") => {
                *record += &line[2..];
            }
            _ => output.push(line.to_owned()),
        }
    }
    commands
}

/// Puts the JSON type in the place of each volatile value.
fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if VOLATILE.contains(&name.as_str()) {
                    *value = json_type(value).into();
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        _ => {}
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A line without what differs from run to run, and from machine to machine.
fn comparable(line: &str) -> String {
    if let Ok(mut record) = serde_json::from_str::<Value>(line) {
        mask(&mut record);
        return record.to_string();
    }
    let is_count = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let is_duration = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    if line.contains('\t') {
        let cell = |cell| if is_count(cell) { "N" } else { cell };
        return line.split('\t').map(cell).collect::<Vec<_>>().join("\t");
    }
    let (before, _) = line.split_once(" after ").unwrap_or((line, ""));
    let word = |word| if is_duration(word) { "N" } else { word };
    before.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The lines in order: hosts report in that of their ends.
fn sorted<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = lines.map(comparable).collect();
    lines.sort();
    lines
}

/// Two hosts, gpu1 and gpu2, and on the first a directory with a script, a file for each host, and
/// a partitioned graph.
pub struct Demo {
    pub folder: PathBuf,
    pub cluster: Cluster,
    home: String,
    made_workspace: bool,
    /// The workspace in the home is one test's at a time.
    _turn: Turn,
}

impl Demo {
    pub fn start() -> Demo {
        let folder = scratch();
        let cluster = Cluster::up(2);
        // where gpu3 should be, there is no host
        let names = [("gpu1", 1), ("gpu2", 2), ("gpu3", 9)]
            .map(|(name, number)| format!("Host {name}\n  HostName 10.77.0.{number}\n"));
        write(&cluster.lab.join("h1/ssh"), "config", names.concat());
        write(&folder, "code/train.py", TRAIN);
        for host in 0..2 {
            write(
                &folder,
                format!("shards/{host}.npz"),
                format!("shard of {host}\n"),
            );
        }
        let graph = root().join("tests/fixtures/dgl-1.0.4-homo");
        sh(&folder, &format!("cp -r '{}' out", graph.display())).ends(0);
        // hosts share the home of this machine, so each gets a directory of its own there
        let home = sh(&folder, "eval echo ~$(id -un)").out.trim().to_owned();
        let turn = first_free(&["workspace"]);
        let made_workspace = sh(&folder, &format!("mkdir {home}/job")).status == 0;
        for host in 1..=2 {
            let mount = format!("mkdir /srv/job && mount --bind /srv/job {home}/job");
            cluster.on(host, &mount).ends(0);
        }
        Demo {
            folder,
            cluster,
            home,
            made_workspace,
            _turn: turn,
        }
    }

    /// Runs each command of a block, and returns how many there are.
    pub fn follow(&self, block: &str) -> usize {
        let here = self.folder.display().to_string();
        let shown = commands(block);
        for Shown { command, output } in &shown {
            let ran = self
                .cluster
                .sh(&self.folder, &format!("{{ {command}\n}} 2>&1"));
            let printed = ran
                .out
                .replace(&here, "/home/ann/demo")
                .replace(&self.home, "/home/ann")
                .replace("10.77.0.", "10.0.0.");
            assert_eq!(
                sorted(printed.lines()),
                sorted(output.iter().map(String::as_str)),
                "{command}\n{printed}"
            );
        }
        shown.len()
    }

    pub fn end(self) {
        self.cluster.assert_clean();
        if self.made_workspace {
            sh(&self.folder, &format!("rmdir {}/job", self.home)).ends(0);
        }
    }
}

/// The pages that show their records, in the order in which their commands run.
const PAGES: [&str; 11] = [
    "ipconf-check",
    "host-probe",
    "part-map",
    "part-push",
    "dgl-env",
    "dgl-spawn",
    "part-pull",
    "dgl-why",
    "dgl-stacks",
    "dgl-reap",
    "host-swap",
];

/// The displays of a page's section on its records, as a terminal shows them.
fn displays(page: &str) -> Vec<String> {
    let manual = std::fs::read_to_string(root().join(format!("man/{page}.1"))).unwrap();
    let section = manual.split_once("\n.Sh RECORDS\n");
    let (_, section) = section.unwrap_or_else(|| panic!("{page}: no section RECORDS"));
    let (section, _) = section.split_once("\n.Sh ").unwrap();
    let unescaped = |text: &str| {
        text.replace("\\e", "\\")
            .replace("\\(dq", "\"")
            .replace("\\(aq", "'")
            .replace("\\(ti", "~")
    };
    section
        .split("\n.Bd -literal -offset indent\n")
        .skip(1)
        .map(|rest| unescaped(rest.split("\n.Ed").next().unwrap()))
        .collect()
}

#[test]
fn real_hosts_print_the_records_that_pages_show() {
    if support::only_root_can("mount on a host") {
        return;
    }
    let demo = Demo::start();
    for page in PAGES {
        let shown: usize = displays(page).iter().map(|block| demo.follow(block)).sum();
        assert!(shown > 1, "{page}: {shown} commands");
    }
    demo.end();
}
