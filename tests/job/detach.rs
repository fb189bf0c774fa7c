//! Jobs that outlive their launcher, on real hosts: started, left, followed, ended; and nothing
//! stays when one of them fails.

use std::path::Path;
use std::time::{Duration, Instant};
use support::{
    Cluster, Ran, assert_has, executable, host_record, make_folder, read, scratch, sh, soon,
    takes_seconds, write,
};

const HOSTS: u32 = 3;

/// A server and a trainer a host; what trainer K runs is `trainer` with {k} filled in.
fn job(folder: &Path, trainer: &str) {
    job_with(folder, trainer, None);
}

/// The same with a server that never listens, on that host.
fn job_with(folder: &Path, trainer: &str, deaf: Option<u32>) {
    let mut records = Vec::new();
    for host in 0..HOSTS {
        let ip = format!("10.77.0.{}", host + 1);
        records.push(host_record(host, HOSTS, &ip));
    }
    let server = "exec python3 -uc 'import socket; s = socket.create_server((\"\", 30050)); \
        print(\"server is up\"); s.accept()'";
    for id in 0..2 * HOSTS {
        let host = id % HOSTS;
        let (role, port, command) = match id < HOSTS {
            true if deaf == Some(host) => (
                "server",
                Some(30050),
                "echo I cannot; sleep 1000".to_owned(),
            ),
            true => ("server", Some(30050), server.to_owned()),
            false => ("trainer", None, trainer.replace("{k}", &host.to_string())),
        };
        let mut record = serde_json::json!({"type": "process", "id": id, "of": 2 * HOSTS,
            "host": host, "ip": format!("10.77.0.{}", host + 1),
            "role": role, "rank": host, "cwd": "/srv", "env": {"SECRET": "s3cr3t",
            "PATH": "/srv/bin:/usr/local/bin:/usr/bin:/bin"}, "argv": ["sh", "-c", command]});
        if let Some(port) = port {
            record["port"] = port.into();
        }
        records.push(record);
    }
    write(
        folder,
        "job.jsonl",
        records
            .iter()
            .map(|record| format!("{record}\n"))
            .collect::<String>(),
    );
}

fn detach(cluster: &Cluster, folder: &Path, options: &str) -> Ran {
    cluster.sh(
        folder,
        &format!("dgl-spawn --detach --no-push-check {options} <job.jsonl"),
    )
}

fn attach(cluster: &Cluster, folder: &Path, options: &str) -> Ran {
    cluster.sh(
        folder,
        &format!("ipconf-check ip.txt | dgl-spawn {options}"),
    )
}

fn up() -> (Cluster, std::path::PathBuf) {
    let (folder, cluster) = Cluster::listed(HOSTS);
    (cluster, folder)
}

const WAITS: &str = "echo trainer {k} begins; while [ ! -e /srv/go ]; do sleep 0.1; done; echo \
    trainer {k} ends; [ $(cat /srv/go) = well ]";

#[test]
fn a_detached_job_on_real_hosts_goes_on_and_is_gone_back_to() {
    let (cluster, folder) = up();
    let go = |host: u32, word: &str| {
        write(&cluster.0, format!("h{host}/srv/go"), word);
    };
    // the last host is slow: what the others do until it is there is told all the same
    executable(
        &cluster.0,
        "h3/srv/bin/python3",
        "#!/bin/sh\nsleep 1\nexec /usr/bin/python3 \"$@\"\n",
    );
    job(&folder, WAITS);
    let left = detach(&cluster, &folder, "--job kept");
    left.ends(0)
        .err_has("job kept continues; to return to it: ipconf-check ip_config.txt");
    assert_eq!(
        (
            left.out.matches(r#""type":"started""#).count(),
            left.out.matches(r#""type":"listening""#).count()
        ),
        (6, 3)
    );
    left.out_has(r#""type":"summary","ok":true,"code":0"#);

    // one name, one job
    detach(&cluster, &folder, "--job kept --no-preflight")
        .ends(74)
        .err_has("a job named kept runs there");
    let list = attach_list(&cluster, &folder);
    assert_has(&list, "3 hosts");
    assert_has(&list, "job kept: ");

    // where its processes are is seen on one host alone, too
    cluster
        .sh(
            &folder,
            "ipconf-check ip.txt | dgl-stacks --host 1 --partial --job kept",
        )
        .out_has(r#""job":"kept","host":1,"#)
        .out_lacks(r#""job":"kept","host":0,"#);

    // it is gone back to from another machine, too
    let elsewhere = format!(
        "cd '{}'; PATH='{}'; ipconf-check ip.txt | timeout --foreground -s INT 5 \
         dgl-spawn --attach kept --format human; echo status $?",
        folder.display(),
        support::path()
    );
    cluster
        .on(2, &elsewhere)
        .out_has("trainer 1] trainer 1 begins")
        .out_has("status 124")
        .err_has("job kept continues");

    // who goes back to it may leave it again
    cluster
        .sh(
            &folder,
            "ipconf-check ip.txt | timeout --foreground -s INT 5 dgl-spawn --attach \
        kept --format human; echo status $?",
        )
        .out_has("server 2] server is up")
        .out_has("trainer 1] trainer 1 begins")
        .err_has("job kept continues");

    // its end, well: seen by who follows it, and by who comes later
    (1..=HOSTS).for_each(|host| go(host, "well"));
    let ended = attach(&cluster, &folder, "--attach kept --log-dir logs");
    ended.ends(0);
    let records = read(&folder, "logs/run.jsonl");
    assert_eq!(records, ended.out);
    assert_eq!(
        (
            ended.out.matches(r#""type":"exited""#).count(),
            ended.out.matches("ends").count()
        ),
        (6, 3),
        "{}",
        ended.out
    );
    ended.out_has(r#""role":"trainer","rank":2,"code":0"#);
    assert_eq!(
        read(&folder, "logs/trainer-1.log"),
        "trainer 1 begins\ntrainer 1 ends\n"
    );
    cluster.assert_clean();
    let later = attach(&cluster, &folder, "--attach kept --format human");
    later.ends(0).err_has("job kept ended well");
    cluster
        .sh(&folder, "cat ~/.local/state/dgl-tools/kept/10.77.0.1/*")
        .out_has("trainer 0 begins")
        .out_lacks("s3cr3t");

    attach(&cluster, &folder, "--attach other")
        .ends(1)
        .err_has("no host has a detached job named other");

    // a trainer fails: all is ended, its status and last lines are there for who comes later
    go(1, "ill");
    std::fs::remove_file(cluster.0.join("h2/srv/go")).unwrap();
    std::fs::remove_file(cluster.0.join("h3/srv/go")).unwrap();
    let left = detach(&cluster, &folder, "--job ill");
    assert!(left.status <= 1, "{}", left.err); // it may be seen to fail before it is left
    cluster.assert_clean();
    attach(&cluster, &folder, "--attach ill")
        .ends(1)
        .err_has(
            "host 0 (10.77.0.1): trainer 0 exited with status 1; its last \
            lines:\n    trainer 0 begins\n    trainer 0 ends",
        )
        .out_has(concat!(
            r#""cause":"process","first_failure":{"host":0,"id":3,"role":"trainer","#,
            r#""rank":0,"code":1"#
        ));

    // dgl-reap ends it, on one host: then it is over on all
    job(&folder, "sleep 1000");
    detach(&cluster, &folder, "--job reaped").ends(0);
    let reaped = cluster.sh(
        &folder,
        "ipconf-check ip.txt | dgl-reap --host 1 --partial --job reaped",
    );
    reaped.ends(0);
    cluster.assert_clean();
    let ended = attach(&cluster, &folder, "--attach reaped");
    ended
        .ends(143)
        .err_has("host 1 (10.77.0.2): ")
        .err_has("ended by a signal of dgl-reap, SIGTERM");

    // what follows it there is killed: it is not taken for the job's end
    detach(&cluster, &folder, "--job followed").ends(0);
    let blind = "ipconf-check ip.txt | timeout --foreground -s INT 15 dgl-spawn --attach followed &
        until pid=$(pgrep -f '/followe[d]/10.77.0.1'); do sleep 0.2; done; kill -9 $pid; \
            wait";
    cluster
        .sh(&folder, blind)
        .err_has("(10.77.0.1): lost, but the job may still run there: ")
        .out_lacks("\"ok\":true");
    cluster
        .sh(&folder, "ipconf-check ip.txt | dgl-reap --job followed")
        .ends(0);
    cluster.assert_clean();

    // one signal before it is up is one for all hosts: each process has its time
    job_with(
        &folder,
        "trap 'sleep 1; echo {k} >/srv/ended-{k}; exit' TERM; : >/srv/up-{k}; while :; do sleep \
         0.1; done",
        Some(1),
    );
    let up = "[ -e /srv/up-0 ] && ssh h2 '[ -e /srv/up-1 ]' && ssh h3 '[ -e /srv/up-2 ]'";
    let early = "dgl-spawn --detach --no-push-check --job early <job.jsonl & launcher=$!";
    let early = cluster.sh(
        &folder,
        &format!("{early}; until {up}; do sleep 0.3; done; kill -TERM $launcher; wait $launcher"),
    );
    early.ends(143);
    cluster.assert_clean();
    for host in 0..HOSTS {
        assert!(
            cluster
                .0
                .join(format!("h{}/srv/ended-{host}", host + 1))
                .exists(),
            "host {host}: {}",
            early.err
        );
    }

    // a limit holds without a launcher
    job(&folder, "sleep 1000");
    detach(&cluster, &folder, "--job long --timeout 4s").ends(0);
    attach(&cluster, &folder, "--attach long")
        .ends(124)
        .err_has("job long was ended: it took longer than 4.0 s");
    cluster.assert_clean();
}

fn attach_list(cluster: &Cluster, folder: &Path) -> String {
    cluster
        .sh(
            folder,
            "ipconf-check ip.txt | dgl-reap --list --format human",
        )
        .out
}

#[test]
fn a_detached_job_on_real_hosts_that_loses_one_ends_on_all() {
    let (cluster, folder) = up();
    job(&folder, "sleep 1000");
    // the network of a host that is not the first, and of the first, where the guard sits that
    // decides
    for host in [3, 1] {
        detach(&cluster, &folder, "--job cut --host-timeout 4s").ends(0);
        cluster.call(&["cut", &host.to_string()]).ends(0);
        cluster.assert_clean();
        cluster.call(&["mend", &host.to_string()]).ends(0);
        attach(&cluster, &folder, "--attach cut")
            .ends(74)
            .err_has("lost: no message from it for 4 s");
    }
    // the launcher itself: each host ends its part
    detach(&cluster, &folder, "--job killed --host-timeout 4s").ends(0);
    let kill = "ssh h1 'kill -9 $(cat ~/.local/state/dgl-tools/killed/10.77.0.1/launcher)'";
    cluster.sh(&folder, kill).ends(0);
    cluster.assert_clean();
    attach(&cluster, &folder, "--attach killed")
        .ends(74)
        .err_has(
            "host 0 (10.77.0.1): the launcher of the job has ended there, and how the job ended is \
         unknown",
        );
    // the agent of a host
    detach(&cluster, &folder, "--job orphan --host-timeout 4s").ends(0);
    let kill = "ssh h2 'kill -9 $(pgrep -f \"host-agent dial-bac[k]\")'";
    cluster.sh(&folder, kill).ends(0);
    cluster.assert_clean();
    attach(&cluster, &folder, "--attach orphan")
        .ends(74)
        .err_has("host 1 (10.77.0.2) was lost: its agent had dialed in");
    // what cannot be left is not left: a server that never listens, a launcher that is told to end
    // before all is up
    job_with(&folder, "sleep 1000", Some(2));
    detach(&cluster, &folder, "--job late --start-timeout 5s")
        .ends(124)
        .err_has("server 2 does not listen after 5 s; its last lines:\n    I cannot");
    cluster.assert_clean();
    let begun = Instant::now();
    cluster.sh(
        &folder,
        "timeout --foreground -s INT 8 dgl-spawn --detach --job stopped <job.jsonl; echo status $?",
    ).err_has("job stopped was ended by SIGINT");
    assert!(begun.elapsed() < Duration::from_secs(60));
    cluster.assert_clean();
    soon("no launcher and no agent is left", || {
        let left = cluster.sh(
            &folder,
            "ps -eo args; for k in 2 3; do ssh h$k ps -eo args; done",
        );
        !left.out.contains("host-agent launch") && !left.out.contains("host-agent dial-back")
    });
}

#[test]
fn a_detached_job_of_real_hosts_needs_a_first_host_that_all_can_reach_and_its_disk() {
    let (cluster, folder) = up();
    job(&folder, "sleep 1000");
    let closed = "ssh h1 'PATH=$PATH:/usr/sbin:/sbin; nft add table ip closed && \
        nft \"add chain ip closed in { type filter hook input priority 0; }\" && \
        nft add rule ip closed in ip saddr 10.77.0.3 tcp dport 40404 reject with tcp reset'";
    cluster.sh(&folder, closed).ends(0);
    let port = "DGL_TOOLS_DIAL_PORT=40404 dgl-spawn --detach --no-push-check <job.jsonl --job";
    let refused = cluster.sh(&folder, &format!("{port} far"));
    refused
        .ends(74)
        .err_has("host 2 (10.77.0.3): it cannot connect to the launcher on the first host: ")
        .err_has("10.77.0.1:40404: ")
        .err_has("nothing was started");
    assert_eq!(refused.out.matches("\"started\"").count(), 0);
    cluster.assert_clean();
    attach(&cluster, &folder, "--attach far")
        .ends(1)
        .err_has("no host has a detached job");
    cluster
        .sh(
            &folder,
            "ssh h1 'PATH=$PATH:/usr/sbin:/sbin; nft delete table ip closed'",
        )
        .ends(0);

    // a disk without room for the directory, and one that is full when the job runs
    let mount = |size: &str| {
        let mount = format!("mkdir -p ~/.local/state && mount -t tmpfs -o size={size} none");
        cluster
            .sh(&folder, &format!("ssh h1 '{mount} ~/.local/state'"))
            .ends(0);
    };
    mount("8k");
    cluster
        .sh(&folder, &format!("{port} none"))
        .ends(74)
        .err_has("host 0 (10.77.0.1): the directory of the job cannot be created or written: ")
        .err_has("No space left on device")
        .err_has("nothing was started");
    cluster.assert_clean();
    mount("100k");
    let writes = "until [ -e /srv/go ]; do sleep 0.1; done; head -c 300000 /dev/zero | tr '\\0' \
        '\\n'; sleep 3; echo done >/srv/done-{k}";
    job(&folder, writes);
    detach(&cluster, &folder, "--job full").ends(0);
    (1..=HOSTS).for_each(|host| write(&cluster.0, format!("h{host}/srv/go"), ""));
    cluster.assert_clean();
    attach(&cluster, &folder, "--attach full")
        .ends(74)
        .err_has("host 0 (10.77.0.1): the records of the job are not complete there")
        .out_has(r#""type":"summary","ok":false,"code":74"#);
    for host in 0..HOSTS {
        let done = cluster.0.join(format!("h{}/srv/done-{host}", host + 1));
        assert!(
            done.exists(),
            "the job was to run to its end on host {host}"
        );
    }
}

#[test]
fn a_detached_job_starts_again_and_has_logs_where_they_are_wanted() {
    let folder = scratch();
    make_folder(&folder, "home");
    let run = "export HOME=$PWD/home; echo 127.0.0.1 | ipconf-check >hosts.jsonl
        dgl-env --role worker --workspace $PWD -- sh -c 'echo try {attempt}; sleep 1; \
            [ {attempt} = 1 ]' <hosts.jsonl >plan.jsonl || exit 9
        dgl-spawn --connect local --detach --job again --restart 1 --log-dir logs/again \
            <plan.jsonl >left.jsonl || exit 8
        dgl-spawn --connect local --attach again <hosts.jsonl --log-dir here";
    let ran = sh(&folder, run);
    ran.ends(0)
        .err_has("job again starts again in 1.0 s (1 of 1)");
    ran.out_has_times("\"type\":\"started\"", 2);
    let log = "try 0\ntry 1\n";
    assert_eq!(read(&folder, "logs/again/worker-0.log"), log);
    assert_eq!(read(&folder, "here/worker-0.log"), log);
    let there = read(
        &folder,
        "home/.local/state/dgl-tools/again/127.0.0.1/run.jsonl",
    );
    assert_eq!(read(&folder, "logs/again/run.jsonl"), there);
    assert!(there.contains("\"type\":\"verdict\""), "{there}");
}

#[test]
fn a_detached_job_writes_samples_and_a_profile() {
    let folder = scratch();
    make_folder(&folder, "home");
    let run = r#"export HOME=$PWD/home; echo 127.0.0.1 | ipconf-check >hosts.jsonl
        dgl-env --role worker --workspace $PWD --master-port 29571 -- python3 -c 'import os, time
while not os.path.exists("go"): time.sleep(0.1)' <hosts.jsonl >plan.jsonl || exit 9
        dgl-spawn --connect local --detach --job seen --sample 1s --profile 20s@0s <plan.jsonl \
            >left.jsonl || exit 8
        until grep -q '"type":"profile"' home/.local/state/dgl-tools/seen/*/run.jsonl; do
            sleep 0.1; done
        : >go; dgl-spawn --connect local --attach seen <hosts.jsonl"#;
    let ran = sh(&folder, run);
    ran.ends(0).out_has_times("\"type\":\"profile\"", 1);
    ran.out_has("\"type\":\"sample\"").out_has("rss_bytes");
}

#[test]
fn dgl_reap_ends_a_detached_job_between_two_tries_too() {
    let folder = scratch();
    make_folder(&folder, "home");
    let run = "export HOME=$PWD/home; echo 127.0.0.1 | ipconf-check >hosts.jsonl
        dgl-env --role worker --workspace $PWD -- sh -c 'sleep 2; exit 3' <hosts.jsonl \
            >plan.jsonl || exit 9
        dgl-spawn --connect local --detach --job tries --restart 1000 <plan.jsonl >left.jsonl \
            || exit 8
        until grep -q 'starts again' home/.local/state/dgl-tools/tries/127.0.0.1/messages; do
            sleep 0.02; done
        dgl-reap --connect local --job tries <hosts.jsonl || exit 7
        dgl-spawn --connect local --attach tries <hosts.jsonl";
    sh(&folder, run)
        .ends(143)
        .err_has_times("starts again in", 1);
}

/// A disk that does not answer while there is a file `hangs` in the home, for 20 s at most.
const SLOW_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void wait_for_disk(int fd) {
    char link[64], path[4096], hangs[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    snprintf(hangs, sizeof hangs, "%s/hangs", getenv("HOME"));
    if (strstr(path, "/dgl-tools/"))
        for (int i = 0; i < 2000 && access(hangs, F_OK) == 0; i++)
            usleep(10000);
}
ssize_t read(int fd, void *to, size_t count) {
    ssize_t (*next)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    wait_for_disk(fd);
    return next(fd, to, count);
}
ssize_t write(int fd, const void *from, size_t count) {
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    wait_for_disk(fd);
    return next(fd, from, count);
}
"#;

#[test]
fn a_disk_that_hangs_for_longer_than_a_host_may_be_silent_ends_no_job() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    make_folder(&folder, "home");
    write(&folder, "slow.c", SLOW_DISK);
    let (mut hosts, mut job) = (String::new(), String::new());
    for id in 0..2 {
        let ip = format!("127.0.0.{}", id + 1);
        // more than may wait, so that the processes wait too
        let command = "echo up; until [ -e home/hangs ]; do sleep 0.1; done
             head -c 4000000 /dev/zero | tr '\\0' x | fold -w 999";
        let process = serde_json::json!({"type": "process", "id": id, "of": 2, "host": id,
            "ip": ip, "role": "worker", "rank": id, "cwd": folder, "argv": ["sh", "-c", command]});
        hosts += &format!("{}\n", host_record(id, 2, &ip));
        job += &format!("{process}\n");
    }
    write(&folder, "job.jsonl", format!("{hosts}{job}"));
    write(&folder, "hosts.jsonl", hosts);
    let run = "cc -shared -fPIC -o slow.so slow.c -ldl || exit 9; export HOME=$PWD/home
        export LD_PRELOAD=$PWD/slow.so
        dgl-spawn --connect local --detach --no-preflight --job slow --host-timeout 4s \
            <job.jsonl >left.jsonl || exit 8
        : >home/hangs
        dgl-spawn --connect local --attach slow --host-timeout 4s --log-dir logs <hosts.jsonl \
            >out.jsonl & p=$!
        sleep 12; rm home/hangs; wait $p";
    let ran = sh(&folder, run);
    ran.ends(0);
    for rank in 0..2 {
        let log = read(&folder, format!("logs/worker-{rank}.log"));
        assert_eq!(
            log.len(),
            "up\n".len() + 4_000_000 + 4_000_000_usize.div_ceil(999)
        );
    }
}

/// A job on this machine that is to be left: one server that says that it began and never listens.
/// `--connect 'sh ./connect'` reaches its host; what that writes once the server has begun comes
/// `delay_s` later.
fn deaf_job(folder: &Path, delay_s: &str) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    let host = serde_json::json!({"type": "host", "id": 0, "of": 1, "ip": "127.0.0.1",
        "port": port});
    let server = serde_json::json!({"type": "process", "id": 0, "of": 1, "host": 0,
        "ip": "127.0.0.1", "role": "server", "rank": 0, "port": port, "cwd": folder,
        "argv": ["sh", "-c", ": >began; exec sleep 1000"]});
    write(folder, "job.jsonl", format!("{host}\n{server}\n"));
    let connect = format!(
        "echo $$ >connect.pid
        [ {delay_s} = 0 ] && exec \"$@\"
        \"$@\" | python3 -uc 'import os, time
while piece := os.read(0, 1 << 16):
    if os.path.exists(\"began\"): time.sleep({delay_s})
    os.write(1, piece)'"
    );
    write(folder, "connect", connect);
    make_folder(folder, "home");
}

/// Starts the job to be left in the background; `then` is done after it; its status and what it
/// says, and what is left of it afterwards.
fn leave_deaf_job(folder: &Path, name: &str, then: &str) -> Ran {
    let run = format!(
        "export HOME=$PWD/home
        env --default-signal=INT dgl-spawn --connect 'sh ./connect' --detach --job {name} \
            --host-timeout 6s --grace 1s <job.jsonl >out.jsonl 2>err & p=$!
        until [ -e began ] || ! kill -0 $p; do sleep 0.1; done
        {then}
        wait $p; echo status $?; cat err
        dgl-reap --connect local --list <job.jsonl | grep found | grep {name} >left.jsonl
        dgl-reap --connect local --job {name} <job.jsonl >reaped.jsonl 2>reap.err"
    );
    sh(folder, &run)
}

#[test]
fn a_signal_ends_what_is_being_left_also_before_the_host_has_answered() {
    if takes_seconds() {
        return;
    }
    for (name, delay_s) in [("detach-int", "0"), ("detach-int-late", "1.5")] {
        let folder = scratch();
        deaf_job(&folder, delay_s);
        let ran = leave_deaf_job(&folder, name, "kill -INT $p");
        assert!(ran.out.starts_with("status 130\n"), "{name}: {}", ran.out);
        let left = read(&folder, "left.jsonl");
        assert_eq!(left, "", "{name}: {}", ran.out);
    }
}

#[test]
fn a_connection_that_breaks_before_all_is_up_is_told() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    deaf_job(&folder, "0");
    let cut = "until grep -q started out.jsonl || ! kill -0 $p; do sleep 0.1; done
        kill -9 $(cat connect.pid)";
    let ran = leave_deaf_job(&folder, "detach-cut", cut);
    ran.out_begins("status 74\n");
    let message = "host 0 (127.0.0.1): lost, but the job may still run there: ";
    ran.out_has(message).out_lacks("ended well");
    let left = read(&folder, "left.jsonl");
    assert_has(&left, "sleep 1000");
}

#[test]
fn a_machine_without_python_keeps_a_worker() {
    let folder = scratch();
    let run = "mkdir bin home; for tool in sh sleep; do ln -s $(command -v $tool) bin; done
        tools=$(dirname $(command -v dgl-spawn)); export HOME=$PWD/home; echo 127.0.0.1 | \
            ipconf-check >hosts.jsonl
        dgl-env --role worker --workspace $PWD -- sh -c 'echo works; until [ -e go ]; do sleep \
            0.1; done' <hosts.jsonl >plan.jsonl
        PATH=$PWD/bin:$tools; ! command -v python3 || exit 9
        dgl-spawn --connect local --detach --job no-python <plan.jsonl || exit 8
        : >go; exec dgl-spawn --connect local --attach no-python --format human <hosts.jsonl";
    sh(&folder, run)
        .ends(0)
        .out_has("works")
        .err_has("job no-python ended well");
}
