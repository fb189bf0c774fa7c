//! Messages about where the threads of a job's processes stand.

use crate::reap::Pick;
use ::job::Role;
pub use record::Thread;
use serde::{Deserialize, Serialize};

/// The problem of a process that is not a Python, such as a shell before one.
pub const NO_PYTHON: &str = "no Python runs in it";

/// Whose stacks are wanted, and how much of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// These processes.
    #[serde(flatten)]
    pub pick: Pick,
    /// What Python has called is wanted too.
    #[serde(default)]
    pub native: bool,
}

/// The Python stacks of one process of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The job's name.
    pub job: String,
    /// The process id.
    pub pid: u32,
    /// The process of the same job, role and rank that started this one, such as the trainer of a
    /// sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// The role of the process in its job, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The beginning of its command line.
    pub command: String,
    /// The stacks of the process, or why they could not be read.
    #[serde(flatten)]
    pub reading: Reading,
}

/// How many characters of a command are shown.
const COMMAND_CHARS: usize = 200;
/// How many characters are taken of a job's name or a reason, either of which could be as long as
/// an environment.
const NAME_CHARS: usize = 255;

impl Stack {
    /// The record of this stack, for a process of this host; `id` is that of its process record.
    pub fn record(self, host: u32, id: Option<u32>, time_ms: u64) -> record::Stack {
        let error = self.reading.error;
        record::Stack {
            job: cut(&self.job, NAME_CHARS),
            host,
            id,
            role: self.role,
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

/// The stacks of a process, or why they could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The Python threads of the process.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Why there are no threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Unreadable>,
}

impl Reading {
    /// The stacks could not be read, for this reason.
    pub fn unreadable(why: Why, problem: String) -> Reading {
        Reading {
            threads: Vec::new(),
            error: Some(Unreadable { why, problem }),
        }
    }
}

/// Why the stacks of a process could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// The kind of the reason.
    pub why: Why,
    /// The reason in words.
    pub problem: String,
}

/// A reason not to read a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The kernel does not let us read its memory.
    Denied {
        /// Yama's kernel.yama.ptrace_scope there; 0 where it has no part in it.
        ptrace_scope: u8,
    },
    /// No Python runs in it.
    NoPython,
    /// It has ended.
    Ended,
    /// Another reason.
    Other,
}
