//! The loop that connects the launcher with one host: it sends requests and heartbeats, puts events
//! into the inbox, and detects a lost host. [`HostLoop::turn`] decides and has no clock;
//! [`HostLoop::run`] waits.

use super::inbox::{Inbox, RunEvent};
use job::{PauseWatch, heartbeat};
use record::term;
use session::{Session, SessionEvent, Waker};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use wire::{Event, Request};

/// The most bytes that a host may send after a request, before the job starts. The findings of the
/// preflight have some KB; they are kept, and take up to seven times as much memory. A job may wait
/// for days, in which a host answers a request every second.
const MAX_BEFORE_START: u64 = 8 << 20;
/// How long the last requests to a host may take to be sent.
const LAST_REQUESTS: Duration = Duration::from_secs(3);
/// How often to try to send more of them.
const LAST_REQUESTS_PACE: Duration = Duration::from_millis(10);

/// The next step of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopStep {
    /// Exchange bytes with the host, and wait for them at most this long.
    Exchange(Duration),
    /// Wait for room in the inbox, without reading from the host.
    WaitForRoom,
    /// Send the waiting requests and end, because the launcher no longer uses the host. The end of
    /// its stdin then ends the agent.
    SendTheRest,
    /// End, because the host is lost.
    End,
}

/// The loop of one host.
pub struct HostLoop {
    host_index: usize,
    session: Session,
    patience: Duration,
    commands: Receiver<Request>,
    waker: Arc<Waker>,
    inbox: Arc<Inbox>,
    round: u32,
    /// How many bytes had arrived at the last turn, and when the last of them arrived.
    received: u64,
    received_at: Option<Instant>,
    /// How many bytes may have arrived until the next request, before the job starts.
    most: u64,
    /// When the last heartbeat was sent; `None` before the first command, after which the host may
    /// hold a claim or a job.
    beaten: Option<Instant>,
    /// When the job was started. Before that, an answer may take long.
    started: Option<Instant>,
    /// When the host was last not read from, because its inbox was full or the launcher was
    /// stopped.
    unread: Option<Instant>,
    /// Whether the host had been silent for too long at the last turn.
    was_silent: bool,
    /// Detects that the launcher did not run.
    pauses: PauseWatch,
}

impl HostLoop {
    /// A loop before its first turn.
    pub fn new(
        (host_index, session): (usize, Session),
        patience: Duration,
        (commands, waker): (Receiver<Request>, Arc<Waker>),
        (inbox, round): (Arc<Inbox>, u32),
    ) -> HostLoop {
        HostLoop {
            host_index,
            patience,
            commands,
            waker,
            inbox,
            round,
            received: session.received(),
            received_at: None,
            most: session.received() + MAX_BEFORE_START,
            session,
            beaten: None,
            started: None,
            unread: None,
            was_silent: false,
            pauses: PauseWatch::default(),
        }
    }

    /// What wakes the loop when the launcher has something to send.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The conversation with the host.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Runs until the host is lost or the launcher no longer uses it.
    pub fn run(mut self) {
        let mut events = Vec::new();
        loop {
            match self.turn(events, Instant::now(), term::uptime()) {
                LoopStep::Exchange(limit) => events = self.session.step(Some(&self.waker), limit),
                LoopStep::WaitForRoom => {
                    self.inbox.wait_for_room(self.round, self.host_index);
                    events = Vec::new();
                }
                LoopStep::SendTheRest => return self.send_the_rest(),
                LoopStep::End => return,
            }
        }
    }

    /// Handles the events of the last exchange, and decides the next step. `uptime` continues while
    /// the machine sleeps.
    pub fn turn(&mut self, events: Vec<SessionEvent>, now: Instant, uptime: Duration) -> LoopStep {
        // one of them may start the job, and a pause before that was sent counts
        if !self.send_commands(now) {
            return LoopStep::SendTheRest;
        }
        // before events that a pause of this launcher caused are handled, and the silence of the
        // host is judged
        self.notice_pause(now, uptime);
        if self.take(events, now) {
            return LoopStep::End;
        }
        if self.inbox.is_full(self.round, self.host_index) {
            self.unread = Some(now);
            // a host without heartbeats would consider this launcher lost
            self.session.flush();
            return LoopStep::WaitForRoom;
        }
        let is_silent = self.is_silent(now);
        let was_silent = std::mem::replace(&mut self.was_silent, is_silent);
        if is_silent && !was_silent {
            // something may have arrived since the last exchange, if this launcher was stopped
            return LoopStep::Exchange(Duration::ZERO);
        }
        if is_silent {
            let seconds = self.patience.as_secs_f32();
            return self.lose(format!("no message from it for {seconds} s"));
        }
        if self.started.is_none() && self.received > self.most {
            let megabytes = MAX_BEFORE_START >> 20;
            let limit = format!("{megabytes} MB before the job starts");
            return self.lose(format!("its answer is larger than {limit}"));
        }
        LoopStep::Exchange(self.until_heartbeat(now))
    }

    /// Passes on events; returns whether nothing follows.
    fn take(&mut self, events: Vec<SessionEvent>, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.received, self.session.received());
        if self.received > before {
            self.received_at = Some(now);
        }
        let share = (self.received - before) / (events.len() as u64).max(1);
        let is_lost = matches!(events.last(), Some(SessionEvent::Lost(_)));
        for event in events {
            // its arrival was all that counts
            if event != SessionEvent::Event(Event::Alive, Vec::new()) {
                self.push(event, share);
            }
        }
        is_lost
    }

    fn push(&self, event: SessionEvent, bytes: u64) {
        self.inbox.push(self.round, self.host_index, event, bytes);
    }

    fn lose(&self, why: String) -> LoopStep {
        self.push(SessionEvent::Lost(why), 0);
        LoopStep::End
    }

    /// Sends the waiting commands; returns whether the launcher still uses the host.
    fn send_commands(&mut self, now: Instant) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(request) => {
                    if matches!(request, Request::Start(_)) {
                        self.started = Some(now);
                    }
                    self.beaten.get_or_insert(now);
                    self.most = self.received + MAX_BEFORE_START;
                    self.session.send(&request);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        if self.until_heartbeat(now).is_zero() {
            self.beaten = Some(now);
            // an event in the inbox reports the loss
            if self.session.pending() == 0 {
                self.session.send(&Request::Alive);
            }
        }
        true
    }

    /// Sends the last requests, one of which may end the job.
    fn send_the_rest(&mut self) {
        let until = Instant::now() + LAST_REQUESTS;
        self.session.flush();
        while self.session.pending() > 0 && Instant::now() < until {
            std::thread::sleep(LAST_REQUESTS_PACE);
            self.session.flush();
        }
    }

    /// How long to wait at most: once the job was started, until the next heartbeat.
    fn notice_pause(&mut self, now: Instant, uptime: Duration) {
        let pause = self.pauses.turn(uptime, self.patience);
        if let Some(time) = pause.filter(|_| self.started.is_some()) {
            self.unread = Some(now);
            self.inbox.push_first(RunEvent::Paused(time));
        }
    }

    fn until_heartbeat(&self, now: Instant) -> Duration {
        let pace = heartbeat(self.patience);
        self.beaten.map_or(Duration::from_secs(60), |last| {
            pace.saturating_sub(now.saturating_duration_since(last))
        })
    }

    /// Whether the host was silent for too long. Only time in which it was read from counts.
    fn is_silent(&self, now: Instant) -> bool {
        self.started.is_some_and(|start| {
            let last = [self.received_at, self.unread].into_iter().flatten();
            let since = last.fold(start, Instant::max);
            now.saturating_duration_since(since) >= self.patience
        })
    }
}
