//! Messages that find, signal and end the jobs on a host, and remove their remains. The answers are
//! records; only the tool knows their `host`.

use record::Role;
use record::exit::SignalNumber;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Selects processes of a job. The agent holds those that will be signalled, so that the signal
/// reaches all hosts at the same time.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pick {
    /// Absent for all jobs of this user.
    pub job: Option<String>,
    pub role: Option<Role>,
    /// Selects only the process of this rank, with its children.
    pub rank: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub signal: SignalNumber,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndJobs {
    /// Absent for all jobs of this user.
    pub job: Option<String>,
    pub grace_ms: u64,
}
