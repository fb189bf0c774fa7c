//! Claims the job's name, ports and shared memory on all of its hosts, or on none.
//!
//! First all hosts are asked at once. Where a job that has all of its hosts is in the way, that is
//! the answer. Where another launcher is on its way too, both give back what they have and ask one
//! host after the other, in the order of their addresses, each waiting where the other was first.
//! Whoever waits has only hosts in front of the one that it waits for, so they never wait for each
//! other, and the one that is ahead starts.

use super::conversation::{Conversation, PreflightEvent};
use super::diagnosis::{Conflict, Diagnosis};
use crate::run::outcome::Stopped;
use std::time::{Duration, Instant};
use wire::preflight::Claim;
use wire::{Event, Request};

/// An agent answers at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked whether another launcher has given up.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A look takes seconds; one that takes longer has stopped or waits for a file system.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Claims everything; what is in the way, and then nothing is claimed. What else goes wrong is a
/// fault.
pub fn take(
    talk: &mut Conversation<'_, '_>,
    claims: &[Claim],
    diagnosis: &mut Diagnosis<'_>,
) -> Result<Vec<Conflict>, Stopped> {
    let all: Vec<usize> = talk.all().collect();
    let conflicts = claim(talk, &all, claims, diagnosis)?;
    if conflicts.is_empty() || !diagnosis.is_clean() {
        return Ok(Vec::new());
    }
    release(talk)?;
    let decided: Vec<Conflict> = conflicts
        .into_iter()
        .filter(|conflict| conflict.taken.by.confirmed)
        .collect();
    if decided.is_empty() {
        take_in_order(talk, claims, diagnosis)
    } else {
        Ok(decided)
    }
}

fn take_in_order(
    talk: &mut Conversation<'_, '_>,
    claims: &[Claim],
    diagnosis: &mut Diagnosis<'_>,
) -> Result<Vec<Conflict>, Stopped> {
    let mut order: Vec<usize> = talk.all().collect();
    order.sort_by_key(|at| (talk.hosts.sessions[*at].host.ip.0, *at));
    let until = Instant::now() + WAIT_LIMIT;
    for at in order {
        loop {
            let conflicts = claim(talk, &[at], claims, diagnosis)?;
            if conflicts.is_empty() {
                break;
            }
            if conflicts.iter().any(|conflict| conflict.taken.by.confirmed)
                || Instant::now() >= until
            {
                release(talk)?;
                return Ok(conflicts);
            }
            talk.pause(LOOK_AGAIN)?;
        }
        if !diagnosis.is_clean() {
            break;
        }
    }
    Ok(Vec::new())
}

fn claim(
    talk: &mut Conversation<'_, '_>,
    hosts: &[usize],
    claims: &[Claim],
    diagnosis: &mut Diagnosis<'_>,
) -> Result<Vec<Conflict>, Stopped> {
    hosts
        .iter()
        .for_each(|at| talk.ask(*at, Request::Claim(claims[*at].clone())));
    let mut conflicts = Vec::new();
    let late = talk.listen(ANSWER_LIMIT, |at, said| match said {
        PreflightEvent::Event(Event::Taken(taken), _) => conflicts.push(Conflict { at, taken }),
        other => diagnosis.said(at, other),
    })?;
    late.into_iter()
        .for_each(|at| diagnosis.late(at, ANSWER_LIMIT));
    Ok(conflicts)
}

/// Gives everything back.
pub fn release(talk: &mut Conversation<'_, '_>) -> Result<(), Stopped> {
    talk.ask_all(&Request::Release);
    talk.listen(ANSWER_LIMIT, |_, _| {}).map(|_| ())
}
