//! The journal of a job on this host, in lines of JSON with their times, and the reading of it
//! while it grows.

use super::folder::Folder;
use crate::procfs;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::keep::Past;
use wire::{Event, codec};

/// The name of its file.
pub const JOURNAL: &str = "journal";
/// The name of the file that says during which run of the kernel it is written.
pub const BOOT: &str = "boot";
/// How much is read at once of a file that grows.
const BLOCK: usize = 64 << 10;

/// The journal, as the keeper writes it.
#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    pub fn new(folder: &Folder) -> io::Result<Journal> {
        folder.append(JOURNAL).map(Journal)
    }

    /// Writes an event with the current time. If the disk is full, the job goes on without the
    /// entry, of which no half stays, because nobody could read what follows it.
    pub fn note(&mut self, what: Event) {
        let time_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_millis());
        let past = Past {
            time_ms: u64::try_from(time_ms).unwrap_or(u64::MAX),
            uptime_ms: procfs::uptime_ms(),
            ago_ms: None,
            what: Box::new(what),
        };
        let before = self.0.metadata().map(|meta| meta.len());
        let written = self.0.write_all(&codec::encode(&Event::Past(past), &[]));
        if let (Err(_), Ok(before)) = (written, before) {
            let _ = self.0.set_len(before);
        }
    }
}

/// How long ago what its entries tell was, whatever the clock of the host has done since.
#[derive(Clone, Copy, Debug)]
pub struct Ages {
    /// The journal was written since the last start of the host.
    is_of_this_boot: bool,
}

impl Ages {
    /// For the journal of that folder.
    pub fn of(folder: &Folder) -> Ages {
        let boot = std::fs::read_to_string(folder.file(BOOT)).unwrap_or_default();
        Ages {
            is_of_this_boot: !boot.is_empty() && boot == procfs::boot_id(),
        }
    }

    /// The entry as it is told now.
    pub fn tell(self, past: Past) -> Past {
        self.tell_at(past, procfs::uptime_ms())
    }

    fn tell_at(self, past: Past, uptime_ms: Option<u64>) -> Past {
        let then = past.uptime_ms.filter(|_| self.is_of_this_boot);
        Past {
            ago_ms: then.and_then(|then| uptime_ms?.checked_sub(then)),
            uptime_ms: None,
            ..past
        }
    }
}

/// Reads a file that grows, from its beginning.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<File>,
}

impl Tail {
    pub fn new(path: PathBuf) -> Tail {
        Tail { path, file: None }
    }

    /// The next bytes; empty if there are none yet.
    pub fn read(&mut self) -> Vec<u8> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let mut block = vec![0; BLOCK];
        let count = self
            .file
            .as_mut()
            .and_then(|file| file.read(&mut block).ok())
            .unwrap_or(0);
        block.truncate(count);
        block
    }
}

/// The entries of a journal that does not grow; a line that is not an entry ends it.
pub fn entries(folder: &Folder) -> Vec<Past> {
    let mut decoder = codec::Decoder::default();
    decoder.push(&std::fs::read(folder.file(JOURNAL)).unwrap_or_default());
    let next = || match decoder.next_message::<Event>() {
        Ok(Some(codec::Message {
            head: Event::Past(past),
            ..
        })) => Some(past),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_ago_it_was_by_the_clock_that_does_not_jump() {
        let entry = |uptime_ms| Past {
            time_ms: 5,
            uptime_ms,
            ago_ms: None,
            what: Box::new(Event::Ready),
        };
        let table = [
            (
                "written in this run of the kernel",
                true,
                Some(300),
                Some(700),
            ),
            ("before the host was started anew", false, Some(300), None),
            (
                "later than now: another run after all",
                true,
                Some(1001),
                None,
            ),
            ("by an agent that did not write it", true, None, None),
        ];
        for (what, is_of_this_boot, uptime_ms, ago_ms) in table {
            let told = Ages { is_of_this_boot }.tell_at(entry(uptime_ms), Some(1000));
            assert_eq!((told.ago_ms, told.time_ms), (ago_ms, 5), "{what}");
        }
    }
}
