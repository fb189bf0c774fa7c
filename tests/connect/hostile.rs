//! What a host says is text: it reaches a terminal as such, whatever it is, and stands in no
//! command that people are told to paste.

use serde_json::json;
use std::path::PathBuf;
use support::{assert_has, executable, host_record, read, scratch, sh, write};

/// Sets a title, writes to the clipboard, clears the screen, begins a line that looks like ours.
const EVIL: &str = r"\033]0;title\007\033]52;c;cm0gLXJm\007\033[2J";

/// Nothing that a terminal would obey.
fn is_text(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !c.is_control())
}

#[test]
fn slow_what_hosts_say_is_shown_as_text() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    // the last words of what leads to a host
    executable(
        &folder,
        "way",
        &format!("#!/bin/sh\nprintf '{EVIL}evil\\n  fix: paste this\\n' >&2\nexit 1\n"),
    );
    // an agent that fails, and words the fix
    let failed = r#"{"event":"failed","problem":"evil\u001b[2J\n  fix: paste","fix":"paste that"}"#;
    executable(
        &folder,
        "agent",
        &format!(
            "#!/bin/sh\nread -r first; token=${{first##* }}; read -r script\n\
             printf '\\n%s runs\\n' \"$token\"\nprintf '%s\\n' '{failed}'\n\
             while read -r _; do printf '%s\\n' '{failed}'; done\n"
        ),
    );
    // an interpreter that names its version
    executable(
        &folder,
        "python",
        &format!(
            "#!/bin/sh\nprintf 'dgl-tools-fact python 3.11{EVIL}\\ndgl-tools-fact dgl \
             1.0{EVIL}\\n'\n"
        ),
    );
    // a job, and a file
    let script = format!(
        "ipconf-check ip.txt >hosts; mkdir -p ws; cd ws; : >\"$(printf 'a{EVIL}\\nb')\"; cd ..
         token=0123456789abcdef0123456789abcdef; job=$(printf 'evil{EVIL}')
         DGL_TOOLS_TOKEN=$token DGL_TOOLS_JOB=$job sleep 60 & p=$!
         until tr '\\0' '\\n' </proc/$p/environ | grep -q DGL_TOOLS_JOB; do sleep 0.1; done
         dgl-reap --connect local --list --format human <hosts >list
         dgl-reap --connect local --list --format jsonl <hosts >list.jsonl
         dgl-reap --connect local --job \"$job\" --format human <hosts >all; wait $p"
    );
    let made = sh(&folder, &script);
    let text = |file: &str| read(&folder, file);
    assert!(
        is_text(&text("list"))
            && text("list").contains(r"job evil\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b[2J: "),
        "{}",
        text("list")
    );
    assert!(
        text("all").starts_with("  host  job               what was done\n     0  evil"),
        "{}",
        text("all")
    );
    assert!(
        is_text(&text("all")) && text("all").contains(r"1 process ended"),
        "{}{}",
        text("all"),
        made.err
    );
    // jobs of other tests run beside it
    let jobs: Vec<serde_json::Value> = text("list.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["job"].take())
        .collect();
    let as_it_is = "evil\u{1b}]0;title\u{7}\u{1b}]52;c;cm0gLXJm\u{7}\u{1b}[2J";
    assert!(
        jobs.iter().any(|job| job == as_it_is),
        "a record holds it as it is: {jobs:?}"
    );

    let table = [
        (
            "host-probe --connect './way {name}' <hosts",
            r"./way: \x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b[2Jevil; fix: paste this",
        ),
        (
            "dgl-reap --list --connect './way {name}' <hosts",
            r"\x1b[2Jevil; fix: paste this",
        ),
        (
            "host-probe --connect './agent {name}' <hosts",
            r"evil\x1b[2J\n  fix: paste",
        ),
        (
            "dgl-reap --list --connect './agent {name}' <hosts",
            r"evil\x1b[2J\n  fix: paste",
        ),
        (
            "host-probe --connect local --python ./python <hosts | dgl-env --role worker -- t | \
             dgl-spawn --connect './agent {name}'",
            r"evil\x1b[2J\n  fix: paste",
        ),
        (
            "part-push --connect './agent {name}' <plan",
            r"evil\x1b[2J\n  fix: paste",
        ),
        (
            "host-probe --connect local --python ./python --format human <hosts",
            r"1.0\x1b]0;title",
        ),
        (
            "part-pull --connect local --workspace \"$PWD/ws\" --to got --dry-run '*' <hosts",
            r"\x1b[2J\nb -> got/a\x1b]0;title",
        ),
        (
            "host-probe --connect local --python ./python <hosts | dgl-env --role worker -- t | \
             dgl-spawn --connect './way {name}'",
            r"\x1b[2Jevil; fix: paste this",
        ),
        (
            "part-push --connect './way {name}' <plan",
            r"\x1b[2Jevil; fix: paste this",
        ),
    ];
    sh(
        &folder,
        "part-map --extra ip.txt --workspace \"$PWD/there\" <hosts >plan",
    )
    .ends(0);
    for (script, shown) in table {
        let got = sh(&folder, script);
        let all = format!("{}{}", got.out, got.err);
        assert!(
            is_text(&all.replace(r"\u001b", "")) && !all.contains("\n  fix: paste"),
            "{script}: {}",
            all.escape_debug()
        );
        assert!(all.contains(shown), "{script}: {all}");
    }
}

/// What host-agent says of files that it has removed.
const REAPED: &str =
    r#"{"event":"reaped","host":0,"job":"","ok":true,"processes":0,"shm_files":1}"#;

/// A host that was taken over speaks in host-agent's place.
#[test]
fn slow_a_host_that_says_too_much_or_what_was_not_asked_is_lost() {
    let folder = scratch();
    sh(&folder, "printf '10.99.0.1\\n' | ipconf-check >hosts").ends(0);
    let found = concat!(
        r#"{"event":"found","host":0,"job":"a","pid":1,"age_s":1,"rss_bytes":1,"#,
        r#""command":"c"}"#
    );
    let long = found.replace("\"c\"", &format!("\"{}\"", "c".repeat(90_000)));
    let table = [
        (
            format!("exec yes '{found}'"),
            "--list",
            "it reports more than 10000 processes",
        ),
        (
            format!("exec yes '{long}'"),
            "--list",
            "its answer is larger than 16 MB",
        ),
        (
            format!("echo '{found}'; echo '{{\"event\":\"done\"}}'; exec sleep 9"),
            "--stale-shm",
            "protocol error: unexpected answer",
        ),
        (
            format!("echo '{REAPED}'; exec sleep 9"),
            "--list",
            "protocol error: unexpected answer",
        ),
        (
            "echo '{\"event\":\"dropped\"}'; exec sleep 9".to_owned(),
            "--list",
            "is not a message",
        ),
        (
            "echo '{\"event\":\"done\",\"bytes\":99999999999}'; exec sleep 9".to_owned(),
            "--list",
            "a body of 99999999999 bytes",
        ),
        (
            "exec tr '\\0' x </dev/zero".to_owned(),
            "--list",
            "a line of more than 1048576 bytes",
        ),
        (":".to_owned(), "--list", "the connection ended"),
    ];
    for (says, what, problem) in table {
        let take_token =
            "read -r first; token=${first##* }; read -r script; printf '\\n%s runs\\n' \"$token\"";
        executable(
            &folder,
            "way",
            &format!("#!/bin/sh\n{take_token}\n{says}\n"),
        );
        let got = sh(
            &folder,
            &format!("ulimit -v 2000000; dgl-reap {what} --connect './way {{name}}' <hosts"),
        );
        assert_eq!(got.status, 74, "{says}: {}", got.err);
        assert!(
            got.err.contains("host 0 (10.99.0.1): ") && got.err.contains(problem),
            "{says}: {}",
            got.err
        );
        assert_fix_of_breach(&got.err);
    }
}

/// What an agent does not send is no fault of the user's options or of the host's network.
fn assert_fix_of_breach(err: &str) {
    // dgl-spawn names the lost host in its verdict
    let is_breach = err.contains("protocol error: ") && !err.contains("a process started twice");
    assert_eq!(is_breach, err.contains("report it as a bug"), "{err}");
}

/// Whatever it sends, a tool keeps a bounded part of it.
#[test]
fn slow_a_host_that_sends_without_end_takes_little_of_a_tools_memory() {
    let folder = scratch();
    let process = "{\"type\":\"process\",\"id\":0,\"of\":1,\"host\":0,\"ip\":\"10.99.0.1\",\
        \"role\":\"worker\",\"rank\":0,\"argv\":[\"t\"]}";
    sh(&folder, "printf '10.99.0.1\n' | ipconf-check >hosts").ends(0);
    let hosts = read(&folder, "hosts");
    write(&folder, "job", format!("{hosts}{process}\n"));
    // the names are sent when they are asked for
    let ready = "echo '{\"event\":\"file\",\"kind\":\"ready\",\"free_bytes\":1,\"empty\":false}'
                 while read -r request; do case $request in *find*) break ;; esac; done\n";
    let found = |names: usize, length: usize| {
        let meta = "{\"size\":1,\"mode\":33188,\"mtime\":[1,1],\"inode\":1}";
        let name = "n".repeat(length);
        let entry = format!("{{\"path\":\"./{name}\",\"meta\":{meta}}}");
        let entries = vec![entry; names].join(",");
        format!("{{\"event\":\"file\",\"kind\":\"found\",\"entries\":[{entries}],\"last\":false}}")
    };
    let long = "x".repeat(500_000);
    let taken = serde_json::json!({"event": "taken", "about": {"port": "job"}, "problem": long,
        "confirmed": true});
    let pull = "part-pull --workspace /w --to got '*' <hosts";
    let spawn = "dgl-spawn --job j <job";
    let table = [
        (ready, found(1, 900_000), pull, "a path of more than 4096"),
        (ready, found(100, 4000), pull, "64 MB of names"),
        (
            "",
            taken.to_string(),
            spawn,
            "larger than 8 MB before the job starts",
        ),
        (
            "",
            REAPED.to_owned(),
            "host-probe <hosts",
            "its answer is larger than 16 MB",
        ),
    ];
    let peak = "import resource, subprocess, sys\n\
        ran = subprocess.run(sys.argv[2:])\n\
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n\
        open(sys.argv[1], 'w').write(str(peak >> 10))\nsys.exit(ran.returncode)\n";
    write(&folder, "peak.py", peak);
    for (first, endless, tool, problem) in table {
        let lines = format!("{endless}\n").repeat(500_000 / endless.len() + 1);
        write(&folder, "lines", lines);
        executable(
            &folder,
            "way",
            &format!(
                "#!/bin/sh\nread -r first; token=${{first##* }}; read -r script
                 printf '\\n%s runs\\n' \"$token\"
                 {first}while cat lines; do :; done\n"
            ),
        );
        let got = sh(
            &folder,
            &format!(
                "ulimit -v 3000000; export DGL_TOOLS_CONNECT='./way {{name}}'
                 python3 peak.py peak {tool}"
            ),
        );
        let peak: u64 = read(&folder, "peak").parse().unwrap();
        assert!(
            got.status == 74 && got.err.contains(problem) && peak < 200,
            "{tool}: {}, {peak} MB: {:.2000}",
            got.status,
            got.err
        );
    }
}

/// Whatever it may send while a job runs, over and over, to a tool whose output is not read: little
/// is kept of it, and how its process ended is still told.
#[test]
fn slow_a_host_that_reports_without_end_does_not_fill_the_memory_of_a_job() {
    let folder = scratch();
    let process = json!({"type": "process", "id": 0, "of": 1, "host": 0, "ip": "10.99.0.1",
        "role": "worker", "rank": 0, "argv": ["t"]});
    let host = host_record(0, 1, "10.99.0.1");
    write(&folder, "job", format!("{host}\n{process}\n"));
    let frames = vec!["f (x.py:1)"; 40];
    let of_process = json!({"job": "flood", "host": 0, "pid": 1, "role": "worker", "rank": 0,
        "command": "t", "time_ms": 1, "threads": []});
    let mut stack = of_process;
    stack["event"] = "stack".into();
    stack["threads"] = vec![json!({"tid": 1, "active": true, "frames": frames}); 60].into();
    let table = [
        // it stalls and moves, and there is nobody else who could deny it
        (
            "--stall-timeout 5s",
            vec![
                stack,
                json!({"event": "activity", "idle_ms": 9000}),
                json!({"event": "stacks_reported", "idle_ms": 9000}),
                json!({"event": "activity", "idle_ms": 0}),
            ],
        ),
        (
            "",
            vec![
                json!({"event": "raised", "index": 0, "exception": "E".repeat(500_000),
                "silent_ms": 1, "is_of_main": true}),
                json!({"event": "alive"}),
                json!({"event": "done"}),
            ],
        ),
    ];
    let peak = "import resource, subprocess, sys\n\
        ran = subprocess.run(sys.argv[2:])\n\
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n\
        open(sys.argv[1], 'w').write(f'{peak >> 10} {ran.returncode}')\n";
    write(&folder, "peak.py", peak);
    for (options, events) in table {
        // of these there is a record for each; 40 MB of them
        let is_dropped = options.starts_with("--stall");
        let files = if is_dropped { 400 } else { 100 };
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        write(&folder, "lines", lines.repeat(100_000 / lines.len() + 1));
        let way = "#!/bin/sh
read -r first; token=${first##* }; read -r script; printf '\\n%s runs\\n' \"$token\"
while IFS= read -r request; do
  case $request in *'\"do\":\"start\"'*) break ;; esac
  echo '{\"event\":\"done\"}'
done
echo '{\"event\":\"started\",\"index\":0,\"pid\":1}'
for n in $(seq $1); do cat lines; done
for stream in stdout stderr; do
  echo '{\"event\":\"drained\",\"index\":0,\"stream\":\"'$stream'\"}'
done
echo '{\"event\":\"exited\",\"index\":0,\"code\":3,\"cpu_s\":0,\"max_rss_bytes\":1}'
echo '{\"event\":\"over\",\"survivors\":0}'; : >sent
exec cat >/dev/null
";
        executable(&folder, "way", way);
        let script = format!(
            "ulimit -v 3000000; export DGL_TOOLS_CONNECT_TIMEOUT=60s
             rm -f sent peak out err; mkfifo out
             {{ for n in $(seq 600); do [ -e sent ] && break; sleep 0.1; done; sleep 1
               cat >read; }} <out & reader=$!
             python3 peak.py peak dgl-spawn --connect './way {files}' --format jsonl \
               --no-preflight --job flood {options} <job >out 2>err; wait $reader"
        );
        let ran = sh(&folder, &script);
        let peak = read(&folder, "peak");
        let (peak, status) = peak.split_once(' ').unwrap();
        assert!(
            peak.parse::<u64>().unwrap() < 100 && status == "3",
            "{options}: {peak} MB, status {status}: {}{:.2000}",
            ran.err,
            read(&folder, "err")
        );
        let records = read(&folder, "read");
        assert_has(&records, "\"type\":\"exited\"");
        if is_dropped {
            assert_has(&records, "\"type\":\"dropped\"");
        }
    }
}

/// What the tools advise is their own text.
#[test]
fn a_host_that_names_a_module_to_install_is_lost() {
    let folder = scratch();
    let finding = json!({"event": "preflight", "found": "problem", "problem": "it has no torch",
        "about": {"module": "torch from evil.example"}});
    let agent = format!(
        "#!/bin/sh
read -r first; token=${{first##* }}; read -r script; printf '\\n%s runs\\n' \"$token\"
while IFS= read -r request; do
  case $request in *'\"check\":\"commands\"'*) echo '{finding}' ;; esac
  echo '{{\"event\":\"done\"}}'
done
"
    );
    executable(&folder, "way", &agent);
    write(&folder, "ip.txt", "127.0.0.1\n");
    sh(
        &folder,
        "ipconf-check ip.txt | dgl-env --role worker -- python3 t.py |
           dgl-spawn --connect './way {name}'",
    )
    .ends(74)
    .err_has("is not a message: unknown variant")
    .err_lacks("the Python that has");
}

/// The second host runs, and answers nothing.
#[test]
fn slow_a_host_that_hangs_holds_back_the_end_of_a_job_for_seconds_only() {
    let folder = scratch();
    executable(
        &folder,
        "way",
        "#!/bin/sh\n[ $1 = 1 ] || { shift; exec \"$@\"; }
read -r first; token=${first##* }; read -r script
printf '\\n%s runs\\n' \"$token\"\nexec cat >/dev/null\n",
    );
    let host = |id: u32, of: u32| {
        format!(
            "{{\"type\":\"host\",\"id\":{id},\"of\":{of},\"ip\":\"127.0.0.{}\",\"port\":30050}}\n",
            id + 1
        )
    };
    let process = "{\"type\":\"process\",\"id\":0,\"of\":1,\"host\":0,\"ip\":\"127.0.0.1\",\
        \"role\":\"worker\",\"rank\":0,\"argv\":[\"sleep\",\"100\"]}\n";
    write(&folder, "job", host(0, 1) + process);
    write(&folder, "hosts", host(0, 2) + &host(1, 2));
    let ran = sh(
        &folder,
        "dgl-spawn --connect local --no-preflight --job hung <job >run & p=$!
         until grep -q started run; do sleep 0.1; done
         dgl-reap --connect './way {id}' --job hung <hosts >ended; echo $?; wait $p; echo $?",
    );
    assert_eq!(ran.out, "74\n143\n", "{}", ran.err);
    let ended = read(&folder, "ended");
    assert_has(&ended, "\"processes\":1");
    ran.err_has("its answer was not complete within 15 s");
}

/// Each time is another copy of it on its way.
#[test]
fn slow_a_host_that_asks_for_the_agent_again_and_again_is_refused() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let start = "#!/bin/sh\nread -r first; token=${first##* }; read -r script\n\
        need() { echo \"$token need $(uname -m) plain\"; }\n";
    let table = [
        (
            "greedy",
            "need; need; need; sleep 30",
            "before it has received",
        ),
        (
            "insatiable",
            "while need; do while read -r length && [ \"$length\" -gt 0 ]; do\n\
                head -c \"$length\" >/dev/null; echo \"$token took\"; done; done",
            "more than 8 times",
        ),
        (
            "slow",
            "need; while read -r length && [ \"$length\" -gt 0 ]; do\n\
                head -c \"$length\" >/dev/null; sleep 0.6; echo \"$token took\"; done",
            "has not received host-agent within 60 s",
        ),
    ];
    for (name, text, message) in table {
        executable(&folder, name, &format!("{start}{text}\n"));
        // a busy machine has 1.4 s for each piece
        let timeout = if name == "slow" { "2s" } else { "5s" };
        let ran = sh(
            &folder,
            &format!(
                "export DGL_TOOLS_CONNECT_TIMEOUT={timeout}; ipconf-check ip.txt | \
                 timeout -s KILL 120 dgl-reap --list --connect './{name} {{name}}'"
            ),
        );
        assert_eq!(ran.status, 74, "{name}: {}", ran.err);
        assert!(ran.err.contains(message), "{name}: {}", ran.err);
    }
}

/// Sends without end, before it has shown a key: lines before its version, or packets of a type
/// that nobody knows.
const FLOOD: &str = r#"
import socket, struct, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
greeting, endless = {
    "lines": (b"", b"hello\r\n" * 5000),
    "packets": (b"SSH-2.0-flood\r\n",
                (struct.pack(">IBB", 32764, 4, 200) + bytes(32762)) * 8),
    "words": (b"SSH-2.0-flood\r\n",
              (struct.pack(">IBB", 12, 4, 2) + bytes(10)) * 5000),
}[sys.argv[1]]
while True:
    tool, _ = listener.accept()
    try:
        tool.sendall(greeting)
        while True:
            tool.sendall(endless)
    except OSError:
        pass
"#;

/// libssh2 itself looks at its timeout only if nothing arrives.
#[test]
fn a_host_that_sends_without_end_before_its_key_is_left_at_once() {
    let folder = scratch();
    write(&folder, "flood.py", FLOOD);
    sh(&folder, "printf '127.0.0.1\n' | ipconf-check >hosts").ends(0);
    let too_much = "it sends too much: 8 MB that are no answer";
    let late = "no SSH handshake: it did not answer in time";
    for what in ["lines", "packets", "words"] {
        let script = format!(
            "rm -f port; python3 flood.py {what} >port & host=$!
             until [ -s port ]; do sleep 0.1; done
             export DGL_TOOLS_SSH_PORT=$(cat port) DGL_TOOLS_CONNECT_TIMEOUT=5s
             (ulimit -v 1000000; timeout -s KILL 40 host-probe --connect ssh2 <hosts)
             status=$?; kill $host; exit $status"
        );
        let ran = sh(&folder, &script);
        ran.ends(74).err_has("host 0 (127.0.0.1): ");
        // libssh2 reads lines so slowly that either limit may come first
        let is_left = ran.err.contains(too_much) || what == "lines" && ran.err.contains(late);
        assert!(is_left, "{what}: {}", ran.err);
    }
}

/// A directory with sshd.py, and what a login to it needs.
fn with_sshd() -> PathBuf {
    let folder = scratch();
    write(&folder, "sshd.py", include_str!("flooding_sshd.py"));
    let begin = "printf '127.0.0.1\n' | ipconf-check >hosts && ssh-keygen -q -t ed25519 -N '' -f id
        printf 'UserKnownHostsFile %s/known\n' \"$PWD\" >config";
    sh(&folder, begin).ends(0);
    folder
}

/// Packets of a type that nobody knows, in a connection that is encrypted.
#[test]
fn a_host_that_sends_without_end_after_its_key_is_left_at_once() {
    let folder = with_sshd();
    for when in ["userauth", "exec"] {
        let script = format!(
            "rm -f known port; python3 sshd.py {when} >port & host=$!
             until [ -s port ]; do kill -0 $host || exit 1; sleep 0.1; done
             export DGL_TOOLS_SSH_PORT=$(cat port) DGL_TOOLS_SSH_CONFIG=config
             export DGL_TOOLS_HOST_KEY=accept-new DGL_TOOLS_IDENTITY=id
             export DGL_TOOLS_CONNECT_TIMEOUT=20s
             (ulimit -v 1000000; timeout -s KILL 40 host-probe --connect ssh2 <hosts)
             status=$?; kill $host; exit $status"
        );
        sh(&folder, &script)
            .ends(74)
            .err_has("host 0 (127.0.0.1): it sends too much: 8 MB that are no answer");
    }
}

/// ssh prints the names of the methods as the host sends them, over several lines.
#[test]
fn a_host_that_words_the_end_of_ssh_accuses_neither_this_machine_nor_a_jump_host() {
    let folder = with_sshd();
    for methods in [
        r"x).\nConnection closed by UNKNOWN port 65535 (\nterminating, 1 bad configuration options",
        r"x\nann@bastion: Permission denied (publickey).\nConnection closed by UNKNOWN port 65535",
    ] {
        let script = format!(
            "rm -f known port; python3 sshd.py refuses \"$(printf '{methods}')\" >port & host=$!
             until [ -s port ]; do kill -0 $host || exit 1; sleep 0.1; done
             export DGL_TOOLS_SSH_PORT=$(cat port) DGL_TOOLS_SSH_CONFIG=config
             export DGL_TOOLS_HOST_KEY=accept-new DGL_TOOLS_IDENTITY=id
             timeout -s KILL 40 dgl-reap --list --connect ssh <hosts
             status=$?; kill $host; exit $status"
        );
        sh(&folder, &script)
            .ends(74)
            .err_has("host 0 (127.0.0.1): login refused for ")
            .err_has("UNKNOWN port 65535")
            .err_lacks("failed on this machine")
            .err_lacks("ProxyJump");
    }
}

/// Answers like host-agent until a request comes; from then on it misbehaves.
const AGENT: &str = r#"
import json, sys, time
folder, phase, how = sys.argv[1:4]
what = open(folder + "/what", "rb").read()
requests, answers = sys.stdin.buffer, sys.stdout.buffer
token = requests.readline().split()[-1]
requests.readline()
answers.write(b"\n" + token + b" runs\n")
answers.flush()
def send(event):
    answers.write(json.dumps(event).encode() + b"\n")
    answers.flush()
def file(kind, **fields):
    send({"event": "file", "kind": kind, **fields})
meta = {"size": 5, "mode": 33188, "mtime": [1, 1], "inode": 1}
while line := requests.readline():
    request = json.loads(line)
    body = requests.read(request.get("bytes", 0))
    name = request.get("step", request["do"])
    if name == phase:
        break
    if name in ("receive", "give", "enter"):
        file("ready", free_bytes=1 << 40, empty=False)
    elif name == "peers":
        file("peers", hosts=[0])
    elif name == "inspect":
        file("there", entries=[None] * body.count(0))
    elif name == "find":
        file("found", entries=[{"path": "./a", "meta": meta}], last=True)
    elif name == "sync":
        file("synced", number=request["number"])
    elif request["do"] not in ("file", "alive"):
        send({"event": "done"})
try:
    while how == "floods":
        answers.write(what * 1000)
    while how == "beats":
        send({"event": "alive"})
        time.sleep(0.4)
    answers.write(what)
    answers.flush()
    time.sleep(1000)
except BrokenPipeError:
    pass
"#;

/// A directory with input of every tool, and a way to a host whose agent misbehaves from a request
/// on.
fn misbehaving(name: &str, phase: &str, how: &str, what: &str) -> PathBuf {
    let folder = scratch().join(name);
    write(&folder, "agent.py", AGENT);
    write(&folder, "what", what);
    let agent = format!(
        "#!/bin/sh\nexec python3 '{0}/agent.py' '{0}' {phase} {how}\n",
        folder.display()
    );
    executable(&folder, "way", &agent);
    let process = json!({"type": "process", "id": 0, "of": 1, "host": 0, "ip": "10.99.0.1",
        "role": "worker", "rank": 0, "argv": ["t"]});
    let host = host_record(0, 1, "10.99.0.1").to_string();
    let file = json!({"type": "file", "id": 0, "of": 1, "host": 0, "kind": "ip_config",
        "content": "hello", "bytes": 5, "dst": "/w/a", "mode": 420});
    write(&folder, "hosts", format!("{host}\n"));
    write(&folder, "job", format!("{host}\n{process}\n"));
    write(&folder, "plan", format!("{host}\n{file}\n"));
    folder
}

/// Every event has a limit in bytes, in number and in time, in whatever phase it comes.
#[test]
fn slow_a_host_that_floods_stops_half_way_or_only_beats_is_lost() {
    let (alive, long) = (r#"{"event":"alive"}"#, alive_of(900_000));
    let alive = &format!("{alive}\n");
    let file =
        |kind: &str, fields: &str| format!("{{\"event\":\"file\",\"kind\":\"{kind}\"{fields}}}\n");
    let landed = file("landed", r#","done":[],"failed":[]"#);
    let late = file("synced", r#","number":0"#);
    let arrived = file("arrived", r#","id":0,"size":1"#);
    let listed = file("found", r#","entries":[],"last":false"#);
    let abandoned = file(
        "step",
        r#","step":"open","id":0,"dst":"a","size":5,"mode":0,"key":"k""#,
    );
    let read = file("read", "");
    let started = "{\"event\":\"started\",\"index\":0,\"pid\":1}\n";
    let push = "part-push <plan";
    let pull = "part-pull --workspace /w --to got '*' <hosts";
    let spawn = "dgl-spawn --host-timeout 5s --job j <job";
    let probe = "host-probe <hosts";
    let stacks = "dgl-stacks --job j <hosts";
    let reap = "dgl-reap --list <hosts";
    let (many, big) = (" heartbeats after ", "a heartbeat of 900017 bytes");
    let unasked = "protocol error: unexpected answer";
    let surplus = "protocol error: more answers than requests";
    let idle = "it sent nothing but heartbeats for 30.0 s";
    let cut = "no data was exchanged with it for 3 s";
    let late_answer = "its answer was not complete within";
    let table: Vec<(&str, &str, &str, &str, &str)> = vec![
        (push, "receive", "floods", alive, many),
        (push, "inspect", "floods", alive, many),
        (push, "batch", "floods", alive, many),
        (push, "inspect", "sends", &long, big),
        (push, "receive", "floods", &landed, surplus),
        (push, "batch", "floods", &landed, surplus),
        (push, "batch", "floods", &late, surplus),
        (push, "batch", "floods", &arrived, surplus),
        (push, "inspect", "floods", &read, surplus),
        (push, "receive", "beats", "", idle),
        (push, "inspect", "beats", "", idle),
        (push, "batch", "beats", "", idle),
        (push, "batch", "sends", &landed[..20], cut),
        (pull, "give", "floods", alive, many),
        (pull, "find", "floods", alive, many),
        (pull, "find", "sends", &long, big),
        (
            pull,
            "find",
            "floods",
            &listed,
            "a part of a list without files",
        ),
        (pull, "send", "floods", &abandoned, surplus),
        (pull, "send", "floods", &late, surplus),
        (pull, "send", "floods", &listed, surplus),
        (pull, "find", "beats", "", idle),
        (pull, "send", "beats", "", idle),
        (pull, "send", "sends", &landed[..20], cut),
        (spawn, "claim", "floods", alive, many),
        (spawn, "preflight", "floods", alive, many),
        (spawn, "preflight", "sends", &long, big),
        (
            spawn,
            "preflight",
            "beats",
            "",
            "checking it took more than 60 s",
        ),
        (spawn, "start", "floods", alive, many),
        (spawn, "start", "sends", &long, big),
        (
            spawn,
            "start",
            "floods",
            started,
            "protocol error: a process started twice",
        ),
        (
            spawn,
            "start",
            "sends",
            &started[..20],
            "no message from it for 5 s",
        ),
        (probe, "probe", "floods", alive, many),
        (probe, "probe", "sends", &started[..20], late_answer),
        (stacks, "take_stacks", "floods", alive, unasked),
        (stacks, "take_stacks", "sends", &started[..20], late_answer),
        (reap, "list_jobs", "floods", alive, unasked),
        (reap, "list_jobs", "sends", &started[..20], late_answer),
    ];
    std::thread::scope(|scope| {
        for (nth, (tool, phase, how, what, problem)) in table.into_iter().enumerate() {
            let folder = misbehaving(&nth.to_string(), phase, how, what);
            scope.spawn(move || {
                let (silence, wait) = if how == "floods" { (30, 3600) } else { (3, 30) };
                let script = format!(
                    "export DGL_TOOLS_TEST_SILENCE={silence} DGL_TOOLS_TEST_LONGEST_WAIT={wait}
                     export DGL_TOOLS_CONNECT_TIMEOUT=60s
                     export DGL_TOOLS_CONNECT=\"$PWD/way {{name}}\"; ulimit -v 3000000; {tool}"
                );
                let got = sh(&folder, &script);
                assert!(
                    [1, 74].contains(&got.status)
                        && got.err.contains(problem)
                        && got.err.len() < 10_000,
                    "{tool}, {phase} {how}: {}: {problem}: {:.2000}",
                    got.status,
                    got.err
                );
                assert_fix_of_breach(&got.err);
            });
        }
    });
}

fn alive_of(bytes: usize) -> String {
    format!("{{\"event\":\"alive\"{}}}\n", " ".repeat(bytes))
}

/// Whatever it words is cut, and said once.
#[test]
fn slow_what_a_host_words_has_an_end() {
    let failed = json!({"event": "failed", "problem": "x".repeat(900_000)});
    let failed = format!("{failed}\n");
    // the text of an exception changes, and the process seems to continue in between
    let mut raised = String::from("{\"event\":\"started\",\"index\":0,\"pid\":1}\n");
    for nth in 0..3000 {
        let exception = format!("E{nth}{}", "e".repeat(100));
        let event = json!({"event": "raised", "index": 0, "exception": exception,
            "silent_ms": 1, "is_of_main": true});
        raised += &format!("{event}\n");
        if nth >= 1000 {
            let output = json!({"event": "output", "index": 0, "stream": "stdout", "bytes": 2});
            raised += &format!("{output}\na\n");
        }
    }
    raised += "{\"event\":\"failed\",\"problem\":\"enough\"}\n";
    let table = [
        ("part-push <plan", "inspect", &failed, 10_000),
        (
            "part-pull --workspace /w --to got '*' <hosts",
            "find",
            &failed,
            10_000,
        ),
        ("dgl-spawn <job", "preflight", &failed, 10_000),
        ("dgl-spawn <job", "start", &failed, 20_000),
        ("dgl-reap --list <hosts", "list_jobs", &failed, 10_000),
        ("host-probe <hosts", "probe", &failed, 10_000),
        // a thousand notices at most
        ("dgl-spawn <job", "start", &raised, 600_000),
    ];
    for (nth, (tool, phase, what, most)) in table.into_iter().enumerate() {
        let folder = misbehaving(&nth.to_string(), phase, "sends", what);
        let got = sh(
            &folder,
            &format!("export DGL_TOOLS_CONNECT=\"$PWD/way {{name}}\"; {tool}"),
        );
        let written = got.out.len() + got.err.len();
        assert!(
            [1, 74].contains(&got.status) && written < most && written > 100,
            "{tool}: {}, {written} bytes: {:.2000}",
            got.status,
            got.err
        );
    }
}
