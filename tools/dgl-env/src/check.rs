//! Checks what can be known before a process is started: flags, records, which anyone may have
//! edited, and the installed software.

use crate::args::{Args, Launcher, RoleArg, ServerThreads};
use crate::command::UserCommand;
use crate::environment::UserEnv;
use crate::launchers::StartsLauncher;
use cli::counts::PerHost;
use record::error::Fault;
use record::python::{Version, version};
use record::{Graph, Host};
use std::collections::HashMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;

/// The longest name of a network interface in bytes (Linux, IFNAMSIZ).
const MAX_IFACE: usize = 15;

/// Faults of flags that cannot be combined with each other or with the command.
pub fn flags(args: &Args, trainers: bool, command: &UserCommand, env: &UserEnv) -> Vec<Fault> {
    let mut faults = of_roles(args, env);
    faults.extend(of_launchers(args));
    if args.launcher != Launcher::Direct {
        faults.extend(one_for_a_host(command, env));
    }
    if args.server_name.is_some() && args.master_port.is_none() {
        faults.extend(unknown_port(command, env));
    }
    faults.extend(of_command(args, trainers, command));
    faults
}

/// Faults of flags that do not fit the roles that are planned.
fn of_roles(args: &Args, env: &UserEnv) -> Vec<Fault> {
    let mut faults = Vec::new();
    let workers = args.role.contains(&RoleArg::Worker);
    if workers && args.role.iter().any(|role| *role != RoleArg::Worker) {
        faults.push(
            Fault::usage(
                "--role",
                "worker does not go together with server and trainer",
            )
            .fix("plan them in two pipelines"),
        );
    }
    if !workers && args.num_trainers.is_none() {
        let fault = Fault::usage(
            "--num-trainers",
            "is missing: servers too must know how many clients will come",
        );
        faults.push(fault.fix("give the number of trainers a host"));
    }
    if workers && args.role.iter().all(|role| *role == RoleArg::Worker) {
        faults.extend(not_for_workers(args));
    }
    if workers && !(env.server.is_empty() && env.trainer.is_empty()) {
        faults.push(
            Fault::usage("--server-env and --trainer-env", "are not for workers")
                .fix("say --worker-env, or --env"),
        );
    }
    if !workers {
        faults.extend(only_for_workers(args));
    }
    faults
}

/// Faults of flags that belong to another launcher.
fn of_launchers(args: &Args) -> Option<Fault> {
    let direct = args.launcher == Launcher::Direct;
    if direct && !args.launcher_arg.is_empty() {
        let problem = "is for --launcher torchrun and torch-launch";
        let fault = Fault::usage("--launcher-arg", problem);
        return Some(fault.fix("leave it out, or say which launcher"));
    }
    if !direct && args.local_rank_arg.is_some() {
        let problem = "is for --launcher direct; torch-launch gives it by itself";
        return Some(Fault::usage("--local-rank-arg", problem).fix("leave it out"));
    }
    None
}

/// Faults of texts that would differ between the processes of a host, all of which get the same
/// environment and command from torch's launcher.
fn one_for_a_host(command: &UserCommand, env: &UserEnv) -> Vec<Fault> {
    const OWN_NUMBERS: &str = "take --launcher direct, or have the script read LOCAL_RANK and RANK";
    let mut faults = Vec::new();
    for (option, variables) in [
        ("--trainer-env", &env.trainer),
        ("--worker-env", &env.worker),
    ] {
        let mut variables = variables.iter();
        if let Some((name, _)) = variables.find(|(_, value)| value.differs_on_a_host()) {
            let problem =
                format!("{name}: torch's launcher gives all processes of a host one environment");
            faults.push(Fault::usage(option, problem).fix(OWN_NUMBERS));
        }
    }
    if command.placeholders().any(|word| word.differs_on_a_host()) {
        let fault = Fault::usage(
            "COMMAND",
            "has {rank} or {local_rank}, and torch's launcher gives all processes of a host one \
             command",
        );
        faults.push(fault.fix(OWN_NUMBERS));
    }
    faults
}

/// The fault of a port that is used before dgl-spawn has chosen it.
fn unknown_port(command: &UserCommand, env: &UserEnv) -> Option<Fault> {
    let in_env = env.trainer.iter().chain(&env.server);
    let is_used = in_env
        .map(|(_, value)| value.has_master_port())
        .chain(command.placeholders().map(|word| word.has_master_port()))
        .any(|has_port| has_port);
    let problem = "is not known yet: with --server-name dgl-spawn chooses it";
    is_used.then(|| {
        Fault::usage("{master_port}", problem)
            .fix("have the script read MASTER_PORT, or say --master-port")
    })
}

/// Faults of a command that starts a launcher itself, or into which something has to be inserted
/// and cannot be.
fn of_command(args: &Args, trainers: bool, command: &UserCommand) -> Vec<Fault> {
    let direct = args.launcher == Launcher::Direct;
    let clients = trainers || args.role.contains(&RoleArg::Worker);
    let is_right = |launcher: &StartsLauncher| {
        !trainers && launcher.is_torchs() && direct && is_one_a_host(args)
    };
    let mut faults = Vec::new();
    if let Some(launcher) = command.launcher().filter(|launcher| !is_right(launcher)) {
        faults.push(launcher.refused());
    } else if !direct && clients {
        faults.extend(command.under_torch(&[]).err());
    }
    if direct && clients && args.local_rank_arg.is_some() {
        faults.extend(command.with_local_rank("--local_rank", 0).err());
    }
    faults
}

/// Whether at most one worker runs on a host, so that it may be torch's launcher itself.
fn is_one_a_host(args: &Args) -> bool {
    match &args.num_workers {
        None => true,
        Some(PerHost::Numbers(counts)) => counts.iter().all(|count| *count == 1),
        Some(PerHost::Gpus) => false,
    }
}

/// Faults of flags that concern graph servers and trainers. A flag that only repeats its default
/// does no harm.
fn not_for_workers(args: &Args) -> Vec<Fault> {
    const LEAVE_OUT: &str = "leave it out: workers are plain processes, without graph servers";
    let given = [
        (
            "--num-trainers",
            args.num_trainers.is_some(),
            "say --num-workers: how many workers a host has",
        ),
        ("--num-samplers", args.num_samplers != 0, LEAVE_OUT),
        ("--num-servers", args.num_servers != 1, LEAVE_OUT),
        (
            "--num-server-threads",
            args.num_server_threads != ServerThreads::Number(1),
            LEAVE_OUT,
        ),
        ("--graph-format", args.graph_format != "csc", LEAVE_OUT),
        ("--group-id", args.group_id != 0, LEAVE_OUT),
    ];
    let fault =
        |(flag, _, fix): &(&str, bool, &str)| Fault::usage(*flag, "is not for workers").fix(*fix);
    given
        .iter()
        .filter(|(_, given, _)| *given)
        .map(fault)
        .collect()
}

/// Faults of flags that concern workers.
fn only_for_workers(args: &Args) -> Vec<Fault> {
    let given = [
        ("--num-workers", args.num_workers.is_some()),
        ("--worker-env", !args.worker_env.is_empty()),
    ];
    let fault = |(flag, _): &(&'static str, bool)| {
        Fault::usage(*flag, "is for --role worker")
            .fix("say --role worker; samplers of a trainer are --num-samplers")
    };
    given
        .iter()
        .filter(|(_, given)| *given)
        .map(fault)
        .collect()
}

/// The fault of unequal numbers: torch's launcher expects as many processes on each host.
pub fn equal(option: &'static str, counts: &[u32], launcher: Launcher) -> Option<Fault> {
    if launcher == Launcher::Direct || counts.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    let problem = format!(
        "{}: torch's launcher supports one number for all hosts only",
        listed(counts)
    );
    Some(Fault::usage(option, problem).fix("take --launcher direct"))
}

/// A warning if the torch of a host is not known, because the spelling of its option is not known
/// either.
pub fn unknown_torch(hosts: &[Host]) -> Option<String> {
    let known = |host: &&Host| host.facts.torch.as_deref().and_then(version).is_some();
    let host = hosts.iter().find(|host| !known(host))?;
    Some(format!(
        "the torch of {} is not known, so its scripts get --local_rank, as before torch 2.0; put \
         host-probe before dgl-env, or say --local-rank-arg=NAME",
        host.place()
    ))
}

/// A warning about more processes than GPUs on a host that has some: several would share one, or
/// find none.
pub fn more_than_gpus(hosts: &[Host], counts: &[u32]) -> Option<String> {
    let too_many = |(host, count): &(&Host, &u32)| {
        host.facts
            .gpus
            .is_some_and(|gpus| gpus > 0 && gpus < **count)
    };
    let mut found = hosts.iter().zip(counts).filter(too_many);
    let (host, count) = found.next()?;
    let gpus = host.facts.gpus.unwrap_or_default();
    let others = match found.count() {
        0 => String::new(),
        1 => ", and 1 more host too few".to_owned(),
        others => format!(", and {others} more hosts too few"),
    };
    let cards = if gpus == 1 { "GPU" } else { "GPUs" };
    Some(format!(
        "{} has {gpus} {cards} for {count} processes{others}: a script that takes the GPU of its \
         LOCAL_RANK fails; `gpus` in place of the number takes as many as there are",
        host.place()
    ))
}

fn listed(counts: &[u32]) -> String {
    counts
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

#[expect(
    clippy::too_many_lines,
    reason = "it is a list of checks that do not depend on one another"
)]
/// Faults of each host record, by itself and compared with the others.
pub fn hosts(hosts: &[Host], num_servers: u32) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen: HashMap<Ipv4Addr, u32> = HashMap::new();
    for host in hosts {
        let mut fault =
            |problem: String, fix: &str| faults.push(Fault::data(host.place(), problem).fix(fix));
        let ip = host.ip.0;
        let again = "make the stream anew, from ipconf-check on";
        if let Some(other) = seen.insert(ip, host.id) {
            fault(
                format!("has the address of host {other}; DGL tells machines by their address"),
                again,
            );
        }
        if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
            fault(format!("{ip} is not a host's address"), again);
        }
        if ip.is_loopback() && hosts.len() > 1 {
            fault(format!("the other hosts cannot reach {ip}"), again);
        }
        if host.port == 0 {
            fault(
                "port 0: DGL's servers need one of their own".to_owned(),
                "give a port from 1 on in ip_config",
            );
        }
        if u32::from(host.port) + num_servers - 1 > 65535 {
            fault(
                format!(
                    "{num_servers} servers from port {} on go beyond 65535",
                    host.port
                ),
                "take a lower port in ip_config",
            );
        }
        let probe = "run host-probe again, or take the fact out of the record";
        let facts = &host.facts;
        if facts.cpus == Some(0) {
            fault("cpus is 0".to_owned(), probe);
        }
        if let Some(iface) = facts.iface.as_deref().filter(|name| !is_iface(name)) {
            fault(
                format!("iface {iface:?} is not a network interface's name"),
                probe,
            );
        }
        for (name, value) in [
            ("prefix", &facts.prefix),
            ("python_path", &facts.python_path),
        ] {
            if let Some(path) = value
                .as_deref()
                .filter(|path| !path.starts_with('/') || path.contains('\0'))
            {
                fault(format!("{name} {path:?} is not an absolute path"), probe);
            }
        }
        for (name, value) in [("path", &facts.path), ("conda_env", &facts.conda_env)] {
            if value.as_deref().is_some_and(|value| value.contains('\0')) {
                fault(format!("{name} has a NUL byte in it"), probe);
            }
        }
        if facts.master_port == Some(0) {
            fault("master_port is 0".to_owned(), probe);
        }
    }
    faults
}

/// Whether Linux accepts a name for a network interface. A comma would make two names of one in
/// GLOO_SOCKET_IFNAME.
fn is_iface(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_IFACE
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ',')
}

/// The fault of a graph record that does not match the hosts.
pub fn graph(graph: &Graph, num_hosts: usize) -> Option<Fault> {
    let fault = parts(
        u64::from(graph.num_parts),
        num_hosts,
        "stdin: graph record".to_owned(),
    )?;
    Some(fault.fix("make the stream anew, from ipconf-check on"))
}

/// The fault of a number of partitions that differs from the number of hosts.
pub fn parts(parts: u64, num_hosts: usize, place: String) -> Option<Fault> {
    let problem =
        format!("{parts} partitions for {num_hosts} hosts; DGL needs as many hosts as partitions");
    (parts != num_hosts as u64).then(|| {
        Fault::data(place, problem).fix("partition the graph again, or list as many hosts")
    })
}

/// The fault of a rendezvous port that is also one of the servers of host 0.
pub fn master_port(host: &Host, port: u16, num_servers: u32) -> Option<Fault> {
    let servers = u32::from(host.port)..u32::from(host.port) + num_servers;
    let problem = format!(
        "the master port {port} is one of its servers' ({} to {})",
        servers.start,
        servers.end - 1
    );
    servers
        .contains(&u32::from(port))
        .then(|| Fault::data(host.place(), problem).fix("say --master-port PORT, another one"))
}

/// The fault of servers that stay where they cannot: DGL knows them from 0.8 to 1.1, and later
/// versions do not read DGL_KEEP_ALIVE.
pub fn servers_that_stay(args: &Args, servers: bool, hosts: &[Host]) -> Option<Fault> {
    let name = args.server_name.as_ref()?;
    if args.role.contains(&RoleArg::Worker) {
        return Some(
            Fault::usage("--server-name", "is not for workers")
                .fix("leave it out: graph servers and trainers have one"),
        );
    }
    if servers && !args.keep_alive {
        let fault = Fault::usage(
            "--server-name",
            format!("graph servers {name} are to be started, and would not stay"),
        );
        return Some(fault.fix("say --keep-alive too; or --role trainer, where they run already"));
    }
    if !servers && args.keep_alive {
        return Some(
            Fault::usage("--keep-alive", "is for graph servers, and none are started")
                .fix("leave it out, or leave out --role"),
        );
    }
    let stays =
        |host: &Host| at_least(&host.facts.dgl, (0, 8, 0)) && below(&host.facts.dgl, (2, 0, 0));
    let host = hosts
        .iter()
        .find(|host| host.facts.dgl.as_deref().and_then(version).is_some() && !stays(host))?;
    let problem = format!(
        "DGL {} does not know persistent servers: 0.8 to 1.1 do",
        host.facts.dgl.as_deref().unwrap_or_default()
    );
    Some(
        Fault::data(host.place(), problem)
            .fix("leave out --keep-alive and --server-name: servers then start with each job"),
    )
}

/// The fault of an environment of host-probe's that does not have the Python that the command
/// names.
pub fn interpreter(hosts: &[Host], command: &UserCommand) -> Option<Fault> {
    let wanted = command.python_version()?;
    let has_it = |version: &str| {
        wanted
            .split('.')
            .zip(version.split('.'))
            .all(|(wanted, is)| wanted.is_empty() || wanted == is)
    };
    let of_host = |host: &'_ Host| {
        Some((
            host.place(),
            host.facts.prefix.clone()?,
            host.facts.python.clone()?,
        ))
    };
    let (place, prefix, version) = hosts
        .iter()
        .filter_map(of_host)
        .find(|(_, _, version)| !has_it(version))?;
    let fault = Fault::data(
        "COMMAND",
        format!("python{wanted} is not what {place} has in {prefix}: that is Python {version}"),
    );
    Some(fault.fix("say python3, or host-probe --conda or --venv with another environment"))
}

/// The fault of a torch that does not have the wanted launcher.
pub fn torch(hosts: &[Host], launcher: Launcher) -> Option<Fault> {
    let host = hosts
        .iter()
        .find(|host| below(&host.facts.torch, (1, 9, 0)))
        .filter(|_| launcher == Launcher::Torchrun)?;
    let problem = format!(
        "torch {} has no torchrun: it came with 1.9",
        host.facts.torch.as_deref().unwrap_or_default()
    );
    Some(Fault::data(host.place(), problem).fix("take --launcher torch-launch, or direct"))
}

/// A warning about a torch before 2.0 under Python 3.11 or later: its launcher fails with its own
/// default (`'NoneType' object has no attribute 'get'`).
pub fn redirects(hosts: &[Host], launcher: Launcher, launcher_args: &[OsString]) -> Option<String> {
    let given = launcher_args.iter().any(|arg| {
        arg.to_str()
            .is_some_and(|arg| arg.starts_with("--redirects"))
    });
    if launcher == Launcher::Direct || given {
        return None;
    }
    let stumbles = |host: &&Host| {
        at_least(&host.facts.python, (3, 11, 0)) && below(&host.facts.torch, (2, 0, 0))
    };
    let host = hosts.iter().find(stumbles)?;
    let torch = host.facts.torch.as_deref().unwrap_or_default();
    Some(format!(
        "the launcher of torch {torch} fails under Python 3.11 and later, which {} has, without \
         --launcher-arg=--redirects=1 \
         --launcher-arg=--tee=1",
        host.place()
    ))
}

/// A warning about unequal numbers of trainers. DGL divides the number of trainers by that of
/// partitions and takes the result for each host's (seen with 1.0.4; from 0.7 on it refuses, but
/// only with force_even).
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
        "hosts have unequal numbers of trainers, which DGL's node_split, edge_split and sparse \
         optimizers take for equal: they {refuse}give \
         some nodes to several trainers and others to none; split the nodes in the script, by \
         RANK and WORLD_SIZE"
    ))
}

/// A warning about samplers of DGL 0.6 under Python 3.8 and later, which it does not support; its
/// launch.py takes 0 in their place.
pub fn samplers(hosts: &[Host], num_samplers: u32) -> Option<String> {
    let dgl_0_6 =
        |host: &Host| at_least(&host.facts.dgl, (0, 6, 1)) && below(&host.facts.dgl, (0, 7, 0));
    let no_samplers = |host: &Host| dgl_0_6(host) && at_least(&host.facts.python, (3, 8, 0));
    let host = hosts
        .iter()
        .find(|host| num_samplers > 0 && no_samplers(host))?;
    Some(format!(
        "DGL 0.6.1 does not support samplers under Python 3.8 and later, which {} has; say \
         --num-samplers 0",
        host.place()
    ))
}

/// Whether a version is known and at least this one.
pub fn at_least(fact: &Option<String>, least: Version) -> bool {
    fact.as_deref()
        .and_then(version)
        .is_some_and(|version| version >= least)
}

/// Whether a version is known and before this one.
fn below(fact: &Option<String>, limit: Version) -> bool {
    fact.as_deref()
        .and_then(version)
        .is_some_and(|version| version < limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_in_the_name_of_the_interpreter_counts() {
        let mut host = Host::default();
        (host.facts.python, host.facts.prefix) = (Some("3.11.2".into()), Some("/v".into()));
        let told = |host: &Host, word: &str| {
            interpreter(
                &[Host::default(), host.clone()],
                &UserCommand::Words(vec![word.into(), "t.py".into()]),
            )
            .map(|fault| fault.to_string())
        };
        for word in [
            "python",
            "python3",
            "python3.11",
            "/usr/bin/python3.9",
            "run",
        ] {
            assert_eq!(told(&host, word), None, "{word}");
        }
        for word in ["python2", "python3.1", "python3.12"] {
            let told = told(&host, word).unwrap();
            assert!(
                told.starts_with(&format!(
                    "COMMAND: {word} is not what host 0 (0.0.0.0) has in \
                    /v: that is Python 3.11.2\n"
                )),
                "{told}"
            );
        }
        host.facts.prefix = None;
        assert_eq!(told(&host, "python3.12"), None, "PATH finds it or not");
    }

    #[test]
    fn who_knows_servers_that_stay() {
        use clap::Parser;
        let told = |flags: &str, dgl: &str| {
            let line = format!("dgl-env --num-trainers 1 {flags} -- python3 t.py");
            let args = Args::parse_from(line.split_whitespace());
            let servers = args.role.is_empty() || args.role.contains(&RoleArg::Server);
            let mut host = Host::default();
            host.facts.dgl = Some(dgl.to_owned());
            servers_that_stay(&args, servers, &[host]).map(|fault| fault.problem)
        };
        let wrong = "DGL 2.1.0 does not know persistent servers: 0.8 to 1.1 do";
        let table = [
            ("", "2.1.0", None),
            ("--keep-alive --server-name g", "1.0.4", None),
            ("--keep-alive --server-name g", "unknown", None),
            ("--keep-alive --server-name g --role server", "0.8.0", None),
            ("--server-name g --role trainer", "1.1.3", None),
            ("--keep-alive --server-name g", "2.1.0", Some(wrong)),
            ("--server-name g --role trainer", "2.1.0", Some(wrong)),
            (
                "--keep-alive --server-name g",
                "0.7.2",
                Some("DGL 0.7.2 does not know persistent servers: 0.8 to 1.1 do"),
            ),
            (
                "--server-name g",
                "1.0.4",
                Some("graph servers g are to be started, and would not stay"),
            ),
            (
                "--keep-alive --server-name g --role trainer",
                "1.0.4",
                Some("is for graph servers, and none are started"),
            ),
            (
                "--server-name g --role worker",
                "1.0.4",
                Some("is not for workers"),
            ),
        ];
        for (flags, dgl, wanted) in table {
            assert_eq!(told(flags, dgl).as_deref(), wanted, "{flags} {dgl}");
        }
    }

    #[test]
    fn what_dgl_makes_of_unequal_hosts() {
        let told = |trainers: &[u32]| unequal(trainers).unwrap_or_default();
        assert_eq!(
            (told(&[4]), told(&[4, 4, 4])),
            (String::new(), String::new())
        );
        assert!(
            told(&[8, 8, 4])
                .contains("they refuse 20 trainers for 3 partitions, or give some nodes")
        );
        assert!(told(&[3, 1]).contains("they give some nodes"));
    }

    #[test]
    fn what_the_installed_versions_cannot_do() {
        let on = |python: &str, torch: &str, dgl: &str| {
            let mut host = Host::default();
            (host.facts.python, host.facts.torch, host.facts.dgl) =
                (Some(python.into()), Some(torch.into()), Some(dgl.into()));
            [host]
        };
        let refused = |torch_version: &str, launcher| {
            torch(&on("3.8.1", torch_version, "0.6.1"), launcher).is_some()
        };
        assert!(
            refused("1.8.2+cu111", Launcher::Torchrun)
                && !refused("1.8.2", Launcher::TorchLaunch)
                && !refused("1.8.2", Launcher::Direct)
        );
        assert!(!refused("1.9.0", Launcher::Torchrun) && !refused("unknown", Launcher::Torchrun));
        let stumbles = |python: &str, torch: &str, launcher, args: &[&str]| {
            redirects(
                &on(python, torch, "1.0.4"),
                launcher,
                &args.iter().map(OsString::from).collect::<Vec<_>>(),
            )
            .is_some()
        };
        assert!(
            stumbles("3.11.2", "1.13.0", Launcher::Torchrun, &[])
                && stumbles("3.11.2", "1.13.0", Launcher::TorchLaunch, &["--tee=1"])
        );
        assert!(!stumbles(
            "3.11.2",
            "1.13.0",
            Launcher::Torchrun,
            &["--redirects=1", "--tee=1"]
        ));
        assert!(
            !stumbles("3.11.2", "1.13.0", Launcher::Direct, &[])
                && !stumbles("3.11.2", "2.0.0", Launcher::Torchrun, &[])
        );
        assert!(!stumbles("3.10.9", "1.13.0", Launcher::Torchrun, &[]));
        let no_samplers =
            |python: &str, dgl: &str, count| samplers(&on(python, "1.9.1", dgl), count).is_some();
        assert!(no_samplers("3.8.0", "0.6.1", 1) && !no_samplers("3.8.0", "0.6.1", 0));
        assert!(
            !no_samplers("3.7.9", "0.6.1", 1)
                && !no_samplers("3.8.0", "0.7.2", 1)
                && !no_samplers("3.8.0", "0.5.3", 1)
        );
    }
}
