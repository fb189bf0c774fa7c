//! Several programs in one job: a service and those that it serves.

use serde_json::Value;
use std::path::Path;
use support::{
    Cluster, Ran, assert_has, executable, ip_config, make_folder, read, recipe_commands,
    recipes_of, root, scratch, sh, write,
};

const STORE: &str = r#"
import socket, sys
listener = socket.create_server(("", int(sys.argv[1])))
print("serves", sys.argv[2:], flush=True)
while True:
    conversation, _ = listener.accept()
    conversation.sendall(b"data of the store")
    conversation.close()
"#;
const TRAIN: &str = r#"
import os, socket, sys, time
for _ in range(100):
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as conversation:
            data = conversation.recv(100).decode()
            print(os.environ["RANK"], os.environ["WORLD_SIZE"], data, flush=True)
        sys.exit(int(sys.argv[3]))
    except OSError:
        time.sleep(0.1)
sys.exit(9)
"#;

fn scripts(folder: &Path) {
    let folder = folder.join("code");
    std::fs::create_dir(&folder).unwrap();
    write(&folder, "store.py", STORE);
    write(&folder, "train.py", TRAIN);
}

/// A job on this machine whose store runs `store` and whose two trainers run `train`.
fn job(folder: &Path, store: &str, train: &str, options: &str) -> Ran {
    scripts(folder);
    ip_config(folder, 1);
    let name = folder.file_name().unwrap().display();
    let script = format!(
        "echo 127.0.0.1 > ip.txt
         # ports of jobs of other tests are in nobody's way
         apart='if .type == \"host\" then . + {{master_port: 29570, free_ports: [29571, 29572]}}
           else . end'
         ipconf-check ip.txt | host-probe --connect local | jq -c \"$apart\" |
           dgl-env --program store --service --workspace \"$PWD\" -- {store} |
           dgl-env --program train --workspace \"$PWD\" --num-workers 2 -- {train} |
           dgl-spawn --connect local --job {name} --grace 2s {options} >run.jsonl 2>run.txt
         echo \"status $?\"; cat run.txt >&2; cat run.jsonl"
    );
    sh(folder, &script)
}

const STORE_LINE: &str = "python3 code/store.py {port:rpc} {rank}";
const TRAIN_LINE: &str = "python3 code/train.py {store.master_addr} {store.port:rpc}";

#[test]
fn slow_a_service_is_ended_with_those_that_it_serves_and_a_failure_ends_all() {
    let ran = job(&scratch(), STORE_LINE, &format!("{TRAIN_LINE} 0"), "");
    ran.ends(0).out_has("status 0\n");
    let lines: Vec<String> = ran
        .records("output")
        .into_iter()
        .map(|output| format!("{}: {}", output["id"], output["line"]))
        .collect();
    for line in [
        r#"0: "serves ['0']""#,
        r#"1: "0 2 data of the store""#,
        r#"2: "1 2 data of the store""#,
    ] {
        assert!(lines.iter().any(|other| other == line), "{lines:?}");
    }
    let ended: Vec<Value> = ran
        .records("exited")
        .into_iter()
        .filter(|exited| exited["role"] == "store")
        .collect();
    assert!(
        ended.len() == 1 && ended[0]["signal"] == "TERM" && ended[0]["while_ending"] == true,
        "{ended:?}"
    );

    // here, because both would take the same ports
    let table = [
        (STORE_LINE, format!("{TRAIN_LINE} 7"), 7, "train "),
        (
            "sh -c 'exit 5' {port:rpc}",
            format!("{TRAIN_LINE} 0"),
            5,
            "store 0 on host 0 (127.0.0.1) exited with status 5",
        ),
        (
            "true",
            "sleep 60".to_owned(),
            1,
            "store 0 is a service, and exited before the other programs",
        ),
    ];
    for (store, train, status, problem) in table {
        let ran = job(&scratch(), store, &train, "--host-timeout 2s");
        ran.out_has(&format!("status {status}\n")).err_has(problem);
        assert_eq!(ran.records("exited").len(), 3, "{}", ran.err);
    }
}

#[test]
fn slow_programs_are_listed_shown_and_signalled_by_their_names() {
    let script = "echo 127.0.0.1 > ip.txt
        waits='import time; time.sleep(99)'
        ipconf-check ip.txt |
          dgl-env --program store --service --master-port 29590 -- python3 -c \"$waits\" |
          dgl-env --program train --num-workers 2 -- python3 -c \"$waits\" >job.jsonl
        dgl-spawn --connect local --job named --no-preflight --grace 2s <job.jsonl >run.jsonl & p=$!
        until [ \"$(grep -c '\"started\"' run.jsonl)\" = 3 ]; do sleep 0.1; done
        hosts() { ipconf-check ip.txt; }
        hosts | dgl-reap --connect local --list --format human | grep named
        until hosts | dgl-stacks --connect local --job named --role train --format human |
          grep 'train 0-1, waiting'; do sleep 0.2; done
        hosts | dgl-reap --connect local --job named --role train --rank 1 --signal KILL >reaped
        wait $p; echo \"status $?\"";
    sh(&scratch(), script)
        .out_has("1 host, 1 store process, 2 train processes, ")
        .out_has("train 0-1, waiting")
        .out_has("status 137\n");
}

const NVIDIA_SMI: &str = "#!/bin/sh
case $1 in dmon) echo \"$*\"; exec sleep 60 ;; esac
";

/// The recipe of the manual with plain workers, and with the program that it has for GPUs.
#[test]
fn slow_a_service_samples_its_host_while_the_job_runs() {
    let folder = scratch();
    make_folder(&folder, "code");
    write(&folder, "code/train.py", "import time; time.sleep(2.5)");
    executable(&folder, "bin/nvidia-smi", NVIDIA_SMI);
    let recipes = recipes_of("dgl-tools-jobs", "EXAMPLES");
    let (_, shown) = recipes
        .iter()
        .find(|(name, _)| name == "Memory, processors and GPUs over time")
        .unwrap();
    let recipe = recipe_commands(&shown.replace("--num-trainers 2", "--role worker"), &folder);
    let vmstat = "vmstat --timestamp 10";
    let dmon = "nvidia-smi dmon -s um -d 10 -o DT";
    let manual = read(&root(), "man/dgl-tools-jobs.7");
    assert_has(&manual, &format!("\n.Ql {dmon}\n"));
    let run = |recipe: String| {
        let copied = "export DGL_TOOLS_CONNECT=local PATH=\"$PWD/bin:$PATH\"
            echo 127.0.0.1 | ipconf-check | host-probe |
                part-map --workspace \"$PWD/ws\" --script-folder code | part-push >pushed.jsonl";
        sh(&folder, &format!("{copied}\n{recipe}")).ends(0);
        read(&folder, "logs/usage-0.log")
    };
    let sampled = run(recipe.replace(vmstat, "vmstat --timestamp 1"));
    assert_has(&sampled, "memory");
    // after two lines of names and one of means since the start of the machine
    assert!(sampled.lines().count() >= 4, "{sampled}");
    assert_eq!(
        run(recipe.replace(vmstat, dmon)),
        "dmon -s um -d 10 -o DT\n"
    );
    let summary = sh(&folder, "dgl-why logs/run.jsonl");
    summary.ends(0).out_has("The job finished: 2 processes");
}

#[test]
fn services_alone_are_refused() {
    sh(
        &scratch(),
        "echo 127.0.0.1 > ip.txt; ipconf-check ip.txt | dgl-env --program a --service -- true |
           dgl-spawn --connect local",
    )
    .ends(65)
    .err_has("all programs are services, so the job would never end");
}

#[test]
fn slow_a_job_that_is_started_again_knows_it() {
    let folder = scratch();
    let train = "--setup 'from={attempt}' \
        'echo from $from count $TORCHELASTIC_RESTART_COUNT; test $from = 1'";
    let script = format!(
        "echo 127.0.0.1 > ip.txt
         ipconf-check ip.txt | dgl-env --role worker {train} |
           dgl-spawn --connect local --no-preflight --job again --restart 2 2>run.txt |
           jq -r 'select(.type==\"output\").line'",
    );
    sh(&folder, &script).gives(0, "from 0 count 0\nfrom 1 count 1\n");
    let text = read(&folder, "run.txt");
    assert_has(&text, "starts again");
    assert_has(&text, "(1 of 2)");
}

#[test]
fn real_hosts_run_the_programs_that_are_theirs() {
    let (folder, cluster) = Cluster::listed(4);
    scripts(&folder);
    let script = format!(
        "ipconf-check ip.txt | host-probe |
           part-map --workspace /tmp/programs --script-folder code | part-push >copied.jsonl || exit
         dgl-env --program store --on 0-1 --service <copied.jsonl -- {store} |
           dgl-env --program train --on 2,3 --num-workers 2 -- {train} 0 >job.jsonl || exit
         dgl-spawn --job programs --grace 2s <job.jsonl >run.jsonl; echo \"status $?\"
         jq -r 'select(.type==\"exited\") | [.host, .role, .rank, .code] | @tsv' run.jsonl | sort
         dgl-why <run.jsonl; dgl-report <run.jsonl >page.html && grep -c 'train 3' page.html",
        store = STORE_LINE,
        train = TRAIN_LINE,
    );
    cluster.sh(&folder, &script).out_has(
        "status 0\n0\tstore\t0\t\n1\tstore\t1\t\n2\ttrain\t0\t0\n2\ttrain\t1\t0\n\
         3\ttrain\t2\t0\n3\ttrain\t3\t0\n",
    );
    cluster.assert_clean();
}

/// As the manual has it, with the real iperf3.
#[test]
fn real_hosts_measure_their_bandwidth_by_a_job() {
    let manual = std::fs::read_to_string(root().join("man/dgl-tools-jobs.7")).unwrap();
    let (_, recipe) = manual
        .split_once("\n.Ss Bandwidth between hosts\n")
        .unwrap();
    let (_, recipe) = recipe
        .split_once(".Bd -literal -offset indent\n$ ")
        .unwrap();
    let (recipe, _) = recipe.split_once("\n.Ed").unwrap();
    let recipe = recipe
        .replace("\\e", "\\")
        .replace("ip_config.txt", "ip.txt")
        .replace("--on 1 ", "--on 1-3 ");
    let cluster = Cluster::up_shaped(4, "200mbit");
    let folder = scratch();
    ip_config(&folder, 4);
    let ran = cluster.sh(&folder, &format!("{recipe} --format jsonl"));
    ran.ends(0);
    let output = ran.records("output");
    // of each client, which are processes 1 to 3, a line for each direction: "[  5][TX-C]
    // 0.00-2.00   sec  … Mbits/sec … receiver"
    let rates: Vec<f64> = output
        .iter()
        .filter(|line| line["id"] != 0)
        .map(|line| line["line"].as_str().unwrap())
        .filter(|line| line.contains("receiver"))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let unit = words
                .iter()
                .position(|word| *word == "Mbits/sec")
                .unwrap_or_else(|| panic!("{line}"));
            words[unit - 1].parse().unwrap()
        })
        .collect();
    assert_eq!(rates.len(), 6, "{}", ran.out);
    assert!(
        rates.iter().all(|rate| *rate > 10.0 && *rate < 220.0),
        "{rates:?}"
    );
    cluster.assert_clean();
}

#[test]
fn real_hosts_may_run_different_scripts_of_one_name() {
    let (folder, cluster) = Cluster::listed(2);
    for program in ["a", "b"] {
        let script = format!("print('this is {program}')");
        write(&folder, format!("{program}/main.py"), script);
    }
    let script = "ipconf-check ip.txt |
        dgl-env --program a --on 0 --workspace \"$PWD/a\" -- python3 main.py |
        dgl-env --program b --on 1 --workspace \"$PWD/b\" -- python3 main.py | dgl-spawn";
    let ran = cluster.run(&folder, script);
    ran.out_has("this is a").out_has("this is b");
}
