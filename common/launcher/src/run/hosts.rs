//! The hosts of a job while the launcher talks to them: one thread for each host, and one inbox for
//! the events of all.
//!
//! The inbox is bounded for each host, and the hosts take turns. A host that talks without end
//! makes only itself wait; it neither fills the memory nor delays a signal, a deadline or another
//! host.

use job::{PauseWatch, heartbeat};
use parking_lot::{Condvar, Mutex};
use record::{Host, term};
use session::{Session, SessionEvent, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use wire::{Event, Request};

/// How much of one host may wait to be handled; beyond it nothing more is read from the host.
const MAX_WAITING_EVENTS: usize = 1024;
const MAX_WAITING_BYTES: u64 = 1 << 20;
/// The most that a host may tell before the job starts, in bytes: what the preflight finds and who
/// has its ports are some KB. What is found is kept, and takes up to seven times as much here.
const MAX_BEFORE_START: u64 = 8 << 20;
/// How long the last requests to a host may take to be sent.
const LAST_REQUESTS: Duration = Duration::from_secs(3);
/// How often it is tried to send more of them.
const LAST_REQUESTS_PACE: Duration = Duration::from_millis(10);
/// How long to wait for room in a full inbox before the clock is checked again.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// An event of the job.
#[derive(Debug)]
pub enum RunEvent {
    /// A host sent something, or is lost. The host is given by its position.
    Host(usize, SessionEvent),
    /// A signal that asks for the job's end.
    Signal(i32),
    /// A signal that asks how far the job is (SIGUSR1).
    StatusAsked,
    /// This launcher did not run for so long that hosts may have taken it for gone.
    Paused(Duration),
}

/// A host of the job: its record, its processes, and the session with its agent.
pub struct HostSession<'a> {
    /// The record of the host.
    pub host: &'a Host,
    /// The positions of its processes among the job's, in the order of the indices by which the
    /// agent names them.
    pub members: Vec<usize>,
    commands: Option<Sender<Request>>,
    waker: Arc<Waker>,
}

impl HostSession<'_> {
    /// Sends a request to the host's agent.
    pub fn send(&self, request: Request) {
        // a thread that has ended has reported why
        let sent = self
            .commands
            .as_ref()
            .is_some_and(|commands| commands.send(request).is_ok());
        if sent {
            self.waker.wake();
        }
    }

    /// Stops listening to the host; its agent then ends its part of the job.
    pub fn close(&mut self) {
        self.commands = None;
        self.waker.wake();
    }
}

impl Drop for HostSession<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The hosts of a job, and their inbox.
pub struct ConnectedHosts<'a> {
    /// The sessions, in the order of the host records.
    pub sessions: Vec<HostSession<'a>>,
    inbox: Arc<Inbox>,
    round: u32,
}

impl<'a> ConnectedHosts<'a> {
    /// Takes the sessions, each with its host and the positions of that host's processes. After the
    /// job was started, a host that is silent for longer than `patience` is lost.
    pub fn new(
        hosts: Vec<(&'a Host, Vec<usize>, Session)>,
        patience: Duration,
        inbox: Arc<Inbox>,
    ) -> io::Result<ConnectedHosts<'a>> {
        let round = inbox.begin_round(hosts.len());
        let mut sessions = Vec::new();
        for (at, (host, members, session)) in hosts.into_iter().enumerate() {
            let (commands, receiver) = channel();
            let waker = Arc::new(Waker::new()?);
            let talk = HostThread {
                at,
                session,
                patience,
                waker: Arc::clone(&waker),
                inbox: Arc::clone(&inbox),
                round,
                beaten: None,
                started: None,
                unread: None,
                pauses: PauseWatch::default(),
            };
            // a thread that mostly waits needs little stack, and there may be thousands of them
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || talk.run(&receiver))?;
            sessions.push(HostSession {
                host,
                members,
                commands: Some(commands),
                waker,
            });
        }
        Ok(ConnectedHosts {
            sessions,
            inbox,
            round,
        })
    }

    /// Sends the same request to all agents.
    pub fn send_all(&self, request: &Request) {
        self.sessions
            .iter()
            .for_each(|session| session.send(request.clone()));
    }

    /// The next event, signals first; `None` if nothing happens within the limit.
    pub fn next_event(&self, limit: Duration) -> Option<RunEvent> {
        self.inbox.next(limit)
    }
}

/// The signals and events that wait to be handled. Each try of a job is a round, with hosts of its
/// own; signals wait for whoever takes the next event.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct State {
    signals: VecDeque<RunEvent>,
    hosts: Vec<Waiting>,
    /// The host whose turn it is.
    turn: usize,
    /// The number of the round. Hosts of earlier ones are not listened to.
    round: u32,
}

#[derive(Default)]
struct Waiting {
    /// The events, each with the bytes that came with it.
    events: VecDeque<(SessionEvent, u64)>,
    bytes: u64,
}

impl Waiting {
    fn is_full(&self) -> bool {
        self.events.len() >= MAX_WAITING_EVENTS || self.bytes >= MAX_WAITING_BYTES
    }
}

impl Inbox {
    fn begin_round(&self, hosts: usize) -> u32 {
        let mut state = self.state.lock();
        state.hosts = (0..hosts).map(|_| Waiting::default()).collect();
        state.turn = 0;
        state.round += 1;
        self.room.notify_all();
        state.round
    }

    fn end_round(&self, round: u32) {
        if self.state.lock().round == round {
            self.begin_round(0);
        }
    }

    /// Puts an event before all of hosts.
    pub fn push_first(&self, event: RunEvent) {
        self.state.lock().signals.push_back(event);
        self.arrived.notify_one();
    }

    /// Drops what waits before the events of hosts.
    pub fn forget_signals(&self) {
        self.state.lock().signals.clear();
    }

    fn push(&self, round: u32, at: usize, event: SessionEvent, bytes: u64) {
        let mut state = self.state.lock();
        if state.round == round {
            state.hosts[at].bytes += bytes;
            state.hosts[at].events.push_back((event, bytes));
            self.arrived.notify_one();
        }
    }

    /// Waits a moment for room for one more event of a host; returns whether there is any.
    fn wait_for_room(&self, round: u32, at: usize) -> bool {
        let is_full = |state: &mut State| state.round == round && state.hosts[at].is_full();
        let mut state = self.state.lock();
        self.room.wait_while_for(&mut state, is_full, ROOM_PAUSE);
        !is_full(&mut state)
    }

    /// The next event, signals first; `None` if nothing happens within the limit.
    pub fn next(&self, limit: Duration) -> Option<RunEvent> {
        let mut state = self.state.lock();
        let is_empty = |state: &mut State| state.is_empty();
        self.arrived.wait_while_for(&mut state, is_empty, limit);
        if let Some(signal) = state.signals.pop_front() {
            return Some(signal);
        }
        let count = state.hosts.len();
        let at = (0..count)
            .map(|offset| (state.turn + offset) % count)
            .find(|at| !state.hosts[*at].events.is_empty())?;
        state.turn = (at + 1) % count;
        let was_full = state.hosts[at].is_full();
        let (event, bytes) = state.hosts[at].events.pop_front()?;
        state.hosts[at].bytes -= bytes;
        if was_full {
            self.room.notify_all();
        }
        Some(RunEvent::Host(at, event))
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.signals.is_empty() && self.hosts.iter().all(|host| host.events.is_empty())
    }
}

impl Drop for ConnectedHosts<'_> {
    fn drop(&mut self) {
        self.inbox.end_round(self.round);
    }
}

/// The thread of one host.
struct HostThread {
    at: usize,
    session: Session,
    patience: Duration,
    waker: Arc<Waker>,
    inbox: Arc<Inbox>,
    round: u32,
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

impl HostThread {
    /// Talks until the host is lost or nobody is interested any longer. Then the end of its stdin
    /// ends the agent.
    fn run(mut self, commands: &Receiver<Request>) {
        loop {
            if !self.send_commands(commands) {
                return;
            }
            if !self.inbox.wait_for_room(self.round, self.at) {
                self.unread = Some(Instant::now());
                // a host that hears nothing takes us for gone
                self.session.flush();
                self.notice_pause();
                continue;
            }
            if self.is_silent() {
                let why = format!("no message from it for {} s", self.patience.as_secs_f32());
                return self
                    .inbox
                    .push(self.round, self.at, SessionEvent::Lost(why), 0);
            }
            let before = self.session.received();
            if self.started.is_none() && before > MAX_BEFORE_START {
                let megabytes = MAX_BEFORE_START >> 20;
                let why = format!("its answer is larger than {megabytes} MB before the job starts");
                return self
                    .inbox
                    .push(self.round, self.at, SessionEvent::Lost(why), 0);
            }
            let all = self.session.step(Some(&self.waker), self.until_heartbeat());
            // before what the host did because nobody listened is handled
            self.notice_pause();
            let share = (self.session.received() - before) / (all.len() as u64).max(1);
            for event in all {
                let is_last = matches!(event, SessionEvent::Lost(_));
                // an Alive event has served its purpose by coming
                if event != SessionEvent::Event(Event::Alive, Vec::new()) {
                    self.inbox.push(self.round, self.at, event, share);
                }
                if is_last {
                    return;
                }
            }
        }
    }

    /// Sends the commands that wait; returns whether anybody is still interested.
    fn send_commands(&mut self, commands: &Receiver<Request>) -> bool {
        loop {
            match commands.try_recv() {
                Ok(request) => {
                    let now = Instant::now();
                    if matches!(request, Request::Start(_) | Request::Follow(_)) {
                        self.started = Some(now);
                    }
                    self.beaten.get_or_insert(now);
                    self.session.send(&request);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.send_the_rest();
                    return false;
                }
            }
        }
        if self.until_heartbeat().is_zero() {
            self.beaten = Some(Instant::now());
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

    /// Once the job was started, this thread never waits longer than for the next heartbeat.
    fn notice_pause(&mut self) {
        if self.started.is_none() {
            return;
        }
        if let Some(time) = self.pauses.turn(term::uptime(), self.patience) {
            self.unread = Some(Instant::now());
            self.inbox.push_first(RunEvent::Paused(time));
        }
    }

    fn until_heartbeat(&self) -> Duration {
        let pace = heartbeat(self.patience);
        self.beaten.map_or(Duration::from_secs(60), |last| {
            pace.saturating_sub(last.elapsed())
        })
    }

    /// Whether the host was silent for too long. Only the time counts in which it was listened to.
    fn is_silent(&self) -> bool {
        self.started.is_some_and(|start| {
            let last = self.session.last_received().max(start);
            let since = self.unread.map_or(last, |unread| unread.max(last));
            since.elapsed() >= self.patience
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(why: &str) -> SessionEvent {
        SessionEvent::Lost(why.to_owned())
    }

    fn events(event: Option<RunEvent>) -> String {
        match event {
            Some(RunEvent::Host(at, SessionEvent::Lost(why))) => format!("{at}{why}"),
            Some(RunEvent::Signal(number)) => format!("signal {number}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn signals_come_first_and_hosts_take_turns() {
        let inbox = Inbox::default();
        let round = inbox.begin_round(3);
        ["a", "b", "c"]
            .iter()
            .for_each(|why| inbox.push(round, 1, lost(why), 1));
        inbox.push(round, 2, lost("x"), 1);
        inbox.push_first(RunEvent::Signal(2));
        let got: Vec<String> = (0..5).map(|_| events(inbox.next(Duration::ZERO))).collect();
        assert_eq!(got, ["signal 2", "1a", "2x", "1b", "1c"]);
        assert!(inbox.next(Duration::ZERO).is_none());
        inbox.begin_round(3);
        inbox.push(round, 1, lost("late"), 1);
        assert!(inbox.next(Duration::ZERO).is_none());
    }

    #[test]
    fn a_host_that_talks_without_end_waits_and_others_do_not() {
        let inbox = Inbox::default();
        let round = inbox.begin_round(2);
        (0..2).for_each(|_| inbox.push(round, 0, lost(""), MAX_WAITING_BYTES / 2));
        assert!(!inbox.wait_for_room(round, 0) && inbox.wait_for_room(round, 1));
        assert!(matches!(
            inbox.next(Duration::ZERO),
            Some(RunEvent::Host(0, _))
        ));
        assert!(inbox.wait_for_room(round, 0));
        (0..MAX_WAITING_EVENTS).for_each(|_| inbox.push(round, 1, lost(""), 0));
        assert!(!inbox.wait_for_room(round, 1));
    }
}
