//! Persistent graph servers on this host. On its socket ([`crate::socket`]), their supervisor
//! answers with the settings that trainers must share, with the number of a new group of trainers
//! and, to clients that wait for it, with the end of the servers.

use agent::supervisors::{self, NoAnswer, SupervisorSocket};
use host::abstract_socket::has_hung_up;
use host::netlink;
use host::side_thread;
use job::{Ending, Loss};
use parking_lot::Mutex;
use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use wire::codec;
use wire::servers::{
    Data, Find, ServersEnded, ServersLiveness, ServersOnHost, ServersState, TrainerGroup,
};
use wire::{Event, Failure, Request, Text};

/// How long the supervisor of servers may take to answer. The servers' threads may starve it, or it
/// may be stopped for a moment; as long as it lives, the answer comes on the same connection.
/// Shorter than the launcher waits for this agent.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Ten years, longer than any job.
const UNTIL_END: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long an ending job waits for the report that its servers have ended, too.
const END_LIMIT: Duration = Duration::from_millis(200);
/// The most groups of trainers that use servers at once. Each has a client that waits for the end
/// of the servers, which keeps a descriptor of the supervisor.
const MAX_GROUPS: usize = 256;
/// The first port for the rendezvous of a group; host-probe plans with lower ones.
const FIRST_PORT: u32 = 29_500;
/// The distance between the ports of two groups, so that groups that begin at the same moment
/// choose different ones.
const PORT_STEP: u32 = 100;
const LAST_PORT: u32 = 32_000;

/// The settings that servers and trainers must share, with each file replaced by the hash of its
/// content, empty if it cannot be read.
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

pub fn find(wanted: &Find) -> Result<Event, Failure> {
    let request = Request::FindServers(Box::new(wanted.clone()));
    let state = match ask(&wanted.servers, &request)? {
        Some(Event::Servers(state)) => ServersState {
            ours: facts(&wanted.data),
            ..*state
        },
        _ => ServersState::default(),
    };
    Ok(Event::Servers(Box::new(state)))
}

pub fn take_group(servers: &ServersOnHost) -> Result<Event, Failure> {
    let answer = ask(servers, &Request::TakeGroup(servers.clone()))?;
    answer.ok_or_else(|| Failure::new(format!("its graph servers {} have ended", servers.name)))
}

/// Servers that are ending and their successors may each have one.
fn sockets_of(servers: &ServersOnHost) -> impl Iterator<Item = SupervisorSocket> {
    let ServersOnHost { name, address } = servers.clone();
    let sockets = supervisors::all().into_iter();
    sockets.filter(move |socket| socket.job == name && socket.address == address)
}

/// `None` if this user has no supervisor of them.
fn ask(servers: &ServersOnHost, request: &Request) -> Result<Option<Event>, Failure> {
    for socket in sockets_of(servers) {
        match socket.ask(request, ANSWER_LIMIT) {
            Ok(events) => return Ok(events.into_iter().next()),
            Err(NoAnswer::Gone) => {}
            Err(NoAnswer::Failed(failure)) => return Err(failure),
            Err(NoAnswer::Late) => {
                return Err(Failure::new(format!(
                    "the supervisor of its graph servers, process {}, has not answered within {} s",
                    socket.pid,
                    ANSWER_LIMIT.as_secs()
                )));
            }
        }
    }
    Ok(None)
}

#[derive(Debug, Default)]
pub struct ServedServers {
    state: Mutex<Option<ServedState>>,
}

#[derive(Debug, Default)]
struct ServedState {
    /// `None` until the files were read.
    facts: Option<Data>,
    listens: bool,
    /// Why they end, once that has begun.
    ended: Option<ServersEnded>,
    groups: u32,
    waiting: Vec<UnixStream>,
}

impl ServedServers {
    pub fn begin(served: Option<&Find>) -> Arc<ServedServers> {
        let servers = Arc::new(ServedServers {
            state: Mutex::new(served.map(|_| ServedState::default())),
        });
        if let Some(data) = served.map(|served| served.data.clone()) {
            let servers = Arc::clone(&servers);
            // in a thread, so that a file system that hangs only delays trainers
            let read = move || {
                let facts = facts(&data);
                servers.with(|state| state.facts = Some(facts));
            };
            let _ = side_thread::spawn("server-facts", read);
        }
        servers
    }

    fn with<T>(&self, change: impl FnOnce(&mut ServedState) -> T) -> Option<T> {
        self.state.lock().as_mut().map(change)
    }

    pub fn listen(&self) {
        self.with(|state| state.listens = true);
    }

    /// Also tells the clients that wait for the end.
    pub fn end(&self, ending: &Ending) {
        let ended = ServersEnded {
            failure: ending.failure.clone(),
        };
        self.with(|state| {
            if state.ended.is_none() {
                let report = report(&ended);
                for mut client in state.waiting.drain(..) {
                    let _ = client.write_all(&report);
                }
                state.ended = Some(ended);
            }
        });
    }

    pub fn answer(&self, request: &Request) -> Result<Event, Failure> {
        let answered = self.with(|state| match request {
            Request::TakeGroup(_) => state.take_group().map(Event::Group),
            _ => Ok(Event::Servers(Box::new(state.found()))),
        });
        answered.ok_or_else(|| Failure::new("no persistent graph servers run in this job"))?
    }

    /// `None` if no group has used them.
    pub fn groups(&self) -> Option<u32> {
        let groups = self.with(|state| state.groups);
        groups.filter(|groups| *groups > 0)
    }

    pub fn await_end(&self, mut client: UnixStream) -> io::Result<()> {
        // a client that does not read must not delay the end of the servers
        client.set_nonblocking(true)?;
        let added = self.with(|state| {
            if let Some(ended) = &state.ended {
                return client.write_all(&report(ended));
            }
            // groups with other first hosts may have come since this one got its number
            if let Err(refused) = state.make_room() {
                return client.write_all(&codec::encode(&Event::Failed(refused), &[]));
            }
            state.waiting.push(client);
            Ok(())
        });
        added.unwrap_or(Ok(()))
    }
}

impl ServedState {
    fn found(&self) -> ServersState {
        let life = match (&self.ended, &self.facts) {
            (Some(_), _) => ServersLiveness::Ending,
            (None, Some(_)) if self.listens => ServersLiveness::Alive,
            (None, _) => ServersLiveness::Starting,
        };
        ServersState {
            life,
            theirs: self.facts.clone().unwrap_or_default(),
            ours: Data::default(),
            groups: self.groups,
        }
    }

    /// Forgets the groups that have ended.
    fn make_room(&mut self) -> Result<(), Failure> {
        self.waiting.retain(|client| !has_hung_up(client));
        if self.waiting.len() < MAX_GROUPS {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{MAX_GROUPS} groups of trainers use its graph servers, which serve no more at once"
        )))
    }

    /// Also chooses a port for torch's rendezvous.
    fn take_group(&mut self) -> Result<TrainerGroup, Failure> {
        self.make_room()?;
        let number = self.groups;
        self.groups += 1;
        let taken: Vec<u16> = netlink::listening_ports().into_values().collect();
        let port = free_port(number, &taken);
        Ok(TrainerGroup { number, port })
    }
}

fn report(ended: &ServersEnded) -> Vec<u8> {
    let mut answer = codec::encode(&Event::ServersEnded(ended.clone()), &[]);
    answer.extend(codec::encode(&Event::Done, &[]));
    answer
}

/// A port on which no process listens, or else the last one tried.
fn free_port(group: u32, taken: &[u16]) -> u16 {
    let first = FIRST_PORT + group % PORT_STEP;
    let mut ports = (first..=LAST_PORT)
        .step_by(PORT_STEP as usize)
        .filter_map(|port| u16::try_from(port).ok());
    let last = ports.clone().last().unwrap_or_default();
    ports.find(|port| !taken.contains(port)).unwrap_or(last)
}

/// A thread waits for their end.
pub struct UsedServers(Receiver<ServersEnded>);

impl UsedServers {
    pub fn new(servers: &ServersOnHost, host: u32) -> Option<UsedServers> {
        let (sender, ended) = channel();
        let servers = servers.clone();
        let wait = move || match await_end(&servers) {
            Ok(Some(ended)) => drop(sender.send(ended)),
            // without a report, the supervisor was lost
            Ok(None) => drop(sender.send(ServersEnded {
                failure: Ending::lost(host, Loss::SupervisorGone).failure,
            })),
            // the supervisor lives, but does not report its end to this job
            Err(_refused) => {}
        };
        side_thread::spawn("server-end", wait).ok()?;
        Some(UsedServers(ended))
    }

    /// Why they have ended or are about to; `None` while they live.
    pub fn ending(&self) -> Option<ServersEnded> {
        self.0.try_recv().ok()
    }

    /// The same, for a job that has ended, perhaps because of them.
    pub fn last_ending(&self) -> Option<ServersEnded> {
        self.0.recv_timeout(END_LIMIT).ok()
    }
}

/// Returns `None` if the supervisor is gone without a report.
fn await_end(servers: &ServersOnHost) -> Result<Option<ServersEnded>, Failure> {
    for socket in sockets_of(servers) {
        match socket.ask(&Request::AwaitServersEnd, UNTIL_END) {
            Ok(events) => {
                if let Some(Event::ServersEnded(ended)) = events.into_iter().next() {
                    return Ok(Some(ended));
                }
            }
            Err(NoAnswer::Failed(refused)) => return Err(refused),
            Err(NoAnswer::Gone | NoAnswer::Late) => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{JobAnswers, JobSocket};

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

    fn serve(name: &str) -> (Find, Arc<ServedServers>, JobSocket) {
        let job = crate::tested_job(&format!("used-{name}-{}", std::process::id()));
        let find = Find {
            servers: ServersOnHost {
                name: job.name.clone(),
                address: job.address,
            },
            data: Data::default(),
        };
        let served = ServedServers::begin(Some(&find));
        let (answers, ..) = JobAnswers::new(&job, Arc::clone(&served)).unwrap();
        let socket = JobSocket::open(&Arc::new(answers)).unwrap();
        (find, served, socket)
    }

    #[test]
    fn users_of_servers_are_notified_of_their_end() {
        let reported = Ending {
            cause: Some(job::Cause::Process),
            failure: Ending::lost(1, Loss::Silent(Duration::from_secs(1))).failure,
        };
        let lost = Ending::lost(3, Loss::SupervisorGone);
        for (name, is_reported) in [("reported", true), ("killed", false)] {
            let (find, served, socket) = serve(name);
            let life = || match super::find(&find).unwrap() {
                Event::Servers(state) => state.life,
                other => panic!("{other:?}"),
            };
            assert_eq!(life(), ServersLiveness::Starting);
            served.listen();
            while life() != ServersLiveness::Alive {}
            let used = UsedServers::new(&find.servers, 3).unwrap();
            while served.with(|state| state.waiting.is_empty()).unwrap() {}
            assert_eq!(used.ending(), None);
            let numbers = [0, 1].map(|_| match take_group(&find.servers).unwrap() {
                Event::Group(group) => group.number,
                other => panic!("{other:?}"),
            });
            assert_eq!((numbers, served.groups()), ([0, 1], Some(2)));
            if is_reported {
                served.end(&reported);
                assert_eq!(life(), ServersLiveness::Ending);
            } else {
                // a supervisor that is killed closes its sockets
                drop(socket);
                served.with(|state| state.waiting.clear());
            }
            let expected = if is_reported { &reported } else { &lost };
            assert_eq!(used.0.recv().unwrap().failure, expected.failure);
        }
        let none = ServersOnHost {
            name: "none".to_owned(),
            address: std::net::Ipv4Addr::LOCALHOST,
        };
        let used = UsedServers::new(&none, 3).unwrap();
        assert_eq!(used.0.recv().unwrap().failure, lost.failure);
    }

    /// A job of trainers whose wait was refused would call the supervisor gone, and end.
    #[test]
    fn more_groups_than_servers_can_notify_are_refused_with_the_reason() {
        let (find, served, _socket) = serve("full");
        let pairs = (0..MAX_GROUPS).map(|_| UnixStream::pair().unwrap());
        let (waiting, mut groups): (Vec<_>, Vec<_>) = pairs.unzip();
        served.with(|state| state.waiting = waiting);
        let why = take_group(&find.servers).unwrap_err().problem;
        assert!(why.starts_with("256 groups of trainers use"), "{why}");
        let used = UsedServers::new(&find.servers, 3).unwrap();
        assert!(used.0.recv().is_err(), "no end was reported");
        groups.pop();
        assert!(matches!(take_group(&find.servers), Ok(Event::Group(_))));
        let used = UsedServers::new(&find.servers, 3).unwrap();
        while served.with(|state| state.waiting.len()).unwrap() < MAX_GROUPS {}
        assert_eq!(used.ending(), None);
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
