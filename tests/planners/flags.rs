//! What each of the smaller flags does to the records, or to the hosts.

use support::{partition, scratch, sh, takes_seconds, write};

#[test]
fn flags_of_planners_are_seen_in_the_records() {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "# the only one\r\n127.0.0.1\t\r\n");
    write(&folder, "names.txt", "localhost 31000\n");
    write(&folder, "code/run.log", "");
    let map = "ipconf-check ip.txt | part-map --workspace /ws --part-config out/g.json";
    let env = "ipconf-check ip.txt | dgl-env --workspace /ws --part-config g.json --num-trainers 2";
    let process = |select: &str, what: &str| {
        format!("jq -r 'select(.type==\"process\" and {select}) | {what}' | sort -u")
    };
    let table = [
        (
            "ipconf-check --emit ip_config ip.txt".to_owned(),
            "127.0.0.1 30050\n",
        ),
        (
            "ipconf-check names.txt | jq -r '\"\\(.ip) \\(.port) \
            \\(.name)\"'"
                .to_owned(),
            "127.0.0.1 31000 localhost\n",
        ),
        (
            format!(
                "{map} --rel-data-path parts --config-name own.json | jq -r \
                'select(.type==\"graph\") | .part_config'"
            ),
            "parts/own.json\n",
        ),
        (
            format!(
                "{map} --script-folder code --exclude '*.log' | jq -r 'select(.kind==\"script\") \
            | .dst'"
            ),
            "/ws/code/run it.sh\n",
        ),
        (
            format!(
                "{map} --rel-data-path parts | jq -r \
                'select(.dst|tostring|endswith(\"graph.dgl\")) | .dst'"
            ),
            "/ws/parts/part0/graph.dgl\n",
        ),
        (
            format!(
                "{env} --num-server-threads 3 -- true | \
            {}",
                process(".role==\"server\"", ".env.OMP_NUM_THREADS")
            ),
            "3\n",
        ),
        (
            format!(
                "{env} --graph-format csc,coo -- true | \
            {}",
                process(".role==\"server\"", ".env.DGL_GRAPH_FORMAT")
            ),
            "csc,coo\n",
        ),
        (
            format!(
                "{env} --trainer-env D={{local_rank}} --server-env D=s{{host}} -- true | jq \
                -r 'select(.type==\"process\") | .env.D'"
            ),
            "s0\n0\n1\n",
        ),
        (
            "ipconf-check ip.txt | dgl-env --role worker --num-omp-threads 5 -- true | jq -r \
             '.env.OMP_NUM_THREADS // empty'"
                .to_owned(),
            "5\n",
        ),
        (
            format!(
                "{env} --local-rank-arg -- python3 t.py --lr 1 | \
                {}",
                process(".role==\"trainer\"", ".argv|join(\" \")")
            ),
            "python3 t.py --local_rank=0 --lr 1\npython3 t.py --local_rank=1 --lr 1\n",
        ),
    ];
    for (script, expected) in table {
        let got = sh(&folder, &script);
        assert_eq!(got.out, expected, "{script}\n{}", got.err);
    }
}

#[test]
fn flags_of_part_push() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "big", "word ".repeat(1 << 20));
    let push = "ipconf-check ip.txt | part-map --workspace \"$PWD/ws\" --extra big | part-push \
        --connect local --jobs 1 --progress never";
    for compress in ["always", "never", "auto"] {
        let pushed = sh(
            &folder,
            &format!("rm -rf ws; {push} --compress {compress} && cmp big ws/big"),
        );
        assert_eq!(
            (pushed.status, pushed.err.as_str()),
            (0, ""),
            "{compress}: progress: never"
        );
        let sent = sh(
            &folder,
            &format!(
                "rm -rf ws; {push} --compress {compress} | jq 'select(.type==\"pushed\") | \
                 .sent_bytes' | sort -n | tail -n 1"
            ),
        );
        let sent: u64 = sent.out.trim().parse().unwrap();
        let small = sent < 1 << 20;
        assert!(
            small
                || compress != "always"
                || sh(&folder, "command -v zstd || command -v unzstd").status != 0,
            "{compress}: {sent} sent"
        );
        assert!(!small || compress != "never", "{compress}: {sent} sent");
    }
}

#[test]
fn flags_of_the_end_of_a_job() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let job = format!("end-flags-{}", std::process::id());
    // it does not obey TERM, so only the end of its grace ends it
    let deaf = "ipconf-check ip.txt | dgl-env --role worker --workspace \"$PWD\" -- sh -c 'trap \
        \"\" TERM; : >deaf; while :; do sleep 0.1; done' >job.jsonl";
    sh(&folder, deaf).ends(0);
    let spawn = format!(
        "rm -f deaf; dgl-spawn --connect local --job {job} --grace 1s <job.jsonl >out.jsonl & \
         p=$!; until [ -e deaf ]; do sleep 0.05; done"
    );
    sh(&folder, &format!("{spawn}; kill $p; wait $p")).ends(143);
    let reaped = sh(
        &folder,
        &format!(
            "{spawn}; ipconf-check ip.txt | dgl-reap --connect local --job {job} --grace 0s; wait \
             $p; echo $?"
        ),
    );
    reaped.out_has(&format!(r#""job":"{job}""#));
    assert!(
        !reaped.out.ends_with("\n0\n"),
        "{}{}",
        reaped.out,
        reaped.err
    );
    let left = sh(
        &folder,
        &format!("grep -qsz '^DGL_TOOLS_JOB={job}$' /proc/[0-9]*/environ"),
    );
    assert_ne!(left.status, 0);
}
