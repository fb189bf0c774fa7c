//! What is found out about a run.

use record::{Culprit, Record, jsonl};

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ended with status 0.
    EndedWell,
    /// A process or a host failed, or a time limit was over.
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
    /// In front of the finding that explains it.
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
    /// A sentence without its full stop.
    pub text: String,
    /// Since when it is so, since 1970.
    pub since_ms: Option<u64>,
    /// On whose account.
    pub culprit: Option<Culprit>,
    /// The records that show it, as lines of the stream.
    pub evidence: Vec<String>,
    /// What can be done.
    pub fix: Option<&'static str>,
}

/// The most characters of a record that are shown.
const SHOWN: usize = 240;

impl Finding {
    /// That something is so.
    pub fn new(text: impl Into<String>) -> Finding {
        Finding {
            text: text.into(),
            ..Finding::default()
        }
    }

    /// A record that shows it.
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

    /// Records that show it.
    pub fn shown_by_all<'a, T: Record + 'a>(
        self,
        records: impl IntoIterator<Item = &'a T>,
    ) -> Finding {
        records.into_iter().fold(self, Finding::shown_by)
    }

    /// Whose doing it is.
    pub fn on_account_of(mut self, culprit: Culprit) -> Finding {
        self.culprit = Some(culprit);
        self
    }

    /// When it began.
    pub fn since(mut self, time_ms: u64) -> Finding {
        self.since_ms = Some(time_ms);
        self
    }

    /// What can be done about it.
    pub fn fix(mut self, fix: &'static str) -> Finding {
        self.fix = Some(fix);
        self
    }
}

/// What ended a job or what it waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// How it stands.
    pub outcome: Outcome,
    /// Why.
    pub cause: Finding,
    /// What else is unusual.
    pub others: Vec<Finding>,
    /// When the first process was started, since 1970.
    pub began_ms: Option<u64>,
}
