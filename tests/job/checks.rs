//! What host-agent looks at before a job starts: each request as it is typed by hand, and what
//! comes back.

use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use support::{read, scratch, tools, write};

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

    /// One that was told of a job with these processes.
    fn with(folder: &Path, job: Value, processes: &[Value]) -> Agent {
        let mut agent = Agent::start(folder, &[]);
        agent.tell(&job, processes);
        agent
    }

    /// Tells it of a job with these processes.
    fn tell(&mut self, job: &Value, processes: &[Value]) {
        for request in std::iter::once(job).chain(processes) {
            assert_eq!(self.ask(request), [json!({"event": "done"})]);
        }
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
    fn examine(&mut self, check: &str) -> Vec<Value> {
        let mut events = self.ask(json!({"do": "preflight", "check": check}));
        assert_eq!(events.pop(), Some(json!({"event": "done"})), "{events:?}");
        events
    }

    /// What it finds when it connects to these.
    fn connect(&mut self, targets: &[String]) -> Vec<Value> {
        let connect = json!({"do": "preflight", "check": "connect", "targets": targets});
        let mut events = self.ask(connect);
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
        "address": "127.0.0.1", "hosts": 2,
        "grace_ms": 1000, "host_timeout_ms": 30000})
}

/// A process of the job, with these fields of its record.
fn process(role: &str, rest: &Value) -> Value {
    let mut process = json!({"do": "process", "id": 0, "of": 1, "host": 0, "ip": "127.0.0.1",
        "role": role, "rank": 0, "argv": ["true"]});
    let rest = rest.as_object().unwrap().clone();
    if rest.contains_key("shell") {
        process.as_object_mut().unwrap().remove("argv");
    }
    process.as_object_mut().unwrap().extend(rest);
    process
}

/// A worker that listens on these ports.
fn worker(ports: &[u16]) -> Value {
    let names = ports.iter().map(|port| (format!("p{port}"), json!(port)));
    process(
        "worker",
        &json!({"ports": names.collect::<serde_json::Map<_, _>>()}),
    )
}

fn problem(about: impl Into<Value>, problem: &str) -> Value {
    let about = about.into();
    found("problem", json!({"about": about, "problem": problem}))
}

fn found(what: &str, rest: impl Display) -> Value {
    let mut finding: Value = serde_json::from_str(&rest.to_string()).unwrap();
    finding["event"] = "preflight".into();
    finding["found"] = what.into();
    finding
}

#[test]
fn a_job_claims_its_name_and_its_ports_until_its_agent_ends() {
    let folder = scratch();
    // servers of a graph, which use /dev/shm, on these ports
    let job_with = |name: &str, token: &str, ports: &[u16]| {
        let server = |port: &u16| {
            let env = json!({"DGL_CONF_PATH": "g.json"});
            process("server", &json!({"port": port, "env": env}))
        };
        let servers: Vec<Value> = ports.iter().map(server).collect();
        Agent::with(&folder, job(name, token), &servers)
    };
    let claim = json!({"do": "claim"});
    let granted = [json!({"event": "done"})];
    let mut first = job_with("first", "1", &[30950, 30951]);
    assert_eq!(first.ask(&claim), granted);
    let mut second = job_with("second", "2", &[30951, 30952]);
    let refused = second.ask(&claim);
    assert_eq!(refused.len(), 2, "{refused:?}");
    let taken = &refused[0];
    assert_eq!(
        (&taken["about"], &taken["problem"], &taken["confirmed"]),
        (
            &json!({"port": "job"}),
            &json!("port 30951, and /dev/shm, is taken by job first"),
            &json!(false)
        )
    );
    let holder = format!("process {}, for ", first.child.id());
    assert!(
        taken["detail"].as_str().unwrap().starts_with(&holder),
        "{taken}"
    );
    first.ask(r#"{"do": "confirm"}"#);
    assert_eq!(second.ask(&claim)[0]["confirmed"], json!(true));
    // an agent of the same job, and one that wants the same name
    let mut rehearsed = job_with("first", "1", &[30960]);
    assert_eq!(rehearsed.ask(&claim), granted);
    let mut twin = Agent::of_job(&folder, "first", "3");
    assert_eq!(
        twin.ask(&claim)[0]["about"],
        json!({"name": {"foreign": false}})
    );
    // nothing of what was refused is kept, and what is given back can be had
    let on_port = |token: &str, port: u16| {
        let server = process("server", &json!({"port": port}));
        Agent::with(&folder, job(&format!("job-{token}"), token), &[server])
    };
    assert_eq!(on_port("4", 30952).ask(&claim), granted);
    drop(rehearsed);
    // killed, without a word
    first.child.kill().unwrap();
    drop(first);
    assert_eq!(second.ask(&claim), granted);
    let mut third = on_port("5", 30951);
    assert_eq!(
        third.ask(&claim)[0]["problem"],
        json!("port 30951 is taken by job second")
    );
    second.ask(r#"{"do": "release"}"#);
    assert_eq!(third.ask(&claim), granted);
}

#[test]
fn slow_an_agent_that_hears_nothing_gives_its_claim_back() {
    let folder = scratch();
    let mut silent = job("silent-claim", "e");
    silent["host_timeout_ms"] = 2000.into();
    let mut agent = Agent::start(&folder, &[]);
    agent.ask(&silent);
    assert_eq!(agent.ask(r#"{"do": "claim"}"#).len(), 1);
    // its launcher lives, and then is gone without the end of its stdin
    for _ in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        writeln!(agent.stdin.as_ref().unwrap(), "{}", json!({"do": "alive"})).unwrap();
    }
    let mut other = Agent::of_job(&folder, "silent-claim", "f");
    assert_eq!(
        other.ask(r#"{"do": "claim"}"#).len(),
        2,
        "it is still taken"
    );
    assert!(agent.child.wait().unwrap().success());
    assert_eq!(other.ask(r#"{"do": "claim"}"#).len(), 1, "it is free");
}

#[test]
fn ports_that_are_taken_and_hosts_that_are_not_reached() {
    support::need("python3");
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
    let server = |port: u16| {
        process(
            "server",
            &json!({"port": port, "env": {"DGL_CONF_PATH": "g.json"}}),
        )
    };
    let all = [server(30970), worker(&[30970, 30971])];
    let taken = Agent::with(&folder, job("mine", "5"), &all).examine("ports");
    assert_eq!(taken.len(), 1, "{taken:?}");
    let words = taken[0]["problem"].as_str().unwrap();
    let holder_words = format!(
        "port 30970 is taken by process {} (python3 -c import socket",
        holder.id()
    );
    assert!(
        taken[0]["about"] == json!({"port": "job"})
            && words.starts_with(&holder_words)
            && words.ends_with(") of job other"),
        "{taken:?}"
    );
    let mut elsewhere = job("mine", "5");
    elsewhere["address"] = "192.0.2.1".into();
    let foreign = Agent::with(&folder, elsewhere, &[server(30971)]).examine("ports");
    assert_eq!(
        foreign,
        [problem(
            "address",
            "192.0.2.1 is not an address of this host"
        )]
    );
    holder.kill().unwrap();
    holder.wait().unwrap();

    let mut agent = Agent::with(&folder, job("mine", "5"), &[server(30971)]);
    let listens = agent.examine("listen").pop().unwrap();
    let [own, ephemeral] = ["port", "ephemeral"].map(|key| listens[key].as_u64().unwrap());
    assert_eq!(own, 30971);
    let mut other = Agent::of_job(&folder, "mine", "5");
    let targets: Vec<String> = [own, ephemeral]
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    assert_eq!(other.connect(&targets), [Value::Null; 0]);
    agent.examine("stop_listening");
    let refused = targets.iter().map(|target| {
        found(
            "unreached",
            json!({"target": target, "why": "Connection refused"}),
        )
    });
    let got = other.connect(&targets);
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
    let server = process("server", &json!({"port": 30972}));
    let mut agent = Agent::with(&folder, job("mine", "7"), &[server]);
    let listens = agent.examine("listen").pop().unwrap();
    assert!(
        listens["port"].is_null() && listens["ephemeral"].is_u64(),
        "{listens}"
    );
    // nobody watches it: it is told, and the one that is watched is not
    let jobs = agent.examine("jobs");
    let mut left = problem(json!("abandoned"), "job old was left without a launcher");
    left["detail"] = format!("process {}", other.id()).into();
    assert_eq!(jobs, [left]);
    let mut watch = Command::new("sleep")
        .arg("60")
        .env("DGL_TOOLS_TOKEN", format!("waits-{token}"))
        .spawn()
        .unwrap();
    assert_eq!(agent.examine("jobs"), [Value::Null; 0]);
    let mut twin = Agent::of_job(&folder, "old", "8");
    let name = json!({"name": {"foreign": false}});
    assert_eq!(
        twin.examine("jobs"),
        [problem(name, "a job named old is running")]
    );
    for child in [&mut other, &mut watch] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// An agent ends with its launcher also while it carries out a check.
#[test]
fn a_check_that_hangs_keeps_no_claim_when_the_launcher_is_gone() {
    let folder = scratch();
    let hangs = json!({"argv": ["python3", "x.py"], "python": "python3",
        "setup": "exec >log 2>&1; echo $$ >pid.partial; mv pid.partial pid; sleep 600"});
    let mut agent = Agent::with(&folder, job("hangs", "a"), &[process("trainer", &hangs)]);
    let claim = json!({"do": "claim"});
    let granted = [json!({"event": "done"})];
    assert_eq!(agent.ask(&claim), granted);
    let check = json!({"do": "preflight", "check": "commands"});
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
fn slow_a_claim_whose_holder_does_not_answer_is_taken() {
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
        let name = json!({"name": {"foreign": false}});
        assert_eq!(taken["about"], name, "{taken}");
    }
}
