//! Finds the verdict on a run, without a clock.

use crate::findings::{Finding, Outcome, Verdict};
use crate::job::{Job, ProcessHistory};
use crate::nccl;
use crate::skew;
use crate::wait;
use record::term::{self, bytes};
use record::{Culprit, FirstFailure, Output, Summary};
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

/// Messages of torch, NCCL, gloo and Python that name what to do; dgl-tools-trouble(7) says more.
const KNOWN: [(&str, &str); 7] = [
    (
        "Duplicate GPU detected",
        "give each process a GPU of its own: dgl-env --trainer-env \
         'CUDA_VISIBLE_DEVICES={local_rank}'",
    ),
    (
        "No module named",
        "name the environment on the hosts: host-probe --conda NAME or --venv DIR",
    ),
    (
        "out of memory",
        "make batches or the model smaller, or take hosts with more: host-probe --min gpu=SIZE",
    ),
    (
        "Address already in use",
        "end what has the port: dgl-reap --list shows jobs; or let host-probe --port auto choose",
    ),
    (
        "connectFullMesh failed",
        "look for a firewall between the hosts, or a rank that had already ended",
    ),
    (
        "net_type can only be 'tensorpipe'",
        "pass net_type=\"tensorpipe\" to dgl.distributed.initialize",
    ),
    (
        "Too many open files",
        "raise the hard limit on open files for logins to that host",
    ),
];

/// Why a run ended, or what it waits for.
pub fn verdict(job: &Job) -> Verdict {
    let (outcome, mut cause) = match &job.summary {
        Some(summary) => ended(job, summary),
        None => unfinished(job),
    };
    let known = KNOWN.iter().find(|(words, _)| cause.text.contains(words));
    cause.fix = cause.fix.or(known.map(|(_, fix)| (*fix).to_owned()));
    let mut others = beside(job, &cause);
    others.extend(skew::slow(job));
    others.extend(skew::findings(job));
    others.retain(|other| other.text != cause.text);
    Verdict {
        outcome,
        cause,
        others,
        began_ms: job.began_ms(),
        comparison: wait::comparison(job),
    }
}

fn ended(job: &Job, summary: &Summary) -> (Outcome, Finding) {
    let failure = summary.first_failure.as_ref();
    let (outcome, finding) = match (summary.cause.as_deref().unwrap_or_default(), failure) {
        ("", _) if summary.ok => (Outcome::EndedWell, all_ended(job, summary)),
        ("timeout", Some(failure)) => (Outcome::Failed, of_failure(job, failure)),
        ("timeout", None) => {
            let otherwise = "; the records do not show that it waited for anything";
            let finding = until_then(job, "its time limit was over", ": ", otherwise);
            (Outcome::Failed, finding)
        }
        ("stalled", _) => (Outcome::Failed, until_then(job, "it stalled", ": ", "")),
        ("signal", _) => (Outcome::Interrupted, interrupted(job, summary)),
        ("paused", _) => {
            let reason = summary.reason.as_deref();
            let finding =
                Finding::new(reason.unwrap_or("the launcher was stopped; no host was lost"))
                    .fix("bridge such a pause with a longer --host-timeout");
            (Outcome::Failed, finding)
        }
        ("servers", _) => (Outcome::Failed, servers(job, failure)),
        ("preflight", _) => (Outcome::NotStarted, Finding::new(PREFLIGHT)),
        (_, Some(failure)) if failure.reaped => (Outcome::Interrupted, failed(job, failure)),
        (_, Some(failure)) => (Outcome::Failed, failed(job, failure)),
        _ if job.tries.is_empty() => (Outcome::NotStarted, Finding::new(NO_FAILURE)),
        _ => (Outcome::Failed, Finding::new(NO_FAILURE)),
    };
    (outcome, finding.shown_by([summary]))
}

const PREFLIGHT: &str = "the checks before the start found faults, which dgl-spawn named on \
                         stderr; the records do not have them";
const NO_FAILURE: &str =
    "the records do not say which process or host failed; dgl-spawn's stderr does";

/// The cause of a job whose graph servers have ended.
fn servers(job: &Job, failure: Option<&FirstFailure>) -> Finding {
    let mut text = "the graph servers that it used have ended".to_owned();
    if let Some(failure) = failure {
        let lost = if failure.error.is_some() {
            "lost: "
        } else {
            ""
        };
        let (host, how) = (job.host_name(failure.host), failure.words());
        text += &format!(", first on {host}: {lost}{how}");
    }
    Finding::new(text).fix("… | dgl-spawn --attach NAME of the servers tells more; start them anew")
}

fn all_ended(job: &Job, summary: &Summary) -> Finding {
    let count = term::count(job.processes.len() as u64, "process");
    let time = term::seconds(Duration::from_millis(summary.elapsed_ms));
    Finding::new(format!("{count}, {time}"))
}

/// What ended the job from outside, `text`, with what it waited for until then behind `joint`; if
/// that is not known, with `otherwise` and its last line.
fn until_then(job: &Job, text: &str, joint: &str, otherwise: &str) -> Finding {
    match wait::on(job).or_else(|| wait::silence(job)) {
        Some(mut waited) => {
            waited.text = format!("{text}{joint}{}", waited.text);
            waited
        }
        None => Finding::new(format!("{text}{otherwise}")).shown_by(last_line(job)),
    }
}

/// The last line of all clients together.
fn last_line(job: &Job) -> Option<&Output> {
    job.last_client_line().map(|(_, line)| line)
}

fn interrupted(job: &Job, summary: &Summary) -> Finding {
    let number = i32::from(summary.code) - 128;
    let text = format!("dgl-spawn got SIG{}", record::exit::signal_name(number));
    let mut finding = until_then(job, &text, "; until then ", "");
    // nobody needs to be told who has pressed Ctrl-C
    if number != 2 {
        finding = finding
            .fix("ask who sends it: a batch system at its own time limit, a terminal that closed");
    }
    finding
}

/// The cause of a job of which a process or a host failed.
fn failed(job: &Job, failure: &FirstFailure) -> Finding {
    let finding = of_failure(job, failure);
    let is_consequence = |text: &str| CONSEQUENCES.iter().any(|words| text.contains(words));
    let is_cause = failure.oom
        || failure.signal.is_some()
        || failure.error.is_some()
        || !is_consequence(&finding.text);
    if is_cause {
        return finding;
    }
    // it lost its peer: look for a process that raised another exception before
    let before = job.first_raised(|one, raised| {
        Some(one.process.id) != failure.id && !is_consequence(raised.exception)
    });
    match before {
        Some((one, raised)) => Finding::new(format!(
            "{} raised {}; that ended the connections of others, of which one failed first: {}",
            job.name(&one.culprit()),
            raised.exception,
            finding.text
        ))
        .since(raised.named.time_ms)
        .caused_by(one.culprit())
        .shown_by([raised.named])
        .shown_by(&one.life.exited),
        None => finding,
    }
}

/// What failed first, as dgl-spawn has noted it.
fn of_failure(job: &Job, failure: &FirstFailure) -> Finding {
    match failure.id.and_then(|id| job.history(id)) {
        Some(one) => process(job, one, failure),
        None => host(job, failure),
    }
}

fn host(job: &Job, failure: &FirstFailure) -> Finding {
    let host = job.host_name(failure.host);
    let summary = job.summary.as_ref();
    let is_lost = summary.is_some_and(|summary| summary.cause.as_deref() == Some("host"));
    let text = match &failure.error {
        Some(error) if is_lost => format!("{host} was lost: {error}"),
        None if is_lost => format!("{host} failed; the records do not say how"),
        _ => format!(
            "a process on {host} {}; the records do not say which",
            failure.words()
        ),
    };
    let of_host = (job.processes.iter()).filter(|one| one.process.host == failure.host);
    let last = of_host
        .filter_map(|one| one.last_line())
        .max_by_key(|line| line.time_ms);
    Finding::new(text)
        .caused_by(Culprit::of_host(failure.host))
        .shown_by(last)
        .since(last.map(|line| line.time_ms))
}

/// How a process failed.
fn process(job: &Job, one: &ProcessHistory, failure: &FirstFailure) -> Finding {
    let name = job.name(&one.culprit());
    let mut finding = match (&failure.error, failure.signal.as_deref()) {
        (Some(error), _) => Finding::new(format!("{name} {error}")).shown_by(one.last_line()),
        (None, _) if failure.reaped => Finding::new(format!("{name} was ended by dgl-reap")),
        (None, _) if failure.oom => out_of_memory(job, one, failure.signal.is_none()),
        (None, Some("KILL")) => Finding::new(format!(
            "{name} was ended by SIGKILL, which neither dgl-spawn nor, by its count, the kernel \
             for want of memory has sent"
        )),
        (None, Some("BUS")) => bus(job, one),
        (None, Some(signal)) => {
            let (line, frames) = one.fatal_stacks().into_iter().next().unzip();
            let frame = frames.as_ref().and_then(|frames| frames.first());
            let frame = frame.map(|frame| format!(" in {frame}"));
            let text = format!(
                "{name} was ended by SIG{signal}{}",
                frame.unwrap_or_default()
            );
            Finding::new(text).shown_by(line)
        }
        (None, None) => status(one, failure, &name),
    };
    let started = one.life.started.as_ref();
    finding.since_ms = (finding.since_ms)
        .or(one.life.end_ms())
        .or(started.map(|started| started.time_ms));
    finding.caused_by(one.culprit()).shown_by(&one.life.exited)
}

/// The finding about a process that exited by itself.
fn status(one: &ProcessHistory, failure: &FirstFailure, name: &str) -> Finding {
    if let Some(raised) = one.raised() {
        // an attached stream has the time at which the log was read
        let end_ms = one.life.end_ms().unwrap_or(u64::MAX);
        return Finding::new(format!("{name} raised {}", raised.exception))
            .since(raised.named.time_ms.min(end_ms))
            .shown_by([raised.named]);
    }
    let error = record::traceback::last_exception(&failure.last_lines);
    let last_line = one.last_line().map(|line| &line.line);
    let wrote = match (error, last_line.or(failure.last_lines.last())) {
        (Some(error), _) => format!("it wrote: {error}"),
        (None, Some(line)) => format!("its last line: {line}"),
        (None, None) => "it wrote no output".to_owned(),
    };
    let code = failure.code.unwrap_or(1);
    Finding::new(format!("{name} exited with status {code}; {wrote}")).shown_by(one.last_line())
}

/// The finding about a process, or what it ran (`is_child`), that the kernel killed.
fn out_of_memory(job: &Job, one: &ProcessHistory, is_child: bool) -> Finding {
    let host = job.host(one.process.host);
    let used = |one: &ProcessHistory| one.life.exited.as_ref()?.max_rss_bytes;
    let of_host = (job.processes.iter()).filter(|other| other.process.host == one.process.host);
    let together = of_host.filter_map(used).fold(0, u64::saturating_add);
    let name = job.name(&one.culprit());
    let who = if is_child {
        format!("what {name} ran")
    } else {
        name
    };
    let mut text = format!("{who} was killed by the kernel because memory ran out");
    if let Some(used) = used(one) {
        text += &format!("; it had at most {}", bytes(used));
    }
    if let Some(all) = host.and_then(|host| host.facts.mem_bytes) {
        text += &format!(", its host has {}", bytes(all));
        if together > 0 && together < all / 2 {
            text += ": so it was the limit of a container or of a batch job, not of the host";
        }
    }
    Finding::new(text)
        .shown_by(host)
        .fix("give it more memory, or its host a smaller partition or fewer processes")
}

/// The finding about SIGBUS, which comes of writing to a page of /dev/shm for which there is no
/// room.
fn bus(job: &Job, one: &ProcessHistory) -> Finding {
    let host = job.host(one.process.host);
    let name = job.name(&one.culprit());
    let mut text = format!("{name} was ended by SIGBUS, as by a /dev/shm that is full");
    if let Some(room) = host.and_then(|host| host.facts.shm_free_bytes) {
        text += &format!("; before the start {} were free there", bytes(room));
    }
    if let Some(partition) = skew::partitions(job).get(&one.process.host) {
        let size = bytes(*partition as u64);
        text += &format!(", and the files of its partition have {size}");
    }
    Finding::new(text)
        .shown_by(host)
        .shown_by(one.last_line())
        .fix("give /dev/shm more room there (docker run --shm-size), or use more partitions")
}

/// The finding if the records break off before the job's end.
fn unfinished(job: &Job) -> (Outcome, Finding) {
    let failures = job.processes.iter().filter_map(|one| {
        let exited = one.life.exited.as_ref()?;
        let has_failed = !exited.while_ending && (exited.code != Some(0) || exited.reaped);
        has_failed.then_some((one, exited))
    });
    if let Some((one, exited)) = failures.min_by_key(|(one, _)| one.life.end_ms()) {
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
        return (outcome, failed(job, &failure).caused_by(one.culprit()));
    }
    if job.tries.is_empty() && !job.profiles.is_empty() {
        return (Outcome::Runs, profiled(job));
    }
    if job.tries.is_empty() {
        let text = "the records have no process that was started";
        return (Outcome::NotStarted, Finding::new(text));
    }
    let waits = wait::on(job)
        .or_else(|| wait::start(job))
        .or_else(|| wait::silence(job));
    match waits {
        Some(finding) => (Outcome::Waits, finding),
        None => (Outcome::Runs, running(job)),
    }
}

/// The records are of somebody who looked at a job for a while.
fn profiled(job: &Job) -> Finding {
    let longest = job.profiles.iter().map(|one| one.elapsed_ms).max();
    Finding::new(format!(
        "{} were recorded for {}",
        term::count(job.profiles.len() as u64, "Python"),
        term::seconds(Duration::from_millis(longest.unwrap_or(0)))
    ))
}

fn running(job: &Job) -> Finding {
    let alive = job.processes.iter().filter(|one| one.has_stayed()).count();
    let began = job.began_ms().unwrap_or(job.latest_ms);
    let age = term::seconds(Duration::from_millis(job.latest_ms.saturating_sub(began)));
    let text = match alive {
        0 => format!("all processes have ended, {age} after the start; the end was not noted"),
        _ => format!(
            "{} for {age} when the records break off",
            term::count(alive as u64, "process")
        ),
    };
    Finding::new(text).shown_by(last_line(job))
}

/// Further findings about the last try.
fn beside(job: &Job, cause: &Finding) -> Vec<Finding> {
    let mut findings = Vec::from_iter(nccl::gave_up(job));
    if job.tries.len() > 1 {
        let exits = job.earlier.iter().filter_map(|life| life.exited.as_ref());
        let failed = exits.filter(|exited| !exited.while_ending && exited.code != Some(0));
        let text = format!("this was try {} of the job", job.tries.len());
        findings.push(Finding::new(text).shown_by(failed.take(3)));
    }
    let culprit = cause.culprit.as_ref().and_then(|one| one.id);
    if let Some((one, raised)) = job.first_raised(|one, _| culprit != Some(one.process.id)) {
        let text = format!("{} raised {}", job.name(&one.culprit()), raised.exception);
        findings.push(
            Finding::new(text)
                .since(raised.named.time_ms)
                .caused_by(one.culprit())
                .shown_by([raised.named]),
        );
    }
    if job.unrecorded > 0 {
        let count = term::count(job.unrecorded as u64, "process record");
        let verb = if job.unrecorded == 1 { "is" } else { "are" };
        let text = format!("{count} {verb} missing in the records");
        findings.push(Finding::new(text));
    }
    let dropped = job.dropped.iter().map(|one| one.lines);
    let lines = dropped.fold(0, u64::saturating_add);
    if lines > 0 {
        let count = term::count(lines, "line");
        let text = format!("{count} of output are missing in the records");
        findings.push(Finding::new(text).shown_by(&job.dropped));
    }
    findings
}
