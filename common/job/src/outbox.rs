//! The output queue of a host to the launcher, over the only connection. It never blocks: a
//! launcher that reads slowly must not keep the host from ending the job or from sending signs of
//! life.
//!
//! News (a process ended, a sign of life) stand in the order of the output, unless so much output
//! waits that they would come late; then they overtake it. Output is bounded: while too much of it
//! waits, the pipes of the processes are not read, so that the processes wait, as they would for
//! any slow reader.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use wire::{Event, codec};

/// How many bytes of output may wait; beyond it no more is read.
const MAX_OUTPUT: usize = 256 << 10;
/// News wait for at most this many bytes: a tenth of a second on a slow link.
const BEFORE_NEWS: usize = 64 << 10;
/// How much is written at once. A pipe that poll(2) reports as writable takes this much without
/// blocking (PIPE_BUF). It cannot be made non-blocking, because others may share it.
const AT_ONCE: usize = 4096;

/// The queue before stdout.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The unwritten bytes of the message that is on its way.
    current: Vec<u8>,
    written: usize,
    /// The messages that go first.
    urgent: VecDeque<Vec<u8>>,
    queue: VecDeque<QueuedMessage>,
    /// How many bytes are in the queue.
    waiting: usize,
    /// Whether nobody reads any longer.
    closed: bool,
}

/// A message in the queue.
#[derive(Debug)]
struct QueuedMessage {
    message: Vec<u8>,
    is_news: bool,
}

impl Outbox {
    /// Queues an event with its bytes.
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
        // all of the news, so that they stay in order
        let (news, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|one| one.is_news);
        self.queue = rest;
        for one in news {
            self.waiting -= one.message.len();
            self.urgent.push_back(one.message);
        }
    }

    /// Queues a sign of life, unless one is waiting.
    pub fn alive(&mut self) {
        if self.urgent.is_empty() {
            self.push(&Event::Alive, &[]);
        }
    }

    /// Whether more output may be read. If nobody reads ours, it is read all the same, because
    /// otherwise the processes would wait for ever.
    pub fn has_room(&self) -> bool {
        self.closed || self.waiting < MAX_OUTPUT
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.written == self.current.len() && self.urgent.is_empty() && self.queue.is_empty()
    }

    /// Whether nobody reads any longer.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Drops everything; nothing more is sent.
    pub fn close(&mut self) {
        *self = Outbox {
            closed: true,
            ..Outbox::default()
        };
    }

    /// Writes once by `write`, after the connection was found to be writable.
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

    /// The next bytes to write; small messages go together.
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

/// Whether an event does not wait for much output.
fn is_news(event: &Event) -> bool {
    use Event::{Drained, Output, Over, Profile, ShmRemoved, Stack, StacksReported, Usage};
    !matches!(
        event,
        Output(_)
            | Drained(_)
            | Stack(_)
            | StacksReported(_)
            | Profile(_)
            | Usage(_)
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
