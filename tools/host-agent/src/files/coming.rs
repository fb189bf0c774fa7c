//! The files that come to this host, shared by all connections of one push in this process: the
//! login's conversation begins a file, further connections and other hosts bring parts of it, and
//! threads hand on what has come.

use super::shared_output::SharedOutput;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tls::Identity;
use transfer::content;
use transfer::partial::Partial;
use transfer::parts::Parts;
use wire::files::{BLOCK, Begin, Block, Content, Fault, FileEvent, Sum, Zeros};

/// How often the parts that have come are reported.
const TOLD: Duration = Duration::from_millis(200);
/// How many parts are reported. A file that broke off again and again could have more parts than a
/// line may hold.
const PARTS_TOLD: usize = 4096;

/// The files that come over all connections of this process.
pub struct Arrivals {
    /// The identity by which the tool and other hosts know this host.
    pub identity: Identity,
    /// The output of the login's conversation.
    pub told: Arc<SharedOutput>,
    /// The files by their keys.
    files: Mutex<BTreeMap<String, Weak<Coming>>>,
}

impl Arrivals {
    /// Creates a new identity.
    pub fn new(told: Arc<SharedOutput>) -> io::Result<Arrivals> {
        Ok(Arrivals {
            identity: Identity::new()?,
            told,
            files: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Coming>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a file that the login's conversation has begun.
    pub fn begin(&self, begin: Begin, partial: Partial) -> Arc<Coming> {
        let key = begin.key.clone();
        let coming = Arc::new(Coming::new(begin, partial));
        self.lock().insert(key, Arc::downgrade(&coming));
        coming
    }

    /// The file of this key, while it comes.
    pub fn find(&self, key: &str) -> Option<Arc<Coming>> {
        self.lock().get(key)?.upgrade()
    }
}

/// A file that comes to this host.
pub struct Coming {
    /// The request that began the file.
    pub begin: Begin,
    /// The partial file.
    pub partial: Partial,
    state: Mutex<State>,
    /// Notified when something has come, or nothing more will.
    moved: Condvar,
}

struct State {
    /// Blocks as they came, by their offsets; they are handed on with the checksums that they came
    /// with.
    pieces: BTreeMap<u64, Piece>,
    /// Whether no more comes.
    over: bool,
    told: Instant,
    /// The hosts to which the file is handed on, by their numbers.
    ways: BTreeMap<u32, HandingOn>,
}

#[derive(Clone, Copy)]
struct Piece {
    length: u32,
    sum: Sum,
    packed: bool,
}

/// The handing on of a file to one host.
#[derive(Default)]
struct HandingOn {
    stopped: bool,
    stream: Option<TcpStream>,
}

/// What can be handed on next.
pub enum Next {
    /// A part that has come.
    Part(Part),
    /// Nothing new has come for a while.
    Nothing,
    /// No more comes, or the file is not wanted any longer.
    Over,
}

/// A part that has come; at most a block.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The offset of its begin in the file.
    pub at: u64,
    /// The offset of its end in the file.
    pub end: u64,
    /// The checksum that it came with.
    pub sum: Option<Sum>,
    /// Whether it came compressed and is handed on compressed.
    pub packed: bool,
}

impl Coming {
    fn new(begin: Begin, partial: Partial) -> Coming {
        Coming {
            begin,
            partial,
            state: Mutex::new(State {
                pieces: BTreeMap::new(),
                over: false,
                told: Instant::now(),
                ways: BTreeMap::new(),
            }),
            moved: Condvar::new(),
        }
    }

    /// A file that another process has begun.
    pub fn elsewhere(begin: Begin, partial: Partial) -> Coming {
        Coming::new(begin, partial)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a block that came over any connection.
    pub fn block(&self, block: &Block, body: Vec<u8>, told: &SharedOutput) -> Result<(), Fault> {
        let content = content::unpack(&block.content, body)?;
        self.partial.write(block.at, &content)?;
        let Content {
            length,
            packed,
            sum,
        } = block.content;
        let piece = Piece {
            length,
            sum,
            packed,
        };
        self.came(Some((block.at, piece)), told);
        Ok(())
    }

    /// Writes a part that is all zeros.
    pub fn zeros(&self, zeros: &Zeros, told: &SharedOutput) -> Result<(), Fault> {
        self.partial.write_zeros(zeros.at, zeros.length)?;
        self.came(None, told);
        Ok(())
    }

    fn came(&self, piece: Option<(u64, Piece)>, told: &SharedOutput) {
        if !self.begin.chained {
            return;
        }
        let mut state = self.lock();
        state.pieces.extend(piece);
        let whole = self.partial.parts().is_whole(self.begin.file.bytes);
        let tell = whole || state.told.elapsed() >= TOLD;
        if tell {
            state.told = Instant::now();
        }
        drop(state);
        self.moved.notify_all();
        if tell {
            self.tell(told);
        }
    }

    /// Reports which parts have come.
    pub fn tell(&self, told: &SharedOutput) {
        let mut parts = self.partial.parts().list().to_vec();
        parts.truncate(PARTS_TOLD);
        told.tell(FileEvent::Came {
            id: self.begin.file.id,
            parts,
        });
    }

    /// The next of the wanted parts that has come.
    pub fn next(&self, wanted: &Parts, host: u32, patience: Duration) -> Next {
        let mut state = self.lock();
        let until = Instant::now() + patience;
        loop {
            if state.ways.get(&host).is_none_or(|way| way.stopped) {
                return Next::Over;
            }
            let there = self.partial.parts().both(wanted);
            if let Some(&(begin, end)) = there.list().first() {
                return Next::Part(part(&state.pieces, begin, end));
            }
            if state.over {
                return Next::Over;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Nothing;
            }
            let waited = self.moved.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Begins to hand the file on to a host, in place of an earlier attempt.
    pub fn begin_way(&self, host: u32) {
        self.stop_way(host);
        self.lock().ways.insert(host, HandingOn::default());
    }

    /// Stores the connection, so that it can be ended; `false` if it is to end already.
    pub fn connect_way(&self, host: u32, stream: TcpStream) -> bool {
        match self.lock().ways.get_mut(&host) {
            Some(way) if !way.stopped => {
                way.stream = Some(stream);
                true
            }
            _ => false,
        }
    }

    /// Stops handing the file on to a host.
    pub fn stop_way(&self, host: u32) {
        if let Some(way) = self.lock().ways.get_mut(&host) {
            way.stop();
        }
        self.moved.notify_all();
    }

    /// No more comes. Parts that have come are still handed on if the file is wanted.
    pub fn end(&self, wanted: bool) {
        let mut state = self.lock();
        state.over = true;
        if !wanted {
            state.ways.values_mut().for_each(HandingOn::stop);
        }
        drop(state);
        self.moved.notify_all();
    }

    /// Opens the file for reading, under the name that it has by now.
    pub fn open(&self) -> io::Result<File> {
        let partial = transfer::source::open(self.partial.path());
        partial.or_else(|_| transfer::source::open(self.begin.file.dst.path()))
    }
}

impl HandingOn {
    fn stop(&mut self) {
        self.stopped = true;
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The next piece to hand on of a part that has come: a whole block if one begins there.
fn part(pieces: &BTreeMap<u64, Piece>, begin: u64, end: u64) -> Part {
    let whole = pieces
        .get(&begin)
        .filter(|piece| begin + u64::from(piece.length) <= end);
    if let Some(piece) = whole {
        return Part {
            at: begin,
            end: begin + u64::from(piece.length),
            sum: Some(piece.sum),
            packed: piece.packed,
        };
    }
    let next = pieces.range(begin + 1..).next().map_or(end, |(at, _)| *at);
    Part {
        at: begin,
        end: end.min(next).min(begin + BLOCK),
        sum: None,
        packed: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_on_as_they_came() {
        let piece = |length| Piece {
            length,
            sum: Sum([7; 32]),
            packed: true,
        };
        let pieces = BTreeMap::from([(100, piece(50)), (150, piece(50))]);
        let table = [
            // from where to where | where it ends, whether it has its sum
            ((100, 300), (150, true)),
            ((150, 200), (200, true)),
            // only a part of a block is wanted
            ((100, 120), (120, false)),
            ((110, 300), (150, false)),
            // what was kept goes up to the next block, and at most a block at once
            ((0, 300), (100, false)),
            ((200, 200 + 3 * BLOCK), (200 + BLOCK, false)),
        ];
        for ((begin, end), expected) in table {
            let part = part(&pieces, begin, end);
            assert_eq!(
                (part.at, (part.end, part.sum.is_some())),
                (begin, expected),
                "{begin} {end}"
            );
            assert_eq!(part.packed, part.sum.is_some());
        }
    }
}
