//! The needs of a partition, compared with its host.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The memory that a partition needs on its host, and whether the host has it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fit {
    /// The number of the partition: 0 to `of` - 1.
    pub id: u32,
    /// How many partitions there are.
    pub of: u32,
    /// The `id` of the host that serves it.
    pub host: u32,
    /// The nodes that the partition owns.
    pub nodes: u64,
    /// The edges that the partition owns.
    pub edges: u64,
    /// The size of the partition's files in bytes.
    pub disk_bytes: u64,
    /// Bytes in /dev/shm. This and the following fields include all partitions of the host.
    pub shm_bytes: u64,
    /// The peak resident memory of the first graph server in bytes, /dev/shm included.
    pub server_bytes: u64,
    /// The peak memory in bytes of all processes of the host while the servers load, /dev/shm
    /// included.
    pub load_bytes: u64,
    /// The memory in bytes of all processes of the host while the trainers run, /dev/shm included.
    pub run_bytes: u64,
    /// The memory that the host has, in bytes.
    pub mem_bytes: u64,
    /// The free space in the host's /dev/shm, in bytes.
    pub shm_free_bytes: u64,
    /// The number of its nodes divided by the mean of all partitions.
    pub node_skew: f64,
    /// The number of its edges divided by the mean of all partitions.
    pub edge_skew: f64,
    /// Whether the host has the memory that the partition needs, with a margin.
    pub fits: bool,
    /// Bytes of memory that are missing; absent if none are.
    pub missing_mem_bytes: Option<u64>,
    /// Bytes of /dev/shm that are missing; absent if none are.
    pub missing_shm_bytes: Option<u64>,
}
