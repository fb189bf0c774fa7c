//! Where the threads of a job's processes stand.

use ::job::Role;
pub use record::Thread;
use serde::{Deserialize, Serialize};

/// The Python stacks of one process of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The job's name.
    pub job: String,
    /// The process.
    pub pid: u32,
    /// The process of the same job, role and rank that started it, where one did: a sampler's
    /// trainer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Its role, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its number among those of its role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The words of its command; the beginning of a long one.
    pub command: String,
    /// What was read of it.
    #[serde(flatten)]
    pub reading: Reading,
}

/// A command is shown up to here.
const COMMAND_CHARS: usize = 200;
/// A job's name comes from an environment, and could be as long as that; so could a reason.
const NAME_CHARS: usize = 255;

impl Stack {
    /// As a record, of a process of that host; `id` is that of its process record.
    pub fn record(self, host: u32, id: Option<u32>, time_ms: u64) -> record::Stack {
        let error = self.reading.error;
        record::Stack {
            job: cut(&self.job, NAME_CHARS),
            host,
            id,
            role: self.role.map(|role| role.name().to_owned()),
            rank: self.rank,
            pid: self.pid,
            parent: self.parent,
            command: cut(&self.command, COMMAND_CHARS),
            threads: self.reading.threads,
            error: error.map(|error| cut(&error.problem, NAME_CHARS)),
            time_ms,
        }
    }
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// What was read of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Its Python threads.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Unreadable>,
}

/// Why the stacks of a process could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Which of the known reasons.
    pub why: Why,
    /// In words.
    pub problem: String,
}

/// A reason not to read a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The kernel does not let us read its memory.
    Denied,
    /// No Python runs in it.
    NoPython,
    /// It has ended.
    Ended,
    /// Anything else.
    Other,
}
