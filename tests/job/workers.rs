//! Workers: plain processes, one or several a host, such as scripts of torch.distributed without
//! graph servers.

use std::fs;
use std::path::{Path, PathBuf};
use support::{Cluster, ip_config, python_with_dgl, scratch, sh, write};

/// Adds the ranks of all workers up, over gloo; the sum is printed by each.
const ALL_REDUCE: &str = "import os, sys, datetime
import torch
import torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=120))
rank = dist.get_rank()
if os.environ.get('FAILS') == str(rank):
    sys.exit(7)
total = torch.tensor([rank + 1])
dist.all_reduce(total)
names = 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'OMP_NUM_THREADS'
print('sum', int(total), 'of', dist.get_world_size(), *(os.environ[name] for name in names))
dist.barrier()
";

/// Two hosts, the script and their directory; none where there is no torch.
fn two_hosts() -> Option<(Cluster, PathBuf, String)> {
    let python = python_with_dgl()?;
    let folder = scratch();
    ip_config(&folder, 2);
    write(&folder, "reduce.py", ALL_REDUCE);
    let cluster = Cluster::up(2);
    let script = format!(
        "ipconf-check ip.txt | host-probe --python {python} |
         part-map --workspace /srv/job --extra reduce.py | part-push >pushed.jsonl"
    );
    cluster.sh(&folder, &script).ends(0);
    Some((cluster, folder, python))
}

/// What four workers print, whoever starts them.
fn assert_all_met(out: &str) {
    for rest in ["0 2 0", "1 2 0", "0 2 1", "1 2 1"] {
        let line = format!("sum 10 of 4 {rest} ");
        assert_eq!(out.matches(&line).count(), 1, "{line}: {out}");
    }
}

fn run(cluster: &Cluster, folder: &Path, flags: &str, command: &str) -> support::Ran {
    let script = format!(
        "<pushed.jsonl dgl-env --role worker {flags} -- {command} reduce.py |
         dgl-spawn --format human --timeout 5m"
    );
    cluster.sh(folder, &script)
}

#[test]
fn torch_workers_meet_on_real_hosts() {
    let Some((cluster, folder, python)) = two_hosts() else {
        return;
    };
    let flags = "--num-workers 2 --num-omp-threads 1";
    let direct = run(&cluster, &folder, flags, &python);
    direct.ends(0);
    assert_all_met(&direct.out);
    direct.out_has("[10.77.0.2 worker 3] sum 10 of 4 1 2 1 1\n");

    // --redirects and --tee are for torch 1.13 under Python 3.11; others take them too
    let torchrun = format!(
        "{python} -m torch.distributed.run --redirects=1 --tee=1 --nproc_per_node=2 \
         --nnodes={{num_hosts}} --node_rank={{rank}} --master_addr={{master_addr}} \
         --master_port={{master_port}}"
    );
    let started = run(&cluster, &folder, "--num-omp-threads 1", &torchrun);
    started.ends(0);
    assert_all_met(&started.out);
    cluster.assert_clean();
    // which torchrun ends first is chance, because the loss of a rank makes the others fail too
    run(&cluster, &folder, "--env FAILS=2", &torchrun)
        .ends(1)
        .err_has(" exited with status 1");
    cluster.assert_clean();

    // the others wait in the sum for one that has gone
    run(&cluster, &folder, "--num-workers 2 --env FAILS=2", &python)
        .ends(7)
        .err_has("worker 2 on host 1 (10.77.0.2) exited with status 7");
    cluster.assert_clean();
}

/// A worker whose torch is beside it, imported by way of a module of the job.
const IMPORTS: &[(&str, &str)] = &[
    ("mods/torch/__init__.py", ""),
    ("code/model.py", "import torch\n"),
    (
        "code/job.py",
        "from model import torch\nprint('ran', torch.__name__)\n",
    ),
    (
        "code/plain.py",
        "try:\n    import torch\nexcept ImportError:\n    print('went on')\n",
    ),
];

#[test]
fn workers_of_real_hosts_are_examined_before_they_start() {
    let folder = scratch();
    ip_config(&folder, 3);
    for (file, text) in IMPORTS {
        fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
        write(&folder, file, text);
    }
    let cluster = Cluster::up(3);
    cluster
        .sh(
            &folder,
            "python3 -m venv --without-pip venv && ipconf-check ip.txt | host-probe |
         part-map --workspace /srv/job --script-folder code --script-folder mods |
         part-push >pushed.jsonl",
        )
        .ends(0);
    let run = |env: &str, script: &str| {
        cluster.sh(
            &folder,
            &format!(
                "<pushed.jsonl dgl-env --role worker --num-workers 2 {env} -- \
                 $PWD/venv/bin/python3 {script} |
                 dgl-spawn --format human"
            ),
        )
    };
    let with_torch = "--env PYTHONPATH=/srv/job/mods";
    run(with_torch, "code/job.py")
        .ends(0)
        .out_has_times("ran torch\n", 6);

    let break_hosts = "ssh h2 'rm -r /srv/job/mods/torch; PATH=$PATH:/usr/sbin:/sbin
         ip route add blackhole 10.77.0.3'
         ssh h3 'echo \"# edited\" >>/srv/job/code/job.py'";
    cluster.on(1, break_hosts).ends(0);
    let refused = run(with_torch, "code/job.py");
    refused.ends(74);
    for words in [
        "host 1 (10.77.0.2): no module named torch",
        "host 2 (10.77.0.3): /srv/job/code/job.py differs from the other hosts'",
        "host 2 (10.77.0.3): cannot be reached on an ephemeral port from host 1 (10.77.0.2)",
        "nothing was started",
    ] {
        refused.err_has(words);
    }
    refused.err_has_times("dgl-spawn: host", 4);

    // what can do without torch is not kept from running by either
    run("", "code/plain.py")
        .ends(0)
        .out_has_times("went on\n", 6);
    let mistyped = run(with_torch, "code/jbo.py");
    let report =
        "hosts 0-2: no such file: /srv/job/code/jbo.py; did you mean /srv/job/code/job.py?";
    mistyped.ends(74).err_has(report);
    cluster.assert_clean();
}

#[test]
fn a_workspace_is_said_once() {
    let folder = scratch();
    ip_config(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    let location = folder.join("job");
    let script = format!(
        "export DGL_TOOLS_CONNECT=local
         ipconf-check ip.txt | part-map --workspace {0} --extra ip.txt | part-push |
           dgl-env --role worker --num-workers 2 -- sh -c 'pwd; cat ip_config.txt; echo {{rank}}' \
             2>warnings >job.jsonl
         dgl-spawn --format human <job.jsonl && part-pull ip.txt --to got <job.jsonl",
        location.display()
    );
    let ran = sh(&folder, &script);
    let line = |rank: u32, text: &str| format!("[127.0.0.1 worker {rank}] {text}\n");
    let folder_of_job = location.display().to_string();
    ran.ends(0)
        .out_has(&line(0, &folder_of_job))
        .out_has(&line(1, &folder_of_job))
        .out_has(&line(0, "0"))
        .out_has(&line(1, "1"));
    let other = format!(
        "ipconf-check ip.txt | part-map --workspace {0} --extra ip.txt |
         dgl-env --role worker --workspace /other -- t",
        location.display()
    );
    sh(&folder, &other)
        .ends(65)
        .err_has("in the stream's workspace record");
}

#[test]
fn more_trainers_than_gpus_are_told() {
    let folder = scratch();
    ip_config(&folder, 2);
    let gpus = "jq -c '.gpus = 2 | .cpus = 8 | .iface = \"eth0\"'";
    let plan = |count: &str| {
        let script = format!(
            "ipconf-check ip.txt | {gpus} | dgl-env --workspace /w --part-config g.json \
             --num-trainers {count} -- python3 t.py | jq -r 'select(.role == \"trainer\") | .rank'"
        );
        let ran = sh(&folder, &script);
        ran.ends(0);
        (ran.out.lines().count(), ran.err)
    };
    assert_eq!(plan("gpus"), (4, String::new()));
    let (count, report) = plan("3");
    assert!(
        count == 6
            && report.starts_with(
                "dgl-env: warning: host 0 (10.77.0.1) has 2 GPUs for 3 processes, and 1 more host"
            ),
        "{report}"
    );
}

/// Trains five steps, saves after each, and goes on from the last that was saved. In the first
/// start of the job the second rank dies in its third step.
const CHECKPOINT: &str = "import os, sys
import torch
import torch.distributed as dist
dist.init_process_group('gloo')
attempt, saved = sys.argv[1:]
assert attempt == os.environ['TORCHELASTIC_RESTART_COUNT']
weight, begin = torch.zeros(1), 0
if os.path.exists(saved):
    weight, begin = torch.load(saved)
for step in range(begin, 5):
    if attempt == '0' and step == 2 and dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    gradient = torch.ones(1)
    dist.all_reduce(gradient)
    weight += gradient
    torch.save((weight, step + 1), saved + '.new')
    os.replace(saved + '.new', saved)
print('attempt', attempt, 'began at', begin, 'weight', int(weight))
";

#[test]
fn torch_workers_on_real_hosts_go_on_from_their_checkpoint() {
    let Some((cluster, folder, python)) = two_hosts() else {
        return;
    };
    write(&folder, "train.py", CHECKPOINT);
    let script = format!(
        "ipconf-check ip.txt | host-probe --python {python} |
           part-map --workspace /srv/job --extra train.py | part-push >job.jsonl || exit
         dgl-env --role worker <job.jsonl -- {python} train.py {{attempt}} saved.pt |
           dgl-spawn --restart 2 --grace 2s --format human --timeout 5m"
    );
    let ran = cluster.sh(&folder, &script);
    ran.ends(0).err_has("(1 of 2)");
    let line = "attempt 1 began at 2 weight 10";
    ran.out_has_times(line, 2);
    cluster.assert_clean();
}

/// A store and those that compute in one group of torch, whose first ranks compute. The compute
/// program, which is planned first, leads the group.
const STORE_AND_COMPUTE: &str = "import datetime, os, sys
import torch
import torch.distributed as dist
kind, address, compute, store = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rank = int(os.environ['RANK']) + (compute if kind == 'store' else 0)
limit = datetime.timedelta(minutes=2)
dist.init_process_group('gloo', 'tcp://' + address, limit, compute + store, rank)
if kind == 'store':
    while True:
        wanted = torch.zeros(2, dtype=torch.long)
        dist.recv(wanted)
        dist.send(wanted[1:] * 10 + rank, int(wanted[0]))
for node in range(3):
    for server in range(compute, compute + store):
        dist.send(torch.tensor([rank, node]), server)
        value = torch.zeros(1, dtype=torch.long)
        dist.recv(value, server)
        assert int(value) == node * 10 + server
print(kind, rank, 'of', compute + store, 'has all')
";

#[test]
fn a_graph_store_and_torch_workers_on_real_hosts_are_one_group() {
    let Some((cluster, folder, python)) = two_hosts() else {
        return;
    };
    write(&folder, "both.py", STORE_AND_COMPUTE);
    let script = format!(
        "ipconf-check ip.txt | host-probe --python {python} |
           part-map --workspace /srv/job --extra both.py | part-push |
           dgl-env --program compute --on 0 --num-workers 2 \
             -- {python} both.py compute {{master_addr}}:{{port:group}} {{world_size}} 1 |
           dgl-env --program store --on 1 --service \
             -- {python} both.py store {{compute.master_addr}}:{{compute.port:group}} \
                {{compute.world_size}} {{world_size}} |
           dgl-spawn --grace 2s --format human --timeout 5m"
    );
    cluster
        .sh(&folder, &script)
        .ends(0)
        .out_has("compute 0 of 3 has all")
        .out_has("compute 1 of 3 has all");
    cluster.assert_clean();
}
