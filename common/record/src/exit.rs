//! How tools end, with the exit statuses of dgl-tools(7), and how the processes of a job end.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::borrow::Cow;
use std::fmt;
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    #[default]
    Done,
    /// A file, a process or a reached host failed.
    ItemFailed,
    Usage,
    /// The input is wrong: a file's content, a record, a failed earlier stage. `EX_DATAERR` of
    /// sysexits.h.
    BadData,
    /// A host or a file could not be reached or read. `EX_IOERR` of sysexits.h.
    Unreachable,
    /// A time limit ran out; the status is that of timeout(1).
    TimeLimit,
    /// A signal ended the tool; the status is that of shells.
    Signal(SignalNumber),
    /// The status of the user's own process that failed first.
    Process(u8),
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::ItemFailed => 1,
            Exit::Usage => 2,
            Exit::BadData => 65,
            Exit::Unreachable => 74,
            Exit::TimeLimit => 124,
            Exit::Signal(signal) => signal.shell_code(),
            Exit::Process(code) => code,
        }
    }

    /// The worse of two, in the order usage, bad data, unreachable, item failed.
    pub fn worst(self, other: Exit) -> Exit {
        fn weight(exit: Exit) -> u8 {
            match exit {
                Exit::Done => 0,
                Exit::ItemFailed => 1,
                Exit::Unreachable => 2,
                Exit::BadData => 3,
                Exit::Usage => 4,
                Exit::TimeLimit | Exit::Signal(_) | Exit::Process(_) => 5,
            }
        }
        if weight(other) > weight(self) {
            other
        } else {
            self
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// How a process of a job ended, from the host that saw it to the records. Exiting with 137 and
/// being ended by KILL are different.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessEnd {
    /// The exit status of the process.
    pub code: Option<u8>,
    /// The signal that ended the process, in place of `code`: `KILL`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub signal: Option<SignalNumber>,
    /// Whether the kernel killed the process because memory ran out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oom: bool,
    /// Whether dgl-reap ended the process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reaped: bool,
}

impl ProcessEnd {
    pub fn exited(code: u8) -> ProcessEnd {
        ProcessEnd {
            code: Some(code),
            ..ProcessEnd::default()
        }
    }

    pub fn killed(signal: SignalNumber) -> ProcessEnd {
        ProcessEnd {
            signal: Some(signal),
            ..ProcessEnd::default()
        }
    }

    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// A process that dgl-reap asked to end has not done its work, even if it exits with 0.
    pub fn is_complete(&self) -> bool {
        self.is_success() && !self.reaped
    }

    /// As shells report it: 128 + n for signal n. Exiting with 0 because of dgl-reap counts as
    /// TERM.
    pub fn shell_code(&self) -> u8 {
        match (self.signal, self.code) {
            (Some(signal), _) => signal.shell_code(),
            (None, Some(0)) if self.reaped => SignalNumber::TERM.shell_code(),
            (None, code) => code.unwrap_or(1),
        }
    }
}

impl fmt::Display for ProcessEnd {
    /// Follows the name of the process.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.signal {
            Some(signal) if self.oom => {
                write!(
                    f,
                    "ended by SIG{signal}: the kernel killed it because memory ran out"
                )
            }
            Some(signal) if self.reaped => write!(f, "ended by a signal of dgl-reap, SIG{signal}"),
            Some(signal) => write!(f, "ended by SIG{signal}"),
            None => {
                write!(f, "exited with status {}", self.code.unwrap_or(1))?;
                match (self.oom, self.reaped) {
                    (true, _) => {
                        f.write_str(": the kernel killed what it ran because memory ran out")
                    }
                    (false, true) => f.write_str(" because of dgl-reap"),
                    (false, false) => Ok(()),
                }
            }
        }
    }
}

/// Records have its name without SIG: `KILL` for 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SignalNumber(pub i32);

impl SignalNumber {
    pub const INT: SignalNumber = SignalNumber(2);
    pub const ABRT: SignalNumber = SignalNumber(6);
    pub const BUS: SignalNumber = SignalNumber(7);
    pub const KILL: SignalNumber = SignalNumber(9);
    pub const TERM: SignalNumber = SignalNumber(15);

    /// Its name without SIG; the number of a real-time signal.
    pub fn name(self) -> Cow<'static, str> {
        match nix::sys::signal::Signal::try_from(self.0) {
            Ok(signal) => signal.as_str().trim_start_matches("SIG").into(),
            Err(_) => self.0.to_string().into(),
        }
    }

    pub fn named(name: &str) -> Option<SignalNumber> {
        (1..=64)
            .map(SignalNumber)
            .find(|signal| signal.name() == name)
    }

    /// As shells report it.
    fn shell_code(self) -> u8 {
        128u8.saturating_add(u8::try_from(self.0).unwrap_or(u8::MAX))
    }
}

impl fmt::Display for SignalNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl From<SignalNumber> for String {
    fn from(signal: SignalNumber) -> String {
        signal.name().into_owned()
    }
}

impl TryFrom<String> for SignalNumber {
    type Error = String;

    fn try_from(name: String) -> Result<SignalNumber, String> {
        SignalNumber::named(&name).ok_or_else(|| format!("no signal {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_the_status_that_shells_report() {
        let reaped = |end: ProcessEnd| ProcessEnd {
            reaped: true,
            ..end
        };
        let table = [
            (ProcessEnd::exited(0), 0),
            (ProcessEnd::exited(1), 1),
            (ProcessEnd::exited(137), 137),
            (ProcessEnd::killed(SignalNumber::KILL), 137),
            (ProcessEnd::killed(SignalNumber(300)), 255),
            (reaped(ProcessEnd::exited(0)), 143),
            (reaped(ProcessEnd::exited(3)), 3),
            (reaped(ProcessEnd::killed(SignalNumber::KILL)), 137),
        ];
        for (end, shell) in table {
            assert_eq!(end.shell_code(), shell, "{end:?}");
        }
    }
}
