//! Hands a file on to another host while it arrives here. The content is read back from the disk,
//! so a slow host delays only itself.

use super::incoming_file::{Available, IncomingFile, IncomingFiles};
use session::{Body, Session, SessionEvent, TlsChannel};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::{PublicKey, TlsConnection};
use transfer::source::Pieces;
use transfer::{content, silence};
use wire::files::{BLOCK, Block, FileEvent, FileRequest, FileStep, HandOn};
use wire::{Event, Request};

/// How long to wait for the other host's port; within a cluster, a port that can be reached answers
/// within a millisecond.
const REACHED: Duration = Duration::from_secs(2);
/// If nothing new has arrived for this long, the other host gets a heartbeat.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the other host may take to write what was sent.
const LAST: Duration = Duration::from_secs(60);
/// How long one wait for the other host lasts.
const TURN: Duration = Duration::from_millis(50);

const UNREQUESTED: &str = "protocol error: it sent what was not asked for";
const UNANSWERED: &str = "it does not answer";

/// Starts to hand a file on; a failure is reported as an event.
pub fn begin(file: &Arc<IncomingFile>, to: HandOn, files: Arc<IncomingFiles>) {
    let for_thread = Arc::clone(file);
    let thread = std::thread::Builder::new().spawn(move || {
        if let Err(problem) = forward_file(&for_thread, &to, &files) {
            for_thread.not_handed_on(problem);
        }
    });
    if let Err(error) = thread {
        file.not_handed_on(format!("no thread can be started: {error}"));
    }
}

/// Hands a file on to its end, or until it is no longer wanted.
fn forward_file(file: &IncomingFile, to: &HandOn, files: &IncomingFiles) -> Result<(), String> {
    let connected = NextHost::connect(to, files);
    let (mut next, stream) =
        connected.map_err(|error| format!("{}:{}: {error}", to.address, to.port))?;
    file.connect_forward(stream);
    let partial_key = to.partial_key.clone();
    next.send(FileRequest::Handed { partial_key }, Vec::new())?;
    let mut offset = 0;
    while offset < file.request.file.bytes {
        match file.wait_beyond(offset, PATIENCE) {
            Available::Until { end, packed } => {
                next.parts(file, to.other_id, (offset, end), packed)?;
                offset = end;
            }
            Available::Nothing => next.send_request(&Request::Alive, Vec::new())?,
            Available::Over => return Err("nothing more arrives".to_owned()),
        }
    }
    next.end()
}

/// The host to which the file is handed on.
struct NextHost {
    session: Session,
    /// Whether it has answered that it has written everything.
    is_done: bool,
}

impl NextHost {
    /// Connects, and waits until both sides have proved their keys. Also returns the connection
    /// itself, so that another thread can end it.
    fn connect(to: &HandOn, files: &IncomingFiles) -> io::Result<(NextHost, TcpStream)> {
        let peer = PublicKey::try_from(to.public_key.clone()).map_err(io::Error::other)?;
        let location = SocketAddr::from((to.address, to.port));
        let (link, received) = TlsConnection::open(location, &files.identity, peer, REACHED, true)?;
        let stream = TcpStream::from(link.as_fd().try_clone_to_owned()?);
        let next = NextHost {
            session: Session::new(Box::new(TlsChannel::new(link, received))),
            is_done: false,
        };
        Ok((next, stream))
    }

    /// Sends and receives for at most `limit`; fails when the host takes no more.
    fn exchange(&mut self, limit: Duration) -> Result<(), String> {
        for event in self.session.step(None, limit) {
            return Err(match event {
                SessionEvent::Event(Event::Alive, _) => continue,
                SessionEvent::Event(Event::File(FileEvent::Synced { .. }), _) => {
                    self.is_done = true;
                    continue;
                }
                SessionEvent::Event(Event::Failed(failure), _) => failure.problem,
                SessionEvent::Event(..) => UNREQUESTED.to_owned(),
                SessionEvent::Lost(why) => why,
            });
        }
        Ok(())
    }

    fn send(&mut self, step: FileRequest, body: Vec<u8>) -> Result<(), String> {
        self.send_request(&Request::File(step), body)
    }

    /// Queues a request, and waits until little is left to send.
    fn send_request(&mut self, request: &Request, body: Vec<u8>) -> Result<(), String> {
        self.session.send_with(request, Body::Bytes(body));
        self.exchange(Duration::ZERO)?;
        let mut moved = (self.session.pending(), Instant::now());
        while self.session.pending() > BLOCK {
            self.exchange(TURN)?;
            let pending = self.session.pending();
            if pending < moved.0 {
                moved = (pending, Instant::now());
            } else if moved.1.elapsed() > silence() {
                return Err(UNANSWERED.to_owned());
            }
        }
        if self.is_done {
            return Err(UNREQUESTED.to_owned());
        }
        Ok(())
    }

    /// Sends a part of a file that has arrived, read back from the disk.
    fn parts(
        &mut self,
        file: &IncomingFile,
        id: u32,
        (begin, end): (u64, u64),
        packed: bool,
    ) -> Result<(), String> {
        let mut pieces = Pieces::new(file.partial.file(), begin, end - begin);
        let mut buffer = Vec::new();
        let failed = |error: io::Error| error.to_string();
        while let Some(piece) = pieces.read_next(&mut buffer).map_err(failed)? {
            let (content, body) = match piece.is_zeros {
                true => (content::zeros(piece.length), Vec::new()),
                false => content::pack(std::mem::take(&mut buffer), packed),
            };
            let offset = piece.offset;
            self.send(
                FileRequest::Step(FileStep::Write(Block {
                    id,
                    offset,
                    content,
                })),
                body,
            )?;
        }
        Ok(())
    }

    /// Waits until the host has written everything that was sent.
    fn end(&mut self) -> Result<(), String> {
        let sync = FileRequest::Sync { number: 1 };
        self.session.send(&Request::File(sync));
        let until = Instant::now() + LAST;
        while !self.is_done {
            self.exchange(TURN)?;
            if Instant::now() > until {
                return Err(UNANSWERED.to_owned());
            }
        }
        self.session.close_stdin();
        let _ = self.exchange(Duration::ZERO);
        Ok(())
    }
}
