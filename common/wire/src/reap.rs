//! Messages about jobs that are on a host, whoever started them: finding, signalling and ending
//! them, and removing what they leave.

use ::job::Role;
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

/// A process of a job.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The job's name.
    pub job: String,
    /// The process id.
    pub pid: u32,
    /// The role of the process in its job, if it is known.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
    /// How long the process has run, in seconds.
    pub age_s: u64,
    /// Processor time that the process has used, in milliseconds.
    pub cpu_ms: u64,
    /// Milliseconds since the process wrote its last output; only for processes that dgl-spawn
    /// itself started.
    pub silent_ms: Option<u64>,
    /// The resident memory of the process in bytes.
    pub rss_bytes: u64,
    /// Bytes of the resident memory that are shared memory.
    pub shm_bytes: u64,
    /// The ports on which the process listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// How many groups of trainers have used the servers of this job; only for graph servers that
    /// stay, on the first host.
    pub groups: Option<u32>,
    /// The beginning of its command line.
    pub command: String,
}

/// A number of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How many processes there are.
    pub processes: u32,
}

/// A job that was ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaped {
    /// The name of the job.
    pub job: String,
    /// How many processes the job had.
    pub processes: u32,
    /// How many of the job's files were removed from /dev/shm.
    pub shm_files: u32,
    /// The process ids of those that could not be ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<u32>,
}

/// Shared memory that was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedShm {
    /// How many files were removed.
    pub files: u32,
}

/// The folder of a job that was left and has ended.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// The job's name.
    pub job: String,
    /// Why it could not be removed, in the words of the operating system.
    pub error: Option<String>,
}
