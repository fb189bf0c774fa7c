//! The invariants: what must be true after each attempt of a job, and at the end.

use crate::host::By;
use crate::host::heartbeat;
use crate::schedule::Schedule;
use crate::time::{Micros, SECOND, micros};
use crate::world::{Truth, World};
use job::{Cause, Limit};
use launcher::run::outcome::{JobOutcome, Stopped};
use record::FirstFailure;
use record::error::Report;
use record::exit::SignalNumber;
use serde_json::Value;
use std::collections::BTreeMap;

/// How long a failure takes to be heard of while nothing is in its way: the turns of the agent and
/// of the launcher, and the connection.
const HEARD: Micros = 2 * SECOND;
/// How long servers that outlive their clients may take, or a service before them.
const LINGER: Micros = 5 * SECOND;
/// How long a job may take to end beyond its grace: stacks (ABRT), what is read of them, and what
/// the launcher gives KILL.
const END: Micros = 20 * SECOND;

/// An attempt of a job.
pub struct Try {
    pub begun: Micros,
    /// How it ended; `None` if the launcher was killed, or waits.
    pub outcome: Option<JobOutcome>,
    /// When it was decided that the job ends.
    pub decided: Option<Micros>,
    pub waits: bool,
    /// The records that the launcher wrote.
    pub records: Vec<u8>,
}

impl Try {
    /// An attempt that has not reached all hosts.
    pub fn unreachable(world: &World) -> Try {
        Try {
            begun: world.now,
            outcome: Some(Stopped::Hosts(Report::default()).outcome()),
            decided: None,
            waits: false,
            records: Vec::new(),
        }
    }
}

/// How long after the last fault, and after the launcher's end, something of the job may be left:
/// until an agent misses its launcher, TERM, KILL, and processes that hang in the kernel.
pub fn settling(schedule: &Schedule) -> Micros {
    schedule.patience + schedule.grace + 75 * SECOND
}

/// When the launcher must have ended.
pub fn latest_end(world: &World, decided: Option<Micros>) -> Micros {
    let schedule = &world.schedule;
    if let Some(decided) = decided {
        return decided.max(world.faults_end) + schedule.grace + schedule.patience + END;
    }
    // processes that hang for ever are ended by a signal, which is a fault too
    let last_fault = schedule.faults.last().map_or(0, |(time, _)| *time);
    let faults_end = world.faults_end.max(last_fault);
    let end = (world.begun + schedule.longest_run).max(faults_end) + world.hung_for;
    end + LINGER + 2 * schedule.patience + schedule.grace + END
}

/// An outcome in a few words.
pub fn words(outcome: &JobOutcome) -> String {
    let who = outcome.failure.as_ref().map(|failure| {
        let FirstFailure {
            host,
            id,
            end,
            error,
            ..
        } = failure;
        let (code, signal) = (end.code, end.signal);
        format!(" host {host} process {id:?} code {code:?} signal {signal:?} {error:?}")
    });
    let label = outcome.cause_label.unwrap_or("well");
    let faults: Vec<String> = outcome.report.lines("");
    let exit = outcome.exit.code();
    format!(
        "{label}, status {exit}{} {faults:?}",
        who.unwrap_or_default()
    )
}

/// What is wrong with an attempt.
pub fn of_try(world: &World, tried: &Try) -> Vec<String> {
    let mut wrong = Vec::new();
    if tried.waits {
        wrong.push(format!("the launcher waits, decided {:?}", tried.decided));
    }
    let Some(outcome) = tried.outcome.as_ref().filter(|outcome| outcome.started) else {
        return wrong;
    };
    if world.schedule.is_mild && outcome.exit.code() != 0 {
        wrong.push(format!(
            "faults within the limits had an effect: {}",
            words(outcome)
        ));
    }
    wrong.extend(wrong_exit(outcome));
    wrong.extend(wrong_cause(world, tried, outcome));
    wrong.extend(wrong_records(world, tried, outcome));
    wrong
}

/// The exit status is that of the cause.
fn wrong_exit(outcome: &JobOutcome) -> Option<String> {
    let failure = outcome.failure.as_ref();
    let signal = failure.and_then(|failure| failure.end.signal);
    let expected = match &outcome.cause {
        None => 0,
        Some(Cause::Signal(signal)) => 128 + u8::try_from(signal.0).unwrap(),
        Some(Cause::Host | Cause::Servers | Cause::Paused(_)) => 74,
        Some(Cause::Time(_) | Cause::Stalled(_)) => 124,
        // a service that ended before the others
        Some(Cause::Process) if failure.is_some_and(|failure| failure.error.is_some()) => 1,
        Some(Cause::Process) => match (failure.and_then(|failure| failure.end.code), signal) {
            (Some(0), _) if failure.is_some_and(|failure| failure.end.reaped) => 143,
            (Some(code), _) => code,
            (None, Some(SignalNumber::KILL)) => 137,
            (None, Some(SignalNumber::TERM)) => 143,
            (None, Some(SignalNumber::ABRT)) => 134,
            _ => 1,
        },
    };
    let exit = outcome.exit.code();
    let is_worse = !outcome.report.0.is_empty();
    (exit != expected && !is_worse)
        .then(|| format!("status {exit} and not {expected}: {}", words(outcome)))
}

/// What is named is true, and nothing else failed first that must have been heard of before.
fn wrong_cause(world: &World, tried: &Try, outcome: &JobOutcome) -> Vec<String> {
    let mut wrong = Vec::new();
    let decided = tried.decided.unwrap_or(world.now);
    let named = named(world, tried, outcome);
    let Some(named_at) = named else {
        wrong.push(format!("the cause is not true: {}", words(outcome)));
        return wrong;
    };
    for (time, truth) in &world.truths {
        let heard = match truth {
            // what serves others has nothing left to fail at after its clients
            Truth::Failed { host, index, .. }
                if outcome.cause.is_none() && world.serves(*host, *index) =>
            {
                continue;
            }
            Truth::Failed { host, .. } => time
                .max(&world.hosts[*host].quiet_from)
                .saturating_add(HEARD),
            Truth::Signal(_) => time.max(&world.launcher_runs_from()).saturating_add(HEARD),
            // until then its clients may end too, and servers after them
            Truth::EndedEarly { .. } => world
                .heard(*time)
                .saturating_add(2 * LINGER + world.schedule.patience)
                .saturating_add(world.paused_for() + HEARD),
            Truth::Hit { .. } | Truth::Paused(_) => continue,
        };
        if heard < named_at && heard < decided {
            wrong.push(format!("{truth:?} came first: {}", words(outcome)));
        }
    }
    wrong
}

/// When that happened which the outcome names; `None` if it did not.
fn named(world: &World, tried: &Try, outcome: &JobOutcome) -> Option<Micros> {
    let decided = tried.decided.unwrap_or(world.now);
    let truths = || world.truths.iter().filter(|(time, _)| *time <= decided);
    let first = |is_it: &dyn Fn(&Truth) -> bool| {
        truths()
            .find(|(_, truth)| is_it(truth))
            .map(|(time, _)| *time)
    };
    let failure = outcome.failure.as_ref();
    let hit = |failure: &FirstFailure| {
        let of = failure.host as usize;
        first(&|truth| *truth == Truth::Hit { host: of })
    };
    match &outcome.cause {
        None => world.have_clients_ended_well().then_some(decided),
        Some(Cause::Signal(signal)) => first(&|truth| *truth == Truth::Signal(signal.0)),
        Some(Cause::Paused(_)) => {
            let paused = world.paused_for();
            let least = world.schedule.patience - 2 * heartbeat(world.schedule.patience);
            (paused >= least && world.has_any_host_given_up(decided))
                .then(|| first(&|truth| matches!(truth, Truth::Paused(_))))?
        }
        Some(Cause::Time(Limit::Start(limit) | Limit::Job(limit))) => {
            (decided - tried.begun >= micros(*limit)).then_some(decided)
        }
        Some(Cause::Stalled(limit)) => {
            let hangs = world.hung_from.map(|since| (since, decided));
            let mut hangs = world.hangs.iter().copied().chain(hangs);
            let is_it = |(since, until): (Micros, Micros)| {
                let is_old = world.heard(until).saturating_add(HEARD) < decided;
                until.saturating_sub(since) >= micros(*limit) && !is_old
            };
            hangs.any(is_it).then_some(decided)
        }
        Some(Cause::Host) => {
            // dgl-reap ends the agent of a host whose processes have all ended, too
            let reaped = world.reaped.filter(|time| *time <= decided);
            hit(failure?).or(reaped)
        }
        Some(Cause::Process) => {
            let failure = failure?;
            let is_it = |truth: &Truth| match truth {
                Truth::Failed {
                    host,
                    index,
                    status,
                    by,
                } => {
                    let is_reaped = matches!(by, By::Reap | By::Picked);
                    let ends_job = *by == By::Reap;
                    failure.id == Some(world.id_of(*host, *index))
                        && (failure.end.code, failure.end.signal) == (status.code, status.signal)
                        && (!is_reaped || failure.end.reaped)
                        && (!ends_job || outcome.reaped)
                }
                Truth::EndedEarly { host, index } => {
                    failure.id == Some(world.id_of(*host, *index)) && failure.error.is_some()
                }
                _ => false,
            };
            // one that ends well after dgl-reap has acted has not done its work
            let reaped = world
                .reaped
                .filter(|_| failure.end.reaped && outcome.reaped);
            let reaped = reaped.filter(|time| failure.end.code == Some(0) && *time <= decided);
            // the agent of a host that was hit has ended its part itself
            first(&is_it).or(reaped).or_else(|| hit(failure))
        }
        Some(Cause::Servers) => None,
    }
}

/// Each end that a surviving host saw is reported exactly once, and no other.
fn wrong_records(world: &World, tried: &Try, outcome: &JobOutcome) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut reported: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
    for line in tried.records.split(|byte| *byte == b'\n') {
        let Ok(record) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        if record["type"] == "exited" {
            let id = u32::try_from(record["id"].as_u64().unwrap()).unwrap();
            reported.entry(id).or_default().push(record);
        }
    }
    let was_paused =
        world.paused_for() + heartbeat(world.schedule.patience) * 2 >= world.schedule.patience;
    for (position, host) in world.hosts.iter().enumerate() {
        let state = host.state.borrow();
        let must_report = !host.is_harmed && !was_paused && outcome.report.0.is_empty();
        for (index, status) in &state.taken {
            let id = world.id_of(position, *index);
            let records = reported.remove(&id).unwrap_or_default();
            let count = records.len();
            if count > 1 || count == 0 && must_report {
                wrong.push(format!(
                    "process {id} ended once and was reported {count} times"
                ));
            }
            let signal = status.signal.map(SignalNumber::name);
            let is_it = |record: &Value| {
                record["code"].as_u64() == status.code.map(u64::from)
                    && record["signal"].as_str() == signal.as_deref()
            };
            if !records.iter().all(is_it) {
                wrong.push(format!(
                    "process {id} ended otherwise: {status:?}, {records:?}"
                ));
            }
        }
    }
    // those that could not be started
    reported.retain(|_, records| records[0]["code"] != 126 || records.len() > 1);
    for id in reported.keys() {
        wrong.push(format!(
            "process {id} was reported to have ended and has not"
        ));
    }
    wrong
}

/// Nothing of the job is left on any host before another attempt, but for what hangs in the kernel,
/// and on hosts that did not run when the last one was decided.
pub fn before_next_try(world: &World, tried: &Try) -> Vec<String> {
    let decided = tried.decided.unwrap_or(world.now);
    let hosts = 0..world.hosts.len();
    let left =
        hosts.filter(|host| world.has_run_since(*host, decided) && is_anything_left(world, *host));
    left.map(|host| format!("host {host}: something is left before the next attempt"))
        .collect()
}

fn is_anything_left(world: &World, host: usize) -> bool {
    let state = world.hosts[host].state.borrow();
    state.alive().any(|(_, one)| one.habits.kill < SECOND)
}

/// Nothing of the job is left on any host.
pub fn at_the_end(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for (position, host) in world.hosts.iter().enumerate() {
        let state = host.state.borrow();
        let left: Vec<_> = state.alive().map(|(pid, one)| (*pid, one.index)).collect();
        if !left.is_empty() {
            wrong.push(format!("host {position}: {left:?} are left at the end"));
        }
    }
    wrong.extend(
        world
            .agents()
            .map(|host| format!("host {host}: its agent waits")),
    );
    wrong
}
