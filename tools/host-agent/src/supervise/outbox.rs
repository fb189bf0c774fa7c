//! What waits to go to the launcher, over the one connection. Never blocks: a launcher that reads
//! slowly must keep us neither from ending the job nor from telling that we live.
//!
//! News (a process ended, we live) stand in the order of the output, unless so much of that waits
//! that they would come late: then they go before it. Output is bounded: while too much of it
//! waits, the pipes of the processes are not read, so that they wait, as they would for any slow
//! reader.

use nix::errno::Errno;
use std::collections::VecDeque;
use std::io;
use wire::{Event, codec};

/// Output that waits; beyond it no more is read.
const MAX_OUTPUT: usize = 256 << 10;
/// News do not wait for more than this: a tenth of a second on a slow link.
const BEFORE_NEWS: usize = 64 << 10;
/// What is written at once. A pipe that poll(2) calls writable takes so much without blocking
/// (PIPE_BUF), and the pipe may be somebody else's too, so that it cannot be made non-blocking.
const AT_ONCE: usize = 4096;

/// The queue in front of stdout.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Of the message that is on its way: what is not written yet.
    current: Vec<u8>,
    written: usize,
    /// What goes before all else.
    urgent: VecDeque<Vec<u8>>,
    queue: VecDeque<Waiting>,
    /// Bytes in the queue.
    waiting: usize,
    /// Nobody reads any more.
    closed: bool,
}

/// A message in the queue.
#[derive(Debug)]
struct Waiting {
    message: Vec<u8>,
    is_news: bool,
}

impl Outbox {
    /// An event that does not wait for much output.
    pub fn news(&mut self, event: &Event) {
        self.push(event, &[], true);
        if self.waiting <= BEFORE_NEWS && self.urgent.is_empty() {
            return;
        }
        // all of them, so that they stay in order
        let (news, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|one| one.is_news);
        self.queue = rest;
        for one in news {
            self.waiting -= one.message.len();
            self.urgent.push_back(one.message);
        }
    }

    /// That we live; what was not taken yet says it already.
    pub fn alive(&mut self) {
        if self.urgent.is_empty() {
            self.news(&Event::Alive);
        }
    }

    /// An event in the order of the output, with its bytes.
    pub fn output(&mut self, event: &Event, body: &[u8]) {
        self.push(event, body, false);
    }

    fn push(&mut self, event: &Event, body: &[u8], is_news: bool) {
        if !self.closed {
            let message = codec::encode(event, body);
            self.waiting += message.len();
            self.queue.push_back(Waiting { message, is_news });
        }
    }

    /// Whether more output may be read. Where nobody takes it, it is read all the same, or the
    /// processes would wait for ever.
    pub fn has_room(&self) -> bool {
        self.closed || self.waiting < MAX_OUTPUT
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.written == self.current.len() && self.urgent.is_empty() && self.queue.is_empty()
    }

    /// Whether nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Nothing is told any more.
    pub fn close(&mut self) {
        *self = Outbox {
            closed: true,
            ..Outbox::default()
        };
    }

    /// Writes once; stdout was found to be writable.
    pub fn write_some(&mut self) {
        if self.written == self.current.len() {
            let Some(next) = self.next() else { return };
            (self.current, self.written) = (next, 0);
        }
        let end = self.current.len().min(self.written + AT_ONCE);
        // past the buffer of std, which would keep what has no line's end
        match nix::unistd::write(io::stdout(), &self.current[self.written..end]) {
            Ok(count) => self.written += count,
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => self.close(),
        }
    }

    /// Small messages go together.
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut batch = Vec::new();
        while batch.len() < AT_ONCE {
            let message = match self.urgent.pop_front() {
                Some(message) => message,
                None => {
                    let Some(Waiting { message, .. }) = self.queue.pop_front() else {
                        break;
                    };
                    self.waiting -= message.len();
                    message
                }
            };
            batch.extend(message);
        }
        (!batch.is_empty()).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::supervise::{Drained, Started, Stream};

    fn drained(index: u32) -> Event {
        Event::Drained(Drained {
            index,
            stream: Stream::Stdout,
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
            outbox.output(&drained(count), &body);
            count += 1;
        }
        assert_eq!(count, 4);
        (0..count).for_each(|_| assert!(outbox.next().is_some()));
        assert!(outbox.next().is_none() && outbox.is_empty());
        outbox.close();
        outbox.output(&drained(0), &body);
        assert!(outbox.is_empty() && outbox.has_room());
    }

    #[test]
    fn news_keep_their_place_until_much_waits() {
        let mut outbox = Outbox::default();
        outbox.output(&drained(0), b"a");
        outbox.news(&started(1));
        let first = outbox.next().unwrap();
        assert!(first.starts_with(b"{\"event\":\"drained\""));
        outbox.news(&started(2));
        outbox.output(&drained(0), &vec![b'x'; BEFORE_NEWS]);
        outbox.news(&started(3));
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
