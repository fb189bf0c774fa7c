//! The verdict on a run, and its findings.

use crate::silence::Awaited;
use record::stacks::Comparison;
use record::{Culprit, Output, Record, jsonl};

/// Joins the cause and the failure that it led to in a finding's text.
pub const LED_TO: &str = "; that ended the connections of others, of which one failed first: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// It ended with status 0.
    Finished,
    /// It ended with status 0, although one of its programs failed.
    Hidden,
    /// A process or a host failed, or a time limit ran out.
    Failed,
    /// A user or a signal ended it.
    Interrupted,
    NotStarted,
    /// dgl-stacks was asked for a job that it did not find.
    NotFound,
    /// Its records break off, and it waits for something.
    Waits,
    /// dgl-spawn still writes its records, and nothing is unusual.
    Runs,
    /// Its logs do not show whether it failed, or its records break off and dgl-spawn may be gone.
    Unknown,
}

impl RunOutcome {
    /// Begins the sentence of the finding.
    pub fn words(self) -> &'static str {
        match self {
            RunOutcome::Finished => "finished",
            RunOutcome::Hidden => "ended with status 0, which hides a failure",
            RunOutcome::Failed => "failed",
            RunOutcome::Interrupted => "was stopped",
            RunOutcome::NotStarted => "was not started",
            RunOutcome::NotFound => "was not found",
            RunOutcome::Waits => "waits",
            RunOutcome::Runs => "runs",
            RunOutcome::Unknown => "may have ended",
        }
    }

    /// In the record, whose values stay as earlier versions wrote them.
    pub fn recorded(self) -> &'static str {
        match self {
            RunOutcome::Finished => "ended well",
            RunOutcome::Interrupted => "was ended",
            other => other.words(),
        }
    }

    pub fn is_fine(self) -> bool {
        matches!(self, RunOutcome::Finished | RunOutcome::Runs)
    }
}

/// A fact that the records show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFinding {
    /// A sentence without its full stop.
    pub text: String,
    /// In milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// The process or host that causes it.
    pub culprit: Option<Culprit>,
    /// Lines of the stream that show it.
    pub evidence: Vec<String>,
    pub fix: Option<String>,
    /// The paragraph of advice.txt with `fix`.
    pub advice: Option<&'static str>,
}

impl Conclusion {
    pub fn record(&self) -> record::Verdict {
        let cause = self.cause.clone();
        record::Verdict {
            outcome: self.outcome.recorded().to_owned(),
            cause: cause.text,
            culprit: cause.culprit,
            since_ms: cause.since_ms,
            evidence: cause.evidence,
            advice: cause.advice.map(str::to_owned),
            fix: cause.fix,
        }
    }
}

impl JobFinding {
    pub fn new(text: impl Into<String>) -> JobFinding {
        JobFinding {
            text: text.into(),
            ..JobFinding::default()
        }
    }

    pub fn shown_by<'a, T: Shown + 'a>(
        self,
        records: impl IntoIterator<Item = &'a T>,
    ) -> JobFinding {
        records
            .into_iter()
            .map(Shown::shown)
            .fold(self, JobFinding::with_evidence)
    }

    /// Adds a record in the form of [`evidence`].
    pub fn with_evidence(mut self, line: String) -> JobFinding {
        if !self.evidence.contains(&line) {
            self.evidence.push(line);
        }
        self
    }

    pub fn caused_by(mut self, culprit: Culprit) -> JobFinding {
        self.culprit = Some(culprit);
        self
    }

    pub fn since(mut self, time_ms: impl Into<Option<u64>>) -> JobFinding {
        self.since_ms = time_ms.into();
        self
    }

    /// Puts words before its text.
    pub fn after(mut self, words: &str) -> JobFinding {
        self.text.insert_str(0, words);
        self
    }

    /// Puts words behind its text.
    pub fn followed_by(mut self, words: &str) -> JobFinding {
        self.text.push_str(words);
        self
    }

    pub fn fix(mut self, fix: impl Into<String>) -> JobFinding {
        self.fix = Some(fix.into());
        self
    }
}

pub trait Shown {
    fn shown(&self) -> String;
}

impl<T: Record> Shown for T {
    fn shown(&self) -> String {
        evidence(self)
    }
}

/// A line that a process wrote.
pub struct Quote {
    pub output: Output,
    /// The log that has it, if it is no record.
    pub log: Option<String>,
}

impl Shown for Quote {
    fn shown(&self) -> String {
        match &self.log {
            Some(log) => format!("{log}: {}", self.output.line.trim()),
            None => evidence(&self.output),
        }
    }
}

/// Formats a record as one line of limited length.
pub fn evidence<T: Record>(record: &T) -> String {
    const MAX_CHARACTERS: usize = 240;
    let line = jsonl::line(record);
    let line = String::from_utf8_lossy(line.trim_ascii_end());
    match line.char_indices().nth(MAX_CHARACTERS) {
        Some((offset, _)) => format!("{}…", &line[..offset]),
        None => line.into_owned(),
    }
}

/// What ended a job, or what it waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    pub outcome: RunOutcome,
    pub cause: JobFinding,
    pub others: Vec<JobFinding>,
    /// The start of the first process, in milliseconds since 1970.
    pub began_ms: Option<u64>,
    /// Where the trainers and workers were during the stall or hang, as far as known.
    pub comparison: Comparison,
    /// Which processes waited for which at the last stall, by their connections.
    pub waits: Vec<Awaited>,
    /// Where the processes were that still ran when the job failed.
    pub at_failure: Comparison,
}
