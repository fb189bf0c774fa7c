//! The bounded queue of output for stdout. If the reader is too slow, the oldest lines of processes
//! are dropped, and a host's reports, such as stacks, beyond its budget; both are counted.
//! Records of starts and ends are never dropped.

use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};

/// The most bytes that may wait before the oldest lines are dropped.
const MOST_BYTES: usize = 64 << 20;
/// The most bytes of a host's reports that may wait before new ones are dropped.
const MOST_REPORTS: usize = 4 << 20;
/// An item's memory without its text.
const ITEM_BYTES: usize = 96;

/// A process's lines with their newlines. A last line without one will be continued.
#[derive(Default)]
pub struct OutputLines {
    pub id: u32,
    pub stderr: bool,
    /// The time of arrival, in milliseconds since 1970.
    pub time_ms: u64,
    pub text: Vec<u8>,
    /// Whether they continue a piece of a line.
    pub continues: bool,
    pub while_ending: bool,
    /// Whether the output was not UTF-8, so that the text replaces some of it.
    pub lossy: bool,
}

pub enum QueueItem {
    /// Records or lines of this tool; never dropped.
    Records(Vec<u8>),
    /// Records that a host may cause without limit, such as stacks.
    Reports { host: u32, text: Vec<u8> },
    /// May be dropped.
    Output(OutputLines),
}

impl QueueItem {
    fn size(&self) -> usize {
        ITEM_BYTES + self.text().len()
    }

    pub fn text(&self) -> &[u8] {
        match self {
            QueueItem::Records(text) | QueueItem::Reports { text, .. } => text,
            QueueItem::Output(lines) => &lines.text,
        }
    }

    fn lines(&self) -> u64 {
        self.text().iter().filter(|byte| **byte == b'\n').count() as u64
    }
}

#[derive(Default)]
pub struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    next: WriteBatch,
    bytes: usize,
    reports: HashMap<u32, usize>,
    /// How many batches were taken.
    taken: u64,
    status_is_new: bool,
    over: bool,
}

/// What to write next, in the order of the fields.
#[derive(Default)]
pub struct WriteBatch {
    /// Records before the dropped lines.
    pub kept: Vec<u8>,
    /// How many lines and reports were dropped after those records.
    pub dropped: u64,
    pub items: VecDeque<QueueItem>,
    /// The status line, written last.
    pub status: String,
}

impl Queue {
    pub fn push(&self, item: QueueItem) {
        self.state.lock().push(item);
        self.changed.notify_one();
    }

    pub fn status(&self, text: &str) {
        let mut state = self.state.lock();
        state.status_is_new |= state.next.status != text;
        text.clone_into(&mut state.next.status);
        self.changed.notify_one();
    }

    pub fn taken(&self) -> u64 {
        self.state.lock().taken
    }

    pub fn close(&self) {
        self.status("");
        self.state.lock().over = true;
        self.changed.notify_one();
    }

    /// Waits for output and returns about this many bytes; `None` at the end.
    pub fn next(&self, bytes: usize) -> Option<WriteBatch> {
        let mut state = self.state.lock();
        let is_empty = |state: &QueueState| {
            state.next.items.is_empty() && state.next.kept.is_empty() && !state.status_is_new
        };
        (self.changed).wait_while(&mut state, |state| !state.over && is_empty(state));
        if is_empty(&state) {
            return None;
        }
        state.status_is_new = false;
        state.taken += 1;
        let mut batch = WriteBatch {
            kept: std::mem::take(&mut state.next.kept),
            dropped: std::mem::take(&mut state.next.dropped),
            status: state.next.status.clone(),
            ..WriteBatch::default()
        };
        let mut taken = 0;
        while taken < bytes
            && let Some(item) = state.pop()
        {
            taken += item.size();
            batch.items.push_back(item);
        }
        Some(batch)
    }
}

impl QueueState {
    fn push(&mut self, item: QueueItem) {
        if let QueueItem::Reports { host, .. } = &item {
            let waiting = self.reports.entry(*host).or_default();
            if *waiting + item.size() > MOST_REPORTS {
                self.next.dropped += item.lines();
                return;
            }
            *waiting += item.size();
        }
        self.bytes += item.size();
        match (self.next.items.back_mut(), item) {
            // output of the same moment becomes one item
            (Some(QueueItem::Output(last)), QueueItem::Output(new))
                if (last.id, last.stderr, last.time_ms, last.while_ending)
                    == (new.id, new.stderr, new.time_ms, new.while_ending)
                    && last.lossy == new.lossy
                    && last.text.ends_with(b"\n")
                    && last.text.len() < 1 << 14 =>
            {
                self.bytes -= ITEM_BYTES;
                last.text.extend(new.text);
            }
            (_, item) => self.next.items.push_back(item),
        }
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.pop()
        {
            match oldest {
                QueueItem::Records(bytes) => self.next.kept.extend(bytes),
                other => self.next.dropped += other.lines(),
            }
        }
    }

    fn pop(&mut self) -> Option<QueueItem> {
        let item = self.next.items.pop_front()?;
        self.bytes -= item.size();
        if let QueueItem::Reports { host, .. } = &item
            && let Some(waiting) = self.reports.get_mut(host)
        {
            *waiting -= item.size();
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(id: u32, time_ms: u64, text: &str) -> OutputLines {
        OutputLines {
            id,
            time_ms,
            text: text.into(),
            ..OutputLines::default()
        }
    }

    #[test]
    fn the_oldest_lines_are_dropped_whole_and_counted_and_records_stay() {
        let queue = Queue::default();
        let block = "x\n".repeat(1 << 19);
        queue.push(QueueItem::Records(b"first record\n".to_vec()));
        (0..100).for_each(|n| queue.push(QueueItem::Output(lines(0, n, &block))));
        queue.push(QueueItem::Records(b"last record\n".to_vec()));
        let next = queue.next(usize::MAX).unwrap();
        assert_eq!(next.kept, b"first record\n");
        let is_output = |item: &&QueueItem| matches!(item, QueueItem::Output(_));
        let left = next.items.iter().filter(is_output).count() as u64;
        assert!(
            (60..64).contains(&left) && matches!(next.items.back(), Some(QueueItem::Records(_)))
        );
        assert_eq!(next.dropped, (100 - left) << 19);
    }

    #[test]
    fn each_host_has_a_budget_for_its_reports() {
        let queue = Queue::default();
        let report = |host: u32| QueueItem::Reports {
            host,
            text: [vec![b'x'; 1 << 20], vec![b'\n']].concat(),
        };
        (0..5).for_each(|_| queue.push(report(7)));
        queue.push(report(8));
        queue.push(QueueItem::Records(b"exited\n".to_vec()));
        let next = queue.next(usize::MAX).unwrap();
        assert_eq!((next.items.len(), next.dropped), (5, 2));
        queue.push(report(7));
        let next = queue.next(usize::MAX).unwrap();
        assert_eq!(
            (next.items.len(), next.dropped),
            (1, 0),
            "there is room again"
        );
    }

    #[test]
    fn what_comes_at_once_is_one_item() {
        let queue = Queue::default();
        for (id, time_ms, text) in [
            (0, 1, "a\n"),
            (0, 1, "b\n"),
            (1, 1, "c\n"),
            (1, 2, "d"),
            (1, 2, "e\n"),
        ] {
            queue.push(QueueItem::Output(lines(id, time_ms, text)));
        }
        let text: Vec<_> = queue
            .next(usize::MAX)
            .unwrap()
            .items
            .into_iter()
            .map(|item| match item {
                QueueItem::Output(lines) => lines.text,
                _ => panic!("only lines were queued"),
            })
            .collect();
        assert_eq!(text, [&b"a\nb\n"[..], b"c\n", b"d", b"e\n"]);
        queue.close();
        assert!(queue.next(1).is_none());
    }
}
