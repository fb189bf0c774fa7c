//! dgl-stacks: where the Pythons of a job stand, read while they go on.

use serde_json::Value;
use std::path::Path;
use support::{Cluster, assert_has, executable, read, scratch, sh, write};

/// A trainer that waits in a function of a name, has a thread, and has forked a sampler. All of
/// them say that they go on, and end well once there is a file `go`. One more thread waits for a
/// byte for ever. Where Yama's ptrace_scope is 1, each process says by PR_SET_PTRACER that others
/// than its ancestors may read it too.
const JOB_PY: &str = "
import ctypes, os, sys, threading, time
me = os.environ.get('RANK', '0')
def waits_for_go(name):
    while not os.path.exists('go'):
        open(name, 'a').write('x')
        time.sleep(0.05)
def sampler_waits():
    waits_for_go('sampler' + me)
def trainer_waits():
    waits_for_go('trainer' + me)
def anybody_may_read():
    ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
anybody_may_read()
threading.Thread(target=lambda: waits_for_go('thread' + me), name='loader-7').start()
r, w = os.pipe()
def waits_for_word():
    os.read(r, 1)
threading.Thread(target=waits_for_word, name='gate').start()
child = os.fork()
if child == 0:
    anybody_may_read()
    sampler_waits()
    os._exit(0)
open('up' + me, 'w')
trainer_waits()
os._exit(os.waitpid(child, 0)[1])
";

/// Runs `script` while a job of that name, `sh` with a `sleep` and the Python above, runs on this
/// machine. Then the job must end well.
fn beside_job(folder: &Path, job: &str, script: &str) -> support::Ran {
    write(folder, "job.py", JOB_PY);
    write(
        folder,
        "job.sh",
        "sleep 300 & python3 job.py; status=$?; kill $!; exit $status\n",
    );
    let run = format!(
        "echo 127.0.0.1 | ipconf-check | dgl-env --role worker --workspace '{}' -- sh job.sh \
             >job.jsonl 2>env.txt
         dgl-spawn --connect local --no-preflight --job {job} <job.jsonl >run.jsonl 2>run.txt & p=$!
         until [ -s trainer0 ] && [ -s sampler0 ] && [ -s thread0 ] || ! kill -0 $p
         do sleep 0.1; done
         {script}
         touch go; wait $p; echo \"job $?\"",
        folder.display()
    );
    let ran = sh(folder, &run);
    let report = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    assert!(
        ran.out.ends_with("job 0\n"),
        "{}{}{}{}",
        ran.out,
        ran.err,
        report("env.txt"),
        report("run.txt")
    );
    ran
}

const STACKS: &str = "dgl-stacks --connect local";

/// Three workers, one with a sampler. One fails half a second after the others
/// have begun all_reduce.
const FAILS_PY: &str = "
import os, subprocess, sys, time
def all_reduce():
    open('up' + os.environ['RANK'], 'w')
    time.sleep(300)
if os.environ['RANK'] == os.environ['FAILS']:
    while not all(os.path.exists(name) for name in ('up0', 'up2', 'up-loads')):
        time.sleep(0.1)
    time.sleep(0.5)
    raise ValueError('bad batch')
if os.environ['RANK'] == '0':
    child = 'def loads():\\n  import time; open(\"up-loads\", \"w\"); time.sleep(300)\\nloads()'
    subprocess.Popen([sys.executable, '-c', child])
all_reduce()
";

#[test]
fn slow_where_the_others_were_when_a_process_failed_is_recorded() {
    let folder = scratch();
    write(&folder, "job.py", FAILS_PY);
    let run = |fails: &str, script: &str| {
        let run = format!(
            "echo 127.0.0.1 | ipconf-check | dgl-env --role worker --num-workers 3 \
               --env FAILS={fails} --workspace \"$PWD\" -- python3 job.py >job.jsonl
             rm -f up*; dgl-spawn --connect local --no-preflight <job.jsonl >run.jsonl & p=$!
             {script}
             wait $p; status=$?; cat run.jsonl; exit $status"
        );
        sh(&folder, &run)
    };
    // where a machine has much else to do, the time may be over before any is read
    let has_stacks = |ran: &support::Ran| !ran.records("stack").is_empty();
    let mut errors = String::new();
    let mut runs = (0..5)
        .map(|_| run("1", ""))
        .inspect(|ran| errors += &ran.err);
    let ran = runs.find(has_stacks);
    let ran = ran.unwrap_or_else(|| panic!("no run has stacks: {errors}"));
    ran.ends(1);
    let mut stacks = ran.records("stack");
    stacks.retain(|stack| {
        stack["threads"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    let of = |rank: u64, frame: &str| {
        stacks.iter().any(|stack| {
            stack["rank"] == rank
                && stack["while_ending"] == true
                && stack["threads"].to_string().contains(frame)
        })
    };
    let places = [
        (0, "all_reduce (job.py:"),
        (2, "all_reduce (job.py:"),
        (0, "loads ("),
    ];
    let found = places.iter().filter(|(rank, frame)| of(*rank, frame));
    assert_eq!(found.count(), stacks.len(), "{stacks:?}{}", ran.err);
    sh(&folder, "dgl-report run.jsonl >page.html").ends(0);
    let page = read(&folder, "page.html");
    assert_has(&page, "When it failed, those that still ran were here:");
    assert_has(&page, "in a collective operation");
    assert_eq!(ran.records("summary")[0]["first_failure"]["rank"], 1);

    let ran = run(
        "9",
        "until [ $(grep -c started run.jsonl) = 3 ]; do \
                        sleep 0.1; done; sleep 1; kill -TERM $p",
    );
    ran.ends(143);
    assert_eq!(
        ran.records("stack").len(),
        0,
        "a signal is no failure: {}",
        ran.out
    );
}

#[test]
fn slow_every_python_of_a_job_tells_where_it_stands_and_goes_on() {
    let folder = scratch();
    let script = format!(
        "echo 127.0.0.1 | ipconf-check | {STACKS} --job stacks-all --format human >table.txt
         echo \"human $?\"
         {STACKS} --job stacks-all --role worker --rank 0 <job.jsonl >stacks.jsonl
         echo \"jsonl $?\"
         {STACKS} --job stacks-all --record 1s --rate 40 <job.jsonl >profile.jsonl
         echo \"profile $?\"
         {STACKS} --job stacks-all --record 1s --format human <job.jsonl >profile.txt 2>notice.txt
         {STACKS} --job stacks-all --role worker --rank 7 --record 1s <job.jsonl 2>&1 | grep Python
         {STACKS} --job stacks-all --role worker --rank 7 <job.jsonl >none.jsonl 2>none.txt
         echo \"none $?\"
         size=$(stat -c %s trainer0 sampler0 thread0 | tr '\\n' ' ')
         sleep 1; echo \"sizes $size$(stat -c %s trainer0 sampler0 thread0 | tr '\\n' ' ')\""
    );
    let ran = beside_job(&folder, "stacks-all", &script);
    let text = |name: &str| read(&folder, name);
    for status in ["human 0", "jsonl 0", "none 1", "profile 0"] {
        ran.out_has(status);
    }
    assert!(text("none.txt").contains("no process of job stacks-all on any host"));

    let table = text("table.txt");
    let shown = [
        "worker 0, waiting:\n    waits_for_go (job.py:7)\n    trainer_waits (job.py:11)\n",
        "a child of worker 0, waiting:\n    waits_for_go (job.py:7)\n    sampler_waits (job.py:9)",
        "thread loader of worker 0, waiting:\n    waits_for_go (job.py:7)\n    <lambda> (job",
        "worker 0 (sleep 300): no Python runs in it\n",
        "worker 0 (sh job.sh): no Python runs in it\n",
    ];
    // a thread may be met a line before or behind its sleep
    let lines = |text: &str| {
        let places = ["(job.py:5)", "(job.py:6)"];
        places.iter().fold(text.to_owned(), |text, location| {
            text.replace(location, "(job.py:7)")
                .replace("computing", "waiting")
        })
    };
    let (without_calls, calls): (Vec<&str>, Vec<&str>) = table
        .lines()
        .partition(|line| !line.starts_with("    in the system call"));
    let without_calls = lines(&(without_calls.join("\n") + "\n"));
    for one in shown {
        assert!(without_calls.contains(one), "{one}\n---\n{table}");
    }
    // the trainer and what it has started wait for time, most of the time
    assert!(!calls.is_empty(), "{table}");
    let (_, gate) = table.split_once("thread gate of worker 0").expect(&table);
    let waits = ", waiting:\n    in the system call read\n    waits_for_word (job.py:";
    assert!(gate.starts_with(waits), "{table}");

    let stacks = text("stacks.jsonl");
    let of_type: Vec<&str> = stacks
        .lines()
        .filter(|line| line.contains(r#""type":"stack""#))
        .collect();
    assert_eq!(of_type.len(), 4, "{stacks}");
    let trainer = of_type
        .iter()
        .find(|line| line.contains("trainer_waits"))
        .unwrap();
    for part in [
        r#""job":"stacks-all","host":0,"id":0,"role":"worker","rank":0,"pid":"#,
        r#"python3 job.py","threads":[{"name":"MainThread","tid":"#,
        r#""name":"loader-7""#,
        r#""system_call":"read""#,
        r#""time_ms":"#,
    ] {
        assert!(trainer.contains(part), "{part}: {trainer}");
    }
    assert!(!trainer.contains("\"parent\""), "{trainer}");
    let sampler = of_type
        .iter()
        .find(|line| line.contains("sampler_waits"))
        .unwrap();
    assert_has(sampler, "\"parent\":");
    profiles_are_counted(&text("profile.jsonl"));
    // where they were, of the trainer and of its sampler
    let shown = text("profile.txt");
    for kind in ["worker 0:", "a child of worker 0:"] {
        let (_, lines) = shown.split_once(&format!("\n{kind}\n")).expect(&shown);
        assert!(lines.contains("%  waits_for_go (job.py:7)"), "{shown}");
    }
    assert!(shown.starts_with("2 Pythons for "), "{shown}");
    assert_eq!(text("notice.txt"), "dgl-stacks: recording for 1.0 s\n");
    ran.out_has("no Python of job stacks-all on any host");

    assert!(stacks.ends_with("\n") && stacks.lines().last().unwrap().contains(r#""ok":true"#));

    let sizes: Vec<u64> = ran
        .out
        .lines()
        .find_map(|line| line.strip_prefix("sizes "))
        .unwrap()
        .split_whitespace()
        .map(|size| size.parse().unwrap())
        .collect();
    assert!((0..3).all(|k| sizes[k] < sizes[k + 3]), "{sizes:?}");
}

/// Of the trainer and its sampler, with the threads of each and the shares that a sleep of 50 ms
/// has.
fn profiles_are_counted(stream: &str) {
    let records = stream
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let profiles: Vec<Value> = records.filter(|one| one["type"] == "profile").collect();
    assert_eq!(profiles.len(), 2, "{stream}");
    let (child, trainer) = match profiles[0].get("parent") {
        Some(_) => (&profiles[0], &profiles[1]),
        None => (&profiles[1], &profiles[0]),
    };
    assert_eq!(child["parent"], trainer["pid"]);
    for one in &profiles {
        assert_eq!(
            (&one["id"], &one["role"], &one["rate"]),
            (&0.into(), &"worker".into(), &40.into())
        );
        let number = |name: &str| one[name].as_u64().unwrap();
        let (samples, missed) = (number("samples"), number("missed"));
        // a machine with much else to do ends the last sample late
        let due = number("elapsed_ms") * 40 / 1000;
        let is_near = (due - 5..=due + 1).contains(&(samples + missed));
        assert!(samples > 0 && due >= 35 && is_near, "{stream}");
    }
    let threads = trainer["threads"].as_array().unwrap();
    let names: Vec<&Value> = threads.iter().map(|thread| &thread["name"]).collect();
    assert_eq!(names, ["MainThread", "gate", "loader"]);
    let sum = |thread: &Value, name: &str| -> u64 {
        let stacks = thread["stacks"].as_array().unwrap().iter();
        stacks.map(|stack| stack[name].as_u64().unwrap()).sum()
    };
    for thread in threads {
        assert_eq!(sum(thread, "samples"), trainer["samples"].as_u64().unwrap());
    }
    // one that never moves was met again and again, and visited once
    assert_eq!(
        (sum(&threads[1], "visits"), sum(&threads[1], "active")),
        (1, 0)
    );
    let frame = |at: &Value| trainer["frames"][at.as_u64().unwrap() as usize].clone();
    let gate = threads[1]["stacks"][0]["frames"].as_array().unwrap().iter();
    let gate: Vec<Value> = gate.map(frame).collect();
    assert!(
        gate[0]
            .as_str()
            .unwrap()
            .starts_with("waits_for_word (job.py:"),
        "{gate:?}"
    );
}

/// A Python that waits, having made a file of the name that is given; anybody may read it.
const WAITS_PY: &str = "
import ctypes, sys, time
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
open(sys.argv[1], 'w').write('x'); time.sleep(300)
";

/// Logs in where the memory of others cannot be read.
pub const FORBIDDEN_PY: &str = include_str!("../silence/unread.py");

#[test]
fn slow_where_a_login_may_not_read_the_supervisor_of_the_job_does() {
    let folder = scratch();
    executable(&folder, "login.py", FORBIDDEN_PY);
    write(&folder, "waits.py", WAITS_PY);
    let stacks = format!(
        "dgl-stacks --connect \"env HOME=$PWD python3 {}/login.py\"",
        folder.display()
    );
    let token = "0123456789abcdef".repeat(2);
    let script = format!(
        "echo 127.0.0.1 | ipconf-check >hosts.jsonl
         {stacks} --job stacks-desk --format human <hosts.jsonl; echo \"desk $?\"
         {stacks} --job stacks-desk --record 1s --format human <hosts.jsonl
         env DGL_TOOLS_TOKEN={token} DGL_TOOLS_JOB=stacks-alone RANK=3 \
             python3 waits.py alone & alone=$!
         until [ -s alone ]; do sleep 0.1; done
         {stacks} --job stacks-alone --format human <hosts.jsonl >alone.out 2>alone.txt
         echo \"alone $?\"
         {stacks} --job stacks-alone --record 1s <hosts.jsonl >alone.jsonl 2>>alone.txt
         echo \"recorded $?\"; kill $alone"
    );
    let ran = beside_job(&folder, "stacks-desk", &script);
    let all = format!("{}{}", ran.out, ran.err);
    assert!(ran.out.contains("desk 0"), "{all}");
    assert!(
        ran.out.contains("trainer_waits (job.py:11)")
            && ran.out.contains("sampler_waits (job.py:9)")
            && ran.out.contains("in the system call read")
            && ran.out.contains("\n2 Pythons for "),
        "{all}"
    );
    let report = read(&folder, "alone.txt");
    ran.out_has("alone 1").out_has("recorded 1");
    let problem = "the supervisor of its job does not answer\n  fix: run this again; dgl-reap \
                   --signal ABRT makes Python itself print it";
    assert_eq!(report.matches(problem).count(), 2, "{report}");
}

#[test]
fn slow_a_supervisor_answers_about_its_own_processes_alone() {
    let folder = scratch();
    write(&folder, "waits.py", WAITS_PY);
    // it is asked for the stacks of all jobs
    let ask = "
import json, socket, sys
names = [line.split()[-1] for line in open('/proc/net/unix') if '/stacks-own/' in line]
s = socket.socket(socket.AF_UNIX)
s.connect('\\0' + names[0][1:])
s.sendall(b'{\"do\":\"take_stacks\",\"connections\":false}\\n')
s.shutdown(socket.SHUT_WR)
answer = b''.join(iter(lambda: s.recv(65536), b'')).splitlines()
stacks = [one for one in map(json.loads, answer) if one['event'] == 'stack']
print('own', {one['job'] for one in stacks}, json.loads(answer[-1]))
for one in stacks:
    if one['pid'] == int(sys.argv[1]):
        print('stranger', one)
";
    write(&folder, "ask.py", ask);
    let token = "fedcba9876543210".repeat(2);
    let script = format!(
        "env DGL_TOOLS_TOKEN={token} DGL_TOOLS_JOB=stacks-own python3 waits.py up & stranger=$!
         until [ -s up ]; do sleep 0.1; done
         python3 ask.py $stranger; kill $stranger"
    );
    beside_job(&folder, "stacks-own", &script)
        .out_has("own {'stacks-own'} {'event': 'done'}")
        .out_lacks("stranger");
}

#[test]
fn on_real_hosts_all_are_read() {
    let (folder, cluster) = Cluster::listed(2);
    write(&folder, "job.py", JOB_PY);
    let stacks = "ipconf-check ip.txt | dgl-stacks --job left";
    let script = format!(
        "ipconf-check ip.txt | dgl-env --role worker --workspace '{0}' -- python3 job.py \
             >job.jsonl 2>/dev/null
         dgl-spawn --no-preflight --job left <job.jsonl >left.jsonl & p=$!
         until [ -e trainer0 ] && [ -e sampler0 ] && [ -e trainer1 ] && [ -e sampler1 ]
         do kill -0 $p || exit 9; sleep 0.2; done
         # one of them may be met beside its sleep, and stand alone
         for again in $(seq 20); do
             {stacks} --format human >all.txt; status=$?
             [ $(grep -cE '^(workers 0-1|2 children.*), waiting' all.txt) = 2 ] && break
         done
         cat all.txt; echo \"all $status\"
         {stacks} --role worker --rank 1 | grep -c '\"type\":\"stack\"'
         {stacks} --host 1 --partial | grep -c '\"stack\".*\"host\":1,'
         echo \"profiles $({stacks} --record 1s | grep -c '\"type\":\"profile\"')\"
         touch go; wait $p
         echo \"job $?\"",
        folder.display()
    );
    let ran = cluster.sh(&folder, &script);
    let all = format!("{}{}", ran.out, ran.err);
    assert!(
        ran.out
            .contains("workers 0-1, waiting:\n    in the system call "),
        "{all}"
    );
    assert!(
        ran.out.contains("2 children of workers 0-1, waiting:\n"),
        "{all}"
    );
    assert!(ran.out.contains("all 0\n2\n2\nprofiles 4\njob 0"), "{all}");
    cluster.assert_clean();
}
