//! One host's part of a job, before anything is examined or started.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// A job on one of its hosts. It is sent first and once, for the checks and for the start; the
/// records of its processes there follow, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Letters, digits, dots, dashes, underscores.
    pub name: String,
    /// 32 random hexadecimal digits that its processes have in their environment as
    /// `DGL_TOOLS_TOKEN`.
    pub token: String,
    pub host: u32,
    /// The one that DGL uses for this host.
    pub address: Ipv4Addr,
    /// How many hosts have processes of the job.
    pub hosts: u32,
    pub grace_ms: u64,
    /// The launcher counts as lost after this time without a message, in milliseconds.
    pub host_timeout_ms: u64,
    /// Whether the job gets a private /dev/shm, in a mount namespace.
    #[serde(default)]
    pub private_shm: bool,
}

/// The environment variable with the job's name. Supervisors and watchers lack it.
pub const JOB: &str = "DGL_TOOLS_JOB";
/// The environment variable with the name of a process's program.
pub const PROGRAM: &str = "DGL_TOOLS_PROGRAM";
