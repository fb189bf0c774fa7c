//! A stage that fails, in every way, at every place of the pipeline: the last stage's status says
//! so in plain `sh`, without pipefail, and nothing is done behind it.

use std::path::Path;
use support::{Ran, partition, read, scratch, sh, write};

/// A tool, its arguments, and the set that it adds to the stream.
struct Stage(&'static str, &'static str, &'static str);

const PIPELINE: [Stage; 6] = [
    Stage("ipconf-check", "ip.txt", "host"),
    Stage("host-probe", "", "host"),
    Stage(
        "part-map",
        "--part-config out/g.json --workspace \"$PWD/ws\"",
        "file",
    ),
    Stage("part-push", "", "pushed"),
    Stage(
        "dgl-env",
        "--num-trainers 2 --role trainer -- touch ran",
        "process",
    ),
    Stage("dgl-spawn", "", ""),
];

/// Ways to fail, as filters of what the stage would have written, and what the stage behind it
/// says.
const WAYS: [(&str, &str, &str); 7] = [
    (
        "is not there",
        "no-such-tool",
        "nothing to do: the previous tool failed",
    ),
    (
        "refuses its arguments",
        "sh -c 'cat >/dev/null; exit 2'",
        "nothing to do: the previous tool failed",
    ),
    (
        "dies before it reads",
        "sh -c 'kill -9 $$'",
        "nothing to do: the previous tool failed",
    ),
    (
        "dies when it has read all",
        "sh -c 'cat >/dev/null; kill -9 $$'",
        "nothing to do: the previous tool failed",
    ),
    (
        "dies within its first line",
        "sh -c 'head -c 9; kill -9 $$'",
        "breaks off in the middle",
    ),
    (
        "dies within its last line",
        "sh -c 'head -c -9; kill -9 $$'",
        "breaks off in the middle",
    ),
    (
        "has an item that failed",
        "jq -c 'if .id == 0 then .ok = false | .error = \"broken\" else . end'",
        "0 failed: broken",
    ),
];

/// The stages behind number `at`, each with its pipe.
fn rest(at: usize) -> String {
    PIPELINE[at + 1..]
        .iter()
        .map(|Stage(tool, args, _)| format!(" | {tool} {args}"))
        .collect()
}

fn local(folder: &Path, script: &str) -> Ran {
    sh(folder, &format!("export DGL_TOOLS_CONNECT=local; {script}"))
}

/// All that is in the workspace, to the nanosecond.
fn workspace(folder: &Path) -> String {
    sh(
        folder,
        "find ws -printf '%p %s %T@ %C@\\n' 2>/dev/null | sort",
    )
    .out
}

/// Runs what breaks off in place of stage number `at`, and the stages behind it.
fn assert_refused(folder: &Path, at: usize, broken: &str, how: &str, message: &str) {
    let before = workspace(folder);
    let got = local(folder, &format!("{broken}{}", rest(at)));
    let (tool, next) = (PIPELINE[at].0, PIPELINE[at + 1].0);
    got.ends(65);
    // that all files were pushed is for dgl-spawn to see, right behind dgl-env
    let from = |line: &str, tool: &str| line.starts_with(&format!("{tool}: "));
    let explained = got.err.lines().any(|line| {
        let is_of_next = from(line, next) || next == "dgl-env" && from(line, "dgl-spawn");
        is_of_next && line.contains(message)
    });
    assert!(
        explained,
        "{tool} {how}: {next} does not say {message:?}\n{}",
        got.err
    );
    assert_eq!(
        workspace(folder),
        before,
        "{tool} {how}: something was done behind it"
    );
    got.out_lacks(r#""type":"started""#);
}

#[test]
fn slow_every_stage_failing_in_every_way_fails_the_last_one() {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "in", "");
    for (at, Stage(tool, args, set)) in PIPELINE.iter().enumerate().take(5) {
        let whole = local(&folder, &format!("<in {tool} {args} >whole"));
        whole.ends(0);
        for (how, filter, message) in WAYS {
            assert_refused(&folder, at, &format!("<whole {filter}"), how, message);
        }
        let lines = read(&folder, "whole");
        let count = lines.lines().count();
        for kept in 0..count {
            assert_refused(
                &folder,
                at,
                &format!("head -n {kept} whole"),
                &format!("breaks off after {kept} lines"),
                "",
            );
        }
        let members: Vec<_> = (1..=count)
            .zip(lines.lines())
            .filter(|(_, line)| line.contains(&format!(r#""type":"{set}""#)))
            .collect();
        assert!(!members.is_empty(), "{tool} adds no {set}");
        for (number, _) in &members {
            let message = match members.len() {
                1 => "nothing to do: the previous tool failed".to_owned(),
                of => format!("1 of {of} {set} records are missing"),
            };
            // a host alone has no stream without it
            let message = if count > 1 && members.len() == 1 {
                format!("{set} record")
            } else {
                message
            };
            assert_refused(
                &folder,
                at,
                &format!("sed {number}d whole"),
                &format!("loses line {number}"),
                &message,
            );
        }
        if at > 0 {
            assert_killed_while_it_reads(&folder, at);
        }
        std::fs::rename(folder.join("whole"), folder.join("in")).unwrap();
    }
    // A status alone, behind an output that is whole, is seen by no later stage: that is how a
    // shell without pipefail is.
    let unseen = local(&folder, "sh -c 'cat in; exit 3' | dgl-spawn");
    assert_eq!(
        (unseen.status, folder.join("ws/ran").exists()),
        (0, true),
        "{}",
        unseen.err
    );
}

/// The tool itself, killed when all of its input has come but the end of it.
fn assert_killed_while_it_reads(folder: &Path, at: usize) {
    let Stage(tool, args, _) = &PIPELINE[at];
    let stage = format!("echo $$ >pid.new; mv pid.new pid; exec {tool} {args}\n");
    write(folder, "stage.sh", stage);
    let feed = "rm -f pid fifo; mkfifo fifo; (exec 3>fifo; cat in >&3; until [ -f pid ]; do sleep \
        0.01; done; kill -9 \"$(cat pid)\") & sh stage.sh <fifo";
    assert_refused(
        folder,
        at,
        feed,
        "is killed while it reads",
        "nothing to do: the previous tool failed",
    );
}
