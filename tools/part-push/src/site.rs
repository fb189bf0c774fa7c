//! One host that receives: what it has, what is sent to it, what it says.

use crate::plan::{Delivery, Source, There, is_there, parse_look, parse_sums};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::quote;
use common::remote::{Heard, Running};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// POSIX cksum: this CRC over the bytes and then over their number.
const CKSUM: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_CKSUM);
/// Reads of a file: large enough that a system call costs nothing, small enough for 500 hosts at once.
const CHUNK: usize = 1 << 20;
/// Read ahead of the network by this much.
const AHEAD: usize = 2 << 20;
/// Below it a file travels in an archive: a round of its own costs the host five programs.
const SMALL: u64 = 128 << 10;
/// An archive is made in memory.
const BATCH_BYTES: u64 = 8 << 20;
/// A tar header holds a name of 100 bytes without an extension; longer ones go alone.
const TAR_NAME: usize = 90;
/// Without any data for so long, a host is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// `--compress auto`: zstd -1 makes some 300 MB/s on one core, so it pays below this rate of the link,
const SLOW_LINK: f64 = 150e6;
/// and where a sample shrinks to two thirds.
const SHRINKS: f64 = 0.67;

/// How to send.
#[derive(Clone, Copy)]
pub struct Options {
    /// Compare checksums.
    pub verify: bool,
    /// Compress: always, never, or as it pays.
    pub compress: Option<bool>,
}

/// A host that receives.
pub struct Site {
    running: Running,
    zstd: bool,
    free_bytes: Option<u64>,
    notes: Vec<String>,
    /// By delivery: why it failed there.
    failed: BTreeMap<u32, String>,
    /// What was sent, and in what time, without waiting for the host's checks.
    sent_bytes: u64,
    sending: Duration,
}

/// A host that cannot go on, and why.
pub struct Broken(pub String);

/// What became of a delivery.
pub struct Outcome {
    pub error: Option<String>,
    pub sent_bytes: u64,
    pub elapsed: Duration,
}

impl Site {
    /// Waits until the host is ready.
    pub fn new(running: Running) -> Result<Site, Broken> {
        let mut site = Site {
            running,
            zstd: false,
            free_bytes: None,
            notes: Vec::new(),
            failed: BTreeMap::new(),
            sent_bytes: 0,
            sending: Duration::ZERO,
        };
        site.until(b"ready")?;
        Ok(site)
    }

    /// Room on the file system.
    pub fn free_bytes(&self) -> Option<u64> {
        self.free_bytes
    }

    /// Which of the deliveries are there already, whole.
    pub fn look(&mut self, deliveries: &[&Delivery], options: Options) -> Result<Vec<bool>, Broken> {
        let there = self.stat(deliveries)?;
        let mut same: Vec<bool> =
            deliveries.iter().zip(&there).map(|(delivery, there)| there.is_some_and(|there| is_there(delivery, &there))).collect();
        // one that is made has no time: only its content tells
        let unsure = |delivery: &Delivery| delivery.has_bytes() && (options.verify || delivery.mtime.is_none());
        let check: Vec<usize> = (0..deliveries.len()).filter(|at| same[*at] && unsure(deliveries[*at])).collect();
        let chosen: Vec<&Delivery> = check.iter().map(|at| deliveries[*at]).collect();
        for (at, right) in check.into_iter().zip(self.compare(&chosen)?) {
            same[at] = right;
        }
        Ok(same)
    }

    fn stat(&mut self, deliveries: &[&Delivery]) -> Result<Vec<Option<There>>, Broken> {
        let text = self.ask("look", deliveries)?;
        Ok(parse_look(&text, deliveries.iter().map(|delivery| delivery.dst.as_path())))
    }

    fn compare(&mut self, deliveries: &[&Delivery]) -> Result<Vec<bool>, Broken> {
        if deliveries.is_empty() {
            return Ok(Vec::new());
        }
        let text = self.ask("sums", deliveries)?;
        let there = parse_sums(&text, deliveries.iter().map(|delivery| delivery.dst.as_path()));
        let same =
            |(delivery, there): (&&Delivery, Option<u32>)| !delivery.has_bytes() || (there.is_some() && there == cksum(&delivery.source));
        Ok(deliveries.iter().zip(there).map(same).collect())
    }

    /// A question about files: the answer in base64, on one line.
    fn ask(&mut self, what: &str, deliveries: &[&Delivery]) -> Result<Vec<u8>, Broken> {
        let mut list = Vec::new();
        for delivery in deliveries {
            list.extend_from_slice(delivery.dst.as_os_str().as_bytes());
            list.push(0);
        }
        self.call(format!("{what} {}\n", list.len()).into_bytes());
        self.running.send(list);
        let answer = self.until(what.as_bytes())?;
        BASE64.decode(answer).map_err(|error| Broken(format!("its answer to {what} is no base64: {error}")))
    }

    /// Sends these, small ones together; then looks whether they are there as they should be.
    pub fn send(&mut self, deliveries: &[&Delivery], options: Options, progress: &(dyn Fn(u64) + Sync)) -> Result<Vec<Outcome>, Broken> {
        let begun = Instant::now();
        let (small, large): (Vec<&Delivery>, Vec<&Delivery>) = deliveries.iter().partition(|delivery| is_small(delivery));
        let mut sent = BTreeMap::new();
        let mut batch: Vec<&Delivery> = Vec::new();
        let mut bytes = 0;
        for delivery in small {
            batch.push(delivery);
            bytes += delivery.bytes + 1024;
            if bytes > BATCH_BYTES {
                self.send_batch(&batch, &mut sent, progress)?;
                (batch, bytes) = (Vec::new(), 0);
            }
        }
        self.send_batch(&batch, &mut sent, progress)?;
        for delivery in large {
            let count = self.send_one(delivery, options, progress)?;
            sent.insert(delivery.id, count);
        }
        let there = self.stat(deliveries)?;
        self.sending = begun.elapsed();
        let right = if options.verify { self.compare(deliveries)? } else { vec![true; deliveries.len()] };
        let outcome = |((delivery, there), right): ((&&Delivery, Option<There>), bool)| {
            let whole = there.is_some_and(|there| is_there(delivery, &there));
            let error = match (self.failed.get(&delivery.id), whole, right) {
                (Some(why), ..) => Some(why.clone()),
                (None, false, _) => Some(self.notes.last().cloned().unwrap_or_else(|| "it is not there as it was sent".to_owned())),
                (None, true, false) => Some("its checksum there is another".to_owned()),
                (None, true, true) => None,
            };
            Outcome { error, sent_bytes: sent.get(&delivery.id).copied().unwrap_or(0), elapsed: begun.elapsed() }
        };
        Ok(deliveries.iter().zip(there).zip(right).map(outcome).collect())
    }

    /// Bytes that were sent, and for how long.
    pub fn rate(&self) -> (u64, Duration) {
        (self.sent_bytes, self.sending)
    }

    fn send_batch(&mut self, batch: &[&Delivery], sent: &mut BTreeMap<u32, u64>, progress: &(dyn Fn(u64) + Sync)) -> Result<(), Broken> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
        let mut archive = tar::Builder::new(Vec::new());
        for delivery in batch {
            let (Some(folder), Some(name)) = (delivery.dst.parent(), delivery.dst.file_name()) else { continue };
            let content = match read_small(delivery) {
                Ok(content) => content,
                Err(why) => {
                    self.failed.insert(delivery.id, why);
                    continue;
                }
            };
            let count = folders.len();
            let number = *folders.entry(folder).or_insert(count);
            let added = add(&mut archive, &Path::new(&number.to_string()).join(name), delivery, &content);
            if let Err(error) = added {
                self.failed.insert(delivery.id, error.to_string());
            }
            sent.insert(delivery.id, content.len() as u64);
            progress(content.len() as u64);
        }
        let archive = archive.into_inner().map_err(|error| Broken(error.to_string()))?;
        self.call(b"unpack\n".to_vec());
        self.chunk(archive);
        self.running.send("0\n");
        let mut moves = Vec::new();
        for (folder, number) in &folders {
            moves.extend(format!("move {number} ").into_bytes());
            moves.extend(quote::sh(folder.as_os_str().as_bytes()));
            moves.push(b'\n');
        }
        self.call(moves);
        self.drain(AHEAD)
    }

    fn send_one(&mut self, delivery: &Delivery, options: Options, progress: &(dyn Fn(u64) + Sync)) -> Result<u64, Broken> {
        if let Source::Folder = delivery.source {
            let call = [format!("folder {} ", delivery.id).into_bytes(), quote::sh(delivery.dst.as_os_str().as_bytes()), b"\n".to_vec()];
            self.call(call.concat());
            return Ok(0);
        }
        let mut source = match open(delivery) {
            Ok(source) => source,
            Err(why) => {
                self.failed.insert(delivery.id, why);
                return Ok(0);
            }
        };
        let mut buffer = vec![0; CHUNK];
        let mut count = read_full(&mut source, &mut buffer);
        let compress = match (&count, self.zstd, options.compress) {
            (Ok(count), true, wish) => wish.unwrap_or_else(|| self.pays(&buffer[..*count])),
            _ => false,
        };
        let mtime = delivery.mtime.map_or(String::new(), |(s, ns)| format!("{s}.{ns:09}"));
        let filter = if compress { "unzstd" } else { "plain" };
        let mut call = format!("put {} {} {:o} '{mtime}' {filter} ", delivery.id, delivery.bytes, delivery.mode).into_bytes();
        call.extend(quote::sh(delivery.dst.as_os_str().as_bytes()));
        call.push(b'\n');
        self.call(call);
        let (mut sent, begun, mut total) = (0, Instant::now(), 0);
        while let Ok(length) = count {
            if length == 0 {
                break;
            }
            total += length as u64;
            let piece = match compress {
                true => zstd::bulk::compress(&buffer[..length], 1).map_err(|error| Broken(error.to_string()))?,
                false => buffer[..length].to_vec(),
            };
            sent += piece.len() as u64;
            self.chunk(piece);
            self.drain(AHEAD)?;
            progress(length as u64);
            count = read_full(&mut source, &mut buffer);
        }
        // a length that is not the promised one makes the host refuse the file
        self.running.send("0\n");
        self.drain(AHEAD)?;
        self.sending += begun.elapsed();
        self.sent_bytes += sent;
        let changed = match (&count, &delivery.source) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), Source::File(path)) => changed(path, delivery),
            _ => None,
        };
        if let Some(why) = changed.or((total != delivery.bytes).then(|| "it changed while it was read".to_owned())) {
            self.failed.insert(delivery.id, why);
        }
        Ok(sent)
    }

    /// Whether compressing pays: by a sample, and by what the link has shown so far.
    fn pays(&self, sample: &[u8]) -> bool {
        let rate = self.sent_bytes as f64 / self.sending.as_secs_f64().max(1e-9);
        let known_slow = self.sent_bytes >= 16 << 20 && rate < SLOW_LINK;
        known_slow && zstd::bulk::compress(sample, 1).is_ok_and(|small| (small.len() as f64) < sample.len() as f64 * SHRINKS)
    }

    fn call(&mut self, text: Vec<u8>) {
        self.running.send(format!("{}\n", text.len()));
        self.running.send(text);
    }

    fn chunk(&mut self, bytes: Vec<u8>) {
        self.running.send(format!("{}\n", bytes.len()));
        self.running.send(bytes);
    }

    /// Sends until no more than this is waiting.
    fn drain(&mut self, most: usize) -> Result<(), Broken> {
        let mut last = (self.running.pending(), Instant::now());
        while self.running.pending() > most {
            self.hear(Duration::from_millis(200), |_, _| ())?;
            let pending = self.running.pending();
            if pending != last.0 {
                last = (pending, Instant::now());
            } else if last.1.elapsed() > SILENCE {
                return Err(Broken(format!("nothing could be sent for {} s", SILENCE.as_secs())));
            }
        }
        Ok(())
    }

    /// Waits for a line that begins so; the rest of it.
    fn until(&mut self, word: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut answer = None;
        let mut last = (self.running.pending(), Instant::now());
        while answer.is_none() {
            self.hear(Duration::from_secs(1), |what, rest| {
                if what == word {
                    answer = Some(rest.to_vec());
                }
            })?;
            let pending = self.running.pending();
            if pending != last.0 || self.running.last_heard() > last.1 {
                last = (pending, Instant::now());
            } else if last.1.elapsed() > SILENCE * 5 {
                return Err(Broken(format!("it said nothing for {} s", SILENCE.as_secs() * 5)));
            }
        }
        Ok(answer.unwrap_or_default())
    }

    fn hear(&mut self, limit: Duration, mut other: impl FnMut(&[u8], &[u8])) -> Result<(), Broken> {
        for heard in self.running.step(None, limit) {
            let line = match heard {
                Heard::Line(line) => line,
                Heard::Lost(why) => return Err(Broken(format!("connection lost: {why}"))),
                Heard::Ended(status) => {
                    let why = self.notes.last().cloned().unwrap_or_else(|| self.running.last_words());
                    return Err(Broken(if why.is_empty() { format!("its shell ended with status {status}") } else { why }));
                }
            };
            let at = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
            let (what, rest) = (&line[..at], line.get(at + 1..).unwrap_or_default());
            let text = || String::from_utf8_lossy(rest).into_owned();
            match what {
                b"zstd" => self.zstd = rest == b"yes",
                b"free" => self.free_bytes = text().trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024),
                b"note" | b"refused" => self.notes.push(text()),
                b"failed" => {
                    if let Some((id, why)) = text().split_once(' ') {
                        self.failed.entry(id.parse().unwrap_or(u32::MAX)).or_insert_with(|| why.to_owned());
                    }
                }
                _ => other(what, rest),
            }
        }
        Ok(())
    }
}

fn is_small(delivery: &Delivery) -> bool {
    let name = delivery.dst.file_name().map_or(0, |name| name.as_bytes().len());
    // without a time an archive would give it one
    delivery.bytes < SMALL && name < TAR_NAME && delivery.mtime.is_some()
}

fn open(delivery: &Delivery) -> Result<Box<dyn Read>, String> {
    match &delivery.source {
        Source::Content(text) => Ok(Box::new(std::io::Cursor::new(text.clone().into_bytes()))),
        Source::Folder => Ok(Box::new(std::io::empty())),
        Source::There => Err("it should be there already, and is not; there is nothing here to send".to_owned()),
        Source::File(path) => match changed(path, delivery) {
            Some(why) => Err(why),
            None => Ok(Box::new(File::open(path).map_err(|error| format!("{}: {error}", path.display()))?)),
        },
    }
}

fn read_small(delivery: &Delivery) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    open(delivery)?.read_to_end(&mut content).map_err(|error| error.to_string())?;
    match content.len() as u64 == delivery.bytes {
        true => Ok(content),
        false => Err("it changed while it was read".to_owned()),
    }
}

/// What is wrong with a source, if it is not what part-map saw.
fn changed(path: &Path, delivery: &Delivery) -> Option<String> {
    match std::fs::metadata(path) {
        Err(error) => Some(format!("{}: {error}", path.display())),
        Ok(meta) => {
            let same = meta.len() == delivery.bytes
                && delivery.mtime.is_none_or(|(s, ns)| s == meta.mtime() && i64::from(ns) == meta.mtime_nsec());
            (!same).then(|| format!("{} changed since part-map looked at it", path.display()))
        }
    }
}

fn read_full(source: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn add(archive: &mut tar::Builder<Vec<u8>>, name: &Path, delivery: &Delivery, content: &[u8]) -> std::io::Result<()> {
    let (seconds, nanos) = delivery.mtime.unwrap_or((0, 0));
    let precise = format!("{seconds}.{nanos:09}");
    archive.append_pax_extensions([("mtime", precise.as_bytes())])?;
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(delivery.mode);
    header.set_mtime(u64::try_from(seconds).unwrap_or(0));
    header.set_entry_type(tar::EntryType::Regular);
    archive.append_data(&mut header, name, content)
}

fn cksum(source: &Source) -> Option<u32> {
    let mut reader: Box<dyn Read> = match source {
        Source::Content(text) => Box::new(std::io::Cursor::new(text.clone().into_bytes())),
        Source::File(path) => Box::new(File::open(path).ok()?),
        Source::Folder | Source::There => return None,
    };
    let mut digest = CKSUM.digest();
    let mut buffer = vec![0; CHUNK];
    let mut length = 0u64;
    loop {
        match read_full(&mut *reader, &mut buffer).ok()? {
            0 => break,
            count => {
                digest.update(&buffer[..count]);
                length += count as u64;
            }
        }
    }
    // the number of bytes, least significant first, without leading zeros (POSIX, cksum)
    while length > 0 {
        digest.update(&[(length & 0xff) as u8]);
        length >>= 8;
    }
    Some(digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_cksum() {
        assert_eq!(cksum(&Source::Content(String::new())), Some(4_294_967_295));
        assert_eq!(cksum(&Source::Content("hello\n".to_owned())), Some(3_015_617_425));
    }
}
