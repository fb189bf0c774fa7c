//! What dgl-reap finds and ends.

use crate::Role;
use serde::{Deserialize, Serialize};

/// A process of a job, found on a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The `id` of the host.
    pub host: u32,
    /// The job's name.
    pub job: String,
    /// The process id on that host.
    pub pid: u32,
    /// What it does in the job, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How long the process has run, in seconds.
    pub age_s: u64,
    /// Processor time that it has taken.
    #[serde(default)]
    pub cpu_s: f64,
    /// For how long it has written nothing; of processes that dgl-spawn has started itself, not of
    /// what these have started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_s: Option<f64>,
    /// The resident memory of the process.
    pub rss_bytes: u64,
    /// What of that is shared memory, which the processes of a job map together.
    #[serde(default)]
    pub shm_bytes: u64,
    /// Ports on which it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Of graph servers that stay, on the first host: how many groups of trainers have used them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Its command, cut at 200 characters.
    pub command: String,
}

/// A job was ended on a host, or signalled, or shared memory that nobody uses was removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reaped {
    /// The `id` of the host.
    pub host: u32,
    /// The job's name; empty for shared memory of which nobody knows the job.
    pub job: String,
    /// The signal that was sent, in place of ending the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Whether nothing of the job is left on the host.
    pub ok: bool,
    /// Processes that were ended or signalled.
    pub processes: u32,
    /// Files removed from /dev/shm.
    pub shm_files: u32,
    /// Folders removed of jobs that were left and have ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub folders: u32,
    /// What could not be ended or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
