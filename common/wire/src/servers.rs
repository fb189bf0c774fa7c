//! Messages about graph servers that stay: a job of its own that groups of trainers use one after
//! another.

use crate::ending::{Ending, Failure};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::Ipv4Addr;

/// Identifies graph servers that stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// The name of the servers, which is that of their job.
    pub name: String,
    /// The address of the host.
    pub address: Ipv4Addr,
}

/// The settings that graph servers and the trainers that use them must have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// The working directory of the process, to which paths are relative.
    pub folder: crate::Text,
    /// The value of `DGL_IP_CONFIG`.
    pub ip_config: crate::Text,
    /// The value of `DGL_CONF_PATH`.
    pub part_config: crate::Text,
    /// The value of `DGL_NUM_CLIENT`: how many trainers and samplers the servers wait for.
    pub clients: String,
    /// The value of `DGL_NUM_SERVER`.
    pub servers: String,
    /// The value of `DGL_NUM_SAMPLER`.
    pub samplers: String,
}

/// Asks whether graph servers for trainers with such settings are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Find {
    /// The servers that are looked for.
    #[serde(flatten)]
    pub servers: Servers,
    /// The settings of their trainers.
    pub data: Data,
}

/// The state of graph servers on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Whether they are alive.
    pub life: Liveness,
    /// The settings in which they differ from what these trainers need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
}

/// Whether graph servers are alive on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// There are none.
    None,
    /// They load their graph.
    Starting,
    /// They listen.
    Alive,
    /// They have ended; with the cause, if it is known.
    Dead(Option<Ending>),
}

/// The graph servers that a job uses have ended.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersEnded {
    /// What failed first among the servers, as their keeper has written; absent if nothing did.
    pub failure: Option<Failure>,
}

/// A setting in which graph servers and trainers differ.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The setting.
    pub key: DataKey,
    /// The servers' value; absent if they have none.
    pub theirs: Option<String>,
    /// The trainers' value; absent if they have none.
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

/// Whether this launcher may start the graph servers; otherwise another one is starting them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartClaimed {
    /// Whether this launcher may start them, until its agent ends.
    pub ours: bool,
}

/// A group of trainers that uses graph servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The number of the group, which no other group of these servers has had.
    pub number: u32,
    /// The port on which torch's rendezvous can listen on this host.
    pub port: u16,
}
