//! The place where agents dial in: it checks who connects, and keeps the connections of those let
//! in.
//!
//! One thread answers all connections. Only who has the key of this run is admitted. An admitted
//! agent waits with one connection at a time; when that one is taken for a conversation, the agent
//! dials again.

use super::matching::Roll;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tls::{Admission, Greeting, Guests, Limits, Link, Outcome, Port};
use wire::codec::{self, Decoder};
use wire::dial::{Ender, Hello, Word};

/// Agents of thousands of hosts connect in the same second, from one address where they are behind
/// a router. Each takes milliseconds; one that was dropped in favour of another connects again.
const LIMITS: Limits = Limits {
    in_all: 4096,
    per_source: 1024,
    time: Duration::from_secs(10),
};
/// The most that an agent reports of itself: its names, and 16 bytes for each address. A node of
/// Kubernetes has an address for each of its networks, some hundreds.
const MAX_HELLO: usize = 16 << 10;
/// How often those who wait check for what no event reports.
const LOOK: Duration = Duration::from_millis(50);
/// An agent waits with one connection; where one has broken without a word it has another.
const MOST_PARKED: usize = 4;
/// So many agents are listened to at most, asked for or not, and so many bytes of what they report:
/// a host that has the secret could make up agents without end. 65,536 honest ones report 20 MB.
const MOST_AGENTS: usize = 65_536;
const MAX_HELLOS: usize = 64 << 20;
/// An agent whose connection was taken has dialed again by then, or never will.
const REDIAL_LIMIT: Duration = Duration::from_secs(20);

/// Identifies an agent that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat(usize);

/// Whether the agent is still at the other end of a connection that waits. It has nothing to send
/// there, and is given up if it does: nobody would ever read that.
fn is_there(link: &mut Link) -> bool {
    let mut received = Vec::new();
    matches!(link.receive(&mut received), Ok(true)) && received.is_empty()
}

/// An agent that was let in.
struct Agent {
    hello: Hello,
    from: IpAddr,
    parked: VecDeque<Link>,
    /// When its last connection was taken.
    taken: Instant,
    /// Whether it has ended or does not answer.
    gone: bool,
}

impl Agent {
    /// Another of its connections waits.
    fn park(&mut self, parked: Link) {
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
            && !is_there(first)
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
    /// How many bytes the agents have reported of themselves.
    hello_bytes: usize,
    turned_away: u64,
    last_from: Option<IpAddr>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lobby. It is open until it is closed.
pub(crate) struct Lobby {
    shared: Arc<Shared>,
    port: Mutex<Option<Port>>,
}

impl Lobby {
    /// Opens the lobby on these listeners, for whoever has one of the keys.
    pub(crate) fn open(listeners: Vec<TcpListener>, guests: Guests) -> io::Result<Lobby> {
        let shared: Arc<Shared> = Arc::default();
        let all = Arc::clone(&shared);
        let port = Port::serve(
            Admission::new(listeners, LIMITS)?,
            move |stream| Greeting::with_line(stream, &guests, &[], MAX_HELLO),
            move |outcome| match outcome {
                Outcome::Admitted(greeting, from) => all.admit(greeting, from),
                Outcome::Refused(from) => all.turn_away(from),
            },
        )?;
        Ok(Lobby {
            shared,
            port: Mutex::new(Some(port)),
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
    pub(crate) fn take(&self, seat: &Seat, until: Instant) -> Option<Link> {
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
        drop(
            self.port
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let mut state = self.shared.lock();
        for parked in state.agents.iter_mut().flat_map(|agent| &mut agent.parked) {
            // an agent that cannot be told sees the end of its connection
            let _ = parked.send(&codec::encode(&Word::Leave, &[]));
            let _ = parked.close();
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

impl Shared {
    fn admit(&self, greeting: Greeting, from: IpAddr) {
        let (link, bytes) = (greeting.link, greeting.received);
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let Ok(Some(message)) = decoder.next_message::<Hello>() else {
            return self.turn_away(from);
        };
        let hello = message.head;
        let _ = link.notice_silence();
        let mut state = self.lock();
        match state.by_id.get(&hello.agent).copied() {
            Some(at) => state.agents[at].park(link),
            None if state.agents.len() >= MOST_AGENTS
                || state.hello_bytes + bytes.len() > MAX_HELLOS => {}
            None => {
                let at = state.agents.len();
                state.hello_bytes += bytes.len();
                state.by_id.insert(hello.agent.clone(), at);
                state.agents.push(Agent {
                    hello,
                    from,
                    parked: VecDeque::from([link]),
                    taken: Instant::now(),
                    gone: false,
                });
            }
        }
        self.arrived.notify_all();
    }

    fn turn_away(&self, from: IpAddr) {
        let mut state = self.lock();
        state.turned_away += 1;
        state.last_from = Some(from);
    }
}
