//! Whether a job makes progress.

use crate::{Process, Role};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The job shows no activity, or computes without progress.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stalled {
    /// When the last activity was, in milliseconds since 1970.
    pub since_ms: u64,
    /// Seconds since the last activity.
    pub silent_s: f64,
    /// Whether processes compute, although each has stayed at the same lines all this time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub computing: bool,
    /// Why the job seems to stall, in one sentence.
    pub reason: String,
    /// The process for which the others wait, if known.
    pub culprit: Option<Culprit>,
    /// When the stall was noticed, in milliseconds since 1970.
    pub time_ms: u64,
}

/// A job that stalled shows activity again.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Resumed {
    /// When the last activity before the stall was, in milliseconds since 1970.
    pub since_ms: u64,
    /// When the next activity was noticed, in milliseconds since 1970.
    pub time_ms: u64,
    /// The process that showed it, if known.
    pub process: Option<Culprit>,
    /// The kind of activity, if known.
    pub sign: Option<Sign>,
}

/// Activity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// It was started.
    Started,
    /// It listens.
    Listening,
    /// It wrote to stdout or stderr.
    Output,
    /// It used CPU time.
    Processor,
    /// It read or wrote files.
    Files,
    /// It used the network.
    Network,
    /// It ended.
    Ended,
}

impl Sign {
    /// Follows the process's name.
    pub fn words(self) -> &'static str {
        match self {
            Sign::Started => "was started",
            Sign::Listening => "listens",
            Sign::Output => "wrote something",
            Sign::Processor => "computes",
            Sign::Files => "reads or writes files",
            Sign::Network => "moves data over the network",
            Sign::Ended => "ended",
        }
    }
}

/// The process for which the others wait.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Culprit {
    /// The `id` of the host.
    pub host: u32,
    /// The `id` of the process record.
    pub id: Option<u32>,
    /// The role of the process in its job.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
}

impl Culprit {
    pub fn of(process: &Process) -> Culprit {
        Culprit {
            host: process.host,
            id: Some(process.id),
            role: Some(process.role),
            rank: Some(process.rank),
        }
    }

    pub fn of_host(host: u32) -> Culprit {
        Culprit {
            host,
            ..Culprit::default()
        }
    }
}
