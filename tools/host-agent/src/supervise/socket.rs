//! The socket of a supervisor: an abstract Unix socket on which it answers requests of this user's
//! agents on this host ([`crate::supervisors`]). A client sends one request and closes its half of
//! the connection; the answers are events. Threads answer, so that no client delays the job.

use crate::servers::ServedServers;
use crate::supervisors::SupervisorSocket;
use host::abstract_socket::read_until;
use host::readiness::readable;
use host::side_thread::SideThread;
use nix::sys::signal::SigSet;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use std::io::{self, ErrorKind, PipeReader, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder};
use wire::job::Job;
use wire::{Event, Failure, Request};

/// How long a client may take to send its request or to take a part of the answer. Agents do both
/// at once; a client that does not would keep a thread.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);
/// The most bytes of a request: more than any has, with the longest paths.
const MAX_REQUEST: usize = 64 << 10;
/// How many clients are answered at once; others wait in the queue of the socket. More tools than
/// this are hardly used on a host in the same second, and each takes a thread and a descriptor.
const AT_ONCE: usize = 16;
/// How often to check whether one of them has been answered.
const PACE: Duration = Duration::from_millis(20);
/// How long to wait before another attempt if there is no free descriptor.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

/// The socket, until it is dropped.
#[derive(Debug)]
pub struct JobSocket {
    _thread: SideThread,
}

impl JobSocket {
    /// Listens for the job. `None` if that fails, because the job can run without it.
    pub fn open(job: &Job, servers: &Arc<ServedServers>) -> Option<JobSocket> {
        let name = SupervisorSocket::own(job).name();
        let address = SocketAddr::from_abstract_name(name).ok()?;
        let listener = UnixListener::bind_addr(&address).ok()?;
        listener.set_nonblocking(true).ok()?;
        let servers = Arc::clone(servers);
        let accept = move |stopped: &PipeReader| accept(&listener, &servers, stopped);
        let thread = SideThread::begin("socket", accept).ok()?;
        Some(JobSocket { _thread: thread })
    }
}

fn accept(listener: &UnixListener, servers: &Arc<ServedServers>, stopped: &PipeReader) {
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
            Ok((stream, _)) => clients.extend(answer_apart(stream, servers)),
            // without a pause, poll would report the same connection until a descriptor is free
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                std::thread::sleep(NO_DESCRIPTOR_PAUSE);
            }
            Err(_) => {}
        }
    }
}

/// Answers a client in a thread; `None` without one, which closes the connection.
fn answer_apart(stream: UnixStream, servers: &Arc<ServedServers>) -> Option<JoinHandle<()>> {
    let servers = Arc::clone(servers);
    let work = move || {
        // the main thread handles signals
        let _ = SigSet::all().thread_block();
        let _ = answer(stream, &servers);
    };
    std::thread::Builder::new().spawn(work).ok()
}

fn answer(mut stream: UnixStream, servers: &ServedServers) -> io::Result<()> {
    if getsockopt(&stream, PeerCredentials)?.uid() != geteuid().as_raw() {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let until = Instant::now() + CLIENT_LIMIT;
    let (bytes, _) = read_until(&mut stream, until, MAX_REQUEST)?;
    let mut decoder = Decoder::default();
    decoder.push(&bytes);
    let event = match decoder.next_message::<Request>() {
        Ok(Some(request)) => match request.head {
            Request::AwaitServersEnd => return servers.await_end(stream),
            request => servers.answer(&request),
        },
        Ok(None) => return Ok(()),
        Err(malformed) => Event::Failed(Failure::new(malformed)),
    };
    stream.write_all(&codec::encode(&event, &[]))
}
