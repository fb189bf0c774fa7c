//! Waits until no other push holds the workspaces of this one.
//!
//! A push holds the workspaces of all its hosts or of none. It waits for one host at a time,
//! without holding any. When that host is free, it asks all hosts, in an order that is the same for
//! all pushes, so that one of several pushes gets all of them.

use crate::context::PushContext;
use crate::target::Target;
use crate::task::Task;
use rayon::prelude::*;
use record::error::Report;
use remote::HostFault;
use std::time::{Duration, Instant};

/// How many hosts to ask at once. Their threads only wait.
const ASKED_AT_ONCE: usize = 256;
/// How long to wait for one other push.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for one host, even if many pushes take turns there or pretend to.
const LONGEST: Duration = Duration::from_secs(120);
/// How long to wait before a host is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// Threads for this many hosts.
pub fn threads(hosts: usize) -> Result<rayon::ThreadPool, Report> {
    remote::threads(hosts.min(ASKED_AT_ONCE))
}

/// Waits until this push holds all hosts. A host on which another push does not end is given up.
pub fn wait(context: &PushContext<'_>, tasks: &[Task<'_>]) -> Result<(), Report> {
    let pool = threads(tasks.len())?;
    let mut in_order: Vec<&Task<'_>> = tasks.iter().collect();
    in_order.sort_by_key(|task| (task.host.ip.0, task.host.id));
    let mut busy = tasks.iter().find(|task| holder(task).is_some());
    while let Some(task) = busy
        && !context.is_stopped()
    {
        pool.install(|| tasks.par_iter().for_each(leave));
        if let Some(endless) = wait_at(context, task) {
            let held = tasks
                .iter()
                .filter(|task| holder(task).as_ref() == Some(&endless));
            held.for_each(|task| give_up(context, task));
        }
        leave(task);
        busy = in_order.iter().copied().find(|task| {
            task.on_target(Target::enter);
            holder(task).is_some()
        });
    }
    Ok(())
}

fn leave(task: &Task<'_>) {
    task.on_target(Target::leave);
}

/// The push that holds a host instead of this one.
fn holder(task: &Task<'_>) -> Option<String> {
    task.lock().target.as_ref()?.ready.busy.clone()
}

/// Waits until one host is free. If another push does not end there, returns the name of that push.
fn wait_at(context: &PushContext<'_>, task: &Task<'_>) -> Option<String> {
    let begun = Instant::now();
    let (mut before, mut since) = (None, begun);
    while let Some(other) = holder(task)
        && !context.is_stopped()
    {
        if before.as_ref() != Some(&other) {
            (before, since) = (Some(other), Instant::now());
        }
        if since.elapsed() > PATIENCE || begun.elapsed() > LONGEST {
            return before;
        }
        context.pause(PAUSE);
        task.on_target(Target::enter);
    }
    None
}

fn give_up(context: &PushContext<'_>, task: &Task<'_>) {
    let base = context.base.display();
    let fault = HostFault::reported(format!("another push is at work in {base}"));
    task.on_target(|_| Err::<(), _>(fault.fix("run it again when that push has ended")));
}
