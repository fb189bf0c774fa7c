//! The verdict on a run, and the findings of which it consists.

use record::stacks::Comparison;
use record::{Culprit, Record, jsonl};

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ended with status 0.
    EndedWell,
    /// A process or a host failed, or a time limit ran out.
    Failed,
    /// Somebody ended it.
    Interrupted,
    /// Nothing was started.
    NotStarted,
    /// Its records break off before its end, and it waits for something.
    Waits,
    /// Its records break off before its end, and nothing is unusual.
    Runs,
}

impl Outcome {
    /// The outcome in words, to be put before the finding that explains it.
    pub fn words(self) -> &'static str {
        match self {
            Outcome::EndedWell => "ended well",
            Outcome::Failed => "failed",
            Outcome::Interrupted => "was ended",
            Outcome::NotStarted => "was not started",
            Outcome::Waits => "waits",
            Outcome::Runs => "runs",
        }
    }
}

/// Something that the records show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finding {
    /// The finding as a sentence without its full stop.
    pub text: String,
    /// Since when it is so, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// The process or host that causes it.
    pub culprit: Option<Culprit>,
    /// The records that show it, as lines of the stream.
    pub evidence: Vec<String>,
    /// The cure, if there is one.
    pub fix: Option<&'static str>,
}

/// How many characters of a record are shown.
const SHOWN: usize = 240;

impl Finding {
    /// Creates a finding without evidence.
    pub fn new(text: impl Into<String>) -> Finding {
        Finding {
            text: text.into(),
            ..Finding::default()
        }
    }

    /// Adds a record that shows it.
    pub fn shown_by<T: Record>(mut self, record: &T) -> Finding {
        let line = String::from_utf8_lossy(&jsonl::line(record))
            .trim_end()
            .to_owned();
        let cut = match line.char_indices().nth(SHOWN) {
            Some((at, _)) => format!("{}…", &line[..at]),
            None => line,
        };
        if !self.evidence.contains(&cut) {
            self.evidence.push(cut);
        }
        self
    }

    /// Adds records that show it.
    pub fn shown_by_all<'a, T: Record + 'a>(
        self,
        records: impl IntoIterator<Item = &'a T>,
    ) -> Finding {
        records.into_iter().fold(self, Finding::shown_by)
    }

    /// Names the process or host that causes it.
    pub fn on_account_of(mut self, culprit: Culprit) -> Finding {
        self.culprit = Some(culprit);
        self
    }

    /// Adds when it began, in milliseconds since 1970.
    pub fn since(mut self, time_ms: u64) -> Finding {
        self.since_ms = Some(time_ms);
        self
    }

    /// Adds the cure.
    pub fn fix(mut self, fix: &'static str) -> Finding {
        self.fix = Some(fix);
        self
    }
}

/// The verdict: what ended a job, or what it waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The state of the run.
    pub outcome: Outcome,
    /// Why the run is in this state.
    pub cause: Finding,
    /// What else is unusual.
    pub others: Vec<Finding>,
    /// When the first process was started, in milliseconds since 1970.
    pub began_ms: Option<u64>,
    /// Where the trainers and workers stood when nothing moved any longer, as far as is known.
    pub comparison: Comparison,
}
