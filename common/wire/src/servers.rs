//! Messages about persistent graph servers: a separate job that groups of trainers use in turn. The
//! agent passes [`Find`] and [`TakeGroup`](crate::Request::TakeGroup) on to the servers' supervisor
//! on its host.

use crate::ending::JobFailure;
use crate::text::line;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::Ipv4Addr;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersOnHost {
    pub name: String,
    /// Several hosts of a rehearsal are one machine and differ only in their address.
    pub address: Ipv4Addr,
}

/// The settings that graph servers and their trainers must share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// The process's working directory, to which paths are relative.
    pub folder: crate::Text,
    /// The value of `DGL_IP_CONFIG`.
    pub ip_config: crate::Text,
    /// The value of `DGL_CONF_PATH`.
    pub part_config: crate::Text,
    /// The value of `DGL_NUM_CLIENT`: how many trainers and samplers the servers wait for.
    #[serde(deserialize_with = "line")]
    pub clients: String,
    /// The value of `DGL_NUM_SERVER`.
    #[serde(deserialize_with = "line")]
    pub servers: String,
    /// The value of `DGL_NUM_SAMPLER`.
    #[serde(deserialize_with = "line")]
    pub samplers: String,
}

/// Asks whether graph servers for trainers with these settings run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Find {
    #[serde(flatten)]
    pub servers: ServersOnHost,
    pub data: Data,
}

/// Graph servers on a host. Settings are only reported of servers that listen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersState {
    pub life: ServersLiveness,
    /// Their settings, with the hash of its content in place of each file.
    pub theirs: Data,
    /// The trainers' settings in the same form.
    pub ours: Data,
    /// How many groups of trainers got a number on this host.
    pub groups: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServersLiveness {
    #[default]
    None,
    /// They load their graph.
    Starting,
    Alive,
    Ending,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersEnded {
    /// The first failed server, as their launcher reported it; absent if none failed.
    pub failure: Option<JobFailure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerGroup {
    /// No other group of these servers has had it.
    pub number: u32,
    /// A port for torch's rendezvous on this host.
    pub port: u16,
}
