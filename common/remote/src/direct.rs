//! Whether bulk data goes over a TLS connection to a host's agent. Both sides exchanged their keys
//! over the login. It costs half as much per byte as that.

use std::net::Ipv4Addr;
use std::time::Duration;

/// The limit of `--wire auto`. A port that can be reached answers within a millisecond on a
/// cluster, and within half a second from anywhere.
const AUTO_LIMIT: Duration = Duration::from_secs(1);
/// Fewer bytes arrive sooner over the login than a port is opened.
const WORTH: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Direct if possible, otherwise as with `Ssh`.
    Auto,
    /// The logins, whatever the connector.
    Ssh,
    /// Fails if direct connections are not possible.
    Direct,
}

#[derive(Clone, Copy, Debug)]
pub struct WireOptions {
    pub wire: Wire,
    /// The port on which hosts listen; 0 for any.
    pub data_port: u16,
    /// How long `Wire::Direct` may wait for a host's port.
    pub limit: Duration,
}

impl WireOptions {
    /// Whether a direct connection is worth a try for this many bytes. `is_local` means that pipes
    /// lead to the agent, which need no cipher.
    pub fn is_worth(&self, host: Ipv4Addr, is_local: bool, bytes: u64) -> bool {
        match self.wire {
            Wire::Ssh => false,
            Wire::Direct => bytes > 0,
            // a loopback address may be a tunnel, which does not lead to the host's port
            Wire::Auto => bytes >= WORTH && !is_local && !host.is_loopback(),
        }
    }

    /// Whether this many bytes may have to go through a login. Then OpenSSH costs less, because its
    /// cipher is cheaper.
    pub fn may_burden_logins(&self, bytes: u64) -> bool {
        match self.wire {
            Wire::Ssh => true,
            Wire::Direct => false,
            Wire::Auto => bytes >= WORTH,
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        match self.wire {
            Wire::Auto => AUTO_LIMIT,
            _ => self.limit,
        }
    }
}
