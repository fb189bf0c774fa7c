//! What dgl-reap finds and ends on hosts.

use crate::Role;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A process of a job, found on a host.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Found {
    /// The `id` of the host.
    pub host: u32,
    /// The job's name.
    pub job: String,
    /// The process id on that host.
    pub pid: u32,
    /// The role of the process in its job, if it is known.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
    /// How long the process has run, in seconds.
    pub age_s: u64,
    /// Processor time that the process has used, in seconds.
    #[serde(default)]
    pub cpu_s: f64,
    /// Seconds since the process wrote its last output; only for processes that dgl-spawn itself
    /// started, not for their children.
    pub silent_s: Option<f64>,
    /// The resident memory of the process in bytes.
    pub rss_bytes: u64,
    /// Bytes of the resident memory that are shared with other processes of the job.
    #[serde(default)]
    pub shm_bytes: u64,
    /// The ports on which the process listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// How many groups of trainers have used these graph servers; only for persistent servers, on
    /// the first host.
    pub groups: Option<u32>,
    /// The command of the process, cut at 200 characters.
    pub command: String,
}

/// A job was ended or signalled on a host, or unused shared memory was removed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reaped {
    /// The `id` of the host.
    pub host: u32,
    /// The job's name; empty for shared memory of an unknown job.
    pub job: String,
    /// The signal that was sent, in place of ending the job.
    pub signal: Option<String>,
    /// Whether nothing of the job is left on the host.
    pub ok: bool,
    /// How many processes were ended or signalled.
    pub processes: u32,
    /// How many files were removed from /dev/shm.
    pub shm_files: u32,
    /// What could not be ended or removed.
    pub error: Option<String>,
}
