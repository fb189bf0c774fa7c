//! What a host says is text: it reaches a terminal as such, whatever it is, and stands in no
//! command that people are told to paste.

use serde_json::json;
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
    }
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
    let ready = "echo '{\"event\":\"file\",\"kind\":\"ready\",\"free_bytes\":1,\"empty\":false}'\n";
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
    let mut stack = of_process.clone();
    stack["event"] = "stack".into();
    stack["threads"] = vec![json!({"tid": 1, "active": true, "frames": frames}); 60].into();
    let mut profile = of_process;
    profile["event"] = "profile".into();
    profile["frames"] = vec!["f (x.py:1)"; 4000].into();
    for (key, value) in [
        ("samples", 1),
        ("missed", 0),
        ("rate", 10),
        ("elapsed_ms", 1),
    ] {
        profile[key] = value.into();
    }
    let table = [
        ("--profile 1s@0s", vec![profile]),
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
                "silent_ms": 1}),
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
        let is_dropped = options.starts_with("--profile");
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
case $1 in *profile*)
  until IFS= read -r request; case $request in *record*) true ;; *) false ;; esac; do :; done ;;
esac
for n in $(seq $2); do cat lines; done
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
             python3 peak.py peak dgl-spawn --connect './way \"{options}\" {files}' --format jsonl \
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
    ];
    for (name, text, message) in table {
        executable(&folder, name, &format!("{start}{text}\n"));
        let ran = sh(
            &folder,
            &format!(
                "export DGL_TOOLS_CONNECT_TIMEOUT=5s; ipconf-check ip.txt | timeout -s KILL 60 \
                 dgl-reap --list --connect './{name} {{name}}'"
            ),
        );
        assert_eq!(ran.status, 74, "{name}: {}", ran.err);
        assert!(
            ran.err.contains("it asks for host-agent ") && ran.err.contains(message),
            "{name}: {}",
            ran.err
        );
    }
}
