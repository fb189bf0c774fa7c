//! The only way to a host. `host-agent` runs there, found or copied by a bootstrap in sh. Hosts
//! need no installation, and the remote command line is a constant.
//!
//! - [`choice`] decides between `ssh2` and `ssh` for each host.
//! - [`ssh2`]: libssh2 in this process. A connection costs a tenth of what a program costs.
//! - [`program`]: OpenSSH's `ssh`, which supports everything in ssh_config and whose cipher costs
//!   a fifth of libssh2's per byte; any command that runs a command elsewhere (srun, kubectl
//!   exec, docker exec); the agent itself on this machine.
//! - [`dial`]: one command starts the agents of all hosts, and they connect to this tool.
//!
//! [`Session`] is the same over all of them. Only the agent's answer proves that a request was
//! carried out. A connector's exit status does not: libssh2 returns 0 after a lost connection, and
//! srun after a lost node.

mod bootstrap;
mod certificate;
mod choice;
pub mod conversation;
mod dial;
pub mod direct;
mod file_session;
mod greeting;
mod guard;
pub mod host_link;
mod known_hosts;
pub mod limit;
mod master;
mod openssh;
mod options;
mod owner;
mod pacing;
mod program;
mod resolve;
mod ssh2;
mod ssh_agent;
mod ssh_config;

pub use options::{HostKey, RemoteOptions};
pub use program::end_connectors;
pub use resolve::addresses;
pub use session::{Body, HostFault, Session, SessionEvent, UnknownKey, Waker};
pub use session::{random_token, report};
pub use ssh_config::{printed_settings, ssh_options};
pub use tls::PublicKey;

use choice::{LoginChoice, Logins};
use nix::errno::Errno;
use rayon::prelude::*;
use record::Connect;
use record::Host;
use record::error::{Fault, Report};
use std::collections::HashSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::OnceLock;
use wire::{Event, Request};

enum Connector {
    Login(LoginChoice),
    Local,
    /// A template of the user's.
    Command(String),
    /// One command starts agents, which dial in.
    Dial(Box<dial::Dial>),
}

pub struct Remote {
    options: RemoteOptions,
    connector: Connector,
    logins: Logins,
}

impl Remote {
    pub fn new(options: RemoteOptions) -> Result<Remote, Report> {
        let connector = match options.connect.as_deref() {
            how @ (None | Some("auto")) => Connector::Login(LoginChoice::Any {
                follows_records: how.is_none(),
            }),
            Some("ssh2") => Connector::Login(LoginChoice::Only(Connect::Ssh2)),
            Some("ssh") => Connector::Login(LoginChoice::Only(Connect::Ssh)),
            Some("local") => Connector::Local,
            Some(how) => {
                if let Some((evidence, command)) = parse_dial(how)? {
                    let dial = dial::Dial::new(command, evidence, options.clone());
                    Connector::Dial(Box::new(dial))
                } else if how.contains(char::is_whitespace) {
                    Connector::Command(how.to_owned())
                } else {
                    let problem = format!("unknown connector {how}");
                    let fix = "use auto, ssh2, ssh, local, or a command that contains the host, \
                        such as 'srun --overlap --unbuffered -N1 -n1 -w {name}'";
                    return Err(Fault::usage("--connect", problem).fix(fix).report());
                }
            }
        };
        Ok(Remote {
            options,
            connector,
            logins: Logins::default(),
        })
    }

    /// Several logins run at once.
    pub fn open_agents(&self, hosts: &[Host]) -> Vec<Result<Session, HostFault>> {
        if let Connector::Dial(dial) = &self.connector {
            return dial.open_all(hosts);
        }
        let options = &self.options;
        pacing::open_each(
            hosts.len(),
            options.connect_timeout,
            || options.is_stopped(),
            |host_index| {
                let host = &hosts[host_index];
                self.log_in(host)
                    .map_err(|fault| self.with_fix(host, fault))
            },
        )
    }

    fn log_in(&self, host: &Host) -> Result<Session, HostFault> {
        match self.connector_for(host) {
            Connector::Local => greeting::start_local_agent(&self.options),
            Connector::Login(choice) => self.logins.open(&self.options, host, *choice),
            Connector::Command(template) => {
                let channel = program::run_template(&self.options, host, template)?;
                // such as `ssh -J gateway {name}`
                greeting::start_agent(channel, &self.options, true)
            }
            Connector::Dial(_) => Err(HostFault::unreachable("it must dial in")),
        }
    }

    /// Sets it up for logins that carry much data.
    pub fn for_content(mut self, carries_content: bool) -> Remote {
        let has_choice = matches!(self.connector, Connector::Login(LoginChoice::Any { .. }));
        // OpenSSH's cipher is cheaper
        if carries_content && has_choice && ssh_config::openssh().is_some() {
            self.connector = Connector::Login(LoginChoice::Only(Connect::Ssh));
        }
        self
    }

    /// The records of hosts whose connector this tool has found.
    pub fn newly_found<'a>(&self, hosts: impl IntoIterator<Item = &'a Host>) -> Vec<Host> {
        let hosts = hosts.into_iter();
        let found = hosts.filter_map(|host| {
            let now = self.with_connector(host);
            (host.connect != now.connect).then_some(now)
        });
        found.collect()
    }

    /// The record with the connector that reached the host, for later tools.
    pub fn with_connector(&self, host: &Host) -> Host {
        Host {
            connect: self.logins.found(host).or(host.connect),
            ..host.clone()
        }
    }

    /// The hosts that were reached, and the faults of the others.
    pub fn open_reachable<'a>(&self, hosts: &'a [Host]) -> (Vec<(&'a Host, Session)>, Report) {
        let opened = self.open_agents(hosts);
        let report = report(hosts, &opened);
        let pairs = hosts.iter().zip(opened);
        let reached = pairs.filter_map(|(host, opened)| Some((host, opened.ok()?)));
        (reached.collect(), report)
    }

    pub fn ask_all(
        &self,
        hosts: &[Host],
        request: impl Fn(&Host) -> Request + Sync,
    ) -> Result<Vec<Result<Vec<Event>, HostFault>>, Report> {
        let sessions = self.open_agents(hosts);
        let pairs: Vec<_> = hosts.iter().zip(sessions).collect();
        let ask = |(host, session): (&Host, Result<Session, HostFault>)| {
            session?.ask(&request(host), conversation::ANSWER_LIMIT)
        };
        Ok(threads(hosts.len().min(conversation::AT_ONCE))?
            .install(|| pairs.into_par_iter().map(ask).collect()))
    }

    /// For a fault that only quotes a connector: how to run that by hand.
    fn with_fix(&self, host: &Host, fault: HostFault) -> HostFault {
        const NEEDS: &str = "the host needs a POSIX sh with head, chmod and mv";
        let out_of_descriptors = io::Error::from(Errno::EMFILE).to_string();
        if fault.problem.ends_with(&out_of_descriptors) {
            return fault.fix("raise the limit of open files on this machine: ulimit -n");
        }
        if fault.fix.is_some() || fault.unknown_key.is_some() {
            return fault;
        }
        match self.connector_for(host) {
            Connector::Login(_) => fault.fix(format!(
                "`ssh -o BatchMode=yes {}` must work here, and {NEEDS}",
                openssh::by_hand(host, &self.options)
            )),
            Connector::Local => fault.fix(
                "check that host-agent, in the directory of the tools or in libexec/dgl-tools, \
                      runs here",
            ),
            Connector::Command(template) => {
                let command = program::fill(&self.options, host, template);
                fault.fix(format!("try it here: {command} echo hello; {NEEDS}"))
            }
            Connector::Dial(_) => fault,
        }
    }

    pub fn is_ssh(&self) -> bool {
        matches!(self.connector, Connector::Login(_))
    }

    fn connector_for(&self, host: &Host) -> &Connector {
        // a login, port or user name of the user's choice may lead elsewhere
        let login = host.login.as_ref();
        let has_own_login = login.is_some_and(|login| *login != host.ip.to_string())
            || self.options.ssh_port.is_some()
            || self.options.ssh_username.is_some();
        if self.is_ssh() && !has_own_login && is_local(host.ip.0) {
            return &Connector::Local;
        }
        &self.connector
    }
}

const DIAL_FIX: &str = "as in 'dial srun --overlap -N{count} -w {names} --ntasks-per-node=1'";

/// The command of `--connect 'dial COMMAND'`, and what identifies an agent's host. Refuses
/// placeholders for one host, because the command runs once for all.
fn parse_dial(how: &str) -> Result<Option<(dial::HostEvidence, &str)>, Report> {
    let (word, command) = how.split_once(' ').unwrap_or((how, ""));
    let evidence = match word {
        "dial" => dial::HostEvidence::Source,
        "dial-by-name" => dial::HostEvidence::Report,
        _ => return Ok(None),
    };
    let command = command.trim();
    let mut of_one_host = dial::OF_ONE_HOST.iter();
    let problem = match of_one_host.find(|name| command.contains(**name)) {
        None if command.is_empty() => "dial needs the command that starts the agents".to_owned(),
        None => return Ok(Some((evidence, command))),
        Some(name) => {
            format!("{name} stands for one host, but dial runs its command once for all hosts")
        }
    };
    Err(Fault::usage("--connect", problem).fix(DIAL_FIX).report())
}

/// These threads mostly wait for hosts, so they may outnumber the cores.
pub fn threads(count: usize) -> Result<rayon::ThreadPool, Report> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(count.max(1))
        .build();
    pool.map_err(|error| {
        Fault::unreachable("threads", error.to_string())
            .fix("raise the limit on the processes of this user: ulimit -u")
            .report()
    })
}

fn is_local(address: Ipv4Addr) -> bool {
    local_addresses().contains(&address)
}

fn local_addresses() -> &'static HashSet<Ipv4Addr> {
    static ADDRESSES: OnceLock<HashSet<Ipv4Addr>> = OnceLock::new();
    ADDRESSES.get_or_init(|| {
        let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
        interfaces
            .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()))
            .collect()
    })
}
