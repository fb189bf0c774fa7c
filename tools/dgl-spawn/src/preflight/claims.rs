//! Claims the job's name, ports and shared memory on all of its hosts, or on none.
//!
//! First all hosts are asked at once. If a job that has all of its hosts is in the way, that is the
//! result. If another launcher is claiming hosts at the same time, both give back what they have
//! and ask one host after another, in the order of their addresses; each waits where the other was
//! first. A launcher that waits holds only hosts before the one it waits for, so they never wait
//! for each other, and the one that is ahead starts.

use super::conversation::{Conversation, PreflightEvent};
use super::diagnosis::{Conflict, Diagnosis};
use crate::run::outcome::Stopped;
use std::time::{Duration, Instant};
use wire::preflight::Claim;
use wire::{Event, Request};

/// An agent answers at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// How often to check whether another launcher has given up.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A preflight takes seconds; one that takes longer has stopped, or waits for a file system.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Claims everything. If something is in the way, it is returned and nothing stays claimed.
/// Everything else that goes wrong is a fault.
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
        other => diagnosis.note_event(at, other),
    })?;
    late.into_iter()
        .for_each(|at| diagnosis.note_late(at, ANSWER_LIMIT));
    Ok(conflicts)
}

/// Gives everything back that was claimed.
pub fn release(talk: &mut Conversation<'_, '_>) -> Result<(), Stopped> {
    talk.ask_all(&Request::Release);
    talk.listen(ANSWER_LIMIT, |_, _| {}).map(|_| ())
}
