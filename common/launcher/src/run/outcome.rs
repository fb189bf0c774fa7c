//! How a job ended, and the report about it.

use super::signals::Signals;
use crate::output::fold::telling;
use crate::output::sink::{OutputSink, printable_line};
use crate::plan;
use job::{Cause, Ending, JobFailure, Limit, Loss, Reason};
use record::error::Report;
use record::exit::{Exit, ProcessEnd, SignalNumber};
use record::term::{self, millis};
use record::{FirstFailure, Host, Process, Role, Summary};
use std::time::{Duration, Instant};
use verdict::{Conclusion, JobFinding};

pub struct JobOutcome {
    pub exit: Exit,
    pub cause: Option<Cause>,
    pub cause_label: Option<&'static str>,
    pub failure: Option<FirstFailure>,
    pub report: Report,
    pub started: bool,
    /// Since the job began.
    pub age: Duration,
    pub graph_servers_lost: bool,
    /// A sentence for each process that raised an exception and did not end.
    pub raised: Vec<String>,
    /// Whether dgl-reap ended the whole job, which must then not be restarted.
    pub reaped: bool,
    /// The first signal, even if the job was ending already. It prevents a restart.
    pub signalled: Option<SignalNumber>,
}

pub enum Stopped {
    Hosts(Report),
    Preflight(Report),
    Signal(SignalNumber),
}

pub fn cause_label(cause: &Cause) -> &'static str {
    match cause {
        Cause::Process => "process",
        Cause::Host => "host",
        Cause::Signal(_) => "signal",
        Cause::Time(_) => "timeout",
        Cause::Stalled(_) => "stalled",
        Cause::Servers => "servers",
        Cause::Paused(_) => "paused",
    }
}

/// What failed first, with the last lines if it was a process.
pub fn first_failure(
    failure: &JobFailure,
    process: Option<&Process>,
    last_lines: Vec<String>,
) -> FirstFailure {
    let mut first = FirstFailure {
        host: failure.host,
        id: process.map(|process| process.id),
        role: process.map(|process| process.role),
        rank: process.map(|process| process.rank),
        last_lines,
        ..FirstFailure::default()
    };
    match &failure.reason {
        Reason::Ended(end) => first.end = *end,
        Reason::NotListening(time) => {
            first.error = Some(format!("does not listen after {} s", time.as_secs_f32()));
        }
        Reason::EndedEarly => {
            first.end = ProcessEnd::exited(0);
            let error = if process.is_some_and(|process| !process.service) {
                "exited before it listened"
            } else {
                "is a service, and exited before the other programs"
            };
            first.error = Some(error.to_owned());
        }
        Reason::Raised(exception) => {
            first.error = Some(format!("raised {exception} and did not end"));
        }
        Reason::Lost(loss) => first.error = Some(loss_label(loss)),
    }
    first
}

/// Why a host was lost, as it follows "lost: " in messages.
fn loss_label(loss: &Loss) -> String {
    match loss {
        Loss::Silent(time) => format!("no message from it for {} s", time.as_secs_f32()),
        Loss::SupervisorGone => {
            "the agent that supervised graph servers on the host has exited".to_owned()
        }
        Loss::Other(why) => why.clone(),
    }
}

pub fn exit(ending: &Ending) -> Exit {
    let reason = ending.failure.as_ref().map(|failure| &failure.reason);
    match (&ending.cause, reason) {
        (None, _) => Exit::Done,
        (Some(Cause::Signal(signal)), _) => Exit::Signal(*signal),
        (Some(Cause::Host | Cause::Servers | Cause::Paused(_)), _) => Exit::Unreachable,
        (Some(Cause::Time(_) | Cause::Stalled(_)), _) => Exit::TimeLimit,
        (Some(Cause::Process), Some(Reason::Ended(end))) => Exit::Process(end.shell_code()),
        (Some(Cause::Process), _) => Exit::Process(1),
    }
}

impl Stopped {
    /// The outcome of an attempt that started nothing.
    pub fn outcome(self) -> JobOutcome {
        let (exit, cause, cause_label, report) = match self {
            Stopped::Signal(signal) => (
                Exit::Signal(signal),
                Some(Cause::Signal(signal)),
                "signal",
                Report::default(),
            ),
            Stopped::Hosts(report) => (report.exit(), Some(Cause::Host), "host", report),
            Stopped::Preflight(report) => (report.exit(), None, "preflight", report),
        };
        JobOutcome {
            exit,
            cause,
            cause_label: Some(cause_label),
            failure: None,
            report,
            started: false,
            age: Duration::ZERO,
            graph_servers_lost: false,
            raised: Vec::new(),
            reaped: false,
            signalled: None,
        }
    }
}

/// Reports how the job ended; returns the exit status.
pub fn conclude(
    hosts: &[Host],
    plan: &plan::JobPlan,
    outcome: &JobOutcome,
    begun: Instant,
    mut sink: OutputSink,
    signals: &Signals,
) -> Exit {
    let mut exit = outcome.exit;
    if sink.has_lost_something() {
        exit = exit.worst(Exit::Unreachable);
    }
    let summary = Summary {
        ok: exit == Exit::Done,
        code: exit.code(),
        ..summary(plan, outcome, begun)
    };
    sink.record(&sink.judge(&summary).record());
    sink.record(&summary);
    explain(hosts, plan, outcome, begun, &sink);
    if sink.finish(signals.since_now()) {
        exit
    } else {
        exit.worst(Exit::Unreachable)
    }
}

fn summary(plan: &plan::JobPlan, outcome: &JobOutcome, begun: Instant) -> Summary {
    Summary {
        ok: outcome.exit == Exit::Done,
        code: outcome.exit.code(),
        cause: outcome.cause_label.map(str::to_owned),
        reason: reason(outcome.cause.as_ref()),
        first_failure: outcome.failure.clone(),
        faults: outcome.report.recorded(),
        elapsed_ms: millis(begun.elapsed().max(outcome.age)),
        job: Some(plan.name.clone()),
        tool: None,
    }
}

pub fn explain(
    hosts: &[Host],
    plan: &plan::JobPlan,
    outcome: &JobOutcome,
    begun: Instant,
    sink: &OutputSink,
) {
    let notice = |text: String| sink.notice(&format!("dgl-spawn: {}", term::plain(&text)));
    outcome
        .report
        .lines("dgl-spawn")
        .iter()
        .for_each(|line| sink.notice(line));
    if !outcome.started {
        return notice("nothing was started".to_owned());
    }
    if outcome.graph_servers_lost {
        notice(
            "the graph servers that it used have ended; the output of their dgl-spawn shows why"
                .to_owned(),
        );
    }
    outcome.raised.iter().cloned().for_each(&notice);
    if let Some(reason) = reason(outcome.cause.as_ref()) {
        notice(format!("job {} was stopped: {reason}", plan.name));
    }
    if let Some(Cause::Paused(_)) = outcome.cause {
        sink.notice("  fix: bridge such a pause with a longer --host-timeout");
    }
    let verdict = sink.judge(&summary(plan, outcome, begun));
    if outcome.failure.is_some() || verdict.outcome == verdict::RunOutcome::Hidden {
        explain_verdict(&plan.name, &verdict, sink);
    }
    match (&outcome.failure, &outcome.cause) {
        (Some(failure), cause) => {
            explain_failure(hosts, failure, cause.as_ref(), &verdict.cause, sink);
        }
        (None, Some(Cause::Signal(signal))) => {
            notice(format!("job {} was stopped by SIG{signal}", plan.name));
        }
        (None, Some(Cause::Time(Limit::Start(limit) | Limit::Job(limit)))) => {
            notice(format!(
                "job {} was stopped: it took longer than {}",
                plan.name,
                term::seconds(*limit)
            ));
            verdict.comparison.lines().into_iter().for_each(notice);
        }
        (None, Some(Cause::Stalled(limit))) => notice(format!(
            "job {} was stopped: it had stalled for {}",
            plan.name,
            term::seconds(*limit)
        )),
        _ if outcome.exit == Exit::Done => notice(format!(
            "job {} finished after {}",
            plan.name,
            term::seconds(begun.elapsed().max(outcome.age))
        )),
        _ => {} // the report has shown it
    }
}

fn explain_verdict(job: &str, verdict: &Conclusion, sink: &OutputSink) {
    let (outcome, cause) = (verdict.outcome.words(), &verdict.cause);
    let text = format!("job {job} {outcome}: {}", cause.text);
    sink.notice(&format!("dgl-spawn: {}", term::plain(&text)));
    if let Some(fix) = &cause.fix {
        sink.notice(&format!("  fix: {}", term::plain(fix)));
    }
}

/// Shows which host or process failed first, how, and its last lines, unless the verdict has all of
/// it. If the verdict names another process, whose end arrived later, shows its last lines instead.
fn explain_failure(
    hosts: &[Host],
    failure: &FirstFailure,
    cause: Option<&Cause>,
    verdict: &JobFinding,
    sink: &OutputSink,
) {
    let notice = |text: String| sink.notice(&format!("dgl-spawn: {}", term::plain(&text)));
    let who = process_or_host(hosts, failure.host, failure.role, failure.rank);
    let how = how_it_failed(failure, cause);
    let culprit = verdict.culprit.as_ref();
    if let Some(culprit) = culprit
        && let (Some(id), Some(failed)) = (culprit.id, failure.id)
        && id != failed
    {
        let last_lines = sink.last_lines(id);
        let lines = telling(&last_lines);
        if !is_quoted(&lines, verdict) {
            let who = process_or_host(hosts, culprit.host, culprit.role, culprit.rank);
            notice(format!("{who} wrote last:"));
            show(&lines, sink);
        }
        return notice(format!(
            "the exit status comes from the failure that arrived first: {who} {how}"
        ));
    }
    let lines = telling(&failure.last_lines);
    let last = match (failure.id, lines.is_empty()) {
        (None, _) => "",
        (Some(_), true) => "; it wrote no output",
        (Some(_), false) => "; its last lines:",
    };
    let has_output = match lines[..] {
        [] => verdict.text.contains(last),
        _ => is_quoted(&lines, verdict),
    };
    if !has_output || !verdict.text.contains(&how) {
        notice(format!("{who} {how}{last}"));
        show(&lines, sink);
    }
}

fn process_or_host(hosts: &[Host], host: u32, role: Option<Role>, rank: Option<u32>) -> String {
    let host = record::location_of(hosts, host);
    match (role, rank) {
        (Some(role), Some(rank)) => format!("{host}: {} {rank}", role.name()),
        (Some(Role::Server), None) => format!("{host}: graph server"),
        _ => host,
    }
}

fn is_quoted(lines: &[&str], verdict: &JobFinding) -> bool {
    lines.iter().all(|line| verdict.text.contains(line.trim()))
}

fn show(lines: &[&str], sink: &OutputSink) {
    for line in lines {
        let shown = printable_line(line.as_bytes(), false);
        sink.notice(&format!("    {}", String::from_utf8_lossy(&shown)));
    }
}

fn how_it_failed(failure: &FirstFailure, cause: Option<&Cause>) -> String {
    match &failure.error {
        Some(error) if matches!(cause, Some(Cause::Host | Cause::Servers)) => {
            format!("lost: {error}")
        }
        _ => failure.words(),
    }
}

/// Why the job ended, if no process or host failed.
fn reason(cause: Option<&Cause>) -> Option<String> {
    match cause? {
        Cause::Servers => Some("the graph servers that it used have ended".to_owned()),
        Cause::Paused(time) => {
            let time = term::seconds(*time);
            Some(format!(
                "the launcher was stopped for {time}; no host was lost"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn processes() -> Vec<Process> {
        let text = |role: &str, rank: u32, port: &str| {
            format!(
                "{{\"id\":{rank},\"of\":2,\"host\":{rank},\"ip\":\"10.0.0.1\",\
                     \"role\":\"{role}\",\"rank\":{rank},\"argv\":[\"t\"]{port}}}"
            )
        };
        [
            text("server", 0, r#","port":30050"#),
            text("trainer", 1, ""),
        ]
        .map(|text| serde_json::from_str(&text).unwrap())
        .into()
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn each_cause_has_its_exit_status_and_its_fields() {
        let minute = Duration::from_secs(60);
        let process = |reason| {
            Some(JobFailure {
                host: 1,
                index: Some(0),
                reason,
            })
        };
        let lost = Some(JobFailure {
            host: 0,
            index: None,
            reason: Reason::Lost("silent".into()),
        });
        let late = Some(JobFailure {
            host: 0,
            index: Some(0),
            reason: Reason::NotListening(minute),
        });
        let exited_early = Some(JobFailure {
            host: 0,
            index: Some(0),
            reason: Reason::EndedEarly,
        });
        let none = ProcessEnd::default();
        let (exited, killed) = (
            ProcessEnd::exited(3),
            ProcessEnd::killed(SignalNumber::KILL),
        );
        let table = [
            (None, None, 0, (None, none, None)),
            (
                Some(Cause::Process),
                process(Reason::Ended(exited)),
                3,
                (Some(1), exited, None),
            ),
            (
                Some(Cause::Process),
                process(Reason::Ended(killed)),
                137,
                (Some(1), killed, None),
            ),
            (Some(Cause::Host), lost, 74, (None, none, Some("silent"))),
            (
                Some(Cause::Signal(SignalNumber::INT)),
                None,
                130,
                (None, none, None),
            ),
            (
                Some(Cause::Process),
                process(Reason::Raised("KeyError: 7".to_owned())),
                1,
                (Some(1), none, Some("raised KeyError: 7 and did not end")),
            ),
            (Some(Cause::Stalled(minute)), None, 124, (None, none, None)),
            (
                Some(Cause::Time(Limit::Job(minute))),
                None,
                124,
                (None, none, None),
            ),
            (
                Some(Cause::Time(Limit::Start(minute))),
                late,
                124,
                (Some(0), none, Some("does not listen after 60 s")),
            ),
            (
                Some(Cause::Time(Limit::Start(minute))),
                exited_early,
                124,
                (
                    Some(0),
                    ProcessEnd::exited(0),
                    Some("exited before it listened"),
                ),
            ),
        ];
        let processes = processes();
        let last_lines = |failure: &JobFailure| match failure.host {
            1 => vec!["its last".to_owned()],
            _ => Vec::new(),
        };
        for (cause, failure, code, (id, end, error)) in table {
            let ending = Ending {
                cause: cause.clone(),
                failure: failure.clone(),
            };
            assert_eq!(exit(&ending).code(), code, "{cause:?}");
            let Some(failure) = failure else { continue };
            let (process, lines) = match failure.index {
                Some(_) => (
                    Some(&processes[failure.host as usize]),
                    last_lines(&failure),
                ),
                None => (None, Vec::new()),
            };
            let first = first_failure(&failure, process, lines);
            assert_eq!((first.host, first.id), (failure.host, id), "{cause:?}");
            assert_eq!(
                (first.end, first.error.as_deref()),
                (end, error),
                "{cause:?}"
            );
            assert_eq!(
                first.last_lines.len(),
                usize::from(id == Some(1)),
                "{cause:?}"
            );
        }
    }
}
