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
