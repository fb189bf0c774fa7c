//! The pipelines as users run them: plain `sh`, real binaries, real sshd on real hosts, real DGL.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The folder of the tools that were built with this test.
fn tools() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().find(|folder| folder.join("dgl-spawn").is_file());
    folder.expect("the tools are not built: run `make test`").to_owned()
}

/// A folder of this test's own, empty.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

struct Ran {
    status: i32,
    out: String,
    err: String,
}

fn ran(output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn path() -> String {
    format!("{}:{}", tools().display(), std::env::var("PATH").unwrap())
}

/// A script in plain `sh`, without pipefail, in a folder.
fn sh(folder: &Path, script: &str) -> Ran {
    ran(Command::new("timeout").args(["300", "sh", "-c", script]).current_dir(folder).env("PATH", path()).output().unwrap())
}

/// Hosts of our own; taken down at the end whatever happens.
struct Cluster(PathBuf);

impl Cluster {
    fn up(name: &str, hosts: u32) -> Cluster {
        let lab = PathBuf::from(format!("/var/tmp/dgl-tools-test-{name}-{}", std::process::id()));
        let cluster = Cluster(lab);
        let up = cluster.call(&["up", &hosts.to_string()]);
        assert_eq!(up.status, 0, "the cluster did not start: {}", up.err);
        cluster
    }

    fn call(&self, args: &[&str]) -> Ran {
        let script = root().join("tests/cluster/cluster.sh");
        ran(Command::new("timeout").arg("600").arg(script).args(args).env("LAB", &self.0).env("PATH", path()).output().unwrap())
    }

    /// A script on host 1, the launching machine, in a folder.
    fn sh(&self, folder: &Path, script: &str) -> Ran {
        self.call(&["exec", "1", "sh", "-c", &format!("cd '{}'; PATH='{}'; {script}", folder.display(), path())])
    }

    /// Nothing is left on any host, soon.
    fn assert_clean(&self) {
        for _ in 0..60 {
            if self.call(&["left"]).status == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(250));
        }
        panic!("left on the hosts:\n{}", self.call(&["left"]).out);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.call(&["down"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A partitioned graph as far as the planners look into it.
fn partition(folder: &Path, parts: u32) {
    let mut config = String::from(r#"{"graph_name":"g","num_nodes":1,"num_edges":1,"node_map":{"_N":[]},"edge_map":{}"#);
    config += &format!(",\"num_parts\":{parts}");
    for k in 0..parts {
        std::fs::create_dir_all(folder.join(format!("out/part{k}"))).unwrap();
        for name in ["node_feat", "edge_feat", "graph"] {
            std::fs::write(folder.join(format!("out/part{k}/{name}.dgl")), format!("{name} of part {k}")).unwrap();
        }
        config += &format!(
            r#","part-{k}":{{"node_feats":"part{k}/node_feat.dgl","edge_feats":"part{k}/edge_feat.dgl","part_graph":"part{k}/graph.dgl"}}"#
        );
    }
    std::fs::write(folder.join("out/g.json"), config + "}").unwrap();
    std::fs::create_dir_all(folder.join("code")).unwrap();
    std::fs::write(folder.join("code/run it.sh"), "cat \"data/part$RANK/graph.dgl\"; echo; echo \"$1\"\n").unwrap();
}

fn ip_config(folder: &Path, hosts: u32) {
    let text: String = (1..=hosts).map(|k| format!("10.77.0.{k}\n")).collect();
    std::fs::write(folder.join("ip.txt"), text).unwrap();
}

#[test]
fn without_ssh_and_without_root() {
    let folder = scratch("local");
    partition(&folder, 1);
    std::fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    let ws = folder.join("ws");
    let script = format!(
        "ipconf-check ip.txt | host-probe --connect local | part-map --part-config out/g.json --workspace '{}' --script-folder code |
         part-push --connect local | dgl-env --role worker -- sh 'code/run it.sh' 'two  words $HOME' | dgl-spawn --connect local --format human",
        ws.display()
    );
    let first = sh(&folder, &script);
    assert_eq!(first.status, 0, "{}", first.err);
    assert!(first.out.contains("worker 0] graph of part 0") && first.out.contains("worker 0] two  words $HOME"), "{}", first.out);
    assert!(first.err.contains("6 files") && first.err.contains("0 there already"), "{}", first.err);
    let again = sh(&folder, &script);
    assert_eq!(again.status, 0, "{}", again.err);
    assert!(again.err.contains("0 files, 0 B; 6 there already"), "{}", again.err);
    let meta = |file: &str| std::fs::metadata(folder.join(file)).unwrap().modified().unwrap();
    assert_eq!(meta("out/part0/graph.dgl"), meta("ws/data/part0/graph.dgl"), "the time is kept, to the nanosecond");
    let names: Vec<_> = std::fs::read_dir(&ws).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "nothing of ours stays: {names:?}");
}

#[test]
fn a_failed_stage_reaches_the_last_status_in_plain_sh() {
    let folder = scratch("stages");
    partition(&folder, 1);
    std::fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    std::fs::write(folder.join("bad.txt"), "127.0.0.1 x\n").unwrap();
    let map = "part-map --part-config out/g.json --workspace /nowhere/ws";
    let env = "dgl-env --num-trainers 1 --no-push-check -- true";
    let table = [
        (format!("ipconf-check bad.txt | {map} | {env} | dgl-spawn"), 65),
        (format!("ipconf-check ip.txt | part-map --part-config none.json --workspace /ws | {env} | dgl-spawn"), 65),
        (format!("ipconf-check ip.txt | {map} | dgl-env | dgl-spawn"), 65),
        (format!("ipconf-check ip.txt | {map} | dgl-env --num-trainers 1 -- true | dgl-spawn"), 65),
        (format!("ipconf-check ip.txt | {map} | head -c 300 | {env} | dgl-spawn"), 65),
        (format!("ipconf-check ip.txt | {map} | head -n 3 | {env} | dgl-spawn --dry-run"), 65),
        ("ipconf-check ip.txt | sh -c 'kill -9 $$' | dgl-spawn".to_owned(), 65),
        ("true | host-probe".to_owned(), 65),
        ("true | part-push".to_owned(), 65),
        ("true | dgl-reap --list".to_owned(), 65),
        (format!("ipconf-check ip.txt | jq -c '.ok = false' | {env}"), 65),
        ("ipconf-check none.txt".to_owned(), 74),
        ("ipconf-check --no-such-flag ip.txt".to_owned(), 2),
        ("ipconf-check ip.txt | part-push --connect local".to_owned(), 65),
    ];
    for (script, status) in table {
        let got = sh(&folder, &script);
        assert_eq!(got.status, status, "{script}\n{}", got.err);
        assert!(!got.err.trim().is_empty(), "{script} said nothing");
    }
}

#[test]
fn records_survive_jq_and_unknown_ones_pass() {
    let folder = scratch("jq");
    partition(&folder, 1);
    std::fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    let map = "part-map --part_config out/g.json --workspace /ws";
    let env = "dgl-env --num_trainers 1 --no-push-check -- true";
    let plain = sh(&folder, &format!("ipconf-check ip.txt | {map} | {env} 2>/dev/null"));
    for filter in ["jq -c .", "jq ."] {
        let got = sh(&folder, &format!("ipconf-check ip.txt | {filter} | {map} | {filter} | {env} 2>/dev/null"));
        assert_eq!((got.status, &got.out), (0, &plain.out), "{filter}");
    }
    let odd = r#"{"type":"mine","x":1.50, "big":123456789012345678901}"#;
    let got = sh(&folder, &format!("(ipconf-check ip.txt; echo '{odd}') | {map} | {env} 2>/dev/null"));
    assert!(got.status == 0 && got.out.lines().any(|line| line == odd), "{}", got.out);
}

#[test]
fn every_flag_is_in_the_help() {
    let folder = scratch("help");
    for tool in ["ipconf-check", "host-probe", "part-map", "part-push", "dgl-env", "dgl-spawn", "dgl-reap"] {
        let help = sh(&folder, &format!("{tool} --help"));
        assert!(help.status == 0 && help.out.contains("Examples:"), "{tool}: {}{}", help.out, help.err);
        assert_eq!(sh(&folder, &format!("{tool} --version")).status, 0);
    }
}

#[test]
fn on_real_hosts() {
    let folder = scratch("hosts");
    let cluster = Cluster::up("hosts", 3);
    partition(&folder, 3);
    ip_config(&folder, 3);
    let copy = "ipconf-check ip.txt | part-map --part-config out/g.json --workspace /srv/job --script-folder code | part-push";
    for connect in ["ssh", "ssh2"] {
        let pushed = cluster.sh(&folder, &format!("rm -rf /srv/job; {copy} --connect {connect} --verify >pushed.jsonl"));
        assert_eq!(pushed.status, 0, "{connect}: {}", pushed.err);
    }
    let run = "dgl-env --role worker -- sh 'code/run it.sh' | dgl-spawn --format human";
    let ran = cluster.sh(&folder, &format!("<pushed.jsonl {run}"));
    assert_eq!(ran.status, 0, "{}", ran.err);
    (0..3).for_each(|k| assert!(ran.out.contains(&format!("worker {k}] graph of part {k}")), "{}", ran.out));

    // the first that fails gives its status, and ends the others
    let fails = cluster.sh(&folder, "<pushed.jsonl dgl-env --role worker -- sh -c 'echo last words; [ $RANK != 1 ] || exit 7; sleep 99' | dgl-spawn --format jsonl | tail -n 1");
    assert!(
        fails.out.contains(r#""ok":false,"code":7,"cause":"process""#) && fails.out.contains(r#""last_lines":["last words"]"#),
        "{}",
        fails.out
    );
    let killed = cluster.sh(&folder, "<pushed.jsonl dgl-env --role worker -- sh -c 'kill -9 $$' | dgl-spawn >/dev/null");
    assert_eq!(killed.status, 137, "{}", killed.err);
    cluster.assert_clean();

    // nothing outlives a launcher that is killed, whatever session it went to
    let tree = "sh -c 'sleep 300 & setsid sh -c \"sleep 301 & sleep 302\" & sleep 303'";
    let kill9 = format!(
        "<pushed.jsonl dgl-env --role worker -- {tree} >job.jsonl; dgl-spawn <job.jsonl >/dev/null & p=$!; sleep 3; kill -9 $p; wait $p"
    );
    assert_eq!(cluster.sh(&folder, &kill9).status, 137);
    cluster.assert_clean();

    // dgl-reap ends a job by its whole name
    let reap = "dgl-spawn --job ab <job.jsonl >out.jsonl & p=$!; sleep 3; ipconf-check ip.txt | dgl-reap --job a >/dev/null; \
                ipconf-check ip.txt | dgl-reap --list | grep -c '\"job\":\"ab\"'; ipconf-check ip.txt | dgl-reap --job ab >/dev/null; wait $p; echo \"status $?\"";
    let reaped = cluster.sh(&folder, reap);
    let found: u32 = reaped.out.lines().next().and_then(|line| line.parse().ok()).unwrap_or(0);
    assert!(found >= 3 && !reaped.out.contains("status 0"), "{}{}", reaped.out, reaped.err);
    cluster.assert_clean();

    // faults: a host that is down, a key nobody knows, a wrong key, a port that is taken, no room
    cluster.call(&["stop", "3"]);
    let down = cluster.sh(&folder, "ipconf-check ip.txt | host-probe --connect-timeout 3s >/dev/null");
    assert!(down.status == 74 && down.err.contains("host 2 (10.77.0.3)"), "{} {}", down.status, down.err);
    cluster.call(&["start", "3"]);
    let unknown = cluster.sh(
        &folder,
        "mv ~/.ssh/known_hosts ~/.ssh/k; ipconf-check ip.txt | host-probe >/dev/null; s=$?; mv ~/.ssh/k ~/.ssh/known_hosts; exit $s",
    );
    assert!(unknown.status == 74 && unknown.err.matches("SHA256:").count() == 2 && unknown.err.contains("ssh-keyscan"), "{}", unknown.err);
    let wrong = cluster.sh(
        &folder,
        "ssh-keygen -q -t ed25519 -N '' -f /tmp/wrong </dev/null; ipconf-check ip.txt | host-probe --identity /tmp/wrong >/dev/null",
    );
    assert!(wrong.status == 74 && wrong.err.contains("login refused"), "{}", wrong.err);
    let room = "mkdir -p /srv/big; mount -t tmpfs -o size=64k none /srv/big 2>/dev/null || exit 99; head -c 300000 /dev/zero >/tmp/big; cd /tmp; \
                echo 10.77.0.1 | ipconf-check | part-map --workspace /srv/big/ws --extra big | part-push >/dev/null; s=$?; umount /srv/big; exit $s";
    let full = cluster.sh(&folder, room);
    // without root a host has no right to mount
    assert!(full.status == 99 || (full.status == 1 && full.err.contains("no space left")), "{} {}", full.status, full.err);
    cluster.assert_clean();
}

#[test]
fn real_dgl_trains_to_its_end() {
    let python = Command::new(root().join("tests/dgl/python.sh")).output().unwrap();
    let python = ran(python);
    if python.status != 0 {
        assert!(std::env::var_os("CI").is_none(), "no DGL: {}", python.err);
        println!("skipped: no DGL here: {}", python.err);
        return;
    }
    let python = python.out.trim();
    let folder = scratch("train");
    let cluster = Cluster::up("train", 4);
    ip_config(&folder, 4);
    let scripts = root().join("tests/dgl");
    let made = sh(&folder, &format!("DGLBACKEND=pytorch '{python}' '{}/partition.py' --out out --num-parts 4", scripts.display()));
    assert_eq!(made.status, 0, "{}", made.err);

    // DGL itself loads the copied config, by each of the three ways to name its files
    for (paths, config) in [("workspace", "g.json"), ("absolute", "data/g.json"), ("config", "data/g.json")] {
        let copy = format!(
            "ipconf-check ip.txt | part-map --part-config out/g.json --workspace /srv/job --paths {paths} --script-folder '{}' | part-push >pushed.jsonl",
            scripts.display()
        );
        let pushed = cluster.sh(&folder, &copy);
        assert_eq!(pushed.status, 0, "{}", pushed.err);
        let load =
            format!("<pushed.jsonl dgl-env --role worker 'exec \"{python}\" dgl/load.py {config} 4 $RANK' | dgl-spawn --format human");
        let loaded = cluster.sh(&folder, &load);
        assert_eq!(loaded.status, 0, "{paths}: {}{}", loaded.out, loaded.err);
        assert_eq!(loaded.out.matches("loaded part").count(), 4, "{}", loaded.out);
    }
    for launcher in ["direct", "torchrun --launcher-arg=--redirects=1 --launcher-arg=--tee=1"] {
        let train = format!(
            "<pushed.jsonl host-probe --workspace /srv/job --python '{python}' | dgl-env --num-trainers 2 --num-servers 2 --num-samplers 1 \
             --num-omp-threads 1 --launcher {launcher} -- '{python}' dgl/train.py --ip-config ip_config.txt --part-config data/g.json --num-epochs 3 | \
             dgl-spawn --format human --log-dir logs"
        );
        let trained = cluster.sh(&folder, &train);
        assert_eq!(trained.status, 0, "{launcher}: {}{}", trained.out, trained.err);
        assert!(trained.out.contains("loss fell from"), "{}", trained.out);
        cluster.assert_clean();
    }
}
