//! Exit statuses, the same for all tools; dgl-tools(7) lists them.

use std::process::ExitCode;

/// How a tool ends; each has one exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The tool did all its work.
    Done,
    /// An item failed: a file, a process, a host that was reached.
    ItemFailed,
    /// The command line is wrong.
    Usage,
    /// The input is wrong: a file's content, a record, a failed earlier stage. `EX_DATAERR` of
    /// sysexits.h.
    BadData,
    /// A host or a file could not be reached or read. `EX_IOERR` of sysexits.h.
    Unreachable,
    /// A time limit ran out; the status is that of timeout(1).
    TimeLimit,
    /// A signal ended the tool: 128 + the signal's number, as shells report it.
    Signal(i32),
    /// The status of the user's own process that failed first.
    Process(u8),
}

impl Exit {
    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::ItemFailed => 1,
            Exit::Usage => 2,
            Exit::BadData => 65,
            Exit::Unreachable => 74,
            Exit::TimeLimit => 124,
            Exit::Signal(number) => 128u8.saturating_add(u8::try_from(number).unwrap_or(u8::MAX)),
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

/// The name of a signal without SIG: `KILL` for 9.
pub fn signal_name(number: i32) -> String {
    match nix::sys::signal::Signal::try_from(number) {
        Ok(signal) => signal.as_str().trim_start_matches("SIG").to_owned(),
        Err(_) => number.to_string(),
    }
}

/// The number of a signal by its name without SIG: 9 for `KILL`.
pub fn signal_number(name: &str) -> Option<i32> {
    (1..32).find(|number| signal_name(*number) == name)
}
