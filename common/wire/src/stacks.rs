//! Messages about where the threads of a job's processes stand.

use crate::reap::Pick;
use record::{Process, Thread};
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

/// The Python stacks of one process of a job. In the record, only the tool knows `host`, `id` and
/// `time_ms`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    #[serde(flatten)]
    pub record: record::Stack,
    /// Why there are no threads.
    pub why: Option<Why>,
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
    /// The record of this stack, for a process of this host; `processes` provides the id of the
    /// process record, if there is one. It has no more than an agent of ours reads: a host might
    /// send as much as a line holds.
    pub fn into_record(self, host: u32, processes: &[Process], time_ms: u64) -> record::Stack {
        let stack = self.record;
        let is_its = |process: &&Process| {
            process.host == host
                && Some(process.role) == stack.role
                && Some(process.rank) == stack.rank
        };
        record::Stack {
            job: cut(&stack.job, NAME_CHARS),
            host,
            id: processes.iter().find(is_its).map(|process| process.id),
            command: cut(&stack.command, COMMAND_CHARS),
            threads: bounded(stack.threads, MAX_THREADS, in_bounds),
            error: stack.error.map(|error| cut(&error, NAME_CHARS)),
            time_ms,
            ..stack
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
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Why there are no threads, in words.
    pub error: Option<String>,
    pub why: Option<Why>,
}

impl Reading {
    /// The stacks could not be read, for this reason.
    pub fn unreadable(why: Why, error: String) -> Reading {
        Reading {
            threads: Vec::new(),
            error: Some(error),
            why: Some(why),
        }
    }
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
        let mut stack = Stack::default();
        stack.record.threads = vec![thread; 90];
        let record = stack.into_record(0, &[], 0);
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
