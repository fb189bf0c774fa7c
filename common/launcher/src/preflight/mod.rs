//! Before the start: the job claims what it needs, and all hosts are checked. All problems are
//! reported together, and then nothing is started.
//!
//! Each host's agent derives its checks from the processes there. `claims` decides which of several
//! launchers may start, [`diagnosis`] compares the hosts' findings, `fixes` chooses what to do, and
//! `reachability` which hosts connect to which.

mod claims;
pub mod conversation;
pub mod diagnosis;
mod fixes;
mod reachability;

use crate::run::outcome::Stopped;
use conversation::Conversation;
use diagnosis::{Diagnosis, JobUnderCheck};
use record::error::Fault;
use record::term;
use session::SessionEvent;
use std::time::{Duration, Instant};
use wire::preflight::{Check, Finding, Subject};
use wire::{Event, Request};

/// How long to wait for ports in TIME_WAIT, which lasts 60 s.
const LINGER_LIMIT: Duration = Duration::from_secs(62);
/// How often to check those ports again.
const LINGER_PAUSE: Duration = Duration::from_secs(2);
/// How often a job that waits for another one tries again.
const TURN_PAUSE: Duration = Duration::from_secs(1);

/// The checks that need no comparison of hosts.
const ALONE: [Check; 7] = [
    Check::Files,
    Check::OpenFiles,
    Check::Ports,
    Check::Jobs,
    Check::SharedMemory,
    Check::ArgumentSizes,
    Check::Commands,
];

/// Claims what the job needs, and checks whether it can start. It then holds the claims until its
/// agents end. `notice` shows the user what it waits for.
pub fn prepare(
    conversation: &mut Conversation<'_, '_>,
    subject: &JobUnderCheck<'_>,
    notice: &mut dyn FnMut(&str),
) -> Result<(), Stopped> {
    let until = subject.wait.map(|wait| Instant::now() + wait);
    let mut waits = false;
    loop {
        let diagnosis = attempt(conversation, subject, notice)?;
        let may_wait = until.is_some_and(|until| Instant::now() < until) && diagnosis.passes();
        let report = diagnosis.report();
        if report.0.is_empty() {
            conversation.ask_all(&Request::Confirm);
            return Ok(());
        }
        if !may_wait {
            return Err(Stopped::Preflight(report));
        }
        claims::release(conversation)?;
        if !std::mem::replace(&mut waits, true)
            && let (Some(fault), Some(wait)) = (report.0.first(), subject.wait)
        {
            notice(&waiting(wait, fault));
        }
        conversation.pause(TURN_PAUSE)?;
    }
}

/// The notice about a job that waits for others.
pub fn waiting(limit: Duration, fault: &Fault) -> String {
    let limit = term::seconds(limit);
    format!(
        "dgl-spawn: waiting for {limit} at most: {}: {}",
        fault.location, fault.problem
    )
}

fn attempt<'a, 'h: 'a>(
    conversation: &mut Conversation<'_, 'h>,
    subject: &'a JobUnderCheck<'a>,
    notice: &mut dyn FnMut(&str),
) -> Result<Diagnosis<'a>, Stopped> {
    let sessions = conversation.hosts.sessions.iter();
    let busy = sessions.map(|session| session.host).collect();
    let mut diagnosis = Diagnosis::new(busy, subject);
    claims::claim_all(conversation, &mut diagnosis)?;
    if !diagnosis.is_clean() {
        return Ok(diagnosis);
    }
    let checks: &[Check] = match (subject.examines, subject.private_shm) {
        (true, _) => &ALONE,
        // two jobs of one name cannot be distinguished
        (false, true) => &[Check::Jobs, Check::SharedMemory],
        (false, false) => &[Check::Jobs],
    };
    for check in checks {
        conversation.ask_all(&Request::Preflight(check.clone()));
    }
    if !subject.examines {
        // leftovers of other jobs and slow hosts do not matter then
        conversation.listen(|index, event| {
            let is_leftover = matches!(&event,
                SessionEvent::Event(Event::Preflight(Finding::Problem(problem)), _)
                    if problem.about == Subject::Abandoned);
            if !is_leftover {
                diagnosis.note_event(index, event);
            }
        })?;
        return Ok(diagnosis);
    }
    if collect_answers(conversation, &mut diagnosis)? {
        wait_for_lingering(conversation, subject, &mut diagnosis, notice)?;
        try_to_reach(conversation, &mut diagnosis)?;
    }
    Ok(diagnosis)
}

/// Returns whether all answers arrived in time.
fn collect_answers(
    conversation: &mut Conversation<'_, '_>,
    diagnosis: &mut Diagnosis<'_>,
) -> Result<bool, Stopped> {
    let late = conversation.listen(|index, event| {
        diagnosis.note_event(index, event);
    })?;
    diagnosis.note_late(&late);
    Ok(late.is_empty())
}

/// Waits for an ended job's connections to disappear, within a minute.
fn wait_for_lingering(
    conversation: &mut Conversation<'_, '_>,
    subject: &JobUnderCheck<'_>,
    diagnosis: &mut Diagnosis<'_>,
    notice: &mut dyn FnMut(&str),
) -> Result<(), Stopped> {
    let runs_dgl = |host_index: usize| {
        let members = &conversation.hosts.sessions[host_index].members;
        members
            .iter()
            .any(|index| subject.processes[*index].role.is_dgl())
    };
    let mut lingering = diagnosis.take_lingering();
    let until = conversation.now() + LINGER_LIMIT;
    let mut is_noticed = false;
    // it is unknown how a plain process uses its port, and waiting is pointless if the job cannot
    // start anyway
    while !lingering.is_empty()
        && diagnosis.is_clean()
        && conversation.now() < until
        && lingering.iter().all(|(index, _)| runs_dgl(*index))
    {
        let mut hosts: Vec<usize> = lingering.iter().map(|(index, _)| *index).collect();
        hosts.dedup();
        if !std::mem::replace(&mut is_noticed, true) {
            notice(&format!(
                "dgl-spawn: {}: waiting up to a minute: {}",
                diagnosis.location(&hosts),
                lingering[0].1.problem
            ));
        }
        conversation.pause(LINGER_PAUSE)?;
        for index in hosts {
            conversation.ask(index, Request::Preflight(Check::Ports));
        }
        if !collect_answers(conversation, diagnosis)? {
            return Ok(());
        }
        lingering = diagnosis.take_lingering();
    }
    let lingering = lingering.into_iter();
    lingering.for_each(|(index, problem)| diagnosis.note(index, problem));
    Ok(())
}

/// Has all hosts listen, then connect, then stop listening.
fn try_to_reach(
    conversation: &mut Conversation<'_, '_>,
    diagnosis: &mut Diagnosis<'_>,
) -> Result<(), Stopped> {
    conversation.ask_all(&Request::Preflight(Check::Listen));
    // a host that cannot listen on its own address was reported with its ports
    let late = conversation.listen(|index, event| {
        if !matches!(event, SessionEvent::Event(Event::Failed(_), _)) {
            diagnosis.note_event(index, event);
        }
    })?;
    diagnosis.note_late(&late);
    for (index, targets) in diagnosis.targets() {
        conversation.ask(index, Request::Preflight(Check::Connect { targets }));
    }
    collect_answers(conversation, diagnosis)?;
    conversation.ask_all(&Request::Preflight(Check::StopListening));
    collect_answers(conversation, diagnosis).map(|_| ())
}
