//! Which connector logs in to a host: libssh2 or OpenSSH's program.
//!
//! [`Logins`] decides, once for each host; the tools only ask for a session. libssh2 costs a tenth
//! of what the program costs, so it is used if it can do what ssh_config asks for. The choice is
//! made by the first of these that decides:
//!
//! 1. The given connector: `--connect ssh2` or `--connect ssh`; otherwise the `connect` field of
//!    the host record, which an earlier tool of the pipeline has written, or an earlier login of
//!    this tool to the host.
//! 2. [`decide`], a function of the host's settings alone: `ssh` if libssh2 cannot work at all.
//!    Settings that are common but rarely needed (GSSAPI, host-based logins, security keys) do not
//!    count.
//! 3. libssh2. If it fails for a reason that may not concern OpenSSH ([`HostFault::ssh_may_do`]),
//!    `ssh` gets one attempt. A refused host key or an unreachable host is no such reason.
//! 4. If `ssh` was refused too and the user is at a terminal, `ssh` may ask its questions on it,
//!    for one host at a time and without a time limit.
//!
//! The result of 3 and 4 applies to all hosts with the same user, port and keys. If `ssh` logged
//! in, the others begin with `ssh`; if it had to ask, they ask at once; if everything was refused,
//! they only try libssh2. They wait for the first host, because programs such as fail2ban count
//! refused logins. [`Logins::found`] returns how a host was reached, and the tool writes it into
//! the host record.
//!
//! All logins by `ssh` to a host share one connection, which [`master`](super::master) opens.

use super::master::Master;
use super::options::RemoteOptions;
use super::ssh_config::{self, SshSettings};
use super::{bootstrap, greeting, master, program, ssh2};
use parking_lot::Mutex;
use record::Connect;
use record::Host;
use session::HostFault;
use session::Session;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Why OpenSSH's program must log in to a host with these settings; `None` if libssh2 can. `lacks`
/// names a kind of algorithm for which the settings allow none of libssh2's.
pub(crate) fn decide(
    settings: &SshSettings,
    lacks: impl Fn(&SshSettings) -> Option<&'static str>,
) -> Option<String> {
    let certificate = settings
        .certificates
        .first()
        .map(|file| format!("certificate {}", file.display()));
    let missing_algorithm = || {
        let kind = lacks(settings)?;
        Some(format!("no {kind} that libssh2 knows"))
    };
    settings
        .beyond_us
        .clone()
        .or(certificate)
        .or_else(missing_algorithm)
}

/// What logs in to hosts with the same user, port and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LoginVerdict {
    #[default]
    Unknown,
    /// `ssh` logs in without questions.
    Ssh,
    /// `ssh` logs in after the user has answered.
    Asking,
    /// Every login is refused.
    Refused,
}

/// The settings that decide whether a login is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LoginSettings {
    user: String,
    port: u16,
    identities: Vec<PathBuf>,
    beyond_us: Option<String>,
}

type Cell<T> = Arc<OnceLock<T>>;

/// The logins of a tool, and its findings about them.
#[derive(Default)]
pub(crate) struct Logins {
    /// By the destination for ssh.
    settings: Mutex<HashMap<String, Cell<Result<SshSettings, HostFault>>>>,
    verdicts: Mutex<HashMap<LoginSettings, Arc<Mutex<LoginVerdict>>>>,
    /// By the number of the host.
    found: Mutex<HashMap<u32, Connect>>,
    /// Locked while the user is asked.
    asking: Mutex<()>,
}

/// The choice of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Any connector that can log in.
    Any {
        /// Whether the connectors in the host records are used.
        remembers: bool,
    },
    /// This connector.
    Only(Connect),
}

impl Logins {
    /// Logs in to a host and starts the agent.
    pub(crate) fn open(
        &self,
        options: &RemoteOptions,
        host: &Host,
        wish: Wish,
    ) -> Result<Session, HostFault> {
        let settings = self.settings(host);
        let settings = settings.get_or_init(|| ssh_config::settings(options, host));
        let login = LoginAttempt {
            logins: self,
            options,
            host,
            settings: settings.as_ref().map_err(Clone::clone)?,
        };
        match wish {
            Wish::Only(Connect::Ssh2) => match decide(login.settings, ssh2::lacks) {
                None => login.by_ssh2(),
                Some(why) => Err(HostFault::unreachable(format!(
                    "ssh_config has {why} for it, which libssh2 cannot do"
                ))
                .fix("use --connect ssh, or --connect auto")),
            },
            Wish::Only(Connect::Ssh) => login.by_ssh(None),
            Wish::Any { remembers } => {
                let (session, how) = login.by_any(remembers)?;
                self.found.lock().insert(host.id, how);
                Ok(session)
            }
        }
    }

    /// How this tool has logged in to a host, if it had the choice.
    pub(crate) fn found(&self, host: &Host) -> Option<Connect> {
        self.found.lock().get(&host.id).copied()
    }

    fn settings(&self, host: &Host) -> Cell<Result<SshSettings, HostFault>> {
        let mut settings = self.settings.lock();
        Arc::clone(settings.entry(host.target()).or_default())
    }

    fn verdict(&self, settings: &SshSettings) -> Arc<Mutex<LoginVerdict>> {
        let account = LoginSettings {
            user: settings.user.clone(),
            port: settings.port,
            identities: settings.identities.clone(),
            beyond_us: settings.beyond_us.clone(),
        };
        Arc::clone(self.verdicts.lock().entry(account).or_default())
    }
}

/// One login.
struct LoginAttempt<'a> {
    logins: &'a Logins,
    options: &'a RemoteOptions,
    host: &'a Host,
    settings: &'a SshSettings,
}

impl LoginAttempt<'_> {
    fn by_any(&self, remembers: bool) -> Result<(Session, Connect), HostFault> {
        let by_ssh = |first| Ok((self.by_ssh(first)?, Connect::Ssh));
        let known = self.logins.found(self.host);
        let known = known.or(self.host.connect.filter(|_| remembers));
        let verdict = *self.logins.verdict(self.settings).lock();
        let needs_ssh = known == Some(Connect::Ssh)
            || matches!(verdict, LoginVerdict::Ssh | LoginVerdict::Asking)
            || decide(self.settings, ssh2::lacks).is_some();
        if needs_ssh && ssh_config::openssh().is_some() {
            return by_ssh(None);
        }
        match self.by_ssh2() {
            Ok(session) => Ok((session, Connect::Ssh2)),
            Err(fault) if fault.ssh_may_do && ssh_config::openssh().is_some() => {
                by_ssh(Some(fault))
            }
            Err(fault) => Err(fault),
        }
    }

    fn by_ssh2(&self) -> Result<Session, HostFault> {
        let channel = ssh2::open(self.options, self.settings, bootstrap::COMMAND)?;
        greeting::begin(channel, self.options)
    }

    /// Logs in by OpenSSH's program; `first` is the fault of libssh2.
    fn by_ssh(&self, first: Option<HostFault>) -> Result<Session, HostFault> {
        let verdict = self.logins.verdict(self.settings);
        let mut known = verdict.lock();
        match *known {
            LoginVerdict::Refused => match first {
                Some(first) => return Err(first),
                None => {
                    drop(known);
                    return self.attempt(false);
                }
            },
            LoginVerdict::Ssh => {
                drop(known);
                return self.attempt(false);
            }
            LoginVerdict::Asking => {
                drop(known);
                return self.ask();
            }
            LoginVerdict::Unknown => {}
        }
        let refused = match self.attempt(false) {
            Ok(session) => {
                *known = LoginVerdict::Ssh;
                return Ok(session);
            }
            Err(fault) if fault.is_refused => fault,
            Err(fault) => return Err(fault),
        };
        if master::may_ask() {
            match self.ask() {
                Ok(session) => {
                    *known = LoginVerdict::Asking;
                    return Ok(session);
                }
                Err(fault) if !fault.is_refused => return Err(fault),
                Err(_) => {}
            }
        }
        *known = LoginVerdict::Refused;
        Err(both(first, refused))
    }

    fn ask(&self) -> Result<Session, HostFault> {
        let _turn = self.logins.asking.lock();
        self.attempt(true)
    }

    fn attempt(&self, asks: bool) -> Result<Session, HostFault> {
        let knows_accept_new = ssh_config::openssh().is_some_and(|ssh| ssh.knows_accept_new);
        if self.settings.accepts_new_keys && !knows_accept_new {
            ssh2::accept_key(self.options, self.settings)?;
        }
        let master = Master::find_or_open(self.options, self.host, self.settings, asks)
            .map_err(|fault| self.explain(fault))?;
        let channel = program::ssh(
            self.options,
            self.host,
            self.settings,
            &master.options(),
            bootstrap::COMMAND,
        )?;
        greeting::begin(channel, self.options).map_err(|fault| self.explain(fault))
    }

    /// Adds the unknown key, which `ssh` does not print.
    fn explain(&self, fault: HostFault) -> HostFault {
        let is_unknown = fault.problem.contains("Host key verification failed")
            && !fault.problem.contains("revoked")
            && fault.fix.is_none();
        match is_unknown && decide(self.settings, ssh2::lacks).is_none() {
            true => ssh2::refused_key(self.options, self.settings).unwrap_or(fault),
            false => fault,
        }
    }
}

/// The fault of a host that has refused both connectors. libssh2 knows which keys were tried.
fn both(first: Option<HostFault>, second: HostFault) -> HostFault {
    match first {
        Some(first) => HostFault {
            problem: format!("{}; so was ssh: {}", first.problem, words_of(&second)),
            fix: first.fix.or(second.fix),
            ssh_may_do: false,
            ..first
        },
        None => second,
    }
}

/// The message of ssh itself.
fn words_of(refused: &HostFault) -> &str {
    let words = refused.problem.split_once(": ");
    words.map_or(refused.problem.as_str(), |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_is_chosen_only_where_libssh2_cannot_work() {
        let certificate = SshSettings {
            certificates: vec!["/home/ann/.ssh/id-cert.pub".into()],
            ..SshSettings::default()
        };
        let beyond = SshSettings {
            beyond_us: Some("proxyjump bastion".into()),
            ..SshSettings::default()
        };
        let no_agent = SshSettings {
            no_agent: true,
            ..SshSettings::default()
        };
        let table = [
            (SshSettings::default(), None, None),
            (no_agent, None, None),
            (beyond, None, Some("proxyjump bastion")),
            (
                certificate,
                None,
                Some("certificate /home/ann/.ssh/id-cert.pub"),
            ),
            (
                SshSettings::default(),
                Some("cipher"),
                Some("no cipher that libssh2 knows"),
            ),
        ];
        for (settings, lacking, why) in table {
            assert_eq!(
                decide(&settings, |_| lacking).as_deref(),
                why,
                "{settings:?}"
            );
        }
    }
}
