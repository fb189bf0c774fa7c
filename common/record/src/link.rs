//! The bandwidth between two hosts.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A connection between two hosts, as link-probe measured it while every host sent to one host and
/// received from another.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    pub rate_bytes_per_s: Option<u64>,
    /// The median round trip of one byte in milliseconds, measured before anything else was sent.
    pub round_trip_ms: Option<f64>,
    /// How many segments the sending host sent again in that time, on all of its connections.
    pub retransmits: Option<u64>,
    /// Bytes that were sent for the measurement.
    pub sent_bytes: Option<u64>,
    /// Why the connection could not be measured.
    pub error: Option<String>,
}
