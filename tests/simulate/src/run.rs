//! Runs a schedule: the attempts of its job one after the other, and then until nothing happens any
//! more.

use crate::check::{self, Try};
use crate::schedule::{Part, Schedule};
use crate::time::{Micros, SECOND, micros};
use crate::world::{Actor, World, trace};
use launcher::output::queue::Queue;
use launcher::output::sink::OutputSink;
use launcher::plan;
use launcher::run::dispatcher::Dispatcher;
use launcher::run::events::{Inbox, RunEvent};
use launcher::run::executor::ConnectedHosts;
use launcher::run::launcher::NextAttempt;
use launcher::run::outcome::JobOutcome;
use launcher::spec;
use record::exit::SignalNumber;
use record::{Host, Process};
use session::SessionEvent;
use std::sync::Arc;
use std::time::Duration;
use wire::supervise::Start;
use wire::{Event, Request};

/// How a schedule went.
pub struct Run {
    pub hash: u64,
    pub steps: u64,
    /// How long it took, in simulated time.
    pub time: Micros,
    pub attempts: u32,
    /// How the last attempt ended.
    pub end: String,
    pub trace: Option<String>,
    /// What is wrong.
    pub violations: Vec<String>,
}

/// The plan of the job of a schedule.
fn plan(schedule: &Schedule) -> plan::JobPlan {
    plan::JobPlan {
        name: "simulated".to_owned(),
        token: "0123456789abcdef0123456789abcdef".to_owned(),
        host_timeout: Duration::from_micros(schedule.patience),
        preflight: false,
        rules: schedule.rules.clone(),
        attempt: 0,
        private_shm: false,
        wait: None,
        restart: schedule.restart,
    }
}

fn hosts(schedule: &Schedule) -> Vec<Host> {
    let of = schedule.hosts.len();
    let host = |id| format!(r#"{{"id":{id},"of":{of},"ip":"10.0.0.1","port":30050}}"#);
    let parse = |text: String| serde_json::from_str(&text).unwrap();
    (0..of).map(host).map(parse).collect()
}

fn processes(schedule: &Schedule) -> Vec<Process> {
    let of: usize = schedule.hosts.iter().map(Vec::len).sum();
    let mut processes = Vec::new();
    for (host, members) in schedule.hosts.iter().enumerate() {
        for (part, _) in members {
            let (role, more) = match part {
                Part::Server => ("server", r#","port":30050"#),
                Part::Trainer => ("trainer", ""),
                Part::Service => ("worker", r#","service":true"#),
            };
            let id = processes.len();
            let text = format!(
                r#"{{"id":{id},"of":{of},"host":{host},"ip":"10.0.0.1","rank":{id},
                    "role":"{role}","argv":["t"]{more}}}"#
            );
            processes.push(serde_json::from_str(&text).unwrap());
        }
    }
    processes
}

/// Runs a schedule to its end.
pub fn run(schedule: Schedule, keep_trace: bool) -> Run {
    let mut world = World::new(schedule, keep_trace);
    let mut plan = plan(&world.schedule);
    let hosts = hosts(&world.schedule);
    let processes = processes(&world.schedule);
    let mut violations = Vec::new();
    let mut end = "the launcher was killed".to_owned();
    loop {
        let tried = if world.are_all_reachable() {
            one_attempt(&mut world, &plan, &hosts, &processes)
        } else {
            Try::unreachable(&world)
        };
        violations.extend(check::of_try(&world, &tried));
        let Some(outcome) = &tried.outcome else { break };
        end = check::words(outcome);
        let pause = match NextAttempt::after(&plan, outcome, plan.attempt) {
            NextAttempt::After(pause) => micros(pause),
            _ => break,
        };
        trace!(world, "the next attempt begins after {} s", pause / SECOND);
        if !wait(&mut world, pause) {
            break;
        }
        violations.extend(check::before_next_try(&world, &tried));
        plan.attempt += 1;
    }
    settle(&mut world);
    violations.extend(check::at_the_end(&world));
    Run {
        hash: world.trace.hash,
        steps: world.steps,
        time: world.now,
        attempts: plan.attempt + 1,
        end,
        trace: world.trace.text.take(),
        violations,
    }
}

/// Lets time pass after the last attempt; the launcher may be killed in it.
fn settle(world: &mut World) {
    for _ in 0..2 {
        let settled = world.now.max(world.faults_end) + check::settling(&world.schedule);
        while world.next_launcher_turn(settled).is_some() {}
    }
}

/// Lets time pass between two attempts; returns whether the launcher lives and nobody has asked it
/// to end.
fn wait(world: &mut World, pause: Micros) -> bool {
    let until = world.now + pause;
    while world
        .next_launcher_turn(until.max(world.launcher_runs_from()))
        .is_some()
    {}
    world.now = world.now.max(until).max(world.launcher_runs_from());
    world.launcher_lives && world.signals.is_empty()
}

fn one_attempt(
    world: &mut World,
    plan: &plan::JobPlan,
    hosts: &[Host],
    processes: &[Process],
) -> Try {
    let queue = Arc::new(Queue::default());
    let mut sink = OutputSink::queued(Arc::clone(&queue));
    let inbox = Arc::new(Inbox::default());
    let begun = world.now;
    world.begin_try(plan.attempt);
    let sessions = hosts
        .iter()
        .zip(world.connect())
        .map(|(host, mut session)| {
            let position = host.id as usize;
            let first = world.id_of(position, 0) as usize;
            let count = world.schedule.hosts[position].len();
            let members: Vec<usize> = (first..first + count).collect();
            session.send(&Request::Job(spec::job(plan, host, hosts.len())));
            for member in &members {
                let process = processes[*member].clone();
                session.send(&Request::Process(Box::new(process)));
            }
            (host, members, session)
        });
    let (connected, mut executors) =
        ConnectedHosts::with_executors(sessions.collect(), plan.host_timeout, Arc::clone(&inbox))
            .unwrap();
    let start = Start {
        stall_ms: plan
            .rules
            .stall
            .map_or(0, |rule| record::term::millis(rule.limit)),
        ..Start::default()
    };
    // as in the checks before the start
    let (now, uptime) = world.launcher_clocks();
    for executor in &mut executors {
        executor.turn(Vec::new(), now, uptime);
    }
    connected.send_all(&Request::Start(start));
    let dispatcher = Dispatcher::new(
        plan,
        processes,
        &connected,
        &mut sink,
        world.launcher_time(),
    );
    world.begin_executors(executors);
    let ran = run_dispatcher(world, dispatcher, &inbox);
    drop(connected);
    if world.launcher_lives {
        world.close_all_executors();
    }
    sink.flush();
    queue.close();
    let mut records = Vec::new();
    while let Some(batch) = queue.next(usize::MAX) {
        for item in batch.items {
            if let launcher::output::queue::QueueItem::Records(record) = item {
                records.extend(record);
            }
        }
    }
    Try {
        begun,
        outcome: ran.outcome,
        decided: ran.decided,
        waits: ran.waits,
        records,
    }
}

struct Ran {
    outcome: Option<JobOutcome>,
    /// When it was decided that the job ends.
    decided: Option<Micros>,
    /// Whether the launcher would wait for ever.
    waits: bool,
}

fn run_dispatcher(world: &mut World, mut dispatcher: Dispatcher<'_, '_>, inbox: &Inbox) -> Ran {
    let mut decided = None;
    loop {
        let latest = check::latest_end(world, decided);
        let turn = world.next_launcher_turn(latest);
        match turn {
            Some(Actor::Executor(host)) => world.turn_executor(host),
            Some(_) => {
                for number in std::mem::take(&mut world.signals) {
                    inbox.push_first(RunEvent::Signal(SignalNumber(number)));
                }
                let had_begun = dispatcher.ending().is_some();
                if !turn_dispatcher(world, &mut dispatcher, inbox) {
                    let outcome = dispatcher.end();
                    trace!(world, "the attempt ends: {}", check::words(&outcome));
                    return Ran {
                        outcome: Some(outcome),
                        decided: decided.or(Some(world.now)),
                        waits: false,
                    };
                }
                if !had_begun && dispatcher.ending().is_some() {
                    decided = Some(world.now);
                    trace!(world, "the job is ended: {:?}", dispatcher.ending());
                }
            }
            // a fault has come meanwhile
            None if world.launcher_lives && check::latest_end(world, decided) > latest => {}
            None => {
                return Ran {
                    outcome: None,
                    decided,
                    waits: world.launcher_lives,
                };
            }
        }
    }
}

/// A turn of the dispatcher; returns whether the job goes on.
fn turn_dispatcher(world: &mut World, dispatcher: &mut Dispatcher<'_, '_>, inbox: &Inbox) -> bool {
    let now = world.launcher_time();
    let had_begun = dispatcher.ending().is_some();
    let mut may_send = false;
    loop {
        if !dispatcher.tick(now) {
            return false;
        }
        let Some(event) = inbox.next(Duration::ZERO) else {
            break;
        };
        may_send |= note_event(world, &event);
        dispatcher.handle(event, now);
    }
    world.wake_executors(may_send || had_begun != dispatcher.ending().is_some());
    let limit = micros(dispatcher.wait_limit(now)).max(1);
    world.wake(Actor::Launcher, world.now + limit);
    true
}

/// Writes an event into the trace; returns whether it may lead to requests.
fn note_event(world: &mut World, event: &RunEvent) -> bool {
    match event {
        RunEvent::Host(_, SessionEvent::Event(Event::Output(_) | Event::Drained(_), _)) => false,
        RunEvent::Host(host, SessionEvent::Event(event, _)) => {
            trace!(world, "launcher: host {host}: {event:?}");
            !matches!(event, Event::Started(_))
        }
        other => {
            trace!(world, "launcher: {other:?}");
            true
        }
    }
}

/// A seed that has no trace to keep.
pub fn seed(seed: u64, hosts: usize) -> Run {
    run(Schedule::new(seed, hosts), false)
}
