//! Why a host cannot be used.

use std::path::PathBuf;

/// Why a host cannot be used.
#[derive(Clone, Debug)]
pub struct HostFault {
    /// The problem in one line.
    pub problem: String,
    /// The cure.
    pub fix: Option<String>,
    /// The key of a host that known_hosts does not have.
    pub unknown_key: Option<Box<UnknownKey>>,
    /// Whether the fault concerns the way to all hosts, so that it is reported once.
    pub(crate) affects_all: bool,
    /// Whether another try is worthwhile: the connection was dropped before the login.
    pub(crate) again: bool,
    /// Whether the host did not answer in time, which a busy machine explains too.
    pub(crate) timed_out: bool,
}

/// A key that known_hosts does not have.
#[derive(Clone, Debug)]
pub struct UnknownKey {
    /// The name for known_hosts: `10.0.0.1`, `[10.0.0.1]:2222`.
    pub name: String,
    /// The type of the key: `ssh-ed25519`.
    pub kind: String,
    /// The fingerprint as ssh-keygen -l shows it: `SHA256:…`.
    pub fingerprint: String,
    /// The known_hosts file to which the user's ssh adds new keys, and the line for this one.
    pub entry: Option<(PathBuf, String)>,
}

impl HostFault {
    /// Whether nobody at the address has answered, so that another network may be the reason.
    pub(crate) fn is_unanswered(&self) -> bool {
        // the words of the kernel, which `ssh` quotes too
        let errors = ["Network is unreachable", "No route to host", "timed out"];
        self.timed_out || errors.iter().any(|error| self.problem.contains(error))
    }

    pub(crate) fn new(problem: impl Into<String>) -> HostFault {
        HostFault {
            problem: problem.into(),
            fix: None,
            unknown_key: None,
            affects_all: false,
            again: false,
            timed_out: false,
        }
    }

    /// A signal ended the tool before the host answered.
    pub(crate) fn stopped() -> HostFault {
        HostFault::new("it had not answered when a signal came").fix("run this again")
    }

    pub(crate) fn for_all(problem: impl Into<String>) -> HostFault {
        HostFault::new(problem).affecting_all()
    }

    pub(crate) fn affecting_all(self) -> HostFault {
        HostFault {
            affects_all: true,
            ..self
        }
    }

    pub(crate) fn fix(self, fix: impl Into<String>) -> HostFault {
        HostFault {
            fix: Some(fix.into()),
            ..self
        }
    }
}
