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

#[test]
fn it_names_the_exception_that_ended_a_job() {
    let folder = scratch();
    job(
        &folder,
        "why-raises",
        "print('begun')\nraise KeyError('nothing')\n",
    );
    let why = sh(&folder, "dgl-why job.jsonl");
    why.ends(0);
    let message = "The job failed: worker 0 on host 0 (127.0.0.1) raised KeyError: 'nothing' \
         [work.py:2].\n  since: ";
    why.out_begins(message)
        .out_has(r#"shown by: {"type":"output""#)
        .out_has(r#"{"type":"exited""#);
    let brief = sh(&folder, "dgl-why --brief job.jsonl").out;
    assert!(
        brief.starts_with(message) && !brief.contains("shown by"),
        "{brief}"
    );
    for same in ["dgl-why <job.jsonl", "dgl-why - <job.jsonl"] {
        assert_eq!(sh(&folder, same).out, why.out, "{same}");
    }
}

#[test]
fn slow_it_finds_nothing_unusual_where_nothing_is() {
    let folder = scratch();
    job(&folder, "why-well", "print('done')\n");
    let why = sh(&folder, "dgl-why job.jsonl");
    why.out_begins("The job ended well: 1 process, ");
    assert!(why.out.ends_with("\nNothing unusual.\n"), "{}", why.out);
    sh(
        &folder,
        "grep -v summary job.jsonl | grep -v exited | dgl-why",
    )
    .out_begins("The job runs: 1 process; the last record is ");
}

#[test]
fn a_last_line_that_breaks_off_hides_nothing_before_it() {
    let folder = scratch();
    job(&folder, "why-cut", "raise KeyError('nothing')\n");
    let cut = "grep -v summary job.jsonl >all; head -c -9 all >cut; grep summary job.jsonl >>cut";
    sh(&folder, cut).ends(0);
    // in the midst nothing may be missing
    sh(&folder, "dgl-why cut").ends(65);
    for (line, status) in [
        ("head -c -9 all | dgl-why", 0),
        ("head -c -9 all >live; dgl-why live", 0),
        ("head -c -9 all >live; dgl-report live", 0),
        // the stages of a pipeline want every record
        ("head -c -9 all | dgl-stacks --job x --connect local", 65),
    ] {
        let got = sh(&folder, line);
        got.ends(status).err_has(" breaks off");
        assert_eq!(got.out.contains("KeyError"), status == 0, "{line}");
    }
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
fn dgl_spawn_says_the_same_and_records_it() {
    let folder = scratch();
    let script = "import os, sys\ntry:\n    os.stat('part7/graph.dgl')\nexcept OSError as e:\n    \
                  raise RuntimeError('no graph') from e\n";
    write(&folder, "work.py", script);
    let run = "echo 127.0.0.1 >ip.txt; ipconf-check ip.txt | dgl-env --role worker \
        --workspace \"$PWD\" -- python3 work.py | dgl-spawn --wait 2m --connect local \
        --job why-same >job.jsonl";
    let ran = sh(&folder, run);
    ran.ends(1);
    let cause = "worker 0 on host 0 (127.0.0.1) raised FileNotFoundError: [Errno 2] No such file \
                 or directory: 'part7/graph.dgl' [work.py:3], which led to RuntimeError: no graph";
    let why = sh(&folder, "dgl-why --brief job.jsonl").out;
    assert!(
        why.starts_with(&format!("The job failed: {cause}.\n")),
        "{why}"
    );
    ran.err_has(&format!("dgl-spawn: job why-same failed: {cause}\n  fix: "));
    let record = "jq -r 'select(.type == \"verdict\") | .outcome, .cause, .advice, \
                  .culprit.rank, (.evidence | length)' job.jsonl";
    let expected = format!("failed\n{cause}\npartition-paths\n0\n3\n");
    assert_eq!(sh(&folder, record).out, expected);
    let order = sh(&folder, "tail -n 2 job.jsonl | jq -r .type").out;
    assert_eq!(order, "verdict\nsummary\n");
}

#[test]
fn a_launch_that_fails_before_the_start_is_not_taken_for_the_run_before() {
    let folder = scratch();
    write(&folder, "work.py", "raise KeyError('nothing')\n");
    let plan = "echo 127.0.0.1 >ip.txt; ipconf-check ip.txt | dgl-env --role worker \
        --workspace \"$PWD\" -- python3 work.py";
    let spawn = "dgl-spawn --wait 2m --connect local --job why-again --log-dir logs";
    sh(&folder, &format!("{plan} | {spawn} >/dev/null")).ends(1);
    sh(&folder, "dgl-why logs/run.jsonl").out_has("raised KeyError: 'nothing'");
    let missing = plan.replace("python3 work.py", "no-such-tool");
    let closed =
        "sed 's/127.0.0.1/127.0.0.9/' ip.txt | ipconf-check - | dgl-env --role worker -- true";
    for (before, connector, status, problem) in [
        ("false", "local", 65, "no record came in"),
        (
            "ipconf-check ip.txt",
            "local",
            65,
            "no process record came in",
        ),
        (
            &missing,
            "local",
            74,
            "host 0 (127.0.0.1): no such command: no-such-tool.\n  fix: install it there",
        ),
        (closed, "ssh2", 74, "host 0 (127.0.0.9): "),
    ] {
        let spawn = spawn.replace("local", connector);
        let ran = sh(&folder, &format!("{before} | {spawn} >out"));
        ran.ends(status);
        let why = sh(&folder, "dgl-why --brief logs/run.jsonl");
        why.ends(0)
            .out_begins("The job was not started: ")
            .out_has(problem);
    }
    sh(&folder, "dgl-why logs/run-1/run.jsonl").out_has("raised KeyError: 'nothing'");
}

#[test]
fn questions_to_the_hosts_end_no_job() {
    let folder = scratch();
    job(&folder, "why-asked", "print('done')\n");
    let ask = "grep -v -e summary -e exited job.jsonl | dgl-reap --connect local --list >asked";
    let asked = sh(&folder, ask);
    asked.ends(0);
    sh(&folder, "tail -n 1 asked | grep summary && dgl-why asked").out_has("\nThe job runs: ");
    let page = sh(&folder, "dgl-report asked").out;
    assert!(!page.contains("The job ended well"), "{page}");
}

#[test]
fn what_is_no_run_is_refused() {
    let folder = scratch();
    sh(&folder, "dgl-why </dev/null").ends(65);
    sh(&folder, "mkdir none; dgl-why none").ends(65);
    sh(&folder, "echo x | dgl-why")
        .ends(1)
        .out_has("nothing in its logs says how or why");
    sh(&folder, "echo 127.0.0.1 | ipconf-check - | dgl-why")
        .ends(0)
        .out_begins("The job was not started: ");
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
        .err_has("dgl-spawn: job paused was ended: the launcher was stopped for ")
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
