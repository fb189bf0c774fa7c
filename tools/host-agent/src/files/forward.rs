//! Hands a file on to another host as it comes to this one. It is read back from the disk, so that
//! a slow host delays only itself.

use super::incoming_file::{IncomingFile, IncomingFiles, Next, Piece};
use crate::output::{SharedLink, is_ready, write_over};
use parking_lot::Mutex;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::{Link, PublicKey};
use transfer::content;
use transfer::parts::Parts;
use transfer::source;
use wire::codec::{self, Decoder};
use wire::files::{Block, FileEvent, FileRequest, HandOn};
use wire::{Event, Request};

/// A port that can be reached answers within a millisecond on a cluster.
const REACHED: Duration = Duration::from_secs(2);
/// If nothing new has come for this long, the other host gets a sign of life.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the other host has to write what is on its way.
const LAST: Duration = Duration::from_secs(60);

const UNREQUESTED: &str = "protocol error: it sent what was not asked for";

/// Starts to hand a file on; the result is reported as an event.
pub fn begin(file: Arc<IncomingFile>, to: HandOn, files: Arc<IncomingFiles>) {
    let host = to.host;
    file.begin_forward(host);
    let id = to.id;
    let one = Arc::clone(&file);
    let thread = std::thread::Builder::new().spawn(move || {
        let ended = forward_file(&one, &to, &files);
        end(&one, (id, host), ended);
    });
    if let Err(error) = thread {
        let ended = Err(Broken::after(format!("no thread can be started: {error}")));
        end(&file, (id, host), ended);
    }
}

/// Reports the result for a host.
fn end(file: &IncomingFile, (id, host): (u32, u32), ended: Result<(), Broken>) {
    let (problem, unreached) = match ended {
        Ok(()) => (None, false),
        Err(broken) => (Some(broken.why), broken.unreached),
    };
    file.stop_forward(host);
    file.events.send(FileEvent::HandedOn {
        id,
        host,
        problem,
        unreached,
    });
}

/// Why a host gets no more of a file.
struct Broken {
    why: String,
    unreached: bool,
}

impl Broken {
    fn after(why: impl Into<String>) -> Broken {
        Broken {
            why: why.into(),
            unreached: false,
        }
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::after(error.to_string())
    }
}

fn forward_file(file: &IncomingFile, to: &HandOn, files: &IncomingFiles) -> Result<(), Broken> {
    let unreached = |error: io::Error| Broken {
        why: format!("{}:{}: {error}", to.address, to.port),
        unreached: true,
    };
    let mut next = NextHost::connect(to, files).map_err(unreached)?;
    let stream = next.stream.try_clone().map_err(unreached)?;
    if !file.connect_forward(to.host, stream) {
        return Err(Broken::after("it is not handed on any more"));
    }
    let key = to.key.clone();
    next.send(FileRequest::Handed { key }, &[])?;
    let mut wanted = Parts::of(&to.parts);
    while !wanted.list().is_empty() {
        match file.next(&wanted, to.host, PATIENCE) {
            Next::Piece(piece) => {
                next.piece(file, to.there, piece)?;
                let end = piece.at + piece.length;
                wanted = wanted.without(&Parts::of(&[(piece.at, end)]));
            }
            Next::Nothing => next.send_request(&Request::Alive, &[])?,
            Next::Over => return Err(Broken::after("it is not handed on any more")),
        }
    }
    next.end(to.there)
}

/// The host to which the file is handed on.
struct NextHost {
    stream: TcpStream,
    link: SharedLink,
    decoder: Decoder,
}

impl NextHost {
    /// Connects, and waits until both sides have proved their keys.
    fn connect(to: &HandOn, files: &IncomingFiles) -> io::Result<NextHost> {
        let peer = PublicKey::try_from(to.peer.clone()).map_err(io::Error::other)?;
        let location = SocketAddr::from((to.address, to.port));
        let (link, received) = Link::open(location, &files.identity, peer, REACHED, true)?;
        let mut next = NextHost {
            stream: TcpStream::from(link.as_fd().try_clone_to_owned()?),
            link: Arc::new(Mutex::new(link)),
            decoder: Decoder::default(),
        };
        next.decoder.push(&received);
        Ok(next)
    }

    /// Reads what has come. Returns whether the host has answered [`FileRequest::Sync`]; fails when
    /// it takes no more.
    fn receive(&mut self) -> io::Result<bool> {
        loop {
            match self.decoder.next_message::<Event>() {
                Ok(Some(message)) => match message.head {
                    Event::File(FileEvent::Synced { .. }) => return Ok(true),
                    Event::File(FileEvent::Landed { failed, .. }) => {
                        let why = failed.first().map(|(_, fault)| fault.to_string());
                        return Err(io::Error::other(why.unwrap_or_default()));
                    }
                    Event::Alive => {}
                    Event::Failed(failure) => return Err(io::Error::other(failure.problem)),
                    _ => return Err(io::Error::other(UNREQUESTED)),
                },
                Ok(None) => {
                    let before = self.decoder.waiting();
                    let mut link = self.link.lock();
                    link.flush()?;
                    let open = link.receive(&mut self.decoder)?;
                    drop(link);
                    if self.decoder.waiting() == before {
                        return match open {
                            true => Ok(false),
                            false => Err(io::ErrorKind::ConnectionReset.into()),
                        };
                    }
                }
                Err(malformed) => return Err(io::Error::other(malformed)),
            }
        }
    }

    fn send(&mut self, step: FileRequest, body: &[u8]) -> Result<(), Broken> {
        self.send_request(&Request::File(step), body)
    }

    fn send_request(&mut self, request: &Request, body: &[u8]) -> Result<(), Broken> {
        let head = codec::encode_head(request, body.len());
        let written = write_over(&self.link, &head).and_then(|()| write_over(&self.link, body));
        // its events tell why it takes no more
        let event = self.receive();
        match (event, written) {
            (Ok(true), _) => Err(Broken::after(UNREQUESTED)),
            (Err(error), _) | (_, Err(error)) => Err(error.into()),
            (Ok(false), Ok(())) => Ok(()),
        }
    }

    fn piece(&mut self, file: &IncomingFile, id: u32, piece: Piece) -> Result<(), Broken> {
        let mut block = Block {
            id,
            at: piece.at,
            content: content::zeros(piece.length),
            signature: Some(piece.signature),
        };
        let mut body = Vec::new();
        if !piece.is_zeros {
            let mut raw = vec![0; usize::try_from(piece.length).unwrap_or(0)];
            if source::read_at(file.partial.file(), piece.at, &mut raw)? < raw.len() {
                return Err(Broken::after("what has come cannot be read back whole"));
            }
            let packed = piece.packed || content::is_hole(&raw);
            (block.content, body) = content::pack(raw, packed);
        }
        self.send(FileRequest::Block(block), &body)
    }

    /// Waits until the host has written everything that was sent.
    fn end(&mut self, id: u32) -> Result<(), Broken> {
        self.send(FileRequest::Abandon { id, keep: true }, &[])?;
        let head = codec::encode_head(&Request::File(FileRequest::Sync { number: 1 }), 0);
        write_over(&self.link, &head)?;
        let until = Instant::now() + LAST;
        while !self.receive()? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Broken::after("it does not answer"));
            }
            let wait_for = self.link.lock().wait_for();
            is_ready(&self.stream, wait_for, Some(left));
        }
        let _ = self.link.lock().close();
        Ok(())
    }
}
