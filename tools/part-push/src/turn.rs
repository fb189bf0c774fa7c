//! Waits until no other push holds the workspaces of this one.
//!
//! A push holds the workspaces of all its hosts or of none. It waits for one host at a time,
//! without holding any. When that host is free, it asks all hosts, in an order that all pushes
//! share, so that one of several pushes gets all of them.

use crate::connection::PushConnection;
use crate::context::PushContext;
use crate::target::Target;
use rayon::prelude::*;
use record::error::Report;
use remote::HostFault;
use std::time::{Duration, Instant};
use transfer::lock::PATIENCE;

/// Their threads only wait.
const ASKED_AT_ONCE: usize = 256;
/// Before a host is asked again; each pause is longer than the one before it.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub fn threads(hosts: usize) -> Result<rayon::ThreadPool, Report> {
    remote::threads(hosts.min(ASKED_AT_ONCE))
}

/// Waits until this push holds all hosts. Gives up hosts on which another push does not end.
pub fn wait(context: &PushContext<'_>, targets: &[Target<'_>]) -> Result<(), Report> {
    let pool = threads(targets.len())?;
    let mut in_order: Vec<&Target<'_>> = targets.iter().collect();
    in_order.sort_by_key(|target| (target.host.ip.0, target.host.id));
    let mut busy = targets.iter().find(|target| holder(target).is_some());
    if let Some(target) = busy {
        record::tell!(
            "part-push: {}: another push is at work in {}; waiting for its end",
            target.host.location(),
            context.base.display()
        );
    }
    while let Some(target) = busy
        && !context.is_stopped()
    {
        pool.install(|| targets.par_iter().for_each(leave));
        if let Some(endless) = wait_at(context, target) {
            let held = targets
                .iter()
                .filter(|target| holder(target).as_ref() == Some(&endless));
            held.for_each(|target| give_up(context, target));
        }
        leave(target);
        busy = in_order.iter().copied().find(|target| {
            target.on_connection(PushConnection::enter);
            holder(target).is_some()
        });
    }
    Ok(())
}

fn leave(target: &Target<'_>) {
    target.on_connection(PushConnection::leave);
}

/// The push that holds a host instead of this one.
fn holder(target: &Target<'_>) -> Option<String> {
    target.lock().connection.as_ref()?.ready.busy.clone()
}

/// Waits until one host is free; returns the name of another push that does not end there.
fn wait_at(context: &PushContext<'_>, target: &Target<'_>) -> Option<String> {
    let begun = Instant::now();
    let mut pause = PAUSE;
    while let Some(other) = holder(target)
        && !context.is_stopped()
    {
        if begun.elapsed() > PATIENCE {
            return Some(other);
        }
        context.pause(pause);
        pause = (pause * 5 / 4).min(LONGEST_PAUSE);
        target.on_connection(PushConnection::enter);
    }
    None
}

fn give_up(context: &PushContext<'_>, target: &Target<'_>) {
    let base = context.base.display();
    let minutes = PATIENCE.as_secs() / 60;
    let why = format!("another push has been at work in {base} for {minutes} minutes");
    let fault = HostFault::reported(why);
    target.on_connection(|_| Err::<(), _>(fault.fix("run it again when that push has finished")));
}
