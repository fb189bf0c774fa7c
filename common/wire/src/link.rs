//! Messages that measure how fast one host reaches another: one expects a connection, the other
//! sends for a moment.

use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Announces a connection from another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// The address of this host that the others use.
    pub address: Ipv4Addr,
    /// The key with which the connection begins; any other connection is closed.
    pub key: String,
    /// How long the other host may send, in milliseconds.
    pub time_ms: u64,
}

/// The host is ready for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The port on which it listens.
    pub port: u16,
}

/// Asks a host to connect, to measure the round trip, and to send until one of the limits is
/// reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// The address of this host that the others use.
    pub from: Ipv4Addr,
    /// The address and port of the host that expects the connection.
    pub to: SocketAddrV4,
    /// The key with which the connection begins.
    pub key: String,
    /// The longest time to send, in milliseconds.
    pub time_ms: u64,
    /// The most bytes to send.
    pub max_bytes: u64,
}

/// The sender's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// How many bytes it sent.
    pub sent_bytes: u64,
    /// The median round trip of one byte in microseconds, measured before anything else was sent.
    pub round_trip_us: u64,
    /// How many segments this host sent again in that time, on all of its connections.
    pub retransmits: u64,
}

/// The receiver's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes that came in the time that counts: the median of twentieths of the time, without the
    /// first fifth, in which TCP starts slowly; or all bytes, if they came sooner.
    pub received_bytes: u64,
    /// The length of that time in microseconds.
    pub time_us: u64,
}
