//! Sends a part of a file uncompressed, block by block.

use remote::host_client::{HostClient, HostFailure};
use std::fs::File;
use tls::Identity;
use transfer::content;
use transfer::source::{self, Piece, Pieces};
use wire::files::{BLOCK, Block, FileEvent, FileRequest, Hex, Zeros};

/// How much is read ahead, so that the link never waits for this machine.
pub const AHEAD: u64 = 2 * BLOCK;

/// The result of sending a part of a file.
#[derive(Default)]
pub struct Sent {
    /// Bytes on the wire, to which zeros do not count.
    pub bytes: u64,
    /// What was wrong with the file, if anything.
    pub wrong: Option<String>,
}

/// The request for a piece that was read, and the bytes behind it, compressed if `packed`, and
/// signed if hosts may hand it on.
pub fn request(
    id: u32,
    piece: &Piece,
    raw: Vec<u8>,
    packed: bool,
    signer: Option<&Identity>,
) -> (FileRequest, Vec<u8>) {
    let (at, length) = (piece.at, piece.length);
    let signature = signer.map(|signer| {
        let content = (!piece.is_zeros).then_some(&raw[..]);
        Hex(signer.sign(&content::statement(at, length, content)))
    });
    if piece.is_zeros {
        let zeros = Zeros {
            id,
            at,
            length,
            signature,
        };
        return (FileRequest::Zeros(zeros), Vec::new());
    }
    let (content, body) = content::pack(raw, packed);
    let block = Block {
        id,
        at,
        content,
        signature,
    };
    (FileRequest::Block(block), body)
}

/// Sends a part of a file uncompressed. `moved` is called with the bytes that were sent or need not
/// be.
pub fn send_blocks(
    client: &mut HostClient,
    source: &File,
    (id, at, length): (u32, u64, u64),
    moved: &dyn Fn(u64),
) -> Result<Sent, HostFailure> {
    let mut pieces = Pieces::new(source, at, length);
    let mut buffer = Vec::new();
    let mut sent = Sent::default();
    while !has_failed(client, id) {
        let piece = match pieces.read_next(&mut buffer) {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(error) => {
                sent.wrong = Some(source::why(&error));
                return Ok(sent);
            }
        };
        if piece.is_zeros {
            client.send(request(id, &piece, Vec::new(), false, None).0);
            moved(piece.length);
            client.drain(AHEAD, &|_| ())?;
            continue;
        }
        send_block(client, source, (id, &piece), &mut buffer)?;
        sent.bytes += piece.length;
        client.drain(AHEAD, moved)?;
        sent.wrong = client.source_fault();
        if sent.wrong.is_some() {
            return Ok(sent);
        }
    }
    // wait for the end, so that a fault of the source is attributed to this file; the pipe and ssh
    // hold enough to keep the link busy
    client.drain(0, moved)?;
    sent.wrong = client.source_fault();
    Ok(sent)
}

/// Sends a piece whose content was read to the buffer; without a copy where the connector can.
fn send_block(
    client: &mut HostClient,
    source: &File,
    (id, piece): (u32, &Piece),
    buffer: &mut Vec<u8>,
) -> Result<(), HostFailure> {
    let at = piece.at;
    let block = FileRequest::Block(Block {
        id,
        at,
        content: content::plain(buffer),
        signature: None,
    });
    if client.copies_files() {
        client.send_read(block, buffer);
    } else {
        let again = source
            .try_clone()
            .map_err(|error| HostFailure::reported(error.to_string()))?;
        client.send_file(block, again, at, buffer.len());
    }
    Ok(())
}

/// Whether the host has already reported that the file failed.
fn has_failed(client: &HostClient, id: u32) -> bool {
    client.events().any(|told| {
        matches!(told, FileEvent::Landed { failed,
        .. } if failed.iter().any(|(failed, _)| *failed == id))
    })
}
