//! Messages about persistent graph servers: a separate job that groups of trainers use one after
//! another.

use crate::ending::JobFailure;
use crate::job::JobOnHost;
use record::FirstFailure;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

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

/// Asks whether graph servers for trainers with these settings run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Find {
    /// The requested servers.
    #[serde(flatten)]
    pub servers: JobOnHost,
    /// The settings of their trainers.
    pub data: Data,
}

/// The state of graph servers on a host. Settings are only reported of servers that are alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersState {
    /// Whether they are alive.
    pub life: ServersLiveness,
    /// Their settings, with the hash of its content in place of each file.
    pub theirs: Data,
    /// The settings of the trainers in the same form.
    pub ours: Data,
}

/// Whether graph servers are alive on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServersLiveness {
    /// There are none.
    None,
    /// They load their graph.
    Starting,
    /// They listen.
    Alive,
    /// They have ended; with the server that failed first, if known.
    Dead(Option<Box<FirstFailure>>),
}

/// The graph servers that a job uses have ended.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersEnded {
    /// The server that failed first, as their launcher reported it; absent if none did.
    pub failure: Option<JobFailure>,
}

/// Whether this launcher may start the graph servers; otherwise another launcher is starting them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartClaimed {
    /// Whether this launcher may start them, until its agent ends.
    pub ours: bool,
}

/// A group of trainers that uses graph servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerGroup {
    /// The number of the group, which no other group of these servers has had.
    pub number: u32,
    /// The port on which torch's rendezvous can listen on this host.
    pub port: u16,
}
