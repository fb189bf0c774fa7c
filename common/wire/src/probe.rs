//! What a host is and has.

use crate::{Failure, Text};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Where graph servers may get ports that nobody has named: from DGL's own default up to the ports
/// that Linux gives to outgoing connections unless it is told otherwise.
pub const SERVER_PORTS: RangeInclusive<u16> = 30050..=32767;

/// The question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The folder whose room and file system count; of one that is not there yet, the nearest that
    /// is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Ports that are no choice for torch's rendezvous, because graph servers will listen there:
    /// the first and the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_ports: Option<(u16, u16)>,
    /// Which Python is looked at.
    pub python: Python,
    /// Shell text that comes before it, run by the user's `$SHELL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Whether to tell who and what is there already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub occupancy: bool,
}

/// How a Python is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Python {
    /// A word of a command: a name in PATH or a path.
    Command(String),
    /// The conda environment of that name, or in that folder (`/…` or `~/…`).
    Conda(String),
    /// The venv in that folder (`/…` or `~/…`).
    Venv(String),
}

/// The answer. What could not be had is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probed {
    /// Each network card with its first address, as SIOCGIFADDR tells it to DGL.
    pub cards: Vec<Card>,
    /// Processors that a job may use, which may be fewer than there are.
    pub cpus: Option<u32>,
    /// The same by NUMA node and core: `[[[0,2],[1,3]]]` is one node of two cores with two
    /// hyper-threads each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numa_cores: Vec<Vec<Vec<u32>>>,
    /// Main memory.
    pub mem_bytes: Option<u64>,
    /// What a control group allows of it, where that is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_limit_bytes: Option<u64>,
    /// Room in /dev/shm.
    pub shm_free_bytes: Option<u64>,
    /// Room for this user where the workspace is or will be.
    pub free_bytes: Option<u64>,
    /// The kind of its file system: `ext4`, `nfs4`.
    pub workspace_fs: Option<String>,
    /// NVIDIA cards.
    pub gpus: u32,
    /// The hard limit on open files; absent where there is none.
    pub nofile: Option<u64>,
    /// A port from 29500 to 29599 on which nothing listens.
    pub master_port: Option<u16>,
    /// The user's home.
    pub home: Option<Text>,
    /// The environment that was asked for by [`Python::Conda`] or [`Python::Venv`].
    pub environment: Option<Environment>,
    /// What the interpreter says of itself; absent where it does not run.
    pub python: Option<Interpreter>,
    /// Why it does not run; the problem is the last line that was said, and may be empty.
    pub python_failure: Option<Failure>,
    /// Why there is no such environment; no Python was asked then.
    pub environment_failure: Option<EnvironmentFailure>,
    /// Who and what is there already, where that was asked.
    pub occupancy: Option<Occupancy>,
}

/// What is taken on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// The names of jobs: those of all users that hold a claim, and those of which this user has
    /// processes, though their launcher may be gone.
    pub jobs: Vec<String>,
    /// Those of [`SERVER_PORTS`] and of [`Probe::server_ports`] that a socket uses or a job has
    /// claimed, in order.
    pub ports: Vec<u16>,
}

/// A network card and its first address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Its name, such as `eth0`.
    pub name: String,
    /// IPv4.
    pub address: std::net::Ipv4Addr,
}

/// A venv or a conda environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Its folder.
    pub prefix: String,
    /// Its Python.
    pub interpreter: String,
    /// What conda calls it, where it is conda's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conda_env: Option<String>,
    /// PATH without it.
    pub path: String,
}

/// A Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interpreter {
    /// Its version.
    pub version: Option<String>,
    /// Its own path.
    pub executable: Option<String>,
    /// The version of dgl that it would import; `unknown` where it has one that does not tell.
    pub dgl: Option<String>,
    /// The same of torch.
    pub torch: Option<String>,
}

/// Why there is no such environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentFailure {
    /// There is no folder of that path, with the home written out.
    NoSuchFolder {
        /// The path.
        prefix: String,
    },
    /// A venv was asked for, and there is a conda environment.
    IsConda {
        /// Its path.
        prefix: String,
    },
    /// A conda environment was asked for, and the folder has no `conda-meta`.
    NotConda {
        /// Its path.
        prefix: String,
    },
    /// Conda has no environment of that name.
    NoSuchName {
        /// The folders that were looked through.
        looked_in: Vec<String>,
    },
    /// It has no Python.
    NoInterpreter {
        /// Its path.
        prefix: String,
    },
}
