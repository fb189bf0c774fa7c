//! How fast one host reaches another: one expects a connection, the other sends for a moment.

use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// A connection will come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// The address of this host that the others use.
    pub address: Ipv4Addr,
    /// What the connection begins with; any other is closed.
    pub key: String,
    /// How long it may send.
    pub time_ms: u64,
}

/// It can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Where.
    pub port: u16,
}

/// Connects, measures the round trip, and sends until one of the limits is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// The address of this host that the others use.
    pub from: Ipv4Addr,
    /// Who expects it.
    pub to: SocketAddrV4,
    /// What the connection begins with.
    pub key: String,
    /// So long at most,
    pub time_ms: u64,
    /// and so much at most.
    pub max_bytes: u64,
}

/// What the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// All that it sent.
    pub sent_bytes: u64,
    /// The median of some round trips of one byte each, before anything else was sent.
    pub round_trip_us: u64,
    /// Segments that this host has sent again meanwhile, to whomever.
    pub retransmits: u64,
}

/// What the receiver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// What came in the time that counts: the median of twentieths of the time, without the first
    /// fifth, in which TCP begins slowly; or all, where it came sooner.
    pub received_bytes: u64,
    /// How long that time was.
    pub time_us: u64,
}
