//! The hosts of a job while the launcher talks to them: a thread each, and what comes from all of
//! them in one inbox.
//!
//! The inbox is bounded for each host, and the hosts take turns: one that talks without end waits
//! for itself, and neither fills memory nor keeps a signal, a deadline or another host from being
//! heard.

use record::Host;
use remote::{Session, SessionEvent, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::{Event, Request};

/// How often a host hears that the launcher lives; oftener where six times would not fit into
/// --host-timeout.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// What of one host may wait to be dealt with: then nothing more is read of it.
const MAX_WAITING_EVENTS: usize = 1024;
const MAX_WAITING_BYTES: u64 = 1 << 20;
/// How long a full inbox is waited for before the clock is looked at again.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// What happens.
#[derive(Debug)]
pub enum RunEvent {
    /// A host said something, or is lost.
    Host(usize, SessionEvent),
    /// A signal that asks for the job's end.
    Signal(i32),
    /// A signal that asks how far the job is (SIGUSR1).
    StatusAsked,
}

/// A host as the job sees it: its record, which of the job's processes are its own, and the way to
/// its agent.
pub struct HostSession<'a> {
    /// Its record.
    pub host: &'a Host,
    /// Positions of its processes among the job's, in the order of the indices by which the agent
    /// names them.
    pub members: Vec<usize>,
    commands: Option<Sender<Request>>,
    waker: Arc<Waker>,
}

impl HostSession<'_> {
    /// Sends its agent a request.
    pub fn send(&self, request: Request) {
        // a thread that has ended has told why
        let sent = self
            .commands
            .as_ref()
            .is_some_and(|commands| commands.send(request).is_ok());
        if sent {
            self.waker.wake();
        }
    }

    /// Listens to it no longer: its agent ends what it has of the job.
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

/// The hosts of a job, and what happens on them.
pub struct ConnectedHosts<'a> {
    /// In the order of their records.
    pub sessions: Vec<HostSession<'a>>,
    inbox: Arc<Inbox>,
}

impl<'a> ConnectedHosts<'a> {
    /// Takes the sessions, each with its host and the positions of that host's processes. A host
    /// that is silent for longer than `patience` once the job was started is lost.
    pub fn new(
        hosts: Vec<(&'a Host, Vec<usize>, Session)>,
        patience: Duration,
    ) -> io::Result<ConnectedHosts<'a>> {
        let inbox = Arc::new(Inbox::new(hosts.len()));
        let mut sessions = Vec::new();
        for (at, (host, members, session)) in hosts.into_iter().enumerate() {
            let (commands, receiver) = channel();
            let waker = Arc::new(Waker::new()?);
            let talk = Talk {
                at,
                session,
                patience,
                waker: Arc::clone(&waker),
                inbox: Arc::clone(&inbox),
                beaten: None,
                started: None,
            };
            // a thread that mostly waits needs little stack, and there may be thousands
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
        Ok(ConnectedHosts { sessions, inbox })
    }

    /// Sends all agents the same request.
    pub fn send_all(&self, request: &Request) {
        self.sessions
            .iter()
            .for_each(|session| session.send(request.clone()));
    }

    /// What happens next, signals first; `None` if nothing does within the limit.
    pub fn next_event(&self, limit: Duration) -> Option<RunEvent> {
        self.inbox.next(limit)
    }

    /// Where signals are to be told.
    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }
}

/// What waits to be dealt with.
pub struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    room: Condvar,
}

struct State {
    signals: VecDeque<RunEvent>,
    hosts: Vec<Waiting>,
    /// The host whose turn it is.
    turn: usize,
    /// Nobody takes anything any more.
    closed: bool,
}

#[derive(Default)]
struct Waiting {
    /// Each with its share of the bytes that it came with.
    events: VecDeque<(SessionEvent, u64)>,
    bytes: u64,
}

impl Waiting {
    fn is_full(&self) -> bool {
        self.events.len() >= MAX_WAITING_EVENTS || self.bytes >= MAX_WAITING_BYTES
    }
}

impl Inbox {
    fn new(hosts: usize) -> Inbox {
        let hosts = (0..hosts).map(|_| Waiting::default()).collect();
        let state = State {
            signals: VecDeque::new(),
            hosts,
            turn: 0,
            closed: false,
        };
        Inbox {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            room: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a signal in front of all that hosts say; whether somebody will take it.
    pub fn signal(&self, event: RunEvent) -> bool {
        let mut state = self.lock();
        if !state.closed {
            state.signals.push_back(event);
            self.arrived.notify_one();
        }
        !state.closed
    }

    fn push(&self, at: usize, heard: SessionEvent, bytes: u64) {
        let mut state = self.lock();
        state.hosts[at].bytes += bytes;
        state.hosts[at].events.push_back((heard, bytes));
        self.arrived.notify_one();
    }

    /// Waits a moment for room for one more event of a host; whether there is.
    fn wait_for_room(&self, at: usize) -> bool {
        let is_full = |state: &mut State| state.hosts[at].is_full() && !state.closed;
        let waited = self
            .room
            .wait_timeout_while(self.lock(), ROOM_PAUSE, is_full);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.hosts[at].is_full()
    }

    fn next(&self, limit: Duration) -> Option<RunEvent> {
        let waited = self
            .arrived
            .wait_timeout_while(self.lock(), limit, |state| state.is_empty());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(signal) = state.signals.pop_front() {
            return Some(signal);
        }
        let count = state.hosts.len();
        let at = (0..count)
            .map(|offset| (state.turn + offset) % count)
            .find(|at| !state.hosts[*at].events.is_empty())?;
        state.turn = (at + 1) % count;
        let was_full = state.hosts[at].is_full();
        let (heard, bytes) = state.hosts[at].events.pop_front()?;
        state.hosts[at].bytes -= bytes;
        if was_full {
            self.room.notify_all();
        }
        Some(RunEvent::Host(at, heard))
    }

    fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.signals.is_empty() && self.hosts.iter().all(|host| host.events.is_empty())
    }
}

impl Drop for ConnectedHosts<'_> {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

/// One host's thread.
struct Talk {
    at: usize,
    session: Session,
    patience: Duration,
    waker: Arc<Waker>,
    inbox: Arc<Inbox>,
    /// When the last heartbeat was sent. From the first command on the host may hold something for
    /// us: a claim, then a job.
    beaten: Option<Instant>,
    /// When the job was started. Before that a host may take its time for an answer.
    started: Option<Instant>,
}

impl Talk {
    /// Talks until the host is lost or nobody is interested any more; then the end of its stdin
    /// ends the agent.
    fn run(mut self, commands: &Receiver<Request>) {
        loop {
            if !self.send_commands(commands) {
                return;
            }
            if self.is_silent() {
                let why = format!(
                    "nothing was heard of it for {} s",
                    self.patience.as_secs_f32()
                );
                return self.inbox.push(self.at, SessionEvent::Lost(why), 0);
            }
            if !self.inbox.wait_for_room(self.at) {
                continue;
            }
            let before = self.session.received();
            let all = self.session.step(Some(&self.waker), self.until_heartbeat());
            let share = (self.session.received() - before) / (all.len() as u64).max(1);
            for heard in all {
                let is_last = matches!(heard, SessionEvent::Lost(_));
                // that it lives is told by its coming
                if heard != SessionEvent::Event(Event::Alive, Vec::new()) {
                    self.inbox.push(self.at, heard, share);
                }
                if is_last {
                    return;
                }
            }
        }
    }

    /// Hands on what is to be sent; whether anybody is still interested.
    fn send_commands(&mut self, commands: &Receiver<Request>) -> bool {
        loop {
            match commands.try_recv() {
                Ok(request) => {
                    let now = Instant::now();
                    if matches!(request, Request::Start(_)) {
                        self.started = Some(now);
                    }
                    self.beaten.get_or_insert(now);
                    self.session.send(&request);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        if self.until_heartbeat().is_zero() {
            self.beaten = Some(Instant::now());
            // one that was not taken yet says it already
            if self.session.pending() == 0 {
                self.session.send(&Request::Alive);
            }
        }
        true
    }

    fn until_heartbeat(&self) -> Duration {
        let pace = HEARTBEAT.min(self.patience / 6);
        self.beaten.map_or(Duration::from_secs(60), |last| {
            pace.saturating_sub(last.elapsed())
        })
    }

    fn is_silent(&self) -> bool {
        self.started
            .is_some_and(|start| self.session.last_heard().max(start).elapsed() >= self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(why: &str) -> SessionEvent {
        SessionEvent::Lost(why.to_owned())
    }

    fn heard(event: Option<RunEvent>) -> String {
        match event {
            Some(RunEvent::Host(at, SessionEvent::Lost(why))) => format!("{at}{why}"),
            Some(RunEvent::Signal(number)) => format!("signal {number}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn signals_come_first_and_hosts_take_turns() {
        let inbox = Inbox::new(3);
        ["a", "b", "c"]
            .iter()
            .for_each(|why| inbox.push(1, lost(why), 1));
        inbox.push(2, lost("x"), 1);
        assert!(inbox.signal(RunEvent::Signal(2)));
        let got: Vec<String> = (0..5).map(|_| heard(inbox.next(Duration::ZERO))).collect();
        assert_eq!(got, ["signal 2", "1a", "2x", "1b", "1c"]);
        assert!(inbox.next(Duration::ZERO).is_none());
        inbox.close();
        assert!(!inbox.signal(RunEvent::Signal(2)));
    }

    #[test]
    fn a_host_that_talks_without_end_waits_and_others_do_not() {
        let inbox = Inbox::new(2);
        (0..2).for_each(|_| inbox.push(0, lost(""), MAX_WAITING_BYTES / 2));
        assert!(!inbox.wait_for_room(0) && inbox.wait_for_room(1));
        assert!(matches!(
            inbox.next(Duration::ZERO),
            Some(RunEvent::Host(0, _))
        ));
        assert!(inbox.wait_for_room(0));
        (0..MAX_WAITING_EVENTS).for_each(|_| inbox.push(1, lost(""), 0));
        assert!(!inbox.wait_for_room(1));
    }
}
