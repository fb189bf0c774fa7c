//! The place where agents dial in: it checks who connects, and keeps the connections of those let
//! in.
//!
//! One thread answers all connections. Only who has the key of this run is admitted. An admitted
//! agent waits with one connection at a time; when that one is taken for a conversation, the agent
//! dials again.

use super::matching::Roll;
use crate::fault::HostFault;
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
/// So many agents that dialed in as the same host are named.
const MOST_SHOWN: usize = 3;
/// How often those who wait check for what no event reports.
const LOOK: Duration = Duration::from_millis(50);
/// An agent waits with one connection; where one has broken without a word it has another.
const MOST_PARKED: usize = 4;
/// So many agents are listened to at most, asked for or not, and so many bytes of what they report:
/// a host that has the secret could make up agents without end. 65,536 honest ones report 20 MB.
const MOST_AGENTS: usize = 65_536;
const MAX_HELLOS: usize = 64 << 20;
/// From one address twice as many agents as there are hosts may dial in, and these beside them: a
/// restart starts others while the first have not gone yet.
const SPARE_AGENTS: usize = 64;
/// An agent whose connection was taken has dialed again by then, or never will.
const REDIAL_LIMIT: Duration = Duration::from_secs(20);

/// Identifies an agent that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat(usize);

/// Who has dialed in as a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Nobody,
    /// Its agent.
    Agent(Seat),
    /// Several agents, of which at most one can be right: who they are.
    Several(String),
    /// Only an agent that tells it is this host and connects from another address: who it is.
    Foreign(String),
}

impl Claim {
    /// Whether the host's agent may still come.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Claim::Nobody | Claim::Foreign(_))
    }

    /// The seat of the host's agent, or why it has none; `absence` is the fault if nobody came.
    pub(crate) fn seat(self, absence: &dyn Fn() -> HostFault) -> Result<Seat, HostFault> {
        match self {
            Claim::Agent(seat) => Ok(seat),
            Claim::Nobody => Err(absence()),
            Claim::Several(agents) => {
                let problem = format!("several agents dialed in as this host: {agents}");
                Err(HostFault::new(problem).fix(
                    "have the command start one agent on each host; if it does, another host has \
                     the ticket and claims to be this one",
                ))
            }
            Claim::Foreign(agent) => {
                let problem =
                    format!("{agent} tells that it is this host, whose address is another one");
                Err(HostFault::new(problem).fix(
                    "correct the host's address; if hosts reach this machine from other \
                     addresses, as through a router that translates them, let agents in by what \
                     they tell with --connect 'dial-by-name ...'",
                ))
            }
        }
    }
}

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
    /// Whether a conversation has begun with it.
    has_served: bool,
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
    by_source: HashMap<IpAddr, usize>,
    /// How many bytes the agents have reported of themselves.
    hello_bytes: usize,
    turned_away: u64,
    last_from: Option<IpAddr>,
}

impl State {
    /// Whether another agent may dial in from an address.
    fn has_room_for(&mut self, from: IpAddr, most: usize) -> bool {
        let count = self.by_source.entry(from).or_default();
        if *count >= most {
            // some may have gone since they were counted
            let live = self.agents.iter_mut().filter(|agent| agent.from == from);
            *count = live.map(Agent::is_live).filter(|is_live| *is_live).count();
        }
        *count += 1;
        *count <= most
    }
}

struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    /// How many agents may dial in from one address, which all hosts have behind some routers.
    most_of_source: usize,
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
    /// Opens the lobby on these listeners, for whoever has one of the keys, and for so many hosts.
    pub(crate) fn open(
        listeners: Vec<TcpListener>,
        guests: Guests,
        hosts: usize,
    ) -> io::Result<Lobby> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            arrived: Condvar::new(),
            most_of_source: 2 * hosts + SPARE_AGENTS,
        });
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

    /// Who has dialed in as each host.
    pub(crate) fn claims(&self, roll: &Roll) -> Vec<Claim> {
        let mut state = self.shared.lock();
        let mut claims = Claims::new(roll);
        claims.add_new(&state.agents);
        claims.decide(&mut state.agents)
    }

    /// Waits until the agents of all hosts have dialed in, until the time has come, or until
    /// waiting is pointless. Returns who has dialed in as each host.
    pub(crate) fn wait(
        &self,
        roll: &Roll,
        until: Instant,
        mut is_pointless: impl FnMut() -> bool,
    ) -> Vec<Claim> {
        let mut state = self.shared.lock();
        for agent in &mut state.agents {
            agent.is_live();
        }
        let mut claims = Claims::new(roll);
        loop {
            claims.add_new(&state.agents);
            let left = until.saturating_duration_since(Instant::now());
            if claims.are_complete(&state.agents) || left.is_zero() || is_pointless() {
                let mut decided = claims.decide(&mut state.agents);
                for claim in &mut decided {
                    if let Claim::Agent(seat) = claim
                        && state.agents[seat.0].parked.is_empty()
                    {
                        *claim = Claim::Nobody;
                    }
                }
                return decided;
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
                agent.has_served = true;
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
        let mut claims = Claims::new(roll);
        claims.add_new(&state.agents);
        for (at, agent) in state.agents.iter().enumerate() {
            let hosts = roll.hosts_of(&agent.hello, agent.from);
            let has_served = |other: &usize| *other != at && state.agents[*other].has_served;
            if hosts.is_empty() {
                census.unasked.push(agent.shown());
            } else if !agent.has_served
                && hosts
                    .iter()
                    .all(|host| claims.by_host[*host].iter().any(has_served))
            {
                census.twice.push(agent.shown());
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

/// The agents that have dialed in as each host, by their position among all.
struct Claims<'a> {
    roll: &'a Roll,
    by_host: Vec<Vec<usize>>,
    /// An agent that tells it is the host, and connects from another address.
    foreign: Vec<Option<usize>>,
    /// How many agents were looked at.
    seen: usize,
}

impl Claims<'_> {
    fn new(roll: &Roll) -> Claims<'_> {
        Claims {
            roll,
            by_host: vec![Vec::new(); roll.count()],
            foreign: vec![None; roll.count()],
            seen: 0,
        }
    }

    /// Adds the agents that dialed in since the last time.
    fn add_new(&mut self, agents: &[Agent]) {
        for (at, agent) in agents.iter().enumerate().skip(self.seen) {
            let hosts = self.roll.hosts_of(&agent.hello, agent.from);
            for host in self.roll.hosts_reported(&agent.hello) {
                if !hosts.contains(&host) && !agent.gone {
                    self.foreign[host] = Some(at);
                }
            }
            for host in hosts {
                self.by_host[host].push(at);
            }
        }
        self.seen = agents.len();
    }

    /// Whether an agent of each host waits.
    fn are_complete(&self, agents: &[Agent]) -> bool {
        self.by_host.iter().all(|claimants| {
            claimants
                .iter()
                .any(|at| !agents[*at].gone && !agents[*at].parked.is_empty())
        })
    }

    fn decide(&self, agents: &mut [Agent]) -> Vec<Claim> {
        let decide = |(claimants, foreign): (&Vec<usize>, &Option<usize>)| {
            let live = claimants.iter().filter(|at| agents[**at].is_live());
            let live: Vec<usize> = live.copied().collect();
            let shown = |at: &usize| agents[*at].shown();
            // whoever comes behind an agent that serves already takes nothing from it
            let serving = live.iter().find(|at| agents[**at].has_served);
            match (serving, &live[..]) {
                (Some(at), _) | (None, [at]) => Claim::Agent(Seat(*at)),
                (None, [_, _, ..]) => {
                    let names: Vec<String> = live.iter().take(MOST_SHOWN).map(shown).collect();
                    Claim::Several(names.join(" and "))
                }
                (None, []) => foreign
                    .as_ref()
                    .map_or(Claim::Nobody, |at| Claim::Foreign(agents[*at].shown())),
            }
        };
        self.by_host.iter().zip(&self.foreign).map(decide).collect()
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
                || state.hello_bytes + bytes.len() > MAX_HELLOS
                || !state.has_room_for(from, self.most_of_source) => {}
            None => {
                let at = state.agents.len();
                state.hello_bytes += bytes.len();
                state.by_id.insert(hello.agent.clone(), at);
                state.agents.push(Agent {
                    hello,
                    from,
                    parked: VecDeque::from([link]),
                    taken: Instant::now(),
                    has_served: false,
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
