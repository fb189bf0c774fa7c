//! The Python stacks of processes, as dgl-stacks reads them.

use crate::Role;
use crate::stacks::{self, Comparison, Member};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The Python stacks of one process of a job.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// The job's name.
    pub job: String,
    /// The `id` of the host.
    pub host: u32,
    /// The `id` of the process record, if that record came in.
    pub id: Option<u32>,
    /// The role of the process in its job.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
    /// The process id on that host.
    pub pid: u32,
    /// The process of the same role and rank that started this one, such as the trainer of a
    /// sampler.
    pub parent: Option<u32>,
    /// The command of the process, cut at 200 characters.
    pub command: String,
    /// The Python threads of the process.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Why there are no threads.
    pub error: Option<String>,
    /// When the stacks were read, in milliseconds since 1970.
    pub time_ms: u64,
}

impl Stack {
    /// Where the main thread of the process stands; the oldest thread comes first, where Python has
    /// no names for them.
    pub fn main_frames(&self) -> Option<&[String]> {
        let mut threads = self.threads.iter();
        let main = threads.find(|one| one.name.as_deref() == Some("MainThread"));
        Some(&main.or(self.threads.first())?.frames)
    }

    /// The process by its role and rank; `None` for a child such as a sampler, and where the role
    /// and rank are not known.
    pub fn member(&self) -> Option<Member> {
        let is_child = self.parent.is_some() || stacks::child(self.main_frames()?).is_some();
        (!is_child).then_some((self.role?, self.rank?))
    }

    /// Compares where the main threads of processes are, without their children.
    pub fn compare<'a>(stacks: impl IntoIterator<Item = &'a Stack>) -> Comparison {
        let frames = |stack: &Stack| Some((stack.member()?, stack.main_frames()?.to_vec()));
        Comparison::of(stacks.into_iter().filter_map(frames))
    }
}

/// A thread of Python, and where it stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The name that Python gives the thread.
    pub name: Option<String>,
    /// The thread id in the kernel; Pythons before 3.11 do not tell it for every thread.
    pub tid: Option<u32>,
    /// Whether the thread computed at that moment.
    pub active: bool,
    /// The frames as `function (file.py:123)`, the innermost first.
    pub frames: Vec<String>,
    /// The system call in which the kernel holds it, where that was asked for.
    pub system_call: Option<String>,
    /// What the innermost frame has called in C and C++, where that was asked for: `function
    /// (file)`, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub native: Vec<String>,
}
