//! What launchers write about ends, independent of which launcher it was.

use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};

#[derive(Clone, Debug, PartialEq)]
pub enum LauncherReport {
    /// A process failed.
    Process(ReportedEnd),
    /// The local rank of a rank on the host of this log.
    Rank { rank: u32, local_rank: u32 },
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

/// An exit status as Python and torchrun write it: negative for a signal.
pub fn end_of(code: i32) -> ProcessEnd {
    match code {
        ..0 => ProcessEnd::killed(SignalNumber(-code)),
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

/// The number that `text` begins with.
pub fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-');
    text[..end.unwrap_or(text.len())].parse().ok()
}

pub fn number_after<T: std::str::FromStr>(text: &str, words: &str) -> Option<T> {
    number(text.split_once(words)?.1)
}
