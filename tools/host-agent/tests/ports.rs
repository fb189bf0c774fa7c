//! The ports that host-agent opens for a tool and for other hosts, as the tool uses them, as
//! strangers find them who know no key, and as others find them who know one and want more than is
//! theirs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tls::{Identity, PublicKey, TlsConnection};
use wire::codec::{self, Decoder};
use wire::files::{Block, FileAttributes, FileEvent, FileRequest, FileStep, Listen, Open, Receive};
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
            key: tool.public_key(),
            hosts: Vec::new(),
        })));
        let (port, key) = self.until(|event| match event {
            Event::File(FileEvent::Listening { port, key, .. }) => Some((*port, (*key)?)),
            _ => None,
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        (address, key)
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
    let give = Request::File(FileRequest::Give {
        base: folder.into(),
    });
    agent.send(&give);
    let tool = Identity::new().unwrap();
    let (address, key) = agent.listen(&tool);
    let _strangers = strangers(address, 300);
    let mut links = Vec::new();
    for _ in 0..100 {
        let opened = TlsConnection::open(address, &tool, key, LIMIT, true);
        let (mut link, received) = opened.expect("the tool is admitted");
        assert_eq!(received, codec::encode(&Event::Alive, &[]));
        link.send(&codec::encode(&give, &[])).unwrap();
        links.push(link);
    }
    // all are answered or closed
    let is_served = |link: &mut TlsConnection| {
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
    let served = links.iter_mut().map(is_served).filter(|is| *is).count();
    assert_eq!(served, 64);
}

/// Requests that bring the first of two megabytes, and ask whether it has come.
fn half_a_file(dst: &Path, key: &str) -> Vec<u8> {
    let begin = FileStep::Open(Open {
        file: FileAttributes {
            id: 1,
            dst: dst.into(),
            bytes: 2 << 20,
            mode: 0o644,
            mtime: None,
        },
        partial_key: key.to_owned(),
        keep: Vec::new(),
        keep_sum: None,
        chained: None,
    });
    let content = vec![7; 1 << 20];
    let block = FileStep::Write(Block {
        id: 1,
        offset: 0,
        content: transfer::content::plain(&content),
    });
    let sync = FileRequest::Sync { number: 1 };
    let requests = [
        (FileRequest::Step(begin), &[][..]),
        (FileRequest::Step(block), &content),
        (sync, &[]),
    ];
    let encode = |(request, body)| codec::encode(&Request::File(request), body);
    requests.into_iter().flat_map(encode).collect()
}

#[test]
fn what_came_beside_the_login_is_there_for_the_login_when_that_has_ended() {
    let mut agent = Agent::begin();
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("direct");
    let _ = std::fs::remove_dir_all(&base);
    let receive = |direct| {
        Request::File(FileRequest::Receive(Receive {
            base: (&*base).into(),
            run: "run".to_owned(),
            host: 0,
            dry: false,
            fsync: false,
            direct,
        }))
    };
    agent.send(&receive(false));
    let tool = Identity::new().unwrap();
    let (address, agent_key) = agent.listen(&tool);
    let (mut link, _) = TlsConnection::open(address, &tool, agent_key, LIMIT, true).unwrap();
    let key = format!("{:016x}.{:016x}", 1, 2);
    let mut requests = codec::encode(&receive(true), &[]);
    requests.extend(half_a_file(&base.join("file"), &key));
    link.send(&requests).unwrap();
    let until = Instant::now() + LIMIT;
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("synced") && Instant::now() < until {
        link.flush().unwrap();
        link.receive(&mut received).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let bytes = 2 << 20;
    let claim = FileRequest::Claim {
        partial_key: key,
        bytes,
        dst: None,
    };
    agent.send(&Request::File(FileRequest::EndDirect));
    agent.send(&Request::File(claim));
    let parts = agent.until(|event| match event {
        Event::File(FileEvent::Partial { parts, .. }) => Some(parts.clone()),
        _ => None,
    });
    assert_eq!(parts, [(0, 1 << 20)]);
    // the connection has ended, and the port is still open
    while link.receive(&mut received).unwrap_or(false) {
        assert!(Instant::now() < until, "it is still open");
    }
    TlsConnection::open(address, &tool, agent_key, LIMIT, true).unwrap();
}
