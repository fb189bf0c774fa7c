//! Turns OpenSSH's messages about a failed login into a fault with its fix.

use super::certificate;
use super::known_hosts;
use super::options::RemoteOptions;
use super::ssh_config::SshSettings;
use record::Host;
use record::quote;
use session::HostFault;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginFailure {
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

pub fn fault(
    failure: LoginFailure,
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
    match failure {
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

/// For a host behind another; `problem` quotes ssh. If a jump host refuses the user or its key is
/// refused, another attempt is refused, too.
pub fn proxy_fault(stderr: &str, problem: &str) -> HostFault {
    let refusals = [REFUSAL, "Too many authentication failures", KEY_FAILED];
    let is_refused = refusals.iter().any(|words| stderr.contains(words));
    let problem =
        format!("the ProxyJump or ProxyCommand of ssh_config does not reach it: {problem}");
    HostFault {
        again: !is_refused,
        is_refused,
        is_proxy: true,
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
const REFUSAL: &str = "Permission denied (";
const KEY_FAILED: &str = "Host key verification failed";

/// How messages begin that quote the host, and what is before the quotation, which may have any
/// words and several lines.
const QUOTING: [(&str, &str); 4] = [
    (DISCONNECT, ":"),
    (NEGOTIATION, "Their offer: "),
    ("Bad remote protocol version identification: ", ""),
    (REFUSAL, ""),
];

/// ssh cuts longer messages at about 1020 bytes (`MSGBUFSIZ` of OpenSSH's log.c).
const CUT: usize = 1000;

/// The address of the host, as ssh prints it if a proxy connects.
const BEHIND_PROXY: &str = "UNKNOWN port 65535";

/// ssh's reason why it ended.
struct LastMessage<'a> {
    own: &'a str,
    /// What the host says in it, up to the end of stderr.
    quoted: Option<&'a str>,
}

/// Cuts the host's words out of stderr: the banner before ssh's own message, and the quotation in
/// it. A banner that looks like a quoting message counts as one. ssh's message need not begin a
/// line, because a banner may lack the end of its last line.
fn last_message(stderr: &str, has_proxy: bool) -> LastMessage<'_> {
    const BEHIND: [&str; 2] = ["Disconnected from ", "Killed by signal "];
    let is_behind =
        |line: &&str| line.is_empty() || BEHIND.iter().any(|sign| line.starts_with(sign));
    let mut from_end = stderr.lines().rev().map(str::trim);
    let last = from_end.find(|line| !is_behind(line)).unwrap_or_default();
    let whole = LastMessage {
        own: last,
        quoted: None,
    };
    // a jump host may have printed any message before
    let is_unquoted = last.starts_with(KEY_FAILED) || last.contains(BEHIND_PROXY) && !quotes(last);
    if has_proxy && is_unquoted {
        return whole;
    }
    let is_closed = last.ends_with(").") || stderr.trim_end().ends_with(").");
    let mut at = 0;
    for line in stderr.split_inclusive('\n') {
        let left = stderr.len() - at;
        // a refusal is ssh's last message, so what looks like an earlier one is a banner
        let is_refusal = is_closed || left >= CUT;
        let own = own_parts(line).filter(|own| is_refusal || line[own.clone()] != *REFUSAL);
        if let Some(own) = own.min_by_key(|own| own.start) {
            return LastMessage {
                quoted: Some(&stderr[at + own.end..]),
                own: &line[own],
            };
        }
        at += line.len();
    }
    whole
}

/// What ssh says in a line before it quotes the host.
fn own_parts(line: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    QUOTING.iter().filter_map(|(start, before)| {
        let (_, behind) = line.split_once(start)?;
        let end = behind.find(before).unwrap_or(behind.len());
        let behind_at = line.len() - behind.len();
        Some(behind_at - start.len()..behind_at + end)
    })
}

fn quotes(line: &str) -> bool {
    own_parts(line).next().is_some()
}

/// `has_proxy` if a jump host or ProxyCommand may be the cause.
pub fn failure(stderr: &str, has_proxy: bool) -> LoginFailure {
    let LastMessage { own, quoted } = last_message(stderr, has_proxy);
    // before a key is accepted, ssh shows no banner
    if own.starts_with(KEY_FAILED) {
        if stderr.contains("revoked") {
            return LoginFailure::Revoked;
        }
        if stderr.contains("has changed") {
            return LoginFailure::OtherKey;
        }
    }
    if has_proxy && quoted.is_none() && own.contains(BEHIND_PROXY) {
        return LoginFailure::Proxy;
    }
    let quotation = quoted.unwrap_or_default();
    if own == REFUSAL {
        return LoginFailure::Refused {
            methods: methods(quotation).to_owned(),
        };
    }
    let first_line = quotation.lines().next().unwrap_or_default();
    // ssh would offer the same keys again
    if own.starts_with(DISCONNECT) && first_line.contains("Too many authentication failures") {
        return LoginFailure::Refused {
            methods: "publickey".to_owned(),
        };
    }
    if own.starts_with(NEGOTIATION) {
        let settings = [
            ("no matching cipher", "Ciphers", "cipher"),
            ("no matching key exchange", "KexAlgorithms", "kex"),
            ("no matching MAC", "MACs", "mac"),
            ("no matching host key", "HostKeyAlgorithms", "key"),
        ];
        let found = settings.iter().find(|(said, ..)| own.contains(said));
        if let Some((_, setting, query)) = found {
            return LoginFailure::NothingInCommon { setting, query };
        }
    }
    if HUNG_UP.iter().any(|sign| own.contains(sign)) {
        return LoginFailure::HungUp;
    }
    if own.starts_with("ssh: connect to host ") || own.contains("timed out") {
        return LoginFailure::Unreachable;
    }
    // this accuses the user's machine, so no host may have had a say
    if HERE.iter().any(|sign| own.contains(sign)) && !stderr.lines().any(quotes) {
        return LoginFailure::Local;
    }
    LoginFailure::Other
}

/// The methods of the last refusal: an earlier one may be a banner. Empty if the text has anything
/// but names of methods.
fn methods(quotation: &str) -> &str {
    let last = quotation.rsplit(REFUSAL).next().unwrap_or_default();
    let names = last.trim_end().strip_suffix(").").unwrap_or_default();
    let is_name = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'@' | b'.' | b',' | b'-');
    if names.bytes().all(is_name) {
        names
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_understood(table: impl IntoIterator<Item = (&'static str, LoginFailure)>) {
        for (stderr, expected) in table {
            assert_eq!(failure(stderr, true), expected, "{stderr}");
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
                assert_eq!(failure(&stderr, false), *meaning, "{stderr}");
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
            "terminating, 1 bad configuration options",
            "Permission denied (\nConnection closed by UNKNOWN port 65535",
        ];
        for (line, meaning) in &lines {
            for text in texts {
                let own = format!("{line}{text}\nDisconnected from 10.0.0.1 port 22\n");
                assert_eq!(failure(&own, false), *meaning, "{own}");
            }
            for text in texts {
                let next = format!("{line}x\n{text}\n");
                assert_eq!(failure(&next, false), *meaning, "{next}");
                // a banner need not have whole lines
                let behind = format!("Welcome{next}");
                assert_eq!(failure(&behind, false), *meaning, "{behind}");
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

    /// ssh prints the names of methods as they are, up to its limit.
    #[test]
    fn what_a_host_says_in_the_names_of_its_methods_decides_nothing() {
        let texts = [
            "x).\nConnection closed by UNKNOWN port 65535 (\nterminating, 1 bad configuration \
             options",
            "x).\nConnection closed by UNKNOWN port 65535",
            "x).\nHost key verification failed.\nrevoked",
            "Permission denied (password).\nDisconnected from ",
            "password).\n\nKilled by signal ",
        ];
        let refused = LoginFailure::Refused {
            methods: String::new(),
        };
        for text in texts {
            let whole = format!("ann@10.0.0.1: Permission denied ({text}).\r\n");
            let cut = format!(
                "ann@10.0.0.1: Permission denied ({}{text}\r\n",
                "x\n".repeat(500)
            );
            let without_line = format!("Welcome{whole}");
            for stderr in [whole, cut, without_line] {
                assert_eq!(failure(&stderr, false), refused, "{stderr}");
            }
        }
    }

    #[test]
    fn a_host_without_a_proxy_accuses_neither_a_proxy_nor_this_machine() {
        let closed = "Connection closed by UNKNOWN port 65535\n";
        let banners = [
            "",
            "ann@bastion: Permission denied (publickey).\n",
            "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n",
        ];
        for banner in banners {
            let found = failure(&format!("{banner}{closed}"), false);
            assert!(
                matches!(found, LoginFailure::HungUp | LoginFailure::Refused { .. }),
                "{banner}: {found:?}"
            );
        }
        // any message of ssh that quotes a host, wherever it is
        let quoting = "Permission denied (x\nterminating, 1 bad configuration options\n";
        assert_eq!(failure(quoting, false), LoginFailure::Other);
    }

    #[test]
    fn what_a_jump_host_says_does_not_hide_why_ssh_ended() {
        let refused = LoginFailure::Refused {
            methods: "publickey".to_owned(),
        };
        let ends = [
            (
                "Host key for n1 has changed and you have requested strict checking.\nHost key \
                 verification failed.\n",
                LoginFailure::OtherKey,
            ),
            (
                "Connection closed by UNKNOWN port 65535\n",
                LoginFailure::Proxy,
            ),
        ];
        let banners = [
            "Received disconnect from 10.0.0.1 port 22:2: bye\n",
            "Unable to negotiate with 10.0.0.1 port 22: no matching MAC found. Their offer: x\n",
            "ann@bastion: Permission denied (publickey).\n",
        ];
        for (end, meaning) in ends {
            for banner in banners {
                let stderr = format!("{banner}{end}");
                assert_eq!(failure(&stderr, true), meaning, "{stderr}");
            }
        }
        // the host itself says this, behind its jump host
        is_understood([
            (
                "Received disconnect from UNKNOWN port 65535:2: Too many authentication \
                 failures\nDisconnected from UNKNOWN port 65535\n",
                refused,
            ),
            (
                "Unable to negotiate with UNKNOWN port 65535: no matching MAC found. Their offer: \
                 x\n",
                LoginFailure::NothingInCommon {
                    setting: "MACs",
                    query: "mac",
                },
            ),
        ]);
    }
}
