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
use wire::codec;
use wire::keep::Past;

/// The name of its file.
pub const JOURNAL: &str = "journal";
/// The name of the file that says during which run of the kernel it is written.
pub const BOOT: &str = "boot";
/// How much is read at once of a file that grows.
const BLOCK: usize = 64 << 10;

/// The journal, as the keeper writes it.
#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Whether its last line may lack its end.
    is_torn: bool,
}

impl Journal {
    pub fn new(folder: &Folder) -> io::Result<Journal> {
        let file = folder.append(JOURNAL)?;
        let is_torn = false;
        Ok(Journal { file, is_torn })
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

    /// Writes an entry. If the disk is full, the job goes on without it. What was written of it
    /// stays, because others may have read it, and the next entry begins a new line.
    pub fn write(&mut self, entry: &[u8]) {
        let separator: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let written = self.file.write_all(&[separator, entry].concat());
        self.is_torn = written.is_err();
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
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        let named = |error| io::Error::other(format!("{}: {error}", self.path.display()));
        let file = match &mut self.file {
            Some(file) => file,
            None => match File::open(&self.path) {
                Ok(file) => self.file.insert(file),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(named(error)),
            },
        };
        let mut block = vec![0; BLOCK];
        let count = file.read(&mut block).map_err(named)?;
        block.truncate(count);
        Ok(block)
    }
}

/// A detached job on this host, as others see it: by what its keeper writes, and by whether
/// the keeper is there.
#[derive(Debug)]
pub struct KeptJob {
    journal: Tail,
    /// A line whose end was not written yet.
    line: Vec<u8>,
    keeper: Option<UnixStream>,
}

impl KeptJob {
    pub fn of(folder: &Folder) -> KeptJob {
        let keeper = folder.connect().ok();
        KeptJob {
            journal: Tail::new(folder.file(JOURNAL)),
            line: Vec::new(),
            keeper: keeper.filter(|keeper| keeper.set_nonblocking(true).is_ok()),
        }
    }

    /// The next entries of the journal; `None` if no more was written yet. A line that a full disk
    /// has cut is no entry.
    pub fn read(&mut self) -> io::Result<Option<Vec<Past>>> {
        let block = self.journal.read()?;
        if block.is_empty() {
            return Ok(None);
        }
        self.line.extend_from_slice(&block);
        let end = self.line.iter().rposition(|byte| *byte == b'\n');
        let rest = self.line.split_off(end.map_or(0, |end| end + 1));
        let lines = std::mem::replace(&mut self.line, rest);
        let entry = |line: &[u8]| match serde_json::from_slice(line) {
            Ok(Event::Past(past)) => Some(past),
            _ => None,
        };
        Ok(Some(
            lines
                .split(|byte| *byte == b'\n')
                .filter_map(entry)
                .collect(),
        ))
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
    fn what_a_full_disk_has_cut_is_skipped() {
        let path = std::env::temp_dir().join(format!("host-agent-journal-{}", std::process::id()));
        let entry = |number| {
            let over = wire::supervise::Over { survivors: number };
            Journal::entry(Event::Over(over))
        };
        let mut journal = Journal {
            file: File::create(&path).unwrap(),
            is_torn: false,
        };
        let mut job = KeptJob {
            journal: Tail::new(path.clone()),
            line: Vec::new(),
            keeper: None,
        };
        let mut read = || {
            let entries = job.read().unwrap().unwrap_or_default().into_iter();
            let number = |past: Past| match *past.what {
                Event::Over(over) => over.survivors,
                other => panic!("{other:?}"),
            };
            entries.map(number).collect::<Vec<_>>()
        };
        journal.write(&entry(1));
        journal.file.write_all(&entry(2)[..9]).unwrap();
        assert_eq!(read(), [1]);
        // a disk on which nothing is left
        let file = std::mem::replace(&mut journal.file, File::open(&path).unwrap());
        journal.write(&entry(3));
        journal.file = file;
        journal.write(&entry(4));
        journal.write(&entry(5));
        assert_eq!(read(), [4, 5]);
        std::fs::remove_file(&path).unwrap();
    }

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
