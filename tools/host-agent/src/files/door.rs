//! A port of this host's for one tool alone: what comes over its connections of TLS is what comes
//! over the login too.
//!
//! One connection may carry on the conversation of the login; each of the others has its own. The
//! tool's key came over the login, and nobody else is let in: how many may try at once, and for how
//! long, is bounded. The port is closed when the conversation of the login ends.

use super::{SharedOutput, begin, converse_alone};
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
use tls::{Guests, Identity, Link, PublicKey};
use wire::files::{FileEvent, FileRequest, Listen};
use wire::{Event, Request};

/// So many may try to get in at once; a tool has eight connections at most.
const KNOCKING: usize = 64;
/// Who has the key proves it at once.
const KNOCK_LIMIT: Duration = Duration::from_secs(10);
/// The tool has said `continue` over a connection before it says `move` over the login.
const MOVE_LIMIT: Duration = Duration::from_secs(10);

/// The port, as long as the conversation of the login goes on.
pub struct Door {
    shared: Arc<Shared>,
    arrivals: Receiver<(SharedLink, Requests)>,
}

struct Shared {
    guests: Guests,
    state: Mutex<State>,
    /// Where the connection goes that carries on the conversation of the login.
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
    /// Opens the port and says so.
    pub fn open(listen: &Listen, told: &SharedOutput) -> Option<Door> {
        let opened = Door::listen(listen);
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
        told.tell(answer);
        door
    }

    fn listen(listen: &Listen) -> io::Result<(Door, u16, String)> {
        let key = PublicKey::try_from(listen.key.clone()).map_err(io::Error::other)?;
        let identity = Identity::new()?;
        let guests = Guests::new(&identity, vec![key])?;
        let listener = TcpListener::bind((listen.address, listen.port))?;
        let port = listener.local_addr()?.port();
        let (arrived, arrivals) = sync_channel(1);
        let shared = Arc::new(Shared {
            guests,
            state: Mutex::default(),
            arrived,
        });
        let door = Door {
            shared: Arc::clone(&shared),
            arrivals,
        };
        std::thread::Builder::new().spawn(move || accept(&listener, &shared))?;
        Ok((door, port, identity.public_key().to_string()))
    }

    /// The connection that carries on the conversation of the login.
    pub fn arrival(&self) -> Option<(SharedLink, Requests)> {
        self.arrivals.recv_timeout(MOVE_LIMIT).ok()
    }

    /// Ends the connections that have conversations of their own, and waits until what they have is
    /// written down.
    pub fn end_lanes(&self) {
        for (stream, thread) in std::mem::take(&mut self.shared.lock().lanes) {
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

/// Takes connections until the door is closed.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        let mut state = shared.lock();
        if state.closed {
            return;
        }
        let Ok((stream, _)) = accepted else {
            drop(state);
            // out of descriptors: one may become free
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

/// Waits until the other side has proved its key; what it said in the same moment.
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

/// One that was let in says what it is for.
fn serve(link: Link, said: &[u8], shared: &Shared) {
    let link: SharedLink = Arc::new(Mutex::new(link));
    let mut requests = Requests::over(Arc::clone(&link), said);
    let told = SharedOutput::new(Output::over(Arc::clone(&link)));
    told.tell(FileEvent::Welcome);
    let Ok(Next::Request(first)) = requests.next_within(Some(KNOCK_LIMIT)) else {
        return;
    };
    match first.head {
        Request::File(FileRequest::Continue) => {
            let _ = shared.arrived.try_send((link, requests));
        }
        Request::File(first @ FileRequest::Give(_)) => lane(first, &mut requests, &told),
        Request::File(FileRequest::Receive(receive)) if receive.lane => {
            lane(FileRequest::Receive(receive), &mut requests, &told);
        }
        _ => {}
    }
}

fn lane(first: FileRequest, requests: &mut Requests, told: &SharedOutput) {
    match begin(first, told) {
        Ok(mut serving) => converse_alone(serving.as_mut(), requests, told),
        Err(failure) => told.event(&Event::Failed(failure)),
    }
}
