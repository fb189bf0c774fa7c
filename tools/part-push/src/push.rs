//! Sends to one host what it lacks: the next file is on its way before the host has said a word about the last one.

use crate::feed::{self, Gone, PIECE};
use crate::plan::{self, Delivery, Job, Source, key};
use crate::site::{self, Answer, Broken, Site};
use common::cksum;
use common::listing::patience;
use common::remote::lanes::{BLOCK, Lanes};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Enough that the link never waits for us.
const AHEAD: u64 = 2 * PIECE as u64;
/// Whether to compress is asked anew after so much of a file,
const SEGMENT: u64 = 32 << 20;
/// then after twice as much, up to this: each time costs the host a few processes, in which what arrives piles up in its sshd.
const LONGEST_SEGMENT: u64 = 512 << 20;
/// For less the host makes no preparations.
const MUCH: u64 = 1 << 20;
/// `--compress auto`: the first so much of a host's data goes plain and shows the rate of the link.
const PROBE: u64 = 4 << 20;
/// What all hosts together have in the making of one compressed piece each.
const PACKED_MEMORY: usize = 8 << 20;
/// A sample of so much shows whether data shrink.
const SAMPLE: usize = 1 << 20;
/// Above this rate of a link zstd is not worth a thought.
const FAST_LINK: f64 = 500e6;
/// Compressing must make it so much quicker, because it costs processor time on both sides.
const WORTH: f64 = 0.8;

/// How to send.
#[derive(Clone, Copy)]
pub struct Options {
    /// Compare checksums.
    pub verify: bool,
    /// Put files on the disk.
    pub fsync: bool,
    /// Compress: always, never, or as it pays.
    pub compress: Option<bool>,
    /// So much at once.
    pub piece: usize,
    /// Connections to each host, and for files from which size on.
    pub streams: (usize, u64),
}

/// How much to compress at once when so many hosts are sent to. Each piece costs the host a process to take it off the stream (1 ms:
/// pieces of 128 KiB kept a host at 110 MB/s), and a handful of them are in memory for each host.
pub fn piece(hosts: usize) -> usize {
    (PACKED_MEMORY / hosts.max(1)).clamp(128 << 10, 2 << 20)
}

/// What became of a delivery.
pub struct Outcome {
    /// Why it is not there.
    pub error: Option<String>,
    /// What went over the wire for it.
    pub sent_bytes: u64,
    /// From the beginning of its sending to the host's word.
    pub elapsed: Duration,
}

/// Who is told.
pub trait Watch: Sync {
    /// So many bytes more are on their way or need not be sent.
    fn moved(&self, bytes: u64);
    /// A delivery is done.
    fn done(&self, delivery: &Delivery, outcome: Outcome);
}

/// Sends, and tells of each delivery as soon as the host has shown that it is there.
pub fn push(
    site: &mut Site,
    deliveries: &[&Delivery],
    options: Options,
    more: &dyn Fn() -> Option<Site>,
    watch: &dyn Watch,
) -> Result<(), Broken> {
    let (files, others): (Vec<&Delivery>, Vec<&Delivery>) = deliveries.iter().partition(|delivery| delivery.has_bytes());
    let jobs = plan::jobs(&files, site.has("tar"));
    let auto = options.compress.is_none() && site.has("zstd");
    let mut push = Push {
        site,
        options,
        watch,
        expected: VecDeque::new(),
        arrived: Vec::new(),
        whole: VecDeque::new(),
        sent: BTreeMap::new(),
        rate: None,
        too_slow: false,
        batch_broke: false,
        alone: BTreeMap::new(),
        heard_got: Instant::now(),
        auto,
        lanes: Lanes::new(options.streams, more),
    };
    push.site.begin();
    push.without_bytes(&others);
    if files.iter().map(|file| file.bytes).sum::<u64>() >= MUCH {
        push.site.say("much");
    }
    for job in jobs {
        match job {
            Job::Batch(files) => push.batch(files)?,
            Job::Large(file) => push.large(file)?,
        }
        push.settle()?;
    }
    push.wait()?;
    // a batch that broke off, as on a full disk, is sent file by file: what can be there will be, and the other is told why
    while let Some((_, file)) = push.alone.pop_first() {
        push.large(file)?;
        push.settle()?;
    }
    push.wait()?;
    push.lanes.into_sites().for_each(Site::end);
    Ok(())
}

struct Push<'a, 'd> {
    site: &'a mut Site,
    options: Options,
    watch: &'a dyn Watch,
    expected: VecDeque<Expected<'d>>,
    /// Large files that the host has received, and what is wrong with their source, if anything.
    arrived: Vec<(&'d Delivery, Instant, Option<String>)>,
    /// Files that were looked at, before their checksums are known.
    whole: VecDeque<Vec<bool>>,
    /// By delivery.
    sent: BTreeMap<u32, u64>,
    /// Bytes a second that the link has shown.
    rate: Option<f64>,
    /// Compressing was slower than that: the processors are busy with something else.
    too_slow: bool,
    /// The batch that is looked at next is not there.
    batch_broke: bool,
    /// What is to be sent once more, each file alone.
    alone: BTreeMap<u32, &'d Delivery>,
    heard_got: Instant,
    auto: bool,
    lanes: Lanes<'a, Site>,
}

/// What the host will answer, in this order.
enum Expected<'d> {
    /// It has so many bytes, which are so many of the files'; with them the last of one, and what was wrong with its source.
    Got {
        bytes: u64,
        raw: u64,
        begun: Instant,
        plain: bool,
        last: Option<(&'d Delivery, Instant, Option<String>)>,
    },
    Look {
        files: Vec<&'d Delivery>,
        begun: Instant,
    },
    Sums {
        files: Vec<&'d Delivery>,
        begun: Instant,
    },
}

impl Expected<'_> {
    fn patience(&self, fsync: bool) -> Duration {
        match self {
            Expected::Got { .. } => Duration::ZERO,
            Expected::Look { files, .. } => patience(files.len(), files.iter().filter(|_| fsync).map(|file| file.bytes).sum()),
            Expected::Sums { files, .. } => patience(files.len(), files.iter().map(|file| file.bytes).sum()),
        }
    }
}

impl<'d> Push<'_, 'd> {
    /// Empty folders, and files that should have been there already.
    fn without_bytes(&mut self, others: &[&'d Delivery]) {
        let begun = Instant::now();
        let (folders, lacking): (Vec<&Delivery>, Vec<&Delivery>) = others.iter().partition(|delivery| delivery.source == Source::Folder);
        for file in lacking {
            self.done(file, Some("it should be there already, and is not; there is nothing here to send".to_owned()), begun);
        }
        for folder in &folders {
            self.site.running().call(&[b"folder", folder.id.to_string().as_bytes(), folder.dst.as_os_str().as_bytes()]);
        }
        if !folders.is_empty() {
            self.look(folders, begun);
        }
    }

    fn batch(&mut self, files: Vec<&'d Delivery>) -> Result<(), Broken> {
        let begun = Instant::now();
        let mut folders: Vec<&Path> = files.iter().filter_map(|file| file.dst.parent()).collect();
        folders.sort_unstable();
        folders.dedup();
        let raw = files.iter().map(|file| file.bytes).sum::<u64>();
        let largest = files.iter().max_by_key(|file| file.bytes);
        let packed = raw > PROBE && largest.is_some_and(|file| source(file).is_ok_and(|source| self.pays(&source, 0)));
        let length = feed::archive_bytes(&files);
        self.site.say(&if packed { "unpack packed".to_owned() } else { format!("unpack plain {length}") });
        let piece = self.options.piece;
        let make = |sink: feed::Sink<'_>| feed::archive(&files, &folders, packed.then_some(piece), &|bytes| self.watch.moved(bytes), sink);
        let (wire, failed) = stream(self.site, make)?;
        for (id, why) in failed {
            if let Some(file) = files.iter().find(|file| file.id == id) {
                let number = feed::number(file, &folders);
                let name = [format!("{number}/").as_bytes(), file.dst.file_name().unwrap_or_default().as_bytes()].concat();
                self.site.running().call(&[b"remove", &name]);
                self.site.failed.insert(id, why);
            }
        }
        for (at, folder) in folders.iter().enumerate() {
            self.site.running().call(&[b"move", at.to_string().as_bytes(), folder.as_os_str().as_bytes()]);
        }
        for file in &files {
            // of an archive that was compressed each has its share
            let share = if packed { (wire as f64 * file.bytes as f64 / raw.max(1) as f64) as u64 } else { file.bytes };
            self.sent.insert(file.id, share);
        }
        self.expected.push_back(Expected::Got { bytes: wire, raw, begun, plain: !packed, last: None });
        self.look(files, begun);
        Ok(())
    }

    fn large(&mut self, file: &'d Delivery) -> Result<(), Broken> {
        let started = Instant::now();
        let source = match source(file) {
            Ok(source) => source,
            Err(why) => {
                self.watch.moved(file.bytes);
                self.done(file, Some(why), started);
                return Ok(());
            }
        };
        let mut at = self.resume(file, &source)?;
        self.sent.insert(file.id, self.site.relayed.get(&file.id).copied().unwrap_or(0));
        self.watch.moved(at);
        let mut segment = SEGMENT;
        if self.auto && self.rate.is_none() {
            // what waits in pipes for the host to be done with other files would arrive at once
            self.wait()?;
        }
        loop {
            let measured = !self.auto || self.rate.is_some();
            let packed = measured && at < file.bytes && self.pays(&source, at);
            let most = match (self.auto, measured) {
                // some shells count to 2^31
                (false, _) => LONGEST_SEGMENT,
                (true, true) => segment,
                (true, false) => PROBE,
            };
            if measured {
                segment = (segment * 2).min(LONGEST_SEGMENT);
            }
            if !packed && measured && at.is_multiple_of(BLOCK) && self.lanes.pays(file.bytes - at) {
                let (length, wrong) = self.parallel(file, &source, at)?;
                *self.sent.entry(file.id).or_default() += length;
                at += length;
                if at < file.bytes && wrong.is_none() {
                    continue;
                }
                self.arrived.push((file, started, wrong.or_else(|| changed(file))));
                return self.settle();
            }
            // a range begins at a whole block
            let most = if at.is_multiple_of(BLOCK) { most } else { most.min(at.next_multiple_of(BLOCK) - at) };
            let length = most.min(file.bytes - at);
            let begun = Instant::now();
            let (bytes, wrong) = self.segment(&source, at, length, packed)?;
            *self.sent.entry(file.id).or_default() += bytes;
            at += length;
            let over = at == file.bytes || wrong.is_some();
            let last = over.then_some((file, started, wrong));
            self.expected.push_back(Expected::Got { bytes, raw: length, begun, plain: !packed, last });
            if !measured && !over {
                self.wait()?;
            }
            self.settle()?;
            if over {
                return Ok(());
            }
        }
    }

    /// Where the host can go on: behind what it has, if that is what the file begins with.
    fn resume(&mut self, file: &Delivery, source: &Origin<'_>) -> Result<u64, Broken> {
        let there = match (self.site.partial(file), source) {
            (Some(there), Origin::File(source)) => {
                let ours = self.site.beating(|| cksum::of(ReadFrom { source, offset: 0 }.take(there.1)))?;
                ours.is_ok_and(|ours| ours == there).then_some(there)
            }
            _ => None,
        };
        if there.is_none() {
            self.site.say(&format!("drop {}", key(file)));
        }
        self.site.say(&format!("part {}", key(file)));
        self.site.begin();
        Ok(there.map_or(0, |(_, bytes)| bytes))
    }

    /// Sends a piece of a file: the bytes on the wire, and what was wrong with the file.
    fn segment(&mut self, source: &Origin<'_>, at: u64, length: u64, packed: bool) -> Result<(u64, Option<String>), Broken> {
        match source {
            Origin::File(source) if packed => {
                self.site.say("packed");
                let piece = self.options.piece;
                let make = |sink: feed::Sink<'_>| feed::packed((source, at, length), piece, &|bytes| self.watch.moved(bytes), sink);
                stream(self.site, make).map(|(bytes, wrong)| (bytes, wrong.err()))
            }
            Origin::File(source) => {
                let source = source.try_clone().map_err(|error| Broken::said(error.to_string()))?;
                self.site.say(&format!("plain {length}"));
                self.site.running().send_file(source, at, length);
                // to its end, so that a fault of the source is this file's; the pipe and ssh hold enough to keep the link busy
                drain(self.site, 0, &|bytes| self.watch.moved(bytes))?;
                Ok((length, self.site.source_fault()))
            }
            Origin::Text(text) => {
                self.site.say(&format!("plain {length}"));
                self.site.running().send(text.as_bytes());
                self.watch.moved(length);
                Ok((length, None))
            }
        }
    }

    /// Sends the next of a large file over all connections: how much, and what was wrong with it.
    fn parallel(&mut self, file: &Delivery, source: &Origin<'_>, at: u64) -> Result<(u64, Option<String>), Broken> {
        let Origin::File(source) = source else { return Err(Broken::said("only a file has ranges")) };
        self.wait()?;
        let begun = Instant::now();
        let key = key(file);
        self.site.say(&format!("parallel {key} {at}"));
        // the other connections may be quicker than this one, on which the host may yet have to make the file
        self.site.answer("parallel", Duration::ZERO)?;
        let watch = self.watch;
        let send = |site: &mut Site, range| send_range(site, source, &key, range, &|bytes| watch.moved(bytes));
        let (length, sent) = self.lanes.round(self.site, (at, file.bytes), &send);
        let mut wrong = None;
        for sent in sent {
            wrong = wrong.or(sent?);
        }
        self.site.say(&format!("joined {key}"));
        self.rate = Some(length as f64 / begun.elapsed().as_secs_f64().max(1e-6));
        Ok((length, wrong))
    }

    /// Whether compressing pays: by a sample, and by what the link has shown so far.
    fn pays(&self, source: &Origin<'_>, at: u64) -> bool {
        let Origin::File(source) = source else { return false };
        match (self.options.compress, self.rate) {
            (Some(wish), _) => return wish && self.site.has("zstd"),
            (None, Some(rate)) if self.auto && !self.too_slow && rate < FAST_LINK => {}
            _ => return false,
        }
        let mut sample = Vec::with_capacity(SAMPLE);
        if (ReadFrom { source, offset: at }).take(SAMPLE as u64).read_to_end(&mut sample).is_err() || sample.is_empty() {
            return false;
        }
        let begun = Instant::now();
        let small: usize =
            sample.chunks(self.options.piece).map(|piece| feed::pack(piece).map_or(piece.len(), |packed| packed.len())).sum();
        worth(sample.len(), small, begun.elapsed(), self.rate.unwrap_or(FAST_LINK))
    }

    /// Asks whether these are there now.
    fn look(&mut self, files: Vec<&'d Delivery>, begun: Instant) {
        self.site.ask("look", &files);
        self.expected.push_back(Expected::Look { files: files.clone(), begun });
        if self.options.verify {
            self.site.ask("sums", &files);
            self.expected.push_back(Expected::Sums { files, begun });
        }
    }

    /// Takes the answers that have come, and puts what has arrived into its place.
    fn settle(&mut self) -> Result<(), Broken> {
        while let Some(answer) = self.site.answers.pop_front() {
            self.answered(&answer)?;
        }
        for (file, begun, wrong) in std::mem::take(&mut self.arrived) {
            if let Some(why) = wrong {
                self.site.say(&format!("drop {}", key(file)));
                self.done(file, Some(why), begun);
                continue;
            }
            let mtime = file.mtime.map_or(String::new(), |(s, ns)| format!("{s}.{ns:09}"));
            let (folder, name) = (file.dst.parent().unwrap_or(Path::new("/")), file.dst.file_name().unwrap_or_default());
            let numbers = [file.id.to_string(), key(file), file.bytes.to_string(), format!("{:o}", file.mode), mtime];
            let [id, key, bytes, mode, mtime] = numbers.each_ref().map(String::as_bytes);
            self.site.running().call(&[b"keep", id, key, bytes, mode, mtime, folder.as_os_str().as_bytes(), name.as_bytes()]);
            self.look(vec![file], begun);
        }
        Ok(())
    }

    /// Until the host has answered everything.
    fn wait(&mut self) -> Result<(), Broken> {
        loop {
            self.settle()?;
            if self.expected.is_empty() {
                return Ok(());
            }
            let patience = self.expected.iter().map(|expected| expected.patience(self.options.fsync)).sum();
            self.site.hear(Duration::from_millis(200), patience)?;
        }
    }

    fn answered(&mut self, answer: &Answer) -> Result<(), Broken> {
        let strange = || Broken::said(format!("it said {} without being asked", String::from_utf8_lossy(&answer.word)));
        match (self.expected.pop_front().ok_or_else(strange)?, answer.word.as_slice()) {
            (Expected::Got { bytes, raw, begun, plain, last }, b"got") => {
                let took = answer.heard.saturating_duration_since(begun.max(self.heard_got)).as_secs_f64().max(1e-6);
                self.heard_got = answer.heard;
                if plain && bytes >= PROBE {
                    self.rate = Some(bytes as f64 / took);
                } else if !plain && raw >= PROBE {
                    self.too_slow |= self.rate.is_some_and(|rate| (raw as f64 / took) < rate);
                }
                self.batch_broke = !answer.text.is_empty();
                if let Some((file, begun, wrong)) = last {
                    // Only now: until the host has them, the bytes may have been the file's own pages.
                    self.arrived.push((file, begun, wrong.or_else(|| changed(file))));
                }
            }
            (Expected::Look { files, begun }, b"look") => {
                let there = site::there(&answer.text, &files)?;
                if std::mem::take(&mut self.batch_broke) {
                    let again = files.iter().filter(|file| !self.site.failed.contains_key(&file.id));
                    self.alone.extend(again.map(|file| (file.id, *file)));
                }
                let whole = files.iter().zip(there).map(|(file, there)| there.is_some_and(|there| plan::is_there(file, &there))).collect();
                match self.options.verify {
                    true => self.whole.push_back(whole),
                    false => self.finish(&files, &whole, &[], begun),
                }
            }
            (Expected::Sums { files, begun }, b"sums") => {
                let right = self.site.beating(|| site::right(&answer.text, &files))??;
                let whole = self.whole.pop_front().unwrap_or_default();
                self.finish(&files, &whole, &right, begun);
            }
            _ => return Err(strange()),
        }
        Ok(())
    }

    fn finish(&mut self, files: &[&'d Delivery], whole: &[bool], right: &[bool], begun: Instant) {
        let notes = std::mem::take(&mut self.site.notes);
        for (at, file) in files.iter().enumerate() {
            if self.alone.contains_key(&file.id) {
                continue;
            }
            let error = match (whole[at], right.get(at).copied().unwrap_or(true)) {
                (true, true) => None,
                (true, false) => Some("its checksum there is another".to_owned()),
                (false, _) => {
                    let name = file.dst.file_name().unwrap_or_default().to_string_lossy();
                    let note = notes.iter().find(|note| note.contains(&*name)).or(notes.last());
                    Some(note.cloned().unwrap_or_else(|| "it is not there as it was sent".to_owned()))
                }
            };
            let error = self.site.failed.remove(&file.id).or(error);
            self.done(file, error, begun);
        }
    }

    fn done(&mut self, file: &Delivery, error: Option<String>, begun: Instant) {
        let sent_bytes = self.sent.remove(&file.id).unwrap_or(0);
        self.watch.done(file, Outcome { error, sent_bytes, elapsed: begun.elapsed() });
    }
}

/// What happened to a source while it was sent.
fn changed(file: &Delivery) -> Option<String> {
    match &file.source {
        Source::File(path) => feed::changed(path, file),
        Source::Content(_) | Source::Folder | Source::There => None,
    }
}

/// Where the bytes of a file come from.
enum Origin<'d> {
    File(File),
    Text(&'d str),
}

fn source(file: &Delivery) -> Result<Origin<'_>, String> {
    match &file.source {
        Source::File(path) => feed::open(path, file).map(Origin::File),
        Source::Content(text) => Ok(Origin::Text(text)),
        Source::Folder | Source::There => Ok(Origin::Text("")),
    }
}

/// Reads a file from a place on, without moving the place that others read from.
struct ReadFrom<'a> {
    source: &'a File,
    offset: u64,
}

impl Read for ReadFrom<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Whether a sample that shrank from `raw` to `small` in that time makes it quicker over a link of so many bytes a second.
fn worth(raw: usize, small: usize, took: Duration, link: f64) -> bool {
    let plain = raw as f64 / link;
    let packed = (small as f64 / link).max(took.as_secs_f64());
    packed < plain * WORTH
}

/// Sends what is made in a thread of its own, so that reading and compressing do not wait for the link nor the link for them.
fn stream<T: Send>(site: &mut Site, make: impl FnOnce(feed::Sink<'_>) -> Result<T, Gone> + Send) -> Result<(u64, T), Broken> {
    std::thread::scope(|scope| {
        let (send, pieces) = sync_channel::<Vec<u8>>(1);
        let maker = scope.spawn(move || make(&mut |piece| send.send(piece).map_err(|_| Gone)));
        let mut wire = 0;
        loop {
            match pieces.recv_timeout(Duration::from_millis(200)) {
                Ok(piece) => {
                    wire += piece.len() as u64;
                    site.running().send(piece);
                    drain(site, AHEAD, &|_| ())?;
                }
                Err(RecvTimeoutError::Timeout) => site.hear(Duration::ZERO, Duration::ZERO)?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let made = maker.join().ok().and_then(Result::ok);
        made.map(|made| (wire, made)).ok_or_else(|| Broken::said("the archive could not be made"))
    })
}

/// Sends one range, and waits until the host has it; what was wrong with the file.
fn send_range(
    site: &mut Site,
    source: &File,
    key: &str,
    (offset, length): (u64, u64),
    moved: &dyn Fn(u64),
) -> Result<Option<String>, Broken> {
    let source = source.try_clone().map_err(|error| Broken::said(error.to_string()))?;
    site.say(&format!("range {key} {} {} {}", offset / BLOCK, length / BLOCK, length % BLOCK));
    site.running().send_file(source, offset, length);
    site.begin();
    drain(site, 0, moved)?;
    let wrong = site.source_fault();
    site.answer("got", Duration::ZERO)?;
    Ok(wrong)
}

/// Sends until no more than this is waiting.
fn drain(site: &mut Site, most: u64, moved: &dyn Fn(u64)) -> Result<(), Broken> {
    let mut pending = site.running().pending();
    while pending > most {
        site.hear(Duration::from_millis(50), Duration::ZERO)?;
        let now = site.running().pending();
        moved(pending - now);
        pending = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressing_pays_on_slow_links_for_what_shrinks() {
        let table = [
            // raw, small, milliseconds, bytes a second
            (1_000_000, 200_000, 3, 118e6, true),
            (1_000_000, 900_000, 3, 118e6, false),
            (1_000_000, 200_000, 3, 400e6, false),
            (1_000_000, 200_000, 9, 118e6, false),
            (1_000_000, 10, 1, 12e6, true),
        ];
        for (raw, small, ms, link, expected) in table {
            assert_eq!(worth(raw, small, Duration::from_millis(ms), link), expected, "{raw} {small} {ms} {link}");
        }
    }
}
