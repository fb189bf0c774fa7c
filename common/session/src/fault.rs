//! Why a host cannot be used.

use record::error::{Fault, Report};
use record::{Host, quote, term};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::files::FileEvent;

#[derive(Clone, Debug)]
pub struct HostFault {
    /// One line.
    pub problem: String,
    pub fix: Option<String>,
    pub unknown_key: Option<Box<UnknownKey>>,
    /// The fault is then reported once.
    pub affects_all: bool,
    /// The host cannot be reached, or was lost; otherwise the host or this tool found the fault.
    pub is_unreachable: bool,
    /// The connection was dropped before the login, so another attempt may succeed.
    pub again: bool,
    pub timed_out: bool,
    pub is_refused: bool,
    /// The jump host or ProxyCommand failed or refused, so the host itself was not asked.
    pub is_proxy: bool,
    /// Although libssh2 failed, OpenSSH may log in.
    pub ssh_may_do: bool,
}

#[derive(Clone, Debug)]
pub struct UnknownKey {
    /// For known_hosts: `10.0.0.1`, `[10.0.0.1]:2222`.
    pub name: String,
    /// `ssh-ed25519`.
    pub kind: String,
    /// As ssh-keygen -l shows it: `SHA256:…`.
    pub fingerprint: String,
    /// The known_hosts file for new keys, and the line for this one.
    pub entry: Option<(PathBuf, String)>,
}

impl HostFault {
    pub fn unreachable(problem: impl Into<String>) -> HostFault {
        HostFault {
            is_unreachable: true,
            ..HostFault::reported(problem)
        }
    }

    /// Whoever words it, a problem has a bounded length.
    pub fn reported(problem: impl Into<String>) -> HostFault {
        HostFault {
            problem: wire::cut_message(&problem.into()),
            fix: None,
            unknown_key: None,
            affects_all: false,
            is_unreachable: false,
            again: false,
            timed_out: false,
            is_refused: false,
            is_proxy: false,
            ssh_may_do: false,
        }
    }

    /// `last_words` are those of the program that connects.
    pub fn silent(limit: Duration, last_words: &str) -> HostFault {
        let colon = if last_words.is_empty() { "" } else { ": " };
        let seconds = limit.as_secs_f32();
        let problem = format!("no answer within {seconds} s{colon}{last_words}");
        let fault = HostFault {
            timed_out: true,
            ..HostFault::unreachable(problem)
        };
        fault.fix("check that the host is up, or allow more time with DGL_TOOLS_CONNECT_TIMEOUT")
    }

    /// The host sent what its agent does not send. The agent is of the same build as this tool.
    pub fn protocol(problem: impl std::fmt::Display) -> HostFault {
        HostFault::reported(format!("protocol error: {problem}")).fix(
            "run this again; if it fails again, check that nothing else on the way to the host \
             writes into the connection, and report it as a bug",
        )
    }

    /// Does not match the request.
    pub fn unexpected(event: &FileEvent) -> HostFault {
        let text = term::cut(&format!("{event:?}"), 100);
        HostFault::protocol(format_args!("unexpected answer: {text}"))
    }

    pub fn stopped() -> HostFault {
        HostFault::unreachable("no answer before a signal arrived").fix("run this again")
    }

    pub fn for_all(problem: impl Into<String>) -> HostFault {
        HostFault::unreachable(problem).affecting_all()
    }

    pub fn affecting_all(self) -> HostFault {
        HostFault {
            affects_all: true,
            ..self
        }
    }

    /// Its location is the host.
    pub fn fault(&self, host: &Host) -> Fault {
        let (location, problem) = (host.location(), self.problem.clone());
        let fault = if self.is_unreachable {
            Fault::unreachable(location, problem)
        } else {
            Fault::item(location, problem)
        };
        Fault {
            fix: self.fix.clone(),
            ..fault
        }
    }

    pub fn fix(self, fix: impl Into<String>) -> HostFault {
        HostFault {
            fix: Some(fix.into()),
            ..self
        }
    }
}

/// All unknown keys are in one fault, with one command that accepts them.
pub fn report<T>(hosts: &[Host], results: &[Result<T, HostFault>]) -> Report {
    let mut report = Report::default();
    let mut unknown = Vec::new();
    for (host, result) in hosts.iter().zip(results) {
        let Err(fault) = result else {
            continue;
        };
        if fault.affects_all {
            let once = Fault {
                location: "--connect".to_owned(),
                ..fault.fault(host)
            };
            if !report.0.contains(&once) {
                report.push(once);
            }
            continue;
        }
        match &fault.unknown_key {
            Some(key) => unknown.push((host, key.as_ref())),
            None => report.push(fault.fault(host)),
        }
    }
    if !unknown.is_empty() {
        report.push(unknown_keys(&unknown));
    }
    report
}

fn unknown_keys(unknown: &[(&Host, &UnknownKey)]) -> Fault {
    let problem = "these keys are not in known_hosts, so these may not be the hosts you expect:";
    let details = unknown
        .iter()
        .map(|(host, key)| {
            format!(
                "{}  {}  {}  {}",
                host.location(),
                key.name,
                key.kind,
                key.fingerprint
            )
        })
        .collect();
    let mut lines: BTreeMap<&Path, BTreeSet<&str>> = BTreeMap::new();
    for (file, line) in unknown.iter().filter_map(|(_, key)| key.entry.as_ref()) {
        lines.entry(file).or_default().insert(line);
    }
    // the file may not end with a newline
    let adding = lines.iter().map(|(file, lines)| {
        let lines: Vec<String> = lines.iter().map(quote::shown).collect();
        format!(
            "printf '%s\\n' '' {} >> {}\n       or ",
            lines.join(" \\\n         "),
            quote::shown(file.as_os_str().as_bytes())
        )
    });
    let fix = format!(
        "compare the fingerprints, then accept these keys with\n       {}once with \
         DGL_TOOLS_HOST_KEY=accept-new",
        adding.collect::<String>()
    );
    Fault::unreachable("host keys", problem)
        .details(details)
        .fix(fix)
}
