//! dgl-env against DGL's own launcher, and against records that were edited on the way.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;
use support::{executable, make_folder, ran, root, scratch, sh, write};

/// What dgl-env sets and the launcher of some release, or of all, does not; on purpose.
const MORE: [&str; 7] = [
    "DGL_GRAPH_FORMAT",
    "DGL_GROUP_ID",
    "DGL_KEEP_ALIVE",
    "OMP_NUM_THREADS",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONFAULTHANDLER",
];

/// A process: role and rank, directory, variables, words.
type Seen = (String, String, BTreeMap<String, String>, String);

fn variables(text: &str) -> BTreeMap<String, String> {
    text.split(' ')
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A program that writes down what it was started with and where.
fn stand_in(folder: &Path, name: &str, text: &str) {
    executable(&folder.join("bin"), name, &format!("#!/bin/sh\n{text}\n"));
}

/// Runs the processes of a plan here, with stand-ins for their programs.
fn run_plan(folder: &Path, plan: &str) -> Vec<Seen> {
    let mut seen = Vec::new();
    for line in plan.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if record["type"] != "process" {
            continue;
        }
        let mut command = match record["argv"].as_array() {
            Some(words) => {
                let mut command = Command::new(words[0].as_str().unwrap());
                command.args(words[1..].iter().map(|word| word.as_str().unwrap()));
                command
            }
            None => {
                let mut command = Command::new("sh");
                command.args(["-c", record["shell"].as_str().unwrap()]);
                command
            }
        };
        let env = record["env"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name, value.as_str().unwrap()));
        command.env_clear().envs(env).env(
            "PATH",
            format!("{}:/usr/bin:/bin", folder.join("bin").display()),
        );
        let ran = ran(command
            .current_dir(record["cwd"].as_str().unwrap())
            .output()
            .unwrap());
        ran.ends(0);
        let mut lines = ran.out.lines();
        let (cwd, words) = (
            lines.next().unwrap().to_owned(),
            lines.next().unwrap().to_owned(),
        );
        let mut env: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        env.retain(|name, _| !["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()));
        seen.push((
            format!("{} {}", record["role"].as_str().unwrap(), record["rank"]),
            cwd,
            env,
            words,
        ));
    }
    seen.sort();
    seen
}

/// A process of DGL's launcher, or the trainers that torch's launcher makes of it: dgl-env starts
/// them itself, with the variables that torch gives them.
fn started((role, cwd, env, words): Seen) -> Vec<Seen> {
    let Some((python, rest)) = words.split_once(" -m torch.distributed.") else {
        return vec![(role, cwd, env, words)];
    };
    let (torch, script) = rest.split_once(" --master_port=1234 ").unwrap();
    let number = |name: &str| -> u32 {
        let mut words = torch.split(' ');
        let value = words.find_map(|word| word.strip_prefix(name)).unwrap();
        value.parse().unwrap()
    };
    let (count, node) = (number("--nproc_per_node="), number("--node_rank="));
    let trainer = |local_rank: u32| {
        let rank = node * count + local_rank;
        let of_torch = [
            ("RANK", rank),
            ("LOCAL_RANK", local_rank),
            ("WORLD_SIZE", number("--nnodes=") * count),
            ("LOCAL_WORLD_SIZE", count),
            ("GROUP_RANK", node),
            ("MASTER_PORT", 1234),
        ];
        let mut env = env.clone();
        env.extend(of_torch.map(|(name, value)| (name.to_owned(), value.to_string())));
        env.insert("MASTER_ADDR".to_owned(), "10.0.0.1".to_owned());
        let words = format!("{python} {script}");
        (format!("trainer {rank}"), cwd.clone(), env, words)
    };
    (0..count).map(trainer).collect()
}

#[test]
fn processes_see_what_dgls_own_launcher_gives_them() {
    let folder = scratch();
    let ws = folder.join("ws");
    make_folder(&ws, "code");
    for python in ["python", "python3", "python3.8"] {
        stand_in(
            &folder,
            python,
            "printf '%s\\n' \"$PWD\" \"${0##*/} $*\"; env",
        );
    }
    stand_in(&folder, "numactl", "shift; exec \"$@\"");
    write(&folder, "ip.txt", "10.0.0.1 30050\n10.0.0.2 30050\n");

    let table = read_to_string(root().join("tests/dgl_env/launch_py.txt"))
        .unwrap()
        .replace("/ws", &ws.display().to_string());
    let mut compared = 0;
    for block in table.split("\n\n").skip(1) {
        let line = |name: &str| {
            block
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .trim()
        };
        let rows: Vec<Vec<&str>> = block
            .lines()
            .filter(|line| line.contains(" | "))
            .map(|line| line.split(" | ").map(str::trim).collect())
            .collect();
        let releases: std::collections::BTreeSet<&str> =
            rows.iter().flat_map(|row| row[0].split(' ')).collect();
        let differs = variables(line("differs "));
        // launch.py takes all of them behind one --extra_envs
        let flags = match line("flags ").split_once("--extra_envs") {
            Some((flags, extra)) => format!("{flags}{}", extra.replace(' ', " --env ")),
            None => line("flags ").to_owned(),
        };
        let script = format!(
            "unset OMP_NUM_THREADS PYTHONPATH; export {} NONE=; ipconf-check ip.txt | jq -c \
                 '.cpus=2' | \
                 dgl-env --workspace '{}' --master-port 1234 {flags} '{}'",
            line("here "),
            ws.display(),
            line("command ")
        );
        let plan = sh(&folder, &script);
        plan.ends(0);
        let ours = run_plan(&folder, &plan.out);
        for release in releases {
            let of_release = rows
                .iter()
                .filter(|row| row[0].split(' ').any(|other| other == release));
            let mut theirs: Vec<Seen> = of_release
                .flat_map(|row| {
                    started((
                        row[1].to_owned(),
                        row[3].to_owned(),
                        variables(row[4]),
                        row[5].to_owned(),
                    ))
                })
                .collect();
            theirs.sort();
            assert_eq!(ours.len(), theirs.len(), "{script}");
            for (ours, mut theirs) in ours.iter().zip(theirs) {
                let more = ours
                    .2
                    .iter()
                    .filter(|(name, _)| MORE.contains(&name.as_str()));
                for (name, value) in more {
                    theirs.2.entry(name.clone()).or_insert(value.clone());
                }
                if ours.0.starts_with("trainer") {
                    theirs.2.extend(differs.clone());
                }
                assert_eq!(*ours, theirs, "DGL {release}: {script}");
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "the table was read: {compared}");
}
