//! A session with the `host-agent` of a host: requests and events.

use super::buffered_channel::{Body, BufferedChannel, Waker};
use super::channel::Channel;
use super::fault::HostFault;
use super::running_clock::RunningClock;
use std::io;
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder, Message};
use wire::{Event, Failure, Request};

/// While this many wait, no more are read, so a host that never stops sending blocks itself.
const MAX_EVENTS: usize = 256;
/// Part of one more message may be held.
const MAX_EVENT_BYTES: u64 = 2 << 20;
/// Many times the stacks of all threads of a host. An answer takes up to seven times as much
/// memory.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// The longest heartbeat, in bytes.
const MAX_HEARTBEAT: usize = 1 << 10;
/// Many times what an agent sends: one in a sixth of `--host-timeout`, which is 2s or more. If this
/// tool was stopped, or its machine slept, those of all that time arrive at once.
const HEARTBEATS_PER_SECOND: u64 = 10;
const HEARTBEATS_AT_FIRST: u64 = 100;

#[derive(Debug, PartialEq)]
pub enum SessionEvent {
    Event(Event, Vec<u8>),
    /// The connection broke, or the host sent something other than an event.
    Lost(String),
}

/// A `host-agent` that waits for requests. Dropping it ends the agent and everything that it holds.
pub struct Session {
    transport: BufferedChannel,
    decoder: Decoder,
    /// In bytes.
    received: u64,
    /// By the clock of the channel.
    began: Duration,
    heartbeats: u64,
    is_over: bool,
    is_local: bool,
}

impl Session {
    /// An agent already runs on the channel.
    pub fn new(channel: Box<dyn Channel>) -> Session {
        Session::resumed(BufferedChannel::new(channel), &[])
    }

    pub fn resumed(transport: BufferedChannel, received: &[u8]) -> Session {
        let mut decoder = Decoder::default();
        decoder.push(received);
        Session {
            began: transport.channel.uptime(),
            transport,
            decoder,
            received: 0,
            heartbeats: 0,
            is_over: false,
            is_local: false,
        }
    }

    pub fn with_child(self) -> Session {
        Session {
            is_local: true,
            ..self
        }
    }

    pub fn send(&mut self, request: &Request) {
        self.send_with(request, Body::Bytes(Vec::new()));
    }

    /// At most [`codec::MAX_BODY`] bytes follow the request.
    pub fn send_with(&mut self, request: &Request, body: Body) {
        let head = codec::encode_head(request, body.length());
        self.transport.send(Body::Bytes(head));
        self.transport.send(body);
    }

    pub fn buffer(&mut self) -> Vec<u8> {
        self.transport.spare.pop().unwrap_or_default()
    }

    /// Whether the agent is a child of this process.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    pub fn is_direct(&self) -> bool {
        self.transport.channel.is_direct()
    }

    pub fn source_fault(&mut self) -> Option<io::Error> {
        self.transport.source_fault()
    }

    pub fn pending(&self) -> u64 {
        self.transport.pending()
    }

    pub fn flush(&mut self) {
        self.transport.write_some();
    }

    /// The agent answers the requests that were sent, then ends.
    pub fn close_stdin(&mut self) {
        self.transport.close_stdin();
    }

    /// In bytes.
    pub fn received(&self) -> u64 {
        self.received
    }

    pub fn last_received(&self) -> Instant {
        self.transport.last_received()
    }

    pub fn last_words(&self) -> String {
        self.transport.last_words()
    }

    /// Exchanges until an event has arrived, all pending bytes are sent, or `wake` is woken, for at
    /// most `limit`.
    pub fn step(&mut self, wake: Option<&Waker>, limit: Duration) -> Vec<SessionEvent> {
        let until = Instant::now() + limit;
        let mut events = Vec::new();
        loop {
            let had_pending = self.pending() > 0;
            let progress = self.exchange(&mut events);
            if !events.is_empty() || self.is_over || (had_pending && self.pending() == 0) {
                return events;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || (!progress && self.transport.wait(wake, left)) {
                return events;
            }
        }
    }

    pub fn ask(&mut self, request: &Request, limit: Duration) -> Result<Vec<Event>, HostFault> {
        let mut events = Vec::new();
        self.send(request);
        self.read_answer(limit, |event| {
            events.push(event);
            Ok(())
        })?;
        Ok(events)
    }

    /// Passes each event of an answer to `handle`, which fails for an unexpected one. The whole
    /// answer must arrive within `limit`.
    pub fn read_answer(
        &mut self,
        limit: Duration,
        mut handle: impl FnMut(Event) -> Result<(), HostFault>,
    ) -> Result<(), HostFault> {
        let wrong = |why: String| {
            HostFault::unreachable(why).fix("check that the host is up, then run this again")
        };
        let mut clock = RunningClock::begin();
        let most = self.received.saturating_add(MAX_ANSWER_BYTES);
        loop {
            // the loss was reported before
            if self.is_over {
                return Err(wrong(self.transport.why_lost("the connection has ended")));
            }
            let left = clock.turn(limit);
            let mut events = self.step(None, left).into_iter();
            while let Some(event) = events.next() {
                match event {
                    SessionEvent::Event(Event::Done, _) => {
                        return match events.next() {
                            Some(SessionEvent::Event(..)) => {
                                Err(wrong("it sent more after the end of its answer".to_owned()))
                            }
                            Some(SessionEvent::Lost(_)) | None => Ok(()),
                        };
                    }
                    SessionEvent::Event(Event::Failed(Failure { problem }), _) => {
                        return Err(HostFault::reported(problem));
                    }
                    SessionEvent::Event(event, _) => handle(event)?,
                    SessionEvent::Lost(why) => return Err(wrong(why)),
                }
            }
            if self.received > most {
                let megabytes = MAX_ANSWER_BYTES >> 20;
                return Err(wrong(format!("its answer is larger than {megabytes} MB")));
            }
            if left.is_zero() {
                let problem = "its answer was not complete within";
                return Err(wrong(format!("{problem} {} s", limit.as_secs())));
            }
        }
    }

    fn exchange(&mut self, events: &mut Vec<SessionEvent>) -> bool {
        if self.is_over {
            return false;
        }
        let mut progress = self.transport.write_some();
        self.decode(events);
        let until = self.received.saturating_add(MAX_EVENT_BYTES);
        while events.len() < MAX_EVENTS && self.received < until && !self.is_over {
            match self.transport.receive() {
                // stderr may have data without end, so the caller checks the time
                Ok(Some(0)) => {
                    progress = true;
                    break;
                }
                Ok(Some(count)) => {
                    progress = true;
                    self.received += count as u64;
                    self.decoder.push(&self.transport.buffer[..count]);
                    self.decode(events);
                }
                Ok(None) => break,
                Err(error) => {
                    let why = self.transport.why_lost(&error.to_string());
                    self.lose(events, why);
                }
            }
        }
        if self.transport.is_closed() {
            let why = self.transport.why_ended();
            self.lose(events, why);
        }
        progress
    }

    fn decode(&mut self, events: &mut Vec<SessionEvent>) {
        while events.len() < MAX_EVENTS && !self.is_over {
            let breach = match self.decoder.next_message() {
                Ok(Some(message)) => match self.check_heartbeat(&message) {
                    Ok(()) => {
                        events.push(SessionEvent::Event(message.head, message.body));
                        continue;
                    }
                    Err(breach) => breach,
                },
                Ok(None) => return,
                Err(malformed) => malformed,
            };
            self.lose(
                events,
                format!("it sends something other than host-agent does: {breach}"),
            );
        }
    }

    /// Heartbeats are no answers, so the limits of answers do not apply to them.
    fn check_heartbeat(&mut self, message: &Message<Event>) -> Result<(), String> {
        if message.head != Event::Alive {
            return Ok(());
        }
        let bytes = message.line_bytes + message.body.len();
        if bytes > MAX_HEARTBEAT {
            return Err(format!("a heartbeat of {bytes} bytes"));
        }
        self.heartbeats += 1;
        let elapsed = self.transport.channel.uptime().saturating_sub(self.began);
        let seconds = elapsed.as_secs();
        if self.heartbeats > HEARTBEATS_AT_FIRST + seconds * HEARTBEATS_PER_SECOND {
            let count = self.heartbeats;
            return Err(format!("{count} heartbeats after {seconds} s"));
        }
        Ok(())
    }

    fn lose(&mut self, events: &mut Vec<SessionEvent>, why: String) {
        if !std::mem::replace(&mut self.is_over, true) {
            events.push(SessionEvent::Lost(why));
        }
    }
}
