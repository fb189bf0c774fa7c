//! One host that gives: what is asked, what it says.

use crate::local;
use crate::plan::{Item, Wanted};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::listing::{There, parse_look};
use common::remote::lanes::Lanes;
use common::remote::{Heard, Running};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Without any data for so long, a host is given up.
const SILENCE: Duration = Duration::from_secs(60);

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
        site.answer("ready")?;
        Ok(site)
    }

    /// The files that are wanted and what the host says of them.
    pub fn list(&mut self, wanted: &Wanted) -> io::Result<Vec<(PathBuf, There)>> {
        let words: Vec<&[u8]> = std::iter::once(&b"names"[..]).chain(wanted.roots.iter().map(|root| root.as_bytes())).collect();
        self.running.call(&words);
        let names = wanted.choose(&self.answer("names")?);
        let there = self.look(&names)?;
        Ok(names.into_iter().zip(there).filter_map(|(name, there)| Some((name, there?))).collect())
    }

    /// What is there now under these names.
    pub fn look(&mut self, names: &[PathBuf]) -> io::Result<Vec<Option<There>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.ask("look", names.iter().map(PathBuf::as_path));
        Ok(parse_look(&self.answer("look")?, names.iter().map(PathBuf::as_path)))
    }

    /// Brings small files, all in one stream: by name how many bytes came, or why not.
    pub fn archive(&mut self, items: &[&Item], arrived: &mut dyn FnMut(&Item, io::Result<u64>)) -> io::Result<()> {
        let by_name: HashMap<&Path, &Item> = items.iter().map(|item| (item.src.as_path(), *item)).collect();
        self.ask("archive", items.iter().map(|item| item.src.as_path()));
        let mut raw = Raw { site: self, buffer: Vec::new(), at: 0 };
        // one archive behind the other, each with zeros at its end; behind the last of them a line ends
        while raw.peek_behind_zeros()? != b'\n' {
            for entry in tar::Archive::new(&mut raw).entries()? {
                let mut entry = entry?;
                // nothing but what was asked for is written
                if let Some(item) = by_name.get(&*entry.path()?) {
                    let written = local::write_small(item, &mut entry);
                    arrived(item, written);
                }
            }
        }
        raw.end()
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
                (end - at, self.range(item, &file, (at, end - at))?)
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
        let Ok((sum, bytes @ 1..)) = local::begun(item) else { return Ok(0) };
        self.running.call(&[b"prefix", bytes.to_string().as_bytes(), item.src.as_os_str().as_bytes()]);
        let there = self.answer("prefix")?;
        Ok(if there == format!("{sum} {bytes}").as_bytes() { bytes } else { 0 })
    }

    /// Brings so many bytes of a file from an offset on; the inner error is the file's here.
    fn range(&mut self, item: &Item, file: &File, (offset, length): (u64, u64)) -> io::Result<io::Result<()>> {
        self.running.call(&[b"rest", offset.to_string().as_bytes(), length.to_string().as_bytes(), item.src.as_os_str().as_bytes()]);
        let mut raw = Raw { site: self, buffer: Vec::new(), at: 0 };
        let mut wanted = (&mut raw).take(length);
        let written = local::write(file, offset, length, &mut wanted);
        // a disk that is full here must not end the conversation
        io::copy(&mut wanted, &mut io::sink())?;
        raw.peek_behind_zeros()?;
        raw.end()?;
        Ok(written)
    }

    fn ask<'p>(&mut self, what: &str, names: impl Iterator<Item = &'p Path>) {
        let list: Vec<u8> = names.flat_map(|name| [name.as_os_str().as_bytes(), &b"\0"[..]].concat()).collect();
        self.running.send(format!("{what} {}\n", list.len()));
        self.running.send(list);
    }

    fn answer(&mut self, word: &str) -> io::Result<Vec<u8>> {
        let begun = Instant::now();
        loop {
            if let Some(line) = self.answers.pop_front() {
                let text = line.strip_prefix(word.as_bytes()).map(<[u8]>::trim_ascii);
                let strange = || io::Error::other(format!("it said {:?} and not {word}", String::from_utf8_lossy(&line)));
                let text = text.ok_or_else(strange)?;
                return match word {
                    "names" | "look" => BASE64.decode(text).map_err(io::Error::other),
                    _ => Ok(text.to_vec()),
                };
            }
            self.hear(begun)?;
        }
    }

    fn hear(&mut self, begun: Instant) -> io::Result<()> {
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
        if self.over.is_none() && self.running.last_heard().max(begun).elapsed() > SILENCE {
            self.over = Some(format!("it said nothing for {} s", SILENCE.as_secs()));
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
                _ => self.site.hear(begun)?,
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
