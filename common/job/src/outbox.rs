//! The queue of messages from a host to the launcher, over their only connection. It never blocks:
//! a slow launcher must not keep the host from ending the job or from sending heartbeats.
//!
//! News (a process's end, a heartbeat) keeps its order with the output, unless it would be late;
//! then it overtakes the output. Output is bounded: while too much waits, the pipes of the
//! processes are not read, so the processes block, as with any slow reader.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use wire::{Event, codec};

/// How many bytes may wait before no more output is read.
const MAX_OUTPUT: usize = 256 << 10;
/// News waits behind at most this many bytes: a tenth of a second on a slow link.
const BEFORE_NEWS: usize = 64 << 10;
/// How many bytes are written at once: PIPE_BUF, which a pipe accepts without blocking if poll(2)
/// reports it as writable. It cannot be made non-blocking, because other processes may share it.
const AT_ONCE: usize = 4096;

#[derive(Debug, Default)]
pub struct Outbox {
    /// The messages being written; the first `written` bytes were.
    current: Vec<u8>,
    written: usize,
    /// Messages that overtake those in `queue`.
    urgent: VecDeque<Vec<u8>>,
    queue: VecDeque<QueuedMessage>,
    waiting: usize,
    closed: bool,
}

#[derive(Debug)]
struct QueuedMessage {
    message: Vec<u8>,
    is_news: bool,
}

impl Outbox {
    pub fn push(&mut self, event: &Event, body: &[u8]) {
        if self.closed {
            return;
        }
        let (message, is_news) = (codec::encode(event, body), is_news(event));
        self.waiting += message.len();
        self.queue.push_back(QueuedMessage { message, is_news });
        if !is_news || self.waiting <= BEFORE_NEWS && self.urgent.is_empty() {
            return;
        }
        // all news overtakes, so that it stays in order
        let (news, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|queued| queued.is_news);
        self.queue = rest;
        for queued in news {
            self.waiting -= queued.message.len();
            self.urgent.push_back(queued.message);
        }
    }

    /// Queues a heartbeat, unless other news waits.
    pub fn alive(&mut self) {
        if self.urgent.is_empty() {
            self.push(&Event::Alive, &[]);
        }
    }

    /// Whether to read more output. If the launcher no longer reads, output is read and dropped,
    /// because otherwise the processes would block for ever.
    pub fn has_room(&self) -> bool {
        self.closed || self.waiting < MAX_OUTPUT
    }

    pub fn is_empty(&self) -> bool {
        self.written == self.current.len() && self.urgent.is_empty() && self.queue.is_empty()
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Drops these and all later messages.
    pub fn close(&mut self) {
        *self = Outbox {
            closed: true,
            ..Outbox::default()
        };
    }

    /// Calls `write` once; the caller found the connection to be writable.
    pub fn write_some(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) {
        if self.written == self.current.len() {
            let Some(next) = self.next() else { return };
            (self.current, self.written) = (next, 0);
        }
        let end = self.current.len().min(self.written + AT_ONCE);
        match write(&self.current[self.written..end]) {
            Ok(count) => self.written += count,
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => self.close(),
        }
    }

    /// The next bytes to write; small messages are combined.
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut batch = Vec::new();
        while batch.len() < AT_ONCE {
            let message = self.urgent.pop_front().or_else(|| {
                let QueuedMessage { message, .. } = self.queue.pop_front()?;
                self.waiting -= message.len();
                Some(message)
            });
            let Some(message) = message else { break };
            batch.extend(message);
        }
        (!batch.is_empty()).then_some(batch)
    }
}

fn is_news(event: &Event) -> bool {
    use Event::{Drained, Output, Over, Profile, ShmRemoved, Stack, StacksReported};
    !matches!(
        event,
        Output(_)
            | Drained(_)
            | Stack(_)
            | StacksReported(_)
            | Profile(_)
            | ShmRemoved(_)
            | Over(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::supervise::{Drained, ProcessStream, Started};

    fn drained(index: u32) -> Event {
        Event::Drained(Drained {
            index,
            stream: ProcessStream::Stdout,
        })
    }

    fn started(index: u32) -> Event {
        Event::Started(Started { index, pid: 1 })
    }

    #[test]
    fn output_is_bounded() {
        let mut outbox = Outbox::default();
        let body = vec![b'x'; 64 << 10];
        let mut count = 0;
        while outbox.has_room() {
            outbox.push(&drained(count), &body);
            count += 1;
        }
        assert_eq!(count, 4);
        (0..count).for_each(|_| assert!(outbox.next().is_some()));
        assert!(outbox.next().is_none() && outbox.is_empty());
        outbox.close();
        outbox.push(&drained(0), &body);
        assert!(outbox.is_empty() && outbox.has_room());
    }

    #[test]
    fn news_keep_their_place_until_much_waits() {
        let mut outbox = Outbox::default();
        outbox.push(&drained(0), b"a");
        outbox.push(&started(1), &[]);
        let first = outbox.next().unwrap();
        assert!(first.starts_with(b"{\"event\":\"drained\""));
        outbox.push(&started(2), &[]);
        outbox.push(&drained(0), &vec![b'x'; BEFORE_NEWS]);
        outbox.push(&started(3), &[]);
        let indices = |text: &str| text.matches("\"started\",\"index\":").count();
        let first = String::from_utf8(outbox.next().unwrap()).unwrap();
        assert_eq!(indices(&first), 2);
        assert!(
            first.starts_with("{\"event\":\"started\",\"index\":2")
                && first.find("index\":3") < first.find("drained"),
            "in order"
        );
        assert!(outbox.is_empty() && outbox.waiting == 0);
    }
}
