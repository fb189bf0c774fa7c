//! A port of this host for one tool, and for the hosts of its push that hand files on. Over the
//! tool's TLS connections come the same requests as over the login; other hosts send parts of files
//! that the login's conversation has begun.
//!
//! One connection may take over the conversation of the login; each of the others has its own. All
//! keys came over the login, and nobody else is let in. The number and time of connections that try
//! to get in are bounded. The port is closed when the conversation of the login ends.

use super::begin::begin;
use super::coming::Arrivals;
use super::serve::converse_alone;
use super::shared_output::SharedOutput;
use crate::output::{Output, SharedLink};
use crate::requests::{Next, Requests};
use nix::poll::{PollFd, PollTimeout, poll};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tls::{Guests, Link, PublicKey};
use wire::files::{FileEvent, FileRequest, Listen};
use wire::{Event, Request};

/// How many connections may try to get in at once; a tool has at most eight.
const KNOCKING: usize = 64;
/// Whoever has the key proves it at once.
const KNOCK_LIMIT: Duration = Duration::from_secs(10);
/// The tool sends `continue` over a connection before it sends `move` over the login.
const MOVE_LIMIT: Duration = Duration::from_secs(10);

/// The port, open as long as the conversation of the login.
pub struct Door {
    shared: Arc<Shared>,
    moving: Receiver<(SharedLink, Requests)>,
}

struct Shared {
    guests: Guests,
    /// The tool's key. Whoever else was let in is a host that hands files on.
    tool: PublicKey,
    arrivals: Arc<Arrivals>,
    state: Mutex<State>,
    /// Receives the connection that takes over the conversation of the login.
    arrived: SyncSender<(SharedLink, Requests)>,
}

#[derive(Default)]
struct State {
    closed: bool,
    knocking: usize,
    /// The connections that have a conversation of their own.
    lanes: Vec<(TcpStream, JoinHandle<()>)>,
}

impl Door {
    /// Opens the port and reports it.
    pub fn open(listen: &Listen, arrivals: &Arc<Arrivals>) -> Option<Door> {
        let opened = Door::listen(listen, arrivals);
        let (door, answer) = match opened {
            Ok((door, port, key)) => (
                Some(door),
                FileEvent::Listening {
                    port,
                    key,
                    problem: None,
                },
            ),
            Err(error) => {
                let place = SocketAddr::from((listen.address, listen.port));
                let listening = FileEvent::Listening {
                    port: 0,
                    key: String::new(),
                    problem: Some(format!("it cannot listen on {place}: {error}")),
                };
                (None, listening)
            }
        };
        arrivals.told.tell(answer);
        door
    }

    fn listen(listen: &Listen, arrivals: &Arc<Arrivals>) -> io::Result<(Door, u16, String)> {
        let key = |text: &String| PublicKey::try_from(text.clone()).map_err(io::Error::other);
        let (tool, identity) = (key(&listen.key)?, &arrivals.identity);
        let hosts = listen.hosts.iter().map(key);
        let keys = hosts.chain([Ok(tool)]).collect::<io::Result<Vec<_>>>()?;
        let guests = Guests::new(identity, keys)?;
        let listener = TcpListener::bind((listen.address, listen.port))?;
        let port = listener.local_addr()?.port();
        let (arrived, moving) = sync_channel(1);
        let shared = Arc::new(Shared {
            guests,
            tool,
            arrivals: Arc::clone(arrivals),
            state: Mutex::default(),
            arrived,
        });
        let door = Door {
            shared: Arc::clone(&shared),
            moving,
        };
        std::thread::Builder::new().spawn(move || accept(&listener, &shared))?;
        Ok((door, port, identity.public_key().to_string()))
    }

    /// The connection that takes over the conversation of the login.
    pub fn arrival(&self) -> Option<(SharedLink, Requests)> {
        self.moving.recv_timeout(MOVE_LIMIT).ok()
    }

    /// Ends the connections that have conversations of their own, and waits until their parts are
    /// noted.
    pub fn end_lanes(&self) {
        // a thread that is not let in yet takes the lock before it ends
        let lanes = std::mem::take(&mut self.shared.lock().lanes);
        for (stream, thread) in lanes {
            let _ = stream.shutdown(Shutdown::Both);
            let _ = thread.join();
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.end_lanes();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections until the door is closed.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        let mut state = shared.lock();
        if state.closed {
            return;
        }
        let Ok((stream, _)) = accepted else {
            drop(state);
            // out of descriptors; one may become free
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if state.knocking >= KNOCKING {
            continue;
        }
        let Ok(again) = stream.try_clone() else {
            continue;
        };
        let one = Arc::clone(shared);
        let thread = std::thread::Builder::new().spawn(move || {
            let link = let_in(stream, &one.guests);
            one.lock().knocking -= 1;
            if let Ok((link, said)) = link {
                serve(link, &said, &one);
            }
        });
        state.lanes.retain(|(_, thread)| !thread.is_finished());
        if let Ok(thread) = thread {
            state.knocking += 1;
            state.lanes.push((again, thread));
        }
    }
}

/// Waits until the other side has proved its key; returns the connection and the bytes that came
/// with the proof.
fn let_in(stream: TcpStream, guests: &Guests) -> io::Result<(Link, Vec<u8>)> {
    let mut link = Link::accept(stream, guests)?;
    let mut said = Vec::new();
    let until = Instant::now() + KNOCK_LIMIT;
    while link.peer().is_none() {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        poll(&mut [PollFd::new(link.as_fd(), link.wait_for())], timeout)?;
        link.flush()?;
        if !link.receive(&mut said)? || left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    link.widen();
    Ok((link, said))
}

/// Serves a connection that was let in; its first request tells its purpose.
fn serve(link: Link, said: &[u8], shared: &Shared) {
    let host = link.peer().filter(|peer| *peer != shared.tool);
    let link: SharedLink = Arc::new(Mutex::new(link));
    let mut requests = Requests::over(Arc::clone(&link), said);
    let told = SharedOutput::new(Output::over(Arc::clone(&link)));
    told.tell(FileEvent::Welcome);
    let Ok(Next::Request(first)) = requests.next_within(Some(KNOCK_LIMIT)) else {
        return;
    };
    let Request::File(first) = first.head else {
        return;
    };
    match first {
        FileRequest::Continue if host.is_none() => {
            let _ = shared.arrived.try_send((link, requests));
        }
        FileRequest::Give(_) if host.is_none() => lane((first, host), &mut requests, &told, shared),
        FileRequest::Receive(ref receive) if host.is_none() && receive.lane => {
            lane((first, host), &mut requests, &told, shared);
        }
        FileRequest::Handed { .. } if host.is_some() => {
            lane((first, host), &mut requests, &told, shared);
        }
        _ => {}
    }
}

fn lane(
    (first, host): (FileRequest, Option<PublicKey>),
    requests: &mut Requests,
    told: &SharedOutput,
    shared: &Shared,
) {
    match begin(first, host, told, &shared.arrivals) {
        Ok(mut serving) => converse_alone(serving.as_mut(), requests, told),
        Err(failure) => told.event(&Event::Failed(failure)),
    }
}
