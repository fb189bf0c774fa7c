//! Attaches to a job that was left: to its output and its status.

use super::answers::SEE_FOLDER;
use crate::args::Args;
use crate::plan;
use crate::run::event_loop::EventLoop;
use crate::run::hosts::ConnectedHosts;
use crate::run::launcher::{open_sink, own_fault};
use crate::run::outcome::{Outcome, conclude};
use crate::run::signals::Signals;
use job::Mode;
use rayon::prelude::*;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::Stream;
use record::{Host, Process, Record as _};
use remote::{self, Kind, Remote, Session, SessionEvent};
use std::time::{Duration, Instant};
use wire::keep::Follow;
use wire::supervise::Start;
use wire::{Event, Request};

/// An agent answers at once; a host that takes longer hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// How many hosts' records are read at once. Each waits; none computes.
const AT_ONCE: usize = 256;
/// More processes than any host has.
const MAX_PROCESSES: usize = 65_536;
/// The most that a host may tell of its processes, in bytes: a record has some KB, with the user's
/// variables in it. Here it takes a few times as much.
const MAX_RECORDS: u64 = 16 << 20;

/// Follows the job until it ends or a signal comes.
pub fn attach(args: &Args, stream: &Stream, hosts: &[Host], name: &str) -> Result<Exit, Report> {
    let begun = Instant::now();
    let remote = Remote::new(args.connect.options(), Kind::Ssh2)?;
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
    for FoundJob {
        host,
        session,
        processes: own,
    } in found
    {
        let members = (processes.len()..).take(own.len()).collect();
        processes.extend(own);
        sessions.push((host, members, session));
    }
    let mut sink = open_sink(args, stream, hosts, &processes)?;
    if !stream.has::<Process>() {
        processes.iter().for_each(|process| sink.record(process));
    }
    let signals = Signals::watch().map_err(|error| own_fault(&error))?;
    let mut connected =
        ConnectedHosts::new(sessions, args.host_timeout).map_err(|error| own_fault(&error))?;
    signals.go_to_inbox(connected.inbox());
    connected.send_all(&Request::Start(Start::default()));
    let plan = plan::Job::followed(name, args.grace, args.host_timeout);
    let ended = EventLoop::begin(
        Mode::Following,
        &plan,
        (&processes, 0),
        &mut connected,
        Vec::new(),
        &mut sink,
    )
    .run();
    let exit = conclude(hosts, &plan, &Outcome::of(ended), begun, sink, &signals);
    Ok(if report.0.is_empty() {
        exit
    } else {
        exit.worst(report.exit())
    })
}

/// A host of a job that was left, with the processes that it reported.
struct FoundJob<'a> {
    host: &'a Host,
    session: Session,
    /// The processes, in the order in which the host's agent numbers them.
    processes: Vec<Process>,
}

/// Looks for the job on all hosts. Hosts that cannot be asked are reported.
fn find<'a>(
    remote: &Remote,
    hosts: &'a [Host],
    name: &str,
) -> Result<(Vec<FoundJob<'a>>, Report), Report> {
    let (sessions, mut report) = remote.open_reachable(hosts);
    let pool = remote::threads(sessions.len().min(AT_ONCE))?;
    let read: Vec<_> = pool.install(|| {
        sessions
            .into_par_iter()
            .map(|(host, session)| records(host, session, name))
            .collect()
    });
    let mut found = Vec::new();
    for one in read {
        match one {
            Ok(one) => found.extend(one),
            Err(fault) => report.push(fault),
        }
    }
    Ok((found, report))
}

/// The records that a host has of the job; `None` if it has no such job.
fn records<'a>(
    host: &'a Host,
    mut session: Session,
    name: &str,
) -> Result<Option<FoundJob<'a>>, Fault> {
    let fault = |problem: String| Fault::unreachable(host.place(), problem).fix(SEE_FOLDER);
    session.send(&Request::Follow(Follow {
        job: name.to_owned(),
        address: host.ip.0,
        records: true,
    }));
    let mut processes: Vec<Process> = Vec::new();
    let until = Instant::now() + ANSWER_LIMIT;
    while Instant::now() < until {
        if processes.len() > MAX_PROCESSES || session.received() > MAX_RECORDS {
            return Err(fault(format!(
                "it tells of more than {MAX_PROCESSES} processes, or more than {} MB of them",
                MAX_RECORDS >> 20
            )));
        }
        for heard in session.step(None, until.saturating_duration_since(Instant::now())) {
            match heard {
                SessionEvent::Event(Event::Record(record), _) => {
                    let process: Process =
                        serde_json::from_str(&record.record).map_err(|error| {
                            fault(format!(
                                "its record of a {} is broken: {error}",
                                Process::TYPE
                            ))
                        })?;
                    if process.host != host.id {
                        return Err(fault(format!(
                            "its record of a {} is of host {}",
                            Process::TYPE,
                            process.host
                        )));
                    }
                    processes.push(process);
                }
                SessionEvent::Event(Event::Ready, _) => {
                    return Ok(Some(FoundJob {
                        host,
                        session,
                        processes,
                    }));
                }
                SessionEvent::Event(Event::NoJob, _) => return Ok(None),
                SessionEvent::Event(Event::Failed(failure), _) => {
                    return Err(fault(failure.problem));
                }
                SessionEvent::Event(..) => {}
                SessionEvent::Lost(why) => return Err(fault(why)),
            }
        }
    }
    Err(fault(format!(
        "it did not tell of the job within {} s",
        ANSWER_LIMIT.as_secs()
    )))
}
