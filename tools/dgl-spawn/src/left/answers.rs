//! Asks the agents of a job before it starts, all at once; no host may be lost in that time.

use crate::preflight::describe::name_in_use;
use crate::run::hosts::{ConnectedHosts, RunEvent};
use crate::run::outcome::Stopped;
use record::Host;
use record::error::{Fault, Report};
use remote::SessionEvent;
use std::time::{Duration, Instant};
use wire::Event;
use wire::keep::Refusal;

/// An agent answers at once; a host that takes longer hangs.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Where people find what a host keeps of a job that was left.
pub const SEE_FOLDER: &str = "look into ~/.local/state/dgl-tools there: it has a folder a job, \
    with what happened and the logs";

/// The answers of hosts, and other events that came in between.
pub struct Answers<T> {
    /// The answers, in the order in which the hosts were given.
    pub answers: Vec<T>,
    /// Events of jobs that already run.
    pub early: Vec<RunEvent>,
}

/// Waits for one answer of each of these hosts, given by position. Refusals are reported when all
/// have answered.
pub fn wait_for<T>(
    hosts: &ConnectedHosts<'_>,
    asked: &[usize],
    answer: impl Fn(&Event) -> Option<T>,
) -> Result<Answers<T>, Stopped> {
    let until = Instant::now() + ANSWER_LIMIT;
    let mut answers: Vec<Option<T>> = asked.iter().map(|_| None).collect();
    let (mut early, mut faults, mut in_use) = (Vec::new(), Report::default(), Report::default());
    while faults.0.is_empty() && in_use.0.is_empty() && answers.iter().any(Option::is_none) {
        let host = |at: usize| hosts.sessions[at].host;
        match hosts.next_event(until.saturating_duration_since(Instant::now())) {
            Some(RunEvent::Signal(number)) => return Err(Stopped::Signal(number)),
            Some(RunEvent::StatusAsked | RunEvent::Paused(_)) => {}
            Some(RunEvent::Host(at, SessionEvent::Lost(why))) => faults.push(fault(host(at), why)),
            Some(RunEvent::Host(at, SessionEvent::Event(event, body))) => match event {
                Event::Failed(failure) => faults.push(fault(host(at), failure.problem)),
                Event::Refused(refused) => match refused.why {
                    Refusal::NameInUse { job } => {
                        in_use.push(name_in_use(&job, None).fault(host(at).place()));
                    }
                    why => faults.push(fault(host(at), refusal(&why))),
                },
                event => match (asked.iter().position(|one| *one == at), answer(&event)) {
                    (Some(position), Some(answer)) => answers[position] = Some(answer),
                    _ if matches!(event, Event::Past(_) | Event::Output(_)) => {
                        early.push(RunEvent::Host(at, SessionEvent::Event(event, body)));
                    }
                    _ => {}
                },
            },
            None if Instant::now() < until => {}
            None => {
                let late = answers
                    .iter()
                    .position(Option::is_none)
                    .map_or(0, |position| asked[position]);
                faults.push(fault(
                    host(late),
                    format!("no answer within {} s", ANSWER_LIMIT.as_secs()),
                ));
            }
        }
    }
    in_use.check().map_err(Stopped::Preflight)?;
    faults.check().map_err(Stopped::Hosts)?;
    Ok(Answers {
        answers: answers.into_iter().flatten().collect(),
        early,
    })
}

fn fault(host: &Host, problem: String) -> Fault {
    Fault::unreachable(host.place(), problem).fix(SEE_FOLDER)
}

fn refusal(why: &Refusal) -> String {
    match why {
        Refusal::NameInUse { job } => format!("a job named {job} runs there"),
        Refusal::Folder { path, error } => {
            format!("the job's folder cannot be made or written: {path}: {error}")
        }
        Refusal::Leader { error } => {
            format!("the agent that keeps the job on the first host cannot be reached: {error}")
        }
    }
}
