//! Persistent graph servers, with real DGL: started and left, used by one group of trainers after
//! another and by two at once, refused where they do not fit, noticed when they have died, ended
//! without a trace.

use serde_json::json;
use support::{
    Cluster, assert_has, host_record, python_with_dgl, root, scratch, sh, soon, takes_seconds,
    write,
};

const HOSTS: u32 = 2;

#[test]
fn servers_of_real_dgl_stay_for_many_trainers() {
    let Some(python) = python_with_dgl() else {
        return;
    };
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
    let pushed = cluster.sh(&folder, &push);
    pushed.ends(0);
    let train = |flags: &str, spawn: &str, script: &str| {
        format!(
            "<pushed.jsonl dgl-env --num-trainers 1 --num-omp-threads 1 --server-name g {flags} \
             -- '{python}' dgl/train.py --ip-config ip_config.txt \
             --part-config data/g.json --num-epochs 1 {script} | dgl-spawn {spawn} --format human"
        )
    };
    let list = || {
        cluster
            .sh(
                &folder,
                "ipconf-check ip.txt | dgl-reap --list --format human",
            )
            .out
    };

    // nobody to serve them
    cluster
        .sh(&folder, &train("--role trainer", "", ""))
        .ends(74)
        .err_has("graph servers g: there are none on these hosts\n  fix: start them: ");
    // without tensorpipe DGL's servers say so and end
    cluster
        .sh(
            &folder,
            &train("--role server --keep-alive", "--detach", ""),
        )
        .ends(1)
        .err_has("net_type can only be 'tensorpipe'")
        .err_has("persistent servers need net_type='tensorpipe'");
    cluster.assert_clean();

    // two that ask at the same moment: one starts the servers, both use them
    let both = train("--keep-alive", "", "--net-type tensorpipe");
    cluster
        .sh(
            &folder,
            &format!("{{ {both} >first; echo first $?; }} & {both} >second; echo second $?; wait"),
        )
        .out_has("first 0\n")
        .out_has("second 0\n")
        .err_has_times("starting graph servers g: ", 1)
        .err_has("group 0 of graph servers g")
        .err_has("group 1 of graph servers g");
    let after = list();
    assert_has(&after, "job g: ");
    assert_has(&after, "2 hosts, 2 servers");
    assert_has(&after, "2 groups served");

    // the next one, which goes on without its launcher
    let third = cluster.sh(
        &folder,
        &train(
            "--role trainer",
            "--detach --job third",
            "--net-type tensorpipe",
        ),
    );
    third.ends(0).err_has("group 2 of graph servers g");
    cluster
        .sh(
            &folder,
            "ipconf-check ip.txt | dgl-spawn --attach third --format human",
        )
        .ends(0)
        .out_has("loss fell from");

    // servers for something else are not used
    cluster
        .sh(&folder, &train("--role trainer --num-samplers 1", "", ""))
        .ends(74)
        .err_has(
            "hosts 0-1: its graph servers wait for 2 trainers and samplers, but this job has 4",
        )
        .err_has("were started for 0 samplers per trainer, but this job has 1");
    let config = cluster.0.join("h2/srv/job/data/g.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}\n")).unwrap();
    let graph = cluster.sh(&folder, &train("--role trainer", "", ""));
    graph
        .ends(74)
        .err_has("partition config is not the one that its graph servers have loaded");
    std::fs::write(&config, text).unwrap();
    cluster
        .sh(
            &folder,
            &train(
                "--role server --keep-alive",
                "--detach",
                "--net-type tensorpipe",
            ),
        )
        .ends(74)
        .err_has("a job named g runs there");

    // a server dies: all end, the trainers that used them too, and the next ones hear of it
    let long = train("--role trainer", "", "--net-type tensorpipe")
        .replace("--num-epochs 1", "--num-epochs 5000");
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
    let dead = cluster.sh(&folder, &train("--role trainer", "", ""));
    dead.ends(74);
    // a server that answers a trainer which has died with the killed one aborts (TPSender::Send in
    // DGL's src/rpc/tensorpipe), and may be heard of first
    let first = [
        "host 1 (10.77.0.2): one was ended by SIGKILL",
        ": one was ended by SIGABRT",
    ];
    let ended = "graph servers g: they have ended: host ";
    dead.err_has(ended);
    assert!(
        first.iter().any(|end| dead.err.contains(end)),
        "{}",
        dead.err
    );

    // started again, and ended without a trace
    cluster
        .sh(
            &folder,
            &train(
                "--role server --keep-alive",
                "--detach",
                "--net-type tensorpipe",
            ),
        )
        .ends(0);
    cluster
        .sh(&folder, "ipconf-check ip.txt | dgl-reap --server-name g")
        .ends(0);
    cluster.assert_clean();
    soon("their guards are gone", || !list().contains("job g"));
}

/// Three hosts of loopback; what stands for servers and trainers only waits.
#[test]
fn the_host_of_a_dead_server_is_named_and_no_host_is_lost() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    let (mut hosts, mut servers, mut trainers) = (String::new(), String::new(), String::new());
    for id in 0..3 {
        let ip = format!("127.0.0.{}", id + 1);
        let host = host_record(id, 3, &ip);
        let process = |role: &str| {
            json!({"type": "process", "id": id, "of": 3, "host": id, "ip": ip, "role": role,
                "rank": id, "server_name": "dead", "cwd": folder,
                "env": {"DGL_NUM_CLIENT": "3", "DGL_NUM_SERVER": "1", "DGL_NUM_SAMPLER": "0"},
                "argv": ["sh", "-c", "echo up; exec sleep 600"]})
        };
        hosts += &format!("{host}\n");
        servers += &format!("{}\n", process("server"));
        trainers += &format!("{}\n", process("trainer"));
    }
    for (name, text) in [
        ("hosts", &hosts),
        ("servers", &servers),
        ("trainers", &trainers),
    ] {
        write(&folder, name, text);
    }
    let spawn = "dgl-spawn --no-preflight --connect local --grace 1s";
    let kill = "kill -9 $(sed -n 's/.*\"host\":2,.*\"pid\":\\([0-9]*\\).*/\\1/p' \
        .local/state/dgl-tools/dead/127.0.0.1/run.jsonl)";
    let wait = "until [ $(grep -c '\"started\"' out.jsonl) = 3 ] || ! kill -0 $p; do sleep 0.1; \
        done";
    let start = format!("cat hosts servers | {spawn} --detach >/dev/null");
    let attached = format!("cat hosts trainers | {spawn} --job uses >out.jsonl & p=$!; {wait}");
    let detached = format!(
        "cat hosts trainers | {spawn} --job uses --detach >/dev/null
         {spawn} --attach uses <hosts >out.jsonl & p=$!; {wait}"
    );
    for begin in [attached, detached] {
        let script = format!("export HOME=$PWD; {start}; {begin}; {kill}; wait $p");
        sh(&folder, &script)
            .ends(74)
            .err_has("job uses was ended: the graph servers that it used have ended\n")
            .err_has(", first on host 2 (127.0.0.3): ended by SIGKILL\n");
        let why = sh(&folder, "dgl-why out.jsonl").out;
        let message = "The job failed: the graph servers that it used have ended, first on host 2 \
            (127.0.0.3): ended by SIGKILL.\n";
        assert!(why.starts_with(message), "{why}");
        sh(&folder, "host-swap --run out.jsonl --spares hosts <hosts")
            .ends(65)
            .err_has("no host was lost");
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
            format!("{env} -- python3 t.py"),
            2,
            "--server-name: names graph servers that are to be started, and would not stay",
        ),
        (
            format!("{env} --role server --keep-alive -- python3 t.py | dgl-spawn"),
            2,
            "--detach: is missing: graph servers g are to stay",
        ),
        (
            format!(
                "{env} --role server --keep-alive -- python3 t.py | dgl-spawn --detach --job h"
            ),
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
