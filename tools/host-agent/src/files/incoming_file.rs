//! The files that come to this host, shared by all connections of one push in this process: one of
//! the tool's begins a file, others of the tool's and other hosts bring parts of it, and threads
//! hand on what has come.

use super::stage::Stage;
use crate::output::SharedOutput;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tls::{Identity, PublicKey};
use transfer::content;
use transfer::partial::Partial;
use transfer::parts::Parts;
use transfer::source::FileVersion;
use wire::files::{Block, FileEvent, FileFault, Open, Signature, SignedPiece};

/// How often the parts that have come are reported.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// How many parts are reported. A file that broke off again and again could have more parts than a
/// line may hold.
const MOST_PARTS: usize = 4096;

/// Who sends the requests of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The tool: by its login, or with its key.
    Tool,
    /// Another host of the push, with this key.
    Host(PublicKey),
}

/// The files that come over all connections of this process.
pub struct IncomingFiles {
    /// The identity by which the tool and other hosts know this host.
    pub identity: Identity,
    /// The stage of the push, which the login's conversation has opened and puts away.
    pub stage: OnceLock<Weak<Stage>>,
    /// The files in whose places there are others whose checksums the tool has, by key: what those
    /// were like then.
    pub compared: Mutex<BTreeMap<String, FileVersion>>,
    by_key: Mutex<BTreeMap<String, Weak<IncomingFile>>>,
}

impl IncomingFiles {
    /// Creates a new identity.
    pub fn new() -> io::Result<IncomingFiles> {
        Ok(IncomingFiles {
            identity: Identity::new()?,
            stage: OnceLock::new(),
            compared: Mutex::default(),
            by_key: Mutex::default(),
        })
    }

    /// Registers a file that is begun.
    pub fn add(&self, file: &Arc<IncomingFile>) {
        let key = file.request.key.clone();
        self.by_key.lock().insert(key, Arc::downgrade(file));
    }

    /// The file of this key, while it comes.
    pub fn find(&self, key: &str) -> Option<Arc<IncomingFile>> {
        self.by_key.lock().get(key)?.upgrade()
    }
}

/// A file that comes to this host.
pub struct IncomingFile {
    /// The request that opened the file.
    pub request: Open,
    /// The partial file.
    pub partial: Partial,
    /// The key with which the tool signs the pieces of a file that hosts hand on.
    signer: Option<PublicKey>,
    /// The output of the conversation that has begun it.
    pub events: Arc<SharedOutput>,
    state: Mutex<State>,
    /// Notified when something has come, or nothing more will.
    changed: Condvar,
}

struct State {
    /// The pieces that can be handed on, by their offsets.
    pieces: BTreeMap<u64, Piece>,
    /// The hosts that have sent what the tool has not signed.
    refused: Vec<PublicKey>,
    /// Whether no more comes.
    is_over: bool,
    reported: Instant,
    /// The hosts to which the file is handed on, by their numbers, and the connections to them.
    forwards: BTreeMap<u32, Option<TcpStream>>,
}

/// A piece that has come, as it can be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset of the piece in the file, in bytes.
    pub at: u64,
    /// The length of the piece, in bytes.
    pub length: u64,
    /// The tool's signature.
    pub signature: Signature,
    /// Whether it was announced as zeros.
    pub is_zeros: bool,
    /// Whether it came compressed.
    pub packed: bool,
}

/// What can be handed on next.
pub enum NextPiece {
    /// A piece that has come.
    Piece(Piece),
    /// Nothing new has come for a while.
    Nothing,
    /// No more comes, or the file is not wanted any longer.
    Over,
}

impl IncomingFile {
    /// A file that is written here; its events go to this output.
    pub fn new(request: Open, partial: Partial, events: Arc<SharedOutput>) -> IncomingFile {
        let signer = request.chained.clone();
        IncomingFile {
            signer: signer.and_then(|key| PublicKey::try_from(key).ok()),
            request,
            partial,
            events,
            state: Mutex::new(State {
                pieces: BTreeMap::new(),
                refused: Vec::new(),
                is_over: false,
                reported: Instant::now(),
                forwards: BTreeMap::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Writes a block. Another host's is refused unless the tool has signed its place and content.
    pub fn block(&self, block: &Block, body: Vec<u8>, from: Caller) -> Result<(), FileFault> {
        let (at, length) = (block.at, u64::from(block.content.length));
        if self.has_from_other(at, length, from) {
            return Ok(());
        }
        let content = content::unpack(&block.content, body);
        if let Caller::Host(host) = from {
            let is_right = |content: &Option<Vec<u8>>| {
                let statement = content::statement(at, length, content.as_deref());
                self.is_signed(&statement, block.signature)
            };
            if !content.as_ref().is_ok_and(is_right) {
                self.refuse(host);
                return Ok(());
            }
        }
        self.partial.put(at, length, content?.as_deref())?;
        let piece = block.signature.map(|signature| Piece {
            at,
            length,
            signature,
            is_zeros: block.content.sum.is_none(),
            packed: block.content.packed,
        });
        self.arrived(piece);
        Ok(())
    }

    /// Whether another host brings what is here already, which is right.
    fn has_from_other(&self, at: u64, length: u64, from: Caller) -> bool {
        from != Caller::Tool && self.partial.parts().has(at, at.saturating_add(length))
    }

    fn is_signed(&self, statement: &[u8], signature: Option<Signature>) -> bool {
        self.signer
            .zip(signature)
            .is_some_and(|(signer, signature)| signer.has_signed(statement, &signature.0))
    }

    /// Takes nothing more from a host, and reports it once.
    fn refuse(&self, host: PublicKey) {
        let mut state = self.state.lock();
        if state.refused.contains(&host) {
            return;
        }
        state.refused.push(host);
        drop(state);
        let (id, peer) = (self.request.file.id, host.to_string());
        self.events.send(FileEvent::Refused { id, peer });
    }

    /// Whether a host has sent what the tool has not signed.
    pub fn has_refused(&self, host: PublicKey) -> bool {
        self.state.lock().refused.contains(&host)
    }

    /// The tool's signatures for what was kept.
    pub fn sign(&self, pieces: &[SignedPiece]) {
        let pieces = pieces.iter().map(|piece| Piece {
            at: piece.at,
            length: piece.length,
            signature: piece.signature,
            is_zeros: false,
            packed: false,
        });
        self.arrived(pieces);
    }

    /// Pieces that were written can be handed on; what is here is reported now and then.
    fn arrived(&self, pieces: impl IntoIterator<Item = Piece>) {
        if self.request.chained.is_none() {
            return;
        }
        let mut state = self.state.lock();
        let pieces = pieces.into_iter().map(|piece| (piece.at, piece));
        state.pieces.extend(pieces);
        let is_whole = self.partial.parts().is_whole(self.request.file.bytes);
        let is_due = is_whole || state.reported.elapsed() >= REPORT_INTERVAL;
        if is_due {
            state.reported = Instant::now();
        }
        drop(state);
        self.changed.notify_all();
        if is_due {
            self.report();
        }
    }

    /// Reports which parts have come.
    pub fn report(&self) {
        let mut parts = self.partial.parts().list().to_vec();
        parts.truncate(MOST_PARTS);
        let id = self.request.file.id;
        self.events.send(FileEvent::Arrived { id, parts });
    }

    /// The next piece that has come of the wanted parts.
    pub fn next(&self, wanted: &Parts, host: u32, patience: Duration) -> NextPiece {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            if !state.forwards.contains_key(&host) {
                return NextPiece::Over;
            }
            let here = self.partial.parts().both(wanted);
            let mut begins = here.list().iter().map(|(begin, _)| *begin);
            if let Some(piece) = begins.find_map(|begin| state.piece_at(begin)) {
                return NextPiece::Piece(piece);
            }
            if state.is_over {
                return NextPiece::Over;
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                return NextPiece::Nothing;
            }
        }
    }

    /// Begins to hand the file on to a host, in place of an earlier attempt.
    pub fn begin_forward(&self, host: u32) {
        self.stop_forward(host);
        self.state.lock().forwards.insert(host, None);
    }

    /// Stores the connection, so that it can be ended; `false` if it is to end already.
    pub fn connect_forward(&self, host: u32, stream: TcpStream) -> bool {
        let mut state = self.state.lock();
        let forward = state.forwards.get_mut(&host);
        forward.map(|forward| *forward = Some(stream)).is_some()
    }

    /// Stops handing the file on to a host.
    pub fn stop_forward(&self, host: u32) {
        let forward = self.state.lock().forwards.remove(&host);
        self.stop(forward);
    }

    /// Whether no more comes.
    pub fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// No more comes. Parts that have come are still handed on if the file is wanted.
    pub fn end(&self, is_wanted: bool) {
        let mut state = self.state.lock();
        state.is_over = true;
        let forwards = match is_wanted {
            true => BTreeMap::new(),
            false => std::mem::take(&mut state.forwards),
        };
        drop(state);
        self.stop(forwards.into_values());
    }

    fn stop(&self, forwards: impl IntoIterator<Item = Option<TcpStream>>) {
        for stream in forwards.into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }
}

impl State {
    /// The piece with the byte at this offset.
    fn piece_at(&self, at: u64) -> Option<Piece> {
        let before = self.pieces.range(..=at).rev();
        before
            .map(|(_, piece)| *piece)
            .find(|piece| at - piece.at < piece.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transfer::GRAIN;
    use transfer::folder::Folder;
    use transfer::partial::PartialNames;
    use wire::files::{Hex, Small};

    const SIZE: u64 = 4 * GRAIN;

    /// A file of four grains, whose pieces this identity signs, in a directory of its own.
    fn incoming(name: &str, tool: &Identity) -> IncomingFile {
        let name = format!("dgl-tools-incoming-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let names = PartialNames::new(Folder::open(&folder).unwrap(), "part");
        let partial = Partial::begin(names, SIZE, Parts::default(), None, true).unwrap();
        partial.scatter().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let request = Open {
            file: Small {
                id: 1,
                dst: "/w/a".into(),
                bytes: SIZE,
                mode: 0o644,
                mtime: None,
            },
            key: String::new(),
            keep: Vec::new(),
            earlier: false,
            chained: Some(tool.public_key().to_string()),
            sparse: true,
        };
        let events = Arc::new(SharedOutput::new(crate::output::EventOutput::default()));
        IncomingFile::new(request, partial, events)
    }

    /// A grain of this byte, at a place counted in grains, signed by this identity.
    fn grain(location: u64, byte: u8, signer: &Identity) -> (Block, Vec<u8>) {
        let content = vec![byte; usize::try_from(GRAIN).unwrap()];
        let at = location * GRAIN;
        let statement = content::statement(at, GRAIN, Some(&content));
        let block = Block {
            id: 1,
            at,
            content: content::plain(&content),
            signature: Some(Hex(signer.sign(&statement))),
        };
        (block, content)
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn of_what_other_hosts_bring_only_what_the_tool_has_signed_is_written() {
        let [tool, other_tool] = [(), ()].map(|()| Identity::new().unwrap());
        let zeros = |at: u64, length: u64, signer: &Identity| Block {
            id: 1,
            at,
            content: content::zeros(length),
            signature: Some(Hex(signer.sign(&content::statement(at, length, None)))),
        };
        let (right, content) = grain(1, 7, &tool);
        let other = vec![8; content.len()];
        // a block, its content, and whether it is taken
        let table = [
            (right, content.clone(), true),
            (grain(1, 7, &other_tool).0, content.clone(), false),
            (Block { at: 0, ..right }, content.clone(), false),
            (
                Block {
                    content: content::plain(&other),
                    ..right
                },
                other.clone(),
                false,
            ),
            // it has not the sum that it comes with
            (right, other, false),
            (
                Block {
                    signature: None,
                    ..right
                },
                content.clone(),
                false,
            ),
        ];
        let host = Identity::new().unwrap().public_key();
        for (block, body, is_right) in table {
            let file = incoming("block", &tool);
            file.block(&block, body, Caller::Host(host)).unwrap();
            let expected: &[_] = if is_right { &[(GRAIN, 2 * GRAIN)] } else { &[] };
            assert_eq!(file.partial.parts().list(), expected, "{block:?}");
            assert_eq!(file.has_refused(host), !is_right, "{block:?}");
        }
        let table = [
            (zeros(0, SIZE, &tool), true),
            (zeros(0, SIZE, &other_tool), false),
            (
                Block {
                    at: GRAIN,
                    ..zeros(0, SIZE, &tool)
                },
                false,
            ),
        ];
        for (zeros, is_right) in table {
            let file = incoming("zeros", &tool);
            file.block(&zeros, Vec::new(), Caller::Host(host)).unwrap();
            assert_eq!(file.partial.parts().is_whole(SIZE), is_right, "{zeros:?}");
            assert_eq!(file.has_refused(host), !is_right, "{zeros:?}");
        }
        // the tool itself is believed
        let file = incoming("tool", &tool);
        let unsigned = Block {
            signature: None,
            ..right
        };
        file.block(&unsigned, content, Caller::Tool).unwrap();
        assert_eq!(file.partial.parts().bytes(), GRAIN);
    }

    #[test]
    fn what_has_come_is_handed_on_in_the_pieces_that_were_signed() {
        let tool = Identity::new().unwrap();
        let file = incoming("pieces", &tool);
        for location in [0, 2] {
            let (block, body) = grain(location, 7, &tool);
            file.block(&block, body, Caller::Tool).unwrap();
        }
        file.begin_forward(9);
        let next = |begin, end| match file.next(&Parts::of(&[(begin, end)]), 9, Duration::ZERO) {
            NextPiece::Piece(piece) => Some((piece.at, piece.length)),
            NextPiece::Nothing | NextPiece::Over => None,
        };
        let table = [
            ((0, SIZE), Some((0, GRAIN))),
            // only a part of a piece is wanted
            ((100, GRAIN), Some((0, GRAIN))),
            ((GRAIN, SIZE), Some((2 * GRAIN, GRAIN))),
            ((GRAIN, 2 * GRAIN), None),
        ];
        for ((begin, end), expected) in table {
            assert_eq!(next(begin, end), expected, "{begin} {end}");
        }
        file.stop_forward(9);
        assert_eq!(next(0, SIZE), None);
    }
}
