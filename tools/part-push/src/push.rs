//! Sends one host the files that it lacks, each without waiting for the confirmation of the one
//! before.

use crate::blocks::{self, AHEAD, Sent, send_blocks};
use crate::feed::{self, Message, Sink, SinkClosed, small};
use crate::plan::{self, Delivery, Job, Source, key};
use crate::target::Target;
use remote::host_client::{HostClient, HostFailure};
use remote::lanes::{Lanes, Streams};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use transfer::content;
use transfer::parts::Parts;
use transfer::source::{self, Pieces};
use wire::files::{BLOCK, Begin, Block, Fault, FileEvent, FileRequest};

/// After how many bytes of a file the decision to compress is made again for the first time.
const SEGMENT: u64 = 32 << 20;
/// The interval doubles up to this.
const LONGEST_SEGMENT: u64 = 512 << 20;
/// With `--compress auto`, how many bytes of a host's data are sent uncompressed first, to measure
/// the link.
const PROBE: u64 = 4 << 20;
/// The size of a sample that shows whether data shrink.
const SAMPLE: usize = 1 << 20;
/// On a link with at least this rate, in bytes a second, zstd never pays.
const FAST_LINK: f64 = 500e6;
/// The factor by which compressing must reduce the time, because it costs processor time on both
/// sides.
const WORTH: f64 = 0.8;

/// The options of sending.
#[derive(Clone, Copy)]
pub struct Options {
    /// Whether to compare checksums of files that are already there.
    pub verify: bool,
    /// Whether to compress; `None` if that is to be decided by measuring.
    pub compress: Option<bool>,
    /// How many connections each host gets.
    pub streams: Streams,
}

/// The result of a delivery.
pub struct Outcome {
    /// Why the file is not there; `None` if it is.
    pub error: Option<String>,
    /// How many bytes went over the wire for it.
    pub sent_bytes: u64,
    /// From the beginning of its sending to the host's confirmation.
    pub elapsed: Duration,
}

/// Is notified of progress and results.
pub trait Watch: Sync {
    /// This many more bytes were sent or need not be.
    fn moved(&self, bytes: u64);
    /// A delivery has its result.
    fn done(&self, delivery: &Delivery, outcome: Outcome);
}

/// Sends files to a host, and reports each delivery as soon as the host has confirmed it.
pub fn push(
    target: &mut Target,
    deliveries: &[&Delivery],
    options: Options,
    more: &dyn Fn() -> Option<HostClient>,
    watch: &dyn Watch,
) -> Result<(), HostFailure> {
    let is_direct = target.client.is_direct();
    let mut push = Push {
        target,
        options,
        watch,
        under_way: BTreeMap::new(),
        marks: VecDeque::new(),
        rate: None,
        too_slow: false,
        heard_mark: Instant::now(),
        lanes: Lanes::new(options.streams, is_direct, more),
    };
    let sent = push.all(deliveries);
    if sent.is_err() {
        // what the host reported before it was lost holds
        let _ = push.settle();
    }
    push.lanes.into_connections().for_each(HostClient::end);
    sent
}

struct Push<'a, 'd> {
    target: &'a mut Target,
    options: Options,
    watch: &'a dyn Watch,
    /// The deliveries that the host has not confirmed, by their numbers.
    under_way: BTreeMap<u32, UnderWay<'d>>,
    /// Questions that show how far the host has come, in their order.
    marks: VecDeque<Mark>,
    /// The measured rate of the link in bytes a second.
    rate: Option<f64>,
    /// Whether compressing was slower than the link, because the processors are busy with something
    /// else.
    too_slow: bool,
    heard_mark: Instant,
    lanes: Lanes<'a, HostClient>,
}

struct UnderWay<'d> {
    delivery: &'d Delivery,
    begun: Instant,
    sent: u64,
}

/// When this question is answered, the host has this many more bytes.
struct Mark {
    number: u64,
    bytes: u64,
    raw: u64,
    begun: Instant,
    plain: bool,
}

impl<'d> Push<'_, 'd> {
    fn all(&mut self, deliveries: &[&'d Delivery]) -> Result<(), HostFailure> {
        let (files, others): (Vec<&Delivery>, Vec<&Delivery>) =
            deliveries.iter().partition(|delivery| delivery.has_bytes());
        self.without_bytes(&others);
        for job in plan::jobs(&files) {
            match job {
                Job::Batch(files) => self.batch(&files)?,
                Job::Large(file) => self.large(file)?,
            }
            self.settle()?;
        }
        self.wait(|push| push.under_way.is_empty() && push.marks.is_empty())
    }

    /// Sends empty folders, and reports files that should have been there already.
    fn without_bytes(&mut self, others: &[&'d Delivery]) {
        for delivery in others {
            self.begin(delivery, 0);
            match delivery.source {
                Source::Folder => self.target.client.send(FileRequest::Folder {
                    id: delivery.id,
                    dst: delivery.dst.as_ref().into(),
                }),
                _ => self.done(
                    delivery.id,
                    Some(
                        "it should be there already, and is not; there is nothing here to send"
                            .to_owned(),
                    ),
                ),
            }
        }
    }

    fn begin(&mut self, delivery: &'d Delivery, sent: u64) {
        self.under_way.insert(
            delivery.id,
            UnderWay {
                delivery,
                begun: Instant::now(),
                sent,
            },
        );
    }

    /// Sends small files, many in a message.
    fn batch(&mut self, files: &[&'d Delivery]) -> Result<(), HostFailure> {
        let begun = Instant::now();
        let raw = files.iter().map(|file| file.bytes).sum::<u64>();
        let largest = files.iter().max_by_key(|file| file.bytes);
        let sample = largest
            .filter(|_| raw > PROBE || self.options.compress.is_some())
            .and_then(|file| sample(file));
        let packed = sample.is_some_and(|sample| self.pays(&sample));
        files
            .iter()
            .for_each(|file| self.begin(file, if packed { 0 } else { file.bytes }));
        let mut failed = Vec::new();
        let mut shares = BTreeMap::new();
        let watch = self.watch;
        let (wire, ()) = stream(
            &mut self.target.client,
            |sink| feed::batches(files, packed, sink),
            &mut |message| {
                failed.extend(std::mem::take(&mut message.failed));
                watch.moved(message.raw);
                if let (FileRequest::Batch(batch), true) = (&message.step, packed) {
                    // compressed bytes are attributed to files by their sizes
                    let share = |bytes: u64| message.body.len() as u64 * bytes / message.raw.max(1);
                    shares.extend(batch.files.iter().map(|file| (file.id, share(file.bytes))));
                }
            },
        )?;
        for (id, share) in shares {
            if let Some(file) = self.under_way.get_mut(&id) {
                file.sent = share;
            }
        }
        failed
            .into_iter()
            .for_each(|(id, why)| self.done(id, Some(why)));
        self.mark(wire, raw, begun, !packed);
        Ok(())
    }

    fn large(&mut self, file: &'d Delivery) -> Result<(), HostFailure> {
        self.begin(file, 0);
        let Source::File(path) = &file.source else {
            return self.large_content(file);
        };
        let source = match feed::open(path, file) {
            Ok(source) => source,
            Err(why) => {
                self.watch.moved(file.bytes);
                self.done(file.id, Some(why));
                return Ok(());
            }
        };
        let kept = self.target.resume(file, &source)?;
        let (kept, earlier) = (kept.parts, kept.earlier);
        self.send_begin(file, &kept, earlier, feed::is_sparse(&source));
        let counted = self.target.counted(file);
        self.watch.moved(kept.bytes().saturating_sub(counted));
        if self.is_auto() && self.rate.is_none() {
            // otherwise what waits in pipes while the host finishes other files would seem to
            // arrive at once
            self.wait(|push| push.marks.is_empty())?;
        }
        let mut wrong = None;
        for (begin, end) in kept.missing(file.bytes) {
            if wrong.is_none() && self.under_way.contains_key(&file.id) {
                wrong = self.span(file, &source, begin, end)?;
            }
        }
        match wrong.or_else(|| feed::changed(path, file)) {
            Some(why) => {
                self.target
                    .client
                    .send(FileRequest::Discard { id: file.id });
                self.done(file.id, Some(why));
            }
            None => self.target.client.send(FileRequest::End { id: file.id }),
        }
        Ok(())
    }

    /// Sends a file made from a record that is larger than a message.
    fn large_content(&mut self, file: &'d Delivery) -> Result<(), HostFailure> {
        let Source::Content(text) = &file.source else {
            return Ok(());
        };
        self.send_begin(file, &Parts::default(), false, false);
        let mut at = 0;
        for piece in text
            .as_bytes()
            .chunks(usize::try_from(BLOCK).unwrap_or(usize::MAX))
        {
            let packed = self.options.compress == Some(true);
            let (content, body) = content::pack(piece.to_vec(), packed);
            self.target.client.send_with(
                FileRequest::Block(Block {
                    id: file.id,
                    at,
                    content,
                    signature: None,
                }),
                &body,
            );
            self.target.client.drain(AHEAD, &|_| ())?;
            self.sent(file.id, body.len() as u64);
            at += piece.len() as u64;
        }
        self.watch.moved(at);
        self.target.client.send(FileRequest::End { id: file.id });
        Ok(())
    }

    fn send_begin(&mut self, file: &Delivery, keep: &Parts, earlier: bool, sparse: bool) {
        let begin = Begin {
            file: small(file),
            key: key(file),
            keep: keep.list().to_vec(),
            earlier,
            scattered: false,
            chained: None,
            sparse,
        };
        self.target.client.send(FileRequest::Begin(begin));
    }

    fn sent(&mut self, id: u32, bytes: u64) {
        if let Some(file) = self.under_way.get_mut(&id) {
            file.sent += bytes;
        }
    }

    /// Sends a part of a file, in segments before each of which the decision to compress is made
    /// again. Returns what was wrong with the file.
    fn span(
        &mut self,
        file: &'d Delivery,
        source: &File,
        begin: u64,
        end: u64,
    ) -> Result<Option<String>, HostFailure> {
        let (mut at, mut segment) = (begin, SEGMENT);
        while at < end && self.under_way.contains_key(&file.id) {
            let measured = !self.is_auto() || self.rate.is_some();
            let packed = measured && self.pays_at(source, at);
            let most = match (self.is_auto(), measured) {
                (false, _) => LONGEST_SEGMENT,
                (true, true) => segment,
                (true, false) => PROBE,
            };
            if measured {
                segment = (segment * 2).min(LONGEST_SEGMENT);
            }
            if !packed && measured && self.lanes.pays(end - at) {
                let (length, sent) = self.parallel(file, source, at, end)?;
                self.sent(file.id, sent.bytes);
                at += length;
                if sent.wrong.is_some() {
                    return Ok(sent.wrong);
                }
                continue;
            }
            let length = most.min(end - at);
            let begun = Instant::now();
            let (bytes, wrong) = match packed {
                true => self.packed(file, source, at, length)?,
                false => {
                    let watch = self.watch;
                    let sent = send_blocks(
                        &mut self.target.client,
                        source,
                        (file.id, at, length),
                        &|bytes| watch.moved(bytes),
                    )?;
                    (sent.bytes, sent.wrong)
                }
            };
            self.sent(file.id, bytes);
            self.mark(bytes, length, begun, !packed);
            at += length;
            if wrong.is_some() {
                return Ok(wrong);
            }
            if !measured && at < end && bytes > 0 {
                self.wait(|push| push.marks.is_empty())?;
            }
            self.settle()?;
        }
        Ok(None)
    }

    /// Sends a part of a file compressed; returns the bytes on the wire.
    fn packed(
        &mut self,
        file: &Delivery,
        source: &File,
        at: u64,
        length: u64,
    ) -> Result<(u64, Option<String>), HostFailure> {
        let watch = self.watch;
        let make = |sink: Sink<'_>| pack_blocks(source, (file.id, at, length), sink);
        stream(&mut self.target.client, make, &mut |message| {
            watch.moved(message.raw);
        })
    }

    /// Sends the next part of a large file over all connections. Returns its length and what was
    /// sent of it.
    fn parallel(
        &mut self,
        file: &'d Delivery,
        source: &File,
        at: u64,
        end: u64,
    ) -> Result<(u64, Sent), HostFailure> {
        // no other event comes meanwhile, and the other connections may be quicker than this one,
        // on which the host may still have to begin the file
        self.target
            .client
            .send(FileRequest::Scatter { id: file.id });
        self.mark(0, 0, Instant::now(), false);
        self.wait(|push| push.marks.is_empty() && push.under_way.keys().all(|id| *id == file.id))?;
        if !self.under_way.contains_key(&file.id) {
            return Ok((end - at, Sent::default()));
        }
        let begun = Instant::now();
        let watch = self.watch;
        let send = |client: &mut HostClient, range| {
            send_range(client, source, file, range, &|bytes| watch.moved(bytes))
        };
        let (length, sent) = self.lanes.round(&mut self.target.client, (at, end), &send);
        let mut all = Sent::default();
        for sent in sent {
            let sent = sent?;
            all.bytes += sent.bytes;
            all.wrong = all.wrong.or(sent.wrong);
        }
        self.rate = Some(length as f64 / begun.elapsed().as_secs_f64().max(1e-6));
        Ok((length, all))
    }

    fn is_auto(&self) -> bool {
        self.options.compress.is_none()
    }

    fn pays_at(&self, source: &File, at: u64) -> bool {
        let mut sample = vec![0; SAMPLE];
        // nothing is read if the answer is known
        match (self.options.compress, self.rate) {
            (Some(wish), _) => wish,
            (None, Some(rate)) if !self.too_slow && rate < FAST_LINK => {
                source::read_at(source, at, &mut sample)
                    .is_ok_and(|count| self.pays(&sample[..count]))
            }
            _ => false,
        }
    }

    /// Whether compressing pays, by a sample and by the rate of the link.
    fn pays(&self, sample: &[u8]) -> bool {
        match (self.options.compress, self.rate) {
            (Some(wish), _) => wish,
            (None, Some(rate)) if !self.too_slow => shrinks_enough(sample, rate),
            _ => false,
        }
    }

    /// Asks a question that is answered when everything before it has arrived.
    fn mark(&mut self, bytes: u64, raw: u64, begun: Instant, plain: bool) {
        let number = self.target.client.sync();
        self.marks.push_back(Mark {
            number,
            bytes,
            raw,
            begun,
            plain,
        });
    }

    /// Handles the events of the host.
    fn settle(&mut self) -> Result<(), HostFailure> {
        while let Some((told, _)) = self.target.client.take_event() {
            match told {
                FileEvent::Landed { done, failed } => {
                    for (id, fault) in done
                        .into_iter()
                        .map(|id| (id, None))
                        .chain(failed.into_iter().map(|(id, fault)| (id, Some(fault))))
                    {
                        let Some(file) = self.under_way.get(&id) else {
                            continue;
                        };
                        let error = fault.map(|fault| why(file.delivery, &fault));
                        self.done(id, error);
                    }
                }
                FileEvent::Synced { number } => match self.marks.pop_front() {
                    Some(mark) if mark.number == number => self.passed(&mark),
                    _ => return Err(HostFailure::unexpected(&told)),
                },
                other => return Err(HostFailure::unexpected(&other)),
            }
        }
        Ok(())
    }

    fn passed(&mut self, mark: &Mark) {
        let now = Instant::now();
        let took = now
            .saturating_duration_since(mark.begun.max(self.heard_mark))
            .as_secs_f64()
            .max(1e-6);
        self.heard_mark = now;
        if mark.plain && mark.bytes >= PROBE {
            self.rate = Some(mark.bytes as f64 / took);
        } else if !mark.plain && mark.raw >= PROBE {
            self.too_slow |= self
                .rate
                .is_some_and(|rate| (mark.raw as f64 / took) < rate);
        }
    }

    /// Waits until the host has answered enough.
    fn wait(&mut self, enough: impl Fn(&Self) -> bool) -> Result<(), HostFailure> {
        loop {
            self.settle()?;
            if enough(self) {
                return Ok(());
            }
            self.target.client.exchange(Duration::from_millis(200))?;
        }
    }

    fn done(&mut self, id: u32, error: Option<String>) {
        if let Some(UnderWay {
            delivery,
            begun,
            sent,
        }) = self.under_way.remove(&id)
        {
            self.watch.done(
                delivery,
                Outcome {
                    error,
                    sent_bytes: sent,
                    elapsed: begun.elapsed(),
                },
            );
        }
    }
}

/// Why a file is not there. A checksum that differs usually means that the source has changed.
pub fn why(delivery: &Delivery, fault: &Fault) -> String {
    let changed = match (&delivery.source, fault) {
        (Source::File(path), Fault::OtherSum | Fault::NotWhole) => feed::changed(path, delivery),
        _ => None,
    };
    changed.unwrap_or_else(|| fault.to_string())
}

/// The beginning of a file.
fn sample(file: &Delivery) -> Option<Vec<u8>> {
    match &file.source {
        Source::Content(text) => Some(text.as_bytes()[..text.len().min(SAMPLE)].to_vec()),
        Source::File(path) => {
            let mut sample = vec![0; SAMPLE];
            let count = source::read_at(&feed::open(path, file).ok()?, 0, &mut sample).ok()?;
            sample.truncate(count);
            Some(sample)
        }
        Source::Folder | Source::There => None,
    }
}

/// Whether compressing pays on a link of this rate in bytes a second, by a sample.
pub fn shrinks_enough(sample: &[u8], rate: f64) -> bool {
    if rate >= FAST_LINK || sample.is_empty() {
        return false;
    }
    let begun = Instant::now();
    let small = content::compress(sample).map_or(sample.len(), |packed| packed.len());
    worth(sample.len(), small, begun.elapsed(), rate)
}

/// Whether a sample that shrank from `raw` to `small` bytes in this time travels faster over a link
/// of this rate in bytes a second.
fn worth(raw: usize, small: usize, took: Duration, link: f64) -> bool {
    let plain = raw as f64 / link;
    let packed = (small as f64 / link).max(took.as_secs_f64());
    packed < plain * WORTH
}

/// Sends messages that are made in another thread, so that reading and compressing do not wait for
/// the link, nor the link for them. Returns the bytes on the wire, and what `make` returns. `look`
/// sees each message first.
fn stream<T: Send>(
    client: &mut HostClient,
    make: impl FnOnce(Sink<'_>) -> Result<T, SinkClosed> + Send,
    look: &mut dyn FnMut(&mut Message),
) -> Result<(u64, T), HostFailure> {
    std::thread::scope(|scope| {
        let (send, messages) = sync_channel::<Message>(2);
        let maker =
            scope.spawn(move || make(&mut |message| send.send(message).map_err(|_| SinkClosed)));
        let mut wire = 0;
        loop {
            match messages.recv_timeout(Duration::from_millis(200)) {
                Ok(mut message) => {
                    look(&mut message);
                    wire += message.body.len() as u64;
                    client.send_with(message.step, &message.body);
                    client.drain(AHEAD, &|_| ())?;
                }
                Err(RecvTimeoutError::Timeout) => client.keep_alive()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let made = maker.join().ok().and_then(Result::ok);
        made.map(|made| (wire, made))
            .ok_or_else(|| HostFailure::reported("what is sent could not be made"))
    })
}

/// Makes compressed blocks of a part of a file; returns what was wrong with it.
fn pack_blocks(
    source: &File,
    (id, at, length): (u32, u64, u64),
    sink: Sink<'_>,
) -> Result<Option<String>, SinkClosed> {
    let mut pieces = Pieces::new(source, at, length);
    loop {
        let mut content = Vec::new();
        let piece = match pieces.read_next(&mut content) {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(source::why(&error))),
        };
        let (step, body) = blocks::request(id, &piece, content, true, None);
        sink(Message {
            step,
            body,
            raw: piece.length,
            failed: Vec::new(),
        })?;
    }
}

/// Sends one range, and waits until the host has it; returns what was wrong with the file.
fn send_range(
    client: &mut HostClient,
    source: &File,
    file: &Delivery,
    (offset, length): (u64, u64),
    moved: &dyn Fn(u64),
) -> Result<Sent, HostFailure> {
    if client.is_lane {
        let begin = Begin {
            file: small(file),
            key: key(file),
            keep: Vec::new(),
            earlier: false,
            scattered: true,
            chained: None,
            sparse: false,
        };
        client.send(FileRequest::Begin(begin));
    }
    let mut sent = send_blocks(client, source, (file.id, offset, length), moved)?;
    if client.is_lane {
        client.send(FileRequest::Close { id: file.id });
    }
    let number = client.sync();
    loop {
        match client.next_event()?.0 {
            FileEvent::Synced { number: told } if told == number => return Ok(sent),
            FileEvent::Landed { failed, .. } => {
                let failed = failed.first().map(|(_, fault)| why(file, fault));
                sent.wrong = sent.wrong.or(failed);
            }
            other => return Err(HostFailure::unexpected(&other)),
        }
    }
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
            assert_eq!(
                worth(raw, small, Duration::from_millis(ms), link),
                expected,
                "{raw} {small} {ms} {link}"
            );
        }
    }
}
