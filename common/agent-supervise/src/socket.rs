//! The socket of a supervisor: an abstract Unix socket on which it answers requests of this user's
//! agents on this host ([`agent::supervisors`]), about its own processes alone. A client sends
//! requests and gets events, as over stdin and stdout. Threads answer, so that no client delays the
//! job.

use super::members;
use crate::reap;
use crate::servers::ServedServers;
use agent::supervisors::SupervisorSocket;
use agent_stacks::recorder;
use host::abstract_socket::{has_hung_up, read_within};
use host::readiness::readable;
use host::side_thread::SideThread;
use nix::sys::signal::SigSet;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use parking_lot::Mutex;
use record::Found;
use std::collections::HashMap;
use std::io::{self, ErrorKind, PipeReader, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder};
use wire::job::Job;
use wire::reap::Pick;
use wire::{Event, Failure, Request};

/// How long a client may take to send a request or to take a part of the answer. Agents do both
/// at once; a client that does not would keep a thread.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// How many clients are answered at once; others wait in the queue of the socket. More tools than
/// this are hardly used on a host in the same second, and each takes a thread and a descriptor.
const AT_ONCE: usize = 16;
/// How many threads may read stacks for clients. A reading may hang in the kernel; the others are
/// for clients that ask something else.
const MOST_READERS: usize = 12;
/// How often to check whether one of them has been answered.
const PACE: Duration = Duration::from_millis(20);
/// How long to wait before another attempt if there is no free descriptor.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

/// What the answers to clients are made of.
#[derive(Debug)]
pub struct JobAnswers {
    pub servers: Arc<ServedServers>,
    job: Job,
    /// When each started process last wrote something, by process id.
    written: Mutex<HashMap<u32, Instant>>,
    /// Cloned by each thread that reads stacks.
    readers: Arc<()>,
}

impl JobAnswers {
    pub fn new(job: &Job, servers: Arc<ServedServers>) -> JobAnswers {
        JobAnswers {
            servers,
            job: job.clone(),
            written: Mutex::default(),
            readers: Arc::default(),
        }
    }

    /// Notes that a process was started or has written something.
    pub fn wrote(&self, pid: u32) {
        self.written.lock().insert(pid, Instant::now());
    }

    /// Answers one request of a client.
    fn answer(&self, request: &Request, client: &UnixStream) -> Result<Vec<Event>, Failure> {
        let token = &self.job.token;
        match request {
            Request::FindServers(_) | Request::TakeGroup(_) => {
                Ok(vec![self.servers.answer(request)?])
            }
            Request::ListJobs => {
                let found = reap::describe_all(members::selected(token, &Pick::default()));
                let found = found.map(|found| Event::Found(self.with_own_knowledge(found)));
                Ok(found.collect())
            }
            Request::TakeStacks(wanted) => {
                let processes = members::selected(token, &wanted.pick);
                let stacks = agent_stacks::take(processes, wanted.connections, &self.reader()?);
                let event = |stack| Event::Stack(Box::new(stack));
                Ok(stacks.into_iter().map(event).collect())
            }
            Request::RecordStacks(wanted) => {
                let _reader = self.reader()?;
                let find = || members::selected(token, &wanted.pick);
                let profiles = recorder::record(wanted, find, || !has_hung_up(client));
                let event = |profile| Event::Profile(Box::new(profile));
                Ok(profiles.into_iter().map(event).collect())
            }
            _ => Err(Failure::new("a supervisor does not serve this request")),
        }
    }

    /// Adds the facts that only the supervisor knows.
    fn with_own_knowledge(&self, found: Found) -> Found {
        let written = self.written.lock();
        let silence = written.get(&found.pid).map(Instant::elapsed);
        let is_server = found.role == Some(job::Role::Server);
        Found {
            silent_s: silence.map(|time| time.as_secs_f64()),
            groups: is_server.then(|| self.servers.groups()).flatten(),
            ..found
        }
    }

    fn reader(&self) -> Result<Arc<()>, Failure> {
        // one is that of this struct
        if Arc::strong_count(&self.readers) > MOST_READERS {
            return Err(Failure::new(
                "the job's supervisor is busy with other requests for stacks",
            ));
        }
        Ok(Arc::clone(&self.readers))
    }
}

/// The socket, until it is dropped.
#[derive(Debug)]
pub struct JobSocket {
    _thread: SideThread,
}

impl JobSocket {
    /// Listens for the job. `None` if that fails, because the job can run without it.
    pub fn open(answers: &Arc<JobAnswers>) -> Option<JobSocket> {
        let name = SupervisorSocket::own(&answers.job).name();
        let address = SocketAddr::from_abstract_name(name).ok()?;
        let listener = UnixListener::bind_addr(&address).ok()?;
        listener.set_nonblocking(true).ok()?;
        let answers = Arc::clone(answers);
        let accept = move |stopped: &PipeReader| accept(&listener, &answers, stopped);
        let thread = SideThread::begin("socket", accept).ok()?;
        Some(JobSocket { _thread: thread })
    }
}

fn accept(listener: &UnixListener, answers: &Arc<JobAnswers>, stopped: &PipeReader) {
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    loop {
        clients.retain(|client| !client.is_finished());
        let is_full = clients.len() >= AT_ONCE;
        let mut awaited = vec![stopped.as_fd()];
        awaited.extend((!is_full).then(|| listener.as_fd()));
        if readable(awaited, is_full.then_some(PACE))[0] {
            return;
        }
        if is_full {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => clients.extend(serve_apart(stream, answers)),
            // without a pause, poll would report the same connection until a descriptor is free
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                std::thread::sleep(NO_DESCRIPTOR_PAUSE);
            }
            Err(_) => {}
        }
    }
}

/// Serves a client in a thread; `None` without one, which closes the connection.
fn serve_apart(stream: UnixStream, answers: &Arc<JobAnswers>) -> Option<JoinHandle<()>> {
    let answers = Arc::clone(answers);
    let work = move || {
        // the main thread handles signals
        let _ = SigSet::all().thread_block();
        let _ = serve(stream, &answers);
    };
    std::thread::Builder::new().spawn(work).ok()
}

fn serve(mut stream: UnixStream, answers: &JobAnswers) -> io::Result<()> {
    if getsockopt(&stream, PeerCredentials)?.uid() != geteuid().as_raw() {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let mut decoder = Decoder::default();
    while let Some(request) = next_request(&mut stream, &mut decoder)? {
        let answer = match request {
            Ok(Request::AwaitServersEnd) => return answers.servers.await_end(stream),
            Ok(request) => answers.answer(&request, &stream),
            Err(malformed) => return write(&mut stream, &Event::Failed(Failure::new(malformed))),
        };
        match answer {
            Ok(events) => {
                for event in events {
                    write(&mut stream, &event)?;
                }
                write(&mut stream, &Event::Done)?;
            }
            Err(failure) => write(&mut stream, &Event::Failed(failure))?,
        }
    }
    Ok(())
}

fn write(stream: &mut UnixStream, event: &Event) -> io::Result<()> {
    stream.write_all(&codec::encode(event, &[]))
}

/// The next request, or what is wrong with it; `None` if the client sends nothing more.
fn next_request(
    stream: &mut UnixStream,
    decoder: &mut Decoder,
) -> io::Result<Option<Result<Request, String>>> {
    let until = Instant::now() + CLIENT_LIMIT;
    let mut buffer = [0; 4096];
    loop {
        match decoder.next_message::<Request>() {
            Ok(Some(message)) => return Ok(Some(Ok(message.head))),
            Ok(None) => {}
            Err(malformed) => return Ok(Some(Err(malformed))),
        }
        match read_within(stream, until, &mut buffer)? {
            Some(count) if count > 0 => decoder.push(&buffer[..count]),
            _ => return Ok(None),
        }
    }
}
