//! Messages about the facts of a host.

use crate::text::{ITEMS, first, line, list, names};
use crate::{Failure, cut_message};
use record::{DEFAULT_PORT, Facts, GpuCard};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// The ports that graph servers may get by default: from DGL's default up to Linux's first port for
/// outgoing connections.
pub const SERVER_PORTS: RangeInclusive<u16> = DEFAULT_PORT..=32767;

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The directory whose free space and file system are reported; if it does not exist yet, its
    /// nearest parent that does.
    pub workspace: Option<String>,
    /// The first and last port that graph servers will use, which torch's rendezvous must not get.
    pub server_ports: Option<(u16, u16)>,
    pub python: Python,
    /// Shell text that runs before Python, in the user's `$SHELL`.
    pub setup: Option<String>,
    /// Whether to report the jobs and ports in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub occupancy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Python {
    /// A word of a command: a name in PATH or a path.
    Command(String),
    /// The name of a conda environment, or its directory (`/…` or `~/…`).
    Conda(String),
    /// Its directory (`/…` or `~/…`).
    Venv(String),
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probed {
    /// All but `iface`. Unknown facts are absent.
    #[serde(flatten, deserialize_with = "facts")]
    pub facts: Facts,
    /// Each network interface with its first address, as DGL gets it from SIOCGIFADDR.
    #[serde(deserialize_with = "list")]
    pub interfaces: Vec<Interface>,
    pub ephemeral_ports: Option<EphemeralPorts>,
    /// How many GPUs the driver has that nvidia-smi does not list.
    pub unlisted_gpus: Option<u32>,
    /// Why an installed nvidia-smi reported no GPUs.
    pub gpu_failure: Option<Failure>,
    pub python_failure: Option<Failure>,
    /// Why the environment does not exist; then no Python was examined.
    pub environment_failure: Option<Failure>,
    pub occupancy: Occupancy,
}

/// The longest value of a variable, and longer than any path (MAX_ARG_STRLEN in execve(2)).
const MAX_VALUE: usize = 128 << 10;

/// Linux numbers no more processors (CONFIG_NR_CPUS).
const MAX_CPUS: usize = 8192;

/// Reads facts. Texts for users are cut, and a longer value than a host can have is unknown.
fn facts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Facts, D::Error> {
    let facts = Facts::deserialize(deserializer)?;
    let text = |text: Option<String>| text.map(|text| cut_message(&text));
    let value = |value: Option<String>| value.filter(|value| value.len() <= MAX_VALUE);
    let cpus = |node: &Vec<Vec<u32>>| {
        let cores = node.iter().map(|core| core.len().max(1));
        cores.sum::<usize>().max(1)
    };
    let cpus: usize = facts.numa_cores.iter().map(cpus).sum();
    let numa_cores = Some(facts.numa_cores).filter(|_| cpus <= MAX_CPUS);
    let card = |mut card: GpuCard| {
        card.users = first(card.users, ITEMS);
        for user in &mut card.users {
            user.user = text(user.user.take());
            user.command = text(user.command.take());
            user.job = text(user.job.take());
        }
        card
    };
    Ok(Facts {
        gpu_cards: first(facts.gpu_cards, ITEMS)
            .into_iter()
            .map(card)
            .collect(),
        free_ports: first(facts.free_ports, ITEMS),
        numa_cores: numa_cores.unwrap_or_default(),
        iface: text(facts.iface),
        home: value(facts.home),
        workspace_fs: text(facts.workspace_fs),
        python: text(facts.python),
        python_path: value(facts.python_path),
        prefix: value(facts.prefix),
        conda_env: text(facts.conda_env),
        path: value(facts.path),
        dgl: text(facts.dgl),
        torch: text(facts.torch),
        ..facts
    })
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Occupancy {
    /// The names of jobs: those of all users that hold a claim, and those of this user that have
    /// processes, even if their launcher has ended.
    #[serde(deserialize_with = "names")]
    pub jobs: Vec<String>,
    /// The ports of [`SERVER_PORTS`] and [`Probe::server_ports`] that a socket uses or a job has
    /// claimed.
    pub ports: BTreeSet<u16>,
}

/// The ports for outgoing connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralPorts {
    /// The first port of `net.ipv4.ip_local_port_range`.
    pub first: u16,
    pub last: u16,
    /// The ranges that `net.ipv4.ip_local_reserved_ports` excepts.
    #[serde(deserialize_with = "list")]
    pub reserved: Vec<(u16, u16)>,
}

impl EphemeralPorts {
    pub fn may_take(&self, port: u16) -> bool {
        let is_reserved = |(first, last): &(u16, u16)| (*first..=*last).contains(&port);
        (self.first..=self.last).contains(&port) && !self.reserved.iter().any(is_reserved)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    #[serde(deserialize_with = "line")]
    pub name: String,
    pub address: std::net::Ipv4Addr,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    /// Every text of the schema of facts, so that a new one is found, too.
    #[test]
    fn no_text_of_a_host_is_longer_than_it_can_be() {
        let schema: Value =
            serde_json::from_str(include_str!("../../record/records.schema.json")).unwrap();
        let is_text = |field: &Value| {
            let types = &field["type"];
            types == "string"
                || types
                    .as_array()
                    .is_some_and(|all| all.contains(&json!("string")))
        };
        let host = host_fields(&schema).expect("the schema describes hosts");
        let long = "x".repeat(900_000);
        let texts = host
            .iter()
            .filter(|(name, field)| *name != "ip" && is_text(field));
        let names: Vec<&String> = texts.map(|(name, _)| name).collect();
        assert!(names.len() >= 10, "{names:?}");
        let mut probed: Map<String, Value> = names
            .into_iter()
            .map(|name| (name.clone(), long.clone().into()))
            .collect();
        let user = json!({"user": long, "command": long, "job": long});
        probed.insert("gpu_cards".into(), json!([{"users": [user]}]));
        probed.insert(
            "interfaces".into(),
            json!([{"name": long, "address": "10.0.0.1"}]),
        );
        probed.insert(
            "occupancy".into(),
            json!({"jobs": vec!["x".repeat(9000); 99]}),
        );
        let read: Probed = serde_json::from_value(probed.into()).unwrap();
        let length = serde_json::to_string(&read).unwrap().len();
        assert!(length < 30_000, "{length}");
    }

    /// Every list of the schema of facts, and those beside them.
    #[test]
    fn no_list_of_a_host_is_longer_than_it_can_be() {
        let schema: Value =
            serde_json::from_str(include_str!("../../record/records.schema.json")).unwrap();
        let host = host_fields(&schema).expect("the schema describes hosts");
        let is_list = |field: &Value| field["type"] == "array";
        let lists = host.iter().filter(|(_, field)| is_list(field));
        let names: Vec<&String> = lists.map(|(name, _)| name).collect();
        assert_eq!(names, ["numa_cores", "gpu_cards", "free_ports"]);
        let many = |item: Value| Value::from(vec![item; 10_000]);
        let interface = json!({"name": "eth0", "address": "10.0.0.1"});
        let probed = |cores: Value| {
            json!({
                "free_ports": many(json!(30_000)),
                "gpu_cards": many(json!({})),
                "numa_cores": cores,
                "interfaces": many(interface.clone()),
                "occupancy": {"ports": many(json!(30_000))},
                "ephemeral_ports": {"first": 1, "last": 2, "reserved": many(json!([7, 8]))},
            })
        };
        let nested = [
            many(json!([])),
            json!([many(json!([]))]),
            json!([[many(json!(7))]]),
        ];
        for cores in nested {
            let read: Probed = serde_json::from_value(probed(cores)).unwrap();
            let facts = &read.facts;
            assert_eq!(facts.free_ports.len(), ITEMS);
            assert_eq!(facts.gpu_cards.len(), ITEMS);
            assert!(facts.numa_cores.is_empty());
            assert_eq!(read.interfaces.len(), ITEMS);
            assert_eq!(read.occupancy.ports.len(), 1);
            assert_eq!(read.ephemeral_ports.unwrap().reserved.len(), ITEMS);
        }
        let card = json!({"users": many(json!({}))});
        let read: Probed = serde_json::from_value(json!({"gpu_cards": [card]})).unwrap();
        assert_eq!(read.facts.gpu_cards[0].users.len(), ITEMS);
        let cores = json!([[[0, 2], [1, 3]]]);
        let read: Probed = serde_json::from_value(json!({"numa_cores": cores})).unwrap();
        assert_eq!(read.facts.numa_cores, [[[0, 2], [1, 3]]]);
    }

    fn host_fields(schema: &Value) -> Option<&Map<String, Value>> {
        let fields = schema.get("properties").and_then(Value::as_object);
        if let Some(fields) = fields.filter(|fields| fields.contains_key("python_path")) {
            return Some(fields);
        }
        match schema {
            Value::Object(inner) => inner.values().find_map(host_fields),
            Value::Array(inner) => inner.iter().find_map(host_fields),
            _ => None,
        }
    }
}
