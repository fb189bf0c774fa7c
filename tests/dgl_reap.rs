//! dgl-reap on real hosts: what it shows, signals, ends and removes, and what it leaves alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use support::{Cluster, Ran, ip_config, scratch};

/// Waits for USR1 and says so; the server listens.
const JOB_PY: &str = "
import os, signal, socket, sys, time
signal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))
s = socket.socket()
if os.environ['DGL_ROLE'] == 'server':
    s.bind(('0.0.0.0', 30050))
    s.listen()
print('up', flush=True)
while True:
    time.sleep(1)
";

fn on(cluster: &Cluster, host: &str, script: &str) -> Ran {
    cluster.call(&["exec", host, "sh", "-c", script])
}

/// A process that stays, until `kill` gets what is returned.
fn start(cluster: &Cluster, command: &str) -> String {
    on(cluster, "1", &format!("{command} >/dev/null 2>&1 </dev/null & echo $!")).out.trim().to_owned()
}

#[test]
fn jobs_on_real_hosts_are_shown_and_signalled() {
    let folder = scratch("reap");
    let cluster = Cluster::up("reap", 2);
    ip_config(&folder, 2);
    std::fs::write(folder.join("job.py"), JOB_PY).unwrap();
    let start = format!(
        "ipconf-check ip.txt | dgl-env --num-trainers 2 --workspace '{0}' --part-config g.json -- python3 job.py >job.jsonl 2>/dev/null
         dgl-spawn --connect-timeout 60s --no-preflight --job try7 --format human <job.jsonl >out.txt 2>err.txt & p=$!
         until [ $(grep -c '] up' out.txt) = 6 ] || ! kill -0 $p; do sleep 0.2; done",
        folder.display()
    );
    let reap = "ipconf-check ip.txt | dgl-reap --connect-timeout 60s";
    let script = format!(
        "{start}
         {reap} --list --format human >table.txt; {reap} --list | grep '\"found\"' >found.jsonl
         {reap} --job try7 --role trainer --rank 3 --signal usr1 --format human
         until grep -q 'got it' out.txt || ! kill -0 $p; do sleep 0.2; done
         {reap} --job try7 --role trainer --rank 9 --signal USR1 2>none.txt >/dev/null; echo \"none $?\"
         {reap} --job try7 --signal NONE 2>/dev/null; echo \"wrong $?\"; {reap} --list --signal USR1 2>/dev/null; echo \"alone $?\"
         {reap} --job try7 | tail -n 1; wait $p"
    );
    let got = cluster.sh(&folder, &script);
    let text = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    assert!(got.out.contains("1 process got SIGUSR1"), "{}{}", got.out, got.err);
    for status in ["none 1", "wrong 2", "alone 2", r#""ok":true,"code":0"#] {
        assert!(got.out.contains(status), "{status}: {}{}", got.out, got.err);
    }
    assert!(text("none.txt").contains("no such process of job try7 on any host"), "{}", text("none.txt"));
    let told = text("out.txt");
    assert_eq!(told.matches("got it").count(), 1, "{told}");
    assert!(told.contains("trainer 3] got it"), "{told}");

    let table = text("table.txt");
    let head = table.lines().next().unwrap();
    assert!(head.starts_with("job try7: ") && head.contains(" s, 2 hosts, 2 servers, 4 trainers, "), "{table}");
    assert!(head.ends_with("MB, ports 30050") && table.lines().count() == 2 + 6, "{table}");
    let found = text("found.jsonl");
    assert_eq!(found.matches(r#""ports":[30050]"#).count(), 2, "{found}");
    assert!(found.contains(r#""role":"server","rank":1"#) && found.contains(r#""role":"trainer","rank":3"#), "{found}");
    cluster.assert_clean();
}

#[test]
fn on_real_hosts_only_what_is_meant_ends() {
    let folder = scratch("meant");
    let cluster = Cluster::up("meant", 1);
    ip_config(&folder, 1);
    let reap = "ipconf-check ip.txt | dgl-reap --connect-timeout 60s";

    // a process of a job that looks at the job and ends it does not meet itself
    let inside = "echo 10.77.0.1 | ipconf-check | dgl-reap --connect local --list | grep -c found; \
                  echo 10.77.0.1 | ipconf-check | dgl-reap --connect local --job own --format human >/srv/ended 2>&1";
    std::fs::write(folder.join("inside.sh"), format!("setsid sleep 300 &\nsleep 0.5\n{inside}\n")).unwrap();
    let run = format!(
        "ipconf-check ip.txt | dgl-env --role worker --workspace '{}' -- sh inside.sh 2>/dev/null | dgl-spawn --job own --format human; \
         for i in 1 2 3 4 5 6 7 8 9 10; do grep ended /srv/ended && break; sleep 0.5; done",
        folder.display()
    );
    let got = cluster.sh(&folder, &run);
    // sh, sleep, and the sh, grep and ipconf-check of the pipeline in which dgl-reap stands; never dgl-reap and its own
    assert!(got.out.contains("processes ended") && got.out.contains("nothing is left"), "{}{}", got.out, got.err);
    let listed: u32 = got.out.split("worker 0] ").nth(1).and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap();
    assert!((2..=5).contains(&listed), "{}", got.out);
    cluster.assert_clean();

    // of the files in /dev/shm only those of DGL that nobody maps
    let maps = "import mmap, time; f = open('/dev/shm/dgl.graphbolt.h_data.lock', 'w+b'); f.truncate(9); m = mmap.mmap(f.fileno(), 0); time.sleep(99)";
    let files = "cd /dev/shm && touch psm_mine x_node_count 'edge~a:b:c~w-kvdata-' g g_node_meta g_edge__ID g_node_more gg_0_csc_indptr h hh_0_csc_data";
    on(&cluster, "1", files);
    let mapper = start(&cluster, &format!("python3 -c \"{maps}\""));
    on(&cluster, "1", &format!("until grep -q graphbolt /proc/{mapper}/maps || ! kill -0 {mapper}; do sleep 0.1; done"));
    let removed = cluster.sh(&folder, &format!("{reap} --stale-shm --format human"));
    assert!(removed.out.contains("6 files removed from /dev/shm"), "{}{}", removed.out, removed.err);
    let kept = on(&cluster, "1", &format!("ls /dev/shm; rm /dev/shm/*; kill {mapper}"));
    assert_eq!(kept.out, "dgl.graphbolt.h_data.lock\nh\nhh_0_csc_data\npsm_mine\nx_node_count\n");

    // root sees everybody's processes, and means its own
    if on(&cluster, "1", "id -u").out.trim() == "0" {
        let theirs = "setpriv --reuid 65534 --regid 65534 --clear-groups \
                      env DGL_TOOLS_TOKEN=0123456789abcdef0123456789abcdef DGL_TOOLS_JOB=theirs sleep 300";
        let stranger = start(&cluster, theirs);
        let all = cluster.sh(&folder, &format!("sleep 0.5; {reap} --list; {reap} --job theirs; {reap} --all; kill {stranger}"));
        assert!(all.status == 0 && !all.out.contains("found") && !all.out.contains("reaped"), "{}{}", all.out, all.err);
    }
    cluster.assert_clean();
}
