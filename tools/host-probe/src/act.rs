//! Asks all hosts at once and rewrites their records.

use crate::args::{Args, ServerPort};
use crate::choice::{self, Need};
use crate::gpus;
use crate::plan::{self, Placement, ProbeAnswer, ProbeWish};
use crate::ports;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Out, Stream};
use record::python::odd_versions;
use record::term;
use record::{DEFAULT_PORT, Facts, FileCopy, Graph, Host, Process, Pushed, Record};
use remote::{self, HostFault, Remote};
use std::collections::HashMap;
use wire::probe::{Python, SERVER_PORTS};
use wire::{Event, Request};

const ONE_VERSION: &str = "install one version on all hosts, or name the right Python with --conda \
    or --venv";

/// Probes the hosts, and prints the stream with their facts.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host]) -> Result<Exit, Report> {
    if args.need.is_some() || args.port == ServerPort::Auto {
        not_planned_yet(stream)?;
    }
    let python = match (&args.conda, &args.venv) {
        (Some(env), _) => Python::Conda(env.clone()),
        (None, Some(folder)) => Python::Venv(folder.clone()),
        (None, None) => Python::Command(args.python.clone()),
    };
    let wanted = ProbeWish {
        workspace: args.workspace.as_deref(),
        num_servers: args.num_servers,
        python: &python,
        setup: args.setup.as_deref(),
        occupancy: args.need.is_some() || args.port == ServerPort::Auto,
    };
    let remote = Remote::new(args.connect.options())?;
    let answers = remote.ask_all(hosts, |host| Request::Probe(plan::request(&wanted, host)))?;
    let mut report = remote::report(hosts, &answers);
    let mut outcomes: Vec<Result<ProbeAnswer, Fault>> = hosts
        .iter()
        .zip(answers)
        .map(|(host, answer)| outcome(host, &python, answer))
        .collect();
    // with --need these hosts are left out
    if !args.mixed_versions && args.need.is_none() {
        refuse_other_versions(hosts, &mut outcomes);
    }
    // the report already has the fault of a host that could not be reached
    let faults = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    report
        .0
        .extend(faults.filter(|fault| !fault.location.is_empty()).cloned());
    let kept = match args.need {
        Some(count) => {
            let kept = choose(args, count, hosts, &outcomes)?;
            // hosts that failed are not taken
            report = Report::default();
            kept
        }
        None => (0..hosts.len()).collect(),
    };
    let chosen = placements(args, &kept, hosts, &outcomes);
    let servers: Vec<ports::Server<'_>> = chosen.iter().flatten().filter_map(server).collect();
    let mut warnings = warnings(&kept, hosts, &outcomes);
    let of_ports = ports::warnings(&servers, args.num_servers);
    warnings.0.extend(of_ports);
    warnings.print("host-probe: warning");
    let chosen = chosen?;

    let mut out = Out::new("host-probe");
    match args.connect.format.human() {
        true => out.write(table(&chosen).as_bytes()),
        false => out.write(&lines(stream, &chosen, args.need.is_some(), &remote)),
    }
    report.0.extend(out.fault());
    report.check().map(|()| Exit::Done)
}

/// A host whose record is written, its new number, and its answer.
struct Chosen<'a> {
    host: &'a Host,
    placement: Placement,
    outcome: &'a Result<ProbeAnswer, Fault>,
}

/// The graph server of a host. A host without DGL has none, unless ip_config has another port than
/// the default.
fn server<'a>(chosen: &Chosen<'a>) -> Option<ports::Server<'a>> {
    let answer = chosen.outcome.as_ref().ok()?;
    let port = chosen.placement.port;
    let is_meant = port != DEFAULT_PORT || answer.facts.dgl.is_some();
    let ephemeral = answer.ephemeral_ports.as_ref()?;
    is_meant.then_some((chosen.host, port, ephemeral))
}

/// Refuses records that were planned with the numbers and ports of hosts, which will change.
fn not_planned_yet(stream: &Stream) -> Result<(), Report> {
    let planned = [
        (Graph::TYPE, stream.has::<Graph>()),
        (FileCopy::TYPE, stream.has::<FileCopy>()),
        (Pushed::TYPE, stream.has::<Pushed>()),
        (Process::TYPE, stream.has::<Process>()),
    ];
    match planned.into_iter().find(|(_, is_planned)| *is_planned) {
        None => Ok(()),
        Some((name, _)) => Err(Fault::data(
            "stdin",
            format!("there are {name} records, which were made for the hosts as they are"),
        )
        .fix("put host-probe with --need or --port auto in front of part-map")
        .report()),
    }
}

/// The hosts to take, by position. Prints on stderr why the others are not taken.
fn choose(
    args: &Args,
    count: u32,
    hosts: &[Host],
    outcomes: &[Result<ProbeAnswer, Fault>],
) -> Result<Vec<usize>, Report> {
    let need = Need {
        hosts: count,
        min_disk: args.least("disk"),
        min_shm: args.least("shm"),
        min_memory: args.least("memory"),
        min_gpu_memory: args.least("gpu"),
        free_ports: (args.port == ServerPort::Keep).then_some(args.num_servers),
        mixed_versions: args.mixed_versions,
    };
    let answers: Vec<Result<&ProbeAnswer, &str>> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().map_err(|fault| fault.problem.as_str()))
        .collect();
    let choice = choice::choose(hosts, &answers, &need);
    for (host_index, why) in &choice.left_out {
        let location = hosts[*host_index].location();
        record::tell!(
            "host-probe: {} is left out: {}",
            term::plain(&location),
            term::plain(why)
        );
    }
    if choice.kept.len() < count as usize {
        let problem = format!(
            "{} of {} hosts can be taken, and {count} are needed",
            choice.kept.len(),
            hosts.len()
        );
        return Err(Fault::unreachable("--need", problem)
            .fix(
                "list more hosts in ip_config, fix the hosts that were left out, or wait until \
                 they are free",
            )
            .report());
    }
    if !choice.spare.is_empty() {
        let names: Vec<String> = choice
            .spare
            .iter()
            .map(|host_index| hosts[*host_index].ip.to_string())
            .collect();
        record::tell!("host-probe: suitable, but not needed: {}", names.join(", "));
    }
    Ok(choice.kept)
}

/// Warnings about the hosts whose records are written.
fn warnings(kept: &[usize], hosts: &[Host], outcomes: &[Result<ProbeAnswer, Fault>]) -> Report {
    let kept = kept.iter();
    let answers: Vec<(&Host, &ProbeAnswer)> = kept
        .filter_map(|index| Some((&hosts[*index], outcomes[*index].as_ref().ok()?)))
        .collect();
    let warnings = answers
        .iter()
        .flat_map(|(_, answer)| answer.warnings.clone());
    let mut warnings: Vec<Fault> = warnings.collect();
    let found: Vec<(&Host, &Facts)> = answers
        .iter()
        .map(|(host, answer)| (*host, &answer.facts))
        .collect();
    for ((host, _), differences) in found.iter().zip(odd_versions(&found, false)) {
        warnings.extend(differences.map(|differences| {
            Fault::data(host.location(), format!("has {differences}")).fix(ONE_VERSION)
        }));
    }
    Report(warnings)
}

/// The new numbers of the hosts that were kept; they keep their numbers if all were kept.
fn placements<'a>(
    args: &Args,
    kept: &[usize],
    hosts: &'a [Host],
    outcomes: &'a [Result<ProbeAnswer, Fault>],
) -> Result<Vec<Chosen<'a>>, Report> {
    let port = match args.port {
        ServerPort::Keep => None,
        ServerPort::Auto => {
            let answers = kept
                .iter()
                .filter_map(|host_index| outcomes[*host_index].as_ref().ok());
            Some(choice::free_port(answers, args.num_servers).ok_or_else(no_free_port)?)
        }
    };
    let of = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    let location = |(number, host_index): (u32, &usize)| {
        let host = &hosts[*host_index];
        let (id, of) = match args.need {
            Some(_) => (number, of),
            None => (host.id, host.of),
        };
        Chosen {
            host,
            placement: Placement {
                id,
                of,
                port: port.unwrap_or(host.port),
            },
            outcome: &outcomes[*host_index],
        }
    };
    Ok((0..).zip(kept).map(location).collect())
}

fn no_free_port() -> Report {
    let problem = format!(
        "no ports for the graph servers are free on all hosts between {} and {}",
        SERVER_PORTS.start(),
        SERVER_PORTS.end()
    );
    Fault::unreachable("--port auto", problem)
        .fix("end what listens there, or write ports into ip_config")
        .report()
}

/// Refuses hosts with another Python, torch or DGL than most hosts.
fn refuse_other_versions(hosts: &[Host], outcomes: &mut [Result<ProbeAnswer, Fault>]) {
    let nothing = Facts::default();
    let found: Vec<(&Host, &Facts)> = hosts
        .iter()
        .zip(outcomes.iter())
        .map(|(host, outcome)| {
            let facts = outcome.as_ref().map_or(&nothing, |answer| &answer.facts);
            (host, facts)
        })
        .collect();
    let odd = odd_versions(&found, false);
    for ((host, outcome), differences) in hosts.iter().zip(outcomes).zip(odd) {
        if let Some(differences) = differences {
            let fault = Fault::unreachable(host.location(), format!("has {differences}"));
            let fix = format!("{ONE_VERSION}; --mixed-versions goes on all the same");
            *outcome = Err(fault.fix(fix));
        }
    }
}

/// The meaning of an answer. The report of refused hosts already has faults without a location.
fn outcome(
    host: &Host,
    python: &Python,
    answer: Result<Vec<Event>, HostFault>,
) -> Result<ProbeAnswer, Fault> {
    let events = answer.map_err(|fault| Fault::unreachable("", fault.problem))?;
    let probed = events.into_iter().find_map(|event| match event {
        Event::Probed(probed) => Some(*probed),
        _ => None,
    });
    let probed = probed.ok_or_else(|| {
        Fault::unreachable(host.location(), "host-agent gave no answer").fix("reinstall dgl-tools")
    })?;
    plan::answer(host, python, probed)
}

/// The input with new records of these hosts. Those of other hosts stay or are left out.
fn lines(stream: &Stream, chosen: &[Chosen<'_>], others_leave: bool, remote: &Remote) -> Vec<u8> {
    let by_id: HashMap<u32, &Chosen<'_>> = chosen
        .iter()
        .map(|chosen_host| (chosen_host.host.id, chosen_host))
        .collect();
    let mut all = Vec::new();
    for (line, id) in stream.lines() {
        match id.map(|id| by_id.get(&id)) {
            Some(Some(chosen_host)) => jsonl::append(&record_of(chosen_host, remote), &mut all),
            Some(None) if others_leave => {}
            Some(None) | None => {
                all.extend_from_slice(line);
                all.push(b'\n');
            }
        }
    }
    all
}

fn record_of(chosen_host: &Chosen<'_>, remote: &Remote) -> Host {
    let outcome = chosen_host
        .outcome
        .as_ref()
        .map(|answer| &answer.facts)
        .map_err(|fault| fault.problem.as_str());
    plan::rewritten(
        &remote.with_connector(chosen_host.host),
        chosen_host.placement,
        outcome,
    )
}

/// The table for people, a line for each host.
fn table(chosen: &[Chosen<'_>]) -> String {
    // users without DGL need not see that it is missing
    let answers = || {
        chosen
            .iter()
            .filter_map(|chosen_host| chosen_host.outcome.as_ref().ok())
    };
    let has_dgl = answers().any(|answer| answer.facts.dgl.is_some());
    let row = |cells: [&str; 12]| {
        let [
            id,
            ip,
            card,
            cpus,
            gpus,
            gpu_free,
            memory,
            shm,
            free,
            python,
            torch,
            dgl,
        ] = cells.map(term::plain);
        let line = format!(
            "{id:>4}  {ip:<15}  {card:<10}  {cpus:>4}  {gpus:>4}  {gpu_free:>8}  {memory:>7}  \
             {shm:>7}  {free:>7}  {python:<8}  {torch:<12}  {}",
            if has_dgl { &*dgl } else { "" }
        );
        format!("{}\n", line.trim_end())
    };
    let mut text = row([
        "host", "ip", "iface", "cpus", "gpus", "gpu free", "memory", "shm", "disk", "python",
        "torch", "dgl",
    ]);
    for chosen_host in chosen {
        let id = chosen_host.placement.id;
        match chosen_host.outcome {
            Ok(ProbeAnswer { facts, .. }) => {
                text += &row(cells(id, chosen_host.host, facts)
                    .each_ref()
                    .map(String::as_str));
            }
            Err(fault) => {
                text += &format!(
                    "{id:>4}  {:<15}  failed: {}\n",
                    chosen_host.host.ip.to_string(),
                    term::plain(&fault.problem)
                );
            }
        }
    }
    text
}

fn cells(id: u32, host: &Host, facts: &Facts) -> [String; 12] {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let number =
        |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let size = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), term::bytes);
    let (cpus, gpu_count) = (number(facts.cpus), number(facts.gpus));
    let (memory, shm, free) = (
        size(facts.mem_bytes),
        size(facts.shm_free_bytes),
        size(facts.free_bytes),
    );
    [
        id.to_string(),
        host.ip.to_string(),
        text(&facts.iface),
        cpus,
        gpu_count,
        size(gpus::least_free(&facts.gpu_cards)),
        memory,
        shm,
        free,
        text(&facts.python),
        text(&facts.torch),
        text(&facts.dgl),
    ]
}
