//! Jobs that stall: found out, told once with where all stand, ended where that is wanted; and no
//! job that works is taken for one.

use serde_json::json;
use std::path::Path;
use support::{
    Cluster, Ran, assert_has, host_record, python_with_dgl, read, records, root, scratch, sh,
    write, write_records,
};

/// Trainers on this machine, each with a script of Python.
fn job(folder: &Path, scripts: &[&str]) {
    let mut records = vec![host_record(0, 1, "127.0.0.1")];
    for (id, script) in scripts.iter().enumerate() {
        // what is the same has one name, so that its stacks are equal
        let first = scripts.iter().position(|other| other == script).unwrap();
        let name = format!("trainer{first}.py");
        write(folder, &name, script);
        records.push(
            json!({"type": "process", "id": id, "of": scripts.len(), "host": 0,
            "ip": "127.0.0.1", "role": "trainer", "rank": id, "cwd": folder,
            "argv": ["python3", "-u", name]}),
        );
    }
    write_records(folder, "job.jsonl", &records);
}

/// The job's name: jobs of tests that run at the same time have names of their own.
fn name(folder: &Path) -> String {
    folder.file_name().unwrap().display().to_string()
}

/// Runs the job; `script` runs beside it, in which `$p` is dgl-spawn.
fn spawn(folder: &Path, options: &str, script: &str) -> Ran {
    let job = name(folder);
    let run = format!(
        "dgl-spawn --connect local --no-preflight --job {job} {options} <job.jsonl >run.jsonl \
         2>run.txt & p=$!
         has() {{
           until grep -q \"$1\" run.jsonl run.txt; do kill -0 $p || return; sleep 0.1; done
         }}
         {script}
         wait $p; echo \"status $?\"; cat run.txt >&2; cat run.jsonl"
    );
    sh(folder, &run)
}

const WAITS: &str = "
import os, time
print('begins')
def all_reduce():
    while not os.path.exists('go'):
        time.sleep(0.5)
all_reduce()
print('goes on', flush=True)
time.sleep(1) # so that the line is seen before the end
";
const ELSEWHERE: &str = "
import os, time
def loads():
    while not os.path.exists('go'):
        time.sleep(0.5)
loads()
time.sleep(2) # so that the others are heard before a process ends
";

#[test]
fn slow_a_job_that_stalls_is_told_once_and_goes_on_when_it_moves() {
    let folder = scratch();
    job(&folder, &[WAITS, WAITS, ELSEWHERE]);
    let ran = spawn(
        &folder,
        "--stall-timeout 5s",
        "has '\"type\":\"stalled\"'; sleep 5; touch go",
    );
    ran.out_begins("status 0\n");
    let stalled = ran.records("stalled");
    assert_eq!(stalled.len(), 1, "{}", ran.out);
    assert!(stalled[0]["silent_s"].as_f64().unwrap() >= 5.0);
    assert_eq!(stalled[0]["culprit"]["rank"], 2, "{}", stalled[0]);
    assert_eq!(ran.records("stack").len(), 3, "{}", ran.out);
    let resumed = ran.records("resumed");
    assert_eq!(resumed.len(), 1, "{}", ran.out);
    assert_eq!(resumed[0]["since_ms"], stalled[0]["since_ms"]);
    assert_eq!(resumed[0]["sign"], "output", "{}", resumed[0]);
    let lines: Vec<&str> = ran.err.lines().collect();
    let at = |part: &str| lines.iter().position(|line| line.contains(part));
    let odd = at("dgl-spawn: trainer 2, unlike the others, is in loads (trainer2.py:");
    let rest = at("dgl-spawn: trainers 0 and 1 wait in a collective operation for all others");
    let stalls = at(&format!("dgl-spawn: job {} stalls: for ", name(&folder)));
    assert!(
        stalls.is_some() && stalls < odd && odd < rest,
        "{}",
        ran.err
    );
    let again = at(&format!("job {} moves again, after ", name(&folder)));
    assert!(rest < again, "{}", ran.err);
    let what = lines[again.unwrap()];
    assert!(
        what.contains(" s: trainer ") && what.ends_with(" wrote something"),
        "{what}"
    );
}

#[test]
fn slow_a_job_that_stalls_is_ended_where_that_is_wanted() {
    let folder = scratch();
    job(&folder, &[WAITS, ELSEWHERE]);
    let ran = spawn(&folder, "--stall-timeout 5s:end", "");
    ran.out_begins("status 124\n");
    let summary = &ran.records("summary")[0];
    assert_eq!(
        (&summary["cause"], &summary["code"]),
        (&json!("stalled"), &json!(124)),
        "{summary}"
    );
    let ended = format!(
        "job {} was stopped: it had stalled for 5.0 s",
        name(&folder)
    );
    ran.err_has(&ended);
    sh(&folder, "dgl-why --brief run.jsonl").out_begins(
        "The job failed: it stalled: trainer 1 on host 0 (127.0.0.1) is in loads (trainer1.py:",
    );
}

/// It computes in C, at one line, until there is the file `go`; then it counts for a while.
fn spins(function: &str) -> String {
    format!(
        "import functools, itertools, os, time
def {function}():
    next(filter(functools.partial(os.access, 'go'), itertools.repeat(os.F_OK)))
def counts():
    number, end = 0, time.time() + 4
    while time.time() < end:
        number += 1
print('begins')
{function}()
counts()
"
    )
}

#[test]
fn slow_a_job_that_spins_stalls_as_one_that_waits() {
    let folder = scratch();
    let spins = spins("all_reduce");
    job(&folder, &[&spins, &spins, ELSEWHERE]);
    let ran = spawn(&folder, "--stall-timeout 5s:end --timeout 1m", "");
    let stalled = &ran.records("stalled")[0];
    assert_eq!(
        (&stalled["computing"], &stalled["culprit"]["rank"]),
        (&json!(true), &json!(2)),
        "{stalled}"
    );
    assert!(stalled["silent_s"].as_f64().unwrap() >= 5.0, "{stalled}");
    ran.err_has(" every main thread has been at the same line, although processes compute\n")
        .err_has("dgl-spawn: trainer 2, unlike the others, is in loads (trainer2.py:")
        .err_has("was stopped: it had stalled for 5.0 s")
        .out_begins("status 124\n");
    sh(&folder, "dgl-why --brief run.jsonl").out_has(
        "The job failed: it stalled: trainer 2 on host 0 (127.0.0.1) is in loads (trainer2.py:",
    );
}

#[test]
fn slow_one_long_call_is_told_as_that_and_ends_nothing() {
    let folder = scratch();
    job(&folder, &[&spins("all_reduce"), &spins("load")]);
    let ran = spawn(
        &folder,
        "--stall-timeout 5s:end --timeout 1m",
        "has '\"type\":\"stalled\"'; sleep 2; touch go",
    );
    ran.out_begins("status 0\n");
    let stalled = ran.records("stalled");
    assert_eq!(stalled.len(), 1, "{}", ran.out);
    assert_eq!(stalled[0]["computing"], true, "{}", stalled[0]);
    let reason = stalled[0]["reason"].as_str().unwrap();
    let call = "trainer 1 is in load (trainer1.py:3), perhaps in one long call, while trainer 0 \
                waits in a collective operation for all others";
    assert!(reason.starts_with(call), "{reason}");
    ran.err_has("the job continues, because a process that computes may be in one long call");
    // nothing is written or moved: only another line shows it
    let resumed = &ran.records("resumed")[0];
    assert_eq!(resumed["sign"], "processor", "{resumed}");
}

/// A program without Python: each sends its number to the next one, and waits for the one before,
/// in rounds of 60 ms. Number 1 sleeps before the tenth, which only its connections show.
const RING: &str = r#"
use IO::Socket::INET;
my ($rank, $size) = @ARGV;
my $listener = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die;
open(my $file, ">", "port-$rank.new") or die;
print $file $listener->sockport;
close $file;
rename "port-$rank.new", "port-$rank";
my $next = ($rank + 1) % $size;
select undef, undef, undef, 0.05 until -e "port-$next";
open($file, "<", "port-$next") or die;
my $to = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => <$file>) or die;
my $from = $listener->accept;
for my $round (1 .. 20) {
    select undef, undef, undef, 0.06;
    sleep 600 if $round == 10 && $rank == 1;
    syswrite $to, "$rank";
    sysread $from, my $text, 1;
}
"#;

/// Worker 0 receives from all others, one after the other, and sends each the sum.
const STAR: &str = r#"
import os, socket, struct, sys, time
rank, size, path = int(os.environ["RANK"]), 4, "port"
def receive(peer):
    data = peer.recv(8, socket.MSG_WAITALL)
    if not data:
        raise RuntimeError("the other end is closed")
    return struct.unpack("d", data)[0]
if rank == 0:
    listener = socket.create_server(("127.0.0.1", 0))
    with open("port.new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename("port.new", path)
    peers = [listener.accept()[0] for _ in range(1, size)]
else:
    while not os.path.exists(path):
        time.sleep(0.05)
    peers = [socket.create_connection(("127.0.0.1", int(open(path).read())))]
for step in range(9):
    if step == 3 and rank == 2:
        exec(sys.argv[1])
    if rank == 0:
        total = sum(receive(peer) for peer in peers)
        time.sleep(0.05) # longer than the kernel's ticks
        for peer in peers:
            peer.sendall(struct.pack("d", total))
    else:
        peers[0].sendall(struct.pack("d", rank))
        receive(peers[0])
    time.sleep(0.1)
"#;

fn star(folder: &Path, fault: &str) {
    support::need("python3");
    write(folder, "star.py", STAR);
    let process = |rank: u32| {
        json!({"type": "process", "id": rank, "of": 4, "host": 0, "ip": "127.0.0.1",
            "role": "worker", "rank": rank, "cwd": folder, "env": {"RANK": rank.to_string()},
            "argv": ["python3", "star.py", fault]})
    };
    let mut records = vec![host_record(0, 1, "127.0.0.1")];
    records.extend((0..4).map(process));
    write_records(folder, "job.jsonl", &records);
}

#[test]
fn slow_in_a_star_of_sockets_the_one_that_hangs_is_named_and_not_its_centre() {
    let folder = scratch();
    star(&folder, "time.sleep(600)");
    let ran = spawn(&folder, "--stall-timeout 5s:end", "");
    let stalled = &ran.records("stalled")[0];
    assert_eq!(stalled["culprit"]["rank"], 2, "{stalled}");
    let begin = "data came in at worker 2 ";
    assert!(
        stalled["reason"].as_str().unwrap().starts_with(begin),
        "{stalled}"
    );
    assert_eq!(ran.records("verdict")[0]["culprit"]["rank"], 2);
    ran.err_has("\ndgl-spawn: workers 0, 1 and 3 are in receive (star.py:5)\n");
}

#[test]
fn in_a_star_of_sockets_the_one_that_fails_first_is_named_though_it_says_nothing() {
    let folder = scratch();
    for (fault, cause) in [
        ("sys.exit(3)", "exited with status 3"),
        (
            "float('oops')",
            "raised ValueError: could not convert string to float: 'oops'",
        ),
    ] {
        let _ = std::fs::remove_file(folder.join("port"));
        star(&folder, fault);
        let ran = spawn(&folder, "", "");
        let verdict = &ran.records("verdict")[0];
        assert_eq!(verdict["culprit"]["rank"], 2, "{verdict}");
        let text = verdict["cause"].as_str().unwrap();
        assert!(
            text.starts_with(&format!("worker 2 on host 0 (127.0.0.1) {cause}")),
            "{text}"
        );
    }
}

/// Worker 2 fails, closes its connection and ends later: the end of worker 0 arrives before it.
#[test]
fn the_status_is_that_of_the_failure_that_arrives_first_whatever_the_verdict_names() {
    let folder = scratch();
    let fault = "import signal, traceback
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try: float('oops')
except ValueError: traceback.print_exc()
peers[0].close()
time.sleep(1)
os._exit(3)";
    star(&folder, fault);
    let ran = spawn(&folder, "", "");
    let summary = &ran.records("summary")[0];
    let exited = ran.records("exited");
    let first = exited.iter().find(|exited| exited["code"] != 0).unwrap();
    assert_ne!(first["rank"], 2, "{}", ran.out);
    assert_eq!(summary["first_failure"]["rank"], first["rank"], "{summary}");
    assert_eq!(summary["code"], first["code"], "{summary}");
    ran.out_begins(&format!("status {}\n", first["code"]));
    let verdict = &ran.records("verdict")[0];
    assert_eq!(verdict["culprit"]["rank"], 2, "{verdict}");
    let lines = ran
        .err
        .split_once("\ndgl-spawn: host 0 (127.0.0.1): worker 2 wrote last:\n");
    let (lines, status) = lines.unwrap().1.split_once("dgl-spawn: ").unwrap();
    assert!(
        lines.contains("could not convert string to float: 'oops'"),
        "{}",
        ran.err
    );
    assert!(
        lines.lines().all(|line| line.starts_with("    ")),
        "{}",
        ran.err
    );
    let first = format!(
        "the exit status comes from the failure that arrived first: host 0 (127.0.0.1): worker {} ",
        first["rank"]
    );
    assert!(status.starts_with(&first), "{status}");
    assert_eq!(
        status.lines().count(),
        1,
        "the last lines of the other process: {status}"
    );
}

#[test]
fn slow_without_python_the_connections_show_for_whom_the_others_wait() {
    let folder = scratch();
    write(&folder, "ring.pl", RING);
    let process = |rank: u32| {
        json!({"type": "process", "id": rank, "of": 4, "host": 0, "ip": "127.0.0.1",
            "role": "worker", "rank": rank, "cwd": folder, "env": {"RANK": rank.to_string()},
            "argv": ["perl", "ring.pl", rank.to_string(), "4"]})
    };
    let mut records = vec![host_record(0, 1, "127.0.0.1")];
    records.extend((0..4).map(process));
    write_records(&folder, "job.jsonl", &records);
    let job = name(&folder);
    let stacks = format!(
        "has '\"type\":\"stalled\"'
         stacks() {{ head -1 job.jsonl | dgl-stacks --connect local --job {job} --connections $*; }}
         stacks --format human >stacks.txt
         stacks --role worker --rank 3 --format human >one.txt
         stacks --role worker --rank 3 >one.jsonl
         stacks --role worker --rank 9 2>none.txt
         dgl-reap --connect local --job {job} <job.jsonl"
    );
    let ran = spawn(&folder, "--stall-timeout 5s", &stacks);
    let stalled = &ran.records("stalled")[0];
    assert_eq!(stalled["culprit"]["rank"], 1, "{stalled}");
    let sentence = "worker 1 has not read 3 B that worker 0 sent it";
    assert_eq!(stalled["reason"], sentence);
    let connections = &ran.records("stack")[0]["connections"];
    assert_eq!(
        connections.as_array().map(Vec::len),
        Some(2),
        "{connections}"
    );
    let text = read(&folder, "stacks.txt");
    assert!(text.starts_with(&format!("{sentence}.\n")), "{text}");
    // the judgement is about the whole job, also where one process is shown
    let one = read(&folder, "one.txt");
    let (judgement, shown) = one.rsplit_once("\n\n").expect(&one);
    assert!(text.starts_with(judgement), "{one}");
    assert_eq!(shown, "worker 3 (perl ring.pl 3 4): no Python runs in it\n");
    sh(&folder, "grep -c '\"stack\"' one.jsonl").gives(0, "1\n");
    assert_has(&read(&folder, "none.txt"), "no process of job");
    let why = format!("(127.0.0.1) {}", sentence.trim_start_matches("worker 1 "));
    let hangs = "grep -Ev '\"type\":\"(exited|verdict|summary)\"' run.jsonl >hangs.jsonl";
    sh(&folder, &format!("{hangs}; dgl-why --brief hangs.jsonl")).out_has(&why);
}

#[test]
fn slow_a_process_that_is_stopped_is_named() {
    let folder = scratch();
    job(
        &folder,
        &[
            WAITS,
            "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
        ],
    );
    let ran = spawn(&folder, "--stall-timeout 5s:end --grace 1s", "");
    let stalled = &ran.records("stalled")[0];
    assert_eq!(
        (&stalled["reason"], &stalled["culprit"]["rank"]),
        (&json!("trainer 1 is stopped by a signal"), &json!(1)),
        "{stalled}"
    );
}

/// In torch 1.13 a rank that waits for its group asks the store of rank 0 a hundred times a second.
#[test]
fn slow_ranks_that_ask_again_and_again_whether_all_have_come_stall() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = scratch();
    let script = "
import os, time
import torch.distributed as dist
def loads():
    time.sleep(600)
if os.environ['RANK'] == '2':
    loads()
dist.init_process_group('gloo')
";
    write(&folder, "late.py", script);
    sh(
        &folder,
        &format!(
            "echo 127.0.0.1 >ip.txt; ipconf-check ip.txt |
             dgl-env --role worker --num-workers 3 --num-omp-threads 1 --workspace \"$PWD\" \
               -- '{python}' late.py >job.jsonl"
        ),
    )
    .ends(0);
    let ran = spawn(
        &folder,
        "--stall-timeout 8s --wait 2m",
        "has 'type\":\"stalled\"'; kill $p",
    );
    let stalled = ran.records("stalled");
    assert_eq!(stalled.len(), 1, "{}{}", ran.out, ran.err);
    assert_eq!(stalled[0]["culprit"]["rank"], 2, "{}", stalled[0]);
    assert_has(
        &ran.err,
        "dgl-spawn: worker 2, unlike the others, is in loads (late.py:5)",
    );
}

#[test]
fn slow_a_service_that_logs_now_and_then_does_not_hide_a_stall() {
    let folder = scratch();
    write(&folder, "waits.py", WAITS);
    let logs = "while sleep 1; do echo up; done";
    sh(
        &folder,
        &format!(
            "echo 127.0.0.1 >ip.txt; ipconf-check ip.txt |
             dgl-env --program store --service --workspace \"$PWD\" -- sh -c '{logs}' |
             dgl-env --program train --workspace \"$PWD\" -- python3 -u waits.py >job.jsonl"
        ),
    )
    .ends(0);
    let ran = spawn(
        &folder,
        "--stall-timeout 6s",
        "has 'type\":\"stalled\"'; touch go",
    );
    assert_eq!(ran.records("stalled").len(), 1, "{}{}", ran.out, ran.err);
    assert_eq!(ran.records("resumed").len(), 1, "{}{}", ran.out, ran.err);
    ran.out_begins("status 0\n");
}

#[test]
fn slow_a_worker_of_ddp_that_sleeps_in_its_loader_is_named_everywhere() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = scratch();
    std::fs::copy(root().join("tests/dgl/ddp.py"), folder.join("ddp.py")).unwrap();
    sh(
        &folder,
        &format!(
            "echo 127.0.0.1 >ip.txt; ipconf-check ip.txt |
             dgl-env --role worker --num-workers 4 --num-omp-threads 1 --workspace \"$PWD\" \
               --env FAULT=loader --env FAULT_RANK=3 -- '{python}' ddp.py >job.jsonl"
        ),
    )
    .ends(0);
    let name = name(&folder);
    let stacks = format!(
        "has 'type\":\"stalled\"'; sleep 12
         dgl-stacks --connect local --format human --job {name} <job.jsonl >stacks.txt; kill $p"
    );
    let ran = spawn(&folder, "--stall-timeout 8s --wait 2m", &stacks);
    let stalled = ran.records("stalled");
    assert_eq!(stalled.len(), 1, "once: {}{}", ran.out, ran.err);
    assert!(ran.records("resumed").len() <= 1, "{}", ran.out);
    assert_eq!(stalled[0]["culprit"]["rank"], 3, "{}", stalled[0]);
    let text = |name: &str| read(&folder, name);
    let first = ran
        .err
        .lines()
        .skip_while(|line| !line.contains("stalls: for "))
        .nth(1);
    let elsewhere = "is in __getitem__ (ddp.py:";
    let expected = format!("dgl-spawn: worker 3, unlike the others, {elsewhere}");
    assert!(
        first.is_some_and(|line| line.starts_with(&expected)),
        "{}",
        ran.err
    );
    assert!(
        text("stacks.txt").starts_with(&format!("worker 3 {elsewhere}")),
        "{}",
        text("stacks.txt")
    );
    let why = sh(&folder, "dgl-why --brief run.jsonl").out;
    assert_has(
        &why,
        &format!("until then worker 3 on host 0 (127.0.0.1) {elsewhere}"),
    );
    let page = sh(&folder, "dgl-report run.jsonl").out;
    let stacks: Vec<&str> = page.split("<summary>worker").skip(1).collect();
    assert!(stacks.len() >= 2, "{page}");
    assert!(
        stacks[0].starts_with(" 3, unlike the others, is in __getitem__"),
        "{page}"
    );
    assert!(
        stacks[0].contains("_next_data (torch/utils/data/dataloader.py:"),
        "{page}"
    );
}

/// Each does something for 12 seconds that is no stall, and says nothing.
const WORKERS: [(&str, &str); 6] = [
    ("computes", "sum(range(30000)); time.sleep(0.01)"),
    ("computes at some lines, without a variable", "works()"),
    ("computes at one line, and counts", "counts()"),
    (
        "reads slowly",
        "os.pread(disk, 100000, 0); os.posix_fadvise(disk, 0, 0, 4); time.sleep(0.3)",
    ),
    (
        "receives slowly from itself",
        "near.sendall(bytes(2000)); far.recv(4000); time.sleep(0.3)",
    ),
    (
        "starts others",
        "subprocess.run(['python3', '-c', 'import json']); time.sleep(0.2)",
    ),
];
const WORKS: &str = "
import os, socket, subprocess, time
open('data', 'wb').write(bytes(4 << 20))
os.sync()
disk = os.open('data', os.O_RDONLY)
door = socket.create_server(('127.0.0.1', 0))
near = socket.create_connection(door.getsockname())
far, _ = door.accept()
end = time.time() + 12
def works():
    while time.time() < end:
        sum(range(300000))
        max(range(300000))
        min(range(300000))
        sum(range(300000))
        max(range(300000))
def counts():
    number = 0
    while time.time() < end: sum(range(2000000)); number += 1
while time.time() < end:
    ";

#[test]
fn slow_a_job_that_works_in_silence_does_not_stall() {
    let works = |folder: &Path, what: &str, script: &str| {
        // the others wait for it, as they do in a job of DGL
        job(
            folder,
            &[
                "import time\ntime.sleep(12)\n",
                &format!("{WORKS}{script}\n"),
            ],
        );
        let ran = spawn(folder, "--stall-timeout 5s:end", "");
        assert!(
            ran.out.starts_with("status 0\n"),
            "{what}: {}{}",
            ran.out,
            ran.err
        );
        assert!(ran.records("stalled").is_empty(), "{what}: {}", ran.out);
    };
    std::thread::scope(|scope| {
        for (what, script) in WORKERS {
            let folder = scratch();
            scope.spawn(move || works(&folder, what, script));
        }
    });
    let folder = scratch();
    sh(&folder, "dgl-spawn --connect local --stall-timeout 4s")
        .ends(2)
        .err_has("0, or 5s or more");
}

#[test]
fn slow_a_launcher_that_was_stopped_takes_nothing_for_a_stall() {
    let folder = scratch();
    // it rests for 3 of 5 seconds: what comes late all at once says idle, and moves, in turns
    let script = "import time\nfor k in range(5):\n  print(k); time.sleep(3.6)\n";
    job(&folder, &[script, script]);
    let ran = spawn(
        &folder,
        "--stall-timeout 5s:end --host-timeout 30s",
        "has '\"line\":\"0\"'; kill -STOP $p; sleep 10; kill -CONT $p",
    );
    ran.out_begins("status 0\n");
    assert!(ran.records("stalled").is_empty(), "{}", ran.out);
}

const RAISES: &str = "
import atexit, os, time
def exit_client():
    while not os.path.exists('go'):
        time.sleep(0.2)
atexit.register(exit_client)
raise ValueError('loss is nan')
";

#[test]
fn slow_an_exception_that_nobody_caught_ends_the_job_where_that_is_wanted() {
    let folder = scratch();
    job(&folder, &[WAITS, RAISES]);
    let ran = spawn(&folder, "--fail-on-exception", "");
    ran.out_begins("status 1\n");
    let summary = &ran.records("summary")[0];
    assert_eq!(
        (&summary["cause"], &summary["first_failure"]["rank"]),
        (&json!("process"), &json!(1)),
        "{summary}"
    );
    let error = "raised ValueError: loss is nan and did not end";
    assert_eq!(summary["first_failure"]["error"], error);
    ran.err_has(&format!("trainer 1 {error}; its last lines:"));
}

#[test]
fn slow_a_traceback_of_an_exception_that_was_caught_ends_nothing() {
    let folder = scratch();
    let caught = "
import time, traceback
try:
    raise ValueError('try again')
except ValueError:
    traceback.print_exc()
time.sleep(9)
";
    let thread = "
import time, threading
def loses(): raise KeyError('thread')
threading.Thread(target=loses).start()
time.sleep(9)
";
    job(&folder, &[caught, thread]);
    // the stall timeout is also when an exception is reported
    let ran = spawn(&folder, "--fail-on-exception --stall-timeout 5s", "");
    ran.out_begins("status 0\n");
    ran.err_has("trainer 1 raised KeyError: 'thread' and has been silent for ");
}

#[test]
fn slow_a_process_that_raised_and_stays_is_named_and_named_again() {
    let folder = scratch();
    job(&folder, &[WAITS, WAITS, RAISES]);
    let ran = spawn(
        &folder,
        "--stall-timeout 5s",
        "has 'type\":\"stalled\"'; has 'has been silent'; sleep 1; kill $p",
    );
    ran.out_begins("status 143\n");
    let report = "trainer 2 raised ValueError: loss is nan and has been silent for ";
    let waits = "it waits at DGL's exit barrier for all others to end";
    let line = ran.err.lines().find(|line| line.contains(report));
    assert!(
        line.is_some_and(|line| line.ends_with(waits)),
        "{}",
        ran.err
    );
    ran.err_has_times(report, 1);
    let again = "trainer 2 had raised ValueError: loss is nan and did not end";
    ran.err_has_times(again, 1);
    let why = sh(&folder, "dgl-why --brief run.jsonl");
    let cause = "trainer 2 on host 0 (127.0.0.1) raised ValueError: loss is nan \
        [trainer2.py:7] and did not end: it waits at DGL's exit barrier for all others to \
        end; trainers 0 and 1 wait for it in ";
    why.out_has(cause);
}

#[test]
fn slow_how_long_each_process_has_been_silent_is_listed() {
    let folder = scratch();
    let talks = "import os, time\nwhile not os.path.exists('go'): print('x'); time.sleep(0.2)\n";
    job(&folder, &[WAITS, talks]);
    spawn(
        &folder,
        "",
        "has '\"line\":\"x\"'; sleep 3
         dgl-reap --connect local --list --format jsonl <job.jsonl >list.jsonl
         dgl-reap --connect local --list --format human <job.jsonl >list.txt; touch go",
    )
    .out_begins("status 0\n");
    let text = |name: &str| read(&folder, name);
    let found = records(&text("list.jsonl"), "found");
    let own = |script: &str| {
        let mut own = found.iter().filter(|one| {
            one["job"] == name(&folder) && one["command"].as_str().unwrap().contains(script)
        });
        own.next().unwrap()["silent_s"].as_f64().unwrap()
    };
    // trainer 0 may have started after the first line of trainer 1
    assert!(own("trainer0.py") >= 2.0, "{found:?}");
    assert!(own("trainer1.py") < own("trainer0.py") - 1.0, "{found:?}");
    assert!(
        text("list.txt").contains("  silent for  "),
        "{}",
        text("list.txt")
    );
}

// ---- real hosts

/// A trainer a host; each waits for a file of its host in a function of its own name.
fn job_on_hosts(folder: &Path, hosts: u32) {
    let mut records = Vec::new();
    for host in 0..hosts {
        let ip = format!("10.77.0.{}", host + 1);
        records.push(host_record(host, hosts, &ip));
        let name = if host == 1 { "loads" } else { "all_reduce" };
        let script = format!(
            "import os, time\nprint(\"begins\")\ndef {name}():\n  \
             while not os.path.exists(\"/srv/go\"): time.sleep(0.2)\n{name}()\n"
        );
        records.push(
            json!({"type": "process", "id": host, "of": hosts, "host": host, "ip": ip,
            "role": "trainer", "rank": host, "cwd": "/srv", "argv": ["python3", "-uc", script]}),
        );
    }
    write_records(folder, "job.jsonl", &records);
}

#[test]
fn real_hosts_stall_together_or_not_at_all() {
    let (folder, cluster) = Cluster::listed(3);
    job_on_hosts(&folder, 3);
    let spawn = "dgl-spawn --no-push-check --no-preflight --stall-timeout 5s";
    let ended = cluster.sh(&folder, &format!("{spawn}:end <job.jsonl"));
    ended.ends(124);
    let stalled = &ended.records("stalled")[0];
    assert_eq!(stalled["culprit"]["host"], 1, "{stalled}");
    assert_eq!(ended.records("stack").len(), 3, "{}", ended.out);

    // one of those that wait spins
    let text = read(&folder, "job.jsonl");
    let sleeps = "while not os.path.exists(\\\"/srv/go\\\"): time.sleep(0.2)";
    let spins = "next(filter(functools.partial(os.access, \\\"/srv/go\\\"), itertools.repeat(0)))";
    assert!(text.contains(sleeps), "{text}");
    let spinning = text.replacen(sleeps, spins, 1);
    let spinning = spinning.replacen("import os", "import functools, itertools, os", 1);
    write(&folder, "spins.jsonl", spinning);
    let script = format!(
        "{spawn} --job spins <spins.jsonl >spins-run.jsonl 2>spins.txt & p=$!
         until grep -q '\"stalled\"' spins-run.jsonl; do kill -0 $p || break; sleep 0.1; done
         for k in 1 2 3; do ssh 10.77.0.$k touch /srv/go; done
         wait $p; echo ended $?; cat spins.txt spins-run.jsonl"
    );
    let ran = cluster.sh(&folder, &script);
    ran.out_has("ended 0\n");
    let stalled = ran.records("stalled");
    assert_eq!(stalled.len(), 1, "{}", ran.out);
    assert_eq!(stalled[0]["culprit"]["rank"], 1, "{}", stalled[0]);
    assert_eq!(stalled[0]["computing"], true, "{}", stalled[0]);
    assert_eq!(ran.records("stack").len(), 3, "{}", ran.out);
    let report = "trainer 1, unlike the others, is in loads (<string>:";
    ran.out_has(report);
    cluster.assert_clean();
}

#[test]
fn an_exception_on_one_of_real_hosts_ends_the_job() {
    let (folder, cluster) = Cluster::listed(3);
    job_on_hosts(&folder, 3);
    let text = read(&folder, "job.jsonl");
    let raises = text.replace("/srv/go", "/srv/stop").replacen(
        "loads()\\n\"",
        "import atexit; atexit.register(loads)\\nraise KeyError(7)\\n\"",
        1,
    );
    assert_ne!(raises, text.replace("/srv/go", "/srv/stop"));
    write(&folder, "raises.jsonl", raises);
    let spawn = "dgl-spawn --no-push-check --no-preflight --fail-on-exception <raises.jsonl";
    let ran = cluster.sh(&folder, spawn);
    ran.ends(1);
    let summary = &ran.records("summary")[0];
    assert_eq!(
        (&summary["cause"], &summary["first_failure"]["error"]),
        (
            &json!("process"),
            &json!("raised KeyError: 7 and did not end")
        ),
        "{summary}"
    );
    cluster.assert_clean();
}

#[test]
fn real_dgl_an_exception_that_waits_at_the_exit_barrier_ends_the_job() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let (folder, cluster) = Cluster::listed(2);
    let tests = root().join("tests/dgl");
    sh(
        &folder,
        &format!(
            "DGLBACKEND=pytorch '{python}' '{}/partition.py' --out out --num-parts 2",
            tests.display()
        ),
    )
    .ends(0);
    let train = "dgl/faulty.py --ip-config ip_config.txt --part-config data/g.json";
    let script = format!(
        "ipconf-check ip.txt | host-probe --workspace /srv/job --python '{python}' |
           part-map --part-config out/g.json --workspace /srv/job --script-folder '{}' | part-push |
           dgl-env --num-trainers 1 --num-omp-threads 1 --env FAULT=raise --env FAULT_RANK=1 \
             -- '{python}' {train} |
           dgl-spawn --fail-on-exception",
        tests.display()
    );
    let ran = cluster.sh(&folder, &script);
    ran.ends(1);
    let error = "raised ValueError: loss is not a number in trainer 1 and did not end";
    assert_eq!(
        ran.records("summary")[0]["first_failure"]["error"],
        error,
        "{}",
        ran.err
    );
    cluster.assert_clean();
}
