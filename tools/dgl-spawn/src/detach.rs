//! A job that outlives its launcher, and going back to it. On each host a guard (guard.py) is the launcher to the host's script; the guard
//! of the first host decides, and the others hear of it over connections of their own. Here it is started, and followed.

use crate::plan::{Job, Text, log_name};
use crate::preflight;
use crate::run::outcome::Stopped;
use crate::site::{Event, Site};
use common::error::{Fault, Report};
use common::quote;
use common::record::{Host, Process, Record, Role};
use common::remote::{self, BOOT, Heard, Remote, Running};
use job::Limit;
use rayon::prelude::*;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

const DETACH_SH: &str = include_str!("detach.sh");
const ATTACH_SH: &str = include_str!("attach.sh");
const GUARD_PY: &str = include_str!("guard.py");
const FOLLOW_PY: &str = include_str!("follow.py");

/// A guard is a Python that starts, and a connection; a host that takes longer hangs.
const GUARD_LIMIT: Duration = Duration::from_secs(60);
/// What a host keeps of such a job.
const SEE_FOLDER: &str = "look into ~/.local/state/dgl-tools there: it has a folder a job, with what happened and the logs";
/// Hosts whose records are read at once: each waits, none computes.
const AT_ONCE: usize = 256;

/// What the script of a host of such a job has beside the others'.
pub fn lines(text: &mut Text, job: &Job, host: &Host, processes: &[&Process], hosts: usize) {
    let mut limits = [Duration::ZERO; 2];
    for limit in &job.limits {
        match limit {
            Limit::Start(time) => limits[0] = *time,
            Limit::Job(time) => limits[1] = *time,
        }
    }
    let roles = processes.iter().map(|process| match (process.role == Role::Server, process.port) {
        (true, Some(_)) => 'S',
        (true, None) => 's',
        (false, _) => 't',
    });
    let [start, whole] = limits.map(|limit| limit.as_secs_f32());
    let (grace, lost_after) = (job.grace.as_secs_f32(), job.host_timeout.as_secs_f32());
    let words = format!("{} {hosts} {} {grace} {lost_after} {start} {whole}", host.id, roles.collect::<String>());
    let records: Vec<u8> = processes.iter().flat_map(|process| common::jsonl::line(&known(process))).collect();
    for (name, value) in [
        ("address", host.ip.to_string().as_bytes()),
        ("guard_words", words.as_bytes()),
        ("records", &records),
        ("boot", BOOT.as_bytes()),
        ("guard", GUARD_PY.as_bytes()),
        ("follow", FOLLOW_PY.as_bytes()),
    ] {
        text.words([name.as_bytes(), b"=", &quote::sh(value)]);
    }
    for (id, process) in processes.iter().enumerate() {
        text.line([&format!("log_{id}={}", log_name(process))]);
    }
    text.0.extend_from_slice(DETACH_SH.as_bytes());
}

/// What is kept of a process on its host: who it is, not what it was given, which may be a secret.
fn known(process: &Process) -> Process {
    Process {
        env: process.env.iter().filter(|(name, _)| name.starts_with("DGL_")).map(|(name, value)| (name.clone(), value.clone())).collect(),
        env_b64: Default::default(),
        setup: None,
        argv: Some(Vec::new()),
        argv_b64: None,
        shell: None,
        ..process.clone()
    }
}

/// Starts the guards: first the one that the others join. What the job does is told only when all are there: nobody listens before.
pub fn launch(sites: &[Site<'_>], group: Option<Group>, happening: &Receiver<Event>) -> Result<(), Stopped> {
    let launched = launch_all(sites, group, happening);
    let order = if launched.is_ok() { "start" } else { "end" };
    sites.iter().for_each(|site| site.say(order));
    launched
}

fn launch_all(sites: &[Site<'_>], group: Option<Group>, happening: &Receiver<Event>) -> Result<(), Stopped> {
    let Some(first) = sites.first() else { return Ok(()) };
    let leader = first.host.ip;
    let order = format!("detach {} {leader}", group.map_or_else(|| "-".to_owned(), |group| format!("{},{}", group.number, group.port)));
    first.say(&order);
    let until = Instant::now() + GUARD_LIMIT;
    let mut guards = vec![false; sites.len()];
    let mut faults = Report::default();
    while faults.0.is_empty() && !guards.iter().all(|guard| *guard) {
        let (at, line) = match happening.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(number)) => return Err(Stopped::Signal(number)),
            Ok(Event::Aside(_)) => continue,
            Ok(Event::Host(at, Heard::Line(line))) => (at, String::from_utf8_lossy(&line).into_owned()),
            Ok(Event::Host(at, Heard::Lost(why))) => (at, format!("fault {why}")),
            Ok(Event::Host(at, Heard::Ended(_))) => (at, "fault the job's guard does not start there".to_owned()),
            Err(_) => {
                let late = guards.iter().position(|guard| !guard).unwrap_or_default();
                (late, format!("fault the job's guard was not there after {} s", GUARD_LIMIT.as_secs()))
            }
        };
        match line.split_once(' ') {
            Some(("guard", port)) => {
                guards[at] = true;
                if at == 0 {
                    sites[1..].iter().for_each(|site| site.say(&format!("{order} {port}")));
                }
            }
            Some(("named", name)) => return Err(Stopped::Preflight(preflight::scripts::named(sites[at].host, name).report())),
            Some(("fault", why)) => {
                faults.push(Fault::unreachable(sites[at].host.place(), why).fix(SEE_FOLDER));
            }
            _ => {}
        }
    }
    faults.check().map_err(Stopped::Hosts)
}

/// A group of trainers that uses graph servers that stay.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its number among all that use them.
    pub number: u32,
    /// Where torch's rendezvous listens on the first host.
    pub port: u16,
}

/// The first host gives numbers and ports out.
pub fn group(sites: &[Site<'_>], happening: &Receiver<Event>) -> Result<Group, Stopped> {
    ask(sites, "group", happening, |line| {
        let (number, port) = line.strip_prefix("group ")?.split_once(' ')?;
        Some(Group { number: number.parse().ok()?, port: port.parse().ok()? })
    })
}

/// Whether the graph servers may be started from here; otherwise another launcher does it just now. It holds as long as the sites do.
pub fn claim(sites: &[Site<'_>], happening: &Receiver<Event>) -> Result<bool, Stopped> {
    ask(sites, "claim", happening, |line| match line {
        "claimed" => Some(true),
        "servers starting" => Some(false),
        _ => None,
    })
}

/// Asks the first host, before the start; no host may be lost meanwhile.
fn ask<T>(sites: &[Site<'_>], what: &str, happening: &Receiver<Event>, answer: fn(&str) -> Option<T>) -> Result<T, Stopped> {
    let until = Instant::now() + GUARD_LIMIT;
    sites[0].say(what);
    let fault = |at: usize, why: String| Err(Stopped::Hosts(Fault::unreachable(sites[at].host.place(), why).fix(SEE_FOLDER).report()));
    loop {
        match happening.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(number)) => return Err(Stopped::Signal(number)),
            Ok(Event::Host(0, Heard::Line(line))) => {
                let line = String::from_utf8_lossy(&line);
                if let Some(answer) = answer(&line) {
                    return Ok(answer);
                }
                if let Some(why) = line.strip_prefix("fault ") {
                    return fault(0, why.to_owned());
                }
            }
            Ok(Event::Host(at, Heard::Lost(why))) => return fault(at, why),
            Ok(Event::Host(at, Heard::Ended(status))) => return fault(at, format!("its script ended with status {status}")),
            Ok(Event::Host(_, Heard::Line(_)) | Event::Aside(_)) => {}
            Err(_) => return fault(0, format!("no answer to {what} within {} s", GUARD_LIMIT.as_secs())),
        }
    }
}

/// A host of a detached job, with the script that follows it there, and what it told of its processes.
pub struct Found {
    /// Its position among the hosts that were asked.
    pub at: usize,
    /// The script.
    pub running: Running,
    /// In the order of the script's ids.
    pub processes: Vec<Process>,
}

/// Looks for a detached job; what cannot be asked is reported beside it.
pub fn find(remote: &Remote, how: common::cli::HostKey, hosts: &[Host], name: &str) -> Result<(Vec<Found>, Report), Report> {
    let script = |host: &Host| {
        let mut text = Text::default();
        for (variable, value) in [("job", name), ("address", &host.ip.to_string()), ("follow", FOLLOW_PY)] {
            text.words([variable.as_bytes(), b"=", &quote::sh(value)]);
        }
        text.0.extend_from_slice(ATTACH_SH.as_bytes());
        text.0
    };
    let opened = remote.open_all(hosts, script)?;
    let refused = hosts.iter().zip(&opened).filter_map(|(host, opened)| Some((host, opened.as_ref().err()?)));
    let mut report = remote::report(refused, how);
    let running: Vec<_> = opened.into_iter().enumerate().filter_map(|(at, opened)| Some((at, opened.ok()?))).collect();
    let read = |(at, running): (usize, Running)| {
        records(&hosts[at], running).map(|found| found.map(|(running, processes)| Found { at, running, processes }))
    };
    let pool = remote::threads(running.len().min(AT_ONCE))?;
    let read: Vec<_> = pool.install(|| running.into_par_iter().map(read).collect());
    let mut found = Vec::new();
    for one in read {
        match one {
            Ok(one) => found.extend(one),
            Err(fault) => report.push(fault),
        }
    }
    Ok((found, report))
}

/// What follow.py tells first; `None` where there is no such job.
fn records(host: &Host, mut running: Running) -> Result<Option<(Running, Vec<Process>)>, Fault> {
    let fault = |problem: String| Fault::unreachable(host.place(), problem).fix(SEE_FOLDER);
    let mut processes = Vec::new();
    loop {
        let heard = running.step(None, GUARD_LIMIT);
        if heard.is_empty() && running.last_heard().elapsed() >= GUARD_LIMIT {
            return Err(fault(format!("silent for {} s", GUARD_LIMIT.as_secs())));
        }
        for heard in heard {
            match heard {
                Heard::Line(line) if line == b"ready" => return Ok(Some((running, processes))),
                Heard::Line(line) if line == b"none" => return Ok(None),
                Heard::Line(line) => {
                    if let Some(record) = line.strip_prefix(b"process ") {
                        let process = serde_json::from_slice(record);
                        processes.push(process.map_err(|error| fault(format!("its record of a {} is broken: {error}", Process::TYPE)))?);
                    }
                }
                Heard::Ended(_) => return Err(fault(format!("it cannot tell of the job: {}", running.last_words()))),
                Heard::Lost(why) => return Err(fault(why)),
            }
        }
    }
}
