//! Before the start of a job: all that is wrong is told at once, and nothing is started; a /dev/shm
//! of a job's own.

use std::path::Path;
use std::process::Command;
use support::{Cluster, Ran, ip_config, partition, ran, read, root, scratch, write};

/// A job as far as a look before its start can tell: its servers listen, and what they put into
/// /dev/shm must still be theirs when /srv/go is there.
const JOB_PY: &str = r#"
import os, socket, time
server = os.environ["DGL_ROLE"] == "server"
if server:
    rank = int(os.environ["DGL_SERVER_ID"])
    number = int(os.environ["DGL_NUM_SERVER"])
    ip, port = open(os.environ["DGL_IP_CONFIG"]).read().splitlines()[rank // number].split()
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((ip, int(port) + rank % number))
    s.listen(5)
    mine = "%s %d" % (port, rank)
    shared = "/dev/shm/node~_N~feat-kvdata-"
    if rank % number == 0:
        open(shared, "w").write(mine)
        print("wrote", flush=True)
while not os.path.exists("/srv/go"):
    time.sleep(0.1)
if server and rank % number == 0:
    print("mine" if open(shared).read() == mine else "another's", flush=True)
    os.unlink(shared)
"#;

/// What DGL's servers do: a file in /dev/shm that is mapped.
const MAPS: &str = "import mmap, time; f = open('/dev/shm/node~_N~feat-kvdata-', 'w+b'); \
    f.truncate(4096); m = mmap.mmap(f.fileno(), 0); time.sleep(300)";

/// A process that stays, until `kill` gets what is returned; `sign` is true when it has come so
/// far.
fn start(cluster: &Cluster, host: u32, command: &str, sign: &str) -> String {
    let script = format!(
        "{command} >/dev/null 2>&1 </dev/null & until {sign} || ! kill -0 $!; do sleep 0.1; done; \
         echo $!"
    );
    cluster.on(host, &script).out
}

/// The files of a job on all hosts, and its records in job.jsonl.
fn copied(cluster: &Cluster, folder: &Path, hosts: u32) {
    partition(folder, hosts);
    ip_config(folder, hosts);
    write(folder, "code/job.py", JOB_PY);
    for module in ["dgl", "torch"] {
        std::fs::create_dir_all(folder.join("mods").join(module)).unwrap();
        std::fs::write(folder.join("mods").join(module).join("__init__.py"), "").unwrap();
    }
    // an interpreter that has no modules of the machine's
    let script = "python3 -m venv --without-pip venv && ipconf-check ip.txt | part-map \
        --part-config out/g.json --workspace /srv/job --script-folder code --script-folder mods | \
                  part-push >pushed.jsonl && <pushed.jsonl dgl-env --num-trainers 1 --num-servers \
                  2 --env PYTHONPATH=/srv/job/mods -- \
                  $PWD/venv/bin/python3 code/job.py >job.jsonl; for k in $(cat ip.txt); do ssh $k \
                  touch /srv/go; done";
    cluster.sh(folder, script).ends(0);
}

fn refused(got: &Ran, words: &[&str]) {
    got.ends(74)
        .err_has("nothing was started")
        .out_lacks(r#""type":"started""#);
    words
        .iter()
        .for_each(|word| assert!(got.err.contains(word), "{word}:\n{}", got.err));
}

fn went_well(got: &Ran) {
    got.ends(0).out_has(r#""ok":true,"code":0"#);
}

#[test]
fn faults_of_real_hosts_come_in_one_report() {
    let folder = scratch();
    let cluster = Cluster::up(3);
    copied(&cluster, &folder, 3);
    let spawn = |options: &str| {
        cluster.sh(
            &folder,
            &format!("dgl-spawn --format jsonl {options} <job.jsonl"),
        )
    };
    went_well(&spawn(""));

    cluster.on(
        1,
        "head -c 4096 /dev/zero >'/dev/shm/node~_N~feat-kvdata-'; rm /srv/job/code/job.py",
    );
    cluster.on(
        2,
        "echo >>/srv/job/data/g.json; rm /srv/job/data/part1/graph.dgl; rm -r /srv/job/mods/torch",
    );
    cluster.on(3, "echo 10.77.0.9 >/srv/job/ip_config.txt");
    let listen = "import socket, time; s = socket.socket(); s.bind(('0.0.0.0', 30051)); \
        s.listen(); time.sleep(300)";
    let listener = start(
        &cluster,
        3,
        &format!("python3 -c \"{listen}\""),
        "grep -q :7563 /proc/net/tcp",
    );
    start(
        &cluster,
        3,
        "DGL_TOOLS_TOKEN=0123456789abcdef0123456789abcdef DGL_TOOLS_JOB=old sleep 300",
        "true",
    );
    let all = spawn("");
    refused(
        &all,
        &[
            "host 0 (10.77.0.1): a job of DGL has left 1 file, 4.1 kB in /dev/shm",
            "dgl-reap --stale-shm",
            "host 0 (10.77.0.1): no such file: /srv/job/code/job.py",
            "host 1 (10.77.0.2): the partition config differs from the other hosts'",
            "host 1 (10.77.0.2): no such file: /srv/job/data/part1/graph.dgl",
            "host 1 (10.77.0.2): no module named torch",
            "host 2 (10.77.0.3): the ip_config differs from the records",
            "host 2 (10.77.0.3): port 30051 is taken by process",
            "host 2 (10.77.0.3): job old was left without a launcher (process",
            "end it by its name: ipconf-check ip_config.txt | dgl-reap --job NAME",
        ],
    );
    assert_eq!(
        all.err.matches("dgl-spawn: host").count(),
        8,
        "nothing else is wrong: {}",
        all.err
    );
    // what is refused can be seen and fixed with what the message says
    let fixes = "ipconf-check ip.txt | dgl-reap --stale-shm --format human; ipconf-check ip.txt | \
        dgl-reap --job old --format human";
    cluster
        .sh(&folder, fixes)
        .out_has("1 file removed")
        .out_has("1 process ended");
    cluster.on(3, &format!("kill {listener}"));
    copied(&cluster, &folder, 3);
    went_well(&spawn(""));

    // directories, commands and a graph that are not there are one line for all hosts
    let nowhere = cluster.sh(
        &folder,
        "<job.jsonl jq -c 'if .cwd then .cwd = \"/srv/none\" else . \
        end' | dgl-spawn",
    );
    refused(&nowhere, &["hosts 0-2: no such directory: /srv/none"]);
    nowhere.err_has_times("host", 1);
    cluster.on(2, "truncate -s 100G /srv/job/data/part1/node_feat.dgl");
    let other = cluster.sh(
        &folder,
        "<job.jsonl jq -c 'if .argv then .argv = [\"python9\", \"x.py\"] | .env.DGL_NUM_CLIENT = \
         \"100000000\" elif .graph_name then .graph_name = \"h\" else . end' | dgl-spawn",
    );
    refused(
        &other,
        &[
            "hosts 0-2: no such command: python9",
            "hosts 0-2: the partition config is for graph \"g\", not \"h\"",
        ],
    );
    refused(
        &other,
        &[
            "host 1 (10.77.0.2): its partition needs 107 GB in /dev/shm; ",
            "and a server needs about 200000100 for",
        ],
    );
    cluster.on(2, "truncate -s 9 /srv/job/data/part1/node_feat.dgl");
    let setup = "if .argv then .setup = \"echo noise; PATH=$PATH:/srv/job/bin\" | .argv = \
        [\"runner\"] else . end";
    let with_setup = cluster.sh(
        &folder,
        &format!(
            "mkdir -p /srv/job/bin; printf '#!/bin/sh\\n' >/srv/job/bin/runner; chmod +x \
            /srv/job/bin/runner; <job.jsonl jq -c '{setup}' | dgl-spawn"
        ),
    );
    refused(&with_setup, &["hosts 1-2: no such command: runner"]);

    // a firewall that opens the ports of ip_config.txt alone
    let firewall = "ip link add nowhere type veth peer name nowhere2 && tc qdisc add dev eth0 \
        ingress && tc filter add dev eth0 parent ffff: \
                    protocol ip u32 match ip protocol 6 0xff match u16 0x8000 0x8000 at 22 match \
                    u8 0x02 0x12 at 33 \
                    action mirred egress redirect dev nowhere";
    let closed = cluster.on(
        3,
        &format!("ssh h3 'PATH=$PATH:/usr/sbin:/sbin; {firewall}'"),
    );
    if closed.status == 0 {
        refused(
            &spawn(""),
            &[
                "host 2 (10.77.0.3): cannot be reached on an ephemeral port from hosts 0-1",
                "ip_local_port_range",
            ],
        );
        cluster.on(
            3,
            "ssh h3 'PATH=$PATH:/usr/sbin:/sbin; tc qdisc del dev eth0 ingress'",
        );
        went_well(&spawn(""));
    } else {
        println!("no firewall could be made: {}", closed.err); // a kernel without these parts of tc
    }
    cluster.assert_clean();
}

/// What a tunnel with a smaller MTU does where ICMP is blocked: small packets pass, large ones are
/// dropped, and the sender does not learn it.
#[test]
fn real_hosts_between_which_large_packets_are_lost_are_named() {
    let folder = scratch();
    let cluster = Cluster::up(3);
    copied(&cluster, &folder, 3);
    let spawn = || cluster.sh(&folder, "dgl-spawn --format jsonl <job.jsonl");
    let rules = |host: u32, rules: &str| {
        let script = format!("ssh h{host} 'export PATH=$PATH:/usr/sbin:/sbin; {rules}'");
        cluster.on(host, &script).ends(0);
    };
    let lose = |host: u32, from: &str| {
        let drop = format!(
            "nft add table ip lossy && \
             nft \"add chain ip lossy in {{ type filter hook input priority 0; }}\" && \
             nft add rule ip lossy in ip saddr {from} tcp sport != 22 tcp dport != 22 \
             meta length \">\" 1400 drop"
        );
        rules(host, &drop);
    };
    let mend = |host: u32| rules(host, "nft delete table ip lossy");
    went_well(&spawn());

    let words = |from: &str, to: &str| {
        format!("{from}: cannot send 64 KiB to {to}: small packets pass and large ones do not")
    };
    let hosts = [
        "host 0 (10.77.0.1)",
        "host 1 (10.77.0.2)",
        "host 2 (10.77.0.3)",
    ];
    // from a host to one that it connects to and that connects to it, either way
    for (from, to) in [(1, 2), (2, 1)] {
        lose(to + 1, &format!("10.77.0.{}", from + 1));
        let got = spawn();
        let [from, sink] = [from, to].map(|index| hosts[index as usize]);
        refused(
            &got,
            &[&words(from, sink), "ip link set dev INTERFACE mtu 1400"],
        );
        let count = got.err.matches("dgl-spawn: host").count();
        assert_eq!(count, 1, "nothing else is wrong: {}", got.err);
        mend(to + 1);
    }
    went_well(&spawn());
    cluster.assert_clean();
}

#[test]
fn jobs_share_real_hosts_with_a_shm_of_their_own() {
    let folder = scratch();
    let cluster = Cluster::up(2);
    copied(&cluster, &folder, 2);
    let spawn = |options: &str| {
        cluster.sh(
            &folder,
            &format!("dgl-spawn --format jsonl {options} <job.jsonl"),
        )
    };

    // memory of a live job is in the way of another, and is not of one that has its own
    let other = start(
        &cluster,
        2,
        &format!("python3 -c \"{MAPS}\""),
        "grep -q kvdata /proc/$!/maps",
    );
    let used = [
        "host 1 (10.77.0.2): another job of DGL is running: 1 file",
        "mapped by process",
        "--private-shm",
    ];
    refused(&spawn(""), &used);
    went_well(&spawn("--private-shm"));
    let kept = cluster.on(2, &format!("ls /dev/shm; kill {other}"));
    assert_eq!(kept.out, "node~_N~feat-kvdata-\n");
    cluster
        .sh(&folder, "ipconf-check ip.txt | dgl-reap --stale-shm")
        .ends(0);
    assert_eq!(cluster.on(2, "ls /dev/shm").out, "");

    // two at once: each finds its own, where without it one overwrites the other's; a name that is
    // alive is refused
    let second = "sed 's/$/ 30060/' ip.txt >ip2.txt; ipconf-check ip2.txt | part-map \
        --part-config out/g.json --workspace /srv/job2 --script-folder code \
                  --script-folder mods | part-push >pushed2.jsonl && <pushed2.jsonl dgl-env \
                  --num-trainers 1 --num-servers 2 --master-port 29600 \
                  --env PYTHONPATH=/srv/job2/mods -- $PWD/venv/bin/python3 code/job.py >job2.jsonl";
    let made = cluster.sh(&folder, second);
    made.ends(0);
    let both = "for k in $(cat ip.txt); do ssh $k rm /srv/go; done
                dgl-spawn --job a --private-shm --format human <job.jsonl \
                    >a.out 2>a.err & p=$!
                dgl-spawn --job b --private-shm --format human <job2.jsonl \
                    >b.out 2>b.err & q=$!
                until [ $(cat a.out b.out | grep -c wrote) = 4 ] || ! kill -0 $p || ! kill -0 $q; \
                    do sleep 0.2; done
                dgl-spawn --job a --private-shm <job.jsonl >/dev/null \
                    2>twin.err
                for k in $(cat ip.txt); do ssh $k touch /srv/go; done; wait $p; echo $?; wait $q; \
                    echo $?; cat a.out b.out";
    let got = cluster.sh(&folder, both);
    let text = |file: &str| read(&folder, file);
    assert!(
        got.out.starts_with("0\n0\n") && got.out.matches("] mine").count() == 4,
        "{}{}{}",
        got.out,
        text("a.err"),
        text("b.err")
    );
    assert!(
        text("twin.err").contains("a job named a is running"),
        "{}",
        text("twin.err")
    );

    // where no namespace can be made, the message says what to do; a user who is not root on
    // the hosts makes one there, in a user namespace
    let without = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin";
    let got = cluster.sh(
        &folder,
        &format!("{without} dgl-spawn --host 0 --private-shm --no-preflight <job.jsonl"),
    );
    match cluster.on(1, "id -u").out.trim() {
        "0" => refused(
            &got,
            &[
                "a private /dev/shm cannot be created: not permitted",
                "unprivileged_userns_clone",
            ],
        ),
        _ => went_well(&got),
    }
    // whoever skips the look gets what it would have told
    cluster.on(1, "rm /srv/job/code/job.py");
    spawn("--no-preflight").out_has(r#""cause":"process""#);
    cluster.assert_clean();
}

#[test]
fn real_dgl_two_jobs_at_once() {
    let python = ran(Command::new(root().join("tests/dgl/python.sh"))
        .output()
        .unwrap());
    if python.status != 0 {
        assert!(std::env::var_os("CI").is_none(), "no DGL: {}", python.err);
        support::skipped!("no DGL here: {}", python.err);
        return;
    }
    let (python, scripts) = (python.out.trim(), root().join("tests/dgl"));
    let (folder, cluster) = Cluster::listed(2);
    let jobs = format!(
        "sed 's/$/ 30060/' ip.txt >ip2.txt
         for n in 1 2; do
           DGLBACKEND=pytorch '{python}' '{dir}/partition.py' --out out$n --num-parts 2 || exit
           ipconf-check ip$([ $n = 1 ] || echo $n).txt | part-map --part-config out$n/g.json \
               --workspace /srv/job$n --script-folder '{dir}' | part-push |
             dgl-env --num-trainers 1 --num-omp-threads 1 --master-port 2950$n -- '{python}' \
                 dgl/train.py --ip-config ip_config.txt \
               --part-config data/g.json --num-epochs 2 >job$n.jsonl || exit
         done
         dgl-spawn --private-shm --format human <job1.jsonl & p=$!
         dgl-spawn --private-shm --format human <job2.jsonl; echo \"second \
             $?\"; wait $p; echo \"first $?\"",
        dir = scripts.display()
    );
    cluster
        .sh(&folder, &jobs)
        .out_has("second 0\n")
        .out_has("first 0\n")
        .out_has_times("loss fell", 2);
    cluster.assert_clean();
}
