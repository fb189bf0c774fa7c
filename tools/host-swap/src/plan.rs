//! Decides which hosts were lost and which spares replace them, and writes the new stream.

use record::error::{Fault, Report};
use record::jsonl::{self, Stream};
use record::python::odd_versions;
use record::{Facts, FileCopy, FirstFailure, Host, Process, Pushed, Record};
use std::collections::BTreeMap;

/// The cause in a summary if a host was lost.
const CAUSE_HOST: &str = "host";

const GIVE_STREAM: &str = "give host-swap the stream that this run was made from";

/// By number, with the reason.
#[derive(Debug, Default)]
pub struct LostHosts(pub BTreeMap<u32, String>);

impl LostHosts {
    /// Adds the lost hosts of a file of records: the cause of a run's end, and hosts that
    /// host-probe could not use. `hosts` are those of the stream.
    pub fn learn(&mut self, location: &str, run: &Stream, hosts: &[Host]) -> Result<(), Report> {
        let recorded: Vec<Host> = run
            .all_including_failed()
            .map_err(|report| report.in_file(location))?;
        let foreign = recorded.iter().find(|host| {
            let planned = record::host_of(hosts, host.id);
            planned.is_none_or(|planned| planned.ip != host.ip)
        });
        if let Some(host) = foreign {
            let problem = format!(
                "its host {} is {}, which is not in the input",
                host.id, host.ip
            );
            return Err(Fault::data(location, problem).fix(GIVE_STREAM).report());
        }
        for host in recorded.into_iter().filter(|host| host.ok == Some(false)) {
            self.add(host.id, host.error);
        }
        let end = run.end().map_err(|report| report.in_file(location))?;
        if let Some(FirstFailure { host, error, .. }) = end
            .filter(|end| end.cause.as_deref() == Some(CAUSE_HOST))
            .and_then(|end| end.first_failure)
        {
            self.add(host, error);
        }
        Ok(())
    }

    fn add(&mut self, host: u32, why: Option<String>) {
        let why = why.unwrap_or_else(|| "it cannot be used".to_owned());
        self.0.entry(host).or_insert(why);
    }
}

#[derive(Debug)]
pub struct Swapped {
    /// Each with its end.
    pub lines: Vec<Vec<u8>>,
    pub notices: Vec<String>,
}

pub fn swap(stream: &Stream, lost: &LostHosts, spares: Option<&Stream>) -> Result<Swapped, Report> {
    let hosts: Vec<Host> = stream.require("ipconf-check")?;
    if lost.0.is_empty() {
        return Err(Fault::data("--run", "no host was lost")
            .fix("find out why the job failed: dgl-report makes a page of its records")
            .report());
    }
    let (mut notices, mut chosen) = (Vec::new(), BTreeMap::<u32, Host>::new());
    let spares: Vec<Host> = match spares {
        Some(spares) => spares
            .all_including_failed()
            .map_err(|report| report.in_file("--spares"))?,
        None => Vec::new(),
    };
    let mut spares = spares.into_iter();
    for (id, why) in &lost.0 {
        let Some(host) = record::host_of(&hosts, *id) else {
            let problem = format!("host {id} was lost, but it is not in the input");
            return Err(Fault::data("--run", problem).fix(GIVE_STREAM).report());
        };
        let spare = loop {
            let Some(spare) = spares.next() else {
                let problem = format!("{} was lost ({why}), and no spare is left", host.location());
                return Err(Fault::unreachable("--spares", problem)
                    .details(notices)
                    .fix("add hosts to the spares, or wait until the host is back")
                    .report());
            };
            let Some(problem) = unfit(&spare, host, &hosts, lost, &chosen) else {
                break spare;
            };
            notices.push(format!("{} is passed over: {problem}", spare.ip));
        };
        notices.push(format!(
            "{} replaces {}, which was lost ({why}); update ip_config",
            spare.ip,
            host.location()
        ));
        chosen.insert(*id, spare);
    }
    let lines = lines(stream, hosts, &chosen)
        .map_err(|error| Fault::data("stdin", error.to_string()).report())?;
    Ok(Swapped { lines, notices })
}

/// Why a host cannot take the place of `replaced`.
fn unfit(
    host: &Host,
    replaced: &Host,
    hosts: &[Host],
    lost: &LostHosts,
    chosen: &BTreeMap<u32, Host>,
) -> Option<String> {
    if chosen.values().any(|other| other.ip == host.ip) {
        return Some("it already replaces another host".to_owned());
    }
    if let Some(known) = hosts.iter().find(|known| known.ip == host.ip) {
        return Some(if lost.0.contains_key(&known.id) {
            "it is a host that was lost".to_owned()
        } else {
            "it is a host of the job".to_owned()
        });
    }
    if host.ok == Some(false) {
        return Some(host.error.clone().unwrap_or_else(|| "it failed".to_owned()));
    }
    if host.facts == Facts::default() {
        return Some("it was not probed".to_owned());
    }
    // hosts that were not probed do not show what a spare must have
    let others = hosts
        .iter()
        .filter(|other| !lost.0.contains_key(&other.id) && other.facts != Facts::default());
    let mut compared: Vec<(&Host, &Facts)> = others.map(|other| (other, &other.facts)).collect();
    compared.push((host, &host.facts));
    if let Some(differences) = odd_versions(&compared, true).pop().flatten() {
        return Some(format!("it has {differences}"));
    }
    let (first, facts) = compared[0];
    if facts.prefix.is_some() != host.facts.prefix.is_some() {
        return Some("it was not probed for the environment of the others".to_owned());
    }
    // the paths of the stream that begin with ~/ have the home of the others
    if let (Some(theirs), Some(own)) = (&facts.home, &host.facts.home)
        && theirs != own
    {
        let there = first.location();
        return Some(format!("its home is {own}, where {there} has {theirs}"));
    }
    let (had, has) = (
        replaced.facts.gpus.unwrap_or(0),
        host.facts.gpus.unwrap_or(0),
    );
    (has < had).then(|| {
        let count = |gpus: u32| record::term::count(gpus.into(), "GPU");
        format!("it has {}, where the lost host had {had}", count(has))
    })
}

/// Omits deliveries to lost hosts and processes planned for them.
fn lines(
    stream: &Stream,
    mut hosts: Vec<Host>,
    chosen: &BTreeMap<u32, Host>,
) -> Result<Vec<Vec<u8>>, serde_json::Error> {
    for host in &mut hosts {
        if let Some(spare) = chosen.get(&host.id) {
            *host = in_place_of(spare, host);
        }
    }
    let ip_config = record::ip_config(&hosts);
    let mut lines = Vec::new();
    for (line, host) in stream.lines() {
        let spare = host.filter(|id| chosen.contains_key(id));
        let replaced = spare.and_then(|id| record::host_of(&hosts, id));
        lines.push(match (replaced, type_of(line)?.as_str()) {
            (Some(host), _) => jsonl::line(host),
            (None, Pushed::TYPE | Process::TYPE) => continue,
            (None, FileCopy::TYPE) => [&with_ip_config(line, &ip_config)?[..], b"\n"].concat(),
            (None, _) => [line, b"\n"].concat(),
        });
    }
    Ok(lines)
}

fn type_of(line: &[u8]) -> Result<String, serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct TypeOfLine {
        r#type: String,
    }
    serde_json::from_slice(line).map(|head: TypeOfLine| head.r#type)
}

fn in_place_of(spare: &Host, lost: &Host) -> Host {
    Host {
        id: lost.id,
        of: lost.of,
        port: lost.port,
        // the line number is for another file
        line: None,
        ..spare.clone()
    }
}

/// A file record, with the new text if it is the ip_config.
fn with_ip_config(line: &[u8], ip_config: &str) -> Result<Vec<u8>, serde_json::Error> {
    let file: FileCopy = serde_json::from_slice(line)?;
    if file.kind != "ip_config" || file.content.is_none() {
        return Ok(line.to_vec());
    }
    let changed = [
        ("content", ip_config.into()),
        ("bytes", ip_config.len().into()),
    ];
    jsonl::with_fields(line, changed)
}
