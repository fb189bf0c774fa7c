//! What the tests share that push to this machine: a plan, a push that goes on meanwhile, and what
//! it leaves in its workspace.

use crate::lab::{copied, tree};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{Ran, executable, make_folder, path, scratch, sh, write};

/// A directory with `src/`, and a plan that brings it to `ws/src/` on this machine.
pub fn plan(files: &[(&str, Vec<u8>)]) -> PathBuf {
    let folder = scratch();
    plan_in(&folder, files);
    folder
}

pub fn plan_in(folder: &Path, files: &[(&str, Vec<u8>)]) {
    make_folder(folder, "src");
    for (file, content) in files {
        fs::write(folder.join("src").join(file), content).unwrap();
    }
    write(folder, "ip.txt", "127.0.0.1\n");
    map(folder);
}

pub fn map(folder: &Path) {
    sh(
        folder,
        "ipconf-check ip.txt | part-map --workspace \"$PWD/ws\" --extra src >plan.jsonl",
    )
    .ends(0);
}

pub fn push(folder: &Path, options: &str) -> Ran {
    sh(
        folder,
        &format!("DGL_TOOLS_CONNECT=local part-push {options} <plan.jsonl"),
    )
}

/// What the records say of each delivery: ok, bytes sent, error.
pub fn pushed(out: &str) -> Vec<(bool, u64, String)> {
    let records = copied(out).into_iter();
    records
        .map(|record| (record.ok, record.moved, record.error))
        .collect()
}

/// All that was to be pushed is there, and nothing else.
#[track_caller]
pub fn assert_arrived(folder: &Path) {
    let (ours, theirs) = (folder.join("src"), folder.join("ws/src"));
    assert!(tree(&ours) == tree(&theirs), "other files arrived");
}

/// A directory of links to busybox in the place of every tool of a host, but for those named.
pub fn busybox(folder: &Path, without: &[&str]) -> String {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    sh(folder, "busybox --install -s bin").ends(0);
    without
        .iter()
        .for_each(|tool| fs::remove_file(bin.join(tool)).unwrap());
    format!("--connect 'env PATH={}'", bin.display())
}

/// A push that goes on while the test does something; it writes its pid where its shell stands.
pub fn begin(folder: &Path, options: &str) -> Child {
    begin_with(folder, "", options)
}

pub fn begin_with(folder: &Path, variables: &str, options: &str) -> Child {
    let script =
        format!("DGL_TOOLS_CONNECT=local {variables} exec part-push {options} <plan.jsonl");
    let mut sh = support::command("sh");
    sh.args(["-c", &script])
        .current_dir(folder)
        .env("PATH", path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    sh.spawn().unwrap()
}

pub fn signal(push: &Child, name: &str) {
    let kill = Command::new("kill")
        .args([name, &push.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
}

/// What is ours in a workspace.
pub fn ours(ws: &Path) -> Vec<String> {
    let names = fs::read_dir(ws)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter(|name| name.starts_with(".part-push"))
        .collect();
    names.sort();
    names
}

/// A way to this machine that hands on this many bytes of what it is sent, and the rest when there
/// is a file `on`; the first connection alone.
pub fn slow_way(folder: &Path, bytes: u32) {
    let route = format!(
        "#!/bin/sh\necho x >>way.log\n[ $(wc -l <way.log) = 1 ] || exec \"$@\"\n\
         {{ dd bs=1000 count={} 2>&-; touch half; until [ -e on ]; do sleep 0.1; done; cat; }} | \
         \"$@\"\n",
        bytes / 1000
    );
    executable(folder, "way", &route);
    // it has the agent already
    push(folder, "--dry-run --connect 'env A=b'").ends(0);
}
