//! Attaches to a detached job, by following the output of its launcher on the first host.

use crate::args::Args;
use crate::sink;
use launcher::detached::follow::{Follower, Until, conclude};
use launcher::detached::start::on_host;
use launcher::preflight::conversation::SEE_FOLDER;
use launcher::run::hosts::ConnectedHosts;
use launcher::run::launcher::own_fault;
use launcher::run::signals::Signals;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::Stream;
use record::{Host, Process};
use remote::conversation::{self, ANSWER_LIMIT, HostAnswers};
use remote::{Remote, Session};
use std::time::Instant;
use wire::{Event, Request};

/// Follows the job until it ends or a signal arrives.
pub fn attach(args: &Args, stream: &Stream, hosts: &[Host], name: &str) -> Result<Exit, Report> {
    let begun = Instant::now();
    let remote = Remote::new(args.connect.options())?;
    let (found, report) = find(&remote, hosts, name)?;
    let Some((host, session, processes)) = found else {
        report.check()?;
        let fault = Fault::item(
            "--attach",
            format!("no host has a detached job named {name}"),
        );
        return Err(fault
            .fix("its first host must be in the stream; dgl-reap --list shows the jobs that run")
            .report());
    };
    report.print("dgl-spawn");
    let mut sink = sink::open(args, args.log_dir.as_deref(), stream, hosts, &processes)?;
    if !stream.has::<Process>() {
        processes.iter().for_each(|process| sink.record(process));
    }
    let signals = Signals::watch().map_err(|error| own_fault(&error))?;
    let sessions = vec![(host, Vec::new(), session)];
    let connected = ConnectedHosts::new(sessions, args.host_timeout, signals.inbox());
    let mut connected = connected.map_err(|error| own_fault(&error))?;
    connected.sessions[0].send(Request::Follow(on_host(name, host)));
    let followed = Follower::begin(Until::Ended, name, &processes, &mut connected, &mut sink).run();
    let exit = conclude(followed, name, begun, sink, &signals);
    Ok(match report.0.is_empty() {
        true => exit,
        false => exit.worst(report.exit()),
    })
}

/// The host on which the launcher of a job runs, and the processes of the job.
type FoundJob<'a> = (&'a Host, Session, Vec<Process>);

/// Searches for the job on all hosts. Reports hosts that cannot be asked.
fn find<'a>(
    remote: &Remote,
    hosts: &'a [Host],
    name: &str,
) -> Result<(Option<FoundJob<'a>>, Report), Report> {
    let (sessions, mut report) = remote.open_reachable(hosts);
    let mut asked: Vec<_> = sessions.into_iter().map(HostAnswers::new).collect();
    conversation::ask(
        &mut asked,
        |host| vec![Request::ListRecords(on_host(name, host))],
        &|_, event| match event {
            Event::NoJob => Some(Ok(None)),
            Event::Record(record) => Some(process(&record.record).map(Some)),
            _ => None,
        },
        |_| ANSWER_LIMIT,
    )?;
    let mut found = None;
    for one in asked {
        let processes: Result<Vec<Option<Process>>, String> = one.answers.into_iter().collect();
        match (one.fault, processes) {
            (Some(fault), _) => report.push(fault),
            (None, Err(why)) => {
                report.push(Fault::unreachable(one.host.location(), why).fix(SEE_FOLDER));
            }
            (None, Ok(processes)) => {
                let processes: Vec<Process> = processes.into_iter().flatten().collect();
                if !processes.is_empty() && found.is_none() {
                    found = Some((one.host, one.session, processes));
                }
            }
        }
    }
    Ok((found, report))
}

/// The process of a record that a host has sent.
fn process(record: &str) -> Result<Process, String> {
    serde_json::from_str(record)
        .map_err(|error| format!("its record of a process is broken: {error}"))
}
