//! One host's part of a job: what it is, before anything is looked at or started.

use crate::Text;
use ::job::Role;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// What makes a job one. It comes first; its processes follow, one message each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name: letters, digits, dots, dashes, underscores.
    pub name: String,
    /// What its processes carry in their environment as `DGL_TOOLS_TOKEN`: 32 hexadecimal digits,
    /// random.
    pub token: String,
    /// The number of this host.
    pub host: u32,
    /// Its address, under which DGL knows it.
    pub address: Ipv4Addr,
    /// Hosts that have processes of the job.
    pub hosts: u32,
    /// From TERM to KILL, in milliseconds.
    pub grace_ms: u64,
    /// A launcher that was not heard of for this long is gone, in milliseconds.
    pub host_timeout_ms: u64,
}

/// A process of the job on this host. The messages come in the order of `index`, from 0 on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number among those of this host, by which events name it.
    pub index: u32,
    /// What it does in the job.
    pub role: Role,
    /// The number of the process among those of its role, on all hosts.
    pub rank: u32,
    /// What it runs.
    pub command: Command,
    /// Shell text that comes before it, run by the user's `$SHELL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Where it is started; relative to the home of the login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// The processors that it may run on, as `0-3,8`; without them, on those of the login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Environment that is added to the login's.
    #[serde(default)]
    pub env: Vec<(String, Text)>,
    /// The port that a graph server will listen on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// What a process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Words, exec'd; at least one.
    Words(Vec<Text>),
    /// Shell text, run by the user's `$SHELL`.
    Shell(String),
}
