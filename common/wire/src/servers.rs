//! Messages about persistent graph servers: a separate job that groups of trainers use one after
//! another. The agent on a host passes [`Find`] and
//! [`TakeGroup`](crate::Request::TakeGroup) on to the servers' supervisor there.

use crate::ending::JobFailure;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::Ipv4Addr;

/// Names persistent graph servers on one of their hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersOnHost {
    pub name: String,
    /// The address of the host, because several hosts of a rehearsal are one machine.
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

/// Asks whether graph servers for trainers with these settings run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Find {
    #[serde(flatten)]
    pub servers: ServersOnHost,
    pub data: Data,
}

/// The state of graph servers on a host. Settings are only reported of servers that listen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersState {
    pub life: ServersLiveness,
    /// Their settings, with the hash of its content in place of each file.
    pub theirs: Data,
    /// The settings of the trainers in the same form.
    pub ours: Data,
    /// How many groups of trainers have got a number on this host.
    pub groups: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServersLiveness {
    /// There are none.
    #[default]
    None,
    /// They load their graph.
    Starting,
    Alive,
    Ending,
}

/// The graph servers that a job uses have ended.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersEnded {
    /// The server that failed first, as their launcher reported it; absent if none did.
    pub failure: Option<JobFailure>,
}

/// A group of trainers that uses graph servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerGroup {
    /// The number of the group, which no other group of these servers has had.
    pub number: u32,
    /// The port on which torch's rendezvous can listen on this host.
    pub port: u16,
}
