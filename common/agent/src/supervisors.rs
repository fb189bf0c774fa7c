//! Finds and asks the supervisors of this user's jobs on this host. Each listens on an abstract
//! Unix socket (socket.rs of common/agent-supervise), whose name has the job.

use host::job_processes::{JobProcess, job_processes};
use host::{abstract_socket, procfs};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixAddr, UnixCredentials, getsockopt};
use nix::unistd::{Uid, geteuid};
use record::{Role, is_job_name};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder};
use wire::job::Job;
use wire::{Event, Failure, Request};

/// The time for a supervisor to accept a connection, however long the answer may take.
const ACCEPTED: Duration = Duration::from_secs(5);
/// More than a tool accepts from a host.
const MAX_ANSWER: usize = 16 << 20;
const READ_AT_ONCE: usize = 64 << 10;
/// What an abstract name may have besides its first 0 (unix(7)).
const LONGEST_NAME: usize = 107;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SupervisorSocket {
    pub job: String,
    /// The address of the host, because several hosts of a rehearsal are one machine.
    pub address: Ipv4Addr,
    pub pid: i32,
    /// The abstract name of the socket.
    pub name: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// It has ended.
    Gone,
    /// It lives, but has not answered in time.
    Late,
    /// It cannot carry out the request.
    Failed(Failure),
}

impl SupervisorSocket {
    /// A name for this process to bind. With the process id, agents find it among the sockets of
    /// that process; with random digits, as many as there is room for, another user cannot bind it
    /// before.
    pub fn new(job: &Job) -> io::Result<SupervisorSocket> {
        let mut socket = SupervisorSocket {
            job: job.name.clone(),
            address: job.address,
            pid: std::process::id().cast_signed(),
            name: String::new(),
        };
        socket.name = socket.name_for(geteuid(), &tls::token()?);
        Ok(socket)
    }

    /// The address is in hex, because it would be longer with dots.
    fn name_for(&self, user: Uid, random: &str) -> String {
        let (job, address, pid) = (&self.job, self.address.to_bits(), self.pid);
        let mut name = format!("dgl-tools/{user}/{address:08x}/{job}/{pid}/{random}");
        name.truncate(LONGEST_NAME);
        name
    }

    fn parse(name: &str) -> Option<SupervisorSocket> {
        let rest = name.strip_prefix(&format!("dgl-tools/{}/", geteuid()))?;
        let parts: Vec<&str> = rest.split('/').collect();
        let [address, job, pid, _random] = parts[..] else {
            return None;
        };
        let socket = SupervisorSocket {
            job: job.to_owned(),
            address: Ipv4Addr::from_bits(u32::from_str_radix(address, 16).ok()?),
            pid: pid.parse().ok()?,
            name: name.to_owned(),
        };
        is_job_name(job).then_some(socket)
    }

    /// Waits for all events of the answer.
    pub fn ask(&self, request: &Request, limit: Duration) -> Result<Vec<Event>, NoAnswer> {
        self.begin(request, limit).map(|answer| answer.events)
    }

    fn begin(&self, request: &Request, limit: Duration) -> Result<SupervisorAnswer, NoAnswer> {
        let mut link = self.connect(Instant::now() + limit.min(ACCEPTED))?;
        let events = link.ask(request, limit)?;
        Ok(SupervisorAnswer { link, events })
    }

    /// Any user may have bound the name since, so the kernel is asked who is at the other end.
    fn connect(&self, until: Instant) -> Result<SupervisorLink, NoAnswer> {
        let connected = UnixAddr::new_abstract(self.name.as_bytes())
            .and_then(|address| abstract_socket::connect_until(&address, until));
        let stream = match connected {
            Ok(Some(stream)) => UnixStream::from(stream),
            Ok(None) => return Err(NoAnswer::Late),
            Err(_) => return Err(NoAnswer::Gone),
        };
        let is_supervisor =
            |peer: UnixCredentials| peer.uid() == geteuid().as_raw() && peer.pid() == self.pid;
        if !getsockopt(&stream, PeerCredentials).is_ok_and(is_supervisor) {
            return Err(NoAnswer::Gone);
        }
        Ok(SupervisorLink {
            stream,
            decoder: Decoder::default(),
        })
    }
}

/// The answer to the first request over a connection.
pub struct SupervisorAnswer {
    pub link: SupervisorLink,
    pub events: Vec<Event>,
}

/// It answers one request after another.
pub struct SupervisorLink {
    stream: UnixStream,
    decoder: Decoder,
}

impl SupervisorLink {
    pub fn ask(&mut self, request: &Request, limit: Duration) -> Result<Vec<Event>, NoAnswer> {
        let until = Instant::now() + limit;
        let sent = self.stream.write_all(&codec::encode(request, &[]));
        sent.map_err(|_| NoAnswer::Gone)?;
        let (mut events, mut buffer) = (Vec::new(), vec![0; READ_AT_ONCE]);
        let mut received = 0;
        while received < MAX_ANSWER {
            while let Ok(Some(message)) = self.decoder.next_message::<Event>() {
                match message.head {
                    Event::Done => return Ok(events),
                    Event::Failed(failure) => return Err(NoAnswer::Failed(failure)),
                    event => events.push(event),
                }
            }
            match abstract_socket::read_within(&mut self.stream, until, &mut buffer) {
                Ok(Some(count)) if count > 0 => {
                    self.decoder.push(&buffer[..count]);
                    received += count;
                }
                Ok(None) => return Err(NoAnswer::Late),
                _ => break,
            }
        }
        Err(NoAnswer::Gone)
    }
}

/// Only those of this user in this network namespace. Others may bind any number of such names,
/// but not in this user's processes.
pub fn all() -> Vec<SupervisorSocket> {
    let mut inodes: HashMap<i32, HashSet<u64>> = HashMap::new();
    let mut is_bound_by = |pid: i32, inode: u64| {
        let of_process = inodes.entry(pid).or_insert_with(|| {
            let sockets = procfs::is_own(pid).then(|| procfs::socket_inodes(pid));
            HashSet::from_iter(sockets.unwrap_or_default())
        });
        of_process.contains(&inode)
    };
    let sockets = abstract_socket::all().into_iter();
    let mut all: Vec<SupervisorSocket> = sockets
        .filter_map(|found| {
            let socket = SupervisorSocket::parse(&found.name)?;
            is_bound_by(socket.pid, found.inode).then_some(socket)
        })
        .collect();
    all.sort_unstable();
    // in /proc, an accepted connection has the name of its socket
    all.dedup();
    all
}

/// The jobs of this user in a workspace of this host with a process that runs in or below one of
/// the directories, or in a directory above it. Graph servers do not count: they serve one training
/// after another, and loaded their files when they started.
pub fn jobs_near<'a>(
    workspace: &Path,
    folders: impl Iterator<Item = &'a Path>,
) -> BTreeSet<String> {
    let workspace = match workspace.canonicalize() {
        Ok(workspace) if !all().is_empty() => workspace,
        _ => return BTreeSet::new(),
    };
    let folders = folders.filter_map(|folder| folder.canonicalize().ok());
    let folders: Vec<PathBuf> = folders.collect();
    let runs_near = |process: &JobProcess| {
        let directory = procfs::working_directory(process.member.process.pid);
        let is_near = |directory: PathBuf| {
            let mut folders = folders.iter();
            directory.starts_with(&workspace)
                && folders.any(|one| one.starts_with(&directory) || directory.starts_with(one))
        };
        process.role != Some(Role::Server) && directory.is_some_and(is_near)
    };
    let processes = job_processes().into_iter().filter(runs_near);
    processes.map(|process| process.job).collect()
}

/// Asks these supervisors at the same time, or one after another where this user may start no more
/// threads; returns their answers in the same order.
pub fn ask_all(
    sockets: &[SupervisorSocket],
    request: &Request,
    limit: Duration,
) -> Vec<Result<SupervisorAnswer, NoAnswer>> {
    thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .map(|socket| {
                thread::Builder::new().spawn_scoped(scope, move || socket.begin(request, limit))
            })
            .collect();
        let answers = threads.into_iter().zip(sockets);
        let answers = answers.map(|(thread, socket)| match thread {
            Ok(thread) => thread.join().unwrap_or(Err(NoAnswer::Late)),
            Err(_) => socket.begin(request, limit),
        });
        answers.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    fn socket(job: &str, pid: i32) -> SupervisorSocket {
        let mut socket = SupervisorSocket {
            job: job.to_owned(),
            address: Ipv4Addr::new(10, 0, 0, 1),
            pid,
            name: String::new(),
        };
        socket.name = socket.name_for(geteuid(), &tls::token().unwrap());
        socket
    }

    fn bind(name: &str) -> UnixListener {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
    }

    #[test]
    fn the_name_of_a_socket_says_the_job() {
        let socket = socket("try-7.a", 77);
        let name = socket.name.clone();
        assert_eq!(SupervisorSocket::parse(&name), Some(socket));
        let uid = format!("/{}/", geteuid());
        for wrong in [
            name.replace(&uid, "/4000000000/"),
            name.replace("try-7.a", "try\u{1b}"),
            name.replace("/77/", "/77/8/"),
            name.replace("/77/", "/"),
        ] {
            assert_eq!(SupervisorSocket::parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_longest_name_fits_into_the_address_of_a_socket() {
        let longest = socket(&"x".repeat(64), i32::MAX);
        assert!(is_job_name(&longest.job));
        let random = tls::token().unwrap();
        let name = longest.name_for(Uid::from_raw(u32::MAX), &random);
        SocketAddr::from_abstract_name(&name).expect(&name);
        let (_, random_part) = name.rsplit_once('/').unwrap();
        assert!(!random_part.is_empty() && random.starts_with(random_part));
        let found = SupervisorSocket::parse(&longest.name);
        assert_eq!(found, Some(longest));
    }

    /// Another user knows the process id and the inode of a supervisor.
    #[test]
    fn only_sockets_of_the_named_process_are_supervisors() {
        let job = format!("found-{}", std::process::id());
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let own = socket(&job, std::process::id().cast_signed());
        // names of another process of this user, as any user can bind them
        let foreign = socket(&job, other.id().cast_signed());
        let (bound, _foreign) = (bind(&own.name), bind(&foreign.name));
        let descriptor = format!("/proc/self/fd/{}", bound.as_raw_fd());
        let inode = std::fs::metadata(descriptor).unwrap().ino();
        let forged = own.name.rsplit_once('/').unwrap().0;
        let _forged = bind(&format!("\n{inode} @{forged}/f"));
        let mut found = all();
        found.retain(|socket| socket.job == job);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(found, [own]);
    }

    #[test]
    fn another_process_that_has_bound_the_name_is_not_waited_for() {
        let socket = socket(&format!("bound-{}", std::process::id()), 1);
        // it accepts connections and never answers
        let _stranger = bind(&socket.name);
        let answer = socket.ask(&Request::ListJobs, Duration::from_secs(30));
        assert_eq!(answer.unwrap_err(), NoAnswer::Gone);
    }
}
