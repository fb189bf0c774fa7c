//! The place where agents dial in: it checks who connects, and keeps the connections of those let
//! in.
//!
//! One thread answers all connections. Only who has the key of this run gets in. The number of
//! connections that may try at once, and their time, are bounded, and the oldest is dropped first,
//! so that whoever holds the port busy keeps nobody out. An agent that was let in waits with one
//! connection at a time; when that one is taken for a conversation, the agent dials again.

use super::matching::Roll;
use crate::transport::Waker;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Backlog, listen};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tls::{Guests, Link};
use wire::codec::{self, Decoder};
use wire::dial::{Ender, Hello, Word};

/// How many connections may try to get in at once. Agents of thousands of hosts connect in the same
/// second, and each takes milliseconds; one that was dropped in favour of another connects again.
const KNOCKING: usize = 4096;
/// An agent with the key proves it at once.
const KNOCK_LIMIT: Duration = Duration::from_secs(10);
/// The most that an agent reports of itself: some names and addresses.
const MAX_HELLO: usize = 64 << 10;
/// How often those who wait check for what no event reports.
const LOOK: Duration = Duration::from_millis(50);
/// An agent waits with one connection; where one has broken without a word it has another.
const MOST_PARKED: usize = 4;
/// So many agents are listened to at most, asked for or not: a host that has the secret could make
/// up names without end.
const MOST_AGENTS: usize = 65_536;
/// An agent whose connection was taken has dialed again by then, or never will.
const REDIAL_LIMIT: Duration = Duration::from_secs(20);

/// Identifies an agent that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat(usize);

/// A connection that waits for a conversation, and the bytes that came behind its hello.
pub(crate) struct Parked {
    pub(crate) link: Link,
    pub(crate) plain: Vec<u8>,
}

impl Parked {
    /// Whether the agent is still at the other end.
    fn is_there(&mut self) -> bool {
        matches!(self.link.receive(&mut self.plain), Ok(true))
    }
}

/// An agent that was let in.
struct Agent {
    hello: Hello,
    from: IpAddr,
    parked: VecDeque<Parked>,
    /// When its last connection was taken.
    taken: Instant,
    /// Whether it has ended or does not answer.
    gone: bool,
}

impl Agent {
    /// Another of its connections waits.
    fn park(&mut self, parked: Parked) {
        while self.parked.len() >= MOST_PARKED {
            self.parked.pop_front();
        }
        self.parked.push_back(parked);
        // its connection may have broken before
        self.gone = false;
    }

    fn is_live(&mut self) -> bool {
        while !self.gone
            && let Some(first) = self.parked.front_mut()
            && !first.is_there()
        {
            self.parked.pop_front();
            // a process that has ended closes the waiting connection
            self.gone = self.parked.is_empty();
        }
        if self.parked.is_empty() && self.taken.elapsed() > REDIAL_LIMIT {
            self.gone = true;
        }
        !self.gone
    }

    /// The agent in messages: `n5 (10.0.0.5, SLURM_NODEID 4)`.
    fn shown(&self) -> String {
        let name = self.hello.names.last().map_or("?", String::as_str);
        let place = self.hello.place.iter().map(|place| format!(", {place}"));
        let text = format!("{name} ({}{})", self.from, place.collect::<String>());
        record::term::plain(&text).into_owned()
    }
}

/// The agents that dialed in without being asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Agents that belong to no host that was asked for.
    pub(crate) unasked: Vec<String>,
    /// Further agents of hosts that already have one.
    pub(crate) twice: Vec<String>,
    /// How many connections did not have the key of this run.
    pub(crate) turned_away: u64,
    /// The address of the last of them.
    pub(crate) last_from: Option<IpAddr>,
}

#[derive(Default)]
struct State {
    agents: Vec<Agent>,
    by_id: HashMap<String, usize>,
    turned_away: u64,
    last_from: Option<IpAddr>,
}

struct Shared {
    guests: Guests,
    state: Mutex<State>,
    arrived: Condvar,
    closing: AtomicBool,
    waker: Waker,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lobby. It is open until it is closed.
pub(crate) struct Lobby {
    shared: Arc<Shared>,
    doorkeeper: Mutex<Option<JoinHandle<()>>>,
}

impl Lobby {
    /// Opens the lobby on these listeners, for whoever has one of the keys.
    pub(crate) fn open(listeners: Vec<TcpListener>, guests: Guests) -> io::Result<Lobby> {
        for listener in &listeners {
            listener.set_nonblocking(true)?;
            // all agents may connect at once; whatever does not fit is tried again a second later
            listen(listener, Backlog::MAXALLOWABLE)?;
        }
        let shared = Arc::new(Shared {
            guests,
            state: Mutex::default(),
            arrived: Condvar::new(),
            closing: AtomicBool::new(false),
            waker: Waker::new()?,
        });
        let keeper = Doorkeeper {
            shared: Arc::clone(&shared),
            listeners,
            knocking: VecDeque::new(),
        };
        let thread = std::thread::Builder::new().spawn(move || keeper.run())?;
        Ok(Lobby {
            shared,
            doorkeeper: Mutex::new(Some(thread)),
        })
    }

    /// For each host, the seat of its agent if it has dialed in.
    pub(crate) fn seats(&self, roll: &Roll) -> Vec<Option<Seat>> {
        let mut state = self.shared.lock();
        let mut seats = vec![None; roll.count()];
        for at in 0..state.agents.len() {
            if state.agents[at].is_live() {
                assign(&mut seats, roll, &state.agents[at].hello, at);
            }
        }
        seats
    }

    /// Waits until the agents of all hosts have dialed in, until the time has come, or until
    /// waiting is pointless. Returns the seats of those that have.
    pub(crate) fn wait(
        &self,
        roll: &Roll,
        until: Instant,
        mut is_pointless: impl FnMut() -> bool,
    ) -> Vec<Option<Seat>> {
        let mut seats = self.seats(roll);
        let mut state = self.shared.lock();
        // an agent that dialed in meanwhile is only looked at twice
        let mut seen = 0;
        loop {
            while seen < state.agents.len() {
                if !state.agents[seen].gone {
                    assign(&mut seats, roll, &state.agents[seen].hello, seen);
                }
                seen += 1;
            }
            let is_here = |seat: &Option<Seat>| {
                let agent = seat.as_ref().map(|seat| &state.agents[seat.0]);
                agent.is_some_and(|agent| !agent.parked.is_empty())
            };
            let missing = seats.iter().filter(|seat| !is_here(seat)).count();
            let left = until.saturating_duration_since(Instant::now());
            if missing == 0 || left.is_zero() || is_pointless() {
                let here: Vec<bool> = seats.iter().map(is_here).collect();
                let kept = seats.into_iter().zip(here);
                return kept
                    .map(|(seat, is_here)| seat.filter(|_| is_here))
                    .collect();
            }
            let waited = self.shared.arrived.wait_timeout(state, left.min(LOOK));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes a waiting connection of an agent for a conversation; `None` if the agent is gone.
    pub(crate) fn take(&self, seat: &Seat, until: Instant) -> Option<Parked> {
        let mut state = self.shared.lock();
        loop {
            let agent = state.agents.get_mut(seat.0)?;
            if !agent.is_live() {
                return None;
            }
            if let Some(parked) = agent.parked.pop_front() {
                agent.taken = Instant::now();
                return Some(parked);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // nobody tells that one has not dialed again
            let waited = self.shared.arrived.wait_timeout(state, left.min(LOOK));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Forgets an agent that does not answer.
    pub(crate) fn forget(&self, seat: &Seat) {
        if let Some(agent) = self.shared.lock().agents.get_mut(seat.0) {
            agent.gone = true;
            agent.parked.clear();
        }
    }

    /// Which engine ends the processes that agents leave behind, if one does.
    pub(crate) fn ender(&self) -> Option<Ender> {
        let state = self.shared.lock();
        state.agents.iter().find_map(|agent| agent.hello.ender)
    }

    /// Whether no agent has dialed in since the lobby was opened; it must not be closed yet.
    pub(crate) fn is_deserted(&self) -> bool {
        self.shared.lock().agents.is_empty()
    }

    /// The agents that have dialed in so far without being asked for.
    pub(crate) fn census(&self, roll: &Roll) -> Census {
        let state = self.shared.lock();
        let mut census = Census {
            turned_away: state.turned_away,
            last_from: state.last_from,
            ..Census::default()
        };
        let mut seats = vec![None; roll.count()];
        for (at, agent) in state.agents.iter().enumerate() {
            let hosts = roll.hosts_of(&agent.hello);
            if hosts.is_empty() {
                census.unasked.push(agent.shown());
            } else if hosts.iter().all(|host| seats[*host].is_some()) {
                census.twice.push(agent.shown());
            }
            if !agent.gone {
                assign(&mut seats, roll, &agent.hello, at);
            }
        }
        census
    }

    /// Lets nobody else in, and tells the waiting agents to leave.
    pub(crate) fn close(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shared.waker.wake();
        let thread = self
            .doorkeeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        let mut state = self.shared.lock();
        for parked in state.agents.iter_mut().flat_map(|agent| &mut agent.parked) {
            // an agent that cannot be told sees the end of its connection
            let _ = parked.link.send(&codec::encode(&Word::Leave, &[]));
            let _ = parked.link.close();
        }
        state.agents.clear();
    }
}

/// Gives an agent's seat to the hosts that it is, unless they have one.
fn assign(seats: &mut [Option<Seat>], roll: &Roll, hello: &Hello, agent: usize) {
    for host in roll.hosts_of(hello) {
        seats[host].get_or_insert(Seat(agent));
    }
}

/// A connection that is not let in yet.
struct Knock {
    link: Link,
    decoder: Decoder,
    from: IpAddr,
    until: Instant,
}

/// The state of a connection that tries to get in.
enum Answer {
    /// It needs more time.
    Later,
    /// It has introduced itself.
    Come(Hello),
    /// It does not have the key, or what it sends is useless.
    Away,
}

impl Knock {
    fn answer(&mut self) -> Answer {
        let received = self.link.flush();
        let received = received.and_then(|()| self.link.receive(&mut self.decoder));
        let Ok(may_say_more) = received else {
            return Answer::Away;
        };
        if self.link.peer().is_none() {
            return if may_say_more {
                Answer::Later
            } else {
                Answer::Away
            };
        }
        match self.decoder.next_message::<Hello>() {
            Ok(Some(message)) => Answer::Come(message.head),
            // one that has ended would be ready to be read again and again
            Ok(None) if may_say_more && self.decoder.waiting() <= MAX_HELLO => Answer::Later,
            _ => Answer::Away,
        }
    }
}

/// Answers all connections.
struct Doorkeeper {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    /// The connections that try to get in, the oldest first.
    knocking: VecDeque<Knock>,
}

impl Doorkeeper {
    fn run(mut self) {
        while !self.shared.closing.load(Ordering::Relaxed) {
            let ready = self.wait();
            self.answer(&ready);
            self.turn_away_the_late();
            for at in 0..self.listeners.len() {
                self.accept(at);
            }
        }
    }

    /// Waits until something happens; tells which connections have sent something.
    fn wait(&self) -> Vec<bool> {
        let readable = PollFlags::POLLIN;
        let mut fds = vec![PollFd::new(self.shared.waker.as_fd(), readable)];
        fds.extend(
            self.listeners
                .iter()
                .map(|one| PollFd::new(one.as_fd(), readable)),
        );
        let first = fds.len();
        let knocks = self.knocking.iter();
        fds.extend(knocks.map(|knock| PollFd::new(knock.link.as_fd(), knock.link.wait_for())));
        let limit = self.knocking.front().map_or(PollTimeout::NONE, |oldest| {
            let left = oldest.until.saturating_duration_since(Instant::now());
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let _ = poll(&mut fds, limit);
        fds[first..]
            .iter()
            .map(|fd| fd.any().unwrap_or(false))
            .collect()
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..KNOCKING {
            match self.listeners[listener].accept() {
                Ok((stream, from)) => self.begin(stream, from.ip()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // out of descriptors: an agent with the key connects again
                Err(_) => match self.knocking.pop_front() {
                    Some(oldest) => self.turn_away(oldest.from),
                    None => return std::thread::sleep(LOOK),
                },
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, from: IpAddr) {
        let Ok(link) = Link::accept(stream, &self.shared.guests) else {
            return;
        };
        // an agent with the key connects again
        if self.knocking.len() >= KNOCKING
            && let Some(oldest) = self.knocking.pop_front()
        {
            self.turn_away(oldest.from);
        }
        self.knocking.push_back(Knock {
            link,
            decoder: Decoder::default(),
            from,
            until: Instant::now() + KNOCK_LIMIT,
        });
    }

    /// Reads from the connections that have sent something.
    fn answer(&mut self, ready: &[bool]) {
        let knocking = std::mem::take(&mut self.knocking);
        for (mut knock, is_ready) in knocking.into_iter().zip(ready) {
            match is_ready.then(|| knock.answer()) {
                None | Some(Answer::Later) => self.knocking.push_back(knock),
                Some(Answer::Come(hello)) => self.let_in(hello, knock),
                Some(Answer::Away) => self.turn_away(knock.from),
            }
        }
    }

    fn let_in(&self, hello: Hello, knock: Knock) {
        let _ = knock.link.notice_silence();
        let parked = Parked {
            link: knock.link,
            plain: knock.decoder.rest(),
        };
        let mut state = self.shared.lock();
        match state.by_id.get(&hello.agent).copied() {
            Some(at) => state.agents[at].park(parked),
            None if state.agents.len() >= MOST_AGENTS => drop(parked),
            None => {
                let at = state.agents.len();
                state.by_id.insert(hello.agent.clone(), at);
                state.agents.push(Agent {
                    hello,
                    from: knock.from,
                    parked: VecDeque::from([parked]),
                    taken: Instant::now(),
                    gone: false,
                });
            }
        }
        self.shared.arrived.notify_all();
    }

    fn turn_away(&self, from: IpAddr) {
        let mut state = self.shared.lock();
        state.turned_away += 1;
        state.last_from = Some(from);
    }

    fn turn_away_the_late(&mut self) {
        let now = Instant::now();
        while self
            .knocking
            .front()
            .is_some_and(|oldest| oldest.until <= now)
        {
            let late = self.knocking.pop_front();
            late.iter().for_each(|late| self.turn_away(late.from));
        }
    }
}
