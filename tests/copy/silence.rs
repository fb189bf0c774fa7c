//! part-push: peers that are slow, stopped or frozen, and how long each side waits.

use crate::lab::tree;
use crate::local::{assert_arrived, begin_with, ours, plan, plan_in, push, pushed, signal};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{executable, noise, path, ran, read, scratch, sh, soon, write};

/// A host that is done long before another is none that says nothing.
#[test]
fn slow_a_host_waits_for_a_slow_one() {
    let folder = plan(&[("slow", noise(1, 1_200_000)), ("quick", noise(2, 10))]);
    let two = "if .type == \"host\" then (.of = 2, (.of = 2 | .id = 1 | .ip = \"127.0.0.2\"))
        elif (.src // \"\" | endswith(\"slow\")) then .host = 0 elif (.src // \"\" | \
            endswith(\"quick\")) then .host = 1 else . end";
    sh(
        &folder,
        &format!("jq -c '{two}' plan.jsonl >two.jsonl && mv two.jsonl plan.jsonl"),
    )
    .ends(0);
    // 64 KiB a second
    let slow = "import os, time\nwhile data := os.read(0, 65536):\n    os.write(1, data)\n    \
        time.sleep(len(data) / 65536)\n";
    write(&folder, "slow.py", slow);
    executable(
        &folder,
        "way",
        "#!/bin/sh\nid=$1\nshift\n[ \"$id\" = 1 ] || { python3 slow.py | \"$@\"; exit; }\nexec \
         \"$@\"\n",
    );
    // it has the agent already
    push(&folder, "--dry-run --connect 'env A=b'").ends(0);
    let begun = Instant::now();
    let slow = begin_with(
        &folder,
        "DGL_TOOLS_TEST_SILENCE=12",
        "--connect './way {id} env' --compress never",
    );
    let ran = ran(slow.wait_with_output().unwrap());
    assert!(
        begun.elapsed() > Duration::from_secs(15),
        "it was not slow enough to show anything"
    );
    ran.ends(0);
    assert_arrived(&folder);
}

/// As after a laptop's lid was closed: what was delivered stays delivered, and the rest is sent the
/// next time.
#[test]
fn slow_a_push_that_was_stopped_for_long_has_lost_its_hosts() {
    let folder = plan(&[("slow", noise(1, 40 << 20)), ("quick", noise(2, 10))]);
    let two = "if .type == \"host\" then (.of = 2, (.of = 2 | .id = 1 | .ip = \"127.0.0.2\"))
        elif .kind == \"ip_config\" or (.src // \"\" | endswith(\"slow\")) then .host = 0 elif \
            (.src // \"\" | endswith(\"quick\")) then .host = 1 else . end";
    sh(
        &folder,
        &format!("jq -c '{two}' plan.jsonl >two.jsonl && mv two.jsonl plan.jsonl"),
    )
    .ends(0);
    executable(
        &folder,
        "way",
        "#!/bin/sh\nid=$1\nshift\n[ \"$id\" = 0 ] || exec \"$@\"\n\
         { dd bs=1000 count=20000 2>&-; touch half; until [ -e on ]; do sleep 0.1; done; cat; } | \
         \"$@\"\n",
    );
    push(&folder, "--dry-run --connect 'env A=b'").ends(0);
    let one = begin_with(
        &folder,
        "DGL_TOOLS_TEST_SILENCE=12",
        "--connect './way {id} env'",
    );
    soon("half of it is there", || {
        folder.join("half").exists() && folder.join("ws/src/quick").exists()
    });
    signal(&one, "-STOP");
    std::thread::sleep(Duration::from_secs(14));
    soon("the hosts have given it up", || {
        ours(&folder.join("ws")) == [".part-push.kept"]
    });
    signal(&one, "-CONT");
    write(&folder, "on", "");
    let ended = ran(one.wait_with_output().unwrap());
    let records = pushed(&ended.out);
    ended.ends(74);
    assert!(records.iter().filter(|(ok, ..)| !ok).count() == 1);
    ended
        .err_has("host 0 (127.0.0.1): connection lost")
        .err_lacks("correct the workspace")
        .err_lacks("host 1 (127.0.0.2): connection lost");
    let again = push(&folder, "");
    let sent: u64 = pushed(&again.out).iter().map(|(_, sent, _)| sent).sum();
    assert!(
        again.status == 0 && sent < 40 << 20,
        "{sent}: {}",
        again.err
    );
    assert_arrived(&folder);
}

/// Loaded before the C library. A call takes 20 s, as where memory is short or a file server does
/// not answer, if the path contains what the environment has: the third read, the third write, or
/// the setting of a time. Or each read takes 100 ms, or as many as are given.
const SLOW_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int reads, writes;
static int is_meant(const char *path, const char *variable) {
    const char *text = getenv(variable);
    return text && strstr(path, text);
}
static const char *path_of(int fd) {
    static __thread char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return path;
}
static void before_read(int fd) {
    const char *path = path_of(fd);
    const char *ms = getenv("SLOW_READS_MS");
    if (is_meant(path, "SLOW_READS"))
        usleep(1000 * (ms ? atoi(ms) : 100));
    if (is_meant(path, "HANGING_READ") && __sync_add_and_fetch(&reads, 1) == 3)
        sleep(20);
}
ssize_t pread64(int fd, void *to, size_t count, off_t at) {
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
    before_read(fd);
    return next(fd, to, count, at);
}
ssize_t read(int fd, void *to, size_t count) {
    ssize_t (*next)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    before_read(fd);
    return next(fd, to, count);
}
ssize_t pwrite64(int fd, const void *from, size_t count, off_t at) {
    ssize_t (*next)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    if (is_meant(path_of(fd), "HANGING_WRITE") && __sync_add_and_fetch(&writes, 1) == 3)
        sleep(20);
    return next(fd, from, count, at);
}
int utimensat(int fd, const char *path, const struct timespec times[2], int flags) {
    int (*next)(int, const char *, const struct timespec[2], int) =
        dlsym(RTLD_NEXT, "utimensat");
    if (path && is_meant(path, "HANGING_TIME"))
        sleep(20);
    return next(fd, path, times, flags);
}
"#;

fn slow_disk(folder: &Path) {
    write(folder, "slow.c", SLOW_DISK);
    sh(folder, "cc -shared -fPIC -o slow.so slow.c -ldl").ends(0);
}

/// Each side hears from the other meanwhile.
#[test]
fn slow_a_disk_that_hangs_for_longer_than_the_silence_loses_no_host() {
    let folder = scratch();
    slow_disk(&folder);
    let read = "HANGING_READ=$PWD/src/held";
    let (direct, login) = (
        "part-push --wire direct <plan.jsonl",
        "part-push --wire ssh <plan.jsonl",
    );
    let back = "cp -r src there; rm -r src
        ipconf-check ip.txt | part-pull --wire direct --workspace \"$PWD/there\" --to src '*'";
    let back_by_login = back.replace("direct", "ssh");
    let routes = [
        ("direct", read, direct),
        ("login", read, login),
        (
            "there",
            "HANGING_WRITE=/.part-push. HANGING_TIME=/.part-push.",
            direct,
        ),
        ("back", "HANGING_READ=$PWD/there/held", &*back_by_login),
        ("back-here", "HANGING_WRITE=/.part-pull.", back),
    ];
    std::thread::scope(|scope| {
        for (name, hangs, script) in routes {
            let folder = folder.join(name);
            scope.spawn(move || {
                plan_in(
                    &folder,
                    &[("held", noise(1, 40 << 20)), ("other", noise(2, 10))],
                );
                let sums = tree(&folder.join("src"));
                let script = format!(
                    "export DGL_TOOLS_CONNECT=local DGL_TOOLS_TEST_SILENCE=15 {hangs}
                    export LD_PRELOAD=\"$PWD/../slow.so\"
                    {script}"
                );
                let begun = Instant::now();
                let ran = sh(&folder, &script);
                let took = begun.elapsed().as_secs();
                assert!(
                    ran.status == 0 && took >= 20,
                    "{name}: {took} s: {}",
                    ran.err
                );
                let is_back = name.starts_with("back");
                let arrived = if is_back { "src" } else { "ws/src" };
                assert!(tree(&folder.join(arrived)) == sums, "{name}");
            });
        }
    });
}

/// The host reads a large file for longer than a host may send nothing but heartbeats, 60 s here,
/// but each GB of it takes less.
#[test]
fn slow_a_host_that_reads_a_large_file_makes_progress() {
    let folder = plan(&[("large", noise(1, 1 << 20))]);
    slow_disk(&folder);
    sh(
        &folder,
        "mkdir -p ws/src && truncate -s 3G src/large ws/src/large && touch -d 2001-01-01 \
         ws/src/large",
    )
    .ends(0);
    crate::local::map(&folder);
    let script = "export DGL_TOOLS_TEST_SILENCE=3 DGL_TOOLS_TEST_LONGEST_WAIT=60
        export LD_PRELOAD=$PWD/slow.so SLOW_READS=$PWD/ws/ SLOW_READS_MS=5
        part-push --connect local <plan.jsonl";
    let begun = Instant::now();
    // with one processor, one thread reads
    let mut push = support::command("taskset");
    push.args(["-c", "0", "sh", "-c", script])
        .current_dir(&folder);
    ran(push.env("PATH", path()).output().unwrap()).ends(0);
    let took = begun.elapsed().as_secs();
    assert!(took > 60, "{took} s show nothing");
}

/// The host is kept busy meanwhile, so that nothing but the interrupt ends it.
#[test]
fn slow_an_interrupt_ends_the_comparison_of_a_large_file() {
    let folder = plan(&[("large", noise(1, 40 << 20))]);
    slow_disk(&folder);
    push(&folder, "").ends(0);
    // a minute in all
    let slow = "LD_PRELOAD=$PWD/slow.so SLOW_READS=$PWD/src/large";
    let one = begin_with(&folder, slow, "--verify");
    soon("it compares", || !ours(&folder.join("ws")).is_empty());
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    signal(&one, "-INT");
    let ended = ran(one.wait_with_output().unwrap());
    let took = begun.elapsed().as_secs();
    assert!(
        ended.status == 130 && took < 30,
        "{} after {took} s: {}",
        ended.status,
        ended.err
    );
}

/// The agent waits at its end for those that were let in, and for nobody else.
#[test]
fn slow_somebody_who_connects_and_says_nothing_does_not_hold_up_the_end() {
    let folder = plan(&[("slow", noise(1, 12 << 20))]);
    // below those that the kernel gives to others meanwhile
    let port = (28_000..32_000).find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok());
    let port: u16 = port.unwrap();
    let mut push = begin_with(
        &folder,
        &format!("DGL_TOOLS_DATA_PORT={port}"),
        "--wire direct --limit 4M",
    );
    let mut silent = Vec::new();
    while push.try_wait().unwrap().is_none() {
        silent.extend(TcpStream::connect(("127.0.0.1", port)).ok());
        std::thread::sleep(Duration::from_millis(500));
    }
    ran(push.wait_with_output().unwrap()).ends(0);
    assert!(!silent.is_empty());
    soon("nothing of it is left", || {
        ours(&folder.join("ws")).is_empty()
    });
}

/// As a batch system does with a job that it suspends: the network is up, and sshd answers.
#[test]
fn slow_a_host_that_is_frozen_is_given_up_while_bytes_wait_for_it() {
    let folder = plan(&[("large", noise(1, 60 << 20))]);
    executable(
        &folder,
        "way",
        "#!/bin/sh\nexec setsid sh -c 'echo $$ >group; exec \"$@\"' - \"$@\"\n",
    );
    let push = begin_with(
        &folder,
        "DGL_TOOLS_TEST_SILENCE=12",
        "--wire ssh --limit 4M --connect './way env'",
    );
    soon("some of it is there", || {
        !ours(&folder.join("ws")).is_empty() && folder.join("group").exists()
    });
    std::thread::sleep(Duration::from_secs(1));
    let agent = Group(read(&folder, "group"));
    let begun = Instant::now();
    assert!(agent.signal("-STOP"));
    let ended = ran(push.wait_with_output().unwrap());
    let took = begun.elapsed().as_secs();
    assert!(
        ended.status == 74
            && ended.err.contains("no data was exchanged with it for 12 s")
            && took < 60,
        "{} after {took} s: {}",
        ended.status,
        ended.err
    );
}

/// A process group, by its number; killed with the test.
struct Group(String);

impl Group {
    fn signal(&self, name: &str) -> bool {
        let group = format!("-{}", self.0.trim());
        let kill = Command::new("kill").args([name, "--", &group]).status();
        kill.is_ok_and(|status| status.success())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal("-KILL");
    }
}
