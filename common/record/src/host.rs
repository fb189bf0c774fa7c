//! A machine of the job, and what host-probe finds there.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// A machine of the job; host k holds partition k.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// 0..of-1, in the order of ip_config.
    pub id: u32,
    /// How many records the set has.
    pub of: u32,
    /// The address that DGL uses.
    pub ip: IpAddr,
    /// The port of its first graph server.
    pub port: u16,
    /// The line of ip_config it stands in, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The name that was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where to log in, if not at `name` or `ip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// What host-probe found.
    #[serde(flatten)]
    pub facts: Facts,
    /// `false` where host-probe failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Why the host cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Host {
    /// The name ssh is given: `login`, else `name`, else `ip`.
    pub fn target(&self) -> String {
        self.login
            .clone()
            .or_else(|| self.name.clone())
            .unwrap_or_else(|| self.ip.to_string())
    }

    /// For messages: `host 2 (10.0.0.7)`.
    pub fn place(&self) -> String {
        match &self.name {
            Some(name) => format!("host {} ({name}, {})", self.id, self.ip),
            None => format!("host {} ({})", self.id, self.ip),
        }
    }
}

/// An IPv4 address; 0.0.0.0 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IpAddr(pub Ipv4Addr);

impl Default for IpAddr {
    fn default() -> IpAddr {
        IpAddr(Ipv4Addr::UNSPECIFIED)
    }
}

impl std::fmt::Display for IpAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What host-probe adds to a host record. A fact that could not be had is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The network card that holds `ip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface: Option<String>,
    /// Processors online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// The same by NUMA node and core: `[[[0,2],[1,3]]]` is one node of two cores with two
    /// hyper-threads each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numa_cores: Vec<Vec<Vec<u32>>>,
    /// Main memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_bytes: Option<u64>,
    /// What a control group allows a job of that, where it is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_limit_bytes: Option<u64>,
    /// Room in /dev/shm, where graph servers keep their data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_free_bytes: Option<u64>,
    /// Room where the workspace is or will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// NVIDIA cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// The hard limit on open files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nofile: Option<u64>,
    /// A port on which nothing listens, for torch's rendezvous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_port: Option<u16>,
    /// The user's home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// The kind of file system of the workspace: `ext4`, `nfs4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_fs: Option<String>,
    /// Python: its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// The interpreter's own path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_path: Option<String>,
    /// The folder of the environment that was asked for, a venv's or conda's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What conda calls it, where it is conda's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conda_env: Option<String>,
    /// PATH there, without that environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// DGL: its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dgl: Option<String>,
    /// PyTorch: its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
}
