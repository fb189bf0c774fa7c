//! Whether bulk data goes over a TLS connection to a host's agent beside the login, which both
//! sides used to exchange their keys. It costs half as much per byte as the login.

use std::net::Ipv4Addr;
use std::time::Duration;

/// How long `--wire auto` waits for a host's port. A port that can be reached answers within a
/// millisecond on a cluster, and within half a second from anywhere.
const AUTO_LIMIT: Duration = Duration::from_secs(1);
/// Fewer bytes than this arrive sooner over the login than a port can be opened.
const WORTH: u64 = 4 << 20;

/// The connections that carry bulk data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Direct connections if possible, otherwise as with `Ssh`.
    Auto,
    /// The logins, whatever the connector.
    Ssh,
    /// Direct connections only; fails if they are not possible.
    Direct,
}

/// How bulk data is carried, for all hosts.
#[derive(Clone, Copy, Debug)]
pub struct WireOptions {
    /// The choice of the command line.
    pub wire: Wire,
    /// The port on which hosts listen; 0 for any.
    pub data_port: u16,
    /// How long `Wire::Direct` may wait for a host's port.
    pub limit: Duration,
}

impl WireOptions {
    /// Whether a direct connection to a host is worth a try for this many bytes. `is_local` is
    /// whether pipes lead to its agent, which need no cipher.
    pub fn is_worth(&self, host: Ipv4Addr, is_local: bool, bytes: u64) -> bool {
        match self.wire {
            Wire::Ssh => false,
            Wire::Direct => bytes > 0,
            // a loopback address may be a tunnel, which does not lead to the host's port
            Wire::Auto => bytes >= WORTH && !is_local && !host.is_loopback(),
        }
    }

    /// Whether this many bytes for one host may have to go through its login. Then OpenSSH costs
    /// less, because its cipher is cheaper.
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
