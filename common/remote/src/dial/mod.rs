//! Hosts that dial in: one command of the user's starts an agent on each host, which connects to
//! this tool. This connection then serves as a login.
//!
//!     this tool ── COMMAND (srun, mpirun, …) ──> host-agent dial, on every host
//!          ^                                            ║
//!          ╚═══════ TLS, with the key of this run ══════╝
//!
//! - [`ticket`]: the files that an agent needs, in a directory that only the user can read;
//! - [`engine`]: the command, its output and its end;
//! - [`server`]: the port, and the agents that wait there;
//! - [`host_index`]: which host an agent belongs to.

mod channel;
mod engine;
mod host_index;
mod server;
mod ticket;

use super::options::RemoteOptions;
use super::{HostFault, greeting, threads};
pub use engine::OF_ONE_HOST;
pub use host_index::HostEvidence;
use session::Session;
use session::{reasons, session_token};

use engine::Engine;
use host_index::HostIndex;
use parking_lot::Mutex;
use rayon::prelude::*;
use record::Host;
use server::{AgentId, DialServer, DialedHost};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// These threads only wait.
const GREETED_AT_ONCE: usize = 64;
/// The time for a command that has failed to write its reason.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// `--connect 'dial COMMAND'`.
pub struct Dial {
    command: String,
    evidence: HostEvidence,
    options: RemoteOptions,
    state: Mutex<DialState>,
}

#[derive(Default)]
struct DialState {
    server: Option<Arc<DialServer>>,
    engines: Vec<Arc<Engine>>,
    /// Until when to wait for a started command's agents.
    until: Option<Instant>,
    /// From the hosts of the first command.
    index: Option<HostIndex>,
}

impl DialState {
    /// After several commands, further agents of the same host are expected and not mentioned.
    fn print_notices(&self, notice: fn(&str)) {
        if let ([_], Some(server), Some(index)) = (&self.engines[..], &self.server, &self.index) {
            let lines = server.notices(index);
            lines.iter().for_each(|line| notice(line));
        }
    }
}

impl Dial {
    pub fn new(command: &str, evidence: HostEvidence, options: RemoteOptions) -> Dial {
        Dial {
            command: command.to_owned(),
            evidence,
            options,
            state: Mutex::default(),
        }
    }

    /// One command starts all missing agents.
    pub fn open_all(&self, hosts: &[Host]) -> Vec<Result<Session, HostFault>> {
        let opened = self.server(hosts).and_then(|server| {
            let agents = self.gather(&server, hosts)?;
            // all of them dial again at the same time
            let until = Instant::now() + self.options.connect_timeout;
            let open = |agent: Result<AgentId, HostFault>| self.open_one(&server, agent?, until);
            if let [_] = hosts {
                return Ok(agents.into_iter().map(open).collect());
            }
            let pool = threads(hosts.len().min(GREETED_AT_ONCE))
                .map_err(|report| HostFault::unreachable(report.lines("").join("; ")))?;
            Ok(pool.install(|| agents.into_par_iter().map(open).collect()))
        });
        opened.unwrap_or_else(|fault| hosts.iter().map(|_| Err(fault.clone())).collect())
    }

    fn gather(
        &self,
        server: &DialServer,
        hosts: &[Host],
    ) -> Result<Vec<Result<AgentId, HostFault>>, HostFault> {
        let index = HostIndex::new(hosts, self.evidence);
        let states = server.states(&index);
        let pairs = hosts.iter().zip(&states);
        let missing: Vec<&Host> = pairs
            .filter_map(|(host, state)| state.may_dial().then_some(host))
            .collect();
        if missing.is_empty() {
            return Ok(states.into_iter().map(|state| state.agent(&gone)).collect());
        }
        let (engine, until, is_first) = self.engine(server, &missing)?;
        let mut failed: Option<Instant> = None;
        let states = server.wait(&index, until, || {
            // the command first has time to write its reason
            self.options.is_stopped()
                || engine.has_failed()
                    && failed.get_or_insert_with(Instant::now).elapsed() >= LAST_WORDS
        });
        let mut state = self.state.lock();
        // a host that is lost from now on needs another command
        state.until = None;
        if is_first {
            state.index = Some(index);
            state.print_notices(self.options.notice);
        }
        drop(state);
        let limit = self.options.connect_timeout;
        let fix = self.absence_fix(server, &engine);
        if is_first && states.iter().all(|state| *state == DialedHost::Missing) {
            let why = engine.why_absent("a host dialed in", "no host dialed in", limit);
            return Err(HostFault::for_all(why).fix(fix));
        }
        let absence = || {
            let why = engine.why_absent("it dialed in", "it did not dial in", limit);
            HostFault::unreachable(why).fix(fix.clone())
        };
        Ok(states
            .into_iter()
            .map(|state| state.agent(&absence))
            .collect())
    }

    /// The command that starts the missing agents, running or new; until when to wait for it, and
    /// whether it is the first.
    fn engine(
        &self,
        server: &DialServer,
        missing: &[&Host],
    ) -> Result<(Arc<Engine>, Instant, bool), HostFault> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if let (Some(engine), Some(until)) = (state.engines.last(), state.until)
            && now < until
        {
            return Ok((Arc::clone(engine), until, state.engines.len() == 1));
        }
        let filled = engine::fill(&self.command, &server.folder, missing)?;
        let engine = Arc::new(Engine::start(&self.command, &filled, &server.folder)?);
        let until = now + self.options.connect_timeout;
        state.engines.push(Arc::clone(&engine));
        state.until = Some(until);
        Ok((engine, until, state.engines.len() == 1))
    }

    fn absence_fix(&self, server: &DialServer, engine: &Engine) -> String {
        if let Some(fix) = reasons::fix_of_srun(&engine.last_words()) {
            return fix.to_owned();
        }
        let mut agent = "`host-agent dial`".to_owned();
        if engine::runs_our_agent(&self.command) {
            agent = format!("the agent of {}", server.folder.agent_folder().display());
        }
        if engine.has_failed() {
            return format!(
                "the command failed, so mend what it reports; it must be able to start {agent} on \
                 each host"
            );
        }
        let addresses: Vec<String> = server.addresses.iter().map(ToString::to_string).collect();
        format!(
            "check the output of the command: it must start {agent} on each host, which dials {} \
             (DGL_TOOLS_DIAL_ADDRESS, DGL_TOOLS_DIAL_PORT; is there a firewall?); \
             DGL_TOOLS_CONNECT_TIMEOUT allows more time",
            addresses.join(" or ")
        )
    }

    fn server(&self, hosts: &[Host]) -> Result<Arc<DialServer>, HostFault> {
        let mut state = self.state.lock();
        if let Some(server) = &state.server {
            return Ok(Arc::clone(server));
        }
        let server = Arc::new(DialServer::open(&self.options, hosts)?);
        state.server = Some(Arc::clone(&server));
        Ok(server)
    }

    fn open_one(
        &self,
        server: &DialServer,
        agent: AgentId,
        until: Instant,
    ) -> Result<Session, HostFault> {
        let engine = self.state.lock().engines.last().cloned().ok_or_else(gone)?;
        let token = session_token()?;
        let connection = server.take_connection(agent, until).ok_or_else(gone)?;
        let channel =
            channel::DialedChannel::open(connection, &token, engine).map_err(|error| {
                HostFault::unreachable(format!("its connection is lost: {error}")).fix(AGAIN)
            })?;
        greeting::greet_dialed(Box::new(channel), token, &self.options).map_err(|fault| {
            // another attempt needs another agent
            server.forget(agent);
            match fault.fix {
                Some(_) => fault,
                None => fault.fix(AGAIN),
            }
        })
    }
}

const AGAIN: &str = "check that the host is up, then try again";

fn gone() -> HostFault {
    HostFault::unreachable("its agent had dialed in, but has disconnected").fix(AGAIN)
}

impl Drop for Dial {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.print_notices(self.options.notice);
        let Some(server) = state.server.take() else {
            return;
        };
        let has_agents = server.close();
        for engine in state.engines.drain(..) {
            if let Some(line) = engine.end(has_agents) {
                (self.options.notice)(&line);
            }
        }
    }
}
