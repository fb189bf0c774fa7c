//! The resources that a job uses while it runs.

use crate::Role;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The resources that a process or a whole host used in an interval. Fields that only apply to the
/// other are absent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Sample {
    /// The `id` of the host.
    pub host: u32,
    /// The `id` of the process record; absent for the host itself.
    pub id: Option<u32>,
    /// The role of the process in its job.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
    /// The end of the interval, in milliseconds since 1970.
    pub time_ms: u64,
    /// The length of the interval in milliseconds.
    pub interval_ms: Option<u64>,
    /// The resources.
    #[serde(flatten)]
    pub usage: Usage,
}

impl Sample {
    /// Whether the sample is of a host itself and not of one of its processes.
    pub fn is_of_host(&self) -> bool {
        self.id.is_none() && self.role.is_none()
    }
}

/// The resources that a host used in an interval, or a process with its children. Fields that only
/// the other has are absent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    /// Seconds of CPU time in the interval.
    pub cpu_s: Option<f64>,
    /// Resident memory of a process in bytes.
    pub rss_bytes: Option<u64>,
    /// Bytes of a process's resident memory that are shared memory.
    pub shm_bytes: Option<u64>,
    /// The number of processors of a host.
    pub cpus: Option<u32>,
    /// Main memory of a host in use, in bytes.
    pub mem_used_bytes: Option<u64>,
    /// Main memory of a host, in bytes.
    pub mem_bytes: Option<u64>,
    /// Bytes in use in a host's /dev/shm.
    pub shm_used_bytes: Option<u64>,
    /// Bytes that a host received in the interval.
    pub net_rx_bytes: Option<u64>,
    /// Bytes that a host sent in the interval.
    pub net_tx_bytes: Option<u64>,
    /// Bytes that a host read from disks in the interval.
    pub disk_read_bytes: Option<u64>,
    /// Bytes that a host wrote to disks in the interval.
    pub disk_write_bytes: Option<u64>,
    /// The NVIDIA GPUs of a host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

/// The state of a GPU at the time of a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Gpu {
    /// The number of the GPU on its host.
    pub index: u32,
    /// The share of the time in which it computed, in percent.
    pub util_percent: f64,
    /// GPU memory in use, in bytes.
    pub mem_used_bytes: u64,
    /// GPU memory, in bytes.
    pub mem_bytes: u64,
}
