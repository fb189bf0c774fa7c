//! dgl-stacks --any: jobs that other launchers have started, by the variables of their ranks.

use crate::stacks::FORBIDDEN_PY;
use serde_json::Value;
use std::path::Path;
use support::{Cluster, executable, ip_config, python_with_dgl, scratch, sh, write};

/// A rank among three, in a directory of its job. Each sends to its right neighbour and receives
/// from its left one, again and again, until rank 1 does something else. Rank 0 has a data loader.
const RING_PY: &str = "
import fcntl, os, signal, socket, subprocess, sys, time
folder, fault = sys.argv[1:]
names = ('RANK', 'OMPI_COMM_WORLD_RANK', 'SLURM_PROCID')
rank = int(next(os.environ[name] for name in names if name in os.environ))
os.makedirs(folder, exist_ok=True)
os.chdir(folder)
def loads():
    time.sleep(600)
if rank == 0 and os.fork() == 0:
    loads()
listener = socket.create_server(('127.0.0.1', 0))
open('new%d' % rank, 'w').write(str(listener.getsockname()[1]))
os.rename('new%d' % rank, 'port%d' % rank)
neighbour = 'port%d' % ((rank + 1) % 3)
while not os.path.exists(neighbour):
    time.sleep(0.02)
right = socket.create_connection(('127.0.0.1', int(open(neighbour).read())))
left = listener.accept()[0]
def all_reduce():
    for _ in range(2):
        right.sendall(b'12345678')
        left.recv(8, socket.MSG_WAITALL) or sys.exit()
def evaluate():
    if fault == 'stop':
        os.kill(os.getpid(), signal.SIGSTOP)
    while fault == 'spin':
        pass
    if fault == 'lock':
        # another process holds it
        holder = ('import fcntl, time; f = open(\"lock\", \"w\"); fcntl.flock(f, 2); '
            'open(\"held\", \"w\"); time.sleep(600)')
        subprocess.Popen([sys.executable, '-c', holder])
        while not os.path.exists('held'):
            time.sleep(0.02)
        fcntl.flock(open('lock', 'w'), fcntl.LOCK_EX)
    time.sleep(600)
def train():
    for step in range(10**9):
        if step == 20:
            open('up%d' % rank, 'w')
            if rank == 1 and fault != 'healthy':
                evaluate()
        all_reduce()
        time.sleep(0.02)
train()
";

const TORCH: &str = "RANK=$r WORLD_SIZE=3 MASTER_ADDR=10.9.9.9 MASTER_PORT";

/// Starts three ranks of a job `name`, each with these variables, and waits until they have made 20
/// steps. `$pids` are all that were started.
fn start(name: &str, fault: &str, variables: &str) -> String {
    format!(
        "for r in 0 1 2; do
             env SECRET=hunter2 {variables} setsid python3 ring.py {name} {fault} >/dev/null 2>&1 &
             pids=\"$pids $!\"
         done
         until [ -e {name}/up0 ] && [ -e {name}/up1 ] && [ -e {name}/up2 ]; do sleep 0.1; done
         "
    )
}

/// Runs a script, and ends all that it started.
fn run(folder: &Path, script: &str) -> support::Ran {
    write(folder, "ring.py", RING_PY);
    let end = "for pid in $pids; do kill -s KILL -- -$pid; done";
    let hosts = "export DGL_TOOLS_CONNECT=local; echo 127.0.0.1 | ipconf-check >hosts.jsonl";
    sh(folder, &format!("trap '{end}' EXIT; {hosts}\n{script}"))
}

const ANY: &str = "dgl-stacks --any <hosts.jsonl";

fn stalled(records: &str) -> Vec<Value> {
    support::records(records, "stalled")
}

#[test]
fn slow_the_ranks_of_any_launcher_are_found_and_their_secrets_are_not() {
    let folder = scratch();
    let mpi = "OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=4711";
    let slurm = "SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=815 SLURM_STEP_ID=0";
    let script = format!(
        "{}{}{}
         {ANY} 2>several.txt; echo \"several $?\"
         {ANY} --job none 2>none.txt; echo \"none $?\"
         for job in torch-10.9.9.9-77 mpi-4711 slurm-815-0; do
             {ANY} --job $job --format jsonl >$job.jsonl 2>$job.txt; echo \"$job $?\"
         done
         {ANY} --match 'ring.py by-mpi' --rank 0 --format human >rank.txt 2>&1
         {ANY} --match by-mpi --record 1s --format human >profile.txt 2>&1
         dgl-stacks --any <torch-10.9.9.9-77.jsonl; echo \"twice $?\"
         dgl-reap --list <hosts.jsonl >reap.jsonl
         dgl-spawn --no-preflight <torch-10.9.9.9-77.jsonl >/dev/null; echo \"spawn $?\"
         for pid in $pids; do kill -0 $pid && echo alive; done
         cat several.txt none.txt; grep -r hunter2 *.txt *.jsonl || echo no secret",
        start("by-torch", "healthy", &format!("{TORCH}=77")),
        start("by-mpi", "healthy", mpi),
        start("by-srun", "healthy", slurm),
    );
    let ran = run(&folder, &script);
    let read = |name: &str| support::read(&folder, name);
    for line in ["several 1", "none 1", "twice 65", "spawn 65", "no secret"] {
        ran.out_has(line);
    }
    ran.out_has_times("alive\n", 9)
        .out_has("several jobs run on these hosts")
        .out_has("mpi-4711: 3 processes on 1 host (python3 ring.py by-mpi healthy)")
        .out_has("no rank of such a job");
    for (job, missing) in [
        ("torch-10.9.9.9-77", false),
        ("mpi-4711", false),
        ("slurm-815-0", true),
    ] {
        let stream = read(&format!("{job}.jsonl"));
        let processes = support::records(&stream, "process");
        assert_eq!(processes.len(), 3, "{stream}");
        let stacks = support::records(&stream, "stack");
        assert_eq!(stacks.len(), 4, "{stream}");
        let loader = stacks
            .iter()
            .find(|stack| stack["parent"] != Value::Null)
            .unwrap();
        assert!(
            loader["threads"].to_string().contains("loads (ring.py:"),
            "{loader}"
        );
        let parent = stacks
            .iter()
            .find(|stack| stack["pid"] == loader["parent"])
            .unwrap();
        assert_eq!((&parent["rank"], &parent["job"]), (&0.into(), &job.into()));
        assert!(stalled(&stream).is_empty(), "it goes on: {stream}");
        let words = read(&format!("{job}.txt"));
        assert_eq!(
            words.contains("worker 3 of 4 was not found"),
            missing,
            "{words}"
        );
    }
    assert!(read("rank.txt").contains("the job goes on: a process sent data"));
    assert!(read("rank.txt").contains("\nworker 0, ") && !read("rank.txt").contains("worker 1"));
    assert!(
        read("profile.txt").contains("3 Pythons for 1.0 s")
            || read("profile.txt").contains("4 Pythons for")
    );
    assert!(support::records(&read("reap.jsonl"), "found").is_empty());
}

#[test]
fn slow_whoever_keeps_a_foreign_job_waiting_is_named_with_and_without_stacks() {
    let folder = scratch();
    executable(&folder, "login.py", FORBIDDEN_PY);
    let faults = ["sleep", "spin", "stop", "lock", "healthy"];
    let started: Vec<String> = faults
        .iter()
        .map(|fault| start(fault, fault, &format!("{TORCH}={fault}")))
        .collect();
    let script = format!(
        "{}sleep 11
         for fault in {}; do
             {ANY} --match \"ring.py $fault\" --format jsonl >$fault-read.jsonl; echo \"$fault $?\"
             dgl-why $fault-read.jsonl >$fault-read.txt
             {ANY} --match \"ring.py $fault\" --format jsonl \
                 --connect \"env HOME=$PWD python3 $PWD/login.py\" \
                 >$fault-unread.jsonl 2>$fault-unread.err; echo \"unread $?\"
             dgl-why $fault-unread.jsonl >$fault-unread.txt
         done
         {ANY} --match 'ring.py sleep' --format human >human.txt
         dgl-report sleep-read.jsonl >page.html; echo \"report $?\"",
        started.concat(),
        faults.join(" "),
    );
    let ran = run(&folder, &script);
    ran.out_has_times("unread 1\n", 5).out_has("report 0");
    for fault in faults {
        ran.out_has(&format!("{fault} 0\n"));
        for (way, has_stacks) in [("read", true), ("unread", false)] {
            let stream = support::read(&folder, format!("{fault}-{way}.jsonl"));
            let verdict = support::read(&folder, format!("{fault}-{way}.txt"));
            let found = stalled(&stream);
            let stacks = support::records(&stream, "stack");
            assert_eq!(stream.contains(r#""frames":["#), has_stacks, "{stream}");
            assert!(stacks.len() >= 4, "{stream}");
            if fault == "healthy" {
                assert!(
                    found.is_empty() && verdict.starts_with("The job runs: "),
                    "{verdict}"
                );
                continue;
            }
            assert_eq!(found.len(), 1, "{fault} {way}: {stream}");
            assert_eq!(found[0]["culprit"]["rank"], 1, "{fault} {way}: {found:?}");
            assert!(
                verdict.starts_with("The job waits: worker 1 on host 0"),
                "{way}: {verdict}"
            );
        }
        let denied = support::read(&folder, format!("{fault}-unread.err"));
        assert_eq!(
            denied.matches("fix: root may read them").count(),
            1,
            "{denied}"
        );
    }
    let human = support::read(&folder, "human.txt");
    assert!(
        human.starts_with("worker 1 is in evaluate (ring.py:"),
        "{human}"
    );
    assert!(human.contains("worker 1 (1 of 3), waiting:"), "{human}");
    let page = support::read(&folder, "page.html");
    assert!(page.contains("evaluate"), "{page}");
}

#[test]
fn slow_a_job_in_containers_is_seen_from_their_host() {
    let folder = scratch();
    // processes, mounts and network of their own
    let script = format!(
        "unshare -rm --pid --net --fork --mount-proc --kill-child sh -c '
             ip link set lo up; {} wait' & pids=$!
         until [ -e held/up0 ] && [ -e held/up1 ] && [ -e held/up2 ]; do sleep 0.1; done
         sleep 11
         {ANY} --format jsonl; echo \"stacks $?\"; kill -9 $pids; pids=''",
        start("held", "sleep", &format!("{TORCH}=9")).replace("\"$pids $!\"", "$!"),
    );
    let ran = run(&folder, &script);
    ran.out_has("stacks 0");
    let found = stalled(&ran.out);
    assert_eq!(found.len(), 1, "{}{}", ran.out, ran.err);
    assert_eq!(found[0]["culprit"]["rank"], 1);
    ran.out_has("\"system_call\":\"clock_nanosleep\"");
}

/// Waits for all others, and then until the test ends.
const MEET_PY: &str = "import sys, time
import torch.distributed as dist
dist.init_process_group('gloo')
open(sys.argv[1], 'w')
time.sleep(600)
";

#[test]
fn torchruns_that_wait_for_a_node_are_found_on_real_hosts() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = scratch();
    ip_config(&folder, 3);
    write(&folder, "meet.py", MEET_PY);
    let cluster = Cluster::up(3);
    // --redirects and --tee are for torch 1.13 under Python 3.11
    let start = |host: u32, node_rank: u32| {
        let script = format!(
            "cd '{}'; setsid {python} -m torch.distributed.run --redirects=1 --tee=1 --nnodes 3 \
             --node_rank={node_rank} --master_addr=10.77.0.1 --master_port=29511 meet.py up{host} \
             >torchrun{host}.log 2>&1 & \
             until grep -q torch.distributed.run /proc/$!/cmdline; do sleep 0.1; done",
            folder.display()
        );
        cluster.on(host, &script).ends(0);
    };
    let asks = "ipconf-check ip.txt | dgl-stacks --any --format jsonl | dgl-why";
    start(1, 0);
    start(2, 1);
    let waiting = cluster.sh(&folder, asks);
    let problem = "torchrun waits on hosts 0, 1 for 3 nodes and has no rank; host 2 (10.77.0.3) \
                   has no torchrun";
    waiting
        .out_has(&format!("The job was not found: {problem}."))
        .out_has("fix: start torchrun there, too")
        .err_has(problem);
    assert!(!waiting.err.contains("fix:"), "{}", waiting.err);

    start(3, 2);
    let all_up = "until [ -e up1 ] && [ -e up2 ] && [ -e up3 ]; do sleep 0.2; done";
    let met = cluster.sh(&folder, &format!("timeout 120 sh -c '{all_up}'; {asks}"));
    met.ends(0).err_has("3 processes on 3 hosts");
    assert!(!met.err.contains("torchrun has no rank"), "{}", met.err);

    let few = "head -n 1 ip.txt | ipconf-check | dgl-stacks --any --format jsonl >few.jsonl";
    cluster
        .sh(&folder, few)
        .err_has("they run on hosts that are not in the input (1 of 3 hosts given)");
}
