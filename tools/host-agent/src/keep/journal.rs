//! The journal of a job on this host, in lines of JSON with their times, and the reading of it
//! while it grows.

use super::folder::Folder;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::keep::Past;
use wire::{Event, codec};

/// The name of its file.
pub const JOURNAL: &str = "journal";
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
    /// entry.
    pub fn note(&mut self, what: Event) {
        let time_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_millis());
        let past = Past {
            time_ms: u64::try_from(time_ms).unwrap_or(u64::MAX),
            what: Box::new(what),
        };
        let _ = self.0.write_all(&codec::encode(&Event::Past(past), &[]));
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
