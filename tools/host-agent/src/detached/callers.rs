//! The agents of all hosts, which connect to the launcher on this one. Each is identified by its
//! own key. It waits on one connection at a time; when a conversation takes that, it connects
//! again.

use launcher::run::launcher::ReachHosts;
use parking_lot::{Mutex, MutexGuard};
use record::Host;
use session::transport::Transport;
use session::{HostFault, LinkChannel, Session, session_token};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::{Entrance, Guests, Identity, Limits, Link, PeerGreeting, PublicKey, ServedPort};
use wire::codec;
use wire::detached::HostTicket;
use wire::dial::{DialMessage, Ticket};

/// The most bytes of an agent's introduction, which is ignored here.
const MAX_HELLO: usize = 16 << 10;
/// The most waiting connections of an agent: one, and another if one broke unnoticed.
const MOST_PARKED: usize = 4;
/// An agent whose connection was taken connects again within this time, or never.
const REDIAL_LIMIT: Duration = Duration::from_secs(20);
/// How often to check whether an agent has connected again.
const REDIAL_CHECKED: Duration = Duration::from_millis(5);
/// How long an agent may take to begin a conversation.
const GREETING_LIMIT: Duration = Duration::from_secs(30);

type Parked = Arc<Mutex<BTreeMap<PublicKey, VecDeque<Link>>>>;

/// The port of a launcher, and the agents that wait on it.
pub struct Callers {
    /// The key of the agent of each host.
    keys: BTreeMap<u32, PublicKey>,
    parked: Parked,
    _port: ServedPort,
}

impl Callers {
    /// Listens on this host's address for the agents of these hosts; returns a ticket for each.
    pub fn listen(
        (address, port): (Ipv4Addr, u16),
        hosts: impl IntoIterator<Item = u32>,
        patience_ms: u64,
    ) -> io::Result<(Callers, Vec<HostTicket>)> {
        let listener = TcpListener::bind((address, port))
            .map_err(|error| io::Error::other(format!("{address}:{port}: {error}")))?;
        let port = listener.local_addr()?.port();
        let identity = Identity::new()?;
        let (mut keys, mut tickets) = (BTreeMap::new(), Vec::new());
        for host in hosts {
            let (guest, secret) = Identity::with_secret()?;
            keys.insert(host, guest.public_key());
            let ticket = Ticket {
                addresses: vec![SocketAddrV4::new(address, port)],
                key: identity.public_key().to_string(),
                secret,
                patience_ms,
            };
            tickets.push(HostTicket { host, ticket });
        }
        let guests = Guests::new(&identity, keys.values().copied().collect())?;
        let parked = Parked::default();
        let admitted = Arc::clone(&parked);
        let entrance = Entrance {
            guests,
            welcome: Vec::new(),
            max_line: MAX_HELLO,
        };
        let take = move |_, greeting: Option<PeerGreeting>| {
            if let Some(PeerGreeting { link, .. }) = greeting {
                park(&admitted, link);
            }
        };
        let port = ServedPort::serve(vec![listener], Limits::FOR_AGENTS, entrance, take)?;
        let callers = Callers {
            keys,
            parked,
            _port: port,
        };
        Ok((callers, tickets))
    }

    /// Whether the agents of all hosts have connected.
    pub fn are_all_here(&self) -> bool {
        let parked = self.parked.lock();
        self.keys.values().all(|key| parked.contains_key(key))
    }

    /// Takes the waiting connection of a host's agent.
    fn take(&self, host: u32) -> Option<Link> {
        let key = self.keys.get(&host)?;
        let until = Instant::now() + REDIAL_LIMIT;
        let mut parked = self.parked.lock();
        loop {
            let links = parked.get_mut(key)?;
            while let Some(mut link) = links.pop_front() {
                if is_waiting(&mut link) {
                    return Some(link);
                }
            }
            if Instant::now() >= until {
                return None;
            }
            MutexGuard::unlocked(&mut parked, || std::thread::sleep(REDIAL_CHECKED));
        }
    }

    /// Asks the agent of a host to begin a conversation.
    fn begin(&self, host: u32) -> Result<(Transport, String), HostFault> {
        let token = session_token()?;
        let mut link = self.take(host).ok_or_else(gone)?;
        let word = DialMessage::Serve {
            token: token.clone(),
        };
        let sent = link
            .be_patient()
            .and_then(|()| link.send(&codec::encode(&word, &[])));
        sent.map_err(|error| HostFault::unreachable(format!("its connection is lost: {error}")))?;
        let channel = LinkChannel::dialed(link);
        Ok((Transport::new(Box::new(channel)), token))
    }
}

impl ReachHosts for Callers {
    fn open_agents(&self, hosts: &[Host]) -> Vec<Result<Session, HostFault>> {
        // all begin at the same time
        let begun: Vec<_> = hosts.iter().map(|host| self.begin(host.id)).collect();
        let greet = |begun: Result<(Transport, String), HostFault>| {
            let (transport, token) = begun?;
            greeted(transport, &token)
        };
        begun.into_iter().map(greet).collect()
    }
}

impl Drop for Callers {
    /// Tells the waiting agents that they are no longer needed.
    fn drop(&mut self) {
        for link in self.parked.lock().values_mut().flatten() {
            // without this message, the agent ends with its connection
            let _ = link.send(&codec::encode(&DialMessage::Leave, &[]));
            let _ = link.close();
        }
    }
}

fn park(parked: &Parked, link: Link) {
    let _ = link.notice_silence();
    if let Some(key) = link.peer() {
        let mut parked = parked.lock();
        let links = parked.entry(key).or_default();
        links.push_back(link);
        while links.len() > MOST_PARKED {
            links.pop_front();
        }
    }
}

/// Whether the agent is still connected. It does not send anything on a waiting connection.
fn is_waiting(link: &mut Link) -> bool {
    let mut received = Vec::new();
    matches!(link.receive(&mut received), Ok(true)) && received.is_empty()
}

/// Waits for the first line of the agent that serves the conversation.
fn greeted(mut transport: Transport, token: &str) -> Result<Session, HostFault> {
    let mark = format!("{token} runs\n");
    let until = Instant::now() + GREETING_LIMIT;
    let mut received = Vec::new();
    loop {
        transport.write_some();
        let count = transport
            .receive()
            .map_err(|error| HostFault::unreachable(error.to_string()))?;
        received.extend_from_slice(&transport.buffer[..count.unwrap_or(0)]);
        let found = received
            .windows(mark.len())
            .position(|bytes| bytes == mark.as_bytes());
        if let Some(start) = found {
            return Ok(Session::continued(
                transport,
                &received[start + mark.len()..],
            ));
        }
        let left = until.saturating_duration_since(Instant::now());
        if transport.is_closed() || left.is_zero() || received.len() > MAX_HELLO {
            return Err(gone());
        }
        if count.is_none() {
            transport.wait(None, left);
        }
    }
}

fn gone() -> HostFault {
    HostFault::unreachable("its agent had connected to the launcher, but has disconnected")
        .fix("check that the host is up; then start the detached job again")
}
