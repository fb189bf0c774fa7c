//! Leaves a job to its hosts: on each, an agent becomes the job's keeper; the first host's leads
//! and the others join it. They learn each other's keys over our logins.

use super::answers::{Answers, wait_for};
use crate::plan;
use crate::run::hosts::{ConnectedHosts, RunEvent};
use crate::run::outcome::Stopped;
use record::term::millis;
use record::{Host, Process, Role};
use wire::keep::{Guest, Join, Prepare, Prepared, Record};
use wire::supervise::{End, Start};
use wire::{Event, Request, servers};

/// The record that a host keeps of a process. It identifies the process and omits its environment
/// and command, which may hold secrets.
fn record(process: &Process) -> Record {
    let known = Process {
        env: process
            .env
            .iter()
            .filter(|(name, _)| name.starts_with("DGL_"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        env_b64: Default::default(),
        setup: None,
        argv: Some(Vec::new()),
        argv_b64: None,
        shell: None,
        python: None,
        script: None,
        ..process.clone()
    };
    Record {
        record: String::from_utf8_lossy(&record::jsonl::line(&known))
            .trim_end()
            .to_owned(),
    }
}

/// Leaves the job to its hosts, which know it already. Returns the events that came before all
/// hosts kept it. If anything fails, nothing is left.
pub fn launch(
    hosts: &ConnectedHosts<'_>,
    plan: &plan::Job,
    processes: &[Process],
    start: impl Fn(&Host) -> Start,
) -> Result<Vec<RunEvent>, Stopped> {
    let launched =
        prepare(hosts, plan, processes).and_then(|prepared| start_all(hosts, &prepared, start));
    if launched.is_err() {
        hosts.send_all(&Request::End(End {
            grace_ms: millis(plan.grace),
            stacks: false,
        }));
    }
    launched
}

fn prepare(
    hosts: &ConnectedHosts<'_>,
    plan: &plan::Job,
    processes: &[Process],
) -> Result<Vec<Prepared>, Stopped> {
    for (at, session) in hosts.sessions.iter().enumerate() {
        for member in &session.members {
            session.send(Request::Record(record(&processes[*member])));
        }
        let serves = session
            .members
            .iter()
            .map(|member| &processes[*member])
            .find(|process| is_staying_server(process))
            .map(data);
        let limits = if at == 0 {
            plan.limits.clone()
        } else {
            Vec::new()
        };
        // graph servers alone wait for trainers, whenever these come
        let has_clients = processes.iter().any(|one| one.role != Role::Server);
        session.send(Request::Prepare(Box::new(Prepare {
            leads: at == 0,
            limits,
            stall: plan.stall.filter(|_| at == 0 && has_clients),
            serves,
        })));
    }
    let all: Vec<usize> = (0..hosts.sessions.len()).collect();
    let prepared = wait_for(hosts, &all, |event| {
        if let Event::Prepared(prepared) = event {
            Some(prepared.clone())
        } else {
            None
        }
    })?;
    Ok(prepared.answers)
}

/// The first host must know whom to let in before any other host joins.
fn start_all(
    hosts: &ConnectedHosts<'_>,
    prepared: &[Prepared],
    start: impl Fn(&Host) -> Start,
) -> Result<Vec<RunEvent>, Stopped> {
    let is_kept = |event: &Event| matches!(event, Event::Kept(_)).then_some(());
    let ([first, others @ ..], [leader, guests @ ..]) = (&hosts.sessions[..], prepared) else {
        return Ok(Vec::new());
    };
    for (session, guest) in others.iter().zip(guests) {
        first.send(Request::Guest(Guest {
            host: session.host.id,
            key: guest.key.clone(),
        }));
    }
    first.send(Request::Start(start(first.host)));
    let Answers { mut early, .. } = wait_for(hosts, &[0], is_kept)?;
    let join = Join {
        host: first.host.id,
        address: first.host.ip.0,
        port: leader.port.unwrap_or_default(),
        key: leader.key.clone(),
    };
    for session in others {
        session.send(Request::Join(join.clone()));
        session.send(Request::Start(start(session.host)));
    }
    let others: Vec<usize> = (1..hosts.sessions.len()).collect();
    early.extend(wait_for(hosts, &others, is_kept)?.early);
    Ok(early)
}

fn is_staying_server(process: &Process) -> bool {
    process.server_name.is_some() && process.role == Role::Server
}

/// The settings that graph servers that stay and their trainers must have in common.
pub fn data(process: &Process) -> servers::Data {
    let variable = |name: &str| process.env.get(name).map_or("", String::as_str);
    servers::Data {
        folder: process.cwd.as_deref().unwrap_or(".").into(),
        ip_config: variable("DGL_IP_CONFIG").into(),
        part_config: variable("DGL_CONF_PATH").into(),
        clients: variable("DGL_NUM_CLIENT").to_owned(),
        servers: variable("DGL_NUM_SERVER").to_owned(),
        samplers: variable("DGL_NUM_SAMPLER").to_owned(),
    }
}
