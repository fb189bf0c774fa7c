//! The loop by which the launcher talks to one host: requests and heartbeats go out, events go into
//! the inbox, and a host that is silent is lost. [`HostLoop::turn`] decides and has no clock;
//! [`HostLoop::run`] waits.

use super::inbox::{Inbox, RunEvent};
use job::{PauseWatch, heartbeat};
use record::term;
use session::{Session, SessionEvent, Waker};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use wire::{Event, Request};

/// The most that a host may tell before the job starts, in bytes: what the preflight finds and who
/// has its ports are some KB. What is found is kept, and takes up to seven times as much here.
const MAX_BEFORE_START: u64 = 8 << 20;
/// How long the last requests to a host may take to be sent.
const LAST_REQUESTS: Duration = Duration::from_secs(3);
/// How often it is tried to send more of them.
const LAST_REQUESTS_PACE: Duration = Duration::from_millis(10);

/// What the loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopStep {
    /// It exchanges bytes with the host, and waits for them at most this long.
    Exchange(Duration),
    /// It waits for room in the inbox, and reads nothing from the host.
    WaitForRoom,
    /// It sends the requests that wait and ends, because nobody is interested any longer. Then the
    /// end of its stdin ends the agent.
    SendTheRest,
    /// It ends, because the host is lost.
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
    /// How many bytes had come at the last turn, and when the last of them came.
    received: u64,
    received_at: Option<Instant>,
    /// When the last heartbeat was sent. After the first command the host may hold something for
    /// us: a claim, then a job.
    beaten: Option<Instant>,
    /// When the job was started. Before that, a host may take its time for an answer.
    started: Option<Instant>,
    /// When nothing was read from the host last, because its inbox was full or the launcher was
    /// stopped.
    unread: Option<Instant>,
    /// Notices that the launcher did not run.
    pauses: PauseWatch,
}

impl HostLoop {
    /// A loop that has not turned yet.
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
            session,
            beaten: None,
            started: None,
            unread: None,
            pauses: PauseWatch::default(),
        }
    }

    /// The conversation with the host.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Runs until the host is lost or nobody is interested any longer.
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

    /// Handles what came in the last exchange, and decides what is next. `uptime` goes on while the
    /// machine sleeps.
    pub fn turn(&mut self, events: Vec<SessionEvent>, now: Instant, uptime: Duration) -> LoopStep {
        // before what the host did because nobody listened is handled, and its silence is judged
        self.notice_pause(now, uptime);
        if self.take(events, now) {
            return LoopStep::End;
        }
        if !self.send_commands(now) {
            return LoopStep::SendTheRest;
        }
        if self.inbox.is_full(self.round, self.host_index) {
            self.unread = Some(now);
            // a host that hears nothing takes us for gone
            self.session.flush();
            return LoopStep::WaitForRoom;
        }
        if self.is_silent(now) {
            let seconds = self.patience.as_secs_f32();
            return self.lose(format!("no message from it for {seconds} s"));
        }
        if self.started.is_none() && self.received > MAX_BEFORE_START {
            let megabytes = MAX_BEFORE_START >> 20;
            let limit = format!("{megabytes} MB before the job starts");
            return self.lose(format!("its answer is larger than {limit}"));
        }
        LoopStep::Exchange(self.until_heartbeat(now))
    }

    /// Passes on what has come; returns whether nothing follows.
    fn take(&mut self, events: Vec<SessionEvent>, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.received, self.session.received());
        if self.received > before {
            self.received_at = Some(now);
        }
        let share = (self.received - before) / (events.len() as u64).max(1);
        let is_lost = matches!(events.last(), Some(SessionEvent::Lost(_)));
        for event in events {
            // an Alive event has served its purpose by coming
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

    /// Sends the commands that wait; returns whether anybody is still interested.
    fn send_commands(&mut self, now: Instant) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(request) => {
                    if matches!(request, Request::Start(_) | Request::Follow(_)) {
                        self.started = Some(now);
                    }
                    self.beaten.get_or_insert(now);
                    self.session.send(&request);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        if self.until_heartbeat(now).is_zero() {
            self.beaten = Some(now);
            // an event that was not taken yet says so already
            if self.session.pending() == 0 {
                self.session.send(&Request::Alive);
            }
        }
        true
    }

    /// The last request may be that the job is to end.
    fn send_the_rest(&mut self) {
        let until = Instant::now() + LAST_REQUESTS;
        self.session.flush();
        while self.session.pending() > 0 && Instant::now() < until {
            std::thread::sleep(LAST_REQUESTS_PACE);
            self.session.flush();
        }
    }

    /// Once the job was started, this loop never waits longer than for the next heartbeat.
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

    /// Whether the host was silent for too long. Only the time counts in which it was listened to.
    fn is_silent(&self, now: Instant) -> bool {
        self.started.is_some_and(|start| {
            let last = [self.received_at, self.unread].into_iter().flatten();
            let since = last.fold(start, Instant::max);
            now.saturating_duration_since(since) >= self.patience
        })
    }
}
