//! Claims the job's name, ports and shared memory on all of its hosts, or on none.
//!
//! First all hosts are asked at once. If a job that has all of its hosts is in the way, that is the
//! result. If another launcher is claiming hosts at the same time, both give back what they have
//! and ask one host after another, in the order of their addresses; each waits where the other was
//! first. A launcher that waits holds only hosts before the one it waits for, so they never wait
//! for each other, and the one that is ahead starts.

use super::conversation::Conversation;
use super::diagnosis::{Conflict, Diagnosis};
use crate::run::outcome::Stopped;
use session::SessionEvent;
use std::time::{Duration, Instant};
use wire::{Event, Request};

/// How often to check whether another launcher has given up.
const CLAIM_PAUSE: Duration = Duration::from_millis(100);
/// A preflight takes seconds; one that takes longer has stopped, or waits for a file system.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Claims everything. If something is in the way, it is returned and nothing stays claimed.
/// Everything else that goes wrong is a fault.
pub fn take(
    conversation: &mut Conversation<'_, '_>,
    diagnosis: &mut Diagnosis<'_>,
) -> Result<Vec<Conflict>, Stopped> {
    let all: Vec<usize> = conversation.all().collect();
    let conflicts = claim(conversation, &all, diagnosis)?;
    if conflicts.is_empty() || !diagnosis.is_clean() {
        return Ok(Vec::new());
    }
    release(conversation)?;
    let (decided, _): (Vec<Conflict>, Vec<Conflict>) = conflicts
        .into_iter()
        .partition(|conflict| conflict.taken.by.confirmed);
    match decided.is_empty() {
        true => take_in_order(conversation, diagnosis),
        false => Ok(decided),
    }
}

fn take_in_order(
    conversation: &mut Conversation<'_, '_>,
    diagnosis: &mut Diagnosis<'_>,
) -> Result<Vec<Conflict>, Stopped> {
    let mut order: Vec<usize> = conversation.all().collect();
    order.sort_by_key(|index| (conversation.hosts.sessions[*index].host.ip.0, *index));
    let until = Instant::now() + WAIT_LIMIT;
    for index in order {
        loop {
            let conflicts = claim(conversation, &[index], diagnosis)?;
            if conflicts.is_empty() {
                break;
            }
            if conflicts.iter().any(|conflict| conflict.taken.by.confirmed)
                || Instant::now() >= until
            {
                release(conversation)?;
                return Ok(conflicts);
            }
            conversation.pause(CLAIM_PAUSE)?;
        }
        if !diagnosis.is_clean() {
            break;
        }
    }
    Ok(Vec::new())
}

fn claim(
    conversation: &mut Conversation<'_, '_>,
    hosts: &[usize],
    diagnosis: &mut Diagnosis<'_>,
) -> Result<Vec<Conflict>, Stopped> {
    hosts
        .iter()
        .for_each(|index| conversation.ask(*index, Request::Claim));
    let mut conflicts = Vec::new();
    let late = conversation.listen(|index, event| match event {
        SessionEvent::Event(Event::Taken(taken), _) => conflicts.push(Conflict { index, taken }),
        other => diagnosis.note_event(index, other),
    })?;
    diagnosis.note_late(&late);
    Ok(conflicts)
}

/// Gives everything back that was claimed.
pub fn release(conversation: &mut Conversation<'_, '_>) -> Result<(), Stopped> {
    conversation.ask_all(&Request::Release);
    conversation.listen(|_, _| {}).map(|_| ())
}
