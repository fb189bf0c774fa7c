//! A connection between the launcher and the agent of a host: two directions in which bytes take
//! their time, stop for a while, or are lost in the middle of a message.

use crate::random::Random;
use crate::time::{FOREVER, Micros};
use nix::poll::PollFlags;
use parking_lot::Mutex;
use session::channel::{Channel, ChannelStream};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// How many bytes may be under way, as in the buffers of two kernels and of sshd.
const WINDOW: usize = 256 << 10;

/// One direction of a connection.
#[derive(Debug)]
pub struct Direction {
    /// What is under way, with the time of its arrival.
    chunks: VecDeque<(Micros, Vec<u8>)>,
    /// How many bytes are under way or lost without anybody knowing.
    waiting: usize,
    /// When its end arrives, behind all bytes.
    ended: Micros,
    /// Whether the end is an error.
    is_reset: bool,
    /// Whether the writer knows that nobody reads.
    is_refused: bool,
    /// Whether what is written is lost, and the writer does not know.
    is_void: bool,
    /// Until when nothing arrives.
    pub stalled_until: Micros,
    /// How long bytes take, at least.
    pub latency: Micros,
    last_arrival: Micros,
    random: Random,
}

impl Direction {
    fn new(latency: Micros, random: Random) -> Direction {
        Direction {
            chunks: VecDeque::new(),
            waiting: 0,
            ended: FOREVER,
            is_reset: false,
            is_refused: false,
            is_void: false,
            stalled_until: 0,
            latency,
            last_arrival: 0,
            random,
        }
    }

    /// When the reader may find something.
    pub fn readable_at(&self) -> Micros {
        let first = self.chunks.front().map_or(self.ended, |(time, _)| *time);
        first.max(self.stalled_until)
    }

    pub fn is_full(&self) -> bool {
        self.waiting >= WINDOW
    }

    fn arrival(&mut self, now: Micros) -> Micros {
        let time = now + self.latency + self.random.magnitude(self.latency);
        self.last_arrival = self.last_arrival.max(time);
        self.last_arrival
    }

    fn write(&mut self, bytes: &[u8], now: Micros) -> io::Result<usize> {
        if self.is_refused {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let room = WINDOW - self.waiting.min(WINDOW);
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut count = bytes.len().min(room);
        if self.random.percent(10) {
            count = self.random.between(1, count as u64) as usize;
        }
        self.waiting += count;
        if !self.is_void {
            let cut = if self.random.percent(20) {
                self.random.below(count as u64) as usize
            } else {
                0
            };
            for piece in [&bytes[..cut], &bytes[cut..count]] {
                if !piece.is_empty() {
                    let arrival = self.arrival(now);
                    self.chunks.push_back((arrival, piece.to_vec()));
                }
            }
        }
        Ok(count)
    }

    fn read(&mut self, buffer: &mut [u8], now: Micros) -> io::Result<usize> {
        if now < self.stalled_until {
            return Err(ErrorKind::WouldBlock.into());
        }
        let Some((arrival, chunk)) = self.chunks.front_mut() else {
            return match (now >= self.ended, self.is_reset) {
                (false, _) => Err(ErrorKind::WouldBlock.into()),
                (true, true) => Err(ErrorKind::ConnectionReset.into()),
                (true, false) => Ok(0),
            };
        };
        if *arrival > now {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&chunk[..count]);
        chunk.drain(..count);
        if chunk.is_empty() {
            self.chunks.pop_front();
        }
        self.waiting -= count;
        Ok(count)
    }

    /// The writer closes its end.
    fn end(&mut self, now: Micros) {
        if self.ended == FOREVER && !self.is_void {
            self.ended = self.arrival(now);
        }
        self.is_refused = true;
    }

    /// The reader is gone, which the writer learns unless the connection is lost.
    fn refuse(&mut self) {
        self.is_refused |= !self.is_void;
    }

    /// The connection is lost; a part of what is under way still arrives.
    fn cut(&mut self, reader_sees: bool, writer_sees: bool, now: Micros) {
        let mut kept = self.random.below(self.waiting as u64 + 1) as usize;
        for (arrival, chunk) in &mut self.chunks {
            let count = if *arrival <= now {
                chunk.len()
            } else {
                chunk.len().min(kept)
            };
            chunk.truncate(count);
            kept = kept.saturating_sub(count);
        }
        self.chunks.retain(|(_, chunk)| !chunk.is_empty());
        self.is_refused |= writer_sees;
        self.is_void = true;
        match reader_sees {
            true => {
                self.ended = self.last_arrival.max(now);
                self.is_reset = self.random.percent(50);
            }
            false if self.chunks.is_empty() => self.stalled_until = FOREVER,
            false => {}
        }
    }
}

/// Both directions.
#[derive(Debug)]
pub struct Connection {
    pub now: Micros,
    pub to_agent: Direction,
    pub to_launcher: Direction,
}

/// A connection, as both of its ends hold it.
pub type Shared = Arc<Mutex<Connection>>;

impl Connection {
    pub fn new(latency: Micros, random: &mut Random, now: Micros) -> Shared {
        Arc::new(Mutex::new(Connection {
            now,
            to_agent: Direction::new(latency, random.fork()),
            to_launcher: Direction::new(latency, random.fork()),
        }))
    }

    /// The connection is lost, and each end learns it or does not.
    pub fn cut(&mut self, launcher_sees: bool, agent_sees: bool) {
        self.to_launcher.cut(launcher_sees, agent_sees, self.now);
        self.to_agent.cut(agent_sees, launcher_sees, self.now);
    }

    pub fn agent_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.to_agent.read(buffer, self.now)
    }

    pub fn agent_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to_launcher.write(bytes, self.now)
    }

    /// The agent has ended.
    pub fn agent_ends(&mut self) {
        self.to_launcher.end(self.now);
        self.to_agent.refuse();
    }
}

/// The launcher's end.
pub struct LauncherEnd(pub Shared);

impl Channel for LauncherEnd {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut connection = self.0.lock();
        let now = connection.now;
        match stream {
            ChannelStream::Stdout => connection.to_launcher.read(buffer, now),
            ChannelStream::Stderr => Ok(0),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = self.0.lock();
        let now = connection.now;
        connection.to_agent.write(bytes, now)
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        let mut connection = self.0.lock();
        let now = connection.now;
        connection.to_agent.end(now);
        Ok(())
    }

    fn poll_fds(&self, _reading: [bool; 2], _writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        Vec::new()
    }

    fn uptime(&self) -> Duration {
        Duration::from_micros(self.0.lock().now)
    }
}

impl Drop for LauncherEnd {
    fn drop(&mut self) {
        let mut connection = self.0.lock();
        let now = connection.now;
        connection.to_agent.end(now);
        connection.to_launcher.refuse();
    }
}
