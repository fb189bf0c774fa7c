//! Sends a part of a file uncompressed, block by block.

use remote::host_client::{HostClient, HostFailure};
use std::fs::File;
use transfer::{content, source};
use wire::files::{BLOCK, Block, FileEvent, FileRequest, Zeros};

/// How much is read ahead, so that the link never waits for this machine.
pub const AHEAD: u64 = 2 * BLOCK;

/// The problem of a file that ended too early.
pub const SHORTER: &str = "it became shorter while it was read";

/// The result of sending a part of a file.
pub struct Sent {
    /// Bytes on the wire, to which zeros do not count.
    pub bytes: u64,
    /// What was wrong with the file, if anything.
    pub wrong: Option<String>,
}

/// Sends a part of a file uncompressed. `moved` is called with the bytes that were sent or need not
/// be.
pub fn send_blocks(
    client: &mut HostClient,
    source: &File,
    (id, at, length): (u32, u64, u64),
    moved: &dyn Fn(u64),
) -> Result<Sent, HostFailure> {
    let mut buffer = Vec::new();
    let mut done = 0;
    let mut zeros = 0;
    let sent = |done: u64, zeros: u64, wrong: Option<String>| Sent {
        bytes: done - zeros,
        wrong,
    };
    while done < length && !has_failed(client, id) {
        if let Some(length) = source::hole(source, at + done, length - done) {
            send_zeros(client, (id, at + done, length), moved)?;
            done += length;
            zeros += length;
            continue;
        }
        let room = usize::try_from(BLOCK.min(length - done)).unwrap_or(0);
        buffer.resize(room, 0);
        match source::read_at(source, at + done, &mut buffer) {
            Ok(count) if count == room => {}
            Ok(_) => return Ok(sent(done, zeros, Some(SHORTER.to_owned()))),
            Err(error) => return Ok(sent(done, zeros, Some(error.to_string()))),
        }
        let (at, bytes) = (at + done, room as u64);
        done += bytes;
        if content::is_hole(&buffer) {
            send_zeros(client, (id, at, bytes), moved)?;
            zeros += bytes;
            continue;
        }
        let block = FileRequest::Block(Block {
            id,
            at,
            content: content::plain(&buffer),
        });
        if client.copies_files() {
            client.send_read(block, &mut buffer);
        } else {
            let again = source
                .try_clone()
                .map_err(|error| HostFailure::reported(error.to_string()))?;
            client.send_file(block, again, at, room);
        }
        client.drain(AHEAD, moved)?;
        if let Some(wrong) = client.source_fault() {
            return Ok(sent(done, zeros, Some(wrong)));
        }
    }
    // wait for the end, so that a fault of the source is attributed to this file; the pipe and ssh
    // hold enough to keep the link busy
    client.drain(0, moved)?;
    Ok(sent(done, zeros, client.source_fault()))
}

/// Announces a part that is all zeros, in place of its content.
fn send_zeros(
    client: &mut HostClient,
    (id, at, length): (u32, u64, u64),
    moved: &dyn Fn(u64),
) -> Result<(), HostFailure> {
    client.send(FileRequest::Zeros(Zeros { id, at, length }));
    moved(length);
    client.drain(AHEAD, &|_| ())
}

/// Whether the host has already reported that the file failed.
fn has_failed(client: &HostClient, id: u32) -> bool {
    client.events().any(|told| {
        matches!(told, FileEvent::Landed { failed,
        .. } if failed.iter().any(|(failed, _)| *failed == id))
    })
}
