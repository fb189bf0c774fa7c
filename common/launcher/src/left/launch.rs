//! Leaves a job to its hosts: on each, an agent becomes the job's keeper; the first host's leads
//! and the others join it. They learn each other's keys over our logins.

use crate::plan;
use crate::preflight::conversation::Conversation;
use crate::preflight::describe::name_in_use;
use crate::run::hosts::{HostSession, RunEvent};
use crate::run::outcome::Stopped;
use crate::run::records::member;
use job::Ending;
use record::error::Report;
use record::term::millis;
use record::{Host, Process, Role};
use session::SessionEvent;
use std::collections::BTreeMap;
use wire::job::JobOnHost;
use wire::keep::{ExpectPeer, Join, Prepare, Prepared, Record};
use wire::preflight::Finding;
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
    talk: &mut Conversation<'_, '_>,
    plan: &plan::Job,
    processes: &[Process],
    start: impl Fn(&Host) -> Start,
) -> Result<Vec<RunEvent>, Stopped> {
    let launched = prepare(talk, plan, processes)
        .and_then(|prepared| start_all(talk, processes, &prepared, start));
    if launched.is_err() {
        talk.hosts.send_all(&Request::End(End {
            grace_ms: millis(plan.rules.grace),
            stacks: false,
            ending: Ending::default(),
        }));
    }
    launched
}

fn prepare(
    talk: &mut Conversation<'_, '_>,
    plan: &plan::Job,
    processes: &[Process],
) -> Result<BTreeMap<usize, Prepared>, Stopped> {
    for at in talk.all() {
        let members = &talk.hosts.sessions[at].members;
        let own: Vec<&Process> = members.iter().map(|member| &processes[*member]).collect();
        for process in &own {
            talk.ask(at, Request::Record(record(process)));
        }
        let serves = own.into_iter().find(|process| is_staying_server(process));
        let prepare = Prepare {
            leads: (at == 0).then(|| plan.rules.clone()),
            serves: serves.map(data),
        };
        talk.ask(at, Request::Prepare(Box::new(prepare)));
    }
    let (mut all, mut in_use) = (BTreeMap::new(), Report::default());
    let hosts = talk.hosts;
    talk.collect(|at, event, _| match event {
        Event::Prepared(prepared) => {
            all.insert(at, prepared);
        }
        Event::Preflight(Finding::NameInUse) => {
            let location = hosts.sessions[at].host.location();
            in_use.push(name_in_use(&plan.name, None).fault(location));
        }
        _ => {}
    })?;
    in_use.check().map_err(Stopped::Preflight)?;
    Ok(all)
}

/// The first host must know whom to let in before any other host joins.
fn start_all(
    talk: &mut Conversation<'_, '_>,
    processes: &[Process],
    prepared: &BTreeMap<usize, Prepared>,
    start: impl Fn(&Host) -> Start,
) -> Result<Vec<RunEvent>, Stopped> {
    let sessions = &talk.hosts.sessions;
    let (Some(first), Some(leader)) = (sessions.first(), prepared.get(&0)) else {
        return Ok(Vec::new());
    };
    let mut early = Vec::new();
    let mut take = |at: usize, event: Event, body: Vec<u8>| {
        if !matches!(event, Event::Kept(_)) {
            early.push(RunEvent::Host(at, SessionEvent::Event(event, body)));
        }
    };
    for (at, Prepared { key, .. }) in prepared.range(1..) {
        let HostSession { host, members, .. } = &sessions[*at];
        let peer = ExpectPeer {
            host: host.id,
            key: key.clone(),
            processes: members.iter().map(|at| member(&processes[*at])).collect(),
        };
        talk.ask(0, Request::ExpectPeer(peer));
    }
    talk.ask(0, Request::Start(start(first.host)));
    talk.collect(&mut take)?;
    let join = Join {
        host: first.host.id,
        address: first.host.ip.0,
        port: leader.port.unwrap_or_default(),
        key: leader.key.clone(),
    };
    for (at, session) in sessions.iter().enumerate().skip(1) {
        talk.ask(at, Request::Join(join.clone()));
        talk.ask(at, Request::Start(start(session.host)));
    }
    talk.collect(&mut take)?;
    Ok(early)
}

/// Names a job on one of its hosts.
pub fn on_host(name: &str, host: &Host) -> JobOnHost {
    JobOnHost {
        name: name.to_owned(),
        address: host.ip.0,
    }
}

fn is_staying_server(process: &Process) -> bool {
    process.server_name.is_some() && process.role == Role::Server
}

/// The settings that persistent graph servers and their trainers must have in common.
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
