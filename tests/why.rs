//! dgl-why on the records of a job that runs and ends on this machine. Its verdicts on real jobs of
//! DGL are a table beside its source.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::path::Path;
use support::{scratch, sh, takes_seconds};

/// Runs a worker of Python on this machine; the records are in job.jsonl. It waits for other tests'
/// jobs that use the same port for torch.
fn job(folder: &Path, name: &str, script: &str) {
    std::fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    std::fs::write(folder.join("work.py"), script).unwrap();
    let run = format!(
        "ipconf-check ip.txt | dgl-env --role worker \
         --workspace \"$PWD\" -- python3 work.py | dgl-spawn --wait 2m --connect local \
              --job {name} >job.jsonl"
    );
    sh(folder, &run);
}

#[test]
fn it_names_the_exception_that_ended_a_job() {
    let folder = scratch("why-raises");
    job(
        &folder,
        "why-raises",
        "print('begun')\nraise KeyError('nothing')\n",
    );
    let why = sh(&folder, "dgl-why job.jsonl");
    assert_eq!(why.status, 0, "{}", why.err);
    let said =
        "The job failed: worker 0 on host 0 (127.0.0.1) raised KeyError: 'nothing'.\n  since: ";
    assert!(why.out.starts_with(said), "{}", why.out);
    assert!(
        why.out.contains(r#"shown by: {"type":"output""#)
            && why.out.contains(r#"{"type":"exited""#),
        "{}",
        why.out
    );
    let brief = sh(&folder, "dgl-why --brief job.jsonl").out;
    assert!(
        brief.starts_with(said) && !brief.contains("shown by"),
        "{brief}"
    );
    for same in ["dgl-why <job.jsonl", "dgl-why - <job.jsonl"] {
        assert_eq!(sh(&folder, same).out, why.out, "{same}");
    }
}

#[test]
fn it_finds_nothing_unusual_where_nothing_is() {
    let folder = scratch("why-well");
    job(&folder, "why-well", "print('done')\n");
    let why = sh(&folder, "dgl-why job.jsonl");
    assert!(
        why.out.starts_with("The job ended well: 1 process, ")
            && why.out.ends_with("\nNothing unusual.\n"),
        "{}",
        why.out
    );
    let begun = sh(
        &folder,
        "grep -v summary job.jsonl | grep -v exited | dgl-why",
    );
    assert!(
        begun.out.starts_with("The job runs: 1 process for "),
        "{}",
        begun.out
    );
}

#[test]
fn a_last_line_that_breaks_off_hides_nothing_before_it() {
    let folder = scratch("why-cut");
    job(&folder, "why-cut", "raise KeyError('nothing')\n");
    let cut = "grep -v summary job.jsonl >all; head -c -9 all >cut; grep summary job.jsonl >>cut";
    assert_eq!(sh(&folder, cut).status, 0);
    // in the midst nothing may be missing
    assert_eq!(sh(&folder, "dgl-why cut").status, 65);
    for (line, status) in [
        ("head -c -9 all | dgl-why", 0),
        ("head -c -9 all >live; dgl-why live", 0),
        ("head -c -9 all >live; dgl-report live", 0),
        // the stages of a pipeline want every record
        ("head -c -9 all | dgl-stacks --job x --connect local", 65),
    ] {
        let got = sh(&folder, line);
        assert!(
            got.status == status && got.err.contains(" breaks off"),
            "{line}: {} {}",
            got.status,
            got.err
        );
        assert_eq!(got.out.contains("KeyError"), status == 0, "{line}");
    }
}

#[test]
fn questions_to_the_hosts_end_no_job() {
    let folder = scratch("why-asked");
    job(&folder, "why-asked", "print('done')\n");
    let ask = "grep -v -e summary -e exited job.jsonl | dgl-reap --connect local --list >asked";
    let asked = sh(&folder, ask);
    assert_eq!(asked.status, 0, "{}", asked.err);
    let why = sh(&folder, "tail -n 1 asked | grep summary && dgl-why asked");
    assert!(why.out.contains("\nThe job runs: "), "{}", why.out);
    let page = sh(&folder, "dgl-report asked").out;
    assert!(!page.contains("The job ended well"), "{page}");
}

#[test]
fn what_is_no_run_is_refused() {
    let folder = scratch("why-refused");
    assert_eq!(sh(&folder, "dgl-why </dev/null").status, 65);
    assert_eq!(sh(&folder, "echo x | dgl-why").status, 65);
    let hosts = sh(&folder, "echo 127.0.0.1 | ipconf-check - | dgl-why");
    assert_eq!(hosts.status, 0, "{}", hosts.err);
    assert!(
        hosts.out.starts_with("The job was not started: "),
        "{}",
        hosts.out
    );
}

#[test]
fn memory_does_not_grow_with_what_a_job_wrote() {
    if takes_seconds() {
        return;
    }
    let folder = scratch("why-memory");
    job(
        &folder,
        "why-memory",
        "print('begun')\nraise KeyError('nothing')\n",
    );
    // 100 MB of output come before the exception
    let long = r#"line=$(printf "%1000s" | tr " " x)
        record="{\"type\":\"output\",\"id\":0,\"stream\":\"stdout\",\"time_ms\":@"
        record="$record,\"line\":\"$line\"}"
        at=$(sed -n 's/.*"begun".*"time_ms":\([0-9]*\).*/\1/p' job.jsonl)
        { sed '/"begun"/q' job.jsonl; yes "$record" | head -n 100000 | sed "s/@/$at/"
          sed '1,/"begun"/d' job.jsonl; } >long.jsonl
        wc -c <long.jsonl"#;
    let bytes: u64 = sh(&folder, long).out.trim().parse().unwrap();
    assert!(bytes > 100_000_000, "{bytes}");
    for tool in ["dgl-why --brief", "dgl-report --lines 5"] {
        // in KiB, of address space
        let ran = sh(&folder, &format!("ulimit -v 65536; {tool} long.jsonl"));
        assert_eq!(ran.status, 0, "{tool}: {}", ran.err);
        assert!(ran.out.contains("raised KeyError: "), "{tool}: {}", ran.out);
    }
}
