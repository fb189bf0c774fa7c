//! Sends the pieces of a file.

use remote::Body;
use remote::HostFault;
use remote::host_link::HostLink;
use std::fs::File;
use transfer::content;
use transfer::source::SourcePiece;
use wire::files::{BLOCK, Block, Content, FileRequest, FileStep};

/// How much is read ahead, so that the link never waits for this machine.
pub const AHEAD: u64 = 2 * BLOCK;

/// Queues a piece of the file `id`, which was read into the buffer, compressed if `packed`. Returns
/// how many bytes are sent.
pub fn send(
    link: &mut HostLink,
    source: &File,
    (id, piece): (u32, &SourcePiece),
    buffer: &mut Vec<u8>,
    packed: bool,
) -> Result<u64, HostFault> {
    let (offset, length) = (piece.offset, piece.length);
    let block = |content: Content| {
        FileRequest::Step(FileStep::Write(Block {
            id,
            offset,
            content,
        }))
    };
    if piece.is_zeros {
        link.send(block(content::zeros(length)));
        return Ok(0);
    }
    if packed || link.copies_files() {
        let (content, body) = content::pack(std::mem::take(buffer), packed);
        *buffer = body;
        let bytes = buffer.len() as u64;
        link.send_with(block(content), Body::Bytes(std::mem::take(buffer)));
        *buffer = link.buffer();
        return Ok(bytes);
    }
    // without a copy if the connector can do that
    let file = source.try_clone();
    let file = file.map_err(|error| HostFault::reported(error.to_string()))?;
    let body = Body::File {
        file,
        offset,
        length: buffer.len(),
    };
    link.send_with(block(content::plain(buffer)), body);
    Ok(length)
}
