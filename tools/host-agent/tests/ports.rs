//! The ports that host-agent opens for a tool and for other hosts, as the tool uses them, as
//! strangers find them who know no key, and as others find them who know one and want more than is
//! theirs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tls::{Identity, Link, PublicKey};
use wire::codec::{self, Decoder};
use wire::files::{Begin, Block, FileEvent, FileRequest, Give, Listen, Receive, Small};
use wire::link::{Expect, Send};
use wire::{Event, Request};

const LIMIT: Duration = Duration::from_secs(20);

/// An agent as a tool has it.
struct Agent {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    decoder: Decoder,
}

impl Agent {
    fn begin() -> Agent {
        let mut child = Command::new(env!("CARGO_BIN_EXE_host-agent"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Agent {
            child,
            stdin,
            stdout,
            decoder: Decoder::default(),
        }
    }

    fn send(&mut self, request: &Request) {
        self.stdin.write_all(&codec::encode(request, &[])).unwrap();
    }

    /// Has it listen for a tool; returns where, and the key of the agent.
    fn listen(&mut self, tool: &Identity) -> (SocketAddr, PublicKey) {
        self.send(&Request::File(FileRequest::Listen(Listen {
            address: Ipv4Addr::LOCALHOST,
            port: 0,
            key: tool.public_key().to_string(),
            hosts: Vec::new(),
        })));
        let (port, key) = self.until(|event| match event {
            Event::File(FileEvent::Listening { port, key, .. }) => Some((*port, key.clone())),
            _ => None,
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        (address, PublicKey::try_from(key).unwrap())
    }

    /// The first event that is wanted.
    fn until<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> T {
        let mut buffer = [0; 4096];
        loop {
            while let Some(message) = self.decoder.next_message::<Event>().unwrap() {
                if let Some(found) = wanted(&message.head) {
                    return found;
                }
            }
            let count = self.stdout.read(&mut buffer).unwrap();
            assert!(count > 0, "the agent has ended");
            self.decoder.push(&buffer[..count]);
        }
    }

    /// The most memory that it has taken so far, in MB.
    fn peak_mb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kb = line.unwrap().split_whitespace().nth(1).unwrap();
        kb.parse::<u64>().unwrap() >> 10
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connections that say nothing, or a byte that means nothing.
fn strangers(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |number| {
        let mut stranger = TcpStream::connect(address).unwrap();
        if number % 2 == 0 {
            stranger.write_all(b"\x16").unwrap();
        }
        stranger
    };
    (0..count).map(connect).collect()
}

#[test]
fn strangers_keep_nobody_from_direct_connections_and_a_key_has_so_many() {
    let mut agent = Agent::begin();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let give = Request::File(FileRequest::Give(Give {
        base: folder.into(),
    }));
    agent.send(&give);
    let tool = Identity::new().unwrap();
    let (address, key) = agent.listen(&tool);
    let _strangers = strangers(address, 300);
    let mut lanes = Vec::new();
    for _ in 0..100 {
        let opened = Link::open(address, &tool, key, LIMIT, true);
        let (mut link, received) = opened.expect("the tool is admitted");
        assert_eq!(received, codec::encode(&Event::Alive, &[]));
        link.send(&codec::encode(&give, &[])).unwrap();
        lanes.push(link);
    }
    // all are answered or closed
    let is_served = |link: &mut Link| {
        let until = Instant::now() + LIMIT;
        let mut received = Vec::new();
        while received.is_empty() && Instant::now() < until {
            let _ = link.flush();
            if !link.receive(&mut received).unwrap_or(false) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        !received.is_empty()
    };
    let served = lanes.iter_mut().map(is_served).filter(|is| *is).count();
    assert_eq!(served, 64);
}

/// Requests that bring the first of two megabytes, and ask whether it has come.
fn half_a_file(dst: &Path, key: &str) -> Vec<u8> {
    let begin = FileRequest::Begin(Begin {
        file: Small {
            id: 1,
            dst: dst.into(),
            bytes: 2 << 20,
            mode: 0o644,
            mtime: None,
        },
        key: key.to_owned(),
        keep: Vec::new(),
        earlier: false,
        scattered: false,
        chained: None,
        sparse: false,
    });
    let content = vec![7; 1 << 20];
    let block = FileRequest::Block(Block {
        id: 1,
        at: 0,
        content: transfer::content::plain(&content),
        signature: None,
    });
    let sync = FileRequest::Sync { number: 1 };
    let requests = [(begin, &[][..]), (block, &content), (sync, &[])];
    let encode = |(request, body)| codec::encode(&Request::File(request), body);
    requests.into_iter().flat_map(encode).collect()
}

#[test]
fn what_came_beside_the_login_is_there_for_the_login_when_lanes_have_ended() {
    let mut agent = Agent::begin();
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lanes");
    let _ = std::fs::remove_dir_all(&base);
    let receive = |lane| {
        Request::File(FileRequest::Receive(Receive {
            base: (&*base).into(),
            run: "run".to_owned(),
            host: 0,
            dry: false,
            fsync: false,
            lane,
        }))
    };
    agent.send(&receive(false));
    let tool = Identity::new().unwrap();
    let (address, agent_key) = agent.listen(&tool);
    let (mut lane, _) = Link::open(address, &tool, agent_key, LIMIT, true).unwrap();
    let key = format!("{:016x}.{:016x}", 1, 2);
    let mut requests = codec::encode(&receive(true), &[]);
    requests.extend(half_a_file(&base.join("file"), &key));
    lane.send(&requests).unwrap();
    let until = Instant::now() + LIMIT;
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("synced") && Instant::now() < until {
        lane.flush().unwrap();
        lane.receive(&mut received).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let bytes = 2 << 20;
    let claim = FileRequest::Claim {
        key,
        bytes,
        dst: None,
    };
    agent.send(&Request::File(FileRequest::EndLanes));
    agent.send(&Request::File(claim));
    let parts = agent.until(|event| match event {
        Event::File(FileEvent::Partial { parts, .. }) => Some(parts.clone()),
        _ => None,
    });
    assert_eq!(parts, [(0, 1 << 20)]);
    // the lane has ended, and the port is still open
    while lane.receive(&mut received).unwrap_or(false) {
        assert!(Instant::now() < until, "the lane is still open");
    }
    Link::open(address, &tool, agent_key, LIMIT, true).unwrap();
}

#[test]
fn strangers_keep_nobody_from_measuring_a_link() {
    let mut agent = Agent::begin();
    let key = "0123456789abcdef0123456789abcdef";
    agent.send(&Request::ExpectLink(Expect {
        address: Ipv4Addr::LOCALHOST,
        key: key.to_owned(),
        time_ms: 100,
    }));
    let port = agent.until(|event| match event {
        Event::LinkExpected(expected) => Some(expected.port),
        _ => None,
    });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let _strangers = strangers(address, 200);
    let mut wrong = TcpStream::connect(address).unwrap();
    wrong.write_all(&[b'x'; 64]).unwrap();
    let mut sender = TcpStream::connect(address).unwrap();
    sender.set_read_timeout(Some(LIMIT)).unwrap();
    sender.write_all(key.as_bytes()).unwrap();
    for _ in 0..21 {
        sender.write_all(&[0]).unwrap();
        sender.read_exact(&mut [0]).unwrap();
    }
    sender.write_all(&[0; 100_000]).unwrap();
    sender.shutdown(Shutdown::Write).unwrap();
    agent.send(&Request::TellLink);
    let received = agent.until(|event| match event {
        Event::LinkReceived(received) => Some(received.received_bytes),
        _ => None,
    });
    assert_eq!(received, 100_000);
}

/// It has the key, and answers a measurement with bytes without end.
#[test]
fn a_host_that_is_measured_sends_nothing_that_is_kept() {
    let mut agent = Agent::begin();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(to) = listener.local_addr().unwrap() else {
        panic!("an IPv4 address");
    };
    let key = "k".repeat(32);
    agent.send(&Request::SendLink(Send {
        from: Ipv4Addr::LOCALHOST,
        to,
        key: key.clone(),
        time_ms: 100,
        max_bytes: 1 << 20,
    }));
    let (mut measured, _) = listener.accept().unwrap();
    measured.read_exact(&mut vec![0; key.len()]).unwrap();
    for _ in 0..21 {
        measured.read_exact(&mut [0]).unwrap();
        measured.write_all(&[0]).unwrap();
    }
    std::io::copy(&mut measured, &mut std::io::sink()).unwrap();
    let flood = vec![0; 1 << 20];
    let sent = (0..400).take_while(|_| measured.write_all(&flood).is_ok());
    let sent = sent.count();
    drop(measured);
    let problem = agent.until(|event| match event {
        Event::Failed(failure) => Some(failure.problem.clone()),
        Event::LinkSent(_) => Some(String::new()),
        _ => None,
    });
    let peak = agent.peak_mb();
    assert!(peak < 100, "{peak} MB for {sent} MB");
    assert!(problem.contains("it sends more"), "{problem}");
}
