//! Waits until no other push is at work in the folders of this one.
//!
//! A push holds either all folders or none: if each of two pushes held some while they wait for a
//! third, neither could go on. So it waits at one host only, holding nothing; when that is free it
//! asks for all, and if one of them is taken it lets go of the others and waits there.

use crate::context::PushContext;
use crate::target::Target;
use crate::task::Task;
use rayon::prelude::*;
use record::error::Report;
use remote::HostFault;
use std::time::{Duration, Instant};

/// How many hosts are asked at once. Each waits; none computes.
const ASKED_AT_ONCE: usize = 256;
/// How long to wait for one other push.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait at one host, however many pushes take their turns there, or pretend to.
const LONGEST: Duration = Duration::from_secs(120);
/// How soon a host is asked again.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time after which one is asked again that gives way.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Threads for so many hosts.
pub fn threads(hosts: usize) -> Result<rayon::ThreadPool, Report> {
    remote::threads(hosts.min(ASKED_AT_ONCE))
}

/// Waits for the turn of this push, on all hosts. A host on which another push does not end is
/// given up.
pub fn wait(context: &PushContext<'_>, tasks: &[Task<'_>]) -> Result<(), Report> {
    let Some(mut task) = first_busy(tasks) else {
        return Ok(());
    };
    let pool = threads(tasks.len())?;
    let mut pause = PAUSE * 4;
    loop {
        pool.install(|| {
            let held = tasks.par_iter().filter(|task| holder(task).is_none());
            held.for_each(|task| task.on_target(Target::let_go).unwrap_or_default());
        });
        let endless = wait_at(context, task, pause);
        if context.is_stopped() {
            return Ok(());
        }
        pool.install(|| {
            let rest = tasks.par_iter().filter(|one| one.host.id != task.host.id);
            rest.for_each(|one| one.on_target(Target::enter).unwrap_or_default());
        });
        if let Some(endless) = endless {
            let held = tasks
                .iter()
                .filter(|task| holder(task).as_ref() == Some(&endless));
            held.for_each(|task| give_up(context, task));
        }
        let Some(busy) = first_busy(tasks) else {
            return Ok(());
        };
        task = busy;
        // two that have kept out each other must not do so again
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn first_busy<'a, 't>(tasks: &'a [Task<'t>]) -> Option<&'a Task<'t>> {
    tasks.iter().find(|task| holder(task).is_some())
}

/// The push that is at work on a host in place of this one.
fn holder(task: &Task<'_>) -> Option<String> {
    task.lock().target.as_ref()?.ready.busy.clone()
}

/// Waits until one host is free. If another push does not end there, gives the host up and returns
/// the name of that push.
fn wait_at(context: &PushContext<'_>, task: &Task<'_>, pause: Duration) -> Option<String> {
    let begun = Instant::now();
    let (mut before, mut since) = (None, begun);
    while let Some(other) = holder(task)
        && !context.is_stopped()
    {
        // of two pushes the same one gives way on every host
        let gives_way = other < context.run;
        if before.as_ref() != Some(&other) {
            (before, since) = (Some(other), Instant::now());
        }
        if since.elapsed() > PATIENCE || begun.elapsed() > LONGEST {
            give_up(context, task);
            return before;
        }
        context.pause(if gives_way { pause } else { PAUSE });
        task.on_target(Target::enter);
    }
    None
}

fn give_up(context: &PushContext<'_>, task: &Task<'_>) {
    let base = context.base.display();
    let fault = HostFault::reported(format!("another push is at work in {base}"));
    task.on_target(|_| Err::<(), _>(fault.fix("run it again when that push has ended")));
}
