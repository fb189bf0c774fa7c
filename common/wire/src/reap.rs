//! Jobs that are on a host, whoever started them: finding, signalling and ending them, and what
//! they leave.

use ::job::Role;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Which processes of a job are meant. Those that will get a signal are held until it comes, so
/// that it reaches all hosts at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pick {
    /// The job's name.
    pub job: String,
    /// Of this role only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// This one of them only, with what it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// The signal for those that were picked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Its number.
    pub signal: i32,
}

/// What is to be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Jobs of this name; absent for all jobs of this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// From TERM to KILL, in milliseconds.
    pub grace_ms: u64,
}

/// Whose folders of jobs that were left are to be removed, where the job has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forget {
    /// The host's address, by which it knows its own folders in a home that hosts share.
    pub address: Ipv4Addr,
}

/// A process of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The job's name.
    pub job: String,
    /// The process.
    pub pid: u32,
    /// What it does in the job, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Since it began, in seconds.
    pub age_s: u64,
    /// Processor time that it has taken, in milliseconds.
    pub cpu_ms: u64,
    /// For how long it has written nothing, in milliseconds; of processes that dgl-spawn has
    /// started itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// Memory that it holds.
    pub rss_bytes: u64,
    /// What of that is shared memory.
    pub shm_bytes: u64,
    /// Ports on which it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Of a graph server that stays, on its job's first host: how many groups of trainers have used
    /// the job's servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// The words of its command; the beginning of a long one.
    pub command: String,
}

/// How many processes.
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
    /// Processes that it had.
    pub processes: u32,
    /// Files of theirs that were removed from /dev/shm.
    pub shm_files: u32,
    /// Processes that could not be ended.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// The job's name.
    pub job: String,
    /// Why it could not be removed, in the words of the operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
