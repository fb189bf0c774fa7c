//! Persistent graph servers on this host, which are a detached job. Their supervisor on each host
//! listens on an abstract Unix socket. It sends each client the settings that trainers must share
//! with the servers and, to clients that remain connected, the reason when the servers end. On the
//! first host, the directory of the job has `groups`, with a directory for each group of trainers,
//! and the reason of the servers' end.

#![expect(
    clippy::disallowed_methods,
    reason = "the user's own state, in directories of mode 0700"
)]

use crate::detached::folder::{JobFolder, make_private};
use host::readiness::readable;
use host::side_thread::SideThread;
use host::{netlink, procfs};
use job::Loss;
use launcher::run::records::first_failure;
use nix::sys::signal::SigSet;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use parking_lot::Mutex;
use record::{FirstFailure, Role, Summary};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Duration;
use wire::ending::{Ending, JobFailure};
use wire::job::JobOnHost;
use wire::servers::{Data, Find, ServersLiveness, ServersState, StartClaimed, TrainerGroup};
use wire::{Event, Failure, Text};

/// How long the supervisor of servers may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The most bytes that are read of an answer.
const MAX_ANSWER: u64 = 1 << 20;
/// How long an ending job waits for the report that its servers have ended, too.
const END_LIMIT: Duration = Duration::from_millis(200);
/// The first port for the rendezvous of a group; host-probe plans with lower ones.
const FIRST_PORT: u32 = 29_500;
/// The distance of the ports of two groups, so that groups that begin at the same moment choose
/// different ones.
const PORT_STEP: u32 = 100;
/// The last port for the rendezvous of a group.
const LAST_PORT: u32 = 32_000;

/// The settings that servers and their trainers must share, with the hash of its content in place
/// of each file, empty if it cannot be read.
pub fn facts(data: &Data) -> Data {
    let hash = |path: &Text| {
        let content = fs::read(Path::new(&data.folder.0).join(&path.0));
        let hash = content.map(|content| blake3::hash(&content).to_hex().to_string());
        Text::from(&*hash.unwrap_or_default())
    };
    Data {
        folder: Text::default(),
        ip_config: hash(&data.ip_config),
        part_config: hash(&data.part_config),
        ..data.clone()
    }
}

fn folder_of(servers: &JobOnHost) -> Result<JobFolder, Failure> {
    JobFolder::of(&servers.name, servers.address).ok_or_else(|| {
        Failure::new(
            "graph servers of that name have no directory there: HOME is not \
            set, or it is not a name of a job",
        )
    })
}

/// Reports whether servers for trainers with these settings run.
pub fn find(wanted: &Find) -> Result<Event, Failure> {
    let (life, theirs) = match ask(&wanted.servers) {
        Some((answer, _)) => {
            let life = match (answer.ending, answer.listens) {
                (Some(ending), _) => ServersLiveness::Dead(ending.failure.as_ref().map(of_server)),
                (None, true) => ServersLiveness::Alive,
                (None, false) => ServersLiveness::Starting,
            };
            (life, Some(answer.facts))
        }
        None => (life_by_folder(&folder_of(&wanted.servers)?), None),
    };
    let ours = theirs.as_ref().map(|_| facts(&wanted.data));
    Ok(Event::Servers(Box::new(ServersState {
        life,
        theirs: theirs.unwrap_or_default(),
        ours: ours.unwrap_or_default(),
    })))
}

/// The state by the directory of the first host, if no supervisor answers.
fn life_by_folder(folder: &JobFolder) -> ServersLiveness {
    let is_of_servers = |line: &String| line.contains("\"server_name\"");
    let processes = folder.processes().unwrap_or_default();
    match processes.first().is_some_and(is_of_servers) {
        false => ServersLiveness::None,
        true if folder.is_alive() => ServersLiveness::Starting,
        true => {
            let summary = folder.summary();
            let summary = summary.and_then(|line| serde_json::from_str::<Summary>(&line).ok());
            ServersLiveness::Dead(summary.and_then(|summary| summary.first_failure.map(Box::new)))
        }
    }
}

fn of_server(failure: &JobFailure) -> Box<FirstFailure> {
    Box::new(FirstFailure {
        role: failure.index.map(|_| Role::Server),
        ..first_failure(failure, None)
    })
}

/// The answer of the servers' supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SupervisorAnswer {
    facts: Data,
    /// Whether all servers of this host listen.
    listens: bool,
    /// Why they end, once that has begun.
    ending: Option<Ending>,
}

/// The name of the socket of servers.
fn address_of(servers: &JobOnHost) -> io::Result<SocketAddr> {
    let JobOnHost { name, address } = servers;
    SocketAddr::from_abstract_name(format!("dgl-tools/servers/{}/{address}/{name}", geteuid()))
}

/// Asks the supervisor of servers; `None` if this user has none.
fn ask(servers: &JobOnHost) -> Option<(SupervisorAnswer, BufReader<UnixStream>)> {
    let stream = UnixStream::connect_addr(&address_of(servers).ok()?).ok()?;
    let peer = getsockopt(&stream, PeerCredentials).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    let is_own = peer.uid() == geteuid().as_raw();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let read = (&mut stream).take(MAX_ANSWER).read_line(&mut line);
    read.ok().filter(|_| is_own)?;
    Some((serde_json::from_str(&line).ok()?, stream))
}

/// The socket of servers, in their supervisor.
pub struct ServedServers {
    answer: Arc<Mutex<SupervisorAnswer>>,
    /// The clients that remain connected.
    users: Arc<Mutex<Vec<UnixStream>>>,
    _thread: SideThread,
}

impl ServedServers {
    /// Begins to answer; `None` if that fails, because the servers can run without it.
    pub fn begin(served: &Find) -> Option<ServedServers> {
        let listener = UnixListener::bind_addr(&address_of(&served.servers).ok()?).ok()?;
        listener.set_nonblocking(true).ok()?;
        let answer = Arc::new(Mutex::new(SupervisorAnswer {
            facts: Data::default(),
            listens: false,
            ending: None,
        }));
        let users = Arc::<Mutex<Vec<UnixStream>>>::default();
        let (data, known, connected) = (served.data.clone(), answer.clone(), users.clone());
        let serve = move |stopped: &PipeReader| {
            // in a thread, so that a file system that hangs only blocks the clients
            let facts = facts(&data);
            known.lock().facts = facts;
            accept(&listener, &known, &connected, stopped);
        };
        Some(ServedServers {
            answer,
            users,
            _thread: SideThread::begin("servers", serve).ok()?,
        })
    }

    /// Notes that all servers of this host listen.
    pub fn listen(&self) {
        self.answer.lock().listens = true;
    }

    /// Notes why the servers end.
    pub fn end(&self, ending: &Ending) {
        let mut answer = self.answer.lock();
        if answer.ending.is_none() {
            answer.ending = Some(ending.clone());
            let line = line(&answer);
            for user in self.users.lock().iter_mut() {
                let _ = user.write_all(&line);
            }
        }
    }
}

fn accept(
    listener: &UnixListener,
    answer: &Mutex<SupervisorAnswer>,
    users: &Mutex<Vec<UnixStream>>,
    stopped: &PipeReader,
) {
    loop {
        if readable([stopped.as_fd(), listener.as_fd()], None)[0] {
            return;
        }
        let Ok((mut stream, _)) = listener.accept() else {
            continue;
        };
        // locked until the client is added, so that it does not miss the end
        let answer = answer.lock();
        let is_own =
            getsockopt(&stream, PeerCredentials).is_ok_and(|peer| peer.uid() == geteuid().as_raw());
        let is_ready = is_own && stream.set_nonblocking(true).is_ok();
        if is_ready && stream.write_all(&line(&answer)).is_ok() {
            let mut users = users.lock();
            users.retain(|user| !has_gone(user));
            users.push(stream);
        }
    }
}

fn line(answer: &SupervisorAnswer) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    line
}

fn has_gone(mut user: &UnixStream) -> bool {
    matches!(user.read(&mut [0; 16]), Ok(0))
}

/// Claims the right to start the servers for this launcher. Others wait as long as this agent
/// lives.
pub fn claim_start(servers: &JobOnHost) -> Result<Event, Failure> {
    let folder = folder_of(servers)?;
    let fault = |error: io::Error| Failure::new(format!("{}: {error}", folder.path().display()));
    if let Some(parent) = folder.path().parent() {
        make_private(parent).map_err(fault)?;
    }
    let claim = folder.starting();
    drop_dead_claim(&claim);
    let own_mark =
        mark(std::process::id()).ok_or_else(|| Failure::new("/proc does not show this process"))?;
    let alive = ask(servers).is_some() || folder.is_alive();
    let ours = !alive && symlink(own_mark, &claim).is_ok();
    Ok(Event::StartClaimed(StartClaimed { ours }))
}

/// The identity of a process: its number and its start time.
fn mark(pid: u32) -> Option<String> {
    Some(format!(
        "{pid}-{}",
        procfs::stat(pid.cast_signed())?.start_ticks
    ))
}

/// Removes the claim of an agent that has ended. If another agent has just done the same and
/// claimed the start, its claim is restored.
fn drop_dead_claim(claim: &Path) {
    let Ok(theirs) = fs::read_link(claim) else {
        return;
    };
    if is_alive(&theirs) {
        return;
    }
    let aside = PathBuf::from(format!("{}.{}", claim.display(), std::process::id()));
    if fs::rename(claim, &aside).is_ok() {
        let moved = fs::read_link(&aside).unwrap_or_default();
        let _ = fs::remove_file(&aside);
        if moved != theirs {
            let _ = symlink(moved, claim);
        }
    }
}

fn is_alive(claim: &Path) -> bool {
    let text = claim.to_string_lossy();
    text.split_once('-')
        .and_then(|(pid, _)| pid.parse().ok())
        .and_then(mark)
        .is_some_and(|mark| mark == text)
}

/// Assigns a new group of trainers a number, by creating the directory with that name, and a port
/// for torch's rendezvous.
pub fn take_group(servers: &JobOnHost) -> Result<Event, Failure> {
    let folder = folder_of(servers)?;
    let groups = folder.file("groups");
    let fault = |error: io::Error| {
        Failure::new(format!(
            "this group of trainers gets no number: {} cannot be written: {error}",
            folder.path().display()
        ))
    };
    make_private(&groups).map_err(fault)?;
    let mut number =
        u32::try_from(fs::read_dir(&groups).map_err(fault)?.count()).unwrap_or(u32::MAX);
    while let Err(error) = fs::create_dir(groups.join(number.to_string())) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(fault(error));
        }
        number = number.saturating_add(1);
    }
    let taken: Vec<u16> = netlink::listening_ports().into_values().collect();
    let port = free_port(number, &taken);
    Ok(Event::Group(TrainerGroup { number, port }))
}

/// A port on which no process listens; if there is none, the last one that was tried.
fn free_port(group: u32, taken: &[u16]) -> u16 {
    let first = FIRST_PORT + group % PORT_STEP;
    let mut ports = (first..=LAST_PORT)
        .step_by(PORT_STEP as usize)
        .filter_map(|port| u16::try_from(port).ok());
    let last = ports.clone().last().unwrap_or_default();
    ports.find(|port| !taken.contains(port)).unwrap_or(last)
}

/// The graph servers that a job uses. A thread waits for their end.
pub struct UsedServers(Receiver<Ending>);

impl UsedServers {
    /// Begins to use these servers, for a job on this host.
    pub fn new(servers: &JobOnHost, host: u32) -> Option<UsedServers> {
        let (sender, ended) = channel();
        let servers = servers.clone();
        let wait = move || {
            // another thread handles signals
            let _ = SigSet::all().thread_block();
            // without a report, the supervisor was lost
            let lost = || Ending::lost(host, Loss::SupervisorGone);
            let _ = sender.send(ending(&servers).unwrap_or_else(lost));
        };
        Builder::new().spawn(wait).ok()?;
        Some(UsedServers(ended))
    }

    /// Why they have ended or are about to end; `None` while they live.
    pub fn ending(&self) -> Option<Ending> {
        self.0.try_recv().ok()
    }

    /// The same, for a job that has ended, perhaps because of them.
    pub fn last_ending(&self) -> Option<Ending> {
        self.0.recv_timeout(END_LIMIT).ok()
    }
}

/// Waits for the end of servers; returns the reason, or `None` if it is not reported.
fn ending(servers: &JobOnHost) -> Option<Ending> {
    let (answer, mut stream) = ask(servers)?;
    if answer.ending.is_some() {
        return answer.ending;
    }
    stream.get_ref().set_read_timeout(None).ok()?;
    let mut line = String::new();
    (&mut stream).take(MAX_ANSWER).read_line(&mut line).ok()?;
    serde_json::from_str::<SupervisorAnswer>(&line).ok()?.ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compared_by_their_contents() {
        let scratch = std::env::temp_dir().join(format!("dgl-tools-facts-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        fs::write(scratch.join("ip.txt"), "10.0.0.1\n").unwrap();
        let data = Data {
            folder: scratch.as_path().into(),
            ip_config: "ip.txt".into(),
            part_config: "missing.json".into(),
            clients: "4".to_owned(),
            servers: "1".to_owned(),
            samplers: "0".to_owned(),
        };
        let before = facts(&data);
        assert_eq!((&*before.clients, &before.part_config), ("4", &"".into()));
        assert_eq!(facts(&data), before);
        fs::write(scratch.join("ip.txt"), "10.0.0.2\n").unwrap();
        assert_ne!(facts(&data), before);
        fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn users_of_servers_are_notified_of_their_end() {
        let servers = |name: &str| JobOnHost {
            name: format!("used-{name}-{}", std::process::id()),
            address: std::net::Ipv4Addr::LOCALHOST,
        };
        let reported = Ending {
            cause: Some(job::Cause::Process),
            failure: None,
        };
        for (name, ending) in [("reported", Some(&reported)), ("killed", None)] {
            let find = Find {
                servers: servers(name),
                data: Data::default(),
            };
            let served = ServedServers::begin(&find).unwrap();
            assert!(!ask(&find.servers).unwrap().0.listens);
            served.listen();
            let used = UsedServers::new(&find.servers, 3).unwrap();
            let is_connected = || !served.users.lock().is_empty();
            while !is_connected() || !ask(&find.servers).unwrap().0.listens {}
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(used.ending(), None);
            ending.iter().for_each(|ending| served.end(ending));
            // a supervisor that is killed closes its sockets
            served.users.lock().clear();
            let lost = Ending::lost(3, Loss::SupervisorGone);
            assert_eq!(&used.0.recv().unwrap(), ending.unwrap_or(&lost));
        }
        let none = UsedServers::new(&servers("none"), 3).unwrap();
        assert_eq!(none.0.recv(), Ok(Ending::lost(3, Loss::SupervisorGone)));
    }

    #[test]
    fn groups_that_begin_together_choose_different_ports() {
        let table = [
            (0, &[][..], 29_500),
            (1, &[][..], 29_501),
            (100, &[], 29_500),
            (0, &[29_500, 29_600], 29_700),
        ];
        for (group, taken, expected) in table {
            assert_eq!(free_port(group, taken), expected, "{group} {taken:?}");
        }
        let every_port: Vec<u16> = (29_500..=32_000).collect();
        assert_eq!(free_port(7, &every_port), 31_907);
    }
}
