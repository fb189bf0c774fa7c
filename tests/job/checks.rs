//! What host-agent looks at before a job starts: each request as it is typed by hand, and what
//! comes back.

use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use support::{executable, partition, read, scratch, sh, takes_seconds, tools, write};

/// An agent that waits for requests; it ends when this is dropped.
struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Agent {
    fn start(folder: &Path, environment: &[(&str, &str)]) -> Agent {
        let mut command = Command::new(tools().join("host-agent"));
        command
            .current_dir(folder)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Agent {
            child,
            stdin,
            stdout,
        }
    }

    /// One that was told of a job.
    fn of_job(folder: &Path, name: &str, token: &str) -> Agent {
        let mut agent = Agent::start(folder, &[]);
        assert_eq!(agent.ask(job(name, token)), [json!({"event": "done"})]);
        agent
    }

    /// The events of one request, with the last one. Bytes behind an event are its `body`.
    fn ask(&mut self, request: impl Display) -> Vec<Value> {
        writeln!(self.stdin.as_ref().unwrap(), "{request}").unwrap();
        let mut events = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "the agent ended"
            );
            let mut event: Value = serde_json::from_str(&line).unwrap();
            if let Some(bytes) = event["bytes"].as_u64() {
                let mut body = vec![0; usize::try_from(bytes).unwrap()];
                self.stdout.read_exact(&mut body).unwrap();
                event["body"] = String::from_utf8(body).unwrap().into();
            }
            let last = event["event"] == "done" || event["event"] == "failed";
            events.push(event);
            if last {
                return events;
            }
        }
    }

    /// What a check has found.
    fn examine(&mut self, check: impl Display) -> Vec<Value> {
        let mut check: Value = serde_json::from_str(&check.to_string()).unwrap();
        check["do"] = "preflight".into();
        let mut events = self.ask(&check);
        assert_eq!(events.pop(), Some(json!({"event": "done"})), "{events:?}");
        events
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

fn job(name: &str, token: &str) -> Value {
    json!({"do": "job", "name": name, "token": token.repeat(32), "host": 0,
        "address": "127.0.0.1", "hosts": 1,
        "grace_ms": 1000, "host_timeout_ms": 30000})
}

fn problem(about: &str, problem: &str) -> Value {
    found("problem", json!({"about": about, "problem": problem}))
}

fn found(what: &str, rest: impl Display) -> Value {
    let mut finding: Value = serde_json::from_str(&rest.to_string()).unwrap();
    finding["event"] = "preflight".into();
    finding["found"] = what.into();
    finding
}

#[test]
fn files_and_configs() {
    let folder = scratch();
    partition(&folder, 2);
    write(&folder, "ip.txt", "10.0.0.1\n");
    let mut agent = Agent::start(&folder, &[]);
    let none: [Value; 0] = [];
    assert_eq!(agent.examine(r#"{"check": "folder", "path": "out"}"#), none);
    assert_eq!(
        agent.examine(r#"{"check": "folder", "path": "no"}"#),
        [problem("file", "no such folder: no")]
    );
    assert_eq!(
        agent.examine(r#"{"check": "file", "folder": "out", "path": "g.json"}"#),
        none
    );
    assert_eq!(
        agent.examine(r#"{"check": "file", "folder": "out", "path": "x"}"#),
        [problem("file", "no such file: out/x")]
    );
    assert_eq!(
        agent.examine(r#"{"check": "file", "folder": "no", "path": "x"}"#),
        none,
        "its folder is told alone"
    );
    let script =
        |path: &str| json!({"check": "script", "program": "worker", "folder": ".", "path": path});
    assert_eq!(
        agent.examine(script("iq.txt")),
        [problem(
            "file",
            "no such file: ./iq.txt; did you mean ./ip.txt?"
        )]
    );
    let read = agent.examine(script("ip.txt"));
    assert_eq!(
        (&read[0]["script"], read[0]["hash"].as_str().map(str::len)),
        (
            &json!({"program": "worker", "folder": ".", "path": "ip.txt"}),
            Some(64)
        )
    );
    assert_eq!(
        agent.examine(script("out")),
        none,
        "Python runs a folder too"
    );
    let text = agent.examine(r#"{"check": "ip_config", "folder": ".", "path": "ip.txt"}"#);
    assert_eq!(
        (text[0]["found"].as_str(), text[0]["body"].as_str()),
        (Some("ip_config"), Some("10.0.0.1\n"))
    );

    let config =
        json!({"check": "partition_config", "folder": ".", "path": "out/g.json", "part": 1});
    let whole = agent.examine(config.clone());
    assert_eq!(
        (whole.len(), &whole[0]["num_parts"], &whole[0]["graph_name"]),
        (1, &json!(2), &json!("g"))
    );
    std::fs::remove_file(folder.join("out/part1/graph.dgl")).unwrap();
    std::fs::remove_file(folder.join("out/part1/edge_feat.dgl")).unwrap();
    let lacks = agent.examine(config.clone());
    let [edges, graph] = ["./out/part1/edge_feat.dgl", "./out/part1/graph.dgl"]
        .map(|path| problem("file", &format!("no such file: {path}")));
    assert_eq!(lacks[1..], [edges, graph]);
    // DGL 0.5 looks from the working directory
    write(&folder, "part1/graph.dgl", "");
    assert_eq!(
        agent.examine(config.clone())[2],
        found("elsewhere", r#"{"path": "./out/part1/graph.dgl"}"#)
    );
    let huge = std::fs::File::create(folder.join("out/part1/node_feat.dgl")).unwrap();
    huge.set_len(1 << 43).unwrap();
    let small = agent.examine(config).pop().unwrap();
    assert!(
        small["about"] == "shared_memory"
            && small["problem"]
                .as_str()
                .is_some_and(|problem| { problem.starts_with("its part of the graph has 8.8 TB") }),
        "{small}"
    );
    huge.set_len(0).unwrap();
    let absent = agent.examine(
        r#"{"check": "partition_config", "folder": ".", "path": "out/g.json", "part": 7}"#,
    );
    assert_eq!(
        absent[1],
        problem(
            "partition_config",
            "./out/g.json has no part-7, which is this host's"
        )
    );
    let broken = agent.examine(r#"{"check": "partition_config", "folder": ".", "path": "ip.txt"}"#);
    assert_eq!(
        (
            broken[0]["num_parts"].clone(),
            broken[0]["hash"].as_str().map(str::len)
        ),
        (Value::Null, Some(64))
    );
    let files = agent.examine(json!({"check": "open_files", "need": 1_u64 << 62}));
    assert_eq!(files[0]["about"], "open_files");
}

#[test]
fn a_job_claims_its_name_and_its_ports_until_its_agent_ends() {
    let folder = scratch();
    let claim = |ports: &[u16]| {
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"port": port, "address": "127.0.0.1"}))
            .collect();
        json!({"do": "claim", "ports": ports, "shared_memory": true})
    };
    let granted = [json!({"event": "done"})];
    let mut first = Agent::of_job(&folder, "first", "1");
    assert_eq!(first.ask(claim(&[30950, 30951])), granted);
    let mut second = Agent::of_job(&folder, "second", "2");
    let refused = second.ask(claim(&[30951, 30952]));
    let what: Vec<&Value> = refused.iter().map(|event| &event["what"]).collect();
    assert_eq!(
        what,
        [
            &json!({"port": 30951}),
            &json!("shared_memory"),
            &Value::Null
        ]
    );
    let by = &refused[0]["by"];
    assert_eq!(
        (&by["job"], &by["pid"], &by["confirmed"]),
        (&json!("first"), &json!(first.child.id()), &json!(false))
    );
    first.ask(r#"{"do": "confirm"}"#);
    assert_eq!(
        second.ask(claim(&[30951]))[0]["by"]["confirmed"],
        json!(true)
    );
    // an agent of the same job, and one that wants the same name
    let mut rehearsed = Agent::of_job(&folder, "first", "1");
    assert_eq!(rehearsed.ask(claim(&[30960])), granted);
    let mut twin = Agent::of_job(&folder, "first", "3");
    assert_eq!(twin.ask(r#"{"do": "claim"}"#)[0]["what"], json!("name"));
    // nothing of what was refused is kept, and what is given back can be had
    let mut third = Agent::of_job(&folder, "third", "4");
    assert_eq!(
        third.ask(r#"{"do": "claim", "ports": [{"port": 30952, "address": "127.0.0.1"}]}"#),
        granted
    );
    drop(rehearsed);
    // killed, without a word
    first.child.kill().unwrap();
    drop(first);
    assert_eq!(second.ask(claim(&[30951])), granted);
    second.ask(r#"{"do": "release"}"#);
    assert_eq!(third.ask(claim(&[30951])), granted);
}

#[test]
fn an_agent_that_hears_nothing_gives_its_claim_back() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    let mut silent = job("silent-claim", "e");
    silent["host_timeout_ms"] = 2000.into();
    let mut agent = Agent::start(&folder, &[]);
    agent.ask(&silent);
    assert_eq!(agent.ask(r#"{"do": "claim", "ports": []}"#).len(), 1);
    // its launcher lives, and then is gone without the end of its stdin
    for _ in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        writeln!(agent.stdin.as_ref().unwrap(), "{}", json!({"do": "alive"})).unwrap();
    }
    let mut other = Agent::of_job(&folder, "silent-claim", "f");
    assert_eq!(
        other.ask(r#"{"do": "claim", "ports": []}"#).len(),
        2,
        "it is still taken"
    );
    assert!(agent.child.wait().unwrap().success());
    assert_eq!(
        other.ask(r#"{"do": "claim", "ports": []}"#).len(),
        1,
        "it is free"
    );
}

#[test]
fn ports_that_are_taken_and_hosts_that_are_not_reached() {
    let folder = scratch();
    let script = "import socket, time\ns = socket.socket(); s.bind(('127.0.0.1', 30970)); \
        s.listen(); print(1, flush=True); time.sleep(60)";
    let mut holder = Command::new("python3")
        .args(["-c", script])
        .env("DGL_TOOLS_JOB", "other")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    holder
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0])
        .unwrap();
    let mut agent = Agent::of_job(&folder, "mine", "5");
    let ports = json!({"check": "ports", "ports": [{"port": 30970, "address": "127.0.0.1"},
        {"port": 30970}, {"port": 30971}]});
    let taken = agent.examine(ports);
    assert_eq!(taken.len(), 1, "{taken:?}");
    let by = &taken[0]["by"];
    assert_eq!(
        (&taken[0]["port"], &by["pid"], &by["job"]),
        (&json!(30970), &json!(holder.id()), &json!("other"))
    );
    assert!(
        by["command"]
            .as_str()
            .unwrap()
            .starts_with("python3 -c import socket"),
        "{by}"
    );
    let foreign =
        agent.examine(r#"{"check": "ports", "ports": [{"port": 30971, "address": "192.0.2.1"}]}"#);
    assert_eq!(
        foreign,
        [problem(
            "address",
            "192.0.2.1 is not an address of this host"
        )]
    );
    holder.kill().unwrap();
    holder.wait().unwrap();

    let listens = agent
        .examine(r#"{"check": "listen", "address": "127.0.0.1", "port": 30971}"#)
        .pop()
        .unwrap();
    let [own, ephemeral] = ["port", "ephemeral"].map(|key| listens[key].as_u64().unwrap());
    assert_eq!(own, 30971);
    let mut other = Agent::of_job(&folder, "mine", "5");
    let targets: Vec<String> = [own, ephemeral]
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let connect = json!({"check": "connect", "targets": targets});
    assert_eq!(other.examine(connect.clone()), [Value::Null; 0]);
    agent.examine(r#"{"check": "stop_listening"}"#);
    let refused = targets
        .iter()
        .map(|target| found("unreached", json!({"target": target, "why": "refused"})));
    let got = other.examine(connect);
    assert!(
        got.len() == 2 && refused.clone().all(|finding| got.contains(&finding)),
        "{got:?}"
    );
}

#[test]
fn a_port_on_which_a_job_of_another_kind_may_be_about_to_listen_is_not_listened_on() {
    let folder = scratch();
    let token = "6".repeat(32);
    let mut other = Command::new("sleep")
        .arg("60")
        .env("DGL_TOOLS_JOB", "old")
        .env("DGL_TOOLS_TOKEN", &token)
        .spawn()
        .unwrap();
    let mut agent = Agent::of_job(&folder, "mine", "7");
    let listens = agent
        .examine(r#"{"check": "listen", "address": "127.0.0.1", "port": 30972}"#)
        .pop()
        .unwrap();
    assert!(
        listens["port"].is_null() && listens["ephemeral"].is_u64(),
        "{listens}"
    );
    // nobody watches it: it is told, and the one that is watched is not
    let jobs = agent.examine(r#"{"check": "jobs"}"#);
    assert_eq!(
        jobs,
        [found(
            "abandoned",
            json!({"job": "old", "pids": [other.id()]})
        )]
    );
    let mut watch = Command::new("sleep")
        .arg("60")
        .env("DGL_TOOLS_TOKEN", format!("waits-{token}"))
        .spawn()
        .unwrap();
    assert_eq!(agent.examine(r#"{"check": "jobs"}"#), [Value::Null; 0]);
    let mut twin = Agent::of_job(&folder, "old", "8");
    assert_eq!(
        twin.examine(r#"{"check": "jobs"}"#),
        [found("name_in_use", r#"{}"#)]
    );
    for child in [&mut other, &mut watch] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn shared_memory_of_jobs() {
    let folder = scratch();
    let file = "/dev/shm/node~_N~agent-kvdata-";
    std::fs::write(file, [0; 4096]).unwrap();
    let mut agent = Agent::start(&folder, &[]);
    let check = json!({"check": "shared_memory"});
    let stale = json!({"state": {"stale": file}, "files": 1, "total_bytes": 4096});
    assert_eq!(
        agent.examine(check.clone()),
        [found("shared_memory", stale)]
    );
    let maps = format!(
        "import mmap, time; f = open('{file}', 'r+b'); m = mmap.mmap(f.fileno(), 0); print(1, \
         flush=True); time.sleep(60)"
    );
    let mut user = Command::new("python3")
        .args(["-c", &maps])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    user.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let used = agent.examine(check);
    assert_eq!(
        used[0]["state"]["used"]["pid"],
        json!(user.id()),
        "{used:?}"
    );
    user.kill().unwrap();
    user.wait().unwrap();
    std::fs::remove_file(file).unwrap();
}

#[test]
fn commands_are_asked_in_the_environment_of_their_process() {
    let folder = scratch();
    write(&folder, "mods/dgl/__init__.py", "");
    let mut agent = Agent::of_job(&folder, "mine", "9");
    let mut processes = 0;
    let mut examine = |process: Value, python: Value| {
        let mut report = json!({"do": "process", "index": processes, "role": "trainer",
            "rank": processes, "cwd": "."});
        process
            .as_object()
            .unwrap()
            .iter()
            .for_each(|(key, value)| report[key] = value.clone());
        agent.ask(&report);
        processes += 1;
        agent.examine(json!({"check": "command", "process": processes - 1, "python": python}))
    };
    let none = [Value::Null; 0];
    assert_eq!(
        examine(json!({"command": {"words": ["sh"]}}), Value::Null),
        none
    );
    assert_eq!(
        examine(json!({"command": {"words": ["python9"]}}), Value::Null),
        [problem("command", "no such command: python9")]
    );
    // without the modules of this machine
    executable(&folder, "python", "#!/bin/sh\nexec python3 -S \"$@\"\n");
    let question = json!({"interpreter": "./python", "script": "job.py",
        "modules": ["dgl", "torch"]});
    write(
        &folder,
        "job.py",
        "import os, side\ntry:\n    import torch\nexcept ImportError:\n    pass\n",
    );
    write(&folder, "side.py", "from dgl.data import x\n");
    let env = json!([
        ["PYTHONPATH", folder.join("mods")],
        ["PYTHONNOUSERSITE", "1"]
    ]);
    for command in [
        json!({"words": ["./python", "job.py"]}),
        json!({"shell": "./python job.py"}),
    ] {
        let facts = examine(
            json!({"command": command, "env": env, "setup": "echo noise; A=1"}),
            question.clone(),
        );
        assert_eq!(
            (&facts[0]["found"], &facts[0]["dgl"], &facts[0]["imports"]),
            (&json!("python"), &json!("unknown"), &json!(["dgl"]))
        );
        assert_eq!(facts[0]["missing"], json!(["torch"]), "{facts:?}");
    }
    let fails = examine(
        json!({"command": {"words": ["python3", "x.py"]}, "setup": "echo why >&2; exit 3"}),
        question,
    );
    assert_eq!(fails, [problem("python", "its Python does not run: why")]);
}

/// Below sshd bash reads ~/.bashrc for `bash -c` too; what that puts in front of PATH must not beat
/// the environment of the job.
#[test]
fn start_up_files_do_not_beat_the_environment_of_a_process() {
    let folder = scratch();
    executable(
        &folder,
        "venv/bin/tool",
        "#!/bin/sh\necho why venv; exit 1\n",
    );
    executable(&folder, "bin/tool", "#!/bin/sh\necho why bashrc; exit 1\n");
    write(
        &folder,
        ".bashrc",
        format!("PATH={}/bin:$PATH; export KEPT=no\n", folder.display()),
    );
    let home = folder.to_str().unwrap();
    // as sshd starts it
    let mut agent = Agent::start(
        &folder,
        &[
            ("SHELL", "/bin/bash"),
            ("HOME", home),
            ("SSH_CLIENT", "1 2 3"),
            ("SHLVL", "0"),
        ],
    );
    agent.ask(job("mine", "a"));
    let path = format!("{home}/venv/bin:/usr/bin:/bin");
    agent.ask(
        json!({"do": "process", "index": 0, "role": "trainer", "rank": 0, "cwd": ".",
        "env": [["PATH", path]], "command": {"shell": "tool"}}),
    );
    let message =
        agent.examine(r#"{"check": "command", "process": 0, "python": {"interpreter": "tool"}}"#);
    assert_eq!(
        message,
        [problem("python", "its Python does not run: why venv")]
    );
}

/// A shell in whose place a start-up file executes another one, which reads an empty stdin, ends
/// well, and nothing has run.
#[test]
fn a_shell_that_never_runs_its_text_is_a_fault_that_names_the_file() {
    let text = json!({"command": {"shell": "/bin/echo ran; exit 5"}});
    let setup = json!({"command": {"words": ["true"]}, "setup": "A=1"});
    let table = [
        (
            "bash",
            ".bashrc",
            "# exec me\n[ -x /bin/sh ] && exec sh -l\n",
            Some(2),
        ),
        ("zsh", ".zshenv", "exec sh\n", Some(1)),
        ("fish", ".config/fish/config.fish", "exec sh\n", Some(1)),
        ("tcsh", ".cshrc", "exec sh\n", Some(1)),
        ("bash", ".bashrc", "exit 0\n", None),
        ("bash", ".bashrc", "echo noise\n", Some(0)),
    ];
    for (shell, file, content, line) in table {
        let folder = scratch();
        let path = sh(&folder, &format!("command -v {shell}"));
        if path.status != 0 {
            assert!(std::env::var_os("CI").is_none(), "no {shell}");
            println!("skipped: no {shell} here");
            continue;
        }
        let path = path.out.trim();
        write(&folder, file, content);
        let mut agent = Agent::start(
            &folder,
            &[
                ("SHELL", path),
                ("HOME", folder.to_str().unwrap()),
                ("SSH_CLIENT", "1 2 3"),
                ("SHLVL", "0"),
            ],
        );
        agent.ask(job("mine", "s"));
        for (index, own) in [&text, &setup].into_iter().enumerate() {
            let mut process = json!({"do": "process", "index": index, "role": "trainer",
                "rank": index, "cwd": "."});
            process
                .as_object_mut()
                .unwrap()
                .extend(own.as_object().unwrap().clone());
            agent.ask(&process);
            let found = agent.examine(json!({"check": "command", "process": index}));
            let cause = match line {
                Some(0) => {
                    assert_eq!(found, [Value::Null; 0], "{shell} {content}");
                    continue;
                }
                Some(line) => {
                    let line_text = content.lines().nth(line - 1).unwrap();
                    format!("~/{file}, line {line}, executes another program: {line_text}")
                }
                None => "a start-up file ends it or executes another program".to_owned(),
            };
            let expected = format!("{path} does not run the text that it is given: {cause}");
            assert_eq!(found, [problem("shell", &expected)], "{shell} {content}");
        }
    }
}

/// A program that runs in the background of a setup keeps the setup's output open.
#[test]
fn a_check_waits_for_its_program_and_not_for_what_that_leaves_running() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    let mut agent = Agent::of_job(&folder, "background", "c");
    agent.ask(
        json!({"do": "process", "index": 0, "role": "trainer", "rank": 0, "cwd": ".",
            "command": {"words": ["python3", "x.py"]}, "setup": "sleep 70 & echo $! >pid"}),
    );
    let question = json!({"interpreter": "python3"});
    let found = agent.examine(json!({"check": "command", "process": 0, "python": question}));
    let pid = read(&folder, "pid");
    let ended = Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(
        found.len() == 1 && found[0]["found"] == "python",
        "{found:?}"
    );
    assert!(ended.success(), "it still runs");
}

#[test]
fn a_pipe_in_the_place_of_a_config_is_no_config() {
    let folder = scratch();
    for check in ["ip_config", "partition_config"] {
        let request = json!({"do": "preflight", "check": check, "folder": "", "path": "fifo",
            "private_shm": false});
        write(&folder, "request", format!("{request}\n"));
        let script = "rm -f fifo; mkfifo fifo; timeout 60 host-agent <request";
        let got = support::sh(&folder, script);
        assert_eq!(
            (got.status, got.out.trim()),
            (0, r#"{"event":"done"}"#),
            "{check}: {}",
            got.err
        );
    }
}

/// An agent ends with its launcher also while it carries out a check.
#[test]
fn a_check_that_hangs_keeps_no_claim_when_the_launcher_is_gone() {
    let folder = scratch();
    let mut agent = Agent::of_job(&folder, "hangs", "a");
    let claim = json!({"do": "claim", "ports": []});
    let granted = [json!({"event": "done"})];
    assert_eq!(agent.ask(&claim), granted);
    agent.ask(
        json!({"do": "process", "index": 0, "role": "trainer", "rank": 0, "cwd": ".",
            "command": {"words": ["python3", "x.py"]},
            "setup": "exec >log 2>&1; echo $$ >pid.partial; mv pid.partial pid; sleep 600"}),
    );
    let check = json!({"do": "preflight", "check": "command", "process": 0,
        "python": {"interpreter": "python3"}});
    writeln!(agent.stdin.as_ref().unwrap(), "{check}").unwrap();
    support::soon("the check runs", || folder.join("pid").exists());
    agent.stdin = None;
    // enough for a loaded machine, and less than any check may take
    let mut is_over = false;
    for _ in 0..300 {
        is_over = is_over || agent.child.try_wait().unwrap().is_some();
        if !is_over {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    let _ = agent.child.kill();
    let pid = read(&folder, "pid");
    // without kill(1): some take `-12` for all processes
    let group = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
    if !is_over {
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        panic!("the agent is still there");
    }
    // one that nobody has waited for yet is a zombie
    support::soon("the program of the check ends", || {
        let stat = std::fs::read_to_string(format!("/proc/{group}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
    let mut other = Agent::of_job(&folder, "hangs", "b");
    assert_eq!(other.ask(&claim), granted);
}

/// Whoever holds the name of a claim cannot keep others waiting.
#[test]
fn a_claim_whose_holder_does_not_answer_is_taken() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    let holders = [
        // nobody can connect
        "s.listen(0); c = socket.socket(socket.AF_UNIX); c.connect(name); print(1, flush=True); \
         time.sleep(600)",
        // a byte now and then
        "s.listen(); print(1, flush=True); c, _ = s.accept()
while True: c.send(b' '); time.sleep(.2)",
    ];
    for (holder, job) in holders.iter().zip(["deaf", "drop-by-drop"]) {
        let script = format!(
            "import socket, time
name = '\\0dgl-tools/job/{job}'
s = socket.socket(socket.AF_UNIX); s.bind(name)
{holder}"
        );
        let mut python = Command::new("python3")
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        write(
            &folder,
            "requests",
            format!("{}\n{}\n", self::job(job, "d"), json!({"do": "claim"})),
        );
        let got = support::sh(&folder, "timeout 60 host-agent <requests");
        let _ = python.kill();
        let _ = python.wait();
        got.ends(0);
        let taken: Value = serde_json::from_str(got.out.lines().nth(1).unwrap()).unwrap();
        assert_eq!(
            (&taken["what"], taken["by"].get("job")),
            (&json!("name"), None),
            "{taken}"
        );
    }
}
