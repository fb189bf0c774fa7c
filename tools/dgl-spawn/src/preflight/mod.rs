//! Before the start: the job claims what it needs on its hosts, and all hosts are examined.
//! Everything that is wrong comes in one report, and then nothing is started.
//!
//! [`request`] decides what each host is asked, [`claims`] which of several launchers may start,
//! [`diagnosis`] what the findings of all hosts mean together, [`words`] what one finding means by
//! itself, [`reachability`] which host tries to reach which.

mod claims;
pub mod conversation;
pub mod diagnosis;
mod faults;
pub mod reachability;
mod request;
mod words;

pub use faults::name_in_use;

use crate::run::hosts::ConnectedHosts;
use crate::run::outcome::Stopped;
use conversation::{Conversation, PreflightEvent};
use diagnosis::Diagnosis;
use record::error::Fault;
use record::term;
use record::{Graph, Host, Process, Role};
use std::time::{Duration, Instant};
use wire::preflight::{Check, Claim, Finding, Port};
use wire::{Event, Request};

/// Examining a host takes well under a second, and a file system that hangs must not hold the job
/// up for ever.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// TIME_WAIT lasts 60 s.
const LINGER_LIMIT: Duration = Duration::from_secs(62);
/// How often ports in TIME_WAIT are examined again.
const LINGER_PAUSE: Duration = Duration::from_secs(2);
/// How often a job that waits for its turn tries to begin.
const TURN_PAUSE: Duration = Duration::from_secs(1);

/// A job that is about to start.
pub struct JobUnderCheck<'a> {
    /// The job's name.
    pub job: &'a str,
    /// All hosts of the stream.
    pub hosts: &'a [Host],
    /// The processes of the job, to which the connected hosts refer by position.
    pub processes: &'a [Process],
    /// The graph, if the stream has one.
    pub graph: Option<&'a Graph>,
    /// Whether the job gets a /dev/shm of its own.
    pub private_shm: bool,
    /// Whether hosts are examined for more than claims of other jobs.
    pub looks: bool,
    /// How long it waits for the end of other jobs that are in its way.
    pub wait: Option<Duration>,
}

/// Claims what the job needs, and examines whether it can start. When this has succeeded, its hosts
/// are its own until their agents end. `notice` shows people what is waited for.
pub fn prepare(
    talk: &mut Conversation<'_, '_>,
    subject: &JobUnderCheck<'_>,
    notice: &mut dyn FnMut(&str),
) -> Result<(), Stopped> {
    let plans = plans(talk.hosts, subject)?;
    let until = subject.wait.map(|wait| Instant::now() + wait);
    let mut waits = false;
    loop {
        let diagnosis = attempt(talk, &plans, subject, notice)?;
        let may_wait = until.is_some_and(|until| Instant::now() < until) && diagnosis.passes();
        let report = diagnosis.report();
        if report.0.is_empty() {
            talk.ask_all(&Request::Confirm);
            return Ok(());
        }
        if !may_wait {
            return Err(Stopped::Preflight(report));
        }
        claims::release(talk)?;
        if !std::mem::replace(&mut waits, true)
            && let (Some(fault), Some(wait)) = (report.0.first(), subject.wait)
        {
            notice(&format!(
                "dgl-spawn: waiting for {} at most: {}: {}",
                term::seconds(wait),
                fault.place,
                fault.problem
            ));
        }
        talk.pause(TURN_PAUSE)?;
    }
}

/// The requests for one host.
struct HostPlan {
    claim: Claim,
    checks: Vec<Check>,
    listen: Option<Check>,
    /// Whether the hosts must reach each other only if its script uses torch.
    listens_for_torch: bool,
    ports: Vec<Port>,
    /// Whether it runs more than plain processes.
    of_dgl: bool,
}

fn plans(
    hosts: &ConnectedHosts<'_>,
    subject: &JobUnderCheck<'_>,
) -> Result<Vec<HostPlan>, Stopped> {
    let plan = |session: &crate::run::hosts::HostSession<'_>| {
        let own: Vec<&Process> = session
            .members
            .iter()
            .map(|at| &subject.processes[*at])
            .collect();
        let checks = match subject.looks {
            true => request::checks(session.host, &own, subject.private_shm)?,
            // two jobs of one name could not be told apart; a list that cannot be had is no
            // obstacle to the start
            false => [Check::Jobs]
                .into_iter()
                .chain(subject.private_shm.then_some(Check::PrivateSharedMemory))
                .collect(),
        };
        Ok(HostPlan {
            claim: request::claim(session.host, &own, subject.private_shm),
            checks,
            listen: request::listen(session.host, &own).filter(|_| subject.looks),
            listens_for_torch: own
                .iter()
                .all(|process| process.role == Role::Worker && process.nproc.is_none()),
            ports: request::ports(session.host, &own),
            of_dgl: own.iter().any(|process| process.role != Role::Worker),
        })
    };
    let plans: Result<Vec<HostPlan>, Fault> = hosts.sessions.iter().map(plan).collect();
    plans.map_err(|fault| Stopped::Preflight(fault.report()))
}

/// Claims and examines once.
fn attempt<'a, 'h: 'a>(
    talk: &mut Conversation<'_, 'h>,
    plans: &[HostPlan],
    subject: &JobUnderCheck<'a>,
    notice: &mut dyn FnMut(&str),
) -> Result<Diagnosis<'a>, Stopped> {
    let busy = talk
        .hosts
        .sessions
        .iter()
        .map(|session| session.host)
        .collect();
    let mut diagnosis = Diagnosis::new(busy, subject.hosts, subject.graph, subject.job);
    let claims: Vec<Claim> = plans.iter().map(|plan| plan.claim.clone()).collect();
    let conflicts = claims::take(talk, &claims, &mut diagnosis)?;
    diagnosis.conflicts(&conflicts);
    if !diagnosis.is_clean() {
        return Ok(diagnosis);
    }
    for (at, plan) in plans.iter().enumerate() {
        plan.checks
            .iter()
            .for_each(|check| talk.ask(at, Request::Preflight(check.clone())));
    }
    if !subject.looks {
        // leftovers of other jobs do not count then
        let counts = |found: &Finding| {
            matches!(
                found,
                Finding::NameInUse | Finding::NoPrivateSharedMemory { .. }
            )
        };
        let is_other = |said: &PreflightEvent| match said {
            PreflightEvent::Event(Event::Preflight(found), _) => !counts(found),
            _ => false,
        };
        talk.listen(LOOK_LIMIT, |at, said| {
            if !is_other(&said) {
                diagnosis.note_event(at, said);
            }
        })?;
        return Ok(diagnosis);
    }
    if look_is_late(talk, &mut diagnosis)? {
        return Ok(diagnosis);
    }
    wait_for_lingering(talk, plans, &mut diagnosis, notice)?;
    try_to_reach(talk, plans, &mut diagnosis)?;
    Ok(diagnosis)
}

/// Takes the answers; returns whether some did not come in time.
fn look_is_late(
    talk: &mut Conversation<'_, '_>,
    diagnosis: &mut Diagnosis<'_>,
) -> Result<bool, Stopped> {
    let late = talk.listen(LOOK_LIMIT, |at, said| diagnosis.note_event(at, said))?;
    late.iter()
        .for_each(|at| diagnosis.note_late(*at, LOOK_LIMIT));
    Ok(!late.is_empty())
}

/// Waits for connections of an ended job, which disappear by themselves within a minute.
fn wait_for_lingering(
    talk: &mut Conversation<'_, '_>,
    plans: &[HostPlan],
    diagnosis: &mut Diagnosis<'_>,
    notice: &mut dyn FnMut(&str),
) -> Result<(), Stopped> {
    let mut lingering = diagnosis.take_lingering();
    let until = Instant::now() + LINGER_LIMIT;
    let mut said = false;
    // it is not known what a plain process does with its port, and there is no need to wait if the
    // job cannot start anyway
    while !lingering.is_empty()
        && diagnosis.is_clean()
        && Instant::now() < until
        && lingering.iter().all(|(at, _)| plans[*at].of_dgl)
    {
        if !std::mem::replace(&mut said, true) {
            let mut all: Vec<usize> = lingering.iter().map(|(at, _)| *at).collect();
            all.dedup();
            let (place, port) = (diagnosis.place(&all), lingering[0].1);
            notice(&format!(
                "dgl-spawn: {place}: waiting up to a minute: port {port} is still held by \
                 connections of a job that has ended"
            ));
        }
        talk.pause(LINGER_PAUSE)?;
        for (at, plan) in plans
            .iter()
            .enumerate()
            .filter(|(at, _)| lingering.iter().any(|(other, _)| other == at))
        {
            talk.ask(
                at,
                Request::Preflight(Check::Ports {
                    ports: plan.ports.clone(),
                }),
            );
        }
        if look_is_late(talk, diagnosis)? {
            return Ok(());
        }
        lingering = diagnosis.take_lingering();
    }
    diagnosis.still_linger(&lingering);
    Ok(())
}

/// Lets every host listen, then all connect, then all stop listening.
fn try_to_reach(
    talk: &mut Conversation<'_, '_>,
    plans: &[HostPlan],
    diagnosis: &mut Diagnosis<'_>,
) -> Result<(), Stopped> {
    for (at, plan) in plans.iter().enumerate() {
        let is_needed = !plan.listens_for_torch || diagnosis.may_use_torch(at);
        for listen in plan.listen.iter().filter(|_| is_needed) {
            talk.ask(at, Request::Preflight(listen.clone()));
        }
    }
    // a host that cannot listen on its own address has reported that with its ports
    let late = talk.listen(LOOK_LIMIT, |at, said| {
        if !matches!(said, PreflightEvent::Failed(_)) {
            diagnosis.note_event(at, said);
        }
    })?;
    late.iter()
        .for_each(|at| diagnosis.note_late(*at, LOOK_LIMIT));
    for (at, targets) in diagnosis.targets() {
        talk.ask(at, Request::Preflight(Check::Connect { targets }));
    }
    look_is_late(talk, diagnosis)?;
    talk.ask_all(&Request::Preflight(Check::StopListening));
    look_is_late(talk, diagnosis).map(|_| ())
}
