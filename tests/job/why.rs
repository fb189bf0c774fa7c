//! dgl-why on the records of a job that runs and ends on this machine. Its verdicts on real jobs of
//! DGL are a table beside its source.

use serde_json::json;
use std::path::Path;
use support::{host_record, made_by, root, scratch, sh, write};

/// Runs a worker of Python on this machine; the records are in job.jsonl. It waits for other tests'
/// jobs that use the same port for torch.
fn job(folder: &Path, name: &str, script: &str) {
    write(folder, "ip.txt", "127.0.0.1\n");
    write(folder, "work.py", script);
    let run = format!(
        "ipconf-check ip.txt | dgl-env --role worker \
         --workspace \"$PWD\" -- python3 work.py | dgl-spawn --wait 2m --connect local \
              --job {name} >job.jsonl"
    );
    sh(folder, &run);
}

/// The dumps are those of torch 2.15 over gloo, with the members of groups and the states of
/// operations added as NCCL's recorder notes them: rank 1 did not come to a broadcast.
#[test]
fn slow_after_a_timeout_of_nccl_torch_s_own_analyser_reads_the_dumps() {
    let folder = scratch();
    let script = format!(
        r#"
import os, shutil, time
rank, dump = os.environ["RANK"], os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]
shutil.copy("{}/tests/fixtures/nccl_dumps/nccl_trace_rank_" + rank, dump + rank)
while rank != "0" or not all(os.path.exists(dump + other) for other in "012"):
    time.sleep(0.1)
print("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)", flush=True)
os.abort()
"#,
        root().display()
    );
    write(&folder, "work.py", script);
    let run = "mkdir ws; echo 127.0.0.1 >ip_config.txt
        ipconf-check ip_config.txt | jq -c '.gpus = 3' | dgl-env --role worker --num-workers 3 \
            --workspace \"$PWD/ws\" -- python3 \"$PWD/work.py\" |
        dgl-spawn --wait 2m --connect local --job why-nccl >job.jsonl";
    sh(&folder, run).ends(134);
    let why = sh(&folder, "dgl-why --brief job.jsonl");
    why.ends(0)
        .out_has("worker 0 on host 0 (127.0.0.1) was ended by SIGABRT")
        .out_has("\nAlso: NCCL gave up an operation in worker 0 on host 0 (127.0.0.1), which");
    let (_, advice) = why.out.split_once("N on each host: ").unwrap();
    let (commands, _) = advice.split_once(" (of torch").unwrap();
    let Some(bin) = made_by("tests/torchfrtrace.sh", "torchfrtrace") else {
        return;
    };
    let analysed = sh(
        &folder,
        &format!("export DGL_TOOLS_CONNECT=local; PATH='{bin}':$PATH; {commands}"),
    );
    analysed.ends(0);
    let analysis = analysed.out + &analysed.err;
    for part in [
        "collective: nccl:broadcast\nmissing ranks: {1}\n",
        "train.py",
    ] {
        assert!(analysis.contains(part), "{part}: {analysis}");
    }
}

#[test]
fn slow_memory_does_not_grow_with_what_a_job_wrote() {
    let folder = scratch();
    job(
        &folder,
        "why-memory",
        "print('begun')\nraise KeyError('nothing')\n",
    );
    // 100 MB of output come before the exception
    let long = r#"line=$(printf "%1000s" | tr " " x)
        record="{\"type\":\"output\",\"id\":0,\"stream\":\"stdout\",\"time_ms\":@"
        record="$record,\"line\":\"$line\"}"
        at=$(sed -n 's/.*"begun".*"time_ms":\([0-9]*\).*/\1/p' job.jsonl)
        { sed '/"begun"/q' job.jsonl; yes "$record" | head -n 100000 | sed "s/@/$at/"
          sed '1,/"begun"/d' job.jsonl; } >long.jsonl
        wc -c <long.jsonl"#;
    let bytes: u64 = sh(&folder, long).out.trim().parse().unwrap();
    assert!(bytes > 100_000_000, "{bytes}");
    for tool in ["dgl-why --brief", "dgl-report --lines 5"] {
        // in KiB, of address space
        sh(&folder, &format!("ulimit -v 65536; {tool} long.jsonl"))
            .ends(0)
            .out_has("raised KeyError: ");
    }
}

/// Writes the records of a worker on each of this many addresses of this machine.
fn workers(folder: &Path, hosts: u32, command: &str) {
    let (mut all, mut own) = (String::new(), String::new());
    for id in 0..hosts {
        let ip = format!("127.0.0.{}", id + 1);
        all += &format!("{}\n", host_record(id, hosts, &ip));
        let process = json!({"type": "process", "id": id, "of": hosts, "host": id, "ip": ip,
            "role": "worker", "rank": id, "cwd": folder, "env": {"K": id.to_string()},
            "argv": ["sh", "-c", command]});
        own += &format!("{process}\n");
    }
    write(folder, "job.jsonl", all + &own);
}

const SPAWN: &str = "spawn='dgl-spawn --no-preflight --connect local --grace 1s \
    --host-timeout 6s'; ";

#[test]
fn slow_a_pause_of_who_decides_is_no_lost_host() {
    let folder = scratch();
    workers(&folder, 2, "echo up; exec sleep 600");
    let wait = "until [ $(grep -c '\"started\"' out.jsonl) = 2 ]; do sleep 0.1; done; sleep 1";
    let script = format!(
        "{SPAWN} $spawn --job paused <job.jsonl >out.jsonl & p=$!
         {wait}; kill -STOP $p; sleep 9; kill -CONT $p; wait $p"
    );
    sh(&folder, &script)
        .ends(74)
        .err_has("dgl-spawn: job paused was stopped: the launcher was stopped for ")
        .err_has("; no host was lost\n  fix: ")
        .err_lacks("lost: ")
        .err_lacks("could not be ended");
    let why = sh(&folder, "dgl-why out.jsonl").out;
    assert!(
        why.starts_with("The job failed: the launcher was stopped for ")
            && why.contains("; no host was lost.\n"),
        "{why}"
    );
}

/// The hosts have not given a launcher up that was stopped for less than their patience.
#[test]
fn slow_a_short_pause_of_the_launcher_harms_nothing() {
    let folder = scratch();
    workers(&folder, 2, "echo up; exec sleep 16");
    sh(
        &folder,
        &format!(
            "{SPAWN} $spawn --job short-pause <job.jsonl >out.jsonl & p=$!
             until [ $(grep -c '\"started\"' out.jsonl) = 2 ]; do sleep 0.1; done
             sleep 1; kill -STOP $p; sleep 4; kill -CONT $p; wait $p"
        ),
    )
    .ends(0);
}

#[test]
fn each_directory_of_logs_is_listed_once() {
    let folder = scratch();
    if sh(&folder, "strace -o /dev/null true").status != 0 {
        return support::skipped!("no strace here");
    }
    write(&folder, "logs/a/0.log", "ValueError: x\n");
    write(&folder, "far/b/1.log", "epoch 1\n");
    let read = |script: &str| {
        let script = format!("{script}; strace -o trace -e trace=openat dgl-why logs; cat trace");
        let trace = sh(&folder, &script).out;
        let mut folders: Vec<String> = trace
            .lines()
            .filter(|line| line.contains("O_DIRECTORY") && line.contains("\"logs"))
            .filter_map(|line| line.split('"').nth(1))
            .map(str::to_owned)
            .collect();
        folders.sort();
        folders
    };
    assert_eq!(read(":"), ["logs", "logs/a"]);
    let link = "ln -s ../far logs/link; ln -s ../logs logs/up; ln -s b far/again";
    assert_eq!(read(link), ["logs", "logs/a", "logs/link", "logs/link/b"]);
}
