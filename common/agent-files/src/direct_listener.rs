//! A port of this host for one tool, and for the hosts of its push that hand files on. The tool
//! sends the same requests over its TLS connections as over the login; other hosts send parts of
//! files that the tool has begun.
//!
//! Only peers whose keys were sent over the login are admitted. The port closes when the login's
//! conversation ends.

use super::begin::begin;
use super::incoming_file::{Caller, IncomingFiles};
use super::serve::converse;
use agent::output::{EventOutput, SharedLink};
use agent::requests::{Next, Requests};
use parking_lot::Mutex;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tls::{Entrance, Guests, Limits, PeerGreeting, PublicKey, ServedPort};
use wire::codec;
use wire::files::{FileEvent, FileRequest, Listen};
use wire::{Event, Request};

/// A push or pull and the hosts of its chains connect within one second, each with a few
/// connections. A peer proves its key and sends its first request at once.
const LIMITS: Limits = Limits {
    in_all: 256,
    per_source: 64,
    time: Duration::from_secs(10),
};
/// The first request holds a path of at most 4 KiB (PATH_MAX), in JSON up to six times as long.
const MAX_FIRST: usize = 64 << 10;
/// How many connections the tool or a host may have at once: the tool has one, and a host one for
/// each large file that it hands on at the time.
const MOST_CONNECTIONS: usize = 64;

/// Open as long as the conversation of the login.
pub struct DirectListener {
    port: Option<ServedPort>,
    connections: Arc<Connections>,
}

/// The connections that were admitted.
#[derive(Default)]
struct Connections(Mutex<Vec<DirectConnection>>);

struct DirectConnection {
    key: PublicKey,
    stream: TcpStream,
    thread: JoinHandle<()>,
}

impl DirectListener {
    pub fn open(
        listen: &Listen,
        output: &EventOutput,
        files: &Arc<IncomingFiles>,
    ) -> Option<DirectListener> {
        let opened = DirectListener::listen(listen, files);
        let (listener, answer) = match opened {
            Ok((listener, port, key)) => (
                Some(listener),
                FileEvent::Listening {
                    port,
                    key: Some(key),
                    problem: None,
                },
            ),
            Err(error) => {
                let location = SocketAddr::from((listen.address, listen.port));
                let listening = FileEvent::Listening {
                    port: 0,
                    key: None,
                    problem: Some(format!("it cannot listen on {location}: {error}")),
                };
                (None, listening)
            }
        };
        output.send(answer);
        listener
    }

    fn listen(
        listen: &Listen,
        files: &Arc<IncomingFiles>,
    ) -> io::Result<(DirectListener, u16, PublicKey)> {
        let (tool, identity) = (listen.key, &files.identity);
        let guests = Guests::new(identity, [&listen.hosts[..], &[tool]].concat())?;
        let listener = TcpListener::bind((listen.address, listen.port))?;
        let port = listener.local_addr()?.port();
        let files = Arc::clone(files);
        let connections: Arc<Connections> = Arc::default();
        let all = Arc::clone(&connections);
        let entrance = Entrance {
            guests,
            welcome: codec::encode(&Event::Alive, &[]),
            max_line: MAX_FIRST,
        };
        let served = ServedPort::serve(vec![listener], LIMITS, entrance, move |_, greeting| {
            if let Some(greeting) = greeting {
                // without a descriptor or a thread the peer sees the end of its connection
                let _ = all.begin(greeting, tool, &files);
            }
        })?;
        let listener = DirectListener {
            port: Some(served),
            connections,
        };
        Ok((listener, port, identity.public_key()))
    }

    /// Also waits until the parts that arrived over them are recorded.
    pub fn end_connections(&self) {
        let connections = std::mem::take(&mut *self.connections.0.lock());
        for connection in &connections {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        for connection in connections {
            let _ = connection.thread.join();
        }
    }
}

impl Drop for DirectListener {
    fn drop(&mut self) {
        // from now on, no peer is admitted
        self.port = None;
        self.end_connections();
    }
}

impl Connections {
    fn begin(
        &self,
        greeting: PeerGreeting,
        tool: PublicKey,
        files: &Arc<IncomingFiles>,
    ) -> io::Result<()> {
        let mut connections = self.0.lock();
        connections.retain(|connection| !connection.thread.is_finished());
        let Some(key) = greeting.connection.peer() else {
            return Ok(());
        };
        if connections
            .iter()
            .filter(|connection| connection.key == key)
            .count()
            >= MOST_CONNECTIONS
        {
            return Ok(());
        }
        let caller = if key == tool {
            Caller::Tool
        } else {
            Caller::Host(key)
        };
        let stream = TcpStream::from(greeting.connection.as_fd().try_clone_to_owned()?);
        let files = Arc::clone(files);
        let thread = std::thread::Builder::new().spawn(move || serve(greeting, caller, &files))?;
        connections.push(DirectConnection {
            key,
            stream,
            thread,
        });
        Ok(())
    }
}

fn serve(greeting: PeerGreeting, caller: Caller, files: &Arc<IncomingFiles>) {
    let PeerGreeting {
        connection: link,
        received,
        ..
    } = greeting;
    let link: SharedLink = Arc::new(Mutex::new(link.with_large_buffer()));
    converse_over(&link, &received, caller, files);
    // a duplicate of the descriptor stays open until the other connections end
    link.lock().shutdown();
}

fn converse_over(link: &SharedLink, received: &[u8], caller: Caller, files: &Arc<IncomingFiles>) {
    let mut requests = Requests::over(Arc::clone(link), received);
    let output = Arc::new(EventOutput::over(Arc::clone(link)));
    let Ok(Next::Request(first)) = requests.next_within(Some(LIMITS.time)) else {
        return;
    };
    let Request::File(first) = first.head else {
        return;
    };
    if matches!(&first, FileRequest::Receive(receive) if !receive.direct) {
        return;
    }
    match begin(first, caller, Arc::clone(&output), files) {
        Ok(mut serving) => {
            converse(serving.as_mut(), &mut requests, &output);
        }
        Err(failure) => output.event(&Event::Failed(failure)),
    }
}
