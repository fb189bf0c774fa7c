//! Turns OpenSSH's messages about a failed login into a fault with its fix.

use super::certificate;
use super::known_hosts;
use super::options::RemoteOptions;
use super::ssh_config::SshSettings;
use record::Host;
use record::quote;
use session::HostFault;

#[derive(Clone, Debug, PartialEq, Eq)]
enum LoginFailure {
    /// ssh did not begin to connect, because of its configuration or options.
    Local,
    /// The jump host or ProxyCommand did not reach the host, or refused the user.
    Proxy,
    /// The host's key is not the one in known_hosts. A banner may say so, too, so known_hosts
    /// itself is asked.
    OtherKey,
    /// By known_hosts or RevokedHostKeys.
    Revoked,
    /// The host accepted neither a key nor an answer, and offers these methods.
    Refused {
        methods: String,
    },
    /// The host closed the connection, as a busy sshd or PAM may do.
    HungUp,
    /// No common algorithm: the setting, and the word for `ssh -Q`. What the host offers is no
    /// advice, because it may come from an attacker in between.
    NothingInCommon {
        setting: &'static str,
        query: &'static str,
    },
    Unreachable,
    Other,
}

pub const CHECK_SSHD: &str = "check that the host is up and its sshd listens (DGL_TOOLS_SSH_PORT)";

/// The last line of ssh's messages that concern this machine only.
const HERE: [&str; 8] = [
    "command-line line 0:",
    "command-line: line 0:",
    "Bad configuration option",
    "terminating, ",
    "Cannot execute ",
    "Bad owner or permissions on ",
    // the end of what it prints about an unknown option, and since version 9.3
    " [command",
    "ssh [-Q query_option]",
];

/// The host closes the connection during the login.
const HUNG_UP: [&str; 4] = [
    "Connection closed by",
    "Connection reset by",
    "kex_exchange_identification",
    "Received disconnect from",
];

/// Whether another attempt may succeed after a dropped connection.
pub fn hung_up(words: &str) -> bool {
    // after too many keys, ssh would offer the same ones again
    HUNG_UP.iter().any(|sign| words.contains(sign)) && !words.contains("Too many authentication")
}

pub fn fault(
    stderr: &str,
    host: &Host,
    settings: &SshSettings,
    options: &RemoteOptions,
) -> HostFault {
    let words = last_lines(stderr);
    let mut problem = words.clone();
    if problem.is_empty() {
        problem = "ssh ended without a message".to_owned();
    }
    match failure(stderr) {
        LoginFailure::Local => HostFault::for_all(format!("ssh failed on this machine: {problem}"))
            .fix("correct ssh_config, or the file that DGL_TOOLS_SSH_CONFIG names"),
        LoginFailure::Proxy => proxy_fault(stderr, &problem)
            .fix(format!("try it here: ssh {}", by_hand(host, options))),
        LoginFailure::OtherKey => known_hosts::fault_of_other_key(options, settings)
            .unwrap_or_else(|| HostFault::unreachable(problem)),
        LoginFailure::Revoked => {
            HostFault::unreachable(problem).fix("do not connect; ask the administrator of the host")
        }
        LoginFailure::Refused { methods } => refused(&words, &methods, host, settings, options),
        LoginFailure::NothingInCommon { setting, query } => {
            HostFault::unreachable(problem).fix(format!(
                "if you accept an algorithm that the host offers and `ssh -Q {query}` lists, add \
                 it to {setting} in ssh_config"
            ))
        }
        LoginFailure::HungUp => HostFault {
            again: true,
            ..HostFault::unreachable(problem)
        },
        LoginFailure::Unreachable => HostFault {
            timed_out: words.contains("timed out"),
            ..HostFault::unreachable(problem)
        }
        .fix(CHECK_SSHD),
        LoginFailure::Other => HostFault::unreachable(problem),
    }
}

fn refused(
    words: &str,
    methods: &str,
    host: &Host,
    settings: &SshSettings,
    options: &RemoteOptions,
) -> HostFault {
    let mut problem = format!("login refused for {}: {words}", settings.user);
    if let Some(agent) = super::ssh_agent::problem().filter(|_| !settings.no_agent) {
        problem += &format!("; {agent}");
    }
    let fault = HostFault {
        is_refused: true,
        ..HostFault::unreachable(problem)
    };
    if let Some((file, since)) = certificate::expired(&settings.certificates) {
        let (problem, file) = (&fault.problem, file.display());
        return HostFault {
            problem: format!("{problem}; the certificate {file} expired on {since}"),
            ..fault
        }
        .fix("get a new certificate from its issuer");
    }
    fault.fix(fix_of_refusal(methods, &by_hand(host, options)))
}

pub fn fix_of_refusal(methods: &str, by_hand: &str) -> String {
    let offers = |method: &str| methods.split(',').any(|offered| offered == method);
    let mut fix = format!(
        "name user and key in ssh_config, or in DGL_TOOLS_SSH_USERNAME and DGL_TOOLS_IDENTITY; \
         then `ssh -o BatchMode=yes {by_hand}` must work"
    );
    if offers("gssapi-with-mic") {
        fix += "; with Kerberos, `klist` must show a ticket";
    }
    if offers("keyboard-interactive") || offers("password") {
        fix += ". For a passphrase, a password or a second factor, run this on a terminal, where \
                ssh can ask";
    }
    fix
}

/// The options and the host of an `ssh` command that users can run.
pub fn by_hand(host: &Host, options: &RemoteOptions) -> String {
    use std::os::unix::ffi::OsStringExt as _;
    let words = super::ssh_config::ssh_options(options)
        .into_iter()
        .chain([host.target().into()]);
    let words = quote::sh_words(words.map(std::ffi::OsString::into_vec));
    String::from_utf8_lossy(&words).into_owned()
}

/// Whether the jump host or ProxyCommand did not reach the host.
pub fn is_proxy_failure(words: &str) -> bool {
    words.contains("UNKNOWN port 65535")
}

/// For a host behind another; `problem` quotes ssh. If a jump host refuses the user or its key is
/// refused, another attempt is refused, too.
pub fn proxy_fault(stderr: &str, problem: &str) -> HostFault {
    let refusals = [
        "Permission denied (",
        "Too many authentication failures",
        "Host key verification failed",
    ];
    let is_refused = refusals.iter().any(|words| stderr.contains(words));
    let problem =
        format!("the ProxyJump or ProxyCommand of ssh_config does not reach it: {problem}");
    HostFault {
        again: !is_refused,
        is_refused,
        ..HostFault::unreachable(problem)
    }
}

/// On one line, without decoration and advice.
fn last_lines(stderr: &str) -> String {
    const NOISE: [&str; 3] = [
        "@",
        "Warning: Permanently added",
        "Pseudo-terminal will not",
    ];
    let mut lines: Vec<&str> = stderr.lines().map(str::trim).collect();
    lines.retain(|line| !line.is_empty() && !NOISE.iter().any(|noise| line.starts_with(noise)));
    lines.dedup();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

const DISCONNECT: &str = "Received disconnect from ";
const NEGOTIATION: &str = "Unable to negotiate with ";

/// How lines begin that quote the host, and what is before the quotation, which may have any words
/// and several lines.
const QUOTING: [(&str, &str); 3] = [
    (DISCONNECT, ":"),
    (NEGOTIATION, "Their offer: "),
    ("Bad remote protocol version identification: ", ":"),
];

/// The last line is ssh's own reason, perhaps with another of these behind it. What comes before it
/// may be a banner of the host, which may have any words.
fn failure(stderr: &str) -> LoginFailure {
    const BEHIND: [&str; 2] = ["Disconnected from ", "Killed by signal "];
    let is_behind =
        |line: &&str| line.is_empty() || BEHIND.iter().any(|sign| line.starts_with(sign));
    let mut from_end = stderr.lines().rev().map(str::trim);
    let last = from_end.find(|line| !is_behind(line)).unwrap_or_default();
    let quoting = QUOTING.iter().find_map(|(start, before)| {
        let mut lines = stderr.lines().map(str::trim);
        let line = lines.find(|line| line.starts_with(start))?;
        Some((line, line.split(before).next()?))
    });
    // a jump host's own ssh may have printed such a line before
    let (whole, last) = quoting
        .filter(|(line, _)| *line == last || !is_proxy_failure(last))
        .unwrap_or((last, last));
    // before a key is accepted, ssh shows no banner
    if last.starts_with("Host key verification failed") {
        if stderr.contains("revoked") {
            return LoginFailure::Revoked;
        }
        if stderr.contains("has changed") {
            return LoginFailure::OtherKey;
        }
    }
    if is_proxy_failure(last) {
        return LoginFailure::Proxy;
    }
    if let Some((_, rest)) = last.split_once("Permission denied (") {
        let methods = rest.split(')').next().unwrap_or_default().to_owned();
        return LoginFailure::Refused { methods };
    }
    if last.starts_with(DISCONNECT) && whole.contains("Too many authentication failures") {
        return LoginFailure::Refused {
            methods: "publickey".to_owned(),
        };
    }
    if last.starts_with(NEGOTIATION) {
        let settings = [
            ("no matching cipher", "Ciphers", "cipher"),
            ("no matching key exchange", "KexAlgorithms", "kex"),
            ("no matching MAC", "MACs", "mac"),
            ("no matching host key", "HostKeyAlgorithms", "key"),
        ];
        let found = settings.iter().find(|(said, ..)| last.contains(said));
        if let Some((_, setting, query)) = found {
            return LoginFailure::NothingInCommon { setting, query };
        }
    }
    if hung_up(last) {
        return LoginFailure::HungUp;
    }
    if last.starts_with("ssh: connect to host ") || last.contains("timed out") {
        return LoginFailure::Unreachable;
    }
    if HERE.iter().any(|sign| last.contains(sign)) {
        return LoginFailure::Local;
    }
    LoginFailure::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_understood(table: impl IntoIterator<Item = (&'static str, LoginFailure)>) {
        for (stderr, expected) in table {
            assert_eq!(failure(stderr), expected, "{stderr}");
        }
    }

    // as versions 7.4 to 9.3 write it

    #[test]
    fn what_ssh_says_of_this_machine_is_understood() {
        is_understood([
            (
                "command-line line 0: Bad SSH2 cipher spec '^a'.\r\n",
                LoginFailure::Local,
            ),
            (
                "command-line: line 0: Bad configuration option: x\n",
                LoginFailure::Local,
            ),
            (
                "Cannot execute command-line and remote command.\n",
                LoginFailure::Local,
            ),
            (
                "ssh: unknown option -- 8\nusage: ssh [-46AaCfGgKkMN]\n           \
                 destination [command [argument ...]]\n",
                LoginFailure::Local,
            ),
            (
                "unknown option -- 8\nusage: ssh [-46AaCfGgKkMN]\n           destination [command \
                 [argument ...]]\n       ssh [-Q query_option]\n",
                LoginFailure::Local,
            ),
            (
                "/home/ann/.ssh/config: line 3: Bad configuration option: x\n\
                 /home/ann/.ssh/config: terminating, 1 bad configuration options\n",
                LoginFailure::Local,
            ),
            (
                "/bin/sh: 1: exec: nc: not found\nkex_exchange_identification: Connection \
                 closed by remote host\nConnection closed by UNKNOWN port 65535\n",
                LoginFailure::Proxy,
            ),
            (
                "ann@bastion: Permission denied (publickey).\r\nConnection closed by UNKNOWN \
                 port 65535\r\n",
                LoginFailure::Proxy,
            ),
            (
                "Host key verification failed.\r\nConnection closed by UNKNOWN port 65535\r\n",
                LoginFailure::Proxy,
            ),
            (
                "ssh: connect to host 10.0.0.1 port 22: Connection refused\n",
                LoginFailure::Unreachable,
            ),
            (
                "ssh: Could not resolve hostname n1: Name or service not known\n",
                LoginFailure::Other,
            ),
            ("", LoginFailure::Other),
        ]);
    }

    #[test]
    fn what_ssh_says_of_host_keys_is_understood() {
        let other = "@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n@@@\nAdd correct \
            host key in /home/ann/my hosts to get rid of this message.\nOffending ED25519 key in \
            /home/ann/my hosts:12\n  remove with:\n  ssh-keygen -f \"/home/ann/my hosts\" -R \
            \"10.0.0.1\"\nHost key for 10.0.0.1 has changed and you have requested strict \
            checking.\nHost key verification failed.\n";
        is_understood([
            (other, LoginFailure::OtherKey),
            // a banner of the host
            (
                "Offending ED25519 key in /home/ann/.ssh/known_hosts:1\nits key has changed\n\
                 ann@10.0.0.1: Permission denied (publickey).\n",
                LoginFailure::Refused {
                    methods: "publickey".into(),
                },
            ),
            (
                "Host key ED25519 SHA256:x revoked by file /krl\nHost key verification failed.\n",
                LoginFailure::Revoked,
            ),
            (
                "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. \
                 Their offer: ssh-rsa,ssh-dss\n",
                LoginFailure::NothingInCommon {
                    setting: "HostKeyAlgorithms",
                    query: "key",
                },
            ),
        ]);
    }

    /// Each line is what ssh ends with, and what that means.
    #[test]
    fn what_a_banner_says_decides_nothing() {
        let refused = LoginFailure::Refused {
            methods: "publickey".to_owned(),
        };
        let ends = [
            ("ann@10.0.0.1: Permission denied (publickey).\n", refused),
            (
                "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n\
                 Disconnected from 10.0.0.1 port 22\n",
                LoginFailure::Refused {
                    methods: "publickey".to_owned(),
                },
            ),
            (
                "Connection closed by 10.0.0.1 port 22\n",
                LoginFailure::HungUp,
            ),
            (
                "Connection to 10.0.0.1 timed out\n",
                LoginFailure::Unreachable,
            ),
            (
                "ssh_dispatch_run_fatal: Connection to 10.0.0.1 port 22: incorrect signature\n",
                LoginFailure::Other,
            ),
        ];
        let banners = [
            "Host key verification failed.\nits key has changed\nkey revoked",
            "Host key for 10.0.0.1 has changed\nHost key verification failed.",
            "ssh_config: terminating, 1 bad configuration options\nusage: ssh [-46AaCf]",
            "Connection closed by UNKNOWN port 65535",
            "ann@10.0.0.1: Permission denied (password,gssapi-with-mic).",
            "Unable to negotiate: no matching cipher found. Their offer: rot13",
        ];
        for (end, meaning) in &ends {
            for banner in banners {
                let stderr = format!("{banner}\n{end}");
                assert_eq!(failure(&stderr), *meaning, "{stderr}");
            }
        }
    }

    /// A host that has no key can disconnect, too.
    #[test]
    fn what_a_host_says_in_ssh_s_own_line_decides_nothing() {
        let lines = [
            (
                "Received disconnect from 10.0.0.1 port 22:2: ",
                LoginFailure::HungUp,
            ),
            (
                "Received disconnect from fe80::1%eth0 port 22:2: ",
                LoginFailure::HungUp,
            ),
            (
                "Unable to negotiate with 10.0.0.1 port 22: no matching MAC found. Their offer: ",
                LoginFailure::NothingInCommon {
                    setting: "MACs",
                    query: "mac",
                },
            ),
            (
                "Bad remote protocol version identification: '",
                LoginFailure::Other,
            ),
        ];
        let texts = [
            "Host key verification failed. It has changed",
            "Host key verification failed: revoked",
            "Connection closed by UNKNOWN port 65535",
            "ann@10.0.0.1: Permission denied (password,gssapi-with-mic).",
            "no matching cipher found. Their offer: rot13",
            "Connection timed out",
            "Bad configuration option",
        ];
        for (line, meaning) in &lines {
            for text in texts {
                let own = format!("{line}{text}\nDisconnected from 10.0.0.1 port 22\n");
                assert_eq!(failure(&own), *meaning, "{own}");
            }
            for text in texts.iter().filter(|text| !is_proxy_failure(text)) {
                let next = format!("{line}x\n{text}\n");
                assert_eq!(failure(&next), *meaning, "{next}");
            }
        }
    }

    #[test]
    fn what_ssh_says_of_a_refusal_is_understood() {
        let refused = |methods: &str| LoginFailure::Refused {
            methods: methods.to_owned(),
        };
        is_understood([
            (
                "ann@10.0.0.1: Permission denied (publickey,keyboard-interactive).\n",
                refused("publickey,keyboard-interactive"),
            ),
            (
                "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n\
                 Disconnected from 10.0.0.1 port 22\n",
                refused("publickey"),
            ),
            (
                "Access denied by pam_slurm_adopt: you have no active jobs on this node\n\
                 Connection closed by 10.0.0.1 port 22\n",
                LoginFailure::HungUp,
            ),
        ]);
    }
}
