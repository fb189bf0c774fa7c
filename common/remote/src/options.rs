//! How a tool reaches its hosts, as plain values.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A waiting thread checks for a signal this often.
pub(crate) const STOP_CHECKED: Duration = Duration::from_millis(100);

/// For ssh, `None` means the setting of ssh's own configuration.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// `auto`, `ssh2`, `ssh`, `local`, a command template, or `dial` and a command; `None` for the
    /// connector of the host record, or `auto`.
    pub connect: Option<String>,
    pub ssh_port: Option<u16>,
    pub ssh_username: Option<String>,
    /// The only private key to log in with.
    pub identity: Option<PathBuf>,
    /// An ssh_config file in place of the user's.
    pub ssh_config: Option<PathBuf>,
    pub host_key: Option<HostKey>,
    /// The limit for connecting, and for the login that follows.
    pub connect_timeout: Duration,
    /// The address to which hosts dial in; `None` for the one from which they are reached.
    pub dial_address: Option<Ipv4Addr>,
    /// 0 for any.
    pub dial_port: u16,
    pub notice: fn(&str),
    /// The number of a signal that ends the tool, or 0. Then no more logins begin, and the tool
    /// does not wait for hosts that have not answered.
    pub stop: Arc<AtomicUsize>,
}

impl RemoteOptions {
    #[cfg(test)]
    pub(crate) fn without_settings() -> RemoteOptions {
        RemoteOptions {
            connect: None,
            ssh_port: None,
            ssh_username: None,
            identity: None,
            ssh_config: None,
            host_key: None,
            connect_timeout: Duration::from_secs(10),
            dial_address: None,
            dial_port: 0,
            notice: |_| {},
            stop: Arc::default(),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }
}

/// For a key that known_hosts does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKey {
    Strict,
    /// Adds the key to known_hosts; a changed key is still refused.
    AcceptNew,
}
