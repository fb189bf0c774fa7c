//! Graph servers that stay, a job of its own that groups of trainers use one after another.

use crate::ending::Ending;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Which graph servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// Their name, which is that of their job.
    pub name: String,
    /// The host's address.
    pub address: Ipv4Addr,
}

/// What graph servers and the trainers that use them must have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// The folder of the process, to which paths are relative.
    pub folder: crate::Text,
    /// `DGL_IP_CONFIG`.
    pub ip_config: crate::Text,
    /// `DGL_CONF_PATH`.
    pub part_config: crate::Text,
    /// `DGL_NUM_CLIENT`: trainers and samplers that the servers wait for.
    pub clients: String,
    /// `DGL_NUM_SERVER`.
    pub servers: String,
    /// `DGL_NUM_SAMPLER`.
    pub samplers: String,
}

/// The question whether graph servers are there for trainers with such data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Find {
    /// Which.
    #[serde(flatten)]
    pub servers: Servers,
    /// What their trainers have.
    pub data: Data,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// How they are.
    pub life: Life,
    /// In what they are not those that these trainers need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
}

/// How graph servers are on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// There are none.
    None,
    /// They load their graph.
    Starting,
    /// They listen.
    Alive,
    /// They have ended; why, where that is known.
    Dead(Option<Ending>),
}

/// What is not the same for graph servers and trainers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What.
    pub key: DataKey,
    /// The servers' value; absent where they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<String>,
    /// The trainers' value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<String>,
}

/// A field of [`Data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataKey {
    /// The number of trainers and samplers.
    Clients,
    /// The number of servers.
    Servers,
    /// The number of samplers.
    Samplers,
    /// The content of the ip_config.
    IpConfig,
    /// The content of the partition config.
    PartConfig,
}

/// Whether this launcher may start the graph servers; otherwise somebody else does it just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartClaimed {
    /// It may, until its agent ends.
    pub ours: bool,
}

/// A group of trainers that uses graph servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its number, which no other group of these servers has had.
    pub number: u32,
    /// Where torch's rendezvous can listen on this host.
    pub port: u16,
}
