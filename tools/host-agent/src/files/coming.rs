//! Files that come to this host, for all connections of one push that this process has: the login's
//! conversation begins one, further connections and other hosts bring parts of it, and threads hand
//! on what has come.

use super::SharedOutput;
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

/// What has come is told so often.
const TOLD: Duration = Duration::from_millis(200);
/// So many parts are told of: kept ones of a file that broke off again and again could be more than
/// a line may hold.
const PARTS_TOLD: usize = 4096;

/// All that comes over the connections of this process.
pub struct Arrivals {
    /// By which the tool and other hosts know this host.
    pub identity: Identity,
    /// What the login's conversation tells.
    pub told: Arc<SharedOutput>,
    /// By key.
    files: Mutex<BTreeMap<String, Weak<Coming>>>,
}

impl Arrivals {
    /// With a key of its own.
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

    /// A file that the login's conversation has begun.
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

/// A file that comes.
pub struct Coming {
    /// What it will be.
    pub begin: Begin,
    /// What there is of it.
    pub partial: Partial,
    state: Mutex<State>,
    /// Something has come, or nothing more will.
    moved: Condvar,
}

struct State {
    /// Blocks as they came, by where they begin: they go on with the sums that they came with.
    pieces: BTreeMap<u64, Piece>,
    /// No more comes.
    over: bool,
    told: Instant,
    /// The ways on to other hosts, by their numbers.
    ways: BTreeMap<u32, Way>,
}

#[derive(Clone, Copy)]
struct Piece {
    length: u32,
    sum: Sum,
    packed: bool,
}

/// A way on to another host.
#[derive(Default)]
struct Way {
    stopped: bool,
    stream: Option<TcpStream>,
}

/// What can go on to another host next.
pub enum Next {
    /// A part that has come.
    Part(Part),
    /// Nothing new for a while.
    Nothing,
    /// No more comes, or it is not wanted any more.
    Over,
}

/// A part that has come: at most a block.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it begins.
    pub at: u64,
    /// Where it ends.
    pub end: u64,
    /// The sum that it came with.
    pub sum: Option<Sum>,
    /// It came compressed, so it goes so too.
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

    /// One that another process has begun.
    pub fn elsewhere(begin: Begin, partial: Partial) -> Coming {
        Coming::new(begin, partial)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block that came over any connection.
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

    /// Takes a part that is all zeros.
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

    /// Tells what has come.
    pub fn tell(&self, told: &SharedOutput) {
        let mut parts = self.partial.parts().list().to_vec();
        parts.truncate(PARTS_TOLD);
        told.tell(FileEvent::Came {
            id: self.begin.file.id,
            parts,
        });
    }

    /// The next part that has come of these.
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

    /// A way to another host begins, in place of one that there may be.
    pub fn begin_way(&self, host: u32) {
        self.stop_way(host);
        self.lock().ways.insert(host, Way::default());
    }

    /// Its connection, so that it can be ended; `false` if it is to end.
    pub fn connect_way(&self, host: u32, stream: TcpStream) -> bool {
        match self.lock().ways.get_mut(&host) {
            Some(way) if !way.stopped => {
                way.stream = Some(stream);
                true
            }
            _ => false,
        }
    }

    /// Ends a way.
    pub fn stop_way(&self, host: u32) {
        if let Some(way) = self.lock().ways.get_mut(&host) {
            way.stop();
        }
        self.moved.notify_all();
    }

    /// No more comes. What has come goes on still, unless it is not wanted any more.
    pub fn end(&self, wanted: bool) {
        let mut state = self.lock();
        state.over = true;
        if !wanted {
            state.ways.values_mut().for_each(Way::stop);
        }
        drop(state);
        self.moved.notify_all();
    }

    /// Opens it to be read, under whichever name it has by now.
    pub fn open(&self) -> io::Result<File> {
        let partial = transfer::source::open(self.partial.path());
        partial.or_else(|_| transfer::source::open(self.begin.file.dst.path()))
    }
}

impl Way {
    fn stop(&mut self) {
        self.stopped = true;
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// What goes on at once of a part that has come: a block as it came, where it begins there.
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
