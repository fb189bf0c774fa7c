//! The journal of a job on this host, in lines of JSON with their times, and the reading of it
//! while it grows.

use super::folder::Folder;
use crate::procfs;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use wire::Event;
use wire::codec::{self, Decoder, Message};
use wire::keep::Past;

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

    /// The line of an event that happens now.
    pub fn entry(what: Event) -> Vec<u8> {
        let past = Past {
            time_ms: record::term::now_ms(),
            uptime_ms: procfs::uptime_ms(),
            ago_ms: None,
            what: Box::new(what),
        };
        codec::encode(&Event::Past(past), &[])
    }

    /// Writes an entry. If the disk is full, the job goes on without it, and no half of it stays,
    /// because nobody could read what follows it.
    pub fn write(&mut self, entry: &[u8]) {
        let before = self.0.metadata().map(|meta| meta.len());
        let written = self.0.write_all(entry);
        if let (Err(_), Ok(before)) = (written, before) {
            let _ = self.0.set_len(before);
        }
    }
}

/// How long ago the entries were written, whatever the clock of the host has done since.
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

    /// The entry as it is reported now.
    pub fn date(self, past: Past) -> Past {
        self.date_at(past, procfs::uptime_ms())
    }

    fn date_at(self, past: Past, uptime_ms: Option<u64>) -> Past {
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
        let read = self.file.as_mut().map(|file| file.read(&mut block));
        block.truncate(read.and_then(Result::ok).unwrap_or(0));
        block
    }
}

/// A detached job on this host, as others see it: by what its keeper writes, and by whether
/// the keeper is there.
#[derive(Debug)]
pub struct KeptJob {
    journal: Tail,
    entries: Decoder,
    keeper: Option<UnixStream>,
}

impl KeptJob {
    pub fn of(folder: &Folder) -> KeptJob {
        let keeper = folder.connect().ok();
        KeptJob {
            journal: Tail::new(folder.file(JOURNAL)),
            entries: Decoder::default(),
            keeper: keeper.filter(|keeper| keeper.set_nonblocking(true).is_ok()),
        }
    }

    /// The next entries of the journal; `None` if no more was written yet.
    pub fn read(&mut self) -> Option<Vec<Past>> {
        let block = self.journal.read();
        self.entries.push(&block);
        let next = || match self.entries.next_message::<Event>() {
            Ok(Some(Message {
                head: Event::Past(past),
                ..
            })) => Some(past),
            _ => None,
        };
        (!block.is_empty()).then(|| std::iter::from_fn(next).collect())
    }

    /// The connection with the keeper; `None` once that is gone.
    pub fn keeper(&mut self) -> Option<&mut UnixStream> {
        let mut keeper = self.keeper.take()?;
        let is_there = match keeper.read(&mut [0; 1024]) {
            Ok(count) => count > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        self.keeper = Some(keeper).filter(|_| is_there);
        self.keeper.as_mut()
    }

    /// What to wait for, to notice the end of the keeper.
    pub fn wait_for(&self) -> Option<BorrowedFd<'_>> {
        self.keeper.as_ref().map(AsFd::as_fd)
    }
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
            let dated = Ages { is_of_this_boot }.date_at(entry(uptime_ms), Some(1000));
            assert_eq!((dated.ago_ms, dated.time_ms), (ago_ms, 5), "{what}");
        }
    }
}
