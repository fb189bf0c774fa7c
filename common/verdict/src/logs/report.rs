//! What launchers write about ends, independent of which launcher it was.

use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};
use regex::{Captures, Regex, RegexSet};
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq)]
pub enum LauncherReport {
    /// A process failed.
    Process(ReportedEnd),
    /// Tasks of srun failed.
    Tasks {
        node: String,
        tasks: Vec<u32>,
        end: ProcessEnd,
    },
    /// The local rank of a rank on the host of this log.
    Rank { rank: u32, local_rank: u32 },
    /// torchrun begins.
    Begins,
    /// The rank of an actor.
    Actor { name: String, rank: u32 },
    /// What ended the whole job, as a sentence without its full stop.
    Job { text: String, is_request: bool },
    /// The kernel killed a process, because memory ran out.
    OutOfMemory,
    /// The launcher ends a process because another one failed; it may report that later.
    Closing,
    /// The launcher ends the other processes. Later failures are consequences.
    Shutdown,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedEnd {
    pub writer: Writer,
    pub host: Option<String>,
    pub end: ProcessEnd,
    /// Whether the launcher says that it was the first.
    pub is_first: bool,
    /// When the launcher saw it, as text that can be compared.
    pub time: Option<String>,
    /// The launcher's line.
    pub line: String,
    /// Whether the launcher ends processes in this way too, after another one has failed.
    pub may_follow: bool,
    /// Whether the rank is that of a task of srun, which may itself be a launcher.
    pub is_task: bool,
}

impl LauncherReport {
    pub fn ended(writer: Writer, end: ProcessEnd) -> LauncherReport {
        LauncherReport::Process(ReportedEnd {
            writer,
            end,
            ..ReportedEnd::default()
        })
    }

    pub fn job(text: impl Into<String>) -> LauncherReport {
        LauncherReport::Job {
            text: text.into(),
            is_request: false,
        }
    }
}

/// An exit status as Python and torchrun write it, negative for a signal, or as shells do, greater
/// than 128.
pub fn end_of(code: i32) -> ProcessEnd {
    match code {
        ..0 => ProcessEnd::killed(SignalNumber(-code)),
        129..=160 => ProcessEnd::killed(SignalNumber(code - 128)),
        _ => ProcessEnd::exited(u8::try_from(code).unwrap_or(1)),
    }
}

/// An end in the C library's words, which shells and launchers write: `Killed`, `Segmentation fault
/// (core dumped)`.
pub fn end_in_words(words: &str) -> Option<ProcessEnd> {
    let signals = [
        ("Killed", 9),
        ("Terminated", 15),
        ("Segmentation fault", 11),
        ("Bus error", 7),
        ("Aborted", 6),
        ("Illegal instruction", 4),
        ("Floating point exception", 8),
        ("Hangup", 1),
    ];
    let words = words.trim().trim_end_matches("(core dumped)").trim_end();
    let (_, number) = signals.into_iter().find(|(name, _)| *name == words)?;
    Some(ProcessEnd::killed(SignalNumber(number)))
}

/// A regular expression for a line of a launcher, and what such a line reports.
pub type Form = (&'static str, MakeReport);
type MakeReport = fn(&mut Stated, &Captures<'_>) -> Option<LauncherReport>;

/// What lines stated whose meaning a later line completes.
#[derive(Default)]
pub struct Stated {
    /// In torchrun's table.
    pub table: ReportedEnd,
    /// On a host of launch.py of DGL.
    pub have_trainers_failed: bool,
    pub mpi: ReportedEnd,
    /// A message of mpirun, up to where it was wrapped.
    pub wrapped: String,
    /// What the ssh of mpirun wrote last.
    pub ssh: String,
    /// Of Ray's actor.
    pub class: String,
    pub pid: String,
}

pub struct Forms {
    all: RegexSet,
    reports: Vec<(Regex, MakeReport)>,
}

impl Forms {
    pub fn new(lists: &[&[Form]]) -> Result<Forms, regex::Error> {
        let forms = lists.concat();
        Ok(Forms {
            all: RegexSet::new(forms.iter().map(|(pattern, _)| pattern))?,
            reports: forms
                .into_iter()
                .map(|(pattern, report)| Ok((Regex::new(pattern)?, report)))
                .collect::<Result<_, regex::Error>>()?,
        })
    }

    pub fn read(&self, stated: &mut Stated, line: &str) -> Vec<LauncherReport> {
        let found = self.all.matches(line).into_iter();
        found
            .filter_map(|index| {
                let (regex, report) = &self.reports[index];
                report(stated, &regex.captures(line)?)
            })
            .collect()
    }
}

/// The number in a group of a regular expression.
pub fn number<T: FromStr>(words: &Captures<'_>, group: usize) -> Option<T> {
    words.get(group)?.as_str().parse().ok()
}

#[cfg(test)]
pub fn read_all(lists: &[&[Form]], text: &str) -> Vec<LauncherReport> {
    let (forms, mut stated) = (Forms::new(lists).unwrap(), Stated::default());
    let lines = text.lines();
    lines
        .flat_map(|line| {
            let joined = super::mpi::joined(&mut stated, line);
            forms.read(&mut stated, joined.as_deref().unwrap_or(line))
        })
        .collect()
}
