//! One host that gives: what is asked, what it says.

use crate::local;
use crate::plan::{Item, Wanted};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::listing::{SILENCE, There, parse_look, parse_sums, patience};
use common::remote::lanes::{BLOCK, Lanes};
use common::remote::{Heard, Running};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How much longer than [`SILENCE`] it may look for files, of which nobody knows how many there are.
const FINDING: Duration = Duration::from_secs(600);
/// What is asked for at once of a file: a shell may count no further than 2^31.
const AT_ONCE: u64 = 1 << 30;

const UNREADABLE: &str = "it could not be read whole there";

/// A host that gives.
pub struct Site {
    running: Running,
    stop: Arc<AtomicUsize>,
    note: Option<String>,
    /// Why nothing more comes: whoever reads on hears it again.
    over: Option<String>,
    answers: VecDeque<Vec<u8>>,
}

impl Site {
    /// Waits until the host is ready. `stop` becomes the number of a signal that ends it all.
    pub fn new(running: Running, stop: Arc<AtomicUsize>) -> io::Result<Site> {
        let mut site = Site { running, stop, note: None, over: None, answers: VecDeque::new() };
        site.answer("ready", Duration::ZERO)?;
        Ok(site)
    }

    /// The files that are wanted and what the host says of them.
    pub fn list(&mut self, wanted: &Wanted) -> io::Result<Vec<(PathBuf, There)>> {
        let words: Vec<&[u8]> = std::iter::once(&b"names"[..]).chain(wanted.roots.iter().map(|root| root.as_bytes())).collect();
        self.running.call(&words);
        let names = wanted.choose(&self.answer("names", FINDING)?);
        let there = self.look(&names)?;
        Ok(names.into_iter().zip(there).filter_map(|(name, there)| Some((name, there?))).collect())
    }

    /// What is there now under these names.
    pub fn look(&mut self, names: &[PathBuf]) -> io::Result<Vec<Option<There>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.ask("look", names.iter().map(PathBuf::as_path));
        Ok(parse_look(&self.answer("look", patience(names.len(), 0))?, names.iter().map(PathBuf::as_path)))
    }

    /// Whether what is here of each is what the host reads.
    fn same(&mut self, items: &[&Item]) -> io::Result<Vec<bool>> {
        let names = || items.iter().map(|item| item.src.as_path());
        self.ask("sums", names());
        let bytes = items.iter().map(|item| item.there.bytes).sum();
        let sums = parse_sums(&self.answer("sums", patience(items.len(), bytes))?, names());
        let same = |(item, there): (&&Item, Option<u32>)| there.is_some() && local::sum(item).is_ok_and(|(here, _)| Some(here) == there);
        Ok(items.iter().zip(sums).map(same).collect())
    }

    /// Brings small files, all in one stream: how many bytes came of each, or why not; and those that came as a second name of another.
    pub fn archive<'i>(&mut self, items: &[&'i Item]) -> io::Result<(Vec<(&'i Item, io::Result<u64>)>, Vec<&'i Item>)> {
        let (mut arrived, mut linked) = (Vec::new(), Vec::new());
        let by_name: HashMap<&Path, &Item> = items.iter().map(|item| (item.src.as_path(), *item)).collect();
        self.ask("archive", items.iter().map(|item| item.src.as_path()));
        let mut raw = Raw { site: self, buffer: Vec::new(), at: 0 };
        // one archive behind the other, each with zeros at its end; behind the last of them a line ends
        while raw.peek_behind_zeros()? != b'\n' {
            for entry in tar::Archive::new(&mut raw).entries()? {
                let mut entry = entry?;
                // nothing but what was asked for is written
                if let Some(item) = by_name.get(&*entry.path()?) {
                    match entry.header().entry_type() {
                        tar::EntryType::Link => linked.push(*item),
                        _ => arrived.push((*item, local::write_small(item, &mut entry))),
                    }
                }
            }
        }
        raw.end()?;
        if !self.answer("archived", Duration::ZERO)?.is_empty() {
            // tar writes zeros in place of what it cannot read, and does not say where
            let came: Vec<&Item> = arrived.iter().filter(|(_, written)| written.is_ok()).map(|(item, _)| *item).collect();
            let same: HashMap<&Path, bool> = came.iter().map(|item| item.src.as_path()).zip(self.same(&came)?).collect();
            for (item, written) in &mut arrived {
                if same.get(item.src.as_path()) == Some(&false) {
                    local::discard(item);
                    *written = Err(io::Error::other(UNREADABLE));
                }
            }
        }
        Ok((arrived, linked))
    }

    /// Brings a large file, or what is missing of it, over as many connections as are worth it: how many bytes came.
    pub fn large(&mut self, item: &Item, lanes: &mut Lanes<'_, Site>) -> io::Result<io::Result<u64>> {
        let (offset, end) = (self.offset(item)?, item.there.bytes);
        let file = match local::open(item, offset) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        let mut at = offset;
        while at < end {
            let (length, written) = if lanes.pays(end - at) {
                if let Err(error) = local::parallel(item, at) {
                    return Ok(Err(error));
                }
                let (length, written) = lanes.round(self, (at, end), &|site, range| site.range(item, &file, range));
                let written: io::Result<()> = written.into_iter().collect::<io::Result<Vec<_>>>()?.into_iter().collect();
                (length, written.and_then(|()| local::joined(item)))
            } else {
                let length = AT_ONCE.min(end - at);
                (length, self.range(item, &file, (at, length))?)
            };
            if let Err(error) = written {
                return Ok(Err(error));
            }
            at += length;
        }
        Ok(Ok(end - offset))
    }

    /// Where a file goes on: behind what is here, if that is what it begins with.
    fn offset(&mut self, item: &Item) -> io::Result<u64> {
        if item.there.bytes < local::LARGE {
            return Ok(0);
        }
        let Ok((sum, bytes @ 1..)) = local::begun(item) else { return Ok(0) };
        self.running.call(&[b"prefix", bytes.to_string().as_bytes(), item.src.as_os_str().as_bytes()]);
        let there = self.answer("prefix", patience(1, bytes))?;
        Ok(if there == format!("{sum} {bytes}").as_bytes() { bytes } else { 0 })
    }

    /// Brings so many bytes of a file from an offset on; the inner error is the file's here.
    fn range(&mut self, item: &Item, file: &File, (offset, length): (u64, u64)) -> io::Result<io::Result<()>> {
        let [block, blocks, rest] = [offset / BLOCK, length / BLOCK, length % BLOCK].map(|number| number.to_string());
        self.running.call(&[b"rest", block.as_bytes(), blocks.as_bytes(), rest.as_bytes(), item.src.as_os_str().as_bytes()]);
        let mut raw = Raw { site: self, buffer: Vec::new(), at: 0 };
        let mut wanted = (&mut raw).take(length);
        let written = local::write(file, offset, length, &mut wanted);
        // a disk that is full here must not end the conversation
        io::copy(&mut wanted, &mut io::sink())?;
        raw.peek_behind_zeros()?;
        raw.end()?;
        match self.answer("rest", Duration::ZERO)?.as_slice() {
            b"0" => Ok(written),
            _ => Ok(written.and(Err(io::Error::other(UNREADABLE)))),
        }
    }

    fn ask<'p>(&mut self, what: &str, names: impl Iterator<Item = &'p Path>) {
        let list: Vec<u8> = names.flat_map(|name| [name.as_os_str().as_bytes(), &b"\0"[..]].concat()).collect();
        self.running.send(format!("{what} {}\n", list.len()));
        self.running.send(list);
    }

    fn answer(&mut self, word: &str, patience: Duration) -> io::Result<Vec<u8>> {
        let begun = Instant::now();
        loop {
            if let Some(line) = self.answers.pop_front() {
                let text = line.strip_prefix(word.as_bytes()).map(<[u8]>::trim_ascii);
                let strange = || io::Error::other(format!("it said {:?} and not {word}", String::from_utf8_lossy(&line)));
                let text = text.ok_or_else(strange)?;
                return match word {
                    "names" | "look" | "sums" => BASE64.decode(text).map_err(io::Error::other),
                    _ => Ok(text.to_vec()),
                };
            }
            self.hear(begun, patience)?;
        }
    }

    fn hear(&mut self, begun: Instant, patience: Duration) -> io::Result<()> {
        if let Some(why) = &self.over {
            return Err(io::Error::other(why.clone()));
        }
        let heard = self.running.step(None, Duration::from_millis(200));
        if let signal @ 1.. = self.stop.load(Ordering::Relaxed) {
            self.over = Some(format!("interrupted by SIG{}", common::signal::name(i32::try_from(signal).unwrap_or_default())));
        }
        for heard in heard {
            match heard {
                Heard::Line(line) => match line.strip_prefix(b"note ") {
                    Some(note) => self.note = Some(String::from_utf8_lossy(note).into_owned()),
                    None => self.answers.push_back(line),
                },
                Heard::Lost(why) => self.over = Some(format!("connection lost: {why}")),
                Heard::Ended(status) => {
                    self.over = Some(self.note.take().unwrap_or_else(|| format!("its shell ended with status {status}")));
                }
            }
        }
        if self.over.is_none() && self.running.last_heard().max(begun).elapsed() > SILENCE + patience {
            self.over = Some(format!("it said nothing for {} s", (SILENCE + patience).as_secs()));
        }
        self.over.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone())))
    }
}

/// The bytes that a host sends as they are.
struct Raw<'a> {
    site: &'a mut Site,
    buffer: Vec<u8>,
    at: usize,
}

impl Raw<'_> {
    fn fill(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while self.at == self.buffer.len() {
            match self.site.running.take_raw() {
                Some(bytes) if !bytes.is_empty() => (self.buffer, self.at) = (bytes, 0),
                _ => self.site.hear(begun, Duration::ZERO)?,
            }
        }
        Ok(())
    }

    fn peek_behind_zeros(&mut self) -> io::Result<u8> {
        loop {
            self.fill()?;
            match self.buffer[self.at] {
                0 => self.at += 1,
                other => return Ok(other),
            }
        }
    }

    fn end(self) -> io::Result<()> {
        self.site.running.end_raw(&self.buffer[self.at..])
    }
}

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.fill()?;
        let count = buffer.len().min(self.buffer.len() - self.at);
        buffer[..count].copy_from_slice(&self.buffer[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
