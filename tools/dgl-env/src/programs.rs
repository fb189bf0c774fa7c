//! Several programs in one job: the names and ports that earlier programs of the stream have taken,
//! and those that the planned one gets.

use crate::args::Args;
use crate::environment::UserEnv;
use crate::placeholders::{Fact, Placeholder, ProgramFacts, Programs};
use record::error::{Fault, Report};
use record::{Host, PROGRAM_PORTS, Process, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Processes of one role, which run the command in their own environment and count their ranks
/// together.
pub struct Program {
    pub role: Role,
    /// The processes on each host; empty if --role has none of them started.
    pub counts: Vec<u32>,
}

#[derive(Clone, Copy)]
pub struct Place {
    /// Index among the program's hosts.
    pub host_index: usize,
    /// Its number among the program's processes there.
    pub local_rank: u32,
    pub rank: u32,
}

impl Program {
    pub fn new(args: &Args, role: Role, counts: Vec<u32>) -> Program {
        Program {
            role,
            counts: if args.starts(role) {
                counts
            } else {
                Vec::new()
            },
        }
    }

    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.counts
            .iter()
            .enumerate()
            .flat_map(|(host_index, count)| {
                (0..*count).map(move |local_rank| (host_index, local_rank))
            })
            .zip(0..)
            .map(|((host_index, local_rank), rank)| Place {
                host_index,
                local_rank,
                rank,
            })
    }

    pub fn count(&self, host_index: usize) -> u32 {
        self.counts.get(host_index).copied().unwrap_or_default()
    }
}

/// The trainers, or plain processes, on each host. DGL's servers and trainers count each other even
/// if only one of these programs is started.
pub fn client_counts(args: &Args, hosts: &[Host]) -> Result<Vec<u32>, Report> {
    match &args.num_trainers {
        Some(count) if args.is_dgl() => count.counts("--num-trainers", hosts),
        Some(count) => count.counts("--num-workers", hosts),
        None if args.is_dgl() => {
            let problem = "is missing: servers too must know how many clients will connect";
            let fault = Fault::usage("--num-trainers", problem);
            Err(fault
                .fix(
                    "give the number of trainers per host; if the command needs no graph servers \
                     of DGL, use --role worker --num-workers N",
                )
                .report())
        }
        None => Ok(vec![1; hosts.len()]),
    }
}

#[derive(Default)]
pub struct Earlier {
    pub num_processes: u32,
    pub programs: Programs,
    /// The ports on which they will listen, by host.
    pub ports: BTreeMap<u32, BTreeSet<u16>>,
    pub server_name: Option<String>,
}

impl Earlier {
    pub fn of(processes: &[Process]) -> Earlier {
        let mut earlier = Earlier {
            num_processes: u32::try_from(processes.len()).unwrap_or(u32::MAX),
            ..Earlier::default()
        };
        let mut hosts: BTreeMap<Role, BTreeSet<u32>> = BTreeMap::new();
        for process in processes {
            hosts.entry(process.role).or_default().insert(process.host);
            let program = earlier
                .programs
                .entry(process.role)
                .or_insert(ProgramFacts {
                    num_hosts: 0,
                    world_size: 0,
                    master_addr: process.ip.0,
                    master_port: process.master_port,
                    ports: process.ports.clone().into_iter().collect(),
                });
            program.world_size += 1;
            if process.rank == 0 {
                program.master_addr = process.ip.0;
            }
            let ports = process
                .master_port
                .into_iter()
                .chain(process.ports.values().copied())
                .filter(|_| process.rank == 0)
                .chain(process.port);
            earlier.ports.entry(process.host).or_default().extend(ports);
            earlier.server_name = earlier.server_name.or_else(|| process.server_name.clone());
        }
        for (role, hosts) in hosts {
            if let Some(program) = earlier.programs.get_mut(&role) {
                program.num_hosts = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
            }
        }
        earlier
    }
}

/// All hosts, or those that --on names.
pub fn chosen(on: &[RangeInclusive<u32>], hosts: Vec<Host>) -> Result<Vec<Host>, Report> {
    let ids: BTreeSet<u32> = hosts.iter().map(|host| host.id).collect();
    let mut report = Report::default();
    for range in on {
        if let Some(id) = range.clone().find(|id| !ids.contains(id)) {
            let problem = format!("no host {id}: the stream has {}", hosts.len());
            report.push(Fault::usage("--on", problem).fix("count from 0, as ipconf-check does"));
        }
    }
    report.check()?;
    Ok(hosts
        .into_iter()
        .filter(|host| on.is_empty() || on.iter().any(|range| range.contains(&host.id)))
        .collect())
}

#[derive(Default)]
pub struct Ports {
    /// Torch's rendezvous, unless dgl-spawn chooses it.
    master: Option<u16>,
    /// By their names in `{port:NAME}`.
    named: BTreeMap<String, u16>,
}

impl ProgramFacts {
    pub fn new(hosts: &[Host], world_size: u32, ports: Ports) -> ProgramFacts {
        let first = hosts.first().map(|host| host.ip.0);
        ProgramFacts {
            num_hosts: u32::try_from(hosts.len()).unwrap_or(u32::MAX),
            world_size,
            master_addr: first.unwrap_or(Ipv4Addr::UNSPECIFIED),
            master_port: ports.master,
            ports: ports.named,
        }
    }
}

/// Chooses free ports of the program's first host that no earlier program has. Groups of trainers
/// that start at the same moment would meet at one port, so dgl-spawn chooses that of persistent
/// servers' trainers.
pub fn ports(
    args: &Args,
    hosts: &[Host],
    earlier: &Earlier,
    placeholders: &BTreeSet<Placeholder>,
) -> Result<Ports, Report> {
    let Some(host) = hosts.first() else {
        return Ok(Ports::default());
    };
    let taken = earlier.ports.get(&host.id);
    let is_taken = |port: &u16| taken.is_some_and(|taken| taken.contains(port));
    let servers = u32::from(host.port)..u32::from(host.port) + u32::from(args.num_servers);
    let is_server = |port: &u16| args.starts(Role::Trainer) && servers.contains(&(*port).into());
    let mut free = free_ports(host)
        .into_iter()
        .filter(|port| !is_taken(port) && !is_server(port) && Some(*port) != args.master_port);
    let is_chosen = args.master_port.is_some() || args.server_name.is_some();
    let master_port = if is_chosen {
        args.master_port
    } else {
        free.next()
    };
    let named: BTreeMap<String, Option<u16>> = placeholders
        .iter()
        .filter_map(|placeholder| match placeholder {
            Placeholder::Own(Fact::Port(name)) => Some(name.clone()),
            _ => None,
        })
        .map(|name| (name, free.next()))
        .collect();
    let mut report = Report::default();
    match master_port {
        Some(port) if is_server(&port) => {
            report.push(port_of_servers(host, port, args.num_servers));
        }
        Some(port) if is_taken(&port) => {
            let problem = format!("{port} is another program's on {}", host.location());
            report.push(
                Fault::usage("--master-port", problem).fix("use another one, or leave it out"),
            );
        }
        _ => {}
    }
    let is_without = master_port.is_none() && !is_chosen;
    let rendezvous = is_without.then_some("torch's rendezvous");
    let portless: Vec<&str> = named
        .iter()
        .filter(|(_, port)| port.is_none())
        .map(|(name, _)| name.as_str())
        .chain(rendezvous)
        .collect();
    if !portless.is_empty() {
        let problem = format!("no free port is known for {}", portless.join(", "));
        report.push(Fault::data(host.location(), problem).fix(
            "put host-probe before dgl-env, start the program on another host, or use fewer \
             names of ports",
        ));
    }
    report.check()?;
    Ok(Ports {
        master: master_port,
        named: named
            .into_iter()
            .filter_map(|(name, port)| Some((name, port?)))
            .collect(),
    })
}

/// The ports on which nothing is known to listen; dgl-spawn checks again.
fn free_ports(host: &Host) -> Vec<u16> {
    let probed = host.facts.master_port;
    let more = match host.facts.free_ports.as_slice() {
        // host-probe has not found free ones
        [] => PROGRAM_PORTS.filter(|port| Some(*port) != probed).collect(),
        free => free.to_vec(),
    };
    probed.into_iter().chain(more).collect()
}

fn port_of_servers(host: &Host, port: u16, num_servers: u16) -> Fault {
    let last = u32::from(host.port) + u32::from(num_servers) - 1;
    let problem = format!(
        "the master port {port} is one of its servers' ({} to {last})",
        host.port
    );
    Fault::data(host.location(), problem).fix("use another --master-port")
}

/// Conflicts with programs that were planned before: a role twice, ports twice, and placeholders
/// without a value.
pub fn faults(
    args: &Args,
    env: &UserEnv,
    hosts: &[Host],
    earlier: &Earlier,
    placeholders: &BTreeSet<Placeholder>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for role in [Role::Server, args.client_role()] {
        if args.starts(role) && earlier.programs.contains_key(&role) {
            let name = role.name();
            let problem = format!("the input already has process records of {name}");
            faults.push(Fault::data("stdin", problem).fix(
                "plan each program once, and each further one with --program NAME; jq \
                 'select(.type != \"process\")' removes those of another run",
            ));
        }
    }
    if !earlier.programs.is_empty() && (args.server_name.is_some() || earlier.server_name.is_some())
    {
        let problem = "persistent servers and their trainers are jobs without further programs";
        faults.push(
            Fault::usage("--server-name", problem).fix("start the other program as a separate job"),
        );
    }
    for host in hosts.iter().filter(|_| args.starts(Role::Server)) {
        let last = u32::from(host.port) + u32::from(args.num_servers);
        let ports = earlier.ports.get(&host.id).into_iter().flatten();
        let is_servers = |port: &&u16| (u32::from(host.port)..last).contains(&u32::from(**port));
        faults.extend(ports.copied().find(|port| is_servers(&port)).map(|port| {
            let problem = format!("{port} is a port of its servers and of another program");
            Fault::data(host.location(), problem).fix("use another port in ip_config")
        }));
    }
    faults.extend(
        placeholders
            .iter()
            .filter_map(|placeholder| match placeholder {
                Placeholder::Own(fact) => own_fault(fact, args, env),
                Placeholder::Of(role, fact) => fault_of_other(*role, fact, earlier),
                _ => None,
            }),
    );
    faults
}

/// For a placeholder whose value is not known yet, or differs from the variable that the processes
/// read.
fn own_fault(fact: &Fact, args: &Args, env: &UserEnv) -> Option<Fault> {
    let sets = |name: &str| {
        env.of(args.client_role())
            .filter(|(other, _)| other == name)
            .any(|(_, value)| {
                !value
                    .placeholders()
                    .any(|placeholder| *placeholder == Placeholder::Own(fact.clone()))
            })
    };
    let is_named = args.server_name.is_some();
    let (problem, fix) = match fact {
        Fact::MasterPort if sets("MASTER_PORT") => (
            "is not the MASTER_PORT that is set",
            "use --master-port PORT instead of MASTER_PORT",
        ),
        Fact::MasterAddr if sets("MASTER_ADDR") => (
            "is not the MASTER_ADDR that is set",
            "use only one of them; torch's rendezvous is on the first host",
        ),
        Fact::MasterPort if is_named && args.master_port.is_none() => (
            "is not known yet: with --server-name dgl-spawn chooses it",
            "have the script read MASTER_PORT, or use --master-port",
        ),
        Fact::Port(_) if is_named => (
            "would be the same for all groups of trainers of these servers",
            "give each group its own port, as a number",
        ),
        _ => return None,
    };
    Some(Fault::usage(format!("{{{fact}}}"), problem).fix(fix))
}

fn fault_of_other(role: Role, fact: &Fact, earlier: &Earlier) -> Option<Fault> {
    let name = role.name();
    let before = format!("put the dgl-env that plans {name} before this one");
    let known: Vec<&str> = earlier.programs.keys().map(Role::name).collect();
    let (problem, fix) = match earlier.programs.get(&role) {
        Some(program) if fact.value_in(program).is_some() => return None,
        Some(_) => (
            format!("program {name} has no {fact}"),
            format!(
                "use {{{fact}}} in the command of program {name}, or write \
                 {{{{{name}.{fact}}}}} for literal braces"
            ),
        ),
        None => (
            format!("the stream has no program {name} before this one"),
            if known.is_empty() {
                before
            } else {
                format!("{before}, or name one of {}", known.join(", "))
            },
        ),
    };
    Some(Fault::usage(format!("{{{name}.{fact}}}"), problem).fix(fix))
}
