//! The whole pipeline on real hosts; ../cases/slow_pipelines.txt has it on this machine.

use support::{Cluster, partition};

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
