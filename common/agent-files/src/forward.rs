//! Hands a file on to another host while it arrives here. The content is read back from the disk,
//! so a slow host delays only itself.

use super::incoming_file::{Available, IncomingFile, IncomingFiles};
use agent::output::{self, SharedLink};
use agent::requests::wait_until_readable;
use parking_lot::Mutex;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::TlsConnection;
use transfer::source::Pieces;
use transfer::{content, silence};
use wire::codec::{self, Decoder};
use wire::files::{Block, FileEvent, FileRequest, FileStep, HandOn};
use wire::{Event, Request};

/// How long to wait for the other host's port; within a cluster, a port that can be reached answers
/// within a millisecond.
const REACHED: Duration = Duration::from_secs(2);
/// After this long without new bytes, the other host gets a heartbeat.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the other host may take to write what was sent.
const LAST: Duration = Duration::from_secs(60);

/// Reports a failure as an event.
pub fn begin(file: &Arc<IncomingFile>, to: HandOn, files: Arc<IncomingFiles>) {
    let for_thread = Arc::clone(file);
    let thread = std::thread::Builder::new().spawn(move || {
        if let Err(error) = forward_file(&for_thread, &to, &files) {
            for_thread.not_handed_on(format!("{}:{}: {error}", to.address, to.port));
        }
    });
    if let Err(error) = thread {
        file.not_handed_on(format!("no thread can be started: {error}"));
    }
}

/// Hands a file on to its end, or until it is no longer wanted.
fn forward_file(file: &IncomingFile, to: &HandOn, files: &IncomingFiles) -> io::Result<()> {
    let location = SocketAddr::from((to.address, to.port));
    let (link, received) =
        TlsConnection::open(location, &files.identity, to.public_key, REACHED, true)?;
    file.connect_forward(TcpStream::from(link.as_fd().try_clone_to_owned()?));
    let link: SharedLink = Arc::new(Mutex::new(link.with_large_buffer()));
    let forwarded = send_file(&link, file, to);
    let written = forwarded.and_then(|()| wait_until_written(&link, &received));
    // a duplicate of the descriptor stays open
    link.lock().shutdown();
    written
}

fn send_file(link: &SharedLink, file: &IncomingFile, to: &HandOn) -> io::Result<()> {
    let partial_key = to.partial_key.clone();
    send(link, FileRequest::Handed { partial_key }, &[])?;
    let mut offset = 0;
    while offset < file.request.file.bytes {
        match file.wait_beyond(offset, PATIENCE) {
            Available::Until { end, packed } => {
                let mut pieces = Pieces::new(file.partial.file(), offset, end - offset);
                let mut buffer = Vec::new();
                while let Some(piece) = pieces.read_next(&mut buffer)? {
                    let (content, body) = if piece.is_zeros {
                        (content::zeros(piece.length), Vec::new())
                    } else {
                        content::pack(std::mem::take(&mut buffer), packed)
                    };
                    let block = FileStep::Write(Block {
                        id: to.other_id,
                        offset: piece.offset,
                        content,
                    });
                    send(link, FileRequest::Step(block), &body)?;
                }
                offset = end;
            }
            Available::Nothing => send_request(link, &Request::Alive, &[])?,
            Available::Over => return Err(io::Error::other("nothing more arrives")),
        }
    }
    send(link, FileRequest::Sync { number: 1 }, &[])
}

fn send(link: &SharedLink, request: FileRequest, body: &[u8]) -> io::Result<()> {
    send_request(link, &Request::File(request), body)
}

fn send_request(link: &SharedLink, request: &Request, body: &[u8]) -> io::Result<()> {
    output::write(
        link,
        &codec::encode_head(request, body.len()),
        Some(silence()),
    )?;
    output::write(link, body, Some(silence()))
}

fn wait_until_written(link: &SharedLink, received: &[u8]) -> io::Result<()> {
    let mut decoder = Decoder::default();
    decoder.push(received);
    let until = Instant::now() + LAST;
    while Instant::now() < until {
        let next = decoder.next_message().map_err(io::Error::other)?;
        match next.map(|message| message.head) {
            Some(Event::File(FileEvent::Synced { .. })) => return Ok(()),
            Some(Event::Failed(failure)) => return Err(io::Error::other(failure.problem)),
            Some(_) => {}
            None => {
                let before = decoder.waiting();
                let is_open = link.lock().receive(&mut decoder)?;
                if decoder.waiting() == before {
                    if !is_open {
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                    wait_until_readable(link, Some(LAST));
                }
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}
