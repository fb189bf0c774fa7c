//! Checks what can be known before a process is started: flags, records, which anyone may have
//! edited, and the installed software.

use crate::args::{Args, ServerThreads};
use crate::command::UserCommand;
use crate::environment::UserEnv;
use crate::placeholders::{Fact, Placeholder, Template};
use record::error::Fault;
use record::python::{Version, version};
use record::term;
use record::{Facts, Graph, Host, Role};
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::ops::RangeBounds;

/// The longest name of a network interface in bytes (Linux, IFNAMSIZ).
const MAX_IFACE: usize = 15;

/// DGL counts its clients in 32 bits.
const MAX_CLIENTS: u64 = i32::MAX as u64;

/// Faults of flags that cannot be combined with each other. A flag that only repeats its default
/// does no harm.
#[expect(
    clippy::too_many_lines,
    reason = "it is a table of checks that do not depend on one another"
)]
pub fn flags(args: &Args, env: &UserEnv, placeholders: &BTreeSet<Placeholder>) -> Vec<Fault> {
    const NO_GRAPH: &str = "is not for workers";
    const LEAVE_OUT: &str = "leave it out: workers are plain processes, without graph servers";
    let [servers, trainers] = [Role::Server, Role::Trainer].map(|role| args.plans(role));
    let workers = args.plans_plain();
    let no_graph = workers && !servers && !trainers;
    let is_named_port = |one: &Placeholder| matches!(one, Placeholder::Own(Fact::Port(_)));
    let chooses_port = args.server_name.is_some() && args.master_port.is_none();
    // the processes would read another value than the words have
    let is_twofold = |name: &str, fact: Fact| {
        let placeholder = Placeholder::Own(fact);
        let sets_other = |(other, value): &(String, Template)| {
            other == name && value.placeholders().all(|one| *one != placeholder)
        };
        placeholders.contains(&placeholder) && env.clients().any(sets_other)
    };
    let table = [
        (
            is_twofold("MASTER_PORT", Fact::MasterPort),
            "{master_port}",
            "is another port than the MASTER_PORT that is set",
            "say --master-port PORT in place of MASTER_PORT",
        ),
        (
            is_twofold("MASTER_ADDR", Fact::MasterAddr),
            "{master_addr}",
            "is another address than the MASTER_ADDR that is set",
            "leave out one of them; the first of the hosts is the one where torch meets",
        ),
        (
            workers && !no_graph,
            "--role",
            "worker does not go together with server and trainer",
            "plan them in two pipelines",
        ),
        (
            !workers && args.num_trainers.is_none(),
            "--num-trainers",
            "is missing: servers too must know how many clients will come",
            "give the number of trainers a host",
        ),
        (
            workers && !env.server.is_empty(),
            "--server-env",
            NO_GRAPH,
            "say --trainer-env, or --env",
        ),
        (
            no_graph && args.num_samplers != 0,
            "--num-samplers",
            NO_GRAPH,
            LEAVE_OUT,
        ),
        (
            no_graph && args.num_servers != 1,
            "--num-servers",
            NO_GRAPH,
            LEAVE_OUT,
        ),
        (
            no_graph && args.num_server_threads != ServerThreads::Number(1),
            "--num-server-threads",
            NO_GRAPH,
            LEAVE_OUT,
        ),
        (
            no_graph && args.graph_format != "csc",
            "--graph-format",
            NO_GRAPH,
            LEAVE_OUT,
        ),
        (
            workers && args.server_name.is_some(),
            "--server-name",
            NO_GRAPH,
            "leave it out: graph servers and trainers have one",
        ),
        (
            servers && args.server_name.is_some() && !args.keep_alive,
            "--server-name",
            "names graph servers that are to be started, and would not stay",
            "say --keep-alive too; or --role trainer, where they run already",
        ),
        (
            !servers && args.keep_alive,
            "--keep-alive",
            "is for graph servers, and none are started",
            "leave it out, or leave out --role",
        ),
        (
            chooses_port && placeholders.contains(&Placeholder::Own(Fact::MasterPort)),
            "{master_port}",
            "is not known yet: with --server-name dgl-spawn chooses it",
            "have the script read MASTER_PORT, or say --master-port",
        ),
        (
            args.server_name.is_some() && placeholders.iter().any(is_named_port),
            "{port:NAME}",
            "would be the same for all groups of trainers of these servers",
            "give each group a port of its own, as a number",
        ),
        (
            !workers && args.service,
            "--service",
            "is for programs; graph servers end with their trainers as they are",
            "leave it out, or name the program with --program",
        ),
        (
            !workers && !args.on.is_empty(),
            "--on",
            "is for programs; DGL's servers and trainers run on every host of ip_config",
            "leave it out, or list other hosts in ip_config",
        ),
    ];
    table
        .into_iter()
        .filter(|(is_wrong, ..)| *is_wrong)
        .map(|(_, flag, problem, fix)| Fault::usage(flag, problem).fix(fix))
        .collect()
}

/// The fault of a command that starts a launcher itself, or of one without a place for the local
/// rank. `counts` has the number of trainers, or workers, on each host.
pub fn command(
    args: &Args,
    hosts: &[Host],
    counts: &[u32],
    command: &UserCommand,
) -> Option<Fault> {
    let workers = args.plans_plain().then_some(counts);
    let is_shell = matches!(command, UserCommand::Shell(_));
    let started = command.launcher();
    let launcher = started.and_then(|launcher| launcher.fault(workers, hosts, is_shell));
    let has_rank = args.local_rank_arg.is_some() && args.client_role().is_some();
    launcher.or_else(|| match has_rank {
        true => command.with_local_rank("--local_rank", 0).err(),
        false => None,
    })
}

/// Faults of each host record, by itself and compared with the others.
pub fn hosts(hosts: &[Host], num_servers: u32) -> Vec<Fault> {
    const ANEW: &str = "make the stream anew, from ipconf-check on";
    const PROBE: &str = "run host-probe again, or take the fact out of the record";
    let mut faults = Vec::new();
    let mut seen: HashMap<Ipv4Addr, u32> = HashMap::new();
    for host in hosts {
        let (ip, port) = (host.ip.0, host.port);
        let mut check = |is_wrong: bool, problem: String, fix: &str| {
            if is_wrong {
                faults.push(Fault::data(host.location(), problem).fix(fix));
            }
        };
        if let Some(other) = seen.insert(ip, host.id) {
            let problem =
                format!("has the address of host {other}; DGL tells machines by their address");
            check(true, problem, ANEW);
        }
        check(
            ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast(),
            format!("{ip} is not a host's address"),
            ANEW,
        );
        check(
            ip.is_loopback() && hosts.len() > 1,
            format!("the other hosts cannot reach {ip}"),
            ANEW,
        );
        check(
            port == 0,
            "port 0: DGL's servers need one of their own".to_owned(),
            "give a port from 1 on in ip_config",
        );
        check(
            u32::from(port) + num_servers - 1 > 65535,
            format!("{num_servers} servers from port {port} on go beyond 65535"),
            "take a lower port in ip_config",
        );
        for problem in facts_problems(&host.facts) {
            check(true, problem, PROBE);
        }
    }
    faults
}

fn facts_problems(facts: &Facts) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, is_zero) in [
        ("cpus", facts.cpus == Some(0)),
        ("master_port", facts.master_port == Some(0)),
    ] {
        problems.extend(is_zero.then(|| format!("{name} is 0")));
    }
    if let Some(iface) = facts.iface.as_deref().filter(|name| !is_iface(name)) {
        problems.push(format!("iface {iface:?} is not a network interface's name"));
    }
    for (name, value) in [
        ("prefix", &facts.prefix),
        ("python_path", &facts.python_path),
    ] {
        let path = value.as_deref().unwrap_or("/");
        if !path.starts_with('/') || path.contains('\0') {
            problems.push(format!("{name} {path:?} is not an absolute path"));
        }
    }
    for (name, value) in [("path", &facts.path), ("conda_env", &facts.conda_env)] {
        let has_nul = value.as_deref().is_some_and(|value| value.contains('\0'));
        problems.extend(has_nul.then(|| format!("{name} has a NUL byte in it")));
    }
    problems
}

/// Whether Linux accepts a name for a network interface. A comma would make two names of one in
/// GLOO_SOCKET_IFNAME.
fn is_iface(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_IFACE
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ',')
}

/// The fault of a number of partitions that differs from the number of hosts.
pub fn parts(parts: u64, num_hosts: usize, location: &str, fix: &str) -> Option<Fault> {
    record::unequal_parts(parts, num_hosts, 1)
        .map(|problem| Fault::data(location, problem).fix(fix))
}

/// The fault of a graph record with another number of partitions. Workers may read several on each
/// host.
pub fn parts_of_graph(args: &Args, graph: Option<&Graph>, num_hosts: usize) -> Option<Fault> {
    let fix = "make the stream anew; part-map --parts-per-host is for workers and programs";
    let graph = graph.filter(|_| !args.plans_plain())?;
    let parts_of_record = graph.num_parts.into();
    parts(parts_of_record, num_hosts, "stdin: graph record", fix)
}

/// The fault of more trainers and samplers than DGL can count.
pub fn clients(num_clients: u64) -> Option<Fault> {
    let problem =
        format!("{num_clients} trainers and samplers are more than DGL can count ({MAX_CLIENTS})");
    (num_clients > MAX_CLIENTS)
        .then(|| Fault::data("stdin", problem).fix("take fewer trainers, samplers or hosts"))
}

/// Faults of the software that host-probe found on the hosts: a DGL that does not know servers that
/// stay (those from 0.8 to 1.1 do, and later ones do not read DGL_KEEP_ALIVE), and an environment
/// that does not have the Python that the command names.
pub fn software(args: &Args, hosts: &[Host], command: &UserCommand) -> Vec<Fault> {
    let old_dgl = |host: &&Host| {
        is_within(&host.facts.dgl, ..(0, 8, 0)) || is_within(&host.facts.dgl, (2, 0, 0)..)
    };
    let servers = hosts.iter().find(old_dgl).map(|host| {
        let dgl = host.facts.dgl.as_deref().unwrap_or_default();
        let problem = format!("DGL {dgl} does not know persistent servers: 0.8 to 1.1 do");
        Fault::data(host.location(), problem)
            .fix("leave out --keep-alive and --server-name: servers then start with each job")
    });
    servers
        .filter(|_| args.server_name.is_some())
        .into_iter()
        .chain(interpreter(hosts, command))
        .collect()
}

/// The fault of an environment of host-probe's that does not have the Python that the command
/// names.
fn interpreter(hosts: &[Host], command: &UserCommand) -> Option<Fault> {
    let wanted = command.python_version()?;
    let has_it = |version: &str| {
        wanted
            .split('.')
            .zip(version.split('.'))
            .all(|(wanted, is)| wanted.is_empty() || wanted == is)
    };
    hosts.iter().find_map(|host| {
        let (prefix, version) = (host.facts.prefix.as_ref()?, host.facts.python.as_ref()?);
        let location = host.location();
        let problem = format!(
            "python{wanted} is not what {location} has in {prefix}: that is Python {version}"
        );
        (!has_it(version)).then(|| {
            Fault::data("COMMAND", problem)
                .fix("say python3, or host-probe --conda or --venv with another environment")
        })
    })
}

/// A warning if the torch of a host is not known, because the spelling of its option is not known
/// either.
pub fn unknown_torch(hosts: &[Host]) -> Option<String> {
    let host = hosts
        .iter()
        .find(|host| !is_within(&host.facts.torch, ..))?;
    Some(format!(
        "the torch of {} is not known, so its scripts get --local_rank, as before torch 2.0; put \
         host-probe before dgl-env, or say --local-rank-arg=NAME",
        host.location()
    ))
}

/// A warning about more processes than GPUs on a host that has some: several would share one, or
/// find none.
pub fn more_than_gpus(hosts: &[Host], counts: &[u32]) -> Option<String> {
    let too_few = |(host, count): (&Host, &u32)| {
        let gpus = host.facts.gpus.filter(|gpus| (1..*count).contains(gpus))?;
        Some((host.location(), gpus, *count))
    };
    let mut found = hosts.iter().zip(counts).filter_map(too_few);
    let (location, gpus, count) = found.next()?;
    let others = match found.count() {
        0 => String::new(),
        1 => ", and 1 more host too few".to_owned(),
        others => format!(", and {others} more hosts too few"),
    };
    Some(format!(
        "{location} has {} for {count} processes{others}: a script that takes the GPU of its \
         LOCAL_RANK fails; `gpus` in place of the number takes as many as there are",
        term::count(gpus.into(), "GPU")
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
    let has_none = |host: &&Host| {
        is_within(&host.facts.dgl, (0, 6, 1)..(0, 7, 0))
            && is_within(&host.facts.python, (3, 8, 0)..)
    };
    let host = hosts.iter().find(has_none).filter(|_| num_samplers > 0)?;
    Some(format!(
        "DGL 0.6.1 does not support samplers under Python 3.8 and later, which {} has; say \
         --num-samplers 0",
        host.location()
    ))
}

/// Whether a version is known and within these.
pub fn is_within(fact: &Option<String>, versions: impl RangeBounds<Version>) -> bool {
    fact.as_deref()
        .and_then(version)
        .is_some_and(|version| versions.contains(&version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_version_in_the_name_of_the_interpreter_counts() {
        let mut host = Host::default();
        (host.facts.python, host.facts.prefix) = (Some("3.11.2".into()), Some("/v".into()));
        let warning = |host: &Host, word: &str| {
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
            assert_eq!(warning(&host, word), None, "{word}");
        }
        for word in ["python2", "python3.1", "python3.12"] {
            let warning = warning(&host, word).unwrap();
            assert!(
                warning.starts_with(&format!(
                    "COMMAND: {word} is not what host 0 (0.0.0.0) has in \
                    /v: that is Python 3.11.2\n"
                )),
                "{warning}"
            );
        }
        host.facts.prefix = None;
        assert_eq!(warning(&host, "python3.12"), None, "PATH finds it or not");
    }

    fn faults_of(given: &str, host: &Host) -> String {
        let line = format!("dgl-env {given} -- python3 t.py");
        let args = Args::parse_from(line.split_whitespace());
        let command = args.command().unwrap();
        let env = UserEnv::new(&args, &|_| None).unwrap();
        let mut faults = flags(&args, &env, &BTreeSet::new());
        faults.extend(software(&args, std::slice::from_ref(host), &command));
        let problems = faults.into_iter().map(|fault| fault.problem);
        problems.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn persistent_servers_need_a_dgl_that_knows_them() {
        let wrong = "DGL 2.1.0 does not know persistent servers: 0.8 to 1.1 do";
        let table = [
            ("", "2.1.0", ""),
            ("--keep-alive --server-name g", "1.0.4", ""),
            ("--keep-alive --server-name g", "unknown", ""),
            ("--keep-alive --server-name g --role server", "0.8.0", ""),
            ("--server-name g --role trainer", "1.1.3", ""),
            ("--keep-alive --server-name g", "2.1.0", wrong),
            ("--server-name g --role trainer", "2.1.0", wrong),
            (
                "--keep-alive --server-name g",
                "0.7.2",
                "DGL 0.7.2 does not know persistent servers: 0.8 to 1.1 do",
            ),
            (
                "--server-name g",
                "1.0.4",
                "names graph servers that are to be started, and would not stay",
            ),
            (
                "--keep-alive --server-name g --role trainer",
                "1.0.4",
                "is for graph servers, and none are started",
            ),
            (
                "--server-name g --role worker",
                "1.0.4",
                "is not for workers",
            ),
        ];
        for (flags, dgl, wanted) in table {
            let mut host = Host::default();
            host.facts.dgl = Some(dgl.to_owned());
            let faults = faults_of(&format!("--num-trainers 1 {flags}"), &host);
            assert_eq!(faults, wanted, "{flags} {dgl}");
        }
    }

    #[test]
    fn what_dgl_makes_of_unequal_hosts() {
        let warning = |trainers: &[u32]| unequal(trainers).unwrap_or_default();
        assert_eq!(
            (warning(&[4]), warning(&[4, 4, 4])),
            (String::new(), String::new())
        );
        assert!(
            warning(&[8, 8, 4])
                .contains("they refuse 20 trainers for 3 partitions, or give some nodes")
        );
        assert!(warning(&[3, 1]).contains("they give some nodes"));
    }

    #[test]
    fn what_the_installed_versions_cannot_do() {
        let on = |python: &str, dgl: &str| {
            let mut host = Host::default();
            (host.facts.python, host.facts.dgl) = (Some(python.into()), Some(dgl.into()));
            [host]
        };
        let no_samplers =
            |python: &str, dgl: &str, count| samplers(&on(python, dgl), count).is_some();
        assert!(no_samplers("3.8.0", "0.6.1", 1) && !no_samplers("3.8.0", "0.6.1", 0));
        assert!(
            !no_samplers("3.7.9", "0.6.1", 1)
                && !no_samplers("3.8.0", "0.7.2", 1)
                && !no_samplers("3.8.0", "0.5.3", 1)
        );
    }
}
