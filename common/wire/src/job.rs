//! One host's part of a job, before anything is examined or started.

use crate::Text;
use record::Role;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::Ipv4Addr;

/// The identity of a job. It is sent first; its processes follow, one message each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The job's name: letters, digits, dots, dashes, underscores.
    pub name: String,
    /// The token of the job: 32 random hexadecimal digits that its processes carry in their
    /// environment as `DGL_TOOLS_TOKEN`.
    pub token: String,
    /// The number of this host.
    pub host: u32,
    /// The address that DGL uses for this host.
    pub address: Ipv4Addr,
    /// How many hosts have processes of the job.
    pub hosts: u32,
    /// The grace from TERM to KILL, in milliseconds.
    pub grace_ms: u64,
    /// The time without a message after which the launcher counts as lost, in milliseconds.
    pub host_timeout_ms: u64,
}

/// A process of the job on this host. The messages are sent in the order of `index`, from 0 on.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The number of the process on its host, by which events name it.
    pub index: u32,
    /// The role of the process in its job.
    pub role: Role,
    /// The number of the process among those of its role, on all hosts.
    pub rank: u32,
    /// The command of the process.
    pub command: Command,
    /// Shell text that runs before the command, in the user's `$SHELL`.
    pub setup: Option<String>,
    /// The working directory, relative to the home of the login.
    pub cwd: Option<Text>,
    /// The processors on which it may run, as `0-3,8`; absent for those of the login.
    pub cpus: Option<String>,
    /// Environment variables that are added to those of the login.
    #[serde(default)]
    pub env: Vec<(String, Text)>,
    /// The port that a graph server will listen on.
    pub port: Option<u16>,
    /// Whether it is of a program that serves the others.
    #[serde(default)]
    pub service: bool,
}

/// The variable with the name of a program, in the environment of its processes.
pub const PROGRAM: &str = "DGL_TOOLS_PROGRAM";

/// The command of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Words that are executed without a shell; at least one.
    Words(Vec<Text>),
    /// Shell text, run by the user's `$SHELL`.
    Shell(String),
}

/// Names a detached job, or persistent graph servers, on one of its hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOnHost {
    pub name: String,
    /// The address of the host, because hosts may share their homes.
    pub address: Ipv4Addr,
}
