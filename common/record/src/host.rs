//! A host of the job, and what host-probe finds about it.

use crate::error::Fault;
use crate::quote;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// A host of the job; host k holds partition k.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Host {
    /// The number of this record in its set: 0 to `of` - 1, in the order of ip_config.
    pub id: u32,
    /// How many records the set has.
    pub of: u32,
    /// The address that DGL uses for the host.
    pub ip: IpAddr,
    /// The port of the host's first graph server.
    pub port: u16,
    /// The line of ip_config that names the host, counted from 1.
    pub line: Option<u64>,
    /// The name in ip_config, from which the address was resolved, or in a table of hosts.
    #[serde(default, deserialize_with = "plain_word")]
    pub name: Option<String>,
    /// The destination of logins, if it is neither `name` nor `ip`.
    #[serde(default, deserialize_with = "plain_word")]
    pub login: Option<String>,
    /// The connector that logs in, as an earlier tool has found.
    pub connect: Option<Connect>,
    /// The facts that host-probe found.
    #[serde(flatten)]
    pub facts: Facts,
    /// `false` if host-probe failed on this host.
    pub ok: Option<bool>,
    /// Why the host cannot be used.
    pub error: Option<String>,
    /// Unknown fields. Users and later versions add some, so a tool that writes the record again
    /// keeps them.
    #[serde(flatten, deserialize_with = "unknown_fields")]
    #[cfg_attr(test, schemars(skip))]
    pub unknown: Map<String, Value>,
}

/// The connectors that log in by ssh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Connect {
    /// libssh2, in the tool itself.
    Ssh2,
    /// OpenSSH's program.
    Ssh,
}

/// Without `type`, which is not a field of the host.
fn unknown_fields<'de, D: Deserializer<'de>>(fields: D) -> Result<Map<String, Value>, D::Error> {
    let mut unknown = Map::deserialize(fields)?;
    unknown.shift_remove("type");
    Ok(unknown)
}

/// Commands contain names and logins, those of ssh and of `--connect` as well as those of a fix.
fn plain_word<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    let word = Option::<String>::deserialize(field)?;
    match &word {
        Some(word) if !quote::may_be_pasted(word) => Err(de::Error::custom(format!(
            "{word:?} is no host: a shell or ssh would interpret it"
        ))),
        _ => Ok(word),
    }
}

impl Host {
    /// The name for ssh: `login`, else `name`, else `ip`.
    pub fn target(&self) -> String {
        self.login.clone().unwrap_or_else(|| self.name_or_ip())
    }

    pub fn name_or_ip(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.ip.to_string())
    }

    /// `host 2 (10.0.0.7)`.
    pub fn location(&self) -> String {
        match &self.name {
            Some(name) => format!("host {} ({name}, {})", self.id, self.ip),
            None => format!("host {} ({})", self.id, self.ip),
        }
    }
}

/// Hosts are in the order of their numbers.
pub fn host_of(hosts: &[Host], id: u32) -> Option<&Host> {
    let index = hosts.binary_search_by_key(&id, |host| host.id).ok()?;
    Some(&hosts[index])
}

/// For messages, even if the host's record is missing.
pub fn location_of(hosts: &[Host], id: u32) -> String {
    host_of(hosts, id).map_or_else(|| format!("host {id}"), Host::location)
}

/// DGL's default for the first graph server of a host.
pub const DEFAULT_PORT: u16 = 30050;
/// The ports that host-probe tries, and that a plan uses if it reports no free ones. The first is
/// the default of torch's rendezvous.
pub const PROGRAM_PORTS: RangeInclusive<u16> = 29500..=29599;

pub fn unequal_parts(parts: u64, hosts: usize, per_host: u32) -> Option<String> {
    let needed = hosts as u64 * u64::from(per_host);
    let reason = match per_host {
        1 => "DGL needs as many hosts as partitions".to_owned(),
        _ => format!("with {per_host} on each they must be {needed}"),
    };
    (parts != needed).then(|| format!("{parts} partitions for {hosts} hosts; {reason}"))
}

pub fn ip_config(hosts: &[Host]) -> String {
    hosts
        .iter()
        .map(|host| ip_config_line(host.ip.0, host.port))
        .collect()
}

pub fn ip_config_line(ip: Ipv4Addr, port: u16) -> String {
    format!("{ip} {port}\n")
}

/// Expands `~/x` by the hosts' home, which must be the same on all, because the workspace is.
/// `location` has the path, for messages.
pub fn at_home(location: &str, path: &str, hosts: &[Host]) -> Result<String, Fault> {
    let below = match path.strip_prefix('~') {
        Some(below) if below.is_empty() || below.starts_with('/') => below,
        _ => return Ok(path.to_owned()),
    };
    let fix = "give an absolute path";
    let mut homes = hosts.iter().map(|host| (host, host.facts.home.as_deref()));
    let first = homes.next();
    for (host, home) in first.into_iter().chain(homes) {
        let Some(home) = home else {
            let problem = format!("cannot expand {path} on {}", host.location());
            let fix = format!("run host-probe first, or {fix}");
            return Err(Fault::data(location, problem).fix(fix));
        };
        if !home.starts_with('/') || home.contains('\0') {
            let problem = format!("home {home:?} is not an absolute path");
            let fix = format!("run host-probe again, or {fix}");
            return Err(Fault::data(host.location(), problem).fix(fix));
        }
        if let Some((first, Some(other))) = first.filter(|(_, other)| *other != Some(home)) {
            let problem = format!(
                "{path}: home is {home} on {}, {other} on {}",
                host.location(),
                first.location()
            );
            return Err(Fault::data(location, problem).fix(fix));
        }
    }
    let home = first.and_then(|(_, home)| home).unwrap_or_default();
    let path = format!("{}{below}", home.trim_end_matches('/'));
    Ok(if path.is_empty() {
        "/".to_owned()
    } else {
        path
    })
}

/// An IPv4 address; 0.0.0.0 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct IpAddr(pub Ipv4Addr);

impl Default for IpAddr {
    fn default() -> IpAddr {
        IpAddr(Ipv4Addr::UNSPECIFIED)
    }
}

impl std::fmt::Display for IpAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The facts that host-probe adds to a host record. A fact that could not be found is absent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Facts {
    /// The network interface that holds `ip`.
    pub iface: Option<String>,
    /// The number of processors that a job may use there.
    pub cpus: Option<u32>,
    /// The processors by NUMA node and core: `[[[0,2],[1,3]]]` is one node of two cores with two
    /// hyper-threads each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numa_cores: Vec<Vec<Vec<u32>>>,
    /// Main memory in bytes.
    pub mem_bytes: Option<u64>,
    /// The memory in bytes that a control group allows a job, if it is less than `mem_bytes`.
    pub mem_limit_bytes: Option<u64>,
    /// Free space in bytes in /dev/shm, where graph servers keep their data.
    pub shm_free_bytes: Option<u64>,
    /// Free space for the workspace, in bytes.
    pub free_bytes: Option<u64>,
    /// The number of NVIDIA GPUs that a job may use.
    pub gpus: Option<u32>,
    /// What nvidia-smi reports about each of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_cards: Vec<GpuCard>,
    /// The hard limit on open files (`ulimit -Hn`).
    pub nofile: Option<u64>,
    /// A port on which nothing listens, for torch's rendezvous.
    pub master_port: Option<u16>,
    /// Further ports on which nothing listens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub free_ports: Vec<u16>,
    /// The user's home directory.
    pub home: Option<String>,
    /// The type of the workspace's file system, such as `ext4` or `nfs4`.
    pub workspace_fs: Option<String>,
    /// The version of Python.
    pub python: Option<String>,
    /// The path of the interpreter itself.
    pub python_path: Option<String>,
    /// The directory of the requested environment, a venv or one of conda's.
    pub prefix: Option<String>,
    /// The name of the environment in conda, if it is one of conda's.
    pub conda_env: Option<String>,
    /// The value of PATH, without that environment.
    pub path: Option<String>,
    /// The version of DGL.
    pub dgl: Option<String>,
    /// The version of PyTorch.
    pub torch: Option<String>,
}

impl Facts {
    pub fn usable_mem_bytes(&self) -> Option<u64> {
        let limit = self.mem_limit_bytes.unwrap_or(u64::MAX);
        self.mem_bytes.map(|bytes| bytes.min(limit))
    }
}

/// An NVIDIA GPU, as nvidia-smi reports it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GpuCard {
    /// Its number on the host.
    pub index: u32,
    /// Its memory in bytes; absent if it does not report that, for instance because it is divided.
    pub mem_bytes: Option<u64>,
    /// Its free memory in bytes.
    pub mem_free_bytes: Option<u64>,
    /// The number of its parts (MIG instances), each a separate device for CUDA; 0 if it is not
    /// divided.
    #[serde(skip_serializing_if = "is_whole")]
    pub parts: u32,
    /// The visible processes that compute on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<GpuUser>,
}

/// serde passes a reference.
fn is_whole(parts: &u32) -> bool {
    *parts == 0
}

/// A process that computes on a GPU.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GpuUser {
    /// Its process id according to the driver; it is not valid here if the process is in another
    /// container.
    pub pid: u32,
    /// Its user; absent if the process is not visible.
    pub user: Option<String>,
    /// Its command line, truncated.
    pub command: Option<String>,
    /// The job that it belongs to.
    pub job: Option<String>,
    /// The GPU memory that it uses, in bytes; absent if the driver does not report that.
    pub mem_used_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_logins_are_plain_words() {
        let read = |field: &str, word: &str| {
            let record = serde_json::json!({"id": 0, "of": 1, "ip": "10.0.0.1", "port": 30050,
                field: word});
            serde_json::from_value::<Host>(record).map_err(|error| error.to_string())
        };
        for field in ["name", "login"] {
            for word in ["gpu-1.lab", "ann@n_1", "ssh://ann@n1:2222", "fe80::1%eth0"] {
                assert_eq!(read(field, word).unwrap().target(), word, "{field}");
            }
            for word in [
                "",
                "-oProxyCommand=reboot",
                "n1;reboot",
                "$(reboot)",
                "n1'",
                "n 1",
                "n1\n",
                "{id}",
                "nö",
            ] {
                let refused = read(field, word).unwrap_err();
                assert!(refused.contains("is no host: a shell"), "{refused}");
            }
        }
        let of_later = serde_json::json!({"id": 0, "of": 1, "ip": "10.0.0.1", "port": 30050,
            "name": null});
        assert_eq!(serde_json::from_value::<Host>(of_later).unwrap().name, None);
    }
}
