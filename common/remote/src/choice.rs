//! Decides whether libssh2 or OpenSSH's program logs in to a host.
//!
//! libssh2 costs a tenth of what the program costs, so it is used if it can do what ssh_config asks
//! for. The first of these decides:
//!
//! 1. `--connect ssh2` or `--connect ssh`; otherwise the `connect` field of the host record, by an
//!    earlier tool of the pipeline, or an earlier login of this tool to the host.
//! 2. [`why_not_libssh2`], by the host's settings alone. Settings that are common but rarely needed
//!    (GSSAPI, host-based logins, security keys) do not count.
//! 3. libssh2. If it fails for a reason that may not concern OpenSSH ([`HostFault::ssh_may_do`]),
//!    `ssh` gets one attempt. A refused host key or an unreachable host is no such reason.
//! 4. If `ssh` was refused too and the user is at a terminal, `ssh` may ask there, for one host at
//!    a time and without a time limit.
//!
//! The result of 3 and 4 applies to all hosts with the same user, port, keys and proxy. If `ssh`
//! logged in, the others begin with `ssh`; if it had to ask, they ask at once; if it asked in vain,
//! they do not ask; if [`MOST_REFUSED`] hosts refused it, the others only try libssh2; if the jump
//! host of all refused, they are not tried. They wait for the first host, but not for a silent one:
//! programs such as fail2ban count refused logins, and a refusal takes less than [`FIRST_HOST`].

use super::master::Master;
use super::options::RemoteOptions;
use super::ssh_config::{self, SshSettings};
use super::{greeting, master, program, ssh2};
use parking_lot::Mutex;
use record::Connect;
use record::Host;
use session::HostFault;
use session::Session;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Hosts wait this long for the first that `ssh` logs in to.
const FIRST_HOST: Duration = Duration::from_secs(2);
/// One host may refuse for a reason of its own.
const MOST_REFUSED: usize = 3;

/// `None` if libssh2 can log in with these settings. `lacks` names a kind of algorithm for which
/// they allow none of libssh2's.
pub fn why_not_libssh2(
    settings: &SshSettings,
    lacks: impl Fn(&SshSettings) -> Option<&'static str>,
) -> Option<String> {
    if settings.beyond_us.is_some() {
        return settings.beyond_us.clone();
    }
    if let Some(file) = settings.certificates.first() {
        return Some(format!("certificate {}", file.display()));
    }
    Some(format!("no {} that libssh2 knows", lacks(settings)?))
}

/// For hosts with the same user, port, keys and proxy.
#[derive(Clone, Debug, Default)]
enum LoginVerdict {
    #[default]
    Unknown,
    /// `ssh` logs in without questions.
    Ssh,
    /// `ssh` logs in after the user has answered.
    Asking,
    /// A host refused the user's answers, or no user can be asked.
    Unasked,
    /// The jump host refuses every login.
    NoWay(HostFault),
}

#[derive(Default)]
struct SharedVerdict {
    verdict: Mutex<LoginVerdict>,
    /// Locked by the first host while the verdict is unknown.
    first: Mutex<()>,
    refused: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LoginSettings {
    user: String,
    port: u16,
    identities: Vec<PathBuf>,
    beyond_us: Option<String>,
    proxy: Option<String>,
}

type SettingsCell = OnceLock<Result<SshSettings, HostFault>>;

#[derive(Default)]
pub struct Logins {
    /// By the destination for ssh.
    settings: Mutex<HashMap<String, Arc<SettingsCell>>>,
    verdicts: Mutex<HashMap<LoginSettings, Arc<SharedVerdict>>>,
    /// By the number of the host.
    found: Mutex<HashMap<u32, Connect>>,
    asking: Mutex<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginChoice {
    /// `follows_records` tries the one in the host record first.
    Any {
        follows_records: bool,
    },
    Only(Connect),
}

impl Logins {
    pub fn open(
        &self,
        options: &RemoteOptions,
        host: &Host,
        choice: LoginChoice,
    ) -> Result<Session, HostFault> {
        let settings = Arc::clone(self.settings.lock().entry(host.target()).or_default());
        let settings = settings.get_or_init(|| ssh_config::settings(options, host));
        let login = LoginAttempt {
            logins: self,
            options,
            host,
            settings: settings.as_ref().map_err(Clone::clone)?,
        };
        match choice {
            LoginChoice::Only(Connect::Ssh2) => {
                let Some(why) = why_not_libssh2(login.settings, ssh2::lacks) else {
                    return login.by_ssh2();
                };
                let problem = format!("ssh_config has {why} for it, which libssh2 cannot do");
                Err(HostFault::unreachable(problem).fix("use --connect ssh, or --connect auto"))
            }
            LoginChoice::Only(Connect::Ssh) => login.by_ssh(None),
            LoginChoice::Any { follows_records } => {
                let (session, how) = login.by_any(follows_records)?;
                self.found.lock().insert(host.id, how);
                Ok(session)
            }
        }
    }

    /// If this tool had the choice.
    pub fn found(&self, host: &Host) -> Option<Connect> {
        self.found.lock().get(&host.id).copied()
    }

    fn verdict(&self, settings: &SshSettings) -> Arc<SharedVerdict> {
        let settings = LoginSettings {
            user: settings.user.clone(),
            port: settings.port,
            identities: settings.identities.clone(),
            beyond_us: settings.beyond_us.clone(),
            proxy: settings.proxy.clone(),
        };
        Arc::clone(self.verdicts.lock().entry(settings).or_default())
    }
}

struct LoginAttempt<'a> {
    logins: &'a Logins,
    options: &'a RemoteOptions,
    host: &'a Host,
    settings: &'a SshSettings,
}

impl LoginAttempt<'_> {
    fn by_any(&self, follows_records: bool) -> Result<(Session, Connect), HostFault> {
        let known = self.logins.found(self.host);
        let known = known.or(self.host.connect.filter(|_| follows_records));
        let shared = self.logins.verdict(self.settings);
        let needs_ssh = known == Some(Connect::Ssh)
            || matches!(
                *shared.verdict.lock(),
                LoginVerdict::Ssh | LoginVerdict::Asking
            )
            || why_not_libssh2(self.settings, ssh2::lacks).is_some();
        let mut first_fault = None;
        if !needs_ssh || ssh_config::openssh().is_none() {
            match self.by_ssh2() {
                Ok(session) => return Ok((session, Connect::Ssh2)),
                Err(fault) if fault.ssh_may_do && ssh_config::openssh().is_some() => {
                    first_fault = Some(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok((self.by_ssh(first_fault)?, Connect::Ssh))
    }

    fn by_ssh2(&self) -> Result<Session, HostFault> {
        let channel = ssh2::open(self.options, self.settings)?;
        greeting::start_agent(channel, self.options, false)
    }

    /// `first` is the fault of libssh2.
    fn by_ssh(&self, first: Option<HostFault>) -> Result<Session, HostFault> {
        let shared = self.logins.verdict(self.settings);
        let known = || shared.verdict.lock().clone();
        let is_unknown = || matches!(*shared.verdict.lock(), LoginVerdict::Unknown);
        let turn = is_unknown().then(|| shared.first.try_lock_for(FIRST_HOST));
        // once it is known, hosts do not wait for each other
        let _turn = turn.flatten().filter(|_| is_unknown());
        match known() {
            LoginVerdict::Asking => return self.ask(),
            LoginVerdict::NoWay(fault) => return Err(fault),
            LoginVerdict::Unknown | LoginVerdict::Ssh | LoginVerdict::Unasked => {}
        }
        let is_hopeless = shared.refused.load(Ordering::Relaxed) >= MOST_REFUSED;
        if let Some(first) = first.as_ref().filter(|_| is_hopeless) {
            return Err(first.clone());
        }
        let refused = match self.attempt(false) {
            Ok(session) => {
                *shared.verdict.lock() = LoginVerdict::Ssh;
                return Ok(session);
            }
            Err(fault) if fault.is_refused => fault,
            Err(fault) => return Err(fault),
        };
        if master::may_ask() {
            let _asking = self.logins.asking.lock();
            // another host may have asked meanwhile
            if !matches!(known(), LoginVerdict::Unasked | LoginVerdict::NoWay(_)) {
                match self.attempt(true) {
                    Ok(session) => {
                        *shared.verdict.lock() = LoginVerdict::Asking;
                        return Ok(session);
                    }
                    Err(fault) if !fault.is_refused => return Err(fault),
                    Err(_) => {}
                }
            }
        }
        shared.refused.fetch_add(1, Ordering::Relaxed);
        *shared.verdict.lock() = if refused.is_proxy {
            LoginVerdict::NoWay(refused.clone())
        } else {
            LoginVerdict::Unasked
        };
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
        let channel = program::run_ssh(self.options, self.host, self.settings, &master.options())?;
        // a master has already reached the host
        let may_lack_proxy = self.settings.proxy.is_some() && matches!(master, Master::None);
        greeting::start_agent(channel, self.options, may_lack_proxy)
            .map_err(|fault| self.explain(fault))
    }

    /// `ssh` does not print the unknown key.
    fn explain(&self, fault: HostFault) -> HostFault {
        let is_unknown = fault.problem.contains("Host key verification failed")
            && !fault.problem.contains("revoked")
            && fault.fix.is_none();
        if is_unknown && why_not_libssh2(self.settings, ssh2::lacks).is_none() {
            return ssh2::refused_key(self.options, self.settings).unwrap_or(fault);
        }
        fault
    }
}

/// libssh2 knows which keys were tried.
fn both(first: Option<HostFault>, second: HostFault) -> HostFault {
    let Some(first) = first else {
        return second;
    };
    let problem = second.problem.as_str();
    let message = problem
        .split_once(": ")
        .map_or(problem, |(_, message)| message);
    HostFault {
        problem: format!("{}; so was ssh: {message}", first.problem),
        fix: first.fix.or(second.fix),
        // a refusal is no dropped connection
        again: false,
        ssh_may_do: false,
        ..first
    }
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
                why_not_libssh2(&settings, |_| lacking).as_deref(),
                why,
                "{settings:?}"
            );
        }
    }

    /// Else a jump host that refuses would decide for hosts that others lead to.
    #[test]
    fn only_hosts_with_the_same_proxy_share_a_verdict() {
        let logins = Logins::default();
        let behind = |proxy: Option<&str>| {
            logins.verdict(&SshSettings {
                proxy: proxy.map(str::to_owned),
                // the setting that ssh prints last
                beyond_us: Some("revokedhostkeys /krl".into()),
                ..SshSettings::default()
            })
        };
        let first = behind(Some("proxyjump bastion"));
        assert!(Arc::ptr_eq(&first, &behind(Some("proxyjump bastion"))));
        for other in [None, Some("proxyjump gateway")] {
            assert!(!Arc::ptr_eq(&first, &behind(other)), "{other:?}");
        }
    }
}
