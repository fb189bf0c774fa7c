//! Jobs that outlive their launcher, by hand: each host is an agent at an address of its own on
//! loopback, and this test is the launcher.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use job::{Cause, Ending, ExitStatus, Limit, Loss, Reason, Rules};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder, Message};
use wire::job::{Job, JobOnHost, Process};
use wire::keep::{ExpectPeer, Join, Member, Prepare, Prepared, Record};
use wire::preflight::Finding;
use wire::supervise::{End, Start};
use wire::{Event, Request};

/// A home of this test's own; the path is longer than that of a Unix socket may be.
fn scratch(name: &str) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{name}-in-a-home-whose-path-is-longer-than-the-path-of-any-unix-socket-may-ever-be"
    ));
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).unwrap();
    home
}

fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + host)
}

/// An agent as a launcher has it.
struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    decoder: Decoder,
}

impl Agent {
    fn begin(home: &Path) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host-agent"));
        let slow_disk = home.join("slow.so");
        if slow_disk.exists() {
            command.env("LD_PRELOAD", slow_disk);
        }
        command
            .env("HOME", home)
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Agent {
            child,
            stdin,
            stdout,
            decoder: Decoder::default(),
        }
    }

    fn send(&mut self, request: &Request) {
        self.stdin
            .as_mut()
            .unwrap()
            .write_all(&codec::encode(request, &[]))
            .unwrap();
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

    /// Events up to the first that is wanted.
    fn until<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> T {
        let mut seen = Vec::new();
        while let Some(Message { head, .. }) = self.next() {
            if let Some(found) = wanted(&head) {
                return found;
            }
            seen.push(head);
        }
        panic!("the agent has ended; it said {seen:?}");
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

    /// All that it says.
    fn rest(mut self) -> Received {
        let mut received = Received::default();
        while let Some(Message { head, body }) = self.next() {
            match head {
                Event::Past(past) => received.past.push(*past.what),
                Event::Output(_) => received.output += &String::from_utf8(body).unwrap(),
                event => received.events.push(event),
            }
        }
        self.child.wait().unwrap();
        received
    }
}

/// What followers hear.
#[derive(Debug, Default)]
struct Received {
    past: Vec<Event>,
    output: String,
    events: Vec<Event>,
}

impl Received {
    fn ending(&self) -> Option<&Ending> {
        self.past.iter().find_map(|event| {
            if let Event::Ending(ending) = event {
                Some(ending)
            } else {
                None
            }
        })
    }

    fn statuses(&self) -> Vec<ExitStatus> {
        self.past
            .iter()
            .filter_map(|event| {
                if let Event::Exited(exited) = event {
                    Some(exited.status)
                } else {
                    None
                }
            })
            .collect()
    }

    fn is_over(&self) -> bool {
        matches!(self.past.last(), Some(Event::Over(over)) if over.survivors == 0)
    }
}

/// How long a side may be silent.
const HOST_TIMEOUT: Duration = Duration::from_secs(4);

/// A job of one worker a host.
struct Launcher {
    name: String,
    home: PathBuf,
    agents: Vec<Agent>,
    prepared: Vec<Prepared>,
}

impl Launcher {
    /// All is ready to start. `command` is run with `$K`, the number of the host.
    fn prepared(home: &Path, name: &str, hosts: u32, command: &str, limits: &[Limit]) -> Launcher {
        let mut launcher = Launcher {
            name: name.to_owned(),
            home: home.to_owned(),
            agents: Vec::new(),
            prepared: Vec::new(),
        };
        for host in 0..hosts {
            let mut agent = Agent::begin(home);
            launcher.describe(&mut agent, host, hosts, command);
            let rules = Rules {
                limits: limits.to_vec(),
                grace: Duration::from_secs(2),
                ..Rules::default()
            };
            let answer = agent.ask(&Request::Prepare(Box::new(Prepare {
                leads: (host == 0).then_some(rules),
                serves: None,
            })));
            let [Event::Prepared(prepared)] = &answer[..] else {
                panic!("{answer:?}")
            };
            launcher.prepared.push(prepared.clone());
            launcher.agents.push(agent);
        }
        launcher
    }

    fn describe(&self, agent: &mut Agent, host: u32, hosts: u32, command: &str) {
        let (name, token) = (
            self.name.clone(),
            format!(
                "{:032x}",
                self.name
                    .bytes()
                    .fold(7u128, |sum, byte| sum * 257 + u128::from(byte))
            ),
        );
        let job = Job {
            name,
            token,
            host,
            address: address(host),
            hosts,
            grace_ms: 2000,
            host_timeout_ms: HOST_TIMEOUT.as_millis().try_into().unwrap(),
        };
        let command =
            wire::job::Command::Words(["sh", "-c", command].map(wire::Text::from).to_vec());
        let env = vec![("K".to_owned(), wire::Text::from(&*host.to_string()))];
        let process = Process {
            index: 0,
            role: job::Role::Worker,
            service: false,
            rank: host,
            command,
            setup: None,
            cwd: None,
            cpus: None,
            env,
            port: None,
        };
        let record = format!(r#"{{"id":{host},"role":"worker","rank":{host}}}"#);
        agent.send(&Request::Keep);
        for request in [
            Request::Job(job),
            Request::Process(process),
            Request::Record(Record { record }),
        ] {
            assert_eq!(agent.ask(&request), []);
        }
    }

    fn join(&mut self) {
        let leader = Join {
            host: 0,
            address: address(0),
            port: self.prepared[0].port.unwrap(),
            key: self.prepared[0].key.clone(),
        };
        for host in 1..self.agents.len() {
            let peer = ExpectPeer {
                host: u32::try_from(host).unwrap(),
                key: self.prepared[host].key.clone(),
                processes: vec![WORKER],
            };
            assert_eq!(self.agents[0].ask(&Request::ExpectPeer(peer)), []);
        }
        for agent in &mut self.agents[1..] {
            assert_eq!(agent.ask(&Request::Join(leader.clone())), []);
        }
    }

    fn start(&mut self) {
        for agent in &mut self.agents {
            agent.send(&Request::Start(Start::default()));
            agent.until(|event| matches!(event, Event::Kept(_)).then_some(()));
        }
    }

    fn started(home: &Path, name: &str, hosts: u32, command: &str, limits: &[Limit]) -> Launcher {
        let mut launcher = Launcher::prepared(home, name, hosts, command, limits);
        launcher.join();
        launcher.start();
        launcher
    }

    /// It has seen all processes start, and goes away.
    fn leave(&mut self) {
        for mut agent in self.agents.drain(..) {
            agent.until(|event| {
                matches!(event, Event::Past(past) if matches!(*past.what, Event::Started(_)))
                    .then_some(())
            });
            drop(agent.stdin.take());
            agent.child.wait().unwrap();
        }
    }

    fn follow(&self, host: u32) -> Agent {
        let mut agent = Agent::begin(&self.home);
        let job = JobOnHost {
            name: self.name.clone(),
            address: address(host),
        };
        let records = agent.ask(&Request::ListRecords(job.clone()));
        assert!(
            matches!(&records[..], [Event::Record(Record { record })]
                if record.contains(&format!(r#""rank":{host}"#))),
            "{records:?}"
        );
        agent.send(&Request::Follow(job));
        agent
    }

    /// What a follower hears from the beginning to the end.
    fn followed(&self, host: u32) -> Received {
        self.follow(host).rest()
    }

    fn folder(&self, host: u32) -> PathBuf {
        self.home
            .join(".local/state/dgl-tools")
            .join(&self.name)
            .join(address(host).to_string())
    }

    /// No keeper is left, soon.
    fn assert_gone(&self, hosts: u32) {
        for host in 0..hosts {
            let pid = fs::read_to_string(self.folder(host).join("guard")).unwrap();
            soon("the keeper is gone", || {
                !Path::new("/proc").join(pid.trim()).exists()
            });
        }
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

const WORKER: Member = Member {
    role: job::Role::Worker,
    service: false,
    awaited: false,
};

const WAITS: &str =
    "echo $K begins; until [ -e go ]; do sleep 0.05; done; echo $K ends; exit $(cat go)";

#[test]
fn a_job_goes_on_without_its_launcher_and_is_gone_back_to() {
    let home = scratch("goes-on");
    let mut launcher = Launcher::started(&home, "goes-on", 3, WAITS, &[]);
    launcher.leave();
    // who goes back to it may leave it again
    let mut watcher = launcher.follow(1);
    watcher.until(|event| matches!(event, Event::Output(_)).then_some(()));
    drop(watcher.stdin.take());
    watcher.rest();
    fs::write(home.join("go"), "0").unwrap();
    for host in 0..3 {
        for received in [launcher.followed(host), launcher.followed(host)] {
            assert_eq!(received.output, format!("{host} begins\n{host} ends\n"));
            assert_eq!(
                (received.statuses(), received.ending()),
                (vec![ExitStatus::Code(0)], Some(&Ending::default())),
                "{received:?}"
            );
            assert!(received.is_over(), "{received:?}");
        }
        assert_eq!(
            fs::read_to_string(launcher.folder(host).join(format!("worker-{host}.log"))).unwrap(),
            format!("{host} begins\n{host} ends\n")
        );
    }
    launcher.assert_gone(3);
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
    if std::env::var_os("DGL_TOOLS_TEST_FAST").is_some() {
        println!("skipped: takes seconds");
        return;
    }
    let home = scratch("hangs");
    fs::write(home.join("slow.c"), SLOW_DISK).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "slow.so", "slow.c", "-ldl"])
        .current_dir(&home)
        .status();
    assert!(compiled.unwrap().success());
    // more than may wait, so that the process waits too
    let command = "echo up; until [ -e hangs ]; do sleep 0.05; done
        head -c 20000000 /dev/zero | tr '\\0' x; until [ -e go ]; do sleep 0.05; done";
    let mut launcher = Launcher::started(&home, "hangs", 2, command, &[]);
    let mut watcher = launcher.follow(1);
    watcher.until(|event| matches!(event, Event::Output(_)).then_some(()));
    launcher.leave();
    fs::write(home.join("hangs"), "").unwrap();
    fs::write(home.join("go"), "").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < 3 * HOST_TIMEOUT {
        watcher.until(|event| matches!(event, Event::Alive).then_some(()));
    }
    fs::remove_file(home.join("hangs")).unwrap();
    for host in 0..2 {
        let received = launcher.followed(host);
        assert_eq!(
            (received.ending(), received.is_over()),
            (Some(&Ending::default()), true)
        );
        assert_eq!(received.output.len(), "up\n".len() + 20_000_000);
    }
}

#[test]
fn a_launcher_that_stays_is_told_as_a_follower() {
    let home = scratch("stays");
    let mut launcher = Launcher::started(&home, "stays", 2, WAITS, &[]);
    fs::write(home.join("go"), "0").unwrap();
    for (host, agent) in launcher.agents.drain(..).enumerate() {
        let received = agent.rest();
        assert_eq!(
            (received.output.as_str(), received.is_over()),
            (&*format!("{host} begins\n{host} ends\n"), true),
            "{received:?}"
        );
    }
    launcher.assert_gone(2);
}

#[test]
fn a_process_that_fails_ends_the_job_on_all_hosts() {
    let home = scratch("fails");
    let mut launcher = Launcher::started(
        &home,
        "fails",
        2,
        "[ $K = 0 ] && exec sleep 1000; until [ -e go ]; do sleep 0.05; done; exit 137",
        &[],
    );
    launcher.leave();
    fs::write(home.join("go"), "").unwrap();
    for host in 0..2 {
        let received = launcher.followed(host);
        let ending = received.ending().unwrap();
        let failure = ending.failure.as_ref().unwrap();
        assert_eq!(
            (&ending.cause, failure.host, failure.index),
            (&Some(Cause::Process), 1, Some(0))
        );
        assert_eq!(failure.reason, Reason::Ended(ExitStatus::Code(137).into()));
        assert!(received.is_over(), "{received:?}");
    }
    launcher.assert_gone(2);
}

#[test]
fn a_limit_holds_without_a_launcher() {
    let home = scratch("limit");
    let limit = Limit::Job(Duration::from_secs(2));
    let mut launcher = Launcher::started(&home, "limit", 2, "exec sleep 1000", &[limit]);
    launcher.leave();
    for host in 0..2 {
        let received = launcher.followed(host);
        assert_eq!(received.ending().unwrap().cause, Some(Cause::Time(limit)));
        assert!(received.is_over(), "{received:?}");
    }
}

#[test]
fn a_keeper_that_is_killed_ends_the_job_wherever_it_is() {
    for killed in [0, 1] {
        let name = format!("killed-{killed}");
        let home = scratch(&name);
        let mut launcher = Launcher::started(&home, &name, 2, "exec sleep 1000", &[]);
        launcher.leave();
        let pid = fs::read_to_string(launcher.folder(killed).join("guard")).unwrap();
        assert!(
            Command::new("kill")
                .args(["-KILL", pid.trim()])
                .status()
                .unwrap()
                .success()
        );
        let gone = launcher.followed(killed);
        assert!(
            gone.events.contains(&Event::KeeperGone) && gone.ending().is_none(),
            "{gone:?}"
        );
        let other = launcher.followed(1 - killed);
        assert_eq!(
            other.ending(),
            Some(&Ending::lost(killed, Loss::KeeperGone)),
            "{other:?}"
        );
        assert!(other.is_over());
        launcher.assert_gone(2);
        for received in [&gone, &other] {
            let pid = received
                .past
                .iter()
                .find_map(|event| {
                    if let Event::Started(started) = event {
                        Some(started.pid)
                    } else {
                        None
                    }
                })
                .unwrap();
            soon("the process is gone", || {
                !Path::new(&format!("/proc/{pid}")).exists()
            });
        }
    }
}

#[test]
fn a_follower_ends_the_job_and_the_second_time_at_once() {
    let home = scratch("ended");
    let mut launcher = Launcher::started(
        &home,
        "ended",
        2,
        "trap '' TERM; echo up; while :; do sleep 0.05; done",
        &[],
    );
    launcher.leave();
    let mut follower = launcher.follow(1);
    follower.until(|event| matches!(event, Event::Output(_)).then_some(()));
    follower.send(&Request::End(End {
        grace_ms: 100_000,
        stacks: false,
        ending: Ending::default(),
    }));
    follower.until(|event| {
        matches!(event, Event::Past(past) if matches!(*past.what, Event::Ending(_))).then_some(())
    });
    follower.send(&Request::Kill);
    for host in 0..2 {
        let received = launcher.followed(host);
        assert_eq!(
            received.ending().unwrap(),
            &Ending {
                cause: Some(Cause::Signal(15)),
                failure: None
            }
        );
        assert_eq!(
            (received.statuses(), received.is_over()),
            (vec![ExitStatus::Signal(9)], true)
        );
    }
}

#[test]
fn what_dgl_reap_ends_is_told_as_that() {
    let home = scratch("reaped");
    let mut launcher = Launcher::started(&home, "reaped", 2, "echo up; exec sleep 1000", &[]);
    launcher.leave();
    (0..2).for_each(|host| {
        launcher
            .follow(host)
            .until(|event| matches!(event, Event::Output(_)).then_some(()));
    });
    let reaped = Agent::begin(&home).ask(&Request::EndJobs(wire::reap::End {
        job: Some("reaped".to_owned()),
        grace_ms: 2000,
    }));
    assert!(
        matches!(&reaped[..], [Event::Reaped(reaped)] if reaped.ok),
        "{reaped:?}"
    );
    for host in 0..2 {
        let received = launcher.followed(host);
        let failure = received.ending().unwrap().failure.clone().unwrap();
        let Reason::Ended(exit) = failure.reason else {
            panic!("{failure:?}")
        };
        assert_eq!((exit.status, exit.reaped), (ExitStatus::Signal(15), true));
    }
}

#[test]
fn one_name_one_job() {
    let home = scratch("name");
    let mut launcher = Launcher::started(&home, "name", 1, WAITS, &[]);
    launcher.leave();
    let twin = Launcher {
        name: "name".to_owned(),
        home: home.clone(),
        agents: Vec::new(),
        prepared: Vec::new(),
    };
    let mut agent = Agent::begin(&home);
    twin.describe(&mut agent, 0, 1, "true");
    let answer = agent.ask(&Request::Prepare(Box::default()));
    assert_eq!(answer, [Event::Preflight(Finding::NameInUse)]);
    fs::write(home.join("go"), "0").unwrap();
    assert!(launcher.followed(0).is_over());
    let unknown = JobOnHost {
        name: "other".into(),
        address: address(0),
    };
    let unknown = Agent::begin(&home).ask(&Request::Follow(unknown));
    assert_eq!(unknown, [Event::NoJob]);
}

#[test]
fn strangers_at_the_leaders_port_change_nothing() {
    let home = scratch("strangers");
    let mut launcher = Launcher::prepared(&home, "strangers", 2, WAITS, &[]);
    let address = (address(0), launcher.prepared[0].port.unwrap());
    let strangers: Vec<TcpStream> = (0..400)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for (number, mut stranger) in strangers.iter().enumerate() {
        let text: &[u8] = [
            b"join 1 \xc3\xa9 t\n",
            &b"\x16\x03\x01\x02\x00\x01"[..],
            b"{\"tell\":\"joined\"}\n",
            b"",
        ][number % 4];
        let _ = stranger.write_all(text);
    }
    launcher.join();
    launcher.start();
    launcher.leave();
    // once all are there nobody listens
    assert!(TcpStream::connect(address).is_err());
    fs::write(home.join("go"), "0").unwrap();
    for host in 0..2 {
        let received = launcher.followed(host);
        assert_eq!(received.ending(), Some(&Ending::default()), "{received:?}");
    }
}

#[test]
fn a_keeper_that_is_not_the_one_expected_is_not_joined() {
    let home = scratch("impostor");
    let mut launcher = Launcher::prepared(&home, "impostor", 2, "exec sleep 1000", &[]);
    // the launcher was told another key of the leader than it has
    launcher.prepared[0].key = launcher.prepared[1].key.clone();
    launcher.join();
    launcher.start();
    for host in 0..2 {
        let received = launcher.followed(host);
        assert_eq!(
            received.ending().unwrap().cause,
            Some(Cause::Host),
            "{received:?}"
        );
        assert!(
            received.is_over()
                && !received
                    .past
                    .iter()
                    .any(|event| matches!(event, Event::Started(_))),
            "{received:?}"
        );
    }
}

#[test]
fn a_launcher_that_goes_before_the_start_leaves_nothing() {
    let home = scratch("early");
    let mut launcher = Launcher::prepared(&home, "early", 2, "exec sleep 1000", &[]);
    launcher.join();
    launcher.agents.drain(..).for_each(|mut agent| {
        drop(agent.stdin.take());
        agent.rest();
    });
    launcher.assert_gone(2);
}

#[test]
fn a_host_that_does_not_join_is_told() {
    let home = scratch("alone");
    let mut launcher = Launcher::prepared(&home, "alone", 2, "exec sleep 1000", &[]);
    let agent = &mut launcher.agents[0];
    agent.send(&Request::ExpectPeer(ExpectPeer {
        host: 1,
        key: launcher.prepared[1].key.clone(),
        processes: vec![WORKER],
    }));
    agent.send(&Request::Start(Start::default()));
    let received = launcher.followed(0);
    assert_eq!(
        received.ending(),
        Some(&Ending::lost(
            0,
            Loss::NotJoined {
                joined: 1,
                hosts: 2
            }
        )),
        "{received:?}"
    );
}

#[test]
fn a_follower_of_many_processes_reads_all_logs_or_says_that_it_cannot() {
    let home = scratch("many");
    let folder = home.join("job");
    fs::create_dir(&folder).unwrap();
    let mut records = String::new();
    for rank in 0..100 {
        records += &format!("{{\"role\":\"worker\",\"rank\":{rank}}}\n");
        fs::write(folder.join(format!("worker-{rank}.log")), "a line\n").unwrap();
    }
    fs::write(folder.join("processes"), records).unwrap();
    let follow = |limits: &str| {
        let script = format!("ulimit {limits}; exec \"$0\" follow job");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_host-agent")]);
        let mut child = command
            .current_dir(&home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let _stdin = child.stdin.take();
        let mut told = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        child.wait().unwrap();
        told
    };
    let told = follow("-S -n 40");
    assert_eq!(told.matches("a line\n").count(), 100, "{told}");
    let told = follow("-n 40");
    assert!(told.contains(".log: Too many open files"), "{told}");
}
