//! Claims the job's name, ports and shared memory on all of its hosts, or on none.
//!
//! First all hosts are asked at once. A conflict with a job that has claimed all of its hosts is
//! final. If another launcher is still claiming, both release their claims and ask one host after
//! another, in the order of the addresses; each waits where the other was first. A waiting launcher
//! holds only hosts before the one that it waits for, so there is no deadlock.

use super::conversation::Conversation;
use super::diagnosis::Diagnosis;
use crate::run::outcome::Stopped;
use session::SessionEvent;
use std::time::Duration;
use wire::preflight::Taken;
use wire::{Event, Request};

/// How often to check whether another launcher has given up.
const CLAIM_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for another launcher. Its preflight takes seconds, unless it is stopped or a
/// file system hangs.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Claims everything, or releases everything and notes the conflicts.
pub fn claim_all(
    conversation: &mut Conversation<'_, '_>,
    diagnosis: &mut Diagnosis<'_>,
) -> Result<(), Stopped> {
    let hosts: Vec<usize> = conversation.host_indices().collect();
    let conflicts = claim(conversation, &hosts, diagnosis)?;
    if conflicts.is_empty() || !diagnosis.is_clean() {
        return Ok(());
    }
    release(conversation)?;
    if !conflicts.iter().any(|(_, taken)| taken.confirmed) {
        return claim_in_order(conversation, diagnosis);
    }
    let decided = conflicts.into_iter().filter(|(_, taken)| taken.confirmed);
    decided.for_each(|(index, taken)| diagnosis.note(index, taken.problem));
    Ok(())
}

fn claim_in_order(
    conversation: &mut Conversation<'_, '_>,
    diagnosis: &mut Diagnosis<'_>,
) -> Result<(), Stopped> {
    let mut order: Vec<usize> = conversation.host_indices().collect();
    order.sort_by_key(|index| (conversation.hosts.sessions[*index].host.ip.0, *index));
    let until = conversation.now() + WAIT_LIMIT;
    for index in order {
        loop {
            let conflicts = claim(conversation, &[index], diagnosis)?;
            if conflicts.is_empty() {
                break;
            }
            let is_decided = conflicts.iter().any(|(_, taken)| taken.confirmed);
            if is_decided || conversation.now() >= until {
                release(conversation)?;
                let conflicts = conflicts.into_iter();
                conflicts.for_each(|(index, taken)| diagnosis.note(index, taken.problem));
                return Ok(());
            }
            conversation.pause(CLAIM_PAUSE)?;
        }
        if !diagnosis.is_clean() {
            break;
        }
    }
    Ok(())
}

/// Returns the conflicts with the indices of their hosts.
fn claim(
    conversation: &mut Conversation<'_, '_>,
    hosts: &[usize],
    diagnosis: &mut Diagnosis<'_>,
) -> Result<Vec<(usize, Taken)>, Stopped> {
    hosts
        .iter()
        .for_each(|index| conversation.ask(*index, Request::Claim));
    let mut conflicts = Vec::new();
    let late = conversation.listen(|index, event| match event {
        SessionEvent::Event(Event::Taken(taken), _) => conflicts.push((index, taken)),
        other => diagnosis.note_event(index, other),
    })?;
    diagnosis.note_late(&late);
    Ok(conflicts)
}

/// Releases all claims. A host that is lost meanwhile is a fault, because the job needs it.
pub fn release(conversation: &mut Conversation<'_, '_>) -> Result<(), Stopped> {
    conversation.ask_all(&Request::Release);
    conversation.collect(|_, _, _| {})
}
