//! Whole pipelines in plain `sh`: records, failures of a stage, the whole path on this machine
//! alone and on real hosts.

use support::{Cluster, TOOLS, partition, read, scratch, sh, write};

#[test]
fn slow_without_ssh_and_without_root() {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    let ws = folder.join("ws");
    let script = format!(
        "ipconf-check ip.txt | host-probe --connect local | part-map --part-config out/g.json \
         --workspace '{}' --script-folder code |
         part-push --connect local | dgl-env --role worker -- sh 'code/run it.sh' 'two  words \
             $HOME' | dgl-spawn --connect local --format human",
        ws.display()
    );
    sh(&folder, &script)
        .ends(0)
        .out_has("worker 0] graph of part 0")
        .out_has("worker 0] two  words $HOME")
        .err_has("6 files")
        .err_has("0 there already");
    sh(&folder, &script)
        .ends(0)
        .err_has("0 files, 0 B; 6 there already");
    let meta = |file: &str| {
        std::fs::metadata(folder.join(file))
            .unwrap()
            .modified()
            .unwrap()
    };
    assert_eq!(
        meta("out/part0/graph.dgl"),
        meta("ws/data/part0/graph.dgl"),
        "the time is kept, to the nanosecond"
    );
    let names: Vec<_> = std::fs::read_dir(&ws)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3, "nothing of ours stays: {names:?}");
}

#[test]
fn a_failed_stage_reaches_the_last_status_in_plain_sh() {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "bad.txt", "127.0.0.1 x\n");
    let map = "part-map --part-config out/g.json --workspace /nowhere/ws";
    let env = "dgl-env --num-trainers 1 -- true";
    let table = [
        (
            format!("ipconf-check bad.txt | {map} | {env} | dgl-spawn"),
            65,
        ),
        (
            format!(
                "ipconf-check ip.txt | part-map --part-config none.json --workspace /ws | {env} | \
                 dgl-spawn"
            ),
            65,
        ),
        (
            format!("ipconf-check ip.txt | {map} | dgl-env | dgl-spawn"),
            65,
        ),
        (
            format!("ipconf-check ip.txt | {map} | dgl-env --num-trainers 1 -- true | dgl-spawn"),
            65,
        ),
        (
            format!("ipconf-check ip.txt | {map} | head -c 300 | {env} | dgl-spawn"),
            65,
        ),
        (
            format!("ipconf-check ip.txt | {map} | head -n 3 | {env} | dgl-spawn --dry-run"),
            65,
        ),
        (
            "ipconf-check ip.txt | sh -c 'kill -9 $$' | dgl-spawn".to_owned(),
            65,
        ),
        ("true | host-probe".to_owned(), 65),
        ("true | part-push".to_owned(), 65),
        ("true | dgl-reap --list".to_owned(), 65),
        (
            format!("ipconf-check ip.txt | jq -c '.ok = false' | {env}"),
            65,
        ),
        ("ipconf-check none.txt".to_owned(), 74),
        ("ipconf-check --no-such-flag ip.txt".to_owned(), 2),
        (
            "ipconf-check ip.txt | part-push --connect local".to_owned(),
            65,
        ),
    ];
    for (script, status) in table {
        let got = sh(&folder, &script);
        got.ends(status);
        assert!(!got.err.trim().is_empty(), "{script} said nothing");
    }
}

#[test]
fn records_survive_jq_and_unknown_ones_pass() {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    let map = "part-map --part_config out/g.json --workspace /ws";
    let env = "dgl-env --num_trainers 1 -- true";
    let plain = sh(
        &folder,
        &format!("ipconf-check ip.txt | {map} | {env} 2>/dev/null"),
    );
    for filter in ["jq -c .", "jq ."] {
        let got = sh(
            &folder,
            &format!("ipconf-check ip.txt | {filter} | {map} | {filter} | {env} 2>/dev/null"),
        );
        assert_eq!((got.status, &got.out), (0, &plain.out), "{filter}");
    }
    let odd = r#"{"type":"mine","x":1.50, "big":123456789012345678901}"#;
    let got = sh(
        &folder,
        &format!("(ipconf-check ip.txt; echo '{odd}') | {map} | {env} 2>/dev/null"),
    );
    got.ends(0);
    assert!(got.out.lines().any(|line| line == odd), "{}", got.out);
}

#[test]
fn on_real_hosts() {
    let (folder, cluster) = Cluster::listed(3);
    partition(&folder, 3);
    let copy = "ipconf-check ip.txt | part-map --part-config out/g.json --workspace /srv/job \
        --script-folder code | part-push";
    for connect in ["ssh", "ssh2"] {
        cluster
            .sh(
                &folder,
                &format!("rm -rf /srv/job; {copy} --connect {connect} --verify >pushed.jsonl"),
            )
            .ends(0);
    }
    let run = "dgl-env --role worker -- sh 'code/run it.sh' | dgl-spawn --format human";
    let ran = cluster.sh(&folder, &format!("<pushed.jsonl {run}"));
    ran.ends(0);
    (0..3).for_each(|k| {
        ran.out_has(&format!("worker {k}] graph of part {k}"));
    });

    // the first that fails gives its status, and ends the others
    cluster
        .sh(
            &folder,
            "<pushed.jsonl dgl-env --role worker -- sh -c 'echo last \
        words; [ $RANK != 1 ] || exit 7; sleep 99' | dgl-spawn --format jsonl | tail -n 1",
        )
        .out_has(r#""ok":false,"code":7,"cause":"process""#)
        .out_has(r#""last_lines":["last words"]"#);
    let killed = cluster.sh(
        &folder,
        "<pushed.jsonl dgl-env --role worker -- sh -c 'kill -9 $$' | dgl-spawn >/dev/null",
    );
    killed.ends(137);
    cluster.assert_clean();

    // nothing outlives a launcher that is killed, whatever session it went to
    let tree = "sh -c 'sleep 300 & setsid sh -c \"sleep 301 & sleep 302\" & sleep 303'";
    let started = "until [ \"$(grep -c '\"started\"' out.jsonl)\" = 3 ]; do sleep 0.1; done";
    let kill9 = format!(
        "<pushed.jsonl dgl-env --role worker -- {tree} >job.jsonl; dgl-spawn <job.jsonl \
         >out.jsonl & p=$!; {started} 2>/dev/null; kill -9 $p; wait $p"
    );
    cluster.sh(&folder, &kill9).ends(137);
    cluster.assert_clean();

    // dgl-reap ends a job by its whole name
    let reap = format!(
        "rm -f out.jsonl; dgl-spawn --job ab <job.jsonl >out.jsonl & p=$!; {started} 2>/dev/null; \
         ipconf-check ip.txt | dgl-reap --job a >/dev/null; \
         ipconf-check ip.txt | dgl-reap --list | grep -c '\"job\":\"ab\"'; ipconf-check ip.txt | \
         dgl-reap --job ab >/dev/null; wait $p; echo \"status $?\""
    );
    let reaped = cluster.sh(&folder, &reap);
    let found: u32 = reaped
        .out
        .lines()
        .next()
        .and_then(|line| line.parse().ok())
        .unwrap_or(0);
    reaped.out_lacks("status 0");
    assert!(found >= 3);
    cluster.assert_clean();

    // faults: a host that is down, a key nobody knows, a wrong key, a port that is taken, no room
    cluster.call(&["stop", "3"]);
    cluster
        .sh(
            &folder,
            "ipconf-check ip.txt | DGL_TOOLS_CONNECT_TIMEOUT=3s host-probe >/dev/null",
        )
        .ends(74)
        .err_has("host 2 (10.77.0.3)");
    cluster.call(&["start", "3"]);
    let unknown = cluster.sh(
        &folder,
        // a file whose last line has no end, and what the fix makes of it
        "mv ~/.ssh/known_hosts ~/.ssh/k; printf '# mine' >~/.ssh/known_hosts
         ipconf-check ip.txt | host-probe 2>said >/dev/null; s=$?; cat said >&2
         sed '1,/accept these keys with/d; /or once with/,$d' said | sh &&
         ipconf-check ip.txt | host-probe >/dev/null && ssh-keygen -lf ~/.ssh/known_hosts
         mv ~/.ssh/k ~/.ssh/known_hosts; exit $s",
    );
    let fingerprints = |text: &str| -> Vec<String> {
        let words = text.split_whitespace();
        let mut found: Vec<String> = words
            .filter(|word| word.starts_with("SHA256:"))
            .map(str::to_owned)
            .collect();
        found.sort();
        found
    };
    let (shown, added) = (fingerprints(&unknown.err), fingerprints(&unknown.out));
    unknown.ends(74);
    assert!(shown.len() == 2 && added == shown);
    cluster
        .sh(
            &folder,
            "ssh-keygen -q -t ed25519 -N '' -f /tmp/wrong </dev/null; ipconf-check ip.txt | \
         DGL_TOOLS_IDENTITY=/tmp/wrong host-probe >/dev/null",
        )
        .ends(74)
        .err_has("login refused");
    let room = "mkdir -p /srv/big; mount -t tmpfs -o size=64k none /srv/big 2>/dev/null || exit \
        99; head -c 300000 /dev/zero >/tmp/big; cd /tmp; \
                echo 10.77.0.1 | ipconf-check | part-map --workspace /srv/big/ws --extra big | \
                part-push >/dev/null; s=$?; umount /srv/big; exit $s";
    let full = cluster.sh(&folder, room);
    // without root a host has no right to mount
    assert!(
        full.status == 99 || (full.status == 1 && full.err.contains("no space left")),
        "{} {}",
        full.status,
        full.err
    );
    cluster.assert_clean();
}

/// Rust's runtime opens /dev/null in the place of a closed stdout, so that no write fails.
#[test]
fn a_closed_stdout_is_an_error_in_every_tool() {
    let folder = scratch();
    write(&folder, "ip.txt", "10.0.0.1\n");
    let commands = TOOLS.map(|tool| format!("{tool} --help"));
    let works = "ipconf-check ip.txt".to_owned();
    for command in commands.into_iter().chain([works]) {
        let status = |redirected: &str| {
            let script = format!("{command} {redirected}; echo $? >status");
            let err = sh(&folder, &script).err;
            let status = read(&folder, "status");
            (status.trim().to_owned(), err)
        };
        let (closed, err) = status(">&-");
        assert!(
            closed == "74" && err.contains(": stdout: it is closed"),
            "{command}: {closed} {err}"
        );
        // the second as Python's subprocess.DEVNULL
        for discarded in [">/dev/null", "1<>/dev/null"] {
            assert_eq!(
                status(discarded),
                ("0".to_owned(), String::new()),
                "{command}"
            );
        }
    }
}
