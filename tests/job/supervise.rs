//! A job on this machine under the eyes of its agent: how processes end is told exactly, nothing of
//! a job survives whoever is killed, and a host that means harm costs the launcher nothing.

use crate::spawn::spawn;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Ran, make_folder, read, records, scratch, sh, soon, write};

/// The records of a job on this machine, a trainer for each command.
fn job(folder: &Path, commands: &[&str]) {
    let trainers: Vec<_> = commands.iter().map(|command| (None, *command)).collect();
    crate::spawn::job(folder, &trainers);
}

#[test]
fn an_exit_with_137_is_no_death_by_kill() {
    let folder = scratch();
    for (command, field, value, message) in [
        (
            "exit 137",
            "code",
            json!(137),
            "trainer 0 on host 0 (127.0.0.1) exited with status 137",
        ),
        (
            "kill -KILL $$",
            "signal",
            json!("KILL"),
            "trainer 0 ended by SIGKILL",
        ),
    ] {
        job(&folder, &[command]);
        let ran = spawn(&folder, "");
        let exited = &ran.records("exited")[0];
        assert_eq!((ran.status, &exited[field]), (137, &value), "{}", ran.out);
        ran.err_has(message);
    }
}

#[test]
fn what_a_process_has_cost_is_told() {
    let folder = scratch();
    let works = "exec python3 -c 'x = bytearray(80 << 20); x[::4096] = b\"x\" * len(x[::4096]); n \
        = sum(range(20_000_000))'";
    job(&folder, &[works]);
    let ran = spawn(&folder, "");
    let exited = &ran.records("exited")[0];
    assert!(
        exited["max_rss_bytes"].as_u64().unwrap() > 80 << 20,
        "{exited}"
    );
    assert!(
        exited["cpu_s"].as_f64().unwrap() > 0.1 && exited.get("oom").is_none(),
        "{exited}"
    );
}

/// A cgroup whose processes may have so much memory, made for this test.
struct Limited(std::path::PathBuf);

impl Limited {
    fn new(bytes: u64) -> Option<Limited> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let candidates = own.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            match controllers {
                "memory" => Some((
                    Path::new("/sys/fs/cgroup/memory").join(path),
                    "memory.limit_in_bytes",
                )),
                "" => Some((Path::new("/sys/fs/cgroup").join(path), "memory.max")),
                _ => None,
            }
        });
        candidates.into_iter().find_map(|(parent, limit)| {
            let folder = parent.join(format!("dgl-tools-test-{}", std::process::id()));
            std::fs::create_dir(&folder).ok()?;
            let limited = Limited(folder);
            std::fs::write(limited.0.join(limit), bytes.to_string()).ok()?;
            Some(limited)
        })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn slow_a_process_that_the_kernel_killed_for_memory_is_named_so() {
    let folder = scratch();
    let Some(limited) = Limited::new(64 << 20) else {
        println!("skipped: no cgroup can be made here");
        return;
    };
    let enter = format!("echo $$ >'{}/cgroup.procs'; sleep 5", limited.0.display());
    let eats = format!(
        "{enter}; exec python3 -c 'x = bytearray(300 << 20); x[::4096] = b\"x\" * len(x[::4096])'"
    );
    job(&folder, &[&eats]);
    let ran = spawn(&folder, "");
    let exited = &ran.records("exited")[0];
    assert_eq!(
        (ran.status, &exited["signal"], &exited["oom"]),
        (137, &json!("KILL"), &json!(true)),
        "{}{}",
        ran.out,
        ran.err
    );
    ran.err_has("ended by SIGKILL: the kernel killed it because memory ran out");
    assert_eq!(
        ran.records("summary")[0]["first_failure"]["oom"],
        json!(true)
    );
    // not the process itself, but what its shell runs
    job(
        &folder,
        &[&format!("{}; exit $?", eats.replace("exec ", ""))],
    );
    let ran = spawn(&folder, "");
    let exited = &ran.records("exited")[0];
    assert_eq!(
        (&exited["code"], &exited["oom"]),
        (&json!(137), &json!(true))
    );
    let message = "status 137: the kernel killed what it ran because memory ran out";
    ran.err_has(message);
    // the same death by another hand, in the same cgroup
    job(&folder, &[&format!("{enter}; kill -KILL $$")]);
    let ran = spawn(&folder, "");
    assert!(ran.records("exited")[0].get("oom").is_none(), "{}", ran.out);
    // by that of dgl-reap, right after the kernel has killed something in this cgroup
    job(
        &folder,
        &[&format!(
            "{}; echo eaten; sleep 97",
            eats.replace("exec ", "")
        )],
    );
    let ran = sh(
        &folder,
        "export DGL_TOOLS_CONNECT=local; dgl-spawn --job fed <job.jsonl >out & p=$!
         until grep -q 'line\":\"eaten' out; do kill -0 $p || break; sleep 0.1; done
         grep '\"host\",' job.jsonl | dgl-reap --job fed --signal KILL >&2; wait $p; s=$?
         cat out; exit $s",
    );
    let exited = &ran.records("exited")[0];
    assert!(
        exited["reaped"] == json!(true) && exited.get("oom").is_none(),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn slow_a_process_without_a_token_of_its_job_is_ended_with_it() {
    let folder = scratch();
    for streams in ["</dev/null >/dev/null 2>&1", ""] {
        let name = format!("9431{}", streams.len());
        // twice forked, a session of its own, no environment, deaf to TERM
        let daemon = format!(
            "(setsid env -i sh -c 'trap \"\" TERM; sleep {name}; sleep {name}' {streams} &) ; \
             sleep 0.5; echo up"
        );
        job(&folder, &[&daemon]);
        let ran = spawn(&folder, "--grace 500ms");
        ran.ends(0).err_has("ended well");
        assert!(
            ran.records("summary")[0]["ok"] == json!(true),
            "{}{}",
            ran.out,
            ran.err
        );
        assert_eq!(
            sh(&folder, &format!("pgrep -f '[s]leep {name}' | wc -l")).out,
            "0\n"
        );
    }
}

/// Starts a job in the background, and lets `script` do something once it runs: `$agents` are its
/// agent's processes, the watcher first.
fn while_it_runs(folder: &Path, options: &str, script: &str) -> Ran {
    let find = "agents=; for one in $(pgrep -f '[h]ost-agent'); do
        [ \"$(readlink /proc/$one/cwd)\" != \"$PWD\" ] || agents=\"$agents $one\"; done
        watcher= supervisor=
        for one in $agents; do case $(tr '\\0' ' ' </proc/$one/cmdline) in
            *' serve '*) watcher=$one ;; *' supervise '*) supervisor=$one ;; esac; done";
    sh(
        folder,
        &format!(
            "rm -f up*; dgl-spawn --connect local --host-timeout 6s {options} <job.jsonl >out \
             2>err & p=$!
             until [ -e up ]; do sleep 0.05; done
             {find}
             {script}
             wait $p; echo status $?; cat err"
        ),
    )
}

#[test]
fn slow_nothing_survives_an_agent_that_is_killed() {
    let folder = scratch();
    let deaf = "trap '' TERM; touch up; sleep 9444; sleep 9444";
    let daemon = "setsid env -i sh -c 'trap \"\" TERM; sleep 9444' & sleep 9444";
    job(&folder, &[deaf, daemon]);
    let left = || {
        sh(
            &folder,
            // agents of other tests run elsewhere
            "for p in $(pgrep -f '[s]leep 9444'; cat agents); do tr '\\0' ' ' </proc/$p/cmdline; \
             done 2>/dev/null",
        )
        .out
    };
    for (what, script) in [
        ("supervisor", "kill -KILL $supervisor"),
        ("watcher", "kill -KILL $watcher"),
        (
            "supervisor while the job ends",
            "kill -TERM $p; sleep 0.3; kill -KILL $supervisor",
        ),
        (
            "watcher while the job ends",
            "kill -TERM $p; sleep 0.3; kill -KILL $watcher",
        ),
        ("launcher", "kill -KILL $p"),
        ("launcher and supervisor", "kill -KILL $p $supervisor"),
    ] {
        let begun = Instant::now();
        let script = format!("echo $watcher $supervisor >agents; {script}");
        let ran = while_it_runs(&folder, "--grace 1s", &script);
        assert!(!ran.out.contains("status 0\n"), "{what}: {}", ran.out);
        soon(what, || left().is_empty());
        assert!(begun.elapsed() < Duration::from_secs(40), "{what}");
    }
}

#[test]
fn slow_a_line_is_seen_before_it_ends() {
    let folder = scratch();
    let bar = "printf ' 10%%'; sleep 1; printf '\\r 90%%'; sleep 1; printf '\\rdone\\n'";
    job(&folder, &[bar]);
    let ran = spawn(&folder, "--format jsonl --log-dir logs");
    let lines = ran.records("output");
    let pieces: Vec<(&str, bool)> = lines
        .iter()
        .map(|line| {
            (
                line["line"].as_str().unwrap(),
                line.get("partial").is_some(),
            )
        })
        .collect();
    assert_eq!(
        pieces,
        [(" 10%", true), ("\r 90%", true), ("\rdone", false)]
    );
    let times: Vec<u64> = lines
        .iter()
        .map(|line| line["time_ms"].as_u64().unwrap())
        .collect();
    assert!(
        times[2] - times[0] > 1200,
        "they came all at once: {times:?}"
    );
    assert_eq!(read(&folder, "logs/trainer-0.log"), " 10%\r 90%\rdone\n");
    // what is written in two calls, as Python does, is one line
    job(
        &folder,
        &["for n in 1 2 3; do printf $n; printf '\\n'; done"],
    );
    assert_eq!(records(&spawn(&folder, "").out, "output").len(), 3);
}

#[test]
fn a_progress_bar_replaces_itself_on_a_terminal() {
    let folder = scratch();
    job(
        &folder,
        &["printf ' 10%%'; sleep 1; printf '\\r 90%%'; sleep 1; printf '\\rdone\\n'"],
    );
    let ran = sh(
        &folder,
        "TERM=dumb script -qec 'dgl-spawn --connect local --format human <job.jsonl' typescript \
         </dev/null",
    );
    let shown = read(&folder, "typescript");
    ran.ends(0);
    let above = "\x1b[1A\r\x1b[K";
    let bars: Vec<&str> = shown.split(above).collect();
    assert!(
        bars.len() == 3
            && bars[0].contains(" 10%")
            && bars[1].contains(" 90%")
            && bars[2].contains("done"),
        "{shown:?}"
    );
}

#[test]
fn slow_records_and_logs_that_cannot_be_written_make_the_status() {
    let folder = scratch();
    job(&folder, &["echo hello; sleep 0.3; touch done"]);
    sh(&folder, "dgl-spawn --connect local <job.jsonl >/dev/full")
        .ends(74)
        .err_has_times("dgl-spawn: stdout: ", 1);
    assert!(folder.join("done").exists());
    let closed = sh(
        &folder,
        "dgl-spawn --connect local <job.jsonl >&-; echo $? >status",
    );
    assert_eq!(read(&folder, "status"), "74\n", "{}", closed.err);
    // the second as Python's subprocess.DEVNULL is opened
    for null in [">", "1<>"] {
        let unwanted = format!("dgl-spawn --connect local <job.jsonl {null}/dev/null");
        sh(&folder, &unwanted).ends(0);
    }
    std::fs::remove_file(folder.join("done")).unwrap();
    make_folder(&folder, "logs");
    std::os::unix::fs::symlink("/dev/full", folder.join("logs/trainer-0.log")).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::lchown(folder.join("logs/trainer-0.log"), Some(65534), None).unwrap();
        let ran = spawn(&folder, "--log-dir logs");
        ran.ends(74)
            .err_has("trainer-0.log: something of another user has this name");
        std::os::unix::fs::lchown(folder.join("logs/trainer-0.log"), Some(0), None).unwrap();
    }
    let ran = spawn(&folder, "--log-dir logs");
    ran.ends(74)
        .err_has("--log-dir: trainer-0.log: No space left");
    assert!(folder.join("done").exists());
    let summary = &ran.records("summary")[0];
    assert_eq!(
        (&summary["ok"], &summary["code"]),
        (&json!(false), &json!(74))
    );
    // a process that fails says more than a disk that is full
    job(&folder, &["echo hello; exit 5"]);
    spawn(&folder, "--log-dir logs").ends(5);
}

#[test]
fn slow_a_job_goes_on_though_nobody_reads_what_is_said() {
    let folder = scratch();
    job(
        &folder,
        &["for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done; : >done"],
    );
    for reader in [
        "2>&1; echo $? >status) | head -1",
        "2>/dev/full; echo $? >status) | cat",
    ] {
        let run = format!("(dgl-spawn --connect local --format human <job.jsonl {reader}");
        let ran = sh(&folder, &run);
        let status = read(&folder, "status");
        assert_eq!(status, "0\n", "{reader}: {}{}", ran.out, ran.err);
        std::fs::remove_file(folder.join("done")).unwrap();
    }
}

#[test]
fn slow_a_signal_while_a_try_ends_is_the_last_word() {
    let folder = scratch();
    job(
        &folder,
        &[
            "echo try >>tries; sleep 1; exit 3",
            "trap '' TERM; exec sleep 1000",
        ],
    );
    let ran = sh(
        &folder,
        "timeout --preserve-status -s TERM 2.5 dgl-spawn --connect local --restart 5 --grace 3s \
         <job.jsonl",
    );
    let tries = read(&folder, "tries");
    assert_eq!((ran.status, tries.as_str()), (3, "try\n"), "{}", ran.err);
    let message = "does not start again: SIGTERM arrived while it ended";
    ran.err_has(message);
}

#[test]
fn slow_an_interrupt_that_arrives_twice_leaves_the_grace() {
    for (pause, is_saved) in [("0.01", true), ("0.5", false)] {
        let folder = scratch();
        let saves = "trap 'sleep 1; : >saved; exit 0' TERM; : >up; while :; do sleep 0.1; done";
        job(&folder, &[saves]);
        // a job in the background of a shell ignores INT
        let script = format!(
            "(until [ -e up ]; do sleep 0.05; done
              read -r p <pid; kill -INT $p; sleep {pause}; kill -INT $p) &
             sh -c 'echo $$ >pid; exec dgl-spawn --connect local --grace 30s <job.jsonl'"
        );
        let ran = sh(&folder, &script);
        assert_eq!(ran.status, 130, "{}", ran.err);
        assert_eq!(folder.join("saved").exists(), is_saved, "{}", ran.err);
    }
}

#[test]
fn slow_a_server_that_fails_as_its_clients_leave_does_not_fail_the_job() {
    let folder = scratch();
    let server = "until [ -e left ]; do sleep 0.02; done; exit 9";
    for (status, message) in [(0, "ended well"), (3, "server 0 on host 0 (127.0.0.1)")] {
        let trainer = format!(": >left; sleep 0.3; exit {status}");
        crate::spawn::job(&folder, &[(Some(31998), server), (None, &trainer)]);
        let ran = spawn(&folder, "--no-preflight");
        // the first failure that arrived is that of the server
        let expected = if status == 0 { 0 } else { 9 };
        assert_eq!(ran.status, expected, "{}{}", ran.out, ran.err);
        ran.err_has(message);
        std::fs::remove_file(folder.join("left")).unwrap();
    }
}

#[test]
fn slow_a_server_that_exited_is_not_one_that_does_not_listen() {
    let folder = scratch();
    crate::spawn::job(&folder, &[(Some(31997), "exit 0"), (None, "sleep 60")]);
    spawn(&folder, "--no-preflight --start-timeout 2s --grace 1s")
        .ends(124)
        .err_has("server 0 exited before it listened");
}

#[test]
fn slow_what_ends_after_the_end_began_is_marked() {
    let folder = scratch();
    job(
        &folder,
        &[
            "sleep 1; echo last; exit 3",
            "trap 'echo bye; exit 1' TERM; while :; do sleep 0.1; done",
            "trap '' TERM; sleep 99; sleep 99",
        ],
    );
    let ran = spawn(&folder, "--grace 4s");
    ran.ends(3);
    let marked = |kind: &str, id: u64| {
        ran.records(kind)
            .iter()
            .find(|one| one["id"] == id)
            .unwrap()
            .get("while_ending")
            .is_some()
    };
    assert_eq!(
        [0, 1, 2].map(|id| marked("exited", id)),
        [false, true, true],
        "{}",
        ran.out
    );
    assert_eq!(
        [0, 1].map(|id| marked("output", id)),
        [false, true],
        "{}",
        ran.out
    );
    ran.err_has("is ending: KILL in 2 s, or at once with Ctrl-C");
    spawn(&folder, "--grace 1s --format human")
        .out_has("trainer 1, ending] bye\n")
        .out_has("trainer 0] last\n");
}

#[test]
fn slow_a_server_listens_by_a_socket_of_its_own() {
    let folder = scratch();
    let strangers = "import socket, time\ns = socket.create_server(('', 30984))\ntime.sleep(4)\n";
    write(&folder, "stranger.py", strangers);
    job(&folder, &["sleep 30"]);
    let text = read(&folder, "job.jsonl");
    let text = text.replace(r#""role":"trainer""#, r#""role":"server","port":30984"#);
    write(&folder, "job.jsonl", text);
    let ran = sh(
        &folder,
        "python3 stranger.py & sleep 0.5; dgl-spawn --connect local --no-preflight \
         --start-timeout 2s <job.jsonl",
    );
    ran.ends(124);
    assert!(ran.records("listening").is_empty(), "{}", ran.out);
}

/// A host that says what it likes: BEFORE once it was told to start, and then BLOCK without end,
/// after four seconds less quickly.
fn hostile(folder: &Path, before: &str, block: &str) {
    let script = format!(
        "import os, sys, time
token = sys.stdin.buffer.readline().split()[-1]
sys.stdin.buffer.readline() # the script that a real host runs
os.write(1, b'\\n' + token + b' runs\\n')
for line in sys.stdin.buffer:
    if b'\"do\":\"start\"' in line: break
    os.write(1, b'{{\"event\":\"done\"}}\\n')
os.write(1, {before})
block, begun = {block}, time.monotonic()
while True:
    os.write(1, block)
    if time.monotonic() - begun > 4: time.sleep(0.02)
"
    );
    write(folder, "hostile.py", script);
}

#[test]
fn slow_a_host_that_talks_without_end_fills_no_memory_and_keeps_no_signal_from_being_heard() {
    let folder = scratch();
    job(&folder, &["true"]);
    let started = r#"b'{"event":"started","index":0,"pid":1}\n'"#;
    let output = |body: &str| {
        format!(
            "b'{{\"event\":\"output\",\"index\":0,\"stream\":\"stdout\",\"bytes\":%d}}\\n' % \
             len({body}) + {body}"
        )
    };
    for (what, block) in [
        ("lines", output("(b'y' * 999 + b'\\n') * 60")),
        (
            "nothing but done",
            r#"b'{"event":"done"}\n' * 1000"#.to_owned(),
        ),
    ] {
        hostile(&folder, started, &block);
        let ran = sh(
            &folder,
            "dgl-spawn --no-preflight --connect 'python3 hostile.py x' --grace 1s \
             --host-timeout 2s <job.jsonl >/dev/null 2>err & p=$!
             until grep -q '1 process' err; do sleep 0.1; done; sleep 2
             grep VmHWM /proc/$p/status; kill -TERM $p; begun=$(date +%s); wait $p; echo $? \
                 $(($(date +%s) - begun)); cat err >&2",
        );
        let words: Vec<u64> = ran
            .out
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [kilobytes, status, seconds] = words[..] else {
            panic!("{what}: {}{}", ran.out, ran.err)
        };
        assert!(kilobytes < 150_000, "{what}: {kilobytes} kB");
        assert!(
            status == 143 && seconds < 60,
            "{what}: {status} after {seconds} s: {}",
            ran.err
        );
    }
}

#[test]
fn slow_a_host_that_talks_is_not_lost_while_nobody_takes_what_it_says() {
    let folder = scratch();
    // more than a pipe and the launcher hold
    job(&folder, &["yes a line of some length | head -n 900000"]);
    let ran = sh(
        &folder,
        "mkdir logs; mkfifo logs/trainer-0.log; { sleep 8; wc -c; } <logs/trainer-0.log & \
         dgl-spawn --connect local --host-timeout 2s --log-dir logs <job.jsonl >/dev/null
         status=$?; wait; exit $status",
    );
    assert_eq!((ran.status, ran.out.trim()), (0, "19800000"), "{}", ran.err);
}

#[test]
fn slow_a_host_speaks_for_its_own_processes_and_each_thing_once() {
    let folder = scratch();
    job(&folder, &["true"]);
    let started = r#"b'{"event":"started","index":0,"pid":1}\n'"#;
    for (before, message) in [
        (
            r#"b'{"event":"exited","index":7,"code":0,"cpu_s":0,"max_rss_bytes":0}\n'"#.to_owned(),
            "it has no process 7",
        ),
        (format!("{started} * 2"), "a process started twice"),
        (
            r#"b'{"event":"listening","index":0}\n'"#.to_owned(),
            "a process listens that has no port",
        ),
        (
            r#"b'{"event":"fault","why":"x"}\n'"#.to_owned(),
            "it sends something other than host-agent does",
        ),
        (
            r#"b'{"event":"output","index":0,"stream":"stdout","bytes":99999999999}\n'"#.to_owned(),
            "a body of 99999999999 bytes",
        ),
        (
            r#"b'{"event":"probed"}\n'"#.to_owned(),
            "an answer without a request",
        ),
    ] {
        hostile(&folder, &before, r#"b'{"event":"alive"}\n' * 1000"#);
        sh(
            &folder,
            "dgl-spawn --no-preflight --connect 'python3 hostile.py x' --grace 1s <job.jsonl",
        )
        .ends(74)
        .err_has(message)
        .err_has("host 0 (127.0.0.1) was lost: ");
    }
}

#[test]
fn a_dev_shm_of_its_own() {
    let folder = scratch();
    std::fs::write("/dev/shm/seen-by-all", "x").unwrap();
    job(&folder, &["ls /dev/shm; echo x >/dev/shm/mine; id -u"]);
    let ran = spawn(&folder, "--private-shm --format human");
    std::fs::remove_file("/dev/shm/seen-by-all").unwrap();
    ran.ends(0).out_lacks("seen-by-all");
    assert!(!Path::new("/dev/shm/mine").exists());
    ran.out_has(&format!("] {}\n", sh(&folder, "id -u").out.trim()));
}
