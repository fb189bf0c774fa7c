//! Writes the journal and the logs of a job, in a thread of its own: the user's home is often on
//! NFS, and a server that does not answer for minutes must not silence the keeper.

use super::folder::Folder;
use super::journal::Journal;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use wire::Event;
use wire::job::Process;

/// How many bytes may wait for the disk; beyond it the agent that supervises is not read, so that
/// in the end the processes wait, as they would for any slow reader.
const MAX_WAITING: usize = 4 << 20;

/// The queue before the files.
#[derive(Debug)]
pub struct FileWriter {
    queue: Sender<Entry>,
    /// How many bytes are in the queue or on their way to the disk.
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Entry {
    Journal(Vec<u8>),
    Log(u32, Vec<u8>),
}

impl Entry {
    fn size(&self) -> usize {
        match self {
            Entry::Journal(bytes) | Entry::Log(_, bytes) => bytes.len(),
        }
    }
}

impl FileWriter {
    /// Makes the files in the folder, with a log for each of the processes.
    pub fn begin(folder: &Folder, processes: &[Process]) -> io::Result<FileWriter> {
        let journal = Journal::new(folder)?;
        let log = |process: &Process| folder.append(&record::log_name(process.role, process.rank));
        let logs = processes.iter().map(log).collect::<io::Result<_>>()?;
        let (queue, entries) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counter = waiting.clone();
        Builder::new().spawn(move || write(&entries, journal, logs, &counter))?;
        Ok(FileWriter { queue, waiting })
    }

    /// Queues an event with the current time.
    pub fn note(&self, event: Event) {
        self.push(Entry::Journal(Journal::entry(event)));
    }

    /// Queues output of the process with this number.
    pub fn log(&self, index: u32, text: Vec<u8>) {
        self.push(Entry::Log(index, text));
    }

    fn push(&self, entry: Entry) {
        let size = entry.size();
        self.waiting.fetch_add(size, Ordering::Relaxed);
        if self.queue.send(entry).is_err() {
            self.waiting.fetch_sub(size, Ordering::Relaxed);
        }
    }

    /// Whether more output may be read.
    pub fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < MAX_WAITING
    }

    /// Whether everything is in the files.
    pub fn is_done(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }
}

/// Writes what comes. If the disk is full, the job goes on without it.
fn write(
    entries: &Receiver<Entry>,
    mut journal: Journal,
    mut logs: Vec<File>,
    waiting: &AtomicUsize,
) {
    for entry in entries {
        match &entry {
            Entry::Journal(line) => journal.write(line),
            Entry::Log(index, text) => {
                if let Some(log) = logs.get_mut(*index as usize) {
                    let _ = log.write_all(text);
                }
            }
        }
        waiting.fetch_sub(entry.size(), Ordering::Relaxed);
    }
}
