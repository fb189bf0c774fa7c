//! Messages about where the threads of a job's processes stand.

use crate::reap::Pick;
use record::Role;
pub use record::Thread;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

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
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The job's name.
    pub job: String,
    /// The process id.
    pub pid: u32,
    /// The process of the same job, role and rank that started this one, such as the trainer of a
    /// sampler.
    pub parent: Option<u32>,
    /// The role of the process in its job, if it is known.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
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

/// A host reads at most this many threads of a process, and at most this many frames of each. More
/// are useless to people; together the limits stay below the size of a message, whatever JSON makes
/// of them.
pub const MAX_THREADS: usize = 64;
/// See [`MAX_THREADS`].
pub const MAX_FRAMES: usize = 40;
/// The name of a thread or a frame has at most this many bytes, and a mark where it was cut.
pub const MAX_TEXT: usize = 160;
/// How many functions below Python a host reads of a thread.
pub const MAX_NATIVE_FRAMES: usize = 16;
/// The name of such a function has at most this many bytes.
pub const MAX_NATIVE_TEXT: usize = 256;

impl Stack {
    /// The record of this stack, for a process of this host; `id` is that of its process record.
    /// It has no more than an agent of ours reads: a host might send as much as a line holds.
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
            threads: bounded(self.reading.threads, MAX_THREADS, in_bounds),
            error: error.map(|error| cut(&error.problem, NAME_CHARS)),
            time_ms,
        }
    }
}

fn in_bounds(thread: Thread) -> Thread {
    let text = |text: String| cut(&text, MAX_TEXT + 1);
    let native = |text: String| cut(&text, MAX_NATIVE_TEXT);
    Thread {
        name: thread.name.map(text),
        tid: thread.tid,
        active: thread.active,
        frames: bounded(thread.frames, MAX_FRAMES, text),
        system_call: thread.system_call.map(native),
        native: bounded(thread.native, MAX_NATIVE_FRAMES, native),
    }
}

/// The first of these, in as little memory as they need.
fn bounded<T>(all: Vec<T>, most: usize, bound: impl Fn(T) -> T) -> Vec<T> {
    let mut bounded = Vec::with_capacity(all.len().min(most));
    bounded.extend(all.into_iter().take(most).map(bound));
    bounded
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// The stacks of a process, or why they could not be read.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The Python threads of the process.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Why there are no threads.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_no_more_than_an_agent_reads() {
        let long = "ä".repeat(1000);
        let thread = Thread {
            name: Some(long.clone()),
            frames: vec![long.clone(); 90],
            system_call: Some(long.clone()),
            native: vec![long; 90],
            ..Thread::default()
        };
        let told = Stack {
            reading: Reading {
                threads: vec![thread; 90],
                error: None,
            },
            ..Stack::default()
        };
        let record = told.record(0, None, 0);
        assert_eq!(record.threads.len(), MAX_THREADS);
        for thread in &record.threads {
            assert_eq!(
                (thread.frames.len(), thread.native.len()),
                (MAX_FRAMES, MAX_NATIVE_FRAMES)
            );
            let texts = thread.frames.iter().chain(&thread.name);
            let texts = texts.chain(&thread.native).chain(&thread.system_call);
            assert!(texts.into_iter().all(|text| text.chars().count() <= 256));
        }
    }
}
