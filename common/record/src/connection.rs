//! A TCP connection of a process, as the kernel of its host reports it.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::SocketAddr;

/// A TCP connection of a process. All times of a host are measured at the same moment, in the
/// kernel's ticks of 1 to 10 milliseconds.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Connection {
    /// The address and port of the process.
    pub local: SocketAddr,
    /// Those of its peer.
    pub peer: SocketAddr,
    /// Milliseconds since it last sent data; absent if it never did. Retransmissions count.
    pub since_sent_ms: Option<u32>,
    /// Milliseconds since data last arrived, whether or not the process has read it; absent if none
    /// ever did.
    pub since_received_ms: Option<u32>,
    /// Milliseconds since the peer last acknowledged anything.
    pub since_acknowledged_ms: u32,
    /// Segments with data that were sent, retransmissions included.
    pub segments_sent: u32,
    /// Segments with data that arrived.
    pub segments_received: u32,
    /// The shortest recent round trip, in microseconds.
    pub round_trip_us: Option<u32>,
    /// Bytes that were sent and that the peer has not acknowledged.
    pub unacknowledged_bytes: u32,
    /// Bytes that the process has written and for which the peer has no room.
    pub unsent_bytes: u32,
    /// Bytes that arrived and that the process has not read.
    pub unread_bytes: u32,
}

impl Connection {
    /// `None` if no data was ever sent or received.
    pub fn since_moved_ms(&self) -> Option<u32> {
        self.since_sent_ms
            .into_iter()
            .chain(self.since_received_ms)
            .min()
    }
}
