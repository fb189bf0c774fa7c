//! What a tool wants of the way to its hosts, as plain values.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// How hosts are reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// `ssh2`, `ssh`, `local`, a template of a command, or `dial` and a command; the tool's own
    /// choice where nothing was said.
    pub connect: Option<String>,
    /// The port of the hosts' sshd; ssh's own configuration where nothing was said, as below.
    pub ssh_port: Option<u16>,
    /// The user to log in as.
    pub ssh_username: Option<String>,
    /// A private key to log in with, and no other.
    pub identity: Option<PathBuf>,
    /// An ssh_config file in place of the user's.
    pub ssh_config: Option<PathBuf>,
    /// What to do with the key of a host that was never seen.
    pub host_key: HostKey,
    /// How long connecting and logging in may take.
    pub connect_timeout: Duration,
    /// The address of this machine to which hosts dial in; the one from which they are reached
    /// where nothing was said.
    pub dial_address: Option<Ipv4Addr>,
    /// The port; 0 for any.
    pub dial_port: u16,
    /// Tells people a line that is no error.
    pub say: fn(&str),
}

/// Whether to trust a host key that known_hosts does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKey {
    /// Refuse it.
    Strict,
    /// Take it and write it down; a changed key is refused all the same.
    AcceptNew,
}
