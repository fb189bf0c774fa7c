//! The bandwidth between two hosts.

use serde::{Deserialize, Serialize};

/// A connection between two hosts, as link-probe measured it while every host sent to one host and
/// received from another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The number of this record in its set: 0 to `of` - 1.
    pub id: u32,
    /// How many connections were measured.
    pub of: u32,
    /// The `id` of the host that sent.
    pub from: u32,
    /// The `id` of the host that received.
    pub to: u32,
    /// Whether the connection could be measured.
    pub ok: bool,
    /// Content that arrived, in bytes a second: the median over twentieths of the time. Headers and
    /// checksums are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// The median round trip of one byte in milliseconds, measured before anything else was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// How many segments the sending host sent again in that time, on all of its connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Bytes that were sent for the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Why the connection could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
