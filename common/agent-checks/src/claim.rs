//! The claim of a job on its name, its ports and the use of /dev/shm on this host, from the
//! beginning of the preflight.
//!
//! Each claim is an abstract Unix socket, whose name all jobs derive in the same way. Binding it is
//! atomic, all users of this network namespace see it, and it disappears with the agent that holds
//! it, however the agent ends. An agent that finds a name taken asks the holder over the socket.

use agent::notes::{Claim, Port};
use host::abstract_socket;
use host::describe;
use host::readiness::readable;
use host::side_thread::SideThread;
use record::cpus;
use record::is_job_name;
use record::term::{self, millis};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, PipeReader, Write};
use std::iter::once;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::Failure;
use wire::job::Job;
use wire::preflight::{Holder, Problem, Subject, Taken};

/// A holder answers at once, unless it is stopped or no agent.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// More than an answer has.
const ANSWER_BYTES: usize = 4 << 10;
/// How often to try a socket whose holder is ending.
const TRIES: u32 = 10;

/// Held until it is dropped.
#[derive(Debug)]
pub struct HeldClaim {
    confirmed: Arc<AtomicBool>,
    _answers: SideThread,
}

impl HeldClaim {
    /// The job has claimed all of its hosts.
    pub fn confirm(&self) {
        self.confirmed.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claimed {
    Name,
    Port(u16),
    SharedMemory,
}

#[derive(Serialize, Deserialize)]
struct HolderAnswer {
    job: String,
    /// The same for all agents of the job. The token cannot be derived from it.
    id: String,
    age_ms: u64,
    confirmed: bool,
}

/// Claims everything, or else returns the jobs that hold any of it.
pub fn take(job: &Job, claim: &Claim) -> Result<Result<HeldClaim, Vec<Taken>>, Failure> {
    let failed = |error: io::Error| {
        Failure::new(format!(
            "the ports and the name of a job cannot be claimed: {error}"
        ))
    };
    let id = id_of(&job.token);
    let (mut sockets, mut taken) = (Vec::new(), Vec::new());
    for (claimed, name) in wanted(&job.name, claim) {
        match bind(&name, &id).map_err(failed)? {
            Bound::Ours(socket) => sockets.push(socket),
            // in a rehearsal, several hosts of a job are on one machine
            Bound::OurJobs => {}
            Bound::Theirs(holding) => taken.push((claimed, holding)),
        }
    }
    if !taken.is_empty() {
        return Ok(Err(conflicts(&job.name, taken)));
    }
    let confirmed = Arc::new(AtomicBool::new(false));
    let answers = Answers {
        sockets,
        job: job.name.clone(),
        id,
        since: Instant::now(),
        confirmed: Arc::clone(&confirmed),
    };
    let answers = SideThread::begin("claim", move |stopped| answers.give(stopped));
    Ok(Ok(HeldClaim {
        confirmed,
        _answers: answers.map_err(failed)?,
    }))
}

/// One conflict with each job.
fn conflicts(name: &str, mut taken: Vec<(Claimed, Holding)>) -> Vec<Taken> {
    let job = |(_, by): &(Claimed, Holding)| (by.job().map(str::to_owned), by.user.clone());
    taken.sort_by_key(job);
    let jobs = taken.chunk_by(|one, other| job(one) == job(other));
    let conflict = |held: &[(Claimed, Holding)]| Taken {
        problem: problem(name, held),
        confirmed: held[0].1.is_confirmed(),
    };
    jobs.map(conflict).collect()
}

/// One job holds all of `held`, which the job with this name needs.
fn problem(name: &str, held: &[(Claimed, Holding)]) -> Problem {
    let by = &held[0].1;
    let holds = |wanted: Claimed| held.iter().any(|(claimed, _)| *claimed == wanted);
    if holds(Claimed::Name) {
        return name_in_use(name, by.user.as_deref());
    }
    let mut job = match by.job() {
        Some(job) => format!("job {job}"),
        None => "a job that does not answer".to_owned(),
    };
    job.extend(by.user.iter().map(|user| format!(" of user {user}")));
    let holder = match (by.job(), &by.user) {
        (Some(_), None) => Holder::Job,
        _ => Holder::ForeignJob,
    };
    let port = |(claimed, _): &(Claimed, Holding)| match claimed {
        Claimed::Port(port) => Some(u32::from(*port)),
        Claimed::SharedMemory | Claimed::Name => None,
    };
    let ports: Vec<u32> = held.iter().filter_map(port).collect();
    let memory = if holds(Claimed::SharedMemory) {
        ", and /dev/shm,"
    } else {
        ""
    };
    let (about, problem) = match ports[..] {
        [] => {
            let problem = format!("another job of DGL is running: {job}");
            (Subject::SharedMemory(holder), problem)
        }
        [port] => {
            let problem = format!("port {port}{memory} is taken by {job}");
            (Subject::Port(holder), problem)
        }
        _ => {
            let problem = format!("ports {}{memory} are taken by {job}", cpus::list(ports));
            (Subject::Port(holder), problem)
        }
    };
    let age = by.answer.as_ref().map_or(0, |answer| answer.age_ms);
    let age = term::seconds(Duration::from_millis(age));
    let process = by.pid.map(|pid| format!("process {pid}, for {age}"));
    Problem::new(about, problem).with(process.unwrap_or_default())
}

pub fn name_in_use(name: &str, user: Option<&str>) -> Problem {
    let of_user = user.map_or(String::new(), |user| format!(", of user {user}"));
    let foreign = user.is_some();
    let problem = format!("a job named {name} is running{of_user}");
    Problem::new(Subject::Name { foreign }, problem)
}

/// Whether this name is claimed here with this token, so that the job is alive.
pub fn is_alive(job: &str, token: &str) -> bool {
    let found = ask(&name_of_job(job));
    matches!(found, Ok(Some(holding)) if holding.is_of(&id_of(token)))
}

#[derive(Debug, PartialEq, Eq)]
pub enum HeldName {
    Job(String),
    Port(u16),
}

pub fn all_held() -> Vec<HeldName> {
    let sockets = abstract_socket::all();
    sockets
        .iter()
        .filter_map(|socket| held_name(&socket.name))
        .collect()
}

fn held_name(name: &str) -> Option<HeldName> {
    match name.strip_prefix("dgl-tools/")?.split_once('/')? {
        ("job", name) if is_job_name(name) => Some(HeldName::Job(name.to_owned())),
        ("port", port) => Some(HeldName::Port(port.split('/').next()?.parse().ok()?)),
        _ => None,
    }
}

fn id_of(token: &str) -> String {
    abstract_socket::id_of("dgl-tools 2026 claim of a job", token)
}

fn name_of_job(job: &str) -> String {
    format!("dgl-tools/job/{job}")
}

fn name_of_port(port: &Port) -> String {
    let address = port
        .address
        .map_or_else(|| "any".to_owned(), |address| address.to_string());
    format!("dgl-tools/port/{}/{address}", port.port)
}

/// Everything to claim, with the names of the sockets, always in the same order.
fn wanted(job: &str, claim: &Claim) -> Vec<(Claimed, String)> {
    let mut ports = claim.ports.clone();
    ports.sort_unstable();
    ports.dedup();
    let mut wanted = vec![(Claimed::Name, name_of_job(job))];
    wanted.extend(
        ports
            .iter()
            .map(|port| (Claimed::Port(port.port), name_of_port(port))),
    );
    if claim.shared_memory {
        // containers may share the network, but each has its own /dev/shm
        let device = std::fs::metadata("/dev/shm").map_or(0, |folder| folder.dev());
        wanted.push((Claimed::SharedMemory, format!("dgl-tools/shm/{device}")));
    }
    wanted
}

enum Bound {
    Ours(UnixListener),
    OurJobs,
    Theirs(Holding),
}

fn bind(name: &str, id: &str) -> io::Result<Bound> {
    let address = SocketAddr::from_abstract_name(name)?;
    for _ in 0..TRIES {
        match UnixListener::bind_addr(&address) {
            Ok(socket) => {
                // a connection that poll reports may be closed before it is accepted
                socket.set_nonblocking(true)?;
                return Ok(Bound::Ours(socket));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
        match ask(name)? {
            Some(holding) if holding.is_of(id) => return Ok(Bound::OurJobs),
            Some(holding) => return Ok(Bound::Theirs(holding)),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

/// The holder of a claim.
struct Holding {
    /// `None` if it does not answer.
    answer: Option<HolderAnswer>,
    /// Its user, if that is not this one.
    user: Option<String>,
    /// The job's agent; `None` if it is in a container.
    pid: Option<u32>,
}

impl Holding {
    fn job(&self) -> Option<&str> {
        self.answer.as_ref().map(|answer| &*answer.job)
    }

    /// Whether it belongs to this job. Another user could repeat the public answers of this user's
    /// agents.
    fn is_of(&self, id: &str) -> bool {
        let is_same = self.answer.as_ref().is_some_and(|answer| answer.id == id);
        is_same && self.user.is_none()
    }

    /// Whether its job has claimed all of its hosts. Otherwise the job may still give up; one that
    /// does not answer will not.
    fn is_confirmed(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| answer.confirmed)
    }
}

/// `None` if the socket has no holder, or no longer.
fn ask(name: &str) -> io::Result<Option<Holding>> {
    let reply = match abstract_socket::ask(name, &[], ANSWER_LIMIT, ANSWER_BYTES) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        reply => reply?,
    };
    // the holder released its claim before it accepted the connection
    if reply
        .as_ref()
        .is_some_and(|reply| reply.bytes.is_empty() && !reply.is_late)
    {
        return Ok(None);
    }
    let answer = |reply: &abstract_socket::SocketAnswer| serde_json::from_slice(&reply.bytes).ok();
    let answer: Option<HolderAnswer> = reply.as_ref().and_then(answer);
    let answer = answer.filter(|answer| is_job_name(&answer.job));
    let peer = reply.map(|reply| reply.peer);
    let pid = peer.and_then(|peer| u32::try_from(peer.pid()).ok());
    Ok(Some(Holding {
        answer,
        user: peer.and_then(|peer| describe::other_user(peer.uid())),
        pid: pid.filter(|pid| *pid != 0),
    }))
}

/// Answers each connection with the job that holds the claim.
struct Answers {
    sockets: Vec<UnixListener>,
    job: String,
    id: String,
    since: Instant,
    confirmed: Arc<AtomicBool>,
}

impl Answers {
    fn give(self, stopped: &PipeReader) {
        loop {
            let sockets = self.sockets.iter().map(AsFd::as_fd);
            let ready = readable(once(stopped.as_fd()).chain(sockets), None);
            if ready[0] {
                return;
            }
            for (socket, _) in self
                .sockets
                .iter()
                .zip(&ready[1..])
                .filter(|(_, ready)| **ready)
            {
                self.answer(socket);
            }
        }
    }

    fn answer(&self, socket: &UnixListener) {
        match socket.accept() {
            // the answer fits into the buffer of a new socket, so the write cannot block
            Ok((mut stream, _)) => {
                let answer = HolderAnswer {
                    job: self.job.clone(),
                    id: self.id.clone(),
                    age_ms: millis(self.since.elapsed()),
                    confirmed: self.confirmed.load(Ordering::Relaxed),
                };
                let _ = stream.write_all(&serde_json::to_vec(&answer).unwrap_or_default());
            }
            // without a pause, poll would report the connection again until a descriptor is free
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, token: &str) -> Job {
        Job {
            token: token.to_owned(),
            ..crate::tested_job(name)
        }
    }

    fn claim(ports: &[u16]) -> Claim {
        let address = Some(std::net::Ipv4Addr::LOCALHOST);
        Claim {
            ports: ports
                .iter()
                .map(|port| Port {
                    port: *port,
                    address,
                })
                .collect(),
            shared_memory: false,
        }
    }

    #[test]
    fn what_is_claimed_is_told_and_free_again_when_its_holder_ends() {
        // names with the process id, because tests run at the same time
        let name = |text: &str| format!("{text}-{}", std::process::id());
        let held = take(&job(&name("a"), "1"), &claim(&[3, 1]))
            .unwrap()
            .unwrap();
        held.confirm();
        assert!(
            is_alive(&name("a"), "1") && !is_alive(&name("a"), "2") && !is_alive(&name("b"), "1")
        );
        let taken = take(&job(&name("b"), "2"), &claim(&[2, 3, 1]))
            .unwrap()
            .unwrap_err();
        let words = format!("ports 1,3 are taken by job {}", name("a"));
        let process = format!("process {}, for", std::process::id());
        assert!(
            taken.len() == 1
                && taken[0].confirmed
                && taken[0].problem.about == Subject::Port(Holder::Job)
                && taken[0].problem.problem == words
                && taken[0].problem.detail.starts_with(&process),
            "{taken:?}"
        );
        // the second claim kept nothing
        drop(take(&job(&name("c"), "3"), &claim(&[2])).unwrap().unwrap());
        let taken = take(&job(&name("a"), "4"), &claim(&[]))
            .unwrap()
            .unwrap_err();
        assert_eq!(taken[0].problem, name_in_use(&name("a"), None));
        // another agent of the same job
        drop(take(&job(&name("a"), "1"), &claim(&[1])).unwrap().unwrap());
        let held_names = all_held();
        for held in [
            HeldName::Job(name("a")),
            HeldName::Port(1),
            HeldName::Port(3),
        ] {
            assert!(held_names.contains(&held), "{held:?}: {held_names:?}");
        }
        drop(held);
        drop(
            take(&job(&name("b"), "2"), &claim(&[2, 3, 1]))
                .unwrap()
                .unwrap(),
        );
    }

    #[test]
    fn what_jobs_hold_is_read_from_proc() {
        let table = [
            ("dgl-tools/job/try7", Some(HeldName::Job("try7".to_owned()))),
            ("dgl-tools/port/30050/any", Some(HeldName::Port(30050))),
            ("dgl-tools/port/30051/10.0.0.1", Some(HeldName::Port(30051))),
            ("dgl-tools/port/300500/any", None),
            ("dgl-tools/job/a\u{1b}[2J", None),
            ("dgl-tools/shm/26", None),
            ("/run/x/@dgl-tools/job/try7", None),
        ];
        for (name, held) in table {
            assert_eq!(held_name(name), held, "{name}");
        }
    }
}
