//! The files that come to this host, shared by all connections of one push in this process: the
//! login's conversation begins a file, further connections and other hosts bring parts of it, and
//! threads hand on what has come.

use super::shared_output::SharedOutput;
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tls::{Identity, PublicKey};
use transfer::partial::Partial;
use transfer::parts::Parts;
use transfer::vouched::{Digest, Verdict, Vouched};
use transfer::{GRAIN, content};
use wire::files::{self, BLOCK, Begin, Block, Content, Fault, FileEvent, Sum, Zeros};

/// How often the parts that have come are reported.
const TOLD: Duration = Duration::from_millis(200);
/// How many parts are reported. A file that broke off again and again could have more parts than a
/// line may hold.
const PARTS_TOLD: usize = 4096;
/// How much may have been handed on for which the tool has not vouched yet. It does so within
/// 50 ms, in which even the fastest link brings fewer blocks.
const MOST_WAITING: usize = 4096;
/// How long a host that has handed on wrong content has to hear from the tool that it is to stop.
/// Until then what it sends is thrown away.
const LEAVES: Duration = Duration::from_secs(5);

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

    /// The same, if the tool has let this host hand it on to this one.
    pub fn find_handed(&self, key: &str, pass: Sum, host: PublicKey) -> Option<Arc<Coming>> {
        let coming = self.find(key)?;
        let secret = coming.begin.chained?;
        (content::pass(&secret, &host.to_string()) == pass).then_some(coming)
    }
}

/// A file that comes to this host.
pub struct Coming {
    /// The request that began the file.
    pub begin: Begin,
    /// The partial file.
    pub partial: Partial,
    /// What other hosts bring. The lock is held while a chained file is written or read back: what
    /// is on the disk and what is known of it change together, or content of one host would count
    /// by the digest of another's. Whoever waits for it would wait for the same disk. Nothing is
    /// reported under it, because whoever reads the reports may be slow.
    handed: Mutex<Handed>,
    state: Mutex<State>,
    /// Notified when something has come, or nothing more will.
    moved: Condvar,
}

/// What other hosts bring of a file.
#[derive(Default)]
struct Handed {
    /// Whether that is what the tool has read.
    vouched: Vouched<Bringer>,
    /// The hosts that have brought something else, and since when they are known.
    refused: Vec<(PublicKey, Instant)>,
}

impl Handed {
    /// Takes nothing more from a host; `false` if that was so before.
    fn refuse(&mut self, host: PublicKey) -> bool {
        let is_new = self.refused.iter().all(|(refused, _)| *refused != host);
        if is_new {
            self.refused.push((host, Instant::now()));
        }
        is_new
    }
}

/// What has shown to be right.
#[derive(Default)]
struct Judged {
    counted: bool,
    /// The blocks that can be handed on as they came.
    pieces: Vec<(u64, Piece)>,
}

/// Who has brought a piece.
#[derive(Clone, Copy)]
struct Bringer {
    host: PublicKey,
    /// Whether it came compressed.
    packed: bool,
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
            handed: Mutex::default(),
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

    fn lock_handed(&self) -> MutexGuard<'_, Handed> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a block that came from the tool.
    pub fn block(&self, block: &Block, body: Vec<u8>, told: &SharedOutput) -> Result<(), Fault> {
        let content = content::unpack(&block.content, body)?;
        let end = block.at.saturating_add(content.len() as u64);
        self.write((block.at, end), || self.partial.write(block.at, &content))?;
        let Content {
            length,
            packed,
            sum,
        } = block.content;
        let piece = sum.strong().map(|sum| {
            let piece = Piece {
                length,
                sum,
                packed,
            };
            (block.at, piece)
        });
        self.came(piece, told);
        Ok(())
    }

    /// Writes a part that is all zeros, as the tool says.
    pub fn zeros(&self, zeros: &Zeros, told: &SharedOutput) -> Result<(), Fault> {
        let (at, length) = (zeros.at, zeros.length);
        let end = at.saturating_add(length);
        self.write((at, end), || self.partial.write_zeros(at, length))?;
        self.came([], told);
        Ok(())
    }

    /// Writes what came from the tool, in place of what another host has brought.
    fn write(
        &self,
        (begin, end): (u64, u64),
        write: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.begin.chained.is_none() {
            return write();
        }
        let mut handed = self.lock_handed();
        handed.vouched.forget(begin, end);
        write()
    }

    /// A host begins to hand on what does not count yet, in place of any other. What one has
    /// brought is not judged together with what another brings.
    pub fn begin_handed(&self, host: PublicKey) {
        let mut handed = self.lock_handed();
        handed.vouched.keep_only(|from| from.host == host);
    }

    /// Writes a block that another host hands on.
    pub fn handed_block(
        &self,
        block: &Block,
        body: Vec<u8>,
        host: PublicKey,
        told: &SharedOutput,
    ) -> Result<(), Fault> {
        let packed = block.content.packed;
        match content::unpack(&block.content, body) {
            Ok(content) => {
                let part = (block.at, block.at.saturating_add(content.len() as u64));
                let digest = block.content.sum.strong().map(Digest::Sum);
                self.take(
                    part,
                    (digest, Some(&content)),
                    Bringer { host, packed },
                    told,
                )
            }
            // it has read its own disk wrongly, or lies
            Err(_) => {
                let refused = self.lock_handed().refuse(host);
                self.report_refused(refused.then_some(host), told);
                Ok(())
            }
        }
    }

    /// Writes a part that is all zeros, as another host says.
    pub fn handed_zeros(
        &self,
        zeros: &Zeros,
        host: PublicKey,
        told: &SharedOutput,
    ) -> Result<(), Fault> {
        let part = (zeros.at, zeros.at.saturating_add(zeros.length));
        let packed = false;
        self.take(
            part,
            (Some(Digest::Zeros), None),
            Bringer { host, packed },
            told,
        )
    }

    /// Writes what another host brings, except what is here already, which is right. It counts when
    /// the tool vouches for it, or has done so.
    fn take(
        &self,
        part: (u64, u64),
        (digest, content): (Option<Digest>, Option<&[u8]>),
        from: Bringer,
        told: &SharedOutput,
    ) -> Result<(), Fault> {
        let mut handed = self.lock_handed();
        if handed.refused.iter().any(|(host, _)| *host == from.host) {
            return Ok(());
        }
        let is_grain = |at: u64| at.is_multiple_of(GRAIN) || at == self.begin.file.bytes;
        if !is_grain(part.0) || !is_grain(part.1) || handed.vouched.waiting() >= MOST_WAITING {
            return Err(Fault::OutOfOrder);
        }
        let new = Parts::of(&[part]).without(&self.partial.parts());
        for &(begin, end) in new.list() {
            // a write that fails half-way leaves neither what was there nor what is brought now
            handed.vouched.forget(begin, end);
            match content {
                Some(content) => {
                    let range = [begin, end].map(|at| usize::try_from(at - part.0).unwrap_or(0));
                    self.partial.put(begin, &content[range[0]..range[1]])?;
                }
                None => self.partial.put_zeros(begin, end - begin)?,
            }
            let digest = digest.filter(|_| (begin, end) == part);
            handed.vouched.bring(begin, end, digest, from);
        }
        self.judge(handed, &[part], told)
    }

    /// The tool tells what pieces of the file are.
    pub fn vouch(&self, pieces: &[files::PieceSum], told: &SharedOutput) -> Result<(), Fault> {
        let mut handed = self.lock_handed();
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let part = (piece.at, piece.at.saturating_add(piece.length));
            let digest = piece.sum.map_or(Digest::Zeros, Digest::Sum);
            handed.vouched.vouch(part.0, part.1, digest);
            parts.push(part);
        }
        self.judge(handed, &parts, told)
    }

    /// What was brought of these parts and is right counts from now on; what is wrong is refused.
    fn judge(
        &self,
        mut handed: MutexGuard<'_, Handed>,
        parts: &[(u64, u64)],
        told: &SharedOutput,
    ) -> Result<(), Fault> {
        let (mut judged, mut refused) = (Judged::default(), Vec::new());
        let parts = parts.iter().copied();
        let result = parts
            .into_iter()
            .try_for_each(|part| self.judge_part(part, &mut handed, (&mut judged, &mut refused)));
        drop(handed);
        self.report_refused(refused, told);
        if judged.counted {
            self.came(judged.pieces, told);
        }
        result
    }

    fn judge_part(
        &self,
        part: (u64, u64),
        handed: &mut Handed,
        (judged, refused): (&mut Judged, &mut Vec<PublicKey>),
    ) -> Result<(), Fault> {
        let is_of = |begin, end, digest: &Digest| digest.is_of(self.partial.file(), begin, end);
        loop {
            let there = self.partial.parts();
            let next = handed.vouched.next_verdict(part, &there, &is_of);
            match next.map_err(|error| Fault::system(&error))? {
                None => return Ok(()),
                Some(Verdict::Wrong(from)) => {
                    refused.extend(handed.refuse(from.host).then_some(from.host));
                }
                Some(Verdict::Right { begin, end, whole }) => {
                    self.partial.count(begin, end)?;
                    judged.counted = true;
                    if let Some((Digest::Sum(sum), Bringer { packed, .. })) = whole {
                        let length = u32::try_from(end - begin).unwrap_or(u32::MAX);
                        let piece = Piece {
                            length,
                            sum,
                            packed,
                        };
                        judged.pieces.push((begin, piece));
                    }
                }
            }
        }
    }

    /// Reports hosts that have brought wrong content.
    fn report_refused(&self, hosts: impl IntoIterator<Item = PublicKey>, told: &SharedOutput) {
        for host in hosts {
            let (id, peer) = (self.begin.file.id, host.to_string());
            told.tell(FileEvent::Refused { id, peer });
        }
    }

    /// Whether the conversation of a host that has brought wrong content is to end.
    pub fn is_over_with(&self, host: PublicKey) -> bool {
        let handed = self.lock_handed();
        let mut refused = handed.refused.iter();
        refused.any(|(refused, since)| *refused == host && since.elapsed() > LEAVES)
    }

    /// Parts have come, some of them in blocks that can be handed on as they came.
    fn came(&self, pieces: impl IntoIterator<Item = (u64, Piece)>, told: &SharedOutput) {
        if self.begin.chained.is_none() {
            return;
        }
        let mut state = self.lock();
        state.pieces.extend(pieces);
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

    use std::os::unix::fs::FileExt;
    use transfer::content::Way;
    use transfer::folder::Folder;
    use transfer::partial::Names;

    const SIZE: usize = 4 * GRAIN as usize;

    /// A file of four grains that other hosts bring, in a folder of its own.
    fn coming(name: &str) -> Coming {
        let (begin, partial) = begun(name);
        Coming::new(begin, partial)
    }

    fn begun(name: &str) -> (Begin, Partial) {
        let name = format!("dgl-tools-coming-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let names = Names::new(Folder::open(&folder).unwrap(), "part");
        let partial = Partial::begin(names, SIZE as u64, Parts::default(), None, true).unwrap();
        partial.scatter().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let file = files::Small {
            id: 1,
            dst: "/w/a".into(),
            bytes: SIZE as u64,
            mode: 0o644,
            mtime: None,
        };
        let begin = Begin {
            file,
            key: String::new(),
            keep: Vec::new(),
            earlier: false,
            scattered: false,
            chained: Some(Sum([7; 32])),
            sparse: true,
        };
        (begin, partial)
    }

    /// A grain of this byte, at a place counted in grains.
    fn grain(place: u64, byte: u8) -> (Block, Vec<u8>) {
        let content = vec![byte; GRAIN as usize];
        let block = Block {
            id: 1,
            at: place * GRAIN,
            content: content::plain(&content, Way::ByOthers),
        };
        (block, content)
    }

    #[test]
    fn what_other_hosts_bring_counts_where_it_is_right_and_nothing_else_is_kept() {
        let coming = coming("right");
        let told = SharedOutput::new(crate::output::Output::default());
        let [one, other] = [(), ()].map(|()| Identity::new().unwrap().public_key());
        let bring = |place, byte, host| {
            let (block, body) = grain(place, byte);
            coming.handed_block(&block, body, host, &told)
        };
        let vouch = |place, byte| {
            let (block, _) = grain(place, byte);
            let (at, sum) = (block.at, block.content.sum.strong());
            let length = GRAIN;
            coming
                .vouch(&[files::PieceSum { at, length, sum }], &told)
                .unwrap();
        };
        let counted = || coming.partial.parts().list().to_vec();
        bring(0, 7, one).unwrap();
        assert_eq!(counted(), [], "the tool has not vouched for it");
        vouch(0, 7);
        vouch(1, 7);
        assert_eq!(counted(), [(0, GRAIN)]);
        bring(0, 8, one).unwrap();
        let mut there = vec![0; GRAIN as usize];
        coming.partial.file().read_exact_at(&mut there, 0).unwrap();
        assert!(
            there == vec![7; GRAIN as usize],
            "what is here is not overwritten"
        );
        // with a sum of its own
        bring(1, 8, one).unwrap();
        bring(1, 7, one).unwrap();
        assert_eq!(
            counted(),
            [(0, GRAIN)],
            "who was wrong once is not listened to"
        );
        bring(1, 7, other).unwrap();
        assert_eq!(counted(), [(0, 2 * GRAIN)]);
        // content that has not the sum that it comes with
        let (block, _) = grain(2, 7);
        coming
            .handed_block(&block, vec![8; GRAIN as usize], other, &told)
            .unwrap();
        vouch(2, 7);
        bring(2, 7, other).unwrap();
        assert_eq!(counted(), [(0, 2 * GRAIN)]);
        // the tool itself is believed
        let (block, body) = grain(2, 7);
        coming.block(&block, body, &told).unwrap();
        assert_eq!(counted(), [(0, 3 * GRAIN)]);
    }

    #[test]
    fn a_sum_that_others_can_make_content_for_says_nothing_so_the_content_is_read() {
        let coming = coming("quick");
        let told = SharedOutput::new(crate::output::Output::default());
        let (at, length) = (0, GRAIN);
        let sum = grain(0, 7).0.content.sum.strong();
        coming
            .vouch(&[files::PieceSum { at, length, sum }], &told)
            .unwrap();
        for (byte, counted) in [(8, vec![]), (7, vec![(0, GRAIN)])] {
            let (mut block, body) = grain(0, byte);
            block.content = content::plain(&body, Way::Straight);
            let host = Identity::new().unwrap().public_key();
            coming.handed_block(&block, body, host, &told).unwrap();
            assert_eq!(coming.partial.parts().list(), counted, "{byte}");
        }
    }

    #[test]
    fn what_a_write_that_failed_may_have_replaced_does_not_count() {
        let coming = coming("failed");
        let told = SharedOutput::new(crate::output::Output::default());
        let host = Identity::new().unwrap().public_key();
        let (block, body) = grain(3, 7);
        coming.handed_block(&block, body, host, &told).unwrap();
        // it ends behind the end of the file
        let content = vec![8; 2 * GRAIN as usize];
        let other = Block {
            content: content::plain(&content, Way::ByOthers),
            ..block
        };
        let failed = coming.handed_block(&other, content, host, &told);
        assert_eq!(failed, Err(Fault::OutOfOrder));
        let piece = files::PieceSum {
            at: block.at,
            length: GRAIN,
            sum: block.content.sum.strong(),
        };
        coming.vouch(&[piece], &told).unwrap();
        assert_eq!(coming.partial.parts().list(), []);
    }

    #[test]
    fn a_file_comes_only_from_a_host_that_the_tool_has_told_to_hand_it_on_here() {
        let told = Arc::new(SharedOutput::new(crate::output::Output::default()));
        let arrivals = Arrivals::new(told).unwrap();
        let [host, other] = [(), ()].map(|()| Identity::new().unwrap().public_key());
        let files = [
            ("one", Some(Sum([7; 32]))),
            ("two", Some(Sum([8; 32]))),
            ("alone", None),
        ];
        let files = files.map(|(key, chained)| {
            let (begin, partial) = begun(key);
            let key = key.to_owned();
            arrivals.begin(
                Begin {
                    key,
                    chained,
                    ..begin
                },
                partial,
            )
        });
        let pass = content::pass(&Sum([7; 32]), &host.to_string());
        let table = [
            ("one", pass, host, true),
            ("one", pass, other, false),
            ("one", Sum([7; 32]), host, false),
            ("two", pass, host, false),
            ("alone", pass, host, false),
            ("alone", Sum([0; 32]), host, false),
            ("three", pass, host, false),
        ];
        for (key, pass, host, expected) in table {
            let found = arrivals.find_handed(key, pass, host);
            assert_eq!(found.is_some(), expected, "{key} {pass:?}");
        }
        drop(files);
    }

    #[test]
    fn what_is_in_no_order_is_not_taken_from_other_hosts() {
        let coming = coming("order");
        let told = SharedOutput::new(crate::output::Output::default());
        let host = Identity::new().unwrap().public_key();
        let table = [
            (3 * GRAIN + 1, GRAIN - 1),
            (0, GRAIN + 1),
            (3 * GRAIN, 2 * GRAIN),
            (u64::MAX, 1),
        ];
        for (at, length) in table {
            let zeros = Zeros { id: 1, at, length };
            let taken = coming.handed_zeros(&zeros, host, &told);
            assert_eq!(taken, Err(Fault::OutOfOrder), "{at} {length}");
        }
    }

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
