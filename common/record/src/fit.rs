//! What a partition needs of its host.

use serde::{Deserialize, Serialize};

/// What a partition needs of its host, and whether the host has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The number of the partition: 0 to `of` - 1.
    pub id: u32,
    /// How many partitions there are.
    pub of: u32,
    /// The `id` of the host that serves it.
    pub host: u32,
    /// The nodes that are its own.
    pub nodes: u64,
    /// The edges that are its own.
    pub edges: u64,
    /// Nodes of other partitions that it has a copy of; absent where its files do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halo_nodes: Option<u64>,
    /// Edges of other partitions that it has a copy of; absent where its files do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halo_edges: Option<u64>,
    /// The size of its files.
    pub disk_bytes: u64,
    /// What it takes in /dev/shm.
    pub shm_bytes: u64,
    /// The most resident memory of the first graph server, /dev/shm included.
    pub server_bytes: u64,
    /// The most that all processes of the host take while the servers load, /dev/shm included.
    pub load_bytes: u64,
    /// What all processes of the host take while the trainers run, /dev/shm included.
    pub run_bytes: u64,
    /// The memory that the host has.
    pub mem_bytes: u64,
    /// The room in its /dev/shm.
    pub shm_free_bytes: u64,
    /// Its nodes by the mean of all partitions.
    pub node_skew: f64,
    /// Its edges by the mean of all partitions.
    pub edge_skew: f64,
    /// Whether the host has what it needs, and the margin.
    pub fits: bool,
    /// How much memory is missing; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_mem_bytes: Option<u64>,
    /// How much room in /dev/shm is missing; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_shm_bytes: Option<u64>,
}
