//! Messages about jobs that are on a host, whoever started them: finding, signalling and ending
//! them, and removing what they leave. The answers are records, in which only the tool knows which
//! `host` they are about.

use record::Role;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::Ipv4Addr;

/// Which processes of a job are meant. Those that will get a signal or be ended are held until that
/// comes, so that it reaches all hosts at once.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pick {
    /// The job's name; absent for all jobs of this user.
    pub job: Option<String>,
    /// Only processes of this role.
    pub role: Option<Role>,
    /// Only the process of this rank, with what it started.
    pub rank: Option<u32>,
}

/// A signal for the processes that were picked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// The number of the signal.
    pub signal: i32,
}

/// The jobs that are to be ended.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The name of the jobs; absent for all jobs of this user.
    pub job: Option<String>,
    /// The grace from TERM to KILL, in milliseconds.
    pub grace_ms: u64,
}

/// Asks to remove the folders of left jobs that have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forget {
    /// The address of the host, by which it knows its own folders in a home that hosts share.
    pub address: Ipv4Addr,
}
