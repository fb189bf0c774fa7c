//! An error knows its place and its cure, and is made where both are known; a report is all of them
//! at once.
//!
//! Hosts, files and other programs have their word in a problem. What they say is shown as text,
//! whatever it is: here, where all that is wrong passes on its way to people. Records hold it as it
//! was said.

use crate::exit::Exit;
use crate::term::plain;
use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where: a file and line, a host, an option, a record.
    pub place: String,
    /// What is wrong there, in lower case, without a full stop.
    pub problem: String,
    /// Lines below it, each for one of several things.
    pub details: Vec<String>,
    /// What to do about it; in words of ours, and of others only those that
    /// [`crate::quote::may_be_pasted`].
    pub fix: Option<String>,
    /// What it means for the exit status.
    pub exit: Exit,
}

impl Fault {
    /// Wrong input.
    pub fn data(place: impl Into<String>, problem: impl Into<String>) -> Fault {
        Fault {
            place: place.into(),
            problem: problem.into(),
            details: Vec::new(),
            fix: None,
            exit: Exit::BadData,
        }
    }

    /// Something that could not be reached or read.
    pub fn unreachable(place: impl Into<String>, problem: impl Into<String>) -> Fault {
        Fault {
            exit: Exit::Unreachable,
            ..Fault::data(place, problem)
        }
    }

    /// A wrong command line.
    pub fn usage(place: impl Into<String>, problem: impl Into<String>) -> Fault {
        Fault {
            exit: Exit::Usage,
            ..Fault::data(place, problem)
        }
    }

    /// An item that failed.
    pub fn item(place: impl Into<String>, problem: impl Into<String>) -> Fault {
        Fault {
            exit: Exit::ItemFailed,
            ..Fault::data(place, problem)
        }
    }

    /// The same with its cure.
    pub fn fix(self, fix: impl Into<String>) -> Fault {
        Fault {
            fix: Some(fix.into()),
            ..self
        }
    }

    /// The same with lines below it.
    pub fn details(self, details: Vec<String>) -> Fault {
        Fault { details, ..self }
    }

    /// The same as a report of its own.
    pub fn report(self) -> Report {
        Report(vec![self])
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", plain(&self.place), plain(&self.problem))?;
        self.details
            .iter()
            .try_for_each(|line| write!(f, "\n    {}", plain(line)))?;
        match &self.fix {
            // some cures are commands, a line each
            Some(fix) => write!(
                f,
                "\n  fix: {}",
                fix.split('\n').map(plain).collect::<Vec<_>>().join("\n")
            ),
            None => Ok(()),
        }
    }
}

/// All that is wrong. More than [`Report::SHOWN`] faults are counted, not shown: nobody reads the
/// same line for 500 hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report(pub Vec<Fault>);

impl Report {
    const SHOWN: usize = 40;

    /// `Err(self)` where anything is wrong.
    pub fn check(self) -> Result<(), Report> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// One more fault.
    pub fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// The faults of another report too.
    pub fn extend(&mut self, other: Report) {
        self.0.extend(other.0);
    }

    /// Takes the value, or keeps what is wrong.
    pub fn keep<T>(&mut self, result: Result<T, Report>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(report) => {
                self.extend(report);
                None
            }
        }
    }

    /// The worst exit status of all.
    pub fn exit(&self) -> Exit {
        self.0
            .iter()
            .fold(Exit::Done, |exit, fault| exit.worst(fault.exit))
    }

    /// Writes it to stderr, in one piece: all stages of a pipeline write there at once.
    pub fn print(&self, tool: &str) {
        let text: String = self
            .lines(tool)
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        eprint!("{text}");
    }

    /// What people read. A cure that several faults in a row share stands once, behind the last of
    /// them.
    pub fn lines(&self, tool: &str) -> Vec<String> {
        let shown = self.0.len().min(Report::SHOWN);
        let line = |(at, fault): (usize, &Fault)| {
            let again =
                self.0.get(at + 1).is_some_and(|next| next.fix == fault.fix) && at + 1 < shown;
            let fix = fault.fix.clone().filter(|_| !again);
            format!(
                "{tool}: {}",
                Fault {
                    fix,
                    ..fault.clone()
                }
            )
        };
        let mut lines: Vec<String> = self.0.iter().take(shown).enumerate().map(line).collect();
        if self.0.len() > shown {
            lines.push(format!(
                "{tool}: and {} more like these",
                self.0.len() - shown
            ));
        }
        lines
    }
}

impl From<Fault> for Report {
    fn from(fault: Fault) -> Report {
        fault.report()
    }
}
