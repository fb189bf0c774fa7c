//! Asks all hosts at once and rewrites their records.

use crate::args::{Args, ServerPort};
use crate::choice::{self, Need};
use crate::plan::{self, Placement, ProbeAnswer};
use crate::ports::{self, HostServers};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Out, Stream};
use record::python::odd_versions;
use record::term;
use record::{DEFAULT_PORT, Facts, FileCopy, Graph, Host, Process, Pushed, Record};
use remote::{self, HostFault, Remote};
use std::collections::HashMap;
use wire::probe::{Probe, Python, SERVER_PORTS};
use wire::{Event, Request};

const ONE_VERSION: &str = "install one version on all hosts, or name the right Python with --conda \
    or --venv";

pub fn run(args: &Args, stream: &Stream, hosts: &[Host]) -> Result<Exit, Report> {
    if args.need.is_some() || args.port == ServerPort::Auto {
        not_planned_yet(stream)?;
    }
    let python = match (&args.conda, &args.venv) {
        (Some(env), _) => Python::Conda(env.clone()),
        (None, Some(folder)) => Python::Venv(folder.clone()),
        (None, None) => Python::Command(args.python.clone()),
    };
    let probe = Probe {
        workspace: args.workspace.clone(),
        server_ports: None,
        python: python.clone(),
        setup: args.setup.clone(),
        occupancy: args.need.is_some() || args.port == ServerPort::Auto,
    };
    let remote = Remote::new(args.connect.options())?;
    let answers = remote.ask_all(hosts, |host| {
        let last = host.port.saturating_add(args.num_servers - 1);
        Request::Probe(Probe {
            server_ports: Some((host.port, last)),
            ..probe.clone()
        })
    })?;
    let mut report = remote::report(hosts, &answers);
    let mut outcomes: Vec<ProbeOutcome> = hosts
        .iter()
        .zip(answers)
        .map(|(host, answer)| outcome(host, &python, answer))
        .collect();
    // with --need these hosts are left out
    if !args.mixed_versions && args.need.is_none() {
        refuse_other_versions(hosts, &mut outcomes);
    }
    let kept = match args.need {
        Some(count) => {
            // hosts that failed are left out
            report = Report::default();
            choose(args, count, hosts, &outcomes)?
        }
        None => {
            // the report already has the fault of a host that could not be reached
            let faults = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
            let faults = faults.filter(|fault| !fault.location.is_empty());
            report.0.extend(faults.cloned());
            (0..hosts.len()).collect()
        }
    };
    let chosen = placements(args, &kept, hosts, &outcomes);
    let servers: Vec<HostServers<'_>> = chosen.iter().flatten().filter_map(servers).collect();
    let mut warnings = warnings(&kept, hosts, &outcomes);
    warnings.extend(ports::warnings(&servers, args.num_servers));
    Report(warnings).print("host-probe: warning");
    let chosen = chosen?;

    let mut out = Out::new("host-probe");
    if args.connect.format.human() {
        out.write(table(&chosen).as_bytes());
    } else {
        out.write(&lines(stream, &chosen, args.need.is_some(), &remote));
    }
    report.0.extend(out.fault());
    report.check().map(|()| Exit::Done)
}

type ProbeOutcome = Result<ProbeAnswer, Fault>;

struct Chosen<'a> {
    host: &'a Host,
    placement: Placement,
    outcome: &'a ProbeOutcome,
}

/// A host without DGL has no graph servers, unless ip_config has another port than the default.
fn servers<'a>(chosen: &Chosen<'a>) -> Option<HostServers<'a>> {
    let answer = chosen.outcome.as_ref().ok()?;
    let first_port = chosen.placement.port;
    if first_port == DEFAULT_PORT && answer.facts.dgl.is_none() {
        return None;
    }
    Some(HostServers {
        host: chosen.host,
        first_port,
        ephemeral: answer.ephemeral_ports.as_ref()?,
    })
}

/// Refuses records planned with the numbers and ports of hosts, which will change.
fn not_planned_yet(stream: &Stream) -> Result<(), Report> {
    let planned = [
        (Graph::TYPE, stream.has::<Graph>()),
        (FileCopy::TYPE, stream.has::<FileCopy>()),
        (Pushed::TYPE, stream.has::<Pushed>()),
        (Process::TYPE, stream.has::<Process>()),
    ];
    let Some((name, _)) = planned.into_iter().find(|(_, is_planned)| *is_planned) else {
        return Ok(());
    };
    let problem = format!("the input has {name} records, which fit only these hosts");
    Err(Fault::data("stdin", problem)
        .fix("put host-probe --need or --port auto before part-map")
        .report())
}

/// Returns positions, and prints why hosts are left out.
fn choose(
    args: &Args,
    count: u32,
    hosts: &[Host],
    outcomes: &[ProbeOutcome],
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
            "host-probe: {} is skipped: {}",
            term::plain(&location),
            term::plain(why)
        );
    }
    if choice.kept.len() < count as usize {
        let (suitable, all) = (choice.kept.len(), hosts.len());
        let problem = format!("{suitable} of {all} hosts are suitable, and {count} are needed");
        return Err(Fault::unreachable("--need", problem)
            .fix(
                "list more hosts in ip_config, mend the skipped hosts, or wait until \
                 they are free",
            )
            .report());
    }
    if !choice.spare.is_empty() {
        let spare = choice.spare.iter();
        let names: Vec<String> = spare.map(|index| hosts[*index].ip.to_string()).collect();
        record::tell!("host-probe: suitable, but not needed: {}", names.join(", "));
    }
    Ok(choice.kept)
}

fn warnings(kept: &[usize], hosts: &[Host], outcomes: &[ProbeOutcome]) -> Vec<Fault> {
    let mut warnings = Vec::new();
    let mut found: Vec<(&Host, &Facts)> = Vec::new();
    for index in kept {
        if let Ok(answer) = &outcomes[*index] {
            warnings.extend(answer.warnings.clone());
            found.push((&hosts[*index], &answer.facts));
        }
    }
    for ((host, _), differences) in found.iter().zip(odd_versions(&found, false)) {
        if let Some(differences) = differences {
            let fault = Fault::data(host.location(), format!("has {differences}"));
            warnings.push(fault.fix(ONE_VERSION));
        }
    }
    warnings
}

/// Only --need numbers hosts anew.
fn placements<'a>(
    args: &Args,
    kept: &[usize],
    hosts: &'a [Host],
    outcomes: &'a [ProbeOutcome],
) -> Result<Vec<Chosen<'a>>, Report> {
    let mut free_port = None;
    if args.port == ServerPort::Auto {
        let answers = kept
            .iter()
            .filter_map(|index| outcomes[*index].as_ref().ok());
        free_port = choice::free_port(answers, args.num_servers);
        if free_port.is_none() {
            let (first, last) = (SERVER_PORTS.start(), SERVER_PORTS.end());
            let problem = format!(
                "no ports for the graph servers are free on all hosts between {first} and {last}"
            );
            return Err(Fault::unreachable("--port auto", problem)
                .fix("stop what listens on these ports, or write ports into ip_config")
                .report());
        }
    }
    let count = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    let chosen = (0..count).zip(kept).map(|(number, index)| {
        let host = &hosts[*index];
        let (id, of) = match args.need {
            Some(_) => (number, count),
            None => (host.id, host.of),
        };
        let port = free_port.unwrap_or(host.port);
        Chosen {
            host,
            placement: Placement { id, of, port },
            outcome: &outcomes[*index],
        }
    });
    Ok(chosen.collect())
}

/// Refuses hosts with another Python, torch or DGL than most.
fn refuse_other_versions(hosts: &[Host], outcomes: &mut [ProbeOutcome]) {
    let nothing = Facts::default();
    let facts = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().map_or(&nothing, |answer| &answer.facts));
    let found: Vec<(&Host, &Facts)> = hosts.iter().zip(facts).collect();
    let odd = odd_versions(&found, false);
    for ((host, outcome), differences) in hosts.iter().zip(outcomes).zip(odd) {
        if let Some(differences) = differences {
            let fault = Fault::unreachable(host.location(), format!("has {differences}"));
            let fix = format!("{ONE_VERSION}, or use --mixed-versions");
            *outcome = Err(fault.fix(fix));
        }
    }
}

/// A fault that the report already has is without a location.
fn outcome(host: &Host, python: &Python, answer: Result<Vec<Event>, HostFault>) -> ProbeOutcome {
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

/// The input with new records of these hosts, and without those of others if `omit_others`.
fn lines(stream: &Stream, chosen: &[Chosen<'_>], omit_others: bool, remote: &Remote) -> Vec<u8> {
    let by_id: HashMap<u32, &Chosen<'_>> = chosen
        .iter()
        .map(|chosen| (chosen.host.id, chosen))
        .collect();
    let mut all = Vec::new();
    for (line, id) in stream.lines() {
        match id.map(|id| by_id.get(&id)) {
            Some(Some(chosen)) => {
                let outcome = match chosen.outcome {
                    Ok(answer) => Ok(&answer.facts),
                    Err(fault) => Err(fault.problem.as_str()),
                };
                let host = remote.with_connector(chosen.host);
                jsonl::append(&plan::rewritten(&host, chosen.placement, outcome), &mut all);
            }
            Some(None) if omit_others => {}
            Some(None) | None => {
                all.extend_from_slice(line);
                all.push(b'\n');
            }
        }
    }
    all
}

fn table(chosen: &[Chosen<'_>]) -> String {
    // users without DGL need not see that it is missing
    let mut answers = chosen.iter().flat_map(|chosen| chosen.outcome);
    let has_dgl = answers.any(|answer| answer.facts.dgl.is_some());
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
    for Chosen {
        host,
        placement,
        outcome,
    } in chosen
    {
        let id = placement.id;
        text += &match outcome {
            Ok(answer) => row(cells(id, host, &answer.facts)
                .each_ref()
                .map(String::as_str)),
            Err(fault) => {
                let (ip, problem) = (host.ip.to_string(), term::plain(&fault.problem));
                format!("{id:>4}  {ip:<15}  failed: {problem}\n")
            }
        };
    }
    text
}

fn cells(id: u32, host: &Host, facts: &Facts) -> [String; 12] {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let number =
        |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let size = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), term::bytes);
    let gpu_free = facts
        .gpu_cards
        .iter()
        .filter_map(|card| card.mem_free_bytes);
    [
        id.to_string(),
        host.ip.to_string(),
        text(&facts.iface),
        number(facts.cpus),
        number(facts.gpus),
        size(gpu_free.min()),
        size(facts.mem_bytes),
        size(facts.shm_free_bytes),
        size(facts.free_bytes),
        text(&facts.python),
        text(&facts.torch),
        text(&facts.dgl),
    ]
}
