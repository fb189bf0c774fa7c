//! Attaches to a detached job: to its output and its status.

use crate::args::Args;
use crate::sink;
use job::Mode;
use launcher::left::launch::on_host;
use launcher::plan;
use launcher::preflight::conversation::SEE_FOLDER;
use launcher::run::event_loop::EventLoop;
use launcher::run::hosts::ConnectedHosts;
use launcher::run::launcher::own_fault;
use launcher::run::outcome::conclude;
use launcher::run::signals::Signals;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::Stream;
use record::{Host, Process};
use remote::conversation::{self, ANSWER_LIMIT, HostAnswers};
use remote::{Remote, Session};
use std::time::Instant;
use wire::{Event, Request};

/// Follows the job until it ends or a signal comes.
pub fn attach(args: &Args, stream: &Stream, hosts: &[Host], name: &str) -> Result<Exit, Report> {
    let begun = Instant::now();
    let remote = Remote::new(args.connect.options())?;
    let (found, report) = find(&remote, hosts, name)?;
    if found.is_empty() {
        report.check()?;
        let fault = Fault::item(
            "--attach",
            format!("no host has a detached job named {name}"),
        );
        return Err(fault
            .fix("dgl-reap --list shows the jobs that run")
            .report());
    }
    report.print("dgl-spawn");
    let (mut processes, mut sessions) = (Vec::new(), Vec::new());
    for (host, session, own) in found {
        let members = (processes.len()..).take(own.len()).collect();
        processes.extend(own);
        sessions.push((host, members, session));
    }
    let mut sink = sink::open(args, stream, hosts, &processes)?;
    if !stream.has::<Process>() {
        processes.iter().for_each(|process| sink.record(process));
    }
    let signals = Signals::watch().map_err(|error| own_fault(&error))?;
    let connected = ConnectedHosts::new(sessions, args.host_timeout, signals.inbox());
    let mut connected = connected.map_err(|error| own_fault(&error))?;
    for session in &connected.sessions {
        session.send(Request::Follow(on_host(name, session.host)));
    }
    let plan = plan::Job::followed(name, args.grace, args.host_timeout);
    let outcome = EventLoop::begin(
        Mode::Following,
        &plan,
        (&processes, 0),
        &mut connected,
        Vec::new(),
        &mut sink,
    )
    .run();
    let exit = conclude(hosts, &plan, &outcome, begun, sink, &signals);
    Ok(if report.0.is_empty() {
        exit
    } else {
        exit.worst(report.exit())
    })
}

/// A host of a detached job, and the processes that it reported, in the order in which its
/// agent numbers them.
type FoundJob<'a> = (&'a Host, Session, Vec<Process>);

/// Looks for the job on all hosts. Hosts that cannot be asked are reported.
fn find<'a>(
    remote: &Remote,
    hosts: &'a [Host],
    name: &str,
) -> Result<(Vec<FoundJob<'a>>, Report), Report> {
    let (sessions, mut report) = remote.open_reachable(hosts);
    let mut asked: Vec<_> = sessions.into_iter().map(HostAnswers::new).collect();
    conversation::ask(
        &mut asked,
        |host| vec![Request::ListRecords(on_host(name, host))],
        &|host, event| match event {
            Event::NoJob => Some(Ok(None)),
            Event::Record(record) => Some(process(host, &record.record).map(Some)),
            _ => None,
        },
        |_| ANSWER_LIMIT,
    )?;
    let mut found = Vec::new();
    for one in asked {
        let processes: Result<Vec<Option<Process>>, String> = one.answers.into_iter().collect();
        match (one.fault, processes) {
            (Some(fault), _) => report.push(fault),
            (None, Err(why)) => {
                report.push(Fault::unreachable(one.host.location(), why).fix(SEE_FOLDER));
            }
            (None, Ok(processes)) => {
                let processes: Vec<Process> = processes.into_iter().flatten().collect();
                if !processes.is_empty() {
                    found.push((one.host, one.session, processes));
                }
            }
        }
    }
    Ok((found, report))
}

/// The process of a record that a host has sent.
fn process(host: u32, record: &str) -> Result<Process, String> {
    let process: Process = serde_json::from_str(record)
        .map_err(|error| format!("its record of a process is broken: {error}"))?;
    match process.host == host {
        true => Ok(process),
        false => Err(format!(
            "its record of a process is of host {}",
            process.host
        )),
    }
}
