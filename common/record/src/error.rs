//! Faults and reports. A fault knows its place and its cure and is made where both are known; a
//! report holds all faults that were found at once.
//!
//! A problem may quote hosts, files and other programs. Such text is made harmless for a terminal
//! here, where every fault passes on its way to people; records keep it unchanged.

use crate::exit::Exit;
use crate::stderr;
use crate::term::plain;
use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where: a file and line, a host, an option, a record.
    pub place: String,
    /// What is wrong there, in lower case, without a full stop.
    pub problem: String,
    /// Lines below the problem, where one line cannot name all parts of it.
    pub details: Vec<String>,
    /// The cure. It is written by us; of text from elsewhere it holds only what
    /// [`crate::quote::may_be_pasted`] allows.
    pub fix: Option<String>,
    /// The exit status that the fault leads to.
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

    /// Adds the cure.
    pub fn fix(self, fix: impl Into<String>) -> Fault {
        Fault {
            fix: Some(fix.into()),
            ..self
        }
    }

    /// Adds lines below the problem.
    pub fn details(self, details: Vec<String>) -> Fault {
        Fault { details, ..self }
    }

    /// A report with only this fault.
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
            // some cures are commands, one on each line
            Some(fix) => write!(
                f,
                "\n  fix: {}",
                fix.split('\n').map(plain).collect::<Vec<_>>().join("\n")
            ),
            None => Ok(()),
        }
    }
}

/// All faults that were found. Beyond [`Report::SHOWN`] they are counted, not shown, because nobody
/// reads the same line for 500 hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report(pub Vec<Fault>);

impl Report {
    const SHOWN: usize = 40;

    /// `Err(self)` if there is any fault.
    pub fn check(self) -> Result<(), Report> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Adds a fault.
    pub fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Adds the faults of another report.
    pub fn extend(&mut self, other: Report) {
        self.0.extend(other.0);
    }

    /// Takes the value out of a result, or keeps its faults and returns `None`.
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

    /// Writes the report to stderr in one piece, because all stages of a pipeline write there at
    /// once.
    pub fn print(&self, tool: &str) {
        let lines = self.lines(tool);
        if !lines.is_empty() {
            stderr::write_line(format_args!("{}", lines.join("\n")));
        }
    }

    /// The lines that people read. A cure that several faults in a row share stands once, behind
    /// the last of them.
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
