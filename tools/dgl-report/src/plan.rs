//! Collects what the page shows. Times are milliseconds since the first process was started.

use record::exit::SignalNumber;
use record::{Exited, FirstFailure, Host, Profile, Pushed, Stalled, Summary};
use std::collections::BTreeMap;
use verdict::{Conclusion, Life, ProcessHistory};

pub use verdict::JobHistory;

pub struct RunReport<'a> {
    pub summary: Option<&'a Summary>,
    pub verdict: Conclusion,
    /// The start of the first process, in milliseconds since 1970.
    pub began_ms: Option<u64>,
    /// The longest time on the page.
    pub length_ms: u64,
    /// In the order of their ids.
    pub hosts: Vec<HostRun<'a>>,
    /// Of the job as a whole, in the order of time.
    pub events: Vec<TimelineEvent>,
    /// Of the job's Python processes.
    pub profiles: &'a [Profile],
    /// How many of the last lines of each process are shown.
    pub lines: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub struct TimelineEvent {
    pub at_ms: u64,
    /// If it lasted.
    pub to_ms: Option<u64>,
    pub kind: EventKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Failure,
    Restart,
    Stall,
}

pub struct HostRun<'a> {
    pub id: u32,
    /// `0 10.0.0.1` or `0 node1 10.0.0.1`.
    pub name: String,
    pub copied: Option<CopySummary<'a>>,
    /// In the order of their ids.
    pub processes: Vec<Bar<'a>>,
}

#[derive(Debug, PartialEq, Eq, Default)]
pub struct CopySummary<'a> {
    pub files: u64,
    /// Files that were on the host already.
    pub skipped: u64,
    pub failed: u64,
    /// Of the first failed delivery.
    pub error: Option<&'a str>,
    /// By this machine.
    pub sent_bytes: u64,
    /// Until the last file had arrived.
    pub elapsed_ms: u64,
}

impl<'a> CopySummary<'a> {
    fn add(&mut self, pushed: &'a Pushed) {
        self.files += 1;
        self.skipped += u64::from(pushed.skipped);
        self.failed += u64::from(!pushed.ok);
        self.error = self.error.or(pushed.error.as_deref());
        self.sent_bytes = self.sent_bytes.saturating_add(pushed.sent_bytes);
        self.elapsed_ms = self.elapsed_ms.max(pushed.elapsed_ms);
    }
}

/// A process and its lifetime in the last attempt.
pub struct Bar<'a> {
    pub history: &'a ProcessHistory,
    /// `None` if it was not started.
    pub from_ms: Option<u64>,
    /// `None` if unknown.
    pub to_ms: Option<u64>,
    pub listening_ms: Option<u64>,
    /// How it ended: `status 0`, `SIGKILL`.
    pub end: Option<String>,
    /// Why it was ended, if the job had begun to end before.
    pub why: Option<String>,
    /// The verdict names it, or it failed first.
    pub culprit: bool,
}

impl Bar<'_> {
    pub fn id(&self) -> u32 {
        self.history.process.id
    }

    /// `trainer 1`
    pub fn name(&self) -> String {
        let process = &self.history.process;
        format!("{} {}", process.role.name(), process.rank)
    }

    pub fn failed(&self) -> bool {
        has_failed(self.history)
    }

    pub fn last_lines(&self, most: usize) -> impl Iterator<Item = &String> {
        let lines = self.history.evidence.last_lines();
        let earlier = lines.len().saturating_sub(most);
        lines.skip(earlier).map(|line| &line.text)
    }
}

/// Whether it ended with a status other than 0 for a reason from before the end of the job. A death
/// by a signal does not count, because innocent processes die in the same way.
fn has_failed(history: &ProcessHistory) -> bool {
    let exited = history.life.exited.as_ref();
    exited.is_some_and(|exited| {
        // the exit of a program can take longer than the end of the others that its failure causes
        let is_own = !exited.while_ending || history.raised().is_some();
        // a program that catches SIGTERM may exit with 143
        let is_failure = |code| code != 0 && (!exited.while_ending || code < 128);
        is_own && exited.end.code.is_some_and(is_failure)
    })
}

fn how_it_ended(exited: &Exited) -> String {
    let end = exited.end;
    let how = match end.signal {
        Some(signal) => format!("SIG{signal}"),
        None => format!("status {}", end.code.unwrap_or(0)),
    };
    if end.oom {
        how + ", out of memory"
    } else {
        how
    }
}

/// Why processes were ended that have not failed.
fn why_ended(job: &JobHistory, culprit: Option<u32>) -> String {
    let summary = job.summary.as_ref();
    let cause = summary.and_then(|summary| summary.cause.as_deref());
    let failure = summary.and_then(|summary| summary.first_failure.as_ref());
    let culprit = culprit.and_then(|id| job.history(id));
    match (cause, culprit, failure) {
        (Some("stalled"), ..) => "ended: the job stalled".to_owned(),
        (Some("timeout"), ..) => "ended: its time limit was reached".to_owned(),
        (Some("signal"), ..) => "ended: interrupted".to_owned(),
        (_, _, Some(FirstFailure { id: None, host, .. })) => format!("ended: host {host} was lost"),
        (_, Some(ProcessHistory { process, .. }), Some(_)) => {
            // it need not have failed: the others also fail if it leaves too early
            format!("ended because of {} {}", process.role.name(), process.rank)
        }
        _ => "ended with the job".to_owned(),
    }
}

/// `lines` is the number of last lines to show of each process.
pub fn run(job: &JobHistory, lines: usize) -> RunReport<'_> {
    let began_ms = job.attempts.first().copied();
    let since = |time_ms: u64| time_ms.saturating_sub(began_ms.unwrap_or(0));
    let length_ms = since(job.latest_ms).max(1);
    let verdict = verdict::verdict(job);
    let summary = job.summary.as_ref();
    let failure = summary.and_then(|summary| summary.first_failure.as_ref());
    // the failure that arrived first may be an echo of the one that the verdict names
    let named = verdict.cause.culprit.as_ref();
    let culprit = named.and_then(|culprit| culprit.id).or_else(|| failure?.id);
    let mut hosts: BTreeMap<u32, HostRun> = job
        .hosts
        .iter()
        .map(|host| (host.id, host_run(host)))
        .collect();
    for history in &job.processes {
        let (id, life) = (history.process.id, &history.life);
        let Some(host) = hosts.get_mut(&history.process.host) else {
            continue;
        };
        let exited = life.exited.as_ref();
        let is_innocent = exited.is_some_and(|exited| exited.while_ending && !exited.end.oom)
            && !has_failed(history);
        let why = if culprit != Some(id) {
            Some(why_ended(job, culprit))
        } else if failure.is_none() {
            Some("the others waited for it".to_owned())
        } else {
            None
        };
        host.processes.push(Bar {
            history,
            from_ms: life.started.as_ref().map(|started| since(started.time_ms)),
            to_ms: life.end_ms().map(since),
            listening_ms: life
                .listening
                .as_ref()
                .map(|listening| since(listening.time_ms)),
            end: exited.map(how_it_ended),
            why: why.filter(|_| is_innocent),
            culprit: culprit == Some(id),
        });
    }
    for pushed in &job.pushed {
        if let Some(host) = hosts.get_mut(&pushed.host) {
            host.copied.get_or_insert_default().add(pushed);
        }
    }
    RunReport {
        summary,
        verdict,
        began_ms,
        length_ms,
        hosts: hosts.into_values().collect(),
        events: events(job, &since),
        profiles: &job.profiles,
        lines,
    }
}

fn events(job: &JobHistory, since: &impl Fn(u64) -> u64) -> Vec<TimelineEvent> {
    let failure = |(life, has_failed): (&Life, bool)| {
        let exited = life.exited.as_ref()?;
        // innocent processes are ended by TERM, and records of 0.1.0 do not mark them
        let is_innocent = exited.end.is_success() || exited.end.signal == Some(SignalNumber::TERM);
        let (role, rank, host) = (exited.role.name(), exited.rank, exited.host);
        (has_failed || !exited.while_ending && !is_innocent).then_some(TimelineEvent {
            at_ms: since(life.end_ms()?),
            to_ms: None,
            kind: EventKind::Failure,
            text: format!(
                "{role} {rank} on host {host} failed: {}",
                how_it_ended(exited)
            ),
        })
    };
    let restart = |(number, begin): (u32, &u64)| TimelineEvent {
        at_ms: since(*begin),
        to_ms: None,
        kind: EventKind::Restart,
        text: format!("attempt {number} begins"),
    };
    let stall = |stalled: &Stalled| {
        let mut resumed = job.resumed.iter();
        let resumed = resumed.find(|resumed| resumed.since_ms == stalled.since_ms);
        let over_ms = resumed.map_or(stalled.time_ms, |resumed| resumed.time_ms);
        TimelineEvent {
            at_ms: since(stalled.since_ms),
            to_ms: Some(since(over_ms.min(job.latest_ms))),
            kind: EventKind::Stall,
            text: format!("stalled: {}", stalled.reason.trim_end_matches('.')),
        }
    };
    let earlier = job.earlier.iter().map(|life| (life, false));
    let last = job.processes.iter();
    let last = last.map(|history| (&history.life, has_failed(history)));
    let failures = earlier.chain(last).filter_map(failure);
    let restarts = (1..).zip(&job.attempts).skip(1).map(restart);
    let mut events: Vec<TimelineEvent> = failures
        .chain(restarts)
        .chain(job.stalled.iter().map(stall))
        .collect();
    events.sort_by_key(|event| event.at_ms);
    events
}

fn host_run<'a>(host: &Host) -> HostRun<'a> {
    let name = host.name.as_ref().map_or_else(
        || format!("{} {}", host.id, host.ip),
        |name| format!("{} {name} {}", host.id, host.ip),
    );
    HostRun {
        id: host.id,
        name,
        copied: None,
        processes: Vec::new(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Worker 0 raises an exception and needs 1.5 s to exit; the others fail because of that, and
    /// worker 1 exits first. Worker 2 catches the signal and exits with a status.
    pub const ECHO: &str = include_str!("echo.jsonl");

    const RECORDS: &str = concat!(
        r#"{"type":"host","id":0,"of":1,"ip":"10.0.0.1","port":30050}"#,
        "\n",
        r#"{"type":"pushed","id":0,"of":2,"file":0,"host":0,"ok":true,"bytes":5,"#,
        r#""sent_bytes":5,"skipped":false,"elapsed_ms":9}"#,
        "\n",
        r#"{"type":"pushed","id":1,"of":2,"file":1,"host":0,"ok":false,"bytes":7,"#,
        r#""sent_bytes":1,"skipped":false,"elapsed_ms":4,"error":"full"}"#,
        "\n",
        r#"{"type":"process","id":0,"of":2,"host":0,"ip":"10.0.0.1","role":"server","rank":0,"#,
        r#""env":{},"argv":["x"]}"#,
        "\n",
        r#"{"type":"process","id":1,"of":2,"host":0,"ip":"10.0.0.1","role":"trainer","#,
        r#""rank":0,"env":{},"argv":["x"]}"#,
        "\n",
        r#"{"type":"started","id":0,"host":0,"role":"server","rank":0,"pid":7,"time_ms":1000}"#,
        "\n",
        r#"{"type":"started","id":1,"host":0,"role":"trainer","rank":0,"pid":8,"#,
        r#""time_ms":1200}"#,
        "\n",
        r#"{"type":"listening","id":0,"host":0,"role":"server","rank":0,"port":30050,"#,
        r#""time_ms":1500}"#,
        "\n",
        r#"{"type":"output","id":1,"stream":"stdout","line":"one","time_ms":1300}"#,
        "\n",
        r#"{"type":"output","id":1,"stream":"stderr","line":"two","time_ms":1400}"#,
        "\n",
        r#"{"type":"exited","id":1,"host":0,"role":"trainer","rank":0,"signal":"KILL","#,
        r#""elapsed_ms":800}"#,
        "\n",
        r#"{"type":"summary","ok":false,"code":137,"cause":"process","#,
        r#""first_failure":{"host":0,"id":1,"role":"trainer","rank":0,"signal":"KILL"},"#,
        r#""elapsed_ms":2100}"#,
    );

    pub fn read(text: &str) -> JobHistory {
        let mut run = verdict::Run::new(1);
        let add = |head: &_, text: &[u8]| run.record(head, text);
        record::jsonl::Stream::read_lines(text.as_bytes(), true, &|_| Ok(()), add).unwrap();
        JobHistory::of(&run).unwrap()
    }

    #[test]
    fn a_run_that_failed() {
        let job = read(RECORDS);
        let run = run(&job, 1);
        assert_eq!(
            (run.began_ms, run.length_ms, run.hosts.len()),
            (Some(1000), 1000, 1)
        );
        let host = &run.hosts[0];
        let copied = CopySummary {
            files: 2,
            skipped: 0,
            failed: 1,
            error: Some("full"),
            sent_bytes: 6,
            elapsed_ms: 9,
        };
        assert_eq!(host.copied, Some(copied));
        let [server, trainer] = &host.processes[..] else {
            panic!("two processes")
        };
        assert_eq!(
            (
                server.from_ms,
                server.listening_ms,
                server.to_ms,
                server.culprit
            ),
            (Some(0), Some(500), None, false)
        );
        assert_eq!(
            (
                trainer.from_ms,
                trainer.to_ms,
                trainer.end.as_deref(),
                trainer.culprit
            ),
            (Some(200), Some(1000), Some("SIGKILL"), true)
        );
        let lines: Vec<&String> = trainer.last_lines(1).collect();
        assert_eq!(lines, ["two"]);
    }

    #[test]
    fn the_culprit_is_the_one_that_the_verdict_names() {
        let job = read(ECHO);
        let run = run(&job, 1);
        let named = run.verdict.cause.culprit.as_ref();
        assert_eq!(named.unwrap().id, Some(0), "{:?}", run.verdict.cause);
        let shown: Vec<_> = run.hosts[0]
            .processes
            .iter()
            .map(|bar| (bar.culprit, bar.failed(), bar.why.as_deref()))
            .collect();
        let because = Some("ended because of worker 0");
        let expected = [
            (true, true, None),
            (false, true, None),
            (false, false, because),
        ];
        assert_eq!(shown, expected);
        let failures: Vec<&str> = run.events.iter().map(|event| &*event.text).collect();
        assert_eq!(
            failures,
            [
                "worker 1 on host 0 failed: status 1",
                "worker 0 on host 0 failed: status 1"
            ]
        );
    }

    #[test]
    fn records_that_break_off() {
        let cut: String = RECORDS
            .lines()
            .take(4)
            .map(|line| format!("{line}\n"))
            .collect();
        let job = read(&cut);
        let run = run(&job, 1);
        assert!(
            run.summary.is_none()
                && run.began_ms.is_none()
                && run.hosts[0].processes[0].from_ms.is_none()
        );
    }

    #[test]
    fn a_process_that_runs_again_has_not_ended() {
        let again = r#"{"type":"started","id":1,"host":0,"role":"trainer","rank":0,"pid":9,"#;
        let job = read(&format!("{RECORDS}\n{again}\"time_ms\":4000}}"));
        let run = run(&job, 1);
        let trainer = &run.hosts[0].processes[1];
        assert_eq!(
            (trainer.from_ms, trainer.to_ms, trainer.end.as_deref()),
            (Some(3000), None, None)
        );
        assert_eq!(run.length_ms, 3000);
    }

    #[test]
    fn failures_tries_and_stalls_are_events() {
        let again =
            r#"{"type":"started","id":0,"host":0,"role":"server","rank":0,"pid":9,"time_ms":@}
{"type":"stalled","since_ms":3500,"silent_s":0.5,"reason":"Nobody moves.","time_ms":4000}
{"type":"stalled","since_ms":3600,"silent_s":0.2,"reason":"Nor now.","time_ms":3800}
{"type":"resumed","since_ms":3600,"time_ms":3900}"#
                .replace('@', "3000");
        let events = run(&read(&format!("{RECORDS}\n{again}")), 1).events;
        let shown: Vec<(u64, Option<u64>, EventKind, &str)> = events
            .iter()
            .map(|event| (event.at_ms, event.to_ms, event.kind, event.text.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (
                    1000,
                    None,
                    EventKind::Failure,
                    "trainer 0 on host 0 failed: SIGKILL"
                ),
                (2000, None, EventKind::Restart, "attempt 2 begins"),
                (2500, Some(3000), EventKind::Stall, "stalled: Nobody moves"),
                (2600, Some(2900), EventKind::Stall, "stalled: Nor now"),
            ]
        );
    }

    #[test]
    fn what_the_job_took_with_it_has_the_reason() {
        let innocent = concat!(
            r#"{"type":"exited","id":0,"host":0,"role":"server","rank":0,"signal":"TERM","#,
            r#""elapsed_ms":9,"while_ending":true}"#
        );
        let failure = concat!(
            r#""cause":"process","first_failure":{"host":0,"id":1,"#,
            r#""role":"trainer","rank":0,"signal":"KILL"}"#
        );
        let lost = r#""cause":"host","first_failure":{"host":3,"error":"no route"}"#;
        let table = [
            (failure, "ended because of trainer 0"),
            (lost, "ended: host 3 was lost"),
            (r#""cause":"stalled""#, "ended: the job stalled"),
            (r#""cause":"timeout""#, "ended: its time limit was reached"),
            (r#""cause":"signal""#, "ended: interrupted"),
        ];
        for (cause, why) in table {
            let job = read(&format!("{}\n{innocent}", RECORDS.replace(failure, cause)));
            let run = run(&job, 1);
            let server = &run.hosts[0].processes[0];
            assert_eq!(server.why.as_deref(), Some(why));
            assert_eq!(
                (server.end.as_deref(), server.failed()),
                (Some("SIGTERM"), false)
            );
            assert_eq!(run.hosts[0].processes[1].why, None, "it failed by itself");
        }
    }
}
