//! What a job uses while it runs, and whether it moves.

use crate::Role;
use serde::{Deserialize, Serialize};

/// What a process or a whole host used in an interval. Fields of the one are missing in the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The host.
    pub host: u32,
    /// The process record's id; none for the host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its number among those of its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The end of the interval, since 1970.
    pub time_ms: u64,
    /// The length of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// Seconds of processor time in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// Of a process: resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// Of a process: what of that is shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_bytes: Option<u64>,
    /// Of a host, as all below: processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Main memory in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_used_bytes: Option<u64>,
    /// Main memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_bytes: Option<u64>,
    /// What /dev/shm holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_used_bytes: Option<u64>,
    /// Received in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_rx_bytes: Option<u64>,
    /// Sent in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_tx_bytes: Option<u64>,
    /// Read from disks in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes: Option<u64>,
    /// Written to disks in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_write_bytes: Option<u64>,
    /// NVIDIA cards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

impl Sample {
    /// Whether it is of a host itself and not of one of its processes.
    pub fn is_of_host(&self) -> bool {
        self.id.is_none() && self.role.is_none()
    }
}

/// A card of a host at the time of a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Its number on the host.
    pub index: u32,
    /// How much of the time it computed.
    pub util_percent: f64,
    /// Memory in use.
    pub mem_used_bytes: u64,
    /// Memory.
    pub mem_bytes: u64,
}

/// The job gives no sign of life any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stalled {
    /// When the last sign of life was, since 1970.
    pub since_ms: u64,
    /// How long that was ago.
    pub silent_s: f64,
    /// Why it is believed to stall, in one sentence.
    pub reason: String,
    /// On whose account, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<Culprit>,
    /// Since 1970.
    pub time_ms: u64,
}

/// A job that stalled moves again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// When the last sign of life was before the stall, since 1970.
    pub since_ms: u64,
    /// When the next one was noticed, since 1970.
    pub time_ms: u64,
}

/// The process that the others wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its host.
    pub host: u32,
    /// The process record's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its number among those of its role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}
