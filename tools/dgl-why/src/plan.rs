//! Finds the verdict on a run from its records, without a clock.

use crate::Records;
use crate::findings::{Finding, Outcome, Verdict};
use crate::job::{Job, ProcessHistory};
use crate::skew;
use crate::wait;
use record::term::{self, bytes};
use record::{Culprit, FirstFailure, Host, Summary};
use std::time::Duration;

/// What processes write whose peer has gone; it names the consequence and not the cause.
const CONSEQUENCES: [&str; 6] = [
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "connectFullMesh failed",
    "Socket Timeout",
];

/// Why a run ended, or what it waits for.
pub fn verdict(records: &Records) -> Verdict {
    let job = Job::of(records);
    let (outcome, cause) = match &records.summary {
        Some(summary) => ended(&job, summary),
        None => unfinished(&job),
    };
    let mut others = beside(&job, &cause);
    others.extend(skew::findings(&job));
    others.retain(|other| other.text != cause.text);
    Verdict {
        outcome,
        cause,
        others,
        began_ms: job.began_ms,
        comparison: wait::comparison(&job),
    }
}

fn ended(job: &Job, summary: &Summary) -> (Outcome, Finding) {
    let failure = summary.first_failure.as_ref();
    let cause = summary.cause.as_deref().unwrap_or_default();
    let (outcome, finding) = match (cause, failure) {
        ("", _) if summary.ok => (Outcome::EndedWell, all_ended(job, summary)),
        ("timeout", _) => (Outcome::Failed, time_limit(job, failure)),
        ("stalled", _) => (Outcome::Failed, ended_stall(job)),
        ("signal", _) => (Outcome::Interrupted, interrupted(job, summary)),
        ("paused", _) => (Outcome::Failed, paused(summary)),
        ("servers", _) => (Outcome::Failed, servers(job, failure)),
        ("preflight", _) => (Outcome::NotStarted, Finding::new(PREFLIGHT)),
        (_, Some(failure)) if failure.reaped => (Outcome::Interrupted, failed(job, failure)),
        (_, Some(failure)) => (Outcome::Failed, failed(job, failure)),
        _ if job.tries == 0 => (Outcome::NotStarted, Finding::new(NO_FAILURE)),
        _ => (Outcome::Failed, Finding::new(NO_FAILURE)),
    };
    (outcome, finding.shown_by(summary))
}

const PREFLIGHT: &str = "the look before the start found faults, which dgl-spawn named on \
                         stderr; the records do not have them";
const NO_FAILURE: &str =
    "the records do not say which process or host failed; dgl-spawn's stderr does";

/// The cause of a job whose launcher, or the agent that kept it, did not run.
fn paused(summary: &Summary) -> Finding {
    let reason = summary.reason.as_deref();
    Finding::new(reason.unwrap_or("the launcher was stopped; no host was lost"))
        .fix("bridge such a pause with a longer --host-timeout")
}

/// The cause of a job whose graph servers have ended.
fn servers(job: &Job, failure: Option<&FirstFailure>) -> Finding {
    let text = "the graph servers that it used have ended";
    match failure {
        Some(failure) => {
            let lost = if failure.error.is_some() {
                "lost: "
            } else {
                ""
            };
            let (host, how) = (job.host(failure.host), failure.words());
            Finding::new(format!("{text}, first on {host}: {lost}{how}"))
        }
        None => Finding::new(text),
    }
    .fix("… | dgl-spawn --attach NAME of the servers tells more; start them anew")
}

fn all_ended(job: &Job, summary: &Summary) -> Finding {
    let count = term::count(job.lives.len() as u64, "process");
    let time = term::seconds(Duration::from_millis(summary.elapsed_ms));
    Finding::new(format!("{count}, {time}"))
}

/// The cause of a job that took longer than its limit.
fn time_limit(job: &Job, failure: Option<&FirstFailure>) -> Finding {
    if let Some(failure) = failure {
        return of_failure(job, failure);
    }
    let waited = wait::on(job).or_else(|| wait::silence(job));
    match waited {
        Some(mut finding) => {
            finding.text = format!("its time limit was over: {}", finding.text);
            finding
        }
        None => Finding::new(
            "its time limit was over; the records do not show that it waited for anything",
        )
        .shown_by_all(last_words(job)),
    }
}

/// The cause of a job that stalled and was ended therefore.
fn ended_stall(job: &Job) -> Finding {
    match wait::on(job) {
        Some(mut finding) => {
            finding.text = format!("it stalled: {}", finding.text);
            finding
        }
        None => Finding::new("it stalled").shown_by_all(last_words(job)),
    }
}

/// The last line of all clients together.
fn last_words<'j>(job: &'j Job) -> Option<&'j record::Output> {
    let words = job.clients().filter_map(|life| life.last_word());
    words.max_by_key(|word| word.time_ms)
}

fn interrupted(job: &Job, summary: &Summary) -> Finding {
    let number = i32::from(summary.code) - 128;
    let name = record::exit::signal_name(number);
    let text = format!("dgl-spawn got SIG{name}");
    let finding = match wait::on(job).or_else(|| wait::silence(job)) {
        Some(mut waited) => {
            waited.text = format!("{text}; until then {}", waited.text);
            waited
        }
        None => Finding::new(text).shown_by_all(last_words(job)),
    };
    match number {
        2 => finding,
        _ => finding
            .fix("ask who sends it: a batch system at its own time limit, a terminal that closed"),
    }
}

/// The cause of a job of which a process or a host failed.
fn failed(job: &Job, failure: &FirstFailure) -> Finding {
    let finding = of_failure(job, failure);
    let is_cause = failure.oom
        || failure.signal.is_some()
        || failure.error.is_some()
        || !CONSEQUENCES
            .iter()
            .any(|words| finding.text.contains(words));
    if is_cause {
        return finding;
    }
    // it lost its peer: look for a process that raised another exception before, or was gone
    let before = job
        .lives
        .iter()
        .filter(|life| Some(life.process.id) != failure.id)
        .filter_map(|life| Some((life, life.raised()?)))
        .filter(|(_, raised)| {
            !CONSEQUENCES
                .iter()
                .any(|words| raised.exception.contains(words))
        })
        .min_by_key(|(_, raised)| raised.named.time_ms);
    match before {
        Some((life, raised)) => Finding::new(format!(
            "{} raised {}; that ended the connections of others, of which one failed first: {}",
            job.who(life),
            raised.exception,
            finding.text
        ))
        .since(raised.named.time_ms)
        .on_account_of(life.culprit())
        .shown_by(raised.named)
        .shown_by_all(life.exited),
        None => finding,
    }
}

/// What failed first, as dgl-spawn has noted it.
fn of_failure(job: &Job, failure: &FirstFailure) -> Finding {
    match failure.id.and_then(|id| job.life(id)) {
        Some(life) => process(job, life, failure),
        None => host(job, failure),
    }
}

fn host(job: &Job, failure: &FirstFailure) -> Finding {
    let host = job.host(failure.host);
    let summary = job.records.summary.as_ref();
    let is_lost = summary.is_some_and(|summary| summary.cause.as_deref() == Some("host"));
    let text = match &failure.error {
        Some(error) if is_lost => format!("{host} was lost: {error}"),
        None if is_lost => format!("{host} failed; the records do not say how"),
        _ => format!(
            "a process on {host} {}; the records do not say which",
            failure.words()
        ),
    };
    let of_host = || {
        job.lives
            .iter()
            .filter(|life| life.process.host == failure.host)
    };
    let last = of_host()
        .filter_map(|life| life.last_word())
        .max_by_key(|word| word.time_ms);
    let mut finding = Finding::new(text)
        .on_account_of(Culprit {
            host: failure.host,
            id: None,
            role: None,
            rank: None,
        })
        .shown_by_all(last);
    finding.since_ms = last.map(|word| word.time_ms);
    finding
}

/// How a process failed.
fn process(job: &Job, life: &ProcessHistory, failure: &FirstFailure) -> Finding {
    let who = job.who(life);
    let host = job.host_record(life.process.host);
    let finding = match (&failure.error, failure.signal.as_deref()) {
        (Some(error), _) => Finding::new(format!("{who} {error}")).shown_by_all(life.last_word()),
        (None, _) if failure.reaped => Finding::new(format!("{who} was ended by dgl-reap")),
        (None, _) if failure.oom => out_of_memory(job, life, host, failure.signal.is_none()),
        (None, Some("KILL")) => Finding::new(format!(
            "{who} was ended by SIGKILL, which neither dgl-spawn nor, by its count, the kernel \
             for want of memory has sent"
        )),
        (None, Some("BUS")) => bus(job, life, host),
        (None, Some(signal)) => {
            let stack = life.fatal_stacks().into_iter().next();
            let place = stack
                .as_ref()
                .and_then(|(_, frames)| Some(format!(" in {}", frames.first()?)))
                .unwrap_or_default();
            Finding::new(format!("{who} was ended by SIG{signal}{place}"))
                .shown_by_all(stack.map(|(line, _)| line))
        }
        (None, None) => status(life, failure, &who),
    };
    let mut finding = finding
        .on_account_of(life.culprit())
        .shown_by_all(life.exited);
    finding.since_ms = finding
        .since_ms
        .or(life.end_ms())
        .or_else(|| life.started.map(|started| started.time_ms));
    finding
}

/// The finding about a process that exited by itself.
fn status(life: &ProcessHistory, failure: &FirstFailure, who: &str) -> Finding {
    let code = failure.code.unwrap_or(1);
    if let Some(raised) = life.raised() {
        // an attached stream has the time at which the log was read
        let end_ms = life.end_ms().unwrap_or(u64::MAX);
        return Finding::new(format!("{who} raised {}", raised.exception))
            .since(raised.named.time_ms.min(end_ms))
            .shown_by(raised.named);
    }
    let error = failure
        .last_lines
        .iter()
        .rev()
        .find_map(|line| record::traceback::exception(line));
    let said = match (error, life.last_word(), failure.last_lines.last()) {
        (Some(error), ..) => format!("; it wrote: {error}"),
        (None, Some(word), _) => format!("; its last line: {}", word.line),
        (None, None, Some(line)) => format!("; its last line: {line}"),
        (None, None, None) => "; it wrote no output".to_owned(),
    };
    Finding::new(format!("{who} exited with status {code}{said}")).shown_by_all(life.last_word())
}

/// `below`: not it, but what it ran.
fn out_of_memory(job: &Job, life: &ProcessHistory, host: Option<&Host>, below: bool) -> Finding {
    let used = life.exited.and_then(|exited| exited.max_rss_bytes);
    let there = host.and_then(|host| host.facts.mem_bytes);
    let of_host = job
        .lives
        .iter()
        .filter(|one| one.process.host == life.process.host);
    let together: u64 = of_host
        .filter_map(|one| one.exited?.max_rss_bytes)
        .fold(0, u64::saturating_add);
    let who = match below {
        true => format!("what {} ran", job.who(life)),
        false => job.who(life),
    };
    let mut text = format!("{who} was killed by the kernel because memory ran out");
    if let Some(used) = used {
        text += &format!("; it had at most {}", bytes(used));
    }
    if let Some(there) = there {
        text += &format!(", its host has {}", bytes(there));
        if together > 0 && together < there / 2 {
            text += ": so it was the limit of a container or of a batch job, not of the host";
        }
    }
    Finding::new(text)
        .shown_by_all(host)
        .fix("give it more memory, or its host a smaller partition or fewer processes")
}

/// The finding about SIGBUS, which comes of writing to a page of /dev/shm for which there is no
/// room.
fn bus(job: &Job, life: &ProcessHistory, host: Option<&Host>) -> Finding {
    let mut text = format!(
        "{} was ended by SIGBUS, as by a /dev/shm that is full",
        job.who(life)
    );
    if let Some(room) = host.and_then(|host| host.facts.shm_free_bytes) {
        text += &format!("; before the start {} were free there", bytes(room));
    }
    let partition: u64 = skew::partition_bytes(job, life.process.host);
    if partition > 0 {
        text += &format!(", and the files of its partition have {}", bytes(partition));
    }
    Finding::new(text)
        .shown_by_all(host)
        .shown_by_all(life.last_word())
        .fix("give /dev/shm more room there (docker run --shm-size), or use more partitions")
}

/// The finding if the records break off before the job's end.
fn unfinished(job: &Job) -> (Outcome, Finding) {
    let first = job
        .lives
        .iter()
        .filter(|life| life.has_failed())
        .min_by_key(|life| life.end_ms());
    if let Some((life, exited)) = first.and_then(|life| Some((life, life.exited?))) {
        let failure = FirstFailure {
            host: exited.host,
            id: Some(exited.id),
            code: exited.code,
            signal: exited.signal.clone(),
            oom: exited.oom,
            reaped: exited.reaped,
            ..FirstFailure::default()
        };
        let outcome = match failure.reaped {
            true => Outcome::Interrupted,
            false => Outcome::Failed,
        };
        return (outcome, failed(job, &failure).on_account_of(life.culprit()));
    }
    if job.tries == 0 {
        return (
            Outcome::NotStarted,
            Finding::new("the records have no process that was started"),
        );
    }
    let waits = wait::on(job)
        .or_else(|| wait::start(job))
        .or_else(|| wait::silence(job));
    match waits {
        Some(finding) => (Outcome::Waits, finding),
        None => (Outcome::Runs, running(job)),
    }
}

fn running(job: &Job) -> Finding {
    let alive: Vec<&ProcessHistory> = job.lives.iter().filter(|life| life.has_stayed()).collect();
    let began = job.began_ms.unwrap_or(job.latest_ms);
    let age = term::seconds(Duration::from_millis(job.latest_ms.saturating_sub(began)));
    let text = match alive.is_empty() {
        true => format!("all processes have ended, {age} after the start; the end was not noted"),
        false => format!(
            "{} for {age} when the records break off",
            term::count(alive.len() as u64, "process")
        ),
    };
    Finding::new(text).shown_by_all(last_words(job))
}

/// Further findings about the last try.
fn beside(job: &Job, cause: &Finding) -> Vec<Finding> {
    let mut findings = Vec::new();
    if job.tries > 1 {
        let earlier = job.records.exited.iter().filter(|exited| {
            let is_last =
                |life: &ProcessHistory| life.exited.is_some_and(|last| std::ptr::eq(last, *exited));
            !exited.while_ending && exited.code != Some(0) && !job.lives.iter().any(is_last)
        });
        findings.push(
            Finding::new(format!("this was try {} of the job", job.tries))
                .shown_by_all(earlier.take(3)),
        );
    }
    let raised = job
        .lives
        .iter()
        .filter(|life| cause.culprit.as_ref().and_then(|one| one.id) != Some(life.process.id))
        .filter_map(|life| Some((life, life.raised()?)))
        .min_by_key(|(_, raised)| raised.named.time_ms);
    if let Some((life, raised)) = raised {
        findings.push(
            Finding::new(format!("{} raised {}", job.who(life), raised.exception))
                .since(raised.named.time_ms)
                .on_account_of(life.culprit())
                .shown_by(raised.named),
        );
    }
    if job.records.unrecorded > 0 {
        let count = term::count(job.records.unrecorded as u64, "process record");
        let verb = if job.records.unrecorded == 1 {
            "is"
        } else {
            "are"
        };
        findings.push(Finding::new(format!(
            "{count} {verb} missing in the records"
        )));
    }
    let lines: u64 = job
        .records
        .dropped
        .iter()
        .map(|one| one.lines)
        .fold(0, u64::saturating_add);
    if lines > 0 {
        findings.push(
            Finding::new(format!(
                "{} of output are missing in the records",
                term::count(lines, "line")
            ))
            .shown_by_all(&job.records.dropped),
        );
    }
    findings
}
