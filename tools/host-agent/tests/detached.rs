//! The launcher of a detached job, by hand: this test is the tool that starts it, on a host of
//! loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use launcher::detached::DetachedJob;
use launcher::plan;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder, Message};
use wire::detached::{HostTicket, Launch, PlanPiece};
use wire::job::JobOnHost;
use wire::preflight::Finding;
use wire::{Event, Request};

/// A home of this test's own; the path is longer than that of a Unix socket may be.
fn scratch(name: &str) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{name}-in-a-home-whose-path-is-longer-than-the-path-of-any-unix-socket-may-ever-be"
    ));
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).unwrap();
    home
}

/// An agent as a tool has it.
struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    decoder: Decoder,
}

impl Agent {
    fn begin(home: &Path) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host-agent"));
        command.env("HOME", home).current_dir(home);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        Agent {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().unwrap(),
            child,
            decoder: Decoder::default(),
        }
    }

    fn send(&mut self, request: &Request) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(&codec::encode(request, &[])).unwrap();
    }

    /// The next event; `None` at the end.
    fn next(&mut self) -> Option<Message<Event>> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next_message().unwrap() {
                return Some(message);
            }
            match self.stdout.read(&mut buffer).unwrap() {
                0 => return None,
                count => self.decoder.push(&buffer[..count]),
            }
        }
    }

    /// What a request is answered with, before it is done.
    fn ask(&mut self, request: &Request) -> Vec<Event> {
        self.send(request);
        let mut answers = Vec::new();
        loop {
            match self.next().expect("an answer").head {
                Event::Done => return answers,
                Event::Alive => {}
                event => answers.push(event),
            }
        }
    }

    /// What the launcher writes to its end: records, messages, and its last event.
    fn follow(&mut self) -> (String, String, Event) {
        let (mut records, mut messages) = (String::new(), String::new());
        while let Some(Message { head, body }) = self.next() {
            let text = String::from_utf8(body).unwrap();
            match head {
                Event::Output(output)
                    if output.stream == wire::supervise::ProcessStream::Stdout =>
                {
                    records += &text;
                }
                Event::Output(_) => messages += &text,
                Event::LauncherEnded(_) => return (records, messages, head),
                _ => {}
            }
        }
        panic!("the agent has ended; it sent {records}{messages}");
    }

    fn end(mut self) {
        drop(self.stdin.take());
        while self.next().is_some() {}
        self.child.wait().unwrap();
    }
}

/// A job of one worker on this machine, up to its ticket.
fn launched(home: &Path, name: &str, command: &str) -> (Agent, Vec<Event>) {
    let plan = plan::JobPlan {
        name: name.to_owned(),
        token: format!(
            "{:032x}",
            name.bytes()
                .fold(7u128, |sum, byte| sum * 257 + u128::from(byte))
        ),
        host_timeout: Duration::from_secs(4),
        preflight: false,
        rules: job::Rules::default(),
        detach: true,
        attempt: 0,
        sample: None,
        profile: None,
        private_shm: false,
        wait: None,
        restart: 0,
    };
    let host = r#"{"id":0,"of":1,"ip":"127.0.0.1","port":30050}"#;
    let process = serde_json::json!({"id": 0, "of": 1, "host": 0, "ip": "127.0.0.1",
        "role": "worker", "rank": 0, "env": {"SECRET": "s3cr3t"}, "argv": ["sh", "-c", command]});
    let job = DetachedJob {
        plan,
        hosts: vec![serde_json::from_str(host).unwrap()],
        graph: None,
        processes: vec![serde_json::from_value(process).unwrap()],
        log_dir: None,
    };
    let mut agent = Agent::begin(home);
    assert_eq!(agent.ask(&Request::Detach), []);
    let text = serde_json::to_string(&job).unwrap();
    let (first, second) = text.split_at(text.len() / 2);
    for piece in [first, second] {
        let text = piece.to_owned();
        assert_eq!(agent.ask(&Request::Plan(PlanPiece { text })), []);
    }
    let launch = Launch {
        job: on_host(name),
        port: 0,
        patience_ms: 10_000,
    };
    let answer = agent.ask(&Request::Launch(Box::new(launch)));
    (agent, answer)
}

fn on_host(name: &str) -> JobOnHost {
    JobOnHost {
        name: name.to_owned(),
        address: Ipv4Addr::LOCALHOST,
    }
}

fn ticket(answer: Vec<Event>) -> HostTicket {
    match answer.into_iter().next() {
        Some(Event::Ticket(ticket)) => *ticket,
        other => panic!("{other:?}"),
    }
}

fn soon(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "waited for a minute: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn folder(home: &Path, name: &str) -> PathBuf {
    home.join(".local/state/dgl-tools")
        .join(name)
        .join("127.0.0.1")
}

#[test]
fn strangers_at_the_launchers_port_change_nothing_and_one_name_is_one_job() {
    let home = scratch("strangers");
    let (mut agent, answer) = launched(
        &home,
        "strangers",
        "echo up; until [ -e go ]; do sleep 0.05; done",
    );
    let ticket = ticket(answer).ticket;
    let address = ticket.addresses[0];
    let strangers: Vec<TcpStream> = (0..400)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for (number, mut stranger) in strangers.iter().enumerate() {
        let texts: [&[u8]; 3] = [b"\x16\x03\x01\x02\x00\x01", b"{\"do\":\"leave\"}\n", b""];
        let _ = stranger.write_all(texts[number % 3]);
    }
    // another name, and a key that nobody has named: the job does not begin
    let (_twin, answer) = launched(&home, "strangers", "true");
    assert_eq!(answer, [Event::Preflight(Finding::NameInUse)]);
    let mut foreign = ticket.clone();
    foreign.secret = tls::Identity::with_secret().unwrap().1;
    Agent::begin(&home).ask(&Request::Dial(Box::new(foreign)));
    std::thread::sleep(Duration::from_millis(500));
    let begun = folder(&home, "strangers").join("run.jsonl");
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "");
    assert_eq!(agent.ask(&Request::Dial(Box::new(ticket))), []);
    std::fs::write(home.join("go"), "").unwrap();
    let (records, messages, end) = agent.follow();
    assert!(
        records.contains(r#""type":"summary","ok":true"#),
        "{records}{messages}"
    );
    assert!(messages.contains("job strangers ended well"), "{messages}");
    assert!(!records.contains("s3cr3t"), "{records}");
    assert!(matches!(end, Event::LauncherEnded(ended) if ended.summary.is_some()));
    let log = std::fs::read_to_string(folder(&home, "strangers").join("worker-0.log")).unwrap();
    assert_eq!(log, "up\n");
    // the same for who comes later
    let mut later = Agent::begin(&home);
    later.send(&Request::Follow(on_host("strangers")));
    assert_eq!(later.follow().0, records);
    let unknown = Agent::begin(&home).ask(&Request::Follow(on_host("other")));
    assert_eq!(unknown, [Event::NoJob]);
}

#[test]
fn a_tool_that_goes_before_the_agents_have_connected_leaves_nothing() {
    let home = scratch("early");
    let (agent, answer) = launched(&home, "early", "exec sleep 1000");
    ticket(answer);
    let pid = std::fs::read_to_string(folder(&home, "early").join("launcher")).unwrap();
    agent.end();
    soon("the launcher is gone", || {
        !Path::new("/proc").join(pid.trim()).exists()
    });
    assert!(!folder(&home, "early").exists());
}
