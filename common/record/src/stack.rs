//! Where processes stand: what dgl-stacks reads.

use serde::{Deserialize, Serialize};

/// The Python stacks of a process of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// The job's name.
    pub job: String,
    /// The host.
    pub host: u32,
    /// The process record's id, where that record came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// server, trainer, worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its number among those of its role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Its process id there.
    pub pid: u32,
    /// The process of the same role and rank that started it: a sampler's trainer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Its command, cut at 200 characters.
    pub command: String,
    /// Its Python threads.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Since 1970.
    pub time_ms: u64,
}

/// A Python thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// As Python names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its number in the kernel; Pythons before 3.11 do not tell it of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Whether it computed at that moment.
    pub active: bool,
    /// `function (file.py:123)`, innermost first.
    pub frames: Vec<String>,
}
