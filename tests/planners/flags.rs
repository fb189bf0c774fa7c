//! What each of the smaller flags does to the hosts; ../cases/flags.txt has the records.

use support::{partition, scratch, sh, write};

#[test]
fn slow_flags_of_part_push() {
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
fn slow_flags_of_the_end_of_a_job() {
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
