//! Messages about the facts of a host.

use crate::Failure;
use record::{DEFAULT_PORT, Facts};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::ops::RangeInclusive;

/// The ports that graph servers may get by default: from DGL's default up to Linux's first port for
/// outgoing connections.
pub const SERVER_PORTS: RangeInclusive<u16> = DEFAULT_PORT..=32767;

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The directory whose free space and file system are reported; if it does not exist yet, its
    /// nearest parent that does.
    pub workspace: Option<String>,
    /// The first and last port that graph servers will use, which torch's rendezvous must not get.
    pub server_ports: Option<(u16, u16)>,
    pub python: Python,
    /// Shell text that runs before Python, in the user's `$SHELL`.
    pub setup: Option<String>,
    /// Whether to report the jobs and ports in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub occupancy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Python {
    /// A word of a command: a name in PATH or a path.
    Command(String),
    /// The name of a conda environment, or its directory (`/…` or `~/…`).
    Conda(String),
    /// Its directory (`/…` or `~/…`).
    Venv(String),
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probed {
    /// All but `iface`. Unknown facts are absent.
    #[serde(flatten)]
    pub facts: Facts,
    /// Each network interface with its first address, as DGL gets it from SIOCGIFADDR.
    pub interfaces: Vec<Interface>,
    pub ephemeral_ports: Option<EphemeralPorts>,
    /// Why an installed nvidia-smi reported no GPUs.
    pub gpu_failure: Option<Failure>,
    pub python_failure: Option<Failure>,
    /// Why the environment does not exist; then no Python was examined.
    pub environment_failure: Option<Failure>,
    pub occupancy: Occupancy,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Occupancy {
    /// The names of jobs: those of all users that hold a claim, and those of this user that have
    /// processes, even if their launcher has ended.
    pub jobs: Vec<String>,
    /// The ports of [`SERVER_PORTS`] and [`Probe::server_ports`] that a socket uses or a job has
    /// claimed, in order.
    pub ports: Vec<u16>,
}

/// The ports for outgoing connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralPorts {
    /// The first port of `net.ipv4.ip_local_port_range`.
    pub first: u16,
    pub last: u16,
    /// The ranges that `net.ipv4.ip_local_reserved_ports` excepts.
    pub reserved: Vec<(u16, u16)>,
}

impl EphemeralPorts {
    pub fn may_take(&self, port: u16) -> bool {
        let is_reserved = |(first, last): &(u16, u16)| (*first..=*last).contains(&port);
        (self.first..=self.last).contains(&port) && !self.reserved.iter().any(is_reserved)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    pub address: std::net::Ipv4Addr,
}
