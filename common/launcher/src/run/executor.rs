//! The sessions with a job's hosts. An [`Executor`] talks to one host: it sends requests and
//! heartbeats, passes events on, and detects that the host is lost. [`Executor::turn`] decides and
//! has no clock; [`Executor::run`] waits, in a thread for each host.

use super::events::{EventSender, HostRequest, Inbox, RunEvent};
use job::{PauseWatch, heartbeat};
use record::{Host, term};
use session::{Session, SessionEvent, Waker};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use wire::{Event, Request};

/// The most bytes that a host may send after a request, before the job starts. The findings of the
/// preflight have some KB; they are kept, and take up to seven times as much memory. A waiting job
/// may ask each host every second for days.
const MAX_BEFORE_START: u64 = 8 << 20;
/// How long sending the last requests may take.
const LAST_REQUESTS: Duration = Duration::from_secs(3);
const LAST_REQUESTS_PACE: Duration = Duration::from_millis(10);
/// How long to wait for events of a host that needs no heartbeats yet.
const NO_HEARTBEATS: Duration = Duration::from_secs(60);

pub struct ConnectedHosts<'a> {
    /// In the order of the host records.
    pub sessions: Vec<HostSession<'a>>,
    inbox: Arc<Inbox>,
}

pub struct HostSession<'a> {
    pub host: &'a Host,
    /// The indices of its processes among the job's, in the order of their numbers on the host.
    pub members: Vec<usize>,
    requests: Sender<HostRequest>,
    waker: Arc<Waker>,
}

impl HostSession<'_> {
    pub fn send(&self, request: Request) {
        self.request(HostRequest::Send(request));
    }

    pub fn close(&self) {
        self.request(HostRequest::Close);
    }

    fn request(&self, request: HostRequest) {
        // an executor that has ended reported the reason
        if self.requests.send(request).is_ok() {
            self.waker.wake();
        }
    }
}

impl Drop for HostSession<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<'a> ConnectedHosts<'a> {
    /// Runs the executors of sessions, each with its host and the indices of the host's processes.
    /// After the job's start, a host that is silent for longer than `patience` is lost.
    pub fn new(
        hosts: Vec<(&'a Host, Vec<usize>, Session)>,
        patience: Duration,
        inbox: Arc<Inbox>,
    ) -> io::Result<ConnectedHosts<'a>> {
        let (connected, executors) = ConnectedHosts::with_executors(hosts, patience, inbox)?;
        for executor in executors {
            // these threads mostly wait and need little stack, and there may be thousands
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || executor.run())?;
        }
        Ok(connected)
    }

    /// The same with executors that the caller runs.
    pub fn with_executors(
        hosts: Vec<(&'a Host, Vec<usize>, Session)>,
        patience: Duration,
        inbox: Arc<Inbox>,
    ) -> io::Result<(ConnectedHosts<'a>, Vec<Executor>)> {
        let round = inbox.begin_round(hosts.len());
        let (mut sessions, mut executors) = (Vec::new(), Vec::new());
        for (host_index, (host, members, session)) in hosts.into_iter().enumerate() {
            let (sender, requests) = channel();
            let waker = Arc::new(Waker::new()?);
            executors.push(Executor {
                patience,
                requests,
                waker: Arc::clone(&waker),
                events: EventSender {
                    inbox: Arc::clone(&inbox),
                    round,
                    host_index,
                },
                received: session.received(),
                received_at: None,
                received_limit: session.received() + MAX_BEFORE_START,
                session,
                heartbeat_at: None,
                started_at: None,
                unread_at: None,
                was_silent: false,
                pauses: PauseWatch::default(),
            });
            sessions.push(HostSession {
                host,
                members,
                requests: sender,
                waker,
            });
        }
        let connected = ConnectedHosts { sessions, inbox };
        Ok((connected, executors))
    }

    /// The index, among the job's, of a process on this host.
    pub fn member(&self, host_index: usize, index: u32) -> Result<usize, String> {
        let member = self.sessions[host_index].members.get(index as usize);
        member
            .copied()
            .ok_or_else(|| format!("it has no process {index}"))
    }

    /// The index of a process, by its host's number and its index there.
    pub fn position(&self, host: u32, index: u32) -> Option<usize> {
        let mut sessions = self.sessions.iter();
        let host_index = sessions.position(|session| session.host.id == host)?;
        self.member(host_index, index).ok()
    }

    pub fn send_all(&self, request: &Request) {
        self.sessions
            .iter()
            .for_each(|session| session.send(request.clone()));
    }

    /// See [`Inbox::next`].
    pub fn next_event(&self, limit: Duration) -> Option<RunEvent> {
        self.inbox.next(limit)
    }
}

impl Drop for ConnectedHosts<'_> {
    fn drop(&mut self) {
        // no event of these hosts is of interest
        self.inbox.begin_round(0);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutorStep {
    /// Exchange bytes with the host; wait for them at most this long.
    Exchange(Duration),
    /// Wait for room in the inbox, without reading.
    WaitForRoom,
    /// Send the waiting requests and end, because the launcher no longer uses the host. The end of
    /// its stdin ends the agent.
    SendTheRest,
    /// The host is lost.
    End,
}

pub struct Executor {
    session: Session,
    patience: Duration,
    requests: Receiver<HostRequest>,
    waker: Arc<Waker>,
    events: EventSender,
    /// How many bytes had arrived at the last turn.
    received: u64,
    /// When the last of them arrived.
    received_at: Option<Instant>,
    /// How many bytes may arrive before the next request, until the job starts.
    received_limit: u64,
    /// When the last heartbeat was sent; `None` before the first request, after which the host may
    /// hold a claim or a job.
    heartbeat_at: Option<Instant>,
    /// The start of the job. Before it, an answer may take long.
    started_at: Option<Instant>,
    /// When the launcher last did not read from the host, because the inbox was full or the
    /// launcher was stopped.
    unread_at: Option<Instant>,
    was_silent: bool,
    pauses: PauseWatch,
}

impl Executor {
    /// Wakes the executor when there is something to send.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Runs until the host is lost or the launcher no longer uses it.
    pub fn run(mut self) {
        let mut events = Vec::new();
        loop {
            match self.turn(events, Instant::now(), term::uptime()) {
                ExecutorStep::Exchange(limit) => {
                    events = self.session.step(Some(&self.waker), limit);
                }
                ExecutorStep::WaitForRoom => {
                    self.events.wait_for_room();
                    events = Vec::new();
                }
                ExecutorStep::SendTheRest => return self.send_the_rest(),
                ExecutorStep::End => return,
            }
        }
    }

    /// Handles the events of the last exchange, and decides the next step. `uptime` continues while
    /// the machine sleeps.
    pub fn turn(
        &mut self,
        events: Vec<SessionEvent>,
        now: Instant,
        uptime: Duration,
    ) -> ExecutorStep {
        // one may start the job, and a pause before that was sent counts
        if !self.send_requests(now) {
            return ExecutorStep::SendTheRest;
        }
        // before handling events that a pause of this launcher caused, and judging the host's
        // silence
        let pause = self.pauses.turn(uptime, self.patience);
        if let Some(time) = pause.filter(|_| self.started_at.is_some()) {
            self.unread_at = Some(now);
            self.events.inbox.push_first(RunEvent::Paused(time));
        }
        if self.pass_on(events, now) {
            return ExecutorStep::End;
        }
        if self.events.is_full() {
            self.unread_at = Some(now);
            // a host without heartbeats would consider this launcher lost
            self.session.flush();
            return ExecutorStep::WaitForRoom;
        }
        let is_silent = self.is_silent(now);
        let was_silent = std::mem::replace(&mut self.was_silent, is_silent);
        if is_silent && !was_silent {
            // if this launcher was stopped, something may have arrived since the last exchange
            return ExecutorStep::Exchange(Duration::ZERO);
        }
        if is_silent {
            let seconds = self.patience.as_secs_f32();
            return self.lose(format!("no message from it for {seconds} s"));
        }
        if self.started_at.is_none() && self.received > self.received_limit {
            let megabytes = MAX_BEFORE_START >> 20;
            let limit = format!("{megabytes} MB before the job starts");
            return self.lose(format!("its answer is larger than {limit}"));
        }
        ExecutorStep::Exchange(self.until_heartbeat(now))
    }

    /// Sends the waiting requests, and a heartbeat if due; returns whether the launcher still uses
    /// the host.
    fn send_requests(&mut self, now: Instant) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(HostRequest::Send(request)) => {
                    if matches!(request, Request::Start(_)) {
                        self.started_at = Some(now);
                    }
                    self.heartbeat_at.get_or_insert(now);
                    self.received_limit = self.received + MAX_BEFORE_START;
                    self.session.send(&request);
                }
                Ok(HostRequest::Close) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => break,
            }
        }
        if self.until_heartbeat(now).is_zero() {
            self.heartbeat_at = Some(now);
            // requests that wait to be sent serve as well
            if self.session.pending() == 0 {
                self.session.send(&Request::Alive);
            }
        }
        true
    }

    /// The time to wait: until the next heartbeat, if the host needs any.
    fn until_heartbeat(&self, now: Instant) -> Duration {
        let pace = heartbeat(self.patience);
        self.heartbeat_at.map_or(NO_HEARTBEATS, |last| {
            pace.saturating_sub(now.saturating_duration_since(last))
        })
    }

    /// Returns whether nothing follows.
    fn pass_on(&mut self, events: Vec<SessionEvent>, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.received, self.session.received());
        if self.received > before {
            self.received_at = Some(now);
        }
        let share = (self.received - before) / (events.len() as u64).max(1);
        let is_lost = matches!(events.last(), Some(SessionEvent::Lost(_)));
        for event in events {
            // its arrival was all that counts
            if event != SessionEvent::Event(Event::Alive, Vec::new()) {
                self.events.send(event, share);
            }
        }
        is_lost
    }

    /// Whether the host was silent for too long. Only time in which it was read from counts.
    fn is_silent(&self, now: Instant) -> bool {
        self.started_at.is_some_and(|start| {
            let last = [self.received_at, self.unread_at].into_iter().flatten();
            let since = last.fold(start, Instant::max);
            now.saturating_duration_since(since) >= self.patience
        })
    }

    fn lose(&self, why: String) -> ExecutorStep {
        self.events.send(SessionEvent::Lost(why), 0);
        ExecutorStep::End
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
}
