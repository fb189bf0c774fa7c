//! Asks all hosts at once and writes their records again.

use crate::args::Args;
use crate::plan::{self, Answer, Expected};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{Out, Stream};
use record::term;
use record::{Facts, Host};
use remote::{self, HostFault, Kind, Remote};
use std::collections::HashMap;
use std::time::Duration;
use wire::probe::Python;
use wire::{Event, Request};

/// A probe takes well under a second; conda's activation a few; a file system that hangs must not
/// hold it up for ever.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

const ONE_DGL: &str = "the processes of a job need one version: install it, or name the right \
    Python with --conda or --venv";

/// Probes the hosts; prints the stream with their facts.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host]) -> Result<Exit, Report> {
    let python = match (&args.conda, &args.venv) {
        (Some(env), _) => Python::Conda(env.clone()),
        (None, Some(folder)) => Python::Venv(folder.clone()),
        (None, None) => Python::Command(args.python.clone()),
    };
    let wanted = Expected {
        workspace: args.workspace.as_deref(),
        num_servers: args.num_servers,
        python: &python,
        setup: args.setup.as_deref(),
    };
    let remote = Remote::new(args.connect.options(), Kind::Ssh2)?;
    let answers = remote.ask_all(hosts, PROBE_LIMIT, |host| {
        Request::Probe(plan::request(&wanted, host))
    })?;
    let refused = hosts
        .iter()
        .zip(&answers)
        .filter_map(|(host, answer)| Some((host, answer.as_ref().err()?)));
    let mut report = remote::report(refused, args.connect.host_key);
    let outcomes: Vec<Result<Answer, Fault>> = hosts
        .iter()
        .zip(answers)
        .map(|(host, answer)| outcome(host, &python, answer))
        .collect();
    let mut warnings = Report::default();
    for outcome in &outcomes {
        match outcome {
            Ok(answer) => warnings.0.extend(answer.warnings.iter().cloned()),
            // one that could not be opened stands in the report already
            Err(fault) if fault.place.is_empty() => {}
            Err(fault) => report.push(fault.clone()),
        }
    }
    let found = hosts
        .iter()
        .zip(&outcomes)
        .filter_map(|(host, outcome)| Some((host.id, &outcome.as_ref().ok()?.facts)));
    warnings
        .0
        .extend(plan::versions_differ(found).map(|text| Fault::data("warning", text).fix(ONE_DGL)));
    warnings.print("host-probe");

    let mut out = Out::new("host-probe");
    match args.connect.format.human() {
        true => out.write(table(hosts, &outcomes).as_bytes()),
        false => out.write(&lines(stream, hosts, &outcomes)?),
    }
    report.check().map(|()| Exit::Done)
}

/// What an answer means. A fault without a place stands in the report of refused hosts already.
fn outcome(
    host: &Host,
    python: &Python,
    answer: Result<Vec<Event>, HostFault>,
) -> Result<Answer, Fault> {
    let events = answer.map_err(|fault| Fault::unreachable("", fault.problem))?;
    let probed = events.into_iter().find_map(|event| match event {
        Event::Probed(probed) => Some(*probed),
        _ => None,
    });
    let probed = probed.ok_or_else(|| {
        Fault::unreachable(host.place(), "host-agent gave no answer").fix("install dgl-tools anew")
    })?;
    plan::answer(host, python, probed)
}

fn lines(
    stream: &Stream,
    hosts: &[Host],
    outcomes: &[Result<Answer, Fault>],
) -> Result<Vec<u8>, Report> {
    let by_id: HashMap<u32, &Result<Answer, Fault>> =
        hosts.iter().map(|host| host.id).zip(outcomes).collect();
    let mut all = Vec::new();
    for (line, id) in stream.lines() {
        match id.and_then(|id| by_id.get(&id)) {
            Some(outcome) => {
                let outcome = outcome
                    .as_ref()
                    .map(|answer| &answer.facts)
                    .map_err(|fault| fault.problem.as_str());
                let line = plan::rewritten(line, outcome).map_err(|error| {
                    Fault::data("stdin: host record", error.to_string())
                        .fix("make the stream anew, with ipconf-check")
                })?;
                all.extend(line);
            }
            None => all.extend_from_slice(line),
        }
        all.push(b'\n');
    }
    Ok(all)
}

/// A line a host.
fn table(hosts: &[Host], outcomes: &[Result<Answer, Fault>]) -> String {
    let row = |cells: [&str; 10]| {
        let [id, ip, card, cpus, gpus, memory, shm, free, python, dgl] = cells.map(term::plain);
        format!(
            "{id:>4}  {ip:<15}  {card:<10}  {cpus:>4}  {gpus:>4}  {memory:>7}  {shm:>7}  \
             {free:>7}  {python:<8}  {dgl}\n"
        )
    };
    let mut text = row([
        "host", "ip", "card", "cpus", "gpus", "memory", "shm", "disk", "python", "dgl",
    ]);
    for (host, outcome) in hosts.iter().zip(outcomes) {
        match outcome {
            Ok(Answer { facts, .. }) => {
                text += &row(cells(host, facts).each_ref().map(String::as_str));
            }
            Err(fault) => {
                text += &format!(
                    "{:>4}  {:<15}  failed: {}\n",
                    host.id,
                    host.ip.to_string(),
                    term::plain(&fault.problem)
                );
            }
        }
    }
    text
}

fn cells(host: &Host, facts: &Facts) -> [String; 10] {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let number =
        |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let size = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), term::bytes);
    let (cpus, gpus) = (number(facts.cpus), number(facts.gpus));
    let (memory, shm, free) = (
        size(facts.mem_bytes),
        size(facts.shm_free_bytes),
        size(facts.free_bytes),
    );
    [
        host.id.to_string(),
        host.ip.to_string(),
        text(&facts.iface),
        cpus,
        gpus,
        memory,
        shm,
        free,
        text(&facts.python),
        text(&facts.dgl),
    ]
}
