//! How a tool reaches its hosts, as plain values.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often to check for a signal while waiting for a host.
pub(crate) const STOP_CHECKED: Duration = Duration::from_millis(100);

/// Options of the connectors.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// `auto`, `ssh2`, `ssh`, `local`, a template of a command, or `dial` and a command; `None` for
    /// the connector of the host record, or `auto`.
    pub connect: Option<String>,
    /// The port of the hosts' sshd; `None` for the one in ssh's own configuration.
    pub ssh_port: Option<u16>,
    /// The user to log in as; `None` for the one in ssh's own configuration.
    pub ssh_username: Option<String>,
    /// A private key to log in with; no other key is tried.
    pub identity: Option<PathBuf>,
    /// An ssh_config file in place of the user's.
    pub ssh_config: Option<PathBuf>,
    /// The handling of an unknown host key; `None` for the setting of ssh's own configuration.
    pub host_key: Option<HostKey>,
    /// How long connecting and logging in may take.
    pub connect_timeout: Duration,
    /// The address of this machine to which hosts dial in; `None` for the one from which they are
    /// reached.
    pub dial_address: Option<Ipv4Addr>,
    /// The port to which hosts dial in; 0 for any.
    pub dial_port: u16,
    /// Prints a line that is not an error.
    pub notice: fn(&str),
    /// The number of a signal that ends the tool, or 0. After a signal no more logins begin, and
    /// the tool does not wait for hosts that have not answered.
    pub stop: Arc<AtomicUsize>,
}

impl RemoteOptions {
    /// Whether a signal ends the tool.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }
}

/// Whether to trust a host key that known_hosts does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKey {
    /// Refuse it.
    Strict,
    /// Accept it and add it to known_hosts; a changed key is refused nevertheless.
    AcceptNew,
}
