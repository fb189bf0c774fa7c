//! Messages about what a host is and has.

use crate::{Failure, Text};
pub use record::{GpuCard, GpuUser};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::ops::RangeInclusive;

/// The ports that graph servers may get without being named: from DGL's default up to the first
/// port that Linux gives to outgoing connections by default.
pub const SERVER_PORTS: RangeInclusive<u16> = 30050..=32767;

/// The question about a host.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The folder whose free space and file system are reported; if it does not exist yet, the
    /// nearest parent that does.
    pub workspace: Option<String>,
    /// The first and last port that must not be chosen for torch's rendezvous, because graph
    /// servers will listen there.
    pub server_ports: Option<(u16, u16)>,
    /// The Python to examine.
    pub python: Python,
    /// Shell text that runs before the Python, in the user's `$SHELL`.
    pub setup: Option<String>,
    /// Whether to report the jobs and ports that are in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub occupancy: bool,
}

/// The way in which a Python is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Python {
    /// A word of a command: a name in PATH or a path.
    Command(String),
    /// The conda environment of this name, or in this folder (`/…` or `~/…`).
    Conda(String),
    /// The venv in this folder (`/…` or `~/…`).
    Venv(String),
}

/// The facts about a host. A fact that could not be found is absent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probed {
    /// Each network interface with its first address, as SIOCGIFADDR tells it to DGL.
    pub cards: Vec<Card>,
    /// The number of processors that a job may use, which may be fewer than there are.
    pub cpus: Option<u32>,
    /// These processors by NUMA node and core: `[[[0,2],[1,3]]]` is one node of two cores with two
    /// hyper-threads each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numa_cores: Vec<Vec<Vec<u32>>>,
    /// Main memory in bytes.
    pub mem_bytes: Option<u64>,
    /// The memory in bytes that a control group allows, if it is less than `mem_bytes`.
    pub mem_limit_bytes: Option<u64>,
    /// Free space in /dev/shm, in bytes.
    pub shm_free_bytes: Option<u64>,
    /// Free space for this user where the workspace is or will be, in bytes.
    pub free_bytes: Option<u64>,
    /// The type of the workspace's file system: `ext4`, `nfs4`.
    pub workspace_fs: Option<String>,
    /// The number of NVIDIA GPUs.
    pub gpus: u32,
    /// What nvidia-smi tells of them, where it is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_cards: Vec<GpuCard>,
    /// Why it does not.
    pub gpu_failure: Option<Failure>,
    /// The hard limit on open files; absent where there is none.
    pub nofile: Option<u64>,
    /// A port from 29500 to 29599 on which nothing listens.
    pub master_port: Option<u16>,
    /// The user's home folder.
    pub home: Option<Text>,
    /// The environment that was asked for by [`Python::Conda`] or [`Python::Venv`].
    pub environment: Option<Environment>,
    /// The interpreter's facts about itself; absent if it does not run.
    pub python: Option<Interpreter>,
    /// Why the interpreter does not run. The problem is the last line that it wrote, and may be
    /// empty.
    pub python_failure: Option<Failure>,
    /// Why there is no such environment. No Python was asked then.
    pub environment_failure: Option<EnvironmentFailure>,
    /// The jobs and ports that are in use, if that was asked.
    pub occupancy: Option<Occupancy>,
}

/// The jobs and ports that are in use on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// The names of jobs: those of all users that hold a claim, and those of which this user has
    /// processes, even if their launcher is gone.
    pub jobs: Vec<String>,
    /// The ports of [`SERVER_PORTS`] and of [`Probe::server_ports`] that a socket uses or a job has
    /// claimed, in order.
    pub ports: Vec<u16>,
}

/// A network interface and its first address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The name of the interface: `eth0`.
    pub name: String,
    /// The IPv4 address.
    pub address: std::net::Ipv4Addr,
}

/// A venv or a conda environment.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The folder of the environment.
    pub prefix: String,
    /// The path of its Python.
    pub interpreter: String,
    /// The name of the environment in conda, if it is one of conda's.
    pub conda_env: Option<String>,
    /// The value of PATH without the environment.
    pub path: String,
}

/// The facts about a Python interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interpreter {
    /// The version of Python.
    pub version: Option<String>,
    /// The path of the interpreter itself.
    pub executable: Option<String>,
    /// The version of dgl that it would import; `unknown` if that dgl does not tell its version.
    pub dgl: Option<String>,
    /// The version of torch that it would import, in the same way.
    pub torch: Option<String>,
}

/// Why there is no such environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentFailure {
    /// There is no folder of this path, in which the home is written out.
    NoSuchFolder {
        /// The path.
        prefix: String,
    },
    /// A venv was asked for, and the folder holds a conda environment.
    IsConda {
        /// The path of the folder.
        prefix: String,
    },
    /// A conda environment was asked for, and the folder has no `conda-meta`.
    NotConda {
        /// The path of the folder.
        prefix: String,
    },
    /// Conda has no environment of that name.
    NoSuchName {
        /// The folders that were searched.
        looked_in: Vec<String>,
    },
    /// The environment has no Python.
    NoInterpreter {
        /// The path of the folder.
        prefix: String,
    },
}
