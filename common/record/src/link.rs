//! What a host can send to another one.

use serde::{Deserialize, Serialize};

/// A connection between two hosts, as link-probe has measured it while all hosts sent to one host
/// and received from another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// 0..of-1.
    pub id: u32,
    /// How many were looked at.
    pub of: u32,
    /// The host that sent.
    pub from: u32,
    /// The host that received.
    pub to: u32,
    /// Whether they could be measured.
    pub ok: bool,
    /// Content that came a second, the median over twentieths of the time; headers and checksums
    /// are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// The median round trip of one byte, before anything else was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// Segments that the sending host has sent again meanwhile, to whomever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// All that was sent to measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Why it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
