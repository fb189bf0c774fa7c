//! The bounded queue of output for stdout. If the reader is too slow, the oldest whole lines are
//! dropped and counted; records never are.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many bytes of lines may wait for a slow reader; beyond it the oldest are dropped.
const MOST_BYTES: usize = 64 << 20;
/// The memory of an item beside its text.
const ITEM_BYTES: usize = 96;

/// Output of a process: whole lines with their ends. If the last one has no end, more of it
/// follows.
#[derive(Default)]
pub struct OutputLines {
    /// The position of the process among those of the job.
    pub at: usize,
    /// Whether it was written to stderr.
    pub stderr: bool,
    /// When it came, in milliseconds since 1970.
    pub time_ms: u64,
    /// The bytes of the lines.
    pub text: Vec<u8>,
    /// Whether they continue the piece of a line that came before.
    pub continues: bool,
    /// Whether the end of the job had begun before.
    pub while_ending: bool,
}

/// Bytes that must not be dropped, or lines that may be.
pub type Item = Result<Vec<u8>, OutputLines>;

/// The queue between the job and stdout.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Records that stood before dropped lines.
    kept: Vec<Vec<u8>>,
    /// How many lines were dropped behind those records.
    dropped: u64,
    items: VecDeque<Item>,
    bytes: usize,
    status: String,
    status_is_new: bool,
    over: bool,
}

/// What is to be written next, in the order of the fields.
#[derive(Default)]
pub struct Dequeued {
    /// Records that stood before dropped lines.
    pub kept: Vec<Vec<u8>>,
    /// How many lines were dropped.
    pub dropped: u64,
    /// The next records and lines.
    pub items: Vec<Item>,
    /// The status line below.
    pub status: String,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    /// Queues bytes that must not be dropped.
    pub fn keep(&self, bytes: Vec<u8>) {
        self.change(|state| state.push(Ok(bytes)));
    }

    /// Queues lines that may be dropped.
    pub fn push(&self, lines: OutputLines) {
        self.change(|state| state.push(Err(lines)));
    }

    /// Replaces the status line.
    pub fn status(&self, text: &str) {
        self.change(|state| {
            state.status_is_new |= state.status != text;
            text.clone_into(&mut state.status);
        });
    }

    /// Ends the queue: nothing more will come.
    pub fn close(&self) {
        self.change(|state| {
            state.over = true;
            state.status_is_new |= !state.status.is_empty();
            state.status.clear();
        });
    }

    /// About this many bytes, as soon as there are any; `None` at the end.
    pub fn next(&self, bytes: usize) -> Option<Dequeued> {
        let mut state = self.lock();
        while state.items.is_empty() && state.kept.is_empty() && !state.status_is_new {
            if state.over {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Some(state.next(bytes))
    }
}

impl State {
    fn push(&mut self, item: Item) {
        self.bytes += size(&item);
        match (self.items.back_mut(), item) {
            // what came at the same moment is one item
            (Some(Err(last)), Err(new))
                if (last.at, last.stderr, last.time_ms, last.while_ending)
                    == (new.at, new.stderr, new.time_ms, new.while_ending)
                    && last.text.ends_with(b"\n")
                    && last.text.len() < 1 << 14 =>
            {
                self.bytes -= ITEM_BYTES;
                last.text.extend(new.text);
            }
            (_, item) => self.items.push_back(item),
        }
        while self.bytes > MOST_BYTES {
            let Some(oldest) = self.items.pop_front() else {
                break;
            };
            self.bytes -= size(&oldest);
            match oldest {
                Ok(bytes) => self.kept.push(bytes),
                Err(lines) => {
                    self.dropped += lines.text.iter().filter(|byte| **byte == b'\n').count() as u64;
                }
            }
        }
    }

    fn next(&mut self, bytes: usize) -> Dequeued {
        self.status_is_new = false;
        let mut next = Dequeued {
            kept: std::mem::take(&mut self.kept),
            dropped: std::mem::take(&mut self.dropped),
            status: self.status.clone(),
            ..Dequeued::default()
        };
        let mut taken = 0;
        while taken < bytes {
            let Some(item) = self.items.pop_front() else {
                break;
            };
            taken += size(&item);
            self.bytes -= size(&item);
            next.items.push(item);
        }
        next
    }
}

fn size(item: &Item) -> usize {
    ITEM_BYTES
        + match item {
            Ok(bytes) => bytes.len(),
            Err(lines) => lines.text.len(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(at: usize, time_ms: u64, text: &str) -> OutputLines {
        OutputLines {
            at,
            time_ms,
            text: text.into(),
            ..OutputLines::default()
        }
    }

    #[test]
    fn the_oldest_lines_are_dropped_whole_and_counted_and_records_stay() {
        let queue = Queue::default();
        let block = "x\n".repeat(1 << 19);
        queue.keep(b"first record\n".to_vec());
        (0..100).for_each(|n| queue.push(lines(0, n, &block)));
        queue.keep(b"last record\n".to_vec());
        let next = queue.next(usize::MAX).unwrap();
        assert_eq!(next.kept, [b"first record\n"]);
        let left = next.items.iter().filter(|item| item.is_err()).count() as u64;
        assert!((60..64).contains(&left) && matches!(next.items.last(), Some(Ok(_))));
        assert_eq!(next.dropped, (100 - left) << 19);
    }

    #[test]
    fn what_comes_at_once_is_one_item() {
        let queue = Queue::default();
        for (at, time_ms, text) in [
            (0, 1, "a\n"),
            (0, 1, "b\n"),
            (1, 1, "c\n"),
            (1, 2, "d"),
            (1, 2, "e\n"),
        ] {
            queue.push(lines(at, time_ms, text));
        }
        let text: Vec<_> = queue
            .next(usize::MAX)
            .unwrap()
            .items
            .into_iter()
            .map(|item| item.err().unwrap().text)
            .collect();
        assert_eq!(text, [&b"a\nb\n"[..], b"c\n", b"d", b"e\n"]);
        queue.close();
        assert!(queue.next(1).is_none());
    }
}
