//! The port on which agents dial in.
//!
//! One thread accepts all connections, and admits only agents with the key of this run. An admitted
//! agent waits on one connection at a time; when a session takes it, the agent dials again.

use super::host_index::HostIndex;
use super::ticket::TicketFolder;
use crate::bootstrap::Agents;
use crate::options::RemoteOptions;
use parking_lot::{Mutex, MutexGuard};
use record::Host;
use record::term::{count, first_few, plain};
use session::HostFault;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::{Entrance, Guests, Identity, Limits, PeerGreeting, ServedPort, TlsConnection};
use wire::codec::{self, Decoder};
use wire::dial::{DialMessage, Hello, Ticket};

/// An agent reports its names, and 16 bytes for each address. A node of Kubernetes has an address
/// in each of its networks, some hundreds.
const MAX_HELLO: usize = 16 << 10;
const MOST_SHOWN: usize = 3;
const MOST_NAMED: usize = 5;
/// With thousands of agents, a check takes a few milliseconds.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// To dial again takes milliseconds.
const REDIAL_CHECKED: Duration = Duration::from_millis(5);
/// The most waiting connections of an agent: one, and another if one broke unnoticed.
const MOST_PARKED: usize = 4;
/// The limit for all agents, expected or not: a host with the secret could invent agents without
/// end. 65,536 honest agents report 20 MB.
const IN_ALL: Budget = Budget {
    agents: 65_536,
    bytes: 64 << 20,
};
/// From one address, twice as many agents as hosts may dial in, plus this many: a restart starts
/// new agents before the first ones have ended.
const SPARE_AGENTS: usize = 64;
/// What the agents of one address may report, per agent. An honest one reports 300 bytes, and one
/// with hundreds of addresses some KB.
const BYTES_OF_AGENT: usize = 1 << 10;
/// A search for disconnected agents costs a system call for each.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// An agent whose connection was taken dials again within this time, or never.
const REDIAL_LIMIT: Duration = Duration::from_secs(20);
/// Few network interfaces of this machine lead to hosts.
const MOST_ADDRESSES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentId(usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialedHost {
    Missing,
    Agent(AgentId),
    /// At most one of them can be right.
    Several(Vec<String>),
    /// It claims to be this host but connects from another address.
    Foreign(String),
}

impl DialedHost {
    pub fn may_dial(&self) -> bool {
        matches!(self, DialedHost::Missing | DialedHost::Foreign(_))
    }

    pub fn agent(self, absence: &dyn Fn() -> HostFault) -> Result<AgentId, HostFault> {
        match self {
            DialedHost::Agent(id) => Ok(id),
            DialedHost::Missing => Err(absence()),
            DialedHost::Several(agents) => {
                let shown = agents[..agents.len().min(MOST_SHOWN)].join(" and ");
                let problem = format!("several agents dialed in as this host: {shown}");
                Err(HostFault::unreachable(problem).fix(
                    "have the command start one agent on each host; if it does, another host has \
                     the ticket and claims to be this one",
                ))
            }
            DialedHost::Foreign(agent) => {
                let problem =
                    format!("{agent} reports that it is this host, which has another address");
                Err(HostFault::unreachable(problem).fix(
                    "correct the host's address; if hosts reach this machine from other \
                     addresses, as through a router that translates them, admit agents by \
                     the names that they report: --connect 'dial-by-name ...'",
                ))
            }
        }
    }
}

struct DialedAgent {
    hello: Hello,
    from: IpAddr,
    /// The size of its report, in bytes.
    bytes: usize,
    parked: VecDeque<TlsConnection>,
    taken: Instant,
    has_served: bool,
    /// It has ended or does not answer.
    gone: bool,
    /// As unexpected, to the user.
    is_mentioned: bool,
}

impl DialedAgent {
    fn park(&mut self, parked: TlsConnection) {
        while self.parked.len() >= MOST_PARKED {
            self.parked.pop_front();
        }
        self.parked.push_back(parked);
        // an earlier connection may have broken
        self.gone = false;
    }

    /// Whether it may connect from this address.
    fn may_be_at(&self, address: IpAddr) -> bool {
        let mut own = self.hello.addresses.iter();
        address == self.from || own.any(|own| IpAddr::from(*own) == address)
    }

    fn is_live(&mut self) -> bool {
        while !self.gone
            && let Some(first) = self.parked.front_mut()
            && !is_waiting(first)
        {
            self.parked.pop_front();
            // the end of the process closes the waiting connection
            self.gone = self.parked.is_empty();
        }
        if self.parked.is_empty() && self.taken.elapsed() > REDIAL_LIMIT {
            self.gone = true;
        }
        !self.gone
    }

    /// `n5 (10.0.0.5, SLURM_NODEID 4)`
    fn shown(&self) -> String {
        let name = self.hello.names.last().map_or("?", String::as_str);
        let position = self.hello.position.iter();
        let position: String = position.map(|position| format!(", {position}")).collect();
        plain(&format!("{name} ({}{position})", self.from)).into_owned()
    }
}

/// An agent that sends anything while it waits is dropped: the data would never be read.
fn is_waiting(connection: &mut TlsConnection) -> bool {
    let mut received = Vec::new();
    matches!(connection.receive(&mut received), Ok(true)) && received.is_empty()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Budget {
    agents: usize,
    bytes: usize,
}

impl Budget {
    /// Behind a router, all hosts may share an address.
    fn of_source(hosts: usize) -> Budget {
        let agents = 2 * hosts + SPARE_AGENTS;
        let bytes = agents * BYTES_OF_AGENT;
        Budget { agents, bytes }
    }

    fn has_room_for(self, used: Budget, bytes: usize) -> bool {
        used.agents < self.agents && used.bytes + bytes <= self.bytes
    }

    fn add(&mut self, bytes: usize) {
        self.agents += 1;
        self.bytes += bytes;
    }
}

#[derive(Default)]
struct WaitingAgents {
    /// In the order in which they connected.
    agents: BTreeMap<usize, DialedAgent>,
    next: usize,
    by_name: HashMap<String, usize>,
    in_all: Budget,
    of_source: Budget,
    used: Budget,
    used_by_source: HashMap<IpAddr, Budget>,
    tidied: Option<Instant>,
    /// Connections closed for lack of room since the last notice.
    turned_away: u64,
    last_turned_away: Option<IpAddr>,
    /// Without the key of this run, since the last notice.
    strangers: u64,
    last_stranger: Option<IpAddr>,
}

impl WaitingAgents {
    fn has_room_for(&mut self, from: IpAddr, bytes: usize) -> bool {
        let has_room = |agents: &WaitingAgents| {
            let used = agents.used_by_source.get(&from);
            let used = used.copied().unwrap_or_default();
            agents.of_source.has_room_for(used, bytes)
                && agents.in_all.has_room_for(agents.used, bytes)
        };
        if has_room(self) {
            return true;
        }
        if self.tidied.is_none_or(|when| when.elapsed() >= TIDY_EVERY) {
            self.forget_those_gone();
        }
        has_room(self)
    }

    /// Keeps agents that have served: their reports about their engine still count.
    fn forget_those_gone(&mut self) {
        self.tidied = Some(Instant::now());
        self.agents
            .retain(|_, agent| agent.has_served || agent.is_live());
        self.by_name.retain(|_, id| self.agents.contains_key(id));
        self.used = Budget::default();
        self.used_by_source.clear();
        for agent in self.agents.values() {
            self.used.add(agent.bytes);
            let of_source = self.used_by_source.entry(agent.from).or_default();
            of_source.add(agent.bytes);
        }
    }

    fn handle_peer(&mut self, from: IpAddr, greeting: Option<PeerGreeting>) {
        if let Some(greeting) = greeting
            && let Some(hello) = decode_hello(&greeting.received)
        {
            return self.admit(hello, greeting.received.len(), greeting.connection, from);
        }
        self.strangers += 1;
        self.last_stranger = Some(from);
    }

    fn admit(&mut self, hello: Hello, bytes: usize, connection: TlsConnection, from: IpAddr) {
        let _ = connection.detect_silence();
        let known = self.by_name.get(&hello.agent);
        if let Some(agent) = known.and_then(|id| self.agents.get_mut(id)) {
            // another host of the run, which has its key, too, may have found out the name
            if agent.may_be_at(from) {
                return agent.park(connection);
            }
            return self.turn_away(from);
        }
        if !self.has_room_for(from, bytes) {
            return self.turn_away(from);
        }
        self.used.add(bytes);
        self.used_by_source.entry(from).or_default().add(bytes);
        self.by_name.insert(hello.agent.clone(), self.next);
        let agent = DialedAgent {
            hello,
            from,
            bytes,
            parked: VecDeque::from([connection]),
            taken: Instant::now(),
            has_served: false,
            gone: false,
            is_mentioned: false,
        };
        self.agents.insert(self.next, agent);
        self.next += 1;
    }

    fn turn_away(&mut self, from: IpAddr) {
        self.turned_away += 1;
        self.last_turned_away = Some(from);
    }

    fn states(&mut self, index: &HostIndex) -> Vec<DialedHost> {
        let mut states = vec![DialedHost::Missing; index.count()];
        let mut live = Vec::new();
        for (id, agent) in &mut self.agents {
            live.extend(agent.is_live().then_some(*id));
        }
        for id in live {
            let agent = &self.agents[&id];
            let hosts = index.hosts_of(&agent.hello, agent.from);
            for host in index.hosts_reported(&agent.hello) {
                if !hosts.contains(&host) && states[host].may_dial() {
                    states[host] = DialedHost::Foreign(agent.shown());
                }
            }
            for host in hosts {
                let serves = |id: &AgentId| self.agents[&id.0].has_served;
                match &mut states[host] {
                    // an agent that connects after a serving one does not replace it
                    DialedHost::Agent(first) if serves(first) => {}
                    DialedHost::Agent(first) if !agent.has_served => {
                        let first = self.agents[&first.0].shown();
                        states[host] = DialedHost::Several(vec![first, agent.shown()]);
                    }
                    DialedHost::Several(agents) if !agent.has_served => agents.push(agent.shown()),
                    state => *state = DialedHost::Agent(AgentId(id)),
                }
            }
        }
        states
    }

    fn is_parked(&self, id: AgentId) -> bool {
        let agent = self.agents.get(&id.0);
        agent.is_some_and(|agent| !agent.parked.is_empty())
    }
}

fn decode_hello(received: &[u8]) -> Option<Hello> {
    let mut decoder = Decoder::default();
    decoder.push(received);
    Some(decoder.next_message().ok()??.head)
}

pub struct DialServer {
    waiting: Arc<Mutex<WaitingAgents>>,
    port: Mutex<Option<ServedPort>>,
    pub folder: TicketFolder,
    pub addresses: Vec<SocketAddrV4>,
}

impl DialServer {
    pub fn open(options: &RemoteOptions, hosts: &[Host]) -> Result<DialServer, HostFault> {
        let failed = |error: io::Error| HostFault::for_all(error.to_string());
        let (listeners, addresses) = listen(options, hosts)?;
        let identity = Identity::new().map_err(failed)?;
        let (guest, secret) = Identity::with_secret().map_err(failed)?;
        let guests = Guests::new(&identity, vec![guest.public_key()]).map_err(failed)?;
        let ticket = Ticket {
            addresses: addresses.clone(),
            key: identity.public_key(),
            secret,
            patience_ms: record::term::millis(options.connect_timeout),
        };
        let folder = TicketFolder::make(Agents::found()?, &ticket)?;
        let waiting = Arc::new(Mutex::new(WaitingAgents {
            in_all: IN_ALL,
            of_source: Budget::of_source(hosts.len()),
            ..WaitingAgents::default()
        }));
        let admitted = Arc::clone(&waiting);
        let entrance = Entrance {
            guests,
            welcome: Vec::new(),
            max_line: MAX_HELLO,
        };
        let handle_peer = move |from, greeting| admitted.lock().handle_peer(from, greeting);
        let port = ServedPort::serve(listeners, Limits::FOR_AGENTS, entrance, handle_peer);
        Ok(DialServer {
            waiting,
            port: Mutex::new(Some(port.map_err(failed)?)),
            folder,
            addresses,
        })
    }

    pub fn states(&self, index: &HostIndex) -> Vec<DialedHost> {
        self.waiting.lock().states(index)
    }

    /// Waits for the agents of all hosts, or until it `is_pointless`.
    pub fn wait(
        &self,
        index: &HostIndex,
        until: Instant,
        mut is_pointless: impl FnMut() -> bool,
    ) -> Vec<DialedHost> {
        let mut waiting = self.waiting.lock();
        loop {
            let mut states = waiting.states(index);
            for state in &mut states {
                if matches!(state, DialedHost::Agent(id) if !waiting.is_parked(*id)) {
                    *state = DialedHost::Missing;
                }
            }
            let is_complete = !states.iter().any(DialedHost::may_dial);
            if is_complete || Instant::now() >= until || is_pointless() {
                return states;
            }
            MutexGuard::unlocked(&mut waiting, || std::thread::sleep(CHECK_EVERY));
        }
    }

    /// `None` if the agent has disconnected.
    pub fn take_connection(&self, id: AgentId, until: Instant) -> Option<TlsConnection> {
        let mut waiting = self.waiting.lock();
        loop {
            let agent = waiting.agents.get_mut(&id.0)?;
            if !agent.is_live() {
                return None;
            }
            if let Some(parked) = agent.parked.pop_front() {
                agent.taken = Instant::now();
                agent.has_served = true;
                return Some(parked);
            }
            if Instant::now() >= until {
                return None;
            }
            MutexGuard::unlocked(&mut waiting, || std::thread::sleep(REDIAL_CHECKED));
        }
    }

    pub fn forget(&self, id: AgentId) {
        if let Some(agent) = self.waiting.lock().agents.get_mut(&id.0) {
            agent.gone = true;
            agent.parked.clear();
        }
    }

    /// Notices about unexpected agents, once for each.
    pub fn notices(&self, index: &HostIndex) -> Vec<String> {
        let mut waiting = self.waiting.lock();
        let mut is_served = vec![false; index.count()];
        let hosts_of = |agent: &DialedAgent| index.hosts_of(&agent.hello, agent.from);
        for agent in waiting.agents.values().filter(|agent| agent.has_served) {
            hosts_of(agent)
                .into_iter()
                .for_each(|host| is_served[host] = true);
        }
        let (mut unexpected, mut twice) = (Vec::new(), Vec::new());
        let is_new = |agent: &&mut DialedAgent| !agent.has_served && !agent.is_mentioned;
        for agent in waiting.agents.values_mut().filter(is_new) {
            let hosts = hosts_of(agent);
            if hosts.iter().all(|host| is_served[*host]) {
                agent.is_mentioned = true;
                let list = if hosts.is_empty() {
                    &mut unexpected
                } else {
                    &mut twice
                };
                list.push(agent.shown());
            }
        }
        let mut lines = Vec::new();
        if !unexpected.is_empty() {
            lines.push(format!(
                "unexpected agents dialed in: {}; they end with this tool",
                first_few(&unexpected, MOST_NAMED)
            ));
        }
        if !twice.is_empty() {
            lines.push(format!(
                "dialed in twice: {}; the first one serves; the command should start one agent \
                 on each host",
                first_few(&twice, MOST_NAMED)
            ));
        }
        let turned_away = std::mem::take(&mut waiting.turned_away);
        if let (1.., Some(from)) = (turned_away, waiting.last_turned_away) {
            lines.push(format!(
                "{} turned away, the last from {from}: too many dialed in, they reported too much \
                 of themselves, or they had the name of an agent at another address",
                count(turned_away, "agent")
            ));
        }
        let strangers = std::mem::take(&mut waiting.strangers);
        if let (1.., Some(from)) = (strangers, waiting.last_stranger) {
            lines.push(format!(
                "{} without the secret of this run refused, the last from {from}",
                count(strangers, "connection")
            ));
        }
        lines
    }

    /// Asks waiting agents to end. Returns whether any had dialed in.
    pub fn close(&self) -> bool {
        drop(self.port.lock().take());
        let mut waiting = self.waiting.lock();
        let agents = std::mem::take(&mut waiting.agents);
        let has_agents = !agents.is_empty();
        for mut parked in agents.into_values().flat_map(|agent| agent.parked) {
            // without this message, the agent ends with its connection
            let _ = parked.send(&codec::encode(&DialMessage::Leave, &[]));
            let _ = parked.close();
        }
        has_agents
    }
}

/// Listens on the address that the user named, or where hosts can reach this machine.
fn listen(
    options: &RemoteOptions,
    hosts: &[Host],
) -> Result<(Vec<TcpListener>, Vec<SocketAddrV4>), HostFault> {
    let own_addresses = match options.dial_address {
        Some(address) => vec![address],
        None => addresses_toward(hosts)?,
    };
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for address in own_addresses {
        // an address of another machine that forwards to this one: listen on all addresses
        let is_here = crate::is_local(address) || address.is_loopback();
        let local_address = if is_here {
            address
        } else {
            Ipv4Addr::UNSPECIFIED
        };
        let bound = TcpListener::bind((local_address, options.dial_port)).and_then(|listener| {
            let port = listener.local_addr()?.port();
            Ok((listener, port))
        });
        let (listener, port) = bound.map_err(|error| {
            HostFault::for_all(format!(
                "this machine cannot listen on {local_address}:{}: {error}",
                options.dial_port
            ))
            .fix("set DGL_TOOLS_DIAL_PORT to a free port, or unset it")
        })?;
        listeners.push(listener);
        addresses.push(SocketAddrV4::new(address, port));
    }
    Ok((listeners, addresses))
}

/// The addresses of this machine as the hosts see them, by the kernel's routes.
fn addresses_toward(hosts: &[Host]) -> Result<Vec<Ipv4Addr>, HostFault> {
    let mut addresses: Vec<Ipv4Addr> = Vec::new();
    let mut fault = None;
    for host in hosts {
        // nothing is sent: connecting a UDP socket only looks up the route
        let route = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
            socket.connect((host.ip.0, 9))?;
            socket.local_addr()
        });
        match route.map(|local| local.ip()) {
            Ok(IpAddr::V4(local)) if !addresses.contains(&local) => addresses.push(local),
            Ok(_) => {}
            Err(error) => {
                fault = Some(HostFault::for_all(format!(
                    "this machine has no route to {}: {error}",
                    host.ip
                )));
            }
        }
    }
    addresses.truncate(MOST_ADDRESSES);
    match fault.filter(|_| addresses.is_empty()) {
        Some(fault) => Err(fault
            .fix("set DGL_TOOLS_DIAL_ADDRESS to an address of this machine that the hosts reach")),
        None => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    /// Both ends of a connection over loopback, the first as an agent's.
    fn connected() -> (TlsConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let identity = Identity::new().unwrap();
        let connection = TlsConnection::connect(stream, &identity, identity.public_key()).unwrap();
        (connection, listener.accept().unwrap().0)
    }

    fn hello(name: &str) -> Hello {
        Hello {
            agent: name.to_owned(),
            names: vec![name.to_owned()],
            addresses: Vec::new(),
            position: None,
        }
    }

    #[test]
    fn who_makes_up_agents_keeps_no_other_address_out() {
        let budget = |agents, bytes| Budget { agents, bytes };
        let mut waiting = WaitingAgents {
            in_all: budget(6, 600),
            of_source: budget(4, 300),
            ..WaitingAgents::default()
        };
        let [greedy, honest] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        // disconnected agents make room, however many connect
        for number in 0..20 {
            let (connection, _gone) = connected();
            waiting.tidied = None;
            waiting.admit(hello(&format!("gone{number}")), 100, connection, greedy);
        }
        assert_eq!(waiting.turned_away, 0);
        let mut stays = Vec::new();
        for (from, bytes) in [(greedy, 100), (honest, 10)] {
            for number in 0..6 {
                let (connection, other_end) = connected();
                stays.push(other_end);
                waiting.tidied = None;
                waiting.admit(hello(&format!("{from}-{number}")), bytes, connection, from);
            }
        }
        let mut live_of = |source| {
            let agents = waiting.agents.values_mut();
            let live = agents.filter_map(|agent| agent.is_live().then_some(agent.from));
            live.filter(|from| *from == source).count()
        };
        assert_eq!((live_of(greedy), live_of(honest)), (3, 3));
        assert_eq!((waiting.turned_away, waiting.used), (6, budget(6, 330)));
    }

    #[test]
    fn an_agent_dials_again_only_from_an_address_that_is_its_own() {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        for (from, is_admitted) in [(address(1), true), (address(2), true), (address(3), false)] {
            let mut waiting = WaitingAgents {
                in_all: IN_ALL,
                of_source: Budget::of_source(1),
                ..WaitingAgents::default()
            };
            let first = Hello {
                addresses: vec![std::net::Ipv4Addr::new(10, 0, 0, 2)],
                ..hello("n1")
            };
            waiting.admit(first, 100, connected().0, address(1));
            // that the other host reports the address as its own does not count
            let again = Hello {
                addresses: vec![std::net::Ipv4Addr::new(10, 0, 0, 3)],
                ..hello("n1")
            };
            waiting.admit(again, 100, connected().0, from);
            let parked: usize = waiting
                .agents
                .values()
                .map(|agent| agent.parked.len())
                .sum();
            assert_eq!(parked, 1 + usize::from(is_admitted), "{from}");
            assert_eq!(waiting.turned_away, u64::from(!is_admitted), "{from}");
        }
    }
}
