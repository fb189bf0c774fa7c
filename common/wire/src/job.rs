//! One host's part of a job, before anything is examined or started.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// A job on one of its hosts. It is sent first; the records of its processes there follow, in the
/// order of their numbers on this host. Both are sent once, for the checks and for the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The job's name: letters, digits, dots, dashes, underscores.
    pub name: String,
    /// The token of the job: 32 random hexadecimal digits that its processes carry in their
    /// environment as `DGL_TOOLS_TOKEN`.
    pub token: String,
    pub host: u32,
    /// The address that DGL uses for this host.
    pub address: Ipv4Addr,
    /// How many hosts have processes of the job.
    pub hosts: u32,
    pub grace_ms: u64,
    /// The time without a message after which the launcher counts as lost, in milliseconds.
    pub host_timeout_ms: u64,
    /// Whether the job gets a private /dev/shm, in a mount namespace.
    #[serde(default)]
    pub private_shm: bool,
}

/// The variable with the name of a program, in the environment of its processes.
pub const PROGRAM: &str = "DGL_TOOLS_PROGRAM";
