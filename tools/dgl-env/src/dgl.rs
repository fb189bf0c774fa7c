//! What DGL wants of its graph servers and trainers: variables, as many hosts as partitions, equal
//! numbers of trainers, and versions that can do what is planned.

use crate::args::Args;
use crate::check::is_within;
use crate::paths::JobPaths;
use record::error::Fault;
use record::{Graph, Host, Role};

/// DGL counts its clients in 32 bits.
const MAX_CLIENTS: u64 = i32::MAX as u64;

/// The variables that all processes of a program share; none if it is not DGL's. DGL_SERVER_ID is
/// the rank of a server.
pub fn variables(
    role: Role,
    args: &Args,
    paths: &JobPaths,
    num_clients: u64,
) -> Vec<(&'static str, String)> {
    let own = match role {
        Role::Server => vec![
            ("DGL_ROLE", "server".to_owned()),
            ("DGL_KEEP_ALIVE", u8::from(args.keep_alive).to_string()),
        ],
        Role::Trainer => vec![
            ("DGL_ROLE", "client".to_owned()),
            ("DGL_DIST_MODE", "distributed".to_owned()),
        ],
        _ => return Vec::new(),
    };
    // the hosts of persistent servers number the groups of their trainers
    let has_group = role == Role::Trainer && args.server_name.is_none();
    let group = has_group.then(|| ("DGL_GROUP_ID", "0".to_owned()));
    let part_config = paths.part_config.clone().unwrap_or_default();
    let of_both = [
        ("DGL_NUM_CLIENT", num_clients.to_string()),
        ("DGL_NUM_SERVER", args.num_servers.to_string()),
        ("DGL_NUM_SAMPLER", args.num_samplers.to_string()),
        ("DGL_CONF_PATH", part_config),
        ("DGL_IP_CONFIG", paths.ip_config.clone()),
        ("DGL_GRAPH_FORMAT", args.graph_format.clone()),
    ];
    of_both.into_iter().chain(own).chain(group).collect()
}

/// The fault of unequal numbers of partitions and hosts.
pub fn parts(parts: u64, num_hosts: usize, location: &str, fix: &str) -> Option<Fault> {
    record::unequal_parts(parts, num_hosts, 1)
        .map(|problem| Fault::data(location, problem).fix(fix))
}

/// Faults of a graph record with another number of partitions, and of persistent servers.
pub fn faults(args: &Args, hosts: &[Host], graph: Option<&Graph>) -> Vec<Fault> {
    if !args.is_dgl() {
        return Vec::new();
    }
    let fix = "create the stream again; part-map --parts-per-host is for workers and programs";
    let of_graph = graph.and_then(|graph| {
        let parts_of_record = graph.num_parts.into();
        parts(parts_of_record, hosts.len(), "stdin: graph record", fix)
    });
    let faults = [of_graph, persistent_flags(args), persistent(args, hosts)];
    faults.into_iter().flatten().collect()
}

pub fn too_many_clients(num_clients: u64) -> Option<Fault> {
    let problem =
        format!("{num_clients} trainers and samplers are more than DGL can count ({MAX_CLIENTS})");
    (num_clients > MAX_CLIENTS)
        .then(|| Fault::data("stdin", problem).fix("use fewer trainers, samplers or hosts"))
}

fn persistent_flags(args: &Args) -> Option<Fault> {
    let name = args.server_name.as_ref()?;
    let (servers, trainers) = (args.starts(Role::Server), args.starts(Role::Trainer));
    let (flag, problem) = match (servers, trainers, args.keep_alive) {
        (true, true, _) => (
            "--server-name",
            "persistent graph servers and their trainers are separate jobs",
        ),
        (true, false, false) => (
            "--server-name",
            "only makes sense with --keep-alive if servers are started",
        ),
        (false, _, true) => ("--keep-alive", "is for graph servers, and none are started"),
        _ => return None,
    };
    let fix = format!(
        "start the servers, and leave them running: … | dgl-env --role server --keep-alive \
         --server-name {name} … | dgl-spawn --job {name}; then each group of trainers: … | dgl-env \
         --role trainer --server-name {name} … | dgl-spawn"
    );
    Some(Fault::usage(flag, problem).fix(fix))
}

/// The fault of a DGL that does not know persistent servers: 0.8 to 1.1 do, and later ones do not
/// read DGL_KEEP_ALIVE.
fn persistent(args: &Args, hosts: &[Host]) -> Option<Fault> {
    let cannot = |host: &&Host| {
        is_within(&host.facts.dgl, ..(0, 8, 0)) || is_within(&host.facts.dgl, (2, 0, 0)..)
    };
    let mut hosts = hosts.iter().filter(|_| args.server_name.is_some());
    let host = hosts.find(cannot)?;
    let dgl = host.facts.dgl.as_deref().unwrap_or_default();
    let problem = format!("DGL {dgl} does not know persistent servers: 0.8 to 1.1 do");
    let fix = "leave out --keep-alive and --server-name: servers then start with each job";
    Some(Fault::data(host.location(), problem).fix(fix))
}

/// What the user should know although it is no error. `trainers` has each host's number.
pub fn warnings(args: &Args, hosts: &[Host], trainers: &[u32]) -> Vec<Option<String>> {
    if args.is_dgl() {
        vec![unequal(trainers), samplers(hosts, args.num_samplers)]
    } else {
        Vec::new()
    }
}

/// Warns about unequal numbers of trainers. DGL divides their number by that of partitions and
/// takes the result for each host's (seen with 1.0.4; from 0.7 on it refuses, but only with
/// force_even).
fn unequal(trainers: &[u32]) -> Option<String> {
    if trainers.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    let (total, parts) = (trainers.iter().sum::<u32>(), trainers.len());
    let refuse = match total as usize % parts {
        0 => String::new(),
        _ => format!("refuse {total} trainers for {parts} partitions, or "),
    };
    Some(format!(
        "hosts have unequal numbers of trainers, but DGL's node_split, edge_split and sparse \
         optimizers assume equal ones: they {refuse}give some nodes to several trainers and \
         others to none; split the nodes in the script, by RANK and WORLD_SIZE"
    ))
}

/// Warns about samplers of DGL 0.6 under Python 3.8 and later, which it does not support; its
/// launch.py takes 0 in their place.
fn samplers(hosts: &[Host], num_samplers: u32) -> Option<String> {
    let has_none = |host: &&Host| {
        is_within(&host.facts.dgl, (0, 6, 1)..(0, 7, 0))
            && is_within(&host.facts.python, (3, 8, 0)..)
    };
    let host = hosts.iter().find(has_none).filter(|_| num_samplers > 0)?;
    Some(format!(
        "DGL 0.6.1 does not support samplers under Python 3.8 and later, which {} has; use \
         --num-samplers 0",
        host.location()
    ))
}
