//! What a user starts as one program is one: who ends dgl-launch, gs-launch, dgl-copy, gs-copy or
//! make ends what runs below it.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use support::{command, executable, partition, path, read, root, scratch, sh, soon, tools, write};

/// Starts a line as the process of its own last word, sends it a signal once a process has noted
/// its number in `pids`, and waits until all of those are gone. Returns what the line ended with.
fn signalled(folder: &Path, line: &str, signal: &str) -> Option<i32> {
    let _ = fs::remove_file(folder.join("pids"));
    let mut started = command("sh")
        .args(["-c", &format!("exec {line}")])
        .current_dir(folder)
        .env("PATH", format!("{}/bin:{}", folder.display(), path()))
        .env("DGL_TOOLS_CONNECT", "local")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let noted = || fs::read_to_string(folder.join("pids")).unwrap_or_default();
    soon(line, || noted().contains('\n'));
    sh(folder, &format!("kill -s {signal} {}", started.id())).ends(0);
    let is_gone = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    soon(&format!("{line}: all of {} end", noted()), || {
        noted().lines().all(is_gone)
    });
    started.wait().unwrap().code()
}

#[test]
fn slow_whoever_ends_dgl_launch_ends_its_job() {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1 30470\n");
    let copy = "DGL_TOOLS_CONNECT=local dgl-copy --workspace \"$PWD/ws\" --rel_data_path data \
        --part_config out/g.json --ip_config ip.txt";
    sh(&folder, copy).ends(0);
    // a job that takes neither the port nor the memory of other tests' jobs on this machine
    let env = format!(
        "#!/bin/sh\nexec '{}/dgl-env' --role worker --master-port 29731 --workspace \"$PWD/ws\" \
         -- sh -c 'echo $$ >>../pids; exec sleep 3600'\n",
        tools().display()
    );
    executable(&folder, "bin/dgl-env", &env);
    let line = "dgl-launch --workspace \"$PWD/ws\" --num_trainers 1 --part_config data/g.json \
        --ip_config ip.txt t";
    assert_eq!(signalled(&folder, line, "TERM"), Some(143));
    assert_eq!(signalled(&folder, line, "KILL"), None);
}

/// A directory in which dgl-spawn and the tools that copy only note their number, and stay.
fn stand_ins() -> std::path::PathBuf {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    for tool in ["dgl-spawn", "part-push", "part-pull"] {
        let stays = "#!/bin/sh\ncat >read; echo $$ >>pids; exec sleep 3600\n";
        executable(&folder.join("bin"), tool, stays);
    }
    let probe = "#!/bin/sh\nexec jq -c '.cpus = 16'\n";
    executable(&folder, "bin/host-probe", probe);
    folder
}

#[test]
fn whoever_ends_a_script_ends_its_last_tool() {
    let folder = stand_ins();
    let of_gs = "gs_node_regression --part-config out/g.json --ip-config ip.txt --num-trainers 1";
    let dgl_copy = "dgl-copy --workspace /w --rel_data_path data --part_config out/g.json \
        --ip_config ip.txt";
    let renames_nothing = format!("gs-launch {of_gs} --do-nid-remap false");
    for line in [
        dgl_copy,
        &format!("gs-copy {of_gs} --workspace /w"),
        &renames_nothing,
    ] {
        assert_eq!(signalled(&folder, line, "TERM"), None, "{line}");
        assert_eq!(signalled(&folder, line, "KILL"), None, "{line}");
        let read = read(&folder, "read");
        assert!(read.contains("\"type\":\"host\""), "{line}: {read}");
    }
    // with a second job to come
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let line = format!("gs-launch {of_gs}");
        assert_eq!(signalled(&folder, &line, signal), Some(status), "{signal}");
        let started = read(&folder, "pids");
        assert_eq!(started.lines().count(), 1, "the second job has not begun");
    }
}

#[test]
fn make_that_is_ended_ends_its_last_tool() {
    let folder = stand_ins();
    write(&folder, "Makefile", "include dgl.mk\n");
    let settings = "HOSTS=ip.txt WORKSPACE=/w TRAIN=true FETCH=x SPARES=ip.txt RETRY=";
    let of =
        |goal: &str, retry: u32| format!("make -I '{}' {settings}{retry} {goal}", root().display());
    for (goal, retry) in [("push", 0), ("fetch", 0), ("train", 0), ("train", 2)] {
        if goal == "train" {
            executable(&folder, "bin/part-push", "#!/bin/sh\nexec cat\n");
        }
        let status = signalled(&folder, &of(goal, retry), "TERM");
        assert_eq!(status, None, "{goal}: make ends by the signal");
    }
    let left = sh(&folder, "ls .dgl-run").out;
    assert!(!left.contains("stages"), "{left}");
}
