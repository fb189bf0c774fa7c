//! Messages of an agent that an engine started and that dials in to the tool: its ticket, its
//! introduction, and the answer.

use crate::files::PublicKey;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The environment variable that may hold the ticket, for engines that pass on the environment to
/// hosts without a shared directory.
pub const TICKET_VARIABLE: &str = "DGL_TOOLS_DIAL";

/// What an agent must know to dial in: one JSON object on a line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Where the tool listens. The first that can be reached is taken.
    pub addresses: Vec<SocketAddrV4>,
    /// The tool's public key.
    pub key: PublicKey,
    /// The private key that admits an agent, the same for all agents of a run.
    pub secret: String,
    /// How long an agent tries to connect, in milliseconds.
    pub patience_ms: u64,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:?})", self.addresses)
    }
}

/// An agent's first message.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// 128 random bits in hexadecimal, the same on all connections of an agent.
    pub agent: String,
    /// Its host's names: the kernel's, and the engine's if that differs.
    pub names: Vec<String>,
    /// The addresses of its network interfaces.
    pub addresses: Vec<Ipv4Addr>,
    /// The number that the engine gave it, with its variable: `SLURM_NODEID 3`.
    pub position: Option<String>,
}

/// A message to an agent that has dialed in and waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum DialMessage {
    /// From now on the connection is stdin and stdout of `host-agent serve TOKEN`. The agent dials
    /// again, to wait for the next message.
    Serve { token: String },
    /// The agent is no longer needed.
    Leave,
}
