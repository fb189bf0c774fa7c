//! What can be seen to be wrong before a process is started: in records, which anyone may have edited, and in the command.

use crate::args::Launcher;
use crate::command::UserCommand;
use crate::paths;
use common::error::Fault;
use common::record::{Graph, Host};
use std::collections::HashMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;

/// A network card's name is at most 15 bytes (Linux, IFNAMSIZ).
const MAX_IFACE: usize = 15;

/// Each host's record, for itself and beside the others.
pub fn hosts(hosts: &[Host], num_servers: u32) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen: HashMap<Ipv4Addr, u32> = HashMap::new();
    for host in hosts {
        let mut fault = |problem: String, fix: &str| faults.push(Fault::data(host.place(), problem).fix(fix));
        let ip = host.ip.0;
        let again = "make the stream anew, from ipconf-check on";
        if let Some(other) = seen.insert(ip, host.id) {
            fault(format!("has the address of host {other}; DGL tells machines by their address"), again);
        }
        if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
            fault(format!("{ip} is no host's address"), again);
        }
        if ip.is_loopback() && hosts.len() > 1 {
            fault(format!("the other hosts cannot reach {ip}"), again);
        }
        if host.port == 0 {
            fault("port 0: DGL's servers need one of their own".to_owned(), "give a port from 1 on in ip_config");
        }
        if u32::from(host.port) + num_servers - 1 > 65535 {
            fault(format!("{num_servers} servers from port {} on go beyond 65535", host.port), "take a lower port in ip_config");
        }
        let probe = "run host-probe again, or take the fact out of the record";
        let facts = &host.facts;
        if facts.cpus == Some(0) {
            fault("cpus is 0".to_owned(), probe);
        }
        if let Some(iface) = facts.iface.as_deref().filter(|name| !is_iface(name)) {
            fault(format!("iface {iface:?} is not a network card's name"), probe);
        }
        if facts.master_port == Some(0) {
            fault("master_port is 0".to_owned(), probe);
        }
    }
    faults
}

/// As Linux takes them; a comma would make two of one in GLOO_SOCKET_IFNAME.
fn is_iface(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_IFACE && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ',')
}

/// The graph's record beside those of the hosts.
pub fn graph(graph: &Graph, num_hosts: usize) -> Option<Fault> {
    let fault = parts(u64::from(graph.num_parts), num_hosts, "stdin: graph record".to_owned())?;
    Some(fault.fix("make the stream anew, from ipconf-check on"))
}

/// Partitions and hosts must be as many.
pub fn parts(parts: u64, num_hosts: usize, place: String) -> Option<Fault> {
    let problem = format!("{parts} partitions for {num_hosts} hosts; DGL needs as many hosts as partitions");
    (parts != num_hosts as u64).then(|| Fault::data(place, problem).fix("partition the graph again, or list as many hosts"))
}

/// Torch's rendezvous and the servers of host 0 each need their own port.
pub fn master_port(host: &Host, port: u16, num_servers: u32) -> Option<Fault> {
    let servers = u32::from(host.port)..u32::from(host.port) + num_servers;
    let problem = format!("the master port {port} is one of its servers' ({} to {})", servers.start, servers.end - 1);
    servers.contains(&u32::from(port)).then(|| Fault::data(host.place(), problem).fix("say --master-port PORT, another one"))
}

/// What the installed torch can do.
pub fn torch(hosts: &[Host], launcher: Launcher) -> Option<Fault> {
    let host = hosts.iter().find(|host| below(&host.facts.torch, (1, 9, 0))).filter(|_| launcher == Launcher::Torchrun)?;
    let problem = format!("torch {} has no torchrun: it came with 1.9", host.facts.torch.as_deref().unwrap_or_default());
    Some(Fault::data(host.place(), problem).fix("take --launcher torch-launch, or direct"))
}

/// A torch of before 2.0 under Python 3.11 or later: its launcher stumbles over its own default (`'NoneType' object has no attribute 'get'`).
pub fn redirects(hosts: &[Host], launcher: Launcher, launcher_args: &[OsString]) -> Option<String> {
    let given = launcher_args.iter().any(|arg| arg.to_str().is_some_and(|arg| arg.starts_with("--redirects")));
    if launcher == Launcher::Direct || given {
        return None;
    }
    let stumbles = |host: &&Host| at_least(&host.facts.python, (3, 11, 0)) && below(&host.facts.torch, (2, 0, 0));
    let host = hosts.iter().find(stumbles)?;
    let torch = host.facts.torch.as_deref().unwrap_or_default();
    Some(format!(
        "the launcher of torch {torch} fails under Python 3.11 and later, which {} has, without --launcher-arg=--redirects=1 \
         --launcher-arg=--tee=1",
        host.place()
    ))
}

/// DGL divides the number of trainers by that of partitions, and takes the result for each host's (seen with 1.0.4; the refusal is there
/// from 0.7 on, and only with force_even).
pub fn unequal(trainers: &[u32]) -> Option<String> {
    if trainers.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    let (total, parts) = (trainers.iter().sum::<u32>(), trainers.len());
    let refuse = match total as usize % parts {
        0 => String::new(),
        _ => format!("refuse {total} trainers for {parts} partitions, or "),
    };
    Some(format!(
        "hosts have unequal numbers of trainers, which DGL's node_split, edge_split and sparse optimizers take for equal: they {refuse}give \
         some nodes to several trainers and others to none; split the nodes in the script, by RANK and WORLD_SIZE"
    ))
}

/// DGL 0.6 has no samplers under Python 3.8 and later; its launch.py takes 0 in their place.
pub fn samplers(hosts: &[Host], num_samplers: u32) -> Option<String> {
    let dgl_0_6 = |host: &Host| at_least(&host.facts.dgl, (0, 6, 1)) && below(&host.facts.dgl, (0, 7, 0));
    let no_samplers = |host: &Host| dgl_0_6(host) && at_least(&host.facts.python, (3, 8, 0));
    let host = hosts.iter().find(|host| num_samplers > 0 && no_samplers(host))?;
    Some(format!("DGL 0.6.1 does not support samplers under Python 3.8 and later, which {} has; say --num-samplers 0", host.place()))
}

/// What the script's own options must agree with.
pub struct Job<'a> {
    /// The folder of the job.
    pub workspace: Option<&'a str>,
    /// DGL_CONF_PATH.
    pub part_config: &'a str,
    /// DGL_IP_CONFIG.
    pub ip_config: &'a str,
    /// The graph's name, where it is known.
    pub graph_name: Option<&'a str>,
    /// DGL_NUM_SAMPLER.
    pub num_samplers: u32,
    /// DGL_NUM_SERVER.
    pub num_servers: u32,
}

/// What the script is told that is not what DGL is told by the environment. A script's options may mean something else, so these are
/// warnings.
pub fn script(command: &UserCommand, job: &Job, hosts: &[Host]) -> Vec<String> {
    let args = command.script_args();
    let mut warnings = Vec::new();
    let mut differs = |names: &[&str], ours: &str, same: &dyn Fn(&str) -> bool, why: &str| {
        if let Some((name, theirs)) = option(&args, names).filter(|(_, theirs)| !same(theirs)) {
            warnings.push(format!("the script's {name} {theirs} is not {ours}: {why}"));
        }
    };
    let same_path = |ours: &str, theirs: &str| {
        let unseen = !command.stays() && !theirs.starts_with('/');
        unseen || paths::same(job.workspace, ours, theirs)
    };
    let why = "trainers read the script's, servers the other";
    differs(&["ip_config"], job.ip_config, &|theirs| same_path(job.ip_config, theirs), why);
    differs(&["part_config", "conf_path"], job.part_config, &|theirs| same_path(job.part_config, theirs), why);
    if let Some(name) = job.graph_name {
        differs(&["graph_name"], name, &|theirs| theirs == name, "trainers look for a graph of the name that the partition config has");
    }
    // to 0.6.0 the script's initialize() says how many; later the environment does
    if hosts.iter().any(|host| !at_least(&host.facts.dgl, (0, 6, 1))) {
        let why = "DGL to 0.6.0 believes the script, and the job waits for ever for processes that do not come";
        for (name, flag, count) in [("num_workers", "--num-samplers", job.num_samplers), ("num_servers", "--num-servers", job.num_servers)]
        {
            differs(&[name], &format!("{flag} {count}"), &|theirs| theirs.parse() == Ok(count), why);
        }
    }
    warnings
}

/// The last of an option's values, as argparse takes it, with the option as it was written: `--ip_config X`, `--ip-config=X`.
fn option<'a>(args: &'a [Option<String>], names: &[&str]) -> Option<(&'a str, &'a str)> {
    let named = |word: &str| word.strip_prefix("--").is_some_and(|name| names.contains(&name.replace('-', "_").as_str()));
    let mut found = None;
    for (at, word) in args.iter().enumerate() {
        let Some(word) = word else { continue };
        match word.split_once('=') {
            Some((name, value)) if named(name) => found = Some((name, value)),
            None if named(word) => found = args.get(at + 1).and_then(|value| Some((word.as_str(), value.as_deref()?))),
            _ => {}
        }
    }
    found
}

/// Whether a version is known, and that one or later.
fn at_least(fact: &Option<String>, least: Version) -> bool {
    fact.as_deref().and_then(version).is_some_and(|version| version >= least)
}

/// Whether a version is known, and before that one.
fn below(fact: &Option<String>, limit: Version) -> bool {
    fact.as_deref().and_then(version).is_some_and(|version| version < limit)
}

type Version = (u32, u32, u32);

/// `1.0.4`, `0.6.0post1`, `1.13.0+cu117`; not `unknown`.
fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    Some((numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let table = [
            ("1.0.4", Some((1, 0, 4))),
            ("0.6.0post1", Some((0, 6, 0))),
            ("1.13.0+cu117", Some((1, 13, 0))),
            ("2.4", Some((2, 4, 0))),
            ("2.4.dev3", Some((2, 4, 0))),
            ("unknown", None),
            ("", None),
            ("99999999999.1", None),
        ];
        for (text, parsed) in table {
            assert_eq!(version(text), parsed, "{text}");
        }
    }

    #[test]
    fn what_dgl_makes_of_unequal_hosts() {
        let told = |trainers: &[u32]| unequal(trainers).unwrap_or_default();
        assert_eq!((told(&[4]), told(&[4, 4, 4])), (String::new(), String::new()));
        assert!(told(&[8, 8, 4]).contains("they refuse 20 trainers for 3 partitions, or give some nodes"));
        assert!(told(&[3, 1]).contains("they give some nodes"));
    }

    #[test]
    fn what_the_installed_versions_cannot_do() {
        let on = |python: &str, torch: &str, dgl: &str| {
            let mut host = Host::default();
            (host.facts.python, host.facts.torch, host.facts.dgl) = (Some(python.into()), Some(torch.into()), Some(dgl.into()));
            [host]
        };
        let refused = |torch_version: &str, launcher| torch(&on("3.8.1", torch_version, "0.6.1"), launcher).is_some();
        assert!(
            refused("1.8.2+cu111", Launcher::Torchrun) && !refused("1.8.2", Launcher::TorchLaunch) && !refused("1.8.2", Launcher::Direct)
        );
        assert!(!refused("1.9.0", Launcher::Torchrun) && !refused("unknown", Launcher::Torchrun));
        let stumbles = |python: &str, torch: &str, launcher, args: &[&str]| {
            redirects(&on(python, torch, "1.0.4"), launcher, &args.iter().map(OsString::from).collect::<Vec<_>>()).is_some()
        };
        assert!(stumbles("3.11.2", "1.13.0", Launcher::Torchrun, &[]) && stumbles("3.11.2", "1.13.0", Launcher::TorchLaunch, &["--tee=1"]));
        assert!(!stumbles("3.11.2", "1.13.0", Launcher::Torchrun, &["--redirects=1", "--tee=1"]));
        assert!(!stumbles("3.11.2", "1.13.0", Launcher::Direct, &[]) && !stumbles("3.11.2", "2.0.0", Launcher::Torchrun, &[]));
        assert!(!stumbles("3.10.9", "1.13.0", Launcher::Torchrun, &[]));
        let no_samplers = |python: &str, dgl: &str, count| samplers(&on(python, "1.9.1", dgl), count).is_some();
        assert!(no_samplers("3.8.0", "0.6.1", 1) && !no_samplers("3.8.0", "0.6.1", 0));
        assert!(!no_samplers("3.7.9", "0.6.1", 1) && !no_samplers("3.8.0", "0.7.2", 1) && !no_samplers("3.8.0", "0.5.3", 1));
    }

    fn warnings(command: &str, dgl: Option<&str>) -> String {
        let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        let command = match command.strip_prefix("sh: ") {
            Some(text) => UserCommand::Shell(text.to_owned()),
            None => UserCommand::Words(words),
        };
        let mut host = Host::default();
        host.facts.dgl = dgl.map(str::to_owned);
        let job = Job {
            workspace: Some("/ws"),
            part_config: "data/g.json",
            ip_config: "ip_config.txt",
            graph_name: Some("g"),
            num_samplers: 2,
            num_servers: 1,
        };
        script(&command, &job, &[host]).join("; ")
    }

    #[test]
    fn what_the_script_is_told_is_held_against_the_plan() {
        let fine = [
            "python3 t.py --ip_config ip_config.txt --part_config data/g.json --graph_name g --num_workers 2 --num_servers 1",
            "python3 t.py --ip-config=/ws/ip_config.txt --part-config ./data/g.json --graph-name=g",
            "python3 t.py --ip_config other.txt --ip_config ip_config.txt",
            "python3 t.py --ip_config",
            "python3 t.py --ip_configuration other.txt",
            "sh: python3 t.py --ip_config $IP --graph_name \"$G\"",
            "sh: cd code && python3 t.py --ip_config ../ip_config.txt",
            "sh: echo --graph_name h; python3 t.py",
            "sh: \"$PYTHON\" t.py --graph_name h",
        ];
        for command in fine {
            assert_eq!(warnings(command, None), "", "{command}");
        }
        let table = [
            ("python3 t.py --ip_config other.txt", "the script's --ip_config other.txt is not ip_config.txt: trainers read"),
            ("python3 t.py --part-config=g.json", "the script's --part-config g.json is not data/g.json"),
            ("python3 t.py --conf_path g.json", "the script's --conf_path g.json is not data/g.json"),
            ("python3 t.py --graph-name h", "the script's --graph-name h is not g"),
            ("python3 t.py --num_workers 4", "the script's --num_workers 4 is not --num-samplers 2: DGL to 0.6.0"),
            ("python3 t.py --num_servers=x", "the script's --num_servers x is not --num-servers 1"),
            ("./t.py --graph_name h", "--graph_name h"),
            ("numactl -N0 python3 -m t --graph_name h", "--graph_name h"),
            ("sh: x && python3 t.py --graph_name 'h i' >log", "--graph_name h i is not g"),
            ("sh: cd code && python3 t.py --ip_config /ip.txt", "--ip_config /ip.txt"),
        ];
        for (command, warning) in table {
            assert!(warnings(command, None).contains(warning), "{command}: {}", warnings(command, None));
        }
        let workers = "python3 t.py --num_workers 4";
        assert!(warnings(workers, Some("0.6.0post1")).contains("--num_workers"));
        assert_eq!(warnings(workers, Some("0.6.1")), "", "it reads the environment");
    }
}
