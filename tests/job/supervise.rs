//! A job on this machine under the eyes of its agent: ends for lack of memory are named, nothing of
//! a job survives whoever is killed, and a host that means harm costs the launcher nothing.

use crate::spawn::spawn;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Ran, make_folder, read, scratch, sh, soon, write};

/// The records of a job on this machine, a trainer for each command.
fn job(folder: &Path, commands: &[&str]) {
    let trainers: Vec<_> = commands.iter().map(|command| (None, *command)).collect();
    crate::spawn::job(folder, &trainers);
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
        support::skipped!("no cgroup can be made here");
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
    // the kernel, after dgl-reap has asked for a checkpoint
    let saves = "trap ': >saved' USR1; echo ready; until [ -e saved ]; do sleep 0.1; done";
    job(&folder, &[&format!("{saves}; {eats}")]);
    let ran = sh(
        &folder,
        "export DGL_TOOLS_CONNECT=local; dgl-spawn --job saves <job.jsonl >out 2>err & p=$!
         until grep -q 'line\":\"ready' out; do kill -0 $p || break; sleep 0.1; done
         grep '\"host\",' job.jsonl | dgl-reap --job saves --signal USR1 >reaped; wait $p; s=$?
         cat out reaped; cat err >&2; exit $s",
    );
    let exited = &ran.records("exited")[0];
    assert_eq!(
        (ran.status, &exited["signal"], &exited["oom"]),
        (137, &json!("KILL"), &json!(true)),
        "{}{}",
        ran.out,
        ran.err
    );
    assert!(exited.get("reaped").is_none(), "{}", ran.out);
    ran.out_has(r#""signal":"USR1","ok":true"#)
        .err_has("ended by SIGKILL: the kernel killed it because memory ran out");
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
fn slow_a_log_that_another_user_has_made_is_not_written() {
    if support::only_root_can("give a file to another user") {
        return;
    }
    let folder = scratch();
    job(&folder, &["echo hello"]);
    make_folder(&folder, "logs");
    let log = folder.join("logs/trainer-0.log");
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    std::os::unix::fs::lchown(&log, Some(65534), None).unwrap();
    spawn(&folder, "--log-dir logs")
        .ends(74)
        .err_has("trainer-0.log: something of another user has this name");
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
fn a_host_that_finds_too_much_is_lost_at_once() {
    let folder = scratch();
    job(&folder, &["true"]);
    hostile(&folder, "b''", "b''");
    let finding = r#"{"event":"preflight","found":"problem","about":"other","problem":"%d"}\n"#;
    let floods = format!("''.join('{finding}' % n for n in range(100000)).encode()");
    let floods = read(&folder, "hostile.py").replace(
        "    os.write(1, b'{\"event\":\"done\"}\\n')",
        &format!(
            "    if b'preflight' in line: sys.stdout.buffer.write({floods})
    sys.stdout.buffer.write(b'{{\"event\":\"done\"}}\\n'); sys.stdout.buffer.flush()"
        ),
    );
    write(&folder, "hostile.py", floods);
    let begun = Instant::now();
    sh(
        &folder,
        "dgl-spawn --connect 'python3 hostile.py x' <job.jsonl",
    )
    .ends(74)
    .err_has("host 0 (127.0.0.1): it reports more than 1000 findings");
    // they took a quarter of an hour to compare
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
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
    for (status, message) in [(0, "finished"), (3, "server 0 on host 0 (127.0.0.1)")] {
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
fn slow_a_job_ends_in_time_though_stderr_is_full() {
    let folder = scratch();
    job(&folder, &["sleep 95"]);
    let fill = "import os
os.set_blocking(2, False)
try:
    while True: os.write(2, bytes(1 << 12))
except BlockingIOError: os.set_blocking(2, True)
";
    write(&folder, "fill.py", fill);
    let ran = sh(
        &folder,
        "mkfifo full; sleep 94 <full & reader=$!
         sh -c 'python3 fill.py; exec dgl-spawn --connect local --timeout 2s <job.jsonl' 2>full \
             >out & p=$!
         for i in $(seq 300); do grep -q '\"summary\"' out && break; sleep 0.1; done
         tail -n 1 out; kill -TERM $p; wait $p; echo $?; kill $reader",
    );
    ran.out_has("\"cause\":\"timeout\"").out_has("\n124\n");
}

/// The job has ended, and nobody reads the rest of its records.
#[test]
fn slow_a_reader_that_stopped_is_named_and_a_signal_ends_the_wait() {
    let folder = scratch();
    job(&folder, &["head -c 1000000 /dev/zero | tr '\\0' '\\n'"]);
    let ran = sh(
        &folder,
        "mkfifo full; sleep 94 <full & reader=$!
         dgl-spawn --connect local <job.jsonl >full 2>err & p=$!
         for i in $(seq 300); do grep -q 'reads stdout' err && break; sleep 0.1; done
         kill -TERM $p; wait $p; echo $?; kill $reader; cat err >&2",
    );
    ran.err_has("finished")
        .err_has_times(
            "dgl-spawn: the program that reads stdout is slow or stopped",
            1,
        )
        .gives(0, "0\n");
}

/// Starts a job by hand, and closes the output of its agent, which has nothing to write, while its
/// input stays open. Prints how long it takes until the process has ended.
const DEAF_PY: &str = "
import json, os, subprocess, sys, time
pipe = subprocess.PIPE
agent = subprocess.Popen([sys.argv[1], 'serve', 'mark'], stdin=pipe, stdout=pipe, text=True)
def ask(**request):
    print(json.dumps(request), file=agent.stdin, flush=True)
ask(do='job', name='deaf', token='d' * 32, host=0, address='127.0.0.1', hosts=1, grace_ms=1000,
    host_timeout_ms=60000, private_shm=False)
ask(do='process', id=0, of=1, host=0, ip='127.0.0.1', role='worker', rank=0, cwd='/',
    argv=['sleep', '300'])
ask(do='start')
while True:
    line = agent.stdout.readline()
    assert line, agent.wait()
    event = json.loads(line) if line.startswith('{') else {}
    if event.get('event') == 'started':
        break
agent.stdout.close()
begun = time.monotonic()
while os.path.exists('/proc/%d' % event['pid']):
    time.sleep(0.05)
waited = time.monotonic() - begun
agent.wait()
print(json.dumps({'waited': waited}))
";

#[test]
fn slow_a_launcher_that_no_longer_reads_is_noticed_at_once() {
    let folder = scratch();
    write(&folder, "deaf.py", DEAF_PY);
    let agent = support::tools().join("host-agent");
    let ran = sh(&folder, &format!("python3 deaf.py '{}'", agent.display()));
    ran.ends(0);
    let found: serde_json::Value = serde_json::from_str(ran.out.trim()).unwrap();
    // the next heartbeat, at which it would notice at the latest, is due after 5 s
    assert!(found["waited"].as_f64().unwrap() < 3.0, "{}", ran.out);
}
