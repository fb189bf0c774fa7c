//! Persistent graph servers: a job of their own, which one group of trainers after another uses,
//! and two at once; refused where they do not fit, noticed when they have died, ended without a
//! trace.

use serde_json::json;
use std::path::Path;
use support::{Cluster, assert_has, host_record, python_with_dgl, root, scratch, sh, soon, write};

const HOSTS: u32 = 2;

/// Two hosts to which a partition and the scripts were copied.
fn pushed(python: &str) -> (std::path::PathBuf, Cluster) {
    let (folder, cluster) = Cluster::listed(HOSTS);
    let scripts = root().join("tests/dgl");
    sh(
        &folder,
        &format!(
            "DGLBACKEND=pytorch '{python}' '{}/partition.py' --out out --num-parts {HOSTS}",
            scripts.display()
        ),
    )
    .ends(0);
    let push = format!(
        "ipconf-check ip.txt | part-map --part-config out/g.json --workspace /srv/job \
         --script-folder '{}' | part-push >pushed.jsonl",
        scripts.display()
    );
    cluster.sh(&folder, &push).ends(0);
    (folder, cluster)
}

/// A pipeline that starts servers, or trainers.
fn pipeline(python: &str, flags: &str, script: &str, spawn: &str) -> String {
    format!(
        "<pushed.jsonl dgl-env --num-trainers 1 --num-omp-threads 1 --server-name g {flags} \
         -- '{python}' dgl/train.py --ip-config ip_config.txt \
         --part-config data/g.json --num-epochs 1 {script} | dgl-spawn {spawn}"
    )
}

const SERVERS: &str = "--role server --keep-alive";
const TRAINERS: &str = "--role trainer";
const TENSORPIPE: &str = "--net-type tensorpipe";

/// Starts servers in the background; they run when this returns.
fn serve(cluster: &Cluster, folder: &Path, python: &str) {
    let servers = pipeline(python, SERVERS, TENSORPIPE, "--job g");
    cluster
        .sh(
            folder,
            &format!(
                "setsid sh -c '{}' </dev/null >servers.jsonl 2>servers.txt &
                 until [ $(grep -c '\"listening\"' servers.jsonl) = {HOSTS} ]; do sleep 0.2; done",
                servers.replace('\'', "'\\''")
            ),
        )
        .ends(0);
}

#[test]
fn servers_of_real_dgl_stay_for_many_trainers() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let (folder, cluster) = pushed(&python);
    let human = "--format human";
    let train = |more: &str, spawn: &str| {
        let flags = format!("{TRAINERS} {more}");
        pipeline(&python, &flags, TENSORPIPE, &format!("{spawn} {human}"))
    };

    // none run
    cluster
        .sh(&folder, &train("", ""))
        .ends(74)
        .err_has("graph servers g: none run on these hosts\n  fix: start them, and leave them");
    // without tensorpipe DGL's servers say so and end
    cluster
        .sh(&folder, &pipeline(&python, SERVERS, "", human))
        .ends(1)
        .err_has("net_type can only be 'tensorpipe'")
        .err_has("persistent servers need net_type='tensorpipe'");
    cluster.assert_clean();

    serve(&cluster, &folder, &python);
    // two groups at once, then another one
    let both = train("", "");
    cluster
        .sh(
            &folder,
            &format!("{{ {both} >first; echo first $?; }} & {both} >second; echo second $?; wait"),
        )
        .out_has("first 0\n")
        .out_has("second 0\n")
        .err_has("group 0 of graph servers g")
        .err_has("group 1 of graph servers g");
    cluster
        .sh(&folder, &train("", "--job third"))
        .ends(0)
        .err_has("group 2 of graph servers g")
        .out_has("loss fell from");
    let list = || {
        let list = "ipconf-check ip.txt | dgl-reap --list --format human";
        cluster.sh(&folder, list).out
    };
    let after = list();
    assert_has(&after, "job g: ");
    assert_has(&after, "2 hosts, 2 servers");
    assert_has(&after, "3 groups served");
    unfit_trainers_are_refused(&cluster, &folder, &train);
    let again = pipeline(&python, SERVERS, TENSORPIPE, "");
    cluster
        .sh(&folder, &again)
        .ends(74)
        .err_has("a job named g is running");

    // a server dies: all end, and the trainers that used them too
    let long = train("", "").replace("--num-epochs 1", "--num-epochs 5000");
    let kill = "ssh h2 'kill -9 $(grep -l DGL_ROLE=server /proc/[0-9]*/environ | head -n 1 | cut \
        -d / -f 3)'";
    let killed = cluster.sh(
        &folder,
        &format!(
            "{{ {long} >fourth; echo status $?; }} & until grep -q epoch \
            fourth; do sleep 0.2; done; {kill}; wait"
        ),
    );
    let status = killed.out.trim_start_matches("status ").trim();
    killed
        .err_has("graph servers")
        .err_lacks("lost: its graph servers");
    assert!(status != "0");
    cluster.assert_clean();

    // started again, and ended without a trace
    serve(&cluster, &folder, &python);
    cluster
        .sh(&folder, "ipconf-check ip.txt | dgl-reap --job g")
        .ends(0);
    cluster.assert_clean();
    soon("their guards are gone", || !list().contains("job g"));
}

/// Servers for other trainers, or of another graph, are not used.
fn unfit_trainers_are_refused(
    cluster: &Cluster,
    folder: &Path,
    train: &impl Fn(&str, &str) -> String,
) {
    cluster
        .sh(folder, &train("--num-samplers 1", ""))
        .ends(74)
        .err_has(
            "hosts 0-1: its graph servers wait for 2 trainers and samplers, but this job has 4",
        )
        .err_has("were started for 0 samplers per trainer, but this job has 1");
    let config = cluster.lab.join("h2/srv/job/data/g.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}\n")).unwrap();
    cluster
        .sh(folder, &train("", ""))
        .ends(74)
        .err_has("partition config is not the one that its graph servers have loaded");
    std::fs::write(&config, text).unwrap();
}

/// DGL's own flags: the first command starts the servers, the second finds them.
#[test]
fn dgl_launch_keeps_servers_of_real_dgl() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let (folder, cluster) = pushed(&python);
    let launch = format!(
        "dgl-launch --keep_alive --server_name g --workspace /srv/job --num_trainers 1 \
         --num_omp_threads 1 --part_config data/g.json --ip_config ip_config.txt \
         '{python} dgl/train.py --ip-config ip_config.txt --part-config data/g.json \
         --num-epochs 1 {TENSORPIPE}'"
    );
    for group in 0..2 {
        let ran = cluster.sh(&folder, &launch);
        ran.ends(0)
            .out_has("loss fell from")
            .err_has(&format!("group {group} of graph servers g"))
            .err_has_times("starting graph servers g; ", usize::from(group == 0));
    }
    cluster
        .sh(&folder, "ipconf-check ip.txt | dgl-reap --job g")
        .ends(0);
    cluster.assert_clean();
    // servers that cannot start end it
    let wrong = launch.replace(TENSORPIPE, "");
    cluster
        .sh(&folder, &wrong)
        .ends(1)
        .err_has("net_type can only be 'tensorpipe'");
    cluster.assert_clean();
}

/// The records of three hosts of loopback, of servers and of trainers; what stands for servers only
/// waits.
fn three_hosts(name: &str, trainer: &str) -> std::path::PathBuf {
    let folder = scratch();
    let (mut hosts, mut servers, mut trainers) = (String::new(), String::new(), String::new());
    for id in 0..3 {
        let ip = format!("127.0.0.{}", id + 1);
        let host = host_record(id, 3, &ip);
        let process = |role: &str, command: &str| {
            json!({"type": "process", "id": id, "of": 3, "host": id, "ip": ip, "role": role,
                "rank": id, "server_name": name, "cwd": folder,
                "env": {"DGL_NUM_CLIENT": "3", "DGL_NUM_SERVER": "1", "DGL_NUM_SAMPLER": "0"},
                "argv": ["sh", "-c", command]})
        };
        hosts += &format!("{host}\n");
        servers += &format!("{}\n", process("server", "echo up; exec sleep 600"));
        trainers += &format!("{}\n", process("trainer", trainer));
    }
    for (name, text) in [
        ("hosts", &hosts),
        ("servers", &servers),
        ("trainers", &trainers),
    ] {
        write(&folder, name, text);
    }
    folder
}

#[test]
fn slow_the_host_of_a_dead_server_is_named_and_no_host_is_lost() {
    let folder = three_hosts("dead", "echo up; exec sleep 600");
    let script = format!(
        "{START_SERVERS}
         cat hosts trainers | $spawn --wait 1m --job uses >out.jsonl & p=$!
         until [ $(grep -c '\"started\"' out.jsonl) = 3 ] || ! kill -0 $p; do sleep 0.1; done
         kill -9 $(sed -n 's/.*\"host\":2,.*\"pid\":\\([0-9]*\\).*/\\1/p' servers.jsonl); wait $p"
    );
    sh(&folder, &script)
        .ends(74)
        .err_has("job uses was stopped: the graph servers that it used have ended\n")
        .err_has(", first on host 2 (127.0.0.3): ended by SIGKILL\n");
    let why = sh(&folder, "dgl-why out.jsonl").out;
    let message = "The job failed: the graph servers that it used have ended, first on host 2 \
        (127.0.0.3): ended by SIGKILL.\n";
    assert!(why.starts_with(message), "{why}");
    sh(&folder, "host-swap --run out.jsonl --spares hosts <hosts")
        .ends(65)
        .err_has("no host was lost");
}

/// Starts the servers of three hosts of loopback in the background, and waits until they run.
const START_SERVERS: &str = "spawn='dgl-spawn --no-preflight --connect local --grace 1s'
    cat hosts servers | $spawn >servers.jsonl 2>servers.txt & servers=$!
    until [ $(grep -c '\"started\"' servers.jsonl) = 3 ] || ! kill -0 $servers; do sleep 0.1; done";

/// The servers' supervisor is stopped while the trainers ask for it: it lives, and is waited for.
#[test]
fn slow_servers_whose_supervisor_is_slow_have_not_ended() {
    let folder = three_hosts("slow", "exit 0");
    let script = format!(
        "{START_SERVERS}
         s=$(pgrep -f '^host-agent supervise' | head -n 1)
         kill -STOP $s; {{ sleep 4; kill -CONT $s; }} &
         cat hosts trainers | $spawn --wait 1m --job uses-slow >out.jsonl; echo uses $?
         cat hosts trainers | $spawn --wait 1m --job uses-slow >out.jsonl; echo uses $?
         echo 127.0.0.1 | ipconf-check | dgl-reap --connect local --job slow >reaped
         wait $servers; echo servers $?"
    );
    sh(&folder, &script)
        .out_has("uses 0\nuses 0\nservers 143\n")
        .err_has("group 0 of graph servers slow")
        .err_has("group 1 of graph servers slow");
}

/// Servers that load their graph are waited for with --wait, up to its limit.
#[test]
fn slow_servers_that_do_not_listen_yet_are_waited_for_up_to_a_limit() {
    let folder = three_hosts("loads", "exit 0");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    // the first server of the job listens late, or never
    let listen = |after: &str| {
        format!(
            "sleep {after}; exec python3 -c 'import socket, time\n\
             s = socket.create_server((\"127.0.0.1\", {port}))\ntime.sleep(600)'"
        )
    };
    for (after, flags, status, message) in [
        (
            "6",
            "--wait 1m",
            0,
            "waiting for 1 min 0 s at most: graph servers loads: the servers of host",
        ),
        (
            "600",
            "--wait 3s",
            74,
            "the servers of host 0 (127.0.0.1) are loading their graph",
        ),
        ("600", "", 74, "wait for them with --wait TIME"),
    ] {
        let servers = std::fs::read_to_string(folder.join("servers")).unwrap();
        let mut records: Vec<serde_json::Value> = servers
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        records[0]["port"] = port.into();
        records[0]["argv"] = json!(["sh", "-c", listen(after)]);
        let text: String = records.iter().map(|record| format!("{record}\n")).collect();
        write(&folder, "servers", text);
        let script = format!(
            "{START_SERVERS}
             cat hosts trainers | $spawn {flags} --job uses-loads >out.jsonl; echo uses $?
             kill $servers; wait $servers"
        );
        sh(&folder, &script)
            .out_has(&format!("uses {status}\n"))
            .err_has(message);
    }
}

#[test]
fn flags_that_do_not_go_with_them() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let env = "ipconf-check ip.txt | dgl-env --workspace /w --part-config g.json --num-trainers 1 \
        --server-name g";
    let table = [
        (
            format!("{env} --keep-alive -- python3 t.py"),
            2,
            "--server-name: persistent graph servers and their trainers are separate jobs",
        ),
        (
            format!("{env} --role server -- python3 t.py"),
            2,
            "--server-name: only makes sense with --keep-alive if servers are started",
        ),
        (
            format!("{env} --role server --keep-alive -- python3 t.py | dgl-spawn --job h"),
            2,
            "--server-name of dgl-env gave them: g",
        ),
        (
            format!("{env} --role trainer -- python3 t.py | dgl-spawn --host 0"),
            2,
            "--host: graph servers g and their trainers need all hosts",
        ),
        (
            format!("{env} --role trainer -- python3 t.py | dgl-spawn --private-shm"),
            2,
            "--private-shm: the trainers of graph servers g",
        ),
    ];
    for (line, status, text) in table {
        sh(&folder, &line).ends(status).err_has(text);
    }
}
