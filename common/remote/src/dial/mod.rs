//! Hosts that dial in: one command of the user's starts an agent on each of them, over its own
//! tree, and each agent connects to this tool. From then on, the connection serves like a login.
//!
//!     this tool ── COMMAND (srun, mpirun, …) ──> host-agent dial, on every host
//!          ^                                            ║
//!          ╚═══════ TLS, with the key of this run ══════╝
//!
//! - [`ticket`]: what an agent must know, in a folder that only the user can read;
//! - [`engine`]: the command, what it says and how it ends;
//! - [`lobby`]: who knocks, who is let in, who waits there;
//! - [`matching`]: which host an agent is.

mod channel;
mod engine;
mod lobby;
mod matching;
mod notices;
mod ticket;

use super::bootstrap::Agents;
use super::options::Options;
use super::session::Session;
use super::{HostFault, random_token, threads};
pub(crate) use engine::OF_ONE_HOST;
pub(crate) use matching::Evidence;

use engine::Engine;
use lobby::{Claim, Lobby, Seat};
use matching::Roll;
use notices::Notices;
use rayon::prelude::*;
use record::Host;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use ticket::TicketFolder;
use tls::{Guests, Identity};
use wire::dial::{Ender, Ticket};

/// How many agents are greeted at once. Each waits; none computes.
const GREETED_AT_ONCE: usize = 64;
/// How long a command that failed has to write its reason.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// This machine has only a few network interfaces that lead to hosts.
const MOST_ADDRESSES: usize = 4;

/// The state of `--connect 'dial COMMAND'`.
pub(crate) struct Dial {
    command: String,
    evidence: Evidence,
    options: Options,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hall: Option<Arc<Hall>>,
    engines: Vec<Arc<Engine>>,
    /// Until when agents of a command that was started are waited for.
    until: Option<Instant>,
    /// The hosts that were asked for first.
    roll: Option<Arc<Roll>>,
    notices: Notices,
}

impl State {
    /// Prints the notices about agents that were not asked for. Where several commands were
    /// started, further agents of the same host are expected and not mentioned.
    fn tell_notices(&mut self, notice: fn(&str)) {
        if let ([_], Some(hall), Some(roll)) = (&self.engines[..], &self.hall, &self.roll) {
            let lines = self.notices.of(&hall.lobby.census(roll));
            lines.iter().for_each(|line| notice(line));
        }
    }
}

/// The lobby, and what agents need to find it.
struct Hall {
    lobby: Lobby,
    folder: TicketFolder,
    addresses: Vec<SocketAddrV4>,
}

impl Dial {
    pub(crate) fn new(command: &str, evidence: Evidence, options: Options) -> Dial {
        Dial {
            command: command.to_owned(),
            evidence,
            options,
            state: Mutex::default(),
        }
    }

    /// Opens a session with an agent on each host, in the order of the hosts. One command starts
    /// the agents that are missing.
    pub(crate) fn open_all(&self, hosts: &[Host]) -> Vec<Result<Session, HostFault>> {
        let opened = self.gather(hosts).and_then(|gathered| {
            // all of them dial again at the same time
            let until = Instant::now() + self.options.connect_timeout;
            let said: Vec<_> = gathered
                .into_iter()
                .map(|seat| self.begin_conversation(seat?, until))
                .collect();
            self.greet_all(said)
        });
        opened.unwrap_or_else(|fault| hosts.iter().map(|_| Err(fault.clone())).collect())
    }

    /// Which engine ends the processes that agents leave behind, if one does.
    pub(crate) fn ender(&self) -> Option<Ender> {
        self.lock().hall.as_ref()?.lobby.ender()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seat of each host's agent, or why there is none.
    fn gather(&self, hosts: &[Host]) -> Result<Vec<Result<Seat, HostFault>>, HostFault> {
        let hall = self.hall(hosts)?;
        let roll = Arc::new(Roll::new(hosts, self.evidence));
        let here = hall.lobby.claims(&roll);
        let missing: Vec<&Host> = hosts
            .iter()
            .zip(&here)
            .filter(|(_, claim)| claim.is_open())
            .map(|(host, _)| host)
            .collect();
        if missing.is_empty() {
            return Ok(here.into_iter().map(|claim| claim.seat(&gone)).collect());
        }
        let (engine, until, is_first) = self.engine(&hall, &missing)?;
        let mut failed: Option<Instant> = None;
        let claims = hall.lobby.wait(&roll, until, || {
            // notices stand behind the end of the command's own output
            self.options.is_stopped()
                || engine.has_failed()
                    && failed.get_or_insert_with(Instant::now).elapsed() >= LAST_WORDS
        });
        let mut state = self.lock();
        // a host that is lost from here on needs another command
        state.until = None;
        if is_first {
            state.roll = Some(roll);
            state.tell_notices(self.options.notice);
        }
        drop(state);
        let absence = Absence {
            limit: self.options.connect_timeout,
            engine: &engine,
            hall: &hall,
        };
        if is_first && claims.iter().all(|claim| *claim == Claim::Nobody) {
            return Err(absence.of_all());
        }
        Ok(claims
            .into_iter()
            .map(|claim| claim.seat(&|| absence.of_one()))
            .collect())
    }

    /// The command that starts the missing agents: the one that is running, or a new one. Returns
    /// until when it is waited for, and whether it is the first.
    fn engine(
        &self,
        hall: &Hall,
        missing: &[&Host],
    ) -> Result<(Arc<Engine>, Instant, bool), HostFault> {
        let mut state = self.lock();
        let now = Instant::now();
        if let (Some(engine), Some(until)) = (state.engines.last(), state.until)
            && now < until
        {
            return Ok((Arc::clone(engine), until, state.engines.len() == 1));
        }
        let filled = engine::fill(&self.command, &hall.folder, missing)?;
        let engine = Arc::new(Engine::start(&self.command, &filled, &hall.folder)?);
        let until = now + self.options.connect_timeout;
        state.engines.push(Arc::clone(&engine));
        state.until = Some(until);
        Ok((engine, until, state.engines.len() == 1))
    }

    fn hall(&self, hosts: &[Host]) -> Result<Arc<Hall>, HostFault> {
        let mut state = self.lock();
        if let Some(hall) = &state.hall {
            return Ok(Arc::clone(hall));
        }
        let hall = Arc::new(Hall::open(&self.options, hosts)?);
        state.hall = Some(Arc::clone(&hall));
        Ok(hall)
    }

    /// Takes the waiting connection of a seat for a conversation, and tells the agent.
    fn begin_conversation(
        &self,
        seat: Seat,
        until: Instant,
    ) -> Result<(Seat, String, channel::Dialed), HostFault> {
        let state = self.lock();
        let Some((hall, engine)) = state.hall.clone().zip(state.engines.last().cloned()) else {
            return Err(gone());
        };
        drop(state);
        let token =
            random_token().map_err(|error| HostFault::new(format!("/dev/urandom: {error}")))?;
        let parked = hall.lobby.take(&seat, until).ok_or_else(gone)?;
        let dialed = channel::Dialed::begin(parked, &token, engine).map_err(|error| {
            HostFault::new(format!("its connection is lost: {error}")).fix(AGAIN)
        })?;
        Ok((seat, token, dialed))
    }

    fn greet_all(
        &self,
        said: Vec<Result<(Seat, String, channel::Dialed), HostFault>>,
    ) -> Result<Vec<Result<Session, HostFault>>, HostFault> {
        let greet = |said: Result<(Seat, String, channel::Dialed), HostFault>| {
            let (seat, token, dialed) = said?;
            let greeted = Session::begin_dialed(Box::new(dialed), token, &self.options);
            if greeted.is_err()
                && let Some(hall) = &self.lock().hall
            {
                // another try is for another agent
                hall.lobby.forget(&seat);
            }
            greeted.map_err(|fault| match fault.fix {
                Some(_) => fault,
                None => fault.fix(AGAIN),
            })
        };
        if said.len() == 1 {
            return Ok(said.into_iter().map(greet).collect());
        }
        let pool = threads(said.len().min(GREETED_AT_ONCE))
            .map_err(|report| HostFault::new(report.lines("").join("; ")))?;
        Ok(pool.install(|| said.into_par_iter().map(greet).collect()))
    }
}

const AGAIN: &str = "look whether the host is up, then try again";

fn gone() -> HostFault {
    HostFault::new("its agent had dialed in, and is gone").fix(AGAIN)
}

impl Drop for Dial {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.tell_notices(self.options.notice);
        let Some(hall) = state.hall.take() else {
            return;
        };
        // closing forgets who came
        let has_agents = !hall.lobby.is_deserted();
        hall.lobby.close();
        for engine in state.engines.drain(..) {
            if let Some(line) = engine.end(has_agents) {
                (self.options.notice)(&line);
            }
        }
    }
}

impl Hall {
    fn open(options: &Options, hosts: &[Host]) -> Result<Hall, HostFault> {
        let failed = |error: std::io::Error| HostFault::of_the_way(error.to_string());
        let (listeners, addresses) = listen(options, hosts)?;
        let identity = Identity::new().map_err(failed)?;
        let (guest, secret) = Identity::with_secret().map_err(failed)?;
        let guests = Guests::new(&identity, vec![guest.public_key()]).map_err(failed)?;
        let ticket = Ticket {
            addresses: addresses.clone(),
            key: identity.public_key().to_string(),
            secret,
            patience_ms: record::term::millis(options.connect_timeout),
        };
        let folder = TicketFolder::make(Agents::here()?, &ticket)?;
        Ok(Hall {
            lobby: Lobby::open(listeners, guests, hosts.len()).map_err(failed)?,
            folder,
            addresses,
        })
    }
}

/// Listens on the addresses of this machine from which the hosts are reached, or on the one that
/// the user named.
fn listen(
    options: &Options,
    hosts: &[Host],
) -> Result<(Vec<TcpListener>, Vec<SocketAddrV4>), HostFault> {
    let told = match options.dial_address {
        Some(address) => vec![address],
        None => toward(hosts)?,
    };
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    for address in told {
        // an address of another machine that forwards to this one: listen on all of ours
        let own = match super::is_here(address) || address.is_loopback() {
            true => address,
            false => Ipv4Addr::UNSPECIFIED,
        };
        let bound = TcpListener::bind((own, options.dial_port)).and_then(|listener| {
            let port = listener.local_addr()?.port();
            Ok((listener, port))
        });
        let (listener, port) = bound.map_err(|error| {
            HostFault::of_the_way(format!(
                "it cannot listen on {own}:{}: {error}",
                options.dial_port
            ))
            .fix("name a port that is free in DGL_TOOLS_DIAL_PORT, or unset it")
        })?;
        listeners.push(listener);
        addresses.push(SocketAddrV4::new(address, port));
    }
    Ok((listeners, addresses))
}

/// The addresses of this machine as the hosts see it, by the kernel's routes to them.
fn toward(hosts: &[Host]) -> Result<Vec<Ipv4Addr>, HostFault> {
    let no_route = |host: &Host, error: std::io::Error| {
        HostFault::of_the_way(format!("no way leads from here to {}: {error}", host.ip))
            .fix("name the address of this machine that the hosts reach in DGL_TOOLS_DIAL_ADDRESS")
    };
    let mut addresses: Vec<Ipv4Addr> = Vec::new();
    let mut fault = None;
    for host in hosts {
        // nothing is sent: connecting a UDP socket only looks up the route
        let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
            socket.connect((host.ip.0, 9))?;
            socket.local_addr()
        });
        match asked {
            Ok(std::net::SocketAddr::V4(own)) => {
                if !addresses.contains(own.ip()) && addresses.len() < MOST_ADDRESSES {
                    addresses.push(*own.ip());
                }
            }
            Ok(_) => {}
            Err(error) => fault = Some(no_route(host, error)),
        }
    }
    match (addresses.is_empty(), fault) {
        (true, Some(fault)) => Err(fault),
        _ => Ok(addresses),
    }
}

/// Why hosts have not dialed in, in words.
struct Absence<'a> {
    limit: Duration,
    engine: &'a Engine,
    hall: &'a Hall,
}

impl Absence<'_> {
    /// The fault if no host dialed in.
    fn of_all(&self) -> HostFault {
        let fault = match self.engine.has_failed() {
            true => HostFault::of_the_way(format!(
                "{} before a host dialed in{}",
                self.engine.how_it_ended(),
                self.engine.said()
            )),
            false => HostFault::of_the_way(format!(
                "no host dialed in within {} s{}",
                self.limit.as_secs_f32(),
                self.engine.state_and_words()
            )),
        };
        fault.fix(self.cure())
    }

    fn of_one(&self) -> HostFault {
        let fault = match self.engine.has_failed() {
            true => HostFault::new(format!(
                "{} before it dialed in{}",
                self.engine.how_it_ended(),
                self.engine.said()
            )),
            false => HostFault::new(format!(
                "it did not dial in within {} s{}",
                self.limit.as_secs_f32(),
                self.engine.state_and_words()
            )),
        };
        fault.fix(self.cure())
    }

    fn cure(&self) -> String {
        let addresses: Vec<String> = self
            .hall
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect();
        format!(
            "look what the command says: on each host it must start the agent, which lies in {} \
             and dials {} (DGL_TOOLS_DIAL_ADDRESS, DGL_TOOLS_DIAL_PORT; is there a firewall?); \
             --connect-timeout gives it more time",
            self.hall.folder.agent_folder().display(),
            addresses.join(" or ")
        )
    }
}
