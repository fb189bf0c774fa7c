//! Checks flags, records (which users may have edited) and the installed software before a process
//! is started.

use crate::args::{Args, ServerThreads};
use crate::command::UserCommand;
use crate::placeholders::Template;
use record::error::Fault;
use record::python::{Version, version};
use record::term;
use record::{ATTEMPT, Facts, Host};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::ops::RangeBounds;

/// In bytes (Linux, IFNAMSIZ).
const MAX_IFACE: usize = 15;

/// Faults of flags for programs which the plan does not have. A flag that only repeats its default
/// does no harm.
pub fn flags(args: &Args) -> Vec<Fault> {
    const NO_GRAPH: &str = "leave it out: workers are plain processes, without graph servers";
    let of_programs = [
        (
            "--service",
            args.service,
            "works only with --program; graph servers already stop with their trainers",
            "leave it out, or name the program with --program",
        ),
        (
            "--on",
            !args.on.is_empty(),
            "works only with --program; DGL's servers and trainers run on every host of ip_config",
            "leave it out, or list other hosts in ip_config",
        ),
    ];
    let has_threads = args.num_server_threads != ServerThreads::Number(1);
    let of_dgl = [
        ("--num-samplers", args.num_samplers != 0, NO_GRAPH),
        ("--num-servers", args.num_servers != 1, NO_GRAPH),
        ("--num-server-threads", has_threads, NO_GRAPH),
        ("--graph-format", args.graph_format != "csc", NO_GRAPH),
        ("--server-name", args.server_name.is_some(), NO_GRAPH),
        (
            "--server-env",
            !args.server_env.is_empty(),
            "use --trainer-env, or --env",
        ),
    ];
    let of_dgl = of_dgl.map(|(flag, is_given, fix)| (flag, is_given, "is not for workers", fix));
    let mut of_others = if args.is_dgl() {
        of_programs.to_vec()
    } else {
        of_dgl.to_vec()
    };
    of_others.push((
        "--role",
        !args.is_dgl() && args.role.iter().any(|role| role.is_dgl()),
        "worker does not go together with server and trainer",
        "plan them in two pipelines",
    ));
    let wrong = of_others.into_iter().filter(|(_, is_given, ..)| *is_given);
    wrong
        .map(|(flag, _, problem, fix)| Fault::usage(flag, problem).fix(fix))
        .collect()
}

/// The fault of a command that starts a launcher itself, or has no place for the local rank.
/// `counts` has the number of trainers, or of plain processes, on each host.
pub fn command(
    args: &Args,
    hosts: &[Host],
    counts: &[u32],
    command: &UserCommand,
) -> Option<Fault> {
    let workers = (!args.is_dgl()).then_some(counts);
    let is_shell = matches!(command, UserCommand::Shell(_));
    let started = command.launcher();
    let launcher = started.and_then(|launcher| launcher.fault(workers, hosts, is_shell));
    let has_rank = args.local_rank_arg.is_some() && args.starts(args.client_role());
    launcher.or_else(|| {
        if has_rank {
            command.with_local_rank("--local_rank", 0).err()
        } else {
            None
        }
    })
}

/// Faults of host records, each by itself and compared with the others.
pub fn hosts(hosts: &[Host], num_servers: u32) -> Vec<Fault> {
    const CREATE_AGAIN: &str = "create the stream again, starting with ipconf-check";
    const PROBE: &str = "run host-probe again, or remove the fact from the record";
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
            check(true, problem, CREATE_AGAIN);
        }
        check(
            ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast(),
            format!("{ip} is not a host's address"),
            CREATE_AGAIN,
        );
        check(
            ip.is_loopback() && hosts.len() > 1,
            format!("the other hosts cannot reach {ip}"),
            CREATE_AGAIN,
        );
        check(
            port == 0,
            "port 0: DGL's servers need a fixed port".to_owned(),
            "give a port from 1 on in ip_config",
        );
        check(
            u32::from(port) + num_servers - 1 > 65535,
            format!("{num_servers} servers from port {port} on go beyond 65535"),
            "use a lower port in ip_config",
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
    // host-probe leaves these out
    let mut nodes = facts.numa_cores.iter();
    if nodes.any(|cores| cores.is_empty() || cores.iter().any(Vec::is_empty)) {
        problems.push("numa_cores has a node without cores, or a core without numbers".to_owned());
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

/// Whether Linux accepts a name for a network interface. In GLOO_SOCKET_IFNAME, a comma would make
/// two names of it.
fn is_iface(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_IFACE
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ',')
}

/// The fault if host-probe's environment does not have the Python that the command names.
pub fn interpreter(hosts: &[Host], command: &UserCommand) -> Option<Fault> {
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
            Fault::data("COMMAND", problem).fix(
                "write python3, or give host-probe another environment with --conda or \
                      --venv",
            )
        })
    })
}

/// Warns about a host whose torch is unknown: the spelling of its option is unknown too.
pub fn unknown_torch(hosts: &[Host]) -> Option<String> {
    let host = hosts
        .iter()
        .find(|host| !is_within(&host.facts.torch, ..))?;
    Some(format!(
        "the torch of {} is not known, so its scripts get --local_rank, as before torch 2.0; put \
         host-probe before dgl-env, or use --local-rank-arg=NAME",
        host.location()
    ))
}

/// Warns about more processes than GPUs on a host that has some: several would share one, or find
/// none.
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
        "{location} has {} for {count} processes{others}: a script that uses the GPU of its \
         LOCAL_RANK fails; `gpus` instead of the number starts one for each GPU",
        term::count(gpus.into(), "GPU")
    ))
}

/// Whether a version is known and within these.
pub fn is_within(fact: &Option<String>, versions: impl RangeBounds<Version>) -> bool {
    fact.as_deref()
        .and_then(version)
        .is_some_and(|version| versions.contains(&version))
}

/// dgl-spawn could not tell the placeholder from literal text.
pub fn attempt(is_placeholder: bool, texts: &[&Template]) -> Option<Fault> {
    let is_mixed = is_placeholder && texts.iter().any(|text| text.has_text(ATTEMPT));
    is_mixed.then(|| {
        Fault::usage(
            ATTEMPT,
            "is a placeholder in one text and literal in another",
        )
        .fix(
            "use only one of them: a variable of the shell can be written $attempt, without braces",
        )
    })
}
