//! gs-copy and gs-launch: GraphStorm's command lines, and what GraphStorm's own launchers would
//! run. tests/dgl/graphstorm.rs runs them with GraphStorm itself.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::{executable, make_folder, root, scratch, sh, write};

/// A process: its host, directory, variables and words.
#[derive(Debug)]
struct Seen {
    ip: String,
    cwd: String,
    env: BTreeMap<String, String>,
    words: Vec<String>,
}

fn seen(process: &Value, words: &str) -> Seen {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let env = process["env"].as_object().unwrap();
    Seen {
        ip: text(&process["ip"]),
        cwd: text(&process["cwd"]),
        env: env
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        words: process[words]
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect(),
    }
}

/// A process of GraphStorm's launcher, or those that torch's launcher makes of it, as torch 1 does.
fn started(process: &Value) -> Vec<Seen> {
    let mut one = seen(process, "words");
    one.words.retain(|word| word != "-u");
    if !one.words.contains(&"torch.distributed.launch".to_owned()) {
        return vec![one];
    }
    let nproc: usize = one.words[3]
        .strip_prefix("--nproc_per_node=")
        .unwrap()
        .parse()
        .unwrap();
    let script = one
        .words
        .iter()
        .position(|word| word.starts_with("--master_port="))
        .unwrap()
        + 1;
    let trainer = |rank: usize| Seen {
        ip: one.ip.clone(),
        cwd: one.cwd.clone(),
        env: one.env.clone(),
        words: [
            &[
                "PYTHON".to_owned(),
                one.words[script].clone(),
                format!("--local_rank={rank}"),
            ],
            &one.words[script + 1..],
        ]
        .concat(),
    };
    (0..nproc).map(trainer).collect()
}

/// The words of ours as GraphStorm's launcher would say them: scripts by their files.
fn by_file(mut words: Vec<String>) -> Vec<String> {
    assert_eq!(words[0], "python3");
    words[0] = "PYTHON".to_owned();
    if words[1] == "-m"
        && let Some(module) = words[2].strip_prefix("graphstorm.run.")
    {
        words[1] = format!("GS/{}.py", module.replace('.', "/"));
        words.remove(2);
    }
    words
}

/// A directory where hosts are neither asked nor reached: host-probe says they have 16 processors,
/// and dgl-spawn writes down what it was to start, and with which flags.
fn stand_ins() -> PathBuf {
    let folder = scratch();
    make_folder(&folder, "ws/data");
    write(&folder, "ws/ip.txt", "10.0.0.1 30050\n10.0.0.2 30050\n");
    executable(
        &folder,
        "bin/host-probe",
        "#!/bin/sh\nexec jq -c '.cpus = 16'\n",
    );
    let spawn = "#!/bin/sh\necho \"${DGL_TOOLS_SSH_USERNAME-}:${DGL_TOOLS_SSH_PORT-} $*\" >>flags; \
        jq -c 'select(.type == \"process\")' >>started\n";
    executable(&folder, "bin/dgl-spawn", spawn);
    folder
}

/// What a command line starts: its processes, and the user, port and flags of each dgl-spawn.
fn run(folder: &Path, line: &str) -> (i32, Vec<Seen>, String) {
    let begin = "unset OMP_NUM_THREADS PYTHONPATH; PATH=$PWD/bin:$PATH; rm -f started flags";
    let ran = sh(folder, &format!("{begin}; {line}"));
    let started = fs::read_to_string(folder.join("started")).unwrap_or_default();
    let records = started
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let flags = fs::read_to_string(folder.join("flags")).unwrap_or_default();
    assert!(!flags.is_empty(), "{line}: {}", ran.err);
    (
        ran.status,
        records.map(|record| seen(&record, "argv")).collect(),
        flags,
    )
}

#[test]
fn slow_processes_are_those_that_graphstorms_own_launchers_start() {
    let folder = stand_ins();
    let ws = folder.join("ws").display().to_string();
    let recorded = fs::read_to_string(root().join("tests/graphstorm/launcher.jsonl")).unwrap();
    let mut compared = 0;
    for case in recorded.replace("/ws", &ws).lines() {
        let case: Value = serde_json::from_str(case).unwrap();
        let line = case["line"].as_str().unwrap();
        let (status, ours, flags) = run(&folder, &format!("gs-launch {line}"));
        assert_eq!(status, 0, "{line}");
        let theirs = case["processes"].as_array().unwrap();
        let logs_in = theirs[0]["login"] == "bob:2222";
        assert_eq!(flags.starts_with("bob:2222 "), logs_in, "{line}");
        let theirs: Vec<Seen> = theirs.iter().flat_map(started).collect();
        assert_eq!(ours.len(), theirs.len(), "{line}");
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            assert_eq!((ours.ip, ours.cwd), (theirs.ip, theirs.cwd), "{line}");
            assert_eq!(by_file(ours.words), theirs.words, "{line}");
            for (name, value) in theirs.env.iter().filter(|(_, value)| !value.is_empty()) {
                assert_eq!(ours.env.get(name), Some(value), "{line}: {name}");
            }
            compared += 1;
        }
    }
    assert!(compared > 250, "{compared}");
}

#[test]
fn a_line_for_graphstorm_needs_but_a_word_before_it() {
    let folder = stand_ins();
    let flags = "--workspace \"$PWD/ws\" --part-config data/g.json --ip-config ip.txt \
        --num-trainers 1 --cf 'my c.yaml' --extra-envs 'A=$x y' B= --verbose True \
        --lm-encoder-only --job j --log-dir logs --num-server-threads 1 --num-omp-threads 2 \
        --graph-format csr";
    let bare = run(&folder, &format!("gs-launch gs_edge_regression {flags}")).1;
    assert_eq!(
        by_file(bare[0].words.clone())[1],
        "GS/gsgnn_ep/gsgnn_lm_ep.py"
    );
    let of_env =
        ["A", "B", "OMP_NUM_THREADS", "DGL_GRAPH_FORMAT"].map(|name| bare[2].env[name].as_str());
    assert_eq!(of_env, ["$x y", "", "2", "csr"]);
    assert!(
        bare[0].words.contains(&"my c.yaml".to_owned()),
        "{:?}",
        bare[0].words
    );

    let whole = format!("gs-launch /v/bin/python3 -u -m graphstorm.run.gs_edge_regression {flags}");
    let (_, with_python, spawned) = run(&folder, &whole);
    assert!(
        with_python
            .iter()
            .all(|process| process.words[0] == "/v/bin/python3")
    );
    assert_eq!(with_python[0].words[1..], bare[0].words[1..]);
    let spawn = |logs| format!(": --job j --format human --log-dir {logs}\n");
    assert_eq!(spawned, spawn("logs") + &spawn("logs/remap"));

    // what is shown can be pasted
    let shown = format!("gs-launch --print gs_edge_regression {flags} >shown && . ./shown");
    let pasted = run(&folder, &shown).1;
    let words = |all: &[Seen]| all.iter().map(|one| one.words.clone()).collect::<Vec<_>>();
    assert_eq!(words(&pasted), words(&bare));

    // the workspace is this directory, as for GraphStorm
    let here = "cd ws; gs-launch gs_node_regression --part-config \
        data/g.json --ip-config ip.txt --num-trainers 1 --do-nid-remap=false; mv started flags ..";
    let here = run(&folder, here).1;
    assert_eq!(
        (here.len(), here[0].cwd.as_str()),
        (4, folder.join("ws").to_str().unwrap())
    );
}
