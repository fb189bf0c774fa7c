//! Collects what the page shows. Times are milliseconds since the first process was started.

use crate::samples::{self, Panel};
use dgl_why::{Life, Verdict};
use record::{Exited, Host, Output, Process, Pushed, Stalled, Summary};
use std::collections::{BTreeMap, HashMap, VecDeque};

pub use dgl_why::Records;

/// A run.
pub struct Run {
    /// What ended the job, or what it waits for.
    pub verdict: Verdict,
    /// How the job ended; `None` if the records break off before.
    pub summary: Option<Summary>,
    /// When the first process was started, in milliseconds since 1970.
    pub began_ms: Option<u64>,
    /// The longest time on the page.
    pub length_ms: u64,
    /// The hosts, in the order of their ids.
    pub hosts: Vec<HostRun>,
    /// What happened to the job as a whole, in the order of time.
    pub events: Vec<Event>,
    /// The resources that hosts used, a panel for each quantity.
    pub panels: Vec<Panel>,
}

/// Something that happened to a job.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at_ms: u64,
    /// Until when it lasted, if it did.
    pub to_ms: Option<u64>,
    /// What kind of event it is.
    pub kind: EventKind,
    /// The event in words.
    pub text: String,
}

/// How an event is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A process failed.
    Failure,
    /// Another try of the job began.
    Restart,
    /// The job gave no sign of life.
    Stall,
}

/// A host of the run.
pub struct HostRun {
    /// The `id` of the host record.
    pub id: u32,
    /// `0 10.0.0.1` or `0 node1 10.0.0.1`.
    pub name: String,
    /// The copies to the host.
    pub copied: Option<CopySummary>,
    /// The processes, in the order of their ids.
    pub processes: Vec<Bar>,
}

/// The copies to a host.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct CopySummary {
    /// How many deliveries there were.
    pub files: u64,
    /// How many files were on the host already.
    pub skipped: u64,
    /// How many deliveries failed.
    pub failed: u64,
    /// Why the first of them failed.
    pub error: Option<String>,
    /// How many bytes went over the wire.
    pub sent_bytes: u64,
    /// The time until the last file was there.
    pub elapsed_ms: u64,
}

/// A process and its lifetime.
pub struct Bar {
    /// The `id` of the process record.
    pub id: u32,
    /// The role: `server`, `trainer` or `worker`.
    pub role: &'static str,
    /// The number of the process among those of its role, on all hosts.
    pub rank: u32,
    /// The process id.
    pub pid: Option<u32>,
    /// When it was started; `None` if it never was.
    pub from_ms: Option<u64>,
    /// When it ended; `None` if the records do not tell.
    pub to_ms: Option<u64>,
    /// Since when it was silent at last: since its last line before the end of the job began, or
    /// its start.
    pub silent_ms: Option<u64>,
    /// When it began to listen.
    pub listening_ms: Option<u64>,
    /// How it ended: `status 0`, `SIGKILL`.
    pub end: Option<String>,
    /// Why it was ended, if the end of the job had begun before.
    pub why: Option<String>,
    /// Whether it ended with a status other than 0 before the job was ended. A death by a signal
    /// does not count, because innocent processes die so too.
    pub failed: bool,
    /// Whether it is the one that failed first, or for which the others wait.
    pub culprit: bool,
    /// The last lines that it wrote.
    pub last_lines: VecDeque<String>,
    /// The resources that it used.
    pub panels: Vec<Panel>,
}

/// The end of a process in a few words.
fn how_it_ended(exited: &Exited) -> String {
    let how = exited.signal.as_ref().map_or_else(
        || format!("status {}", exited.code.unwrap_or(0)),
        |name| format!("SIG{name}"),
    );
    match exited.oom {
        true => how + ", out of memory",
        false => how,
    }
}

/// Why processes were ended that have not failed.
fn why_ended(summary: Option<&Summary>) -> String {
    let cause = summary.and_then(|summary| summary.cause.as_deref());
    let failure = summary.and_then(|summary| summary.first_failure.as_ref());
    match (cause, failure) {
        (Some("stalled"), _) => "ended: the job stalled".to_owned(),
        (Some("timeout"), _) => "ended: its time was up".to_owned(),
        (Some("signal"), _) => "ended: interrupted".to_owned(),
        (_, Some(failure)) => match (failure.role, failure.rank) {
            (Some(role), Some(rank)) => format!("ended: {} {rank} failed", role.name()),
            _ => format!("ended: host {} was lost", failure.host),
        },
        _ => "ended with the job".to_owned(),
    }
}

/// Builds the run from its records; `lines` is the number of last lines to keep.
pub fn run(records: &Records, lines: usize) -> Run {
    let began_ms = records.started.iter().map(|started| started.time_ms).min();
    let verdict = dgl_why::verdict(records);
    let culprit = records
        .summary
        .as_ref()
        .and_then(|summary| summary.first_failure.as_ref())
        .map_or_else(|| verdict.cause.culprit.as_ref()?.id, |failure| failure.id);
    let length_ms = length(records, began_ms);
    let lives = Lives::of(records, began_ms.unwrap_or(0));
    let mut last_lines = last_lines(&records.output, lines);
    let mut panels = samples::of_processes(records, began_ms.unwrap_or(0), length_ms);
    let mut hosts: BTreeMap<u32, HostRun> = records
        .hosts
        .iter()
        .map(|host| (host.id, host_run(host, &records.pushed)))
        .collect();
    for process in &records.processes {
        if let Some(host) = hosts.get_mut(&process.host) {
            let bar = lives.bar(process);
            let is_culprit = culprit == Some(process.id);
            host.processes.push(Bar {
                culprit: is_culprit,
                why: bar.why.map(|why| match is_culprit {
                    true => "the others waited for it".to_owned(),
                    false => why,
                }),
                last_lines: last_lines.remove(&process.id).unwrap_or_default(),
                panels: panels.remove(&process.id).unwrap_or_default(),
                ..bar
            });
        }
    }
    Run {
        verdict,
        summary: records.summary.clone(),
        began_ms,
        length_ms,
        hosts: hosts.into_values().collect(),
        events: events(records, began_ms.unwrap_or(0), length_ms),
        panels: samples::of_hosts(records, began_ms.unwrap_or(0), length_ms),
    }
}

/// What happened to each process, by the `id` of its record.
struct Lives<'a> {
    records: &'a Records,
    began_ms: u64,
    why_ended: String,
    /// The last life of each process.
    last: HashMap<u32, Life>,
    /// When each process last wrote something before the end of the job began.
    wrote_ms: HashMap<u32, u64>,
}

impl<'a> Lives<'a> {
    fn of(records: &'a Records, began_ms: u64) -> Lives<'a> {
        let output = records.output.iter().filter(|line| !line.while_ending);
        Lives {
            records,
            began_ms,
            why_ended: why_ended(records.summary.as_ref()),
            last: records.lives.iter().map(|life| (life.id, *life)).collect(),
            wrote_ms: output.map(|line| (line.id, line.time_ms)).collect(),
        }
    }

    /// A time as milliseconds since the first process was started.
    fn since(&self, time_ms: u64) -> u64 {
        time_ms.saturating_sub(self.began_ms)
    }

    fn bar(&self, process: &Process) -> Bar {
        let life = self.last.get(&process.id).copied().unwrap_or_default();
        let started = life.started.map(|at| &self.records.started[at]);
        let from_ms = started.map(|started| self.since(started.time_ms));
        let end = life.exited.map(|at| &self.records.exited[at]);
        let wrote_ms = self.wrote_ms.get(&process.id);
        let listening = life.listening.map(|at| &self.records.listening[at]);
        Bar {
            id: process.id,
            role: process.role.name(),
            rank: process.rank,
            pid: started.map(|started| started.pid),
            from_ms,
            to_ms: from_ms
                .zip(end)
                .map(|(from_ms, end)| from_ms.saturating_add(end.elapsed_ms)),
            silent_ms: from_ms.map(|from_ms| {
                wrote_ms.map_or(from_ms, |wrote_ms| self.since(*wrote_ms).max(from_ms))
            }),
            listening_ms: listening.map(|one| self.since(one.time_ms)),
            end: end.map(how_it_ended),
            why: end
                .filter(|end| end.while_ending && !end.oom)
                .map(|_| self.why_ended.clone()),
            failed: end
                .is_some_and(|end| !end.while_ending && end.code.is_some_and(|code| code != 0)),
            culprit: false,
            last_lines: VecDeque::new(),
            panels: Vec::new(),
        }
    }
}

/// The longest time on the page.
fn length(records: &Records, began_ms: Option<u64>) -> u64 {
    let since = |time_ms: u64| time_ms.saturating_sub(began_ms.unwrap_or(0));
    let ends = records.lives.iter().filter_map(|life| {
        let (started, exited) = (&records.started[life.started?], life.exited?);
        Some((started.time_ms).saturating_add(records.exited[exited].elapsed_ms))
    });
    (records.started.iter().map(|one| one.time_ms))
        .chain(records.listening.iter().map(|one| one.time_ms))
        .chain(records.output.iter().map(|one| one.time_ms))
        .chain(records.samples.iter().map(|one| one.time_ms))
        .chain(records.stalled.iter().map(|one| one.time_ms))
        .chain(ends)
        .map(since)
        .max()
        .unwrap_or(0)
        .max(1)
}

/// Failures, tries and stalls.
fn events(records: &Records, began_ms: u64, length_ms: u64) -> Vec<Event> {
    let since = |time_ms: u64| time_ms.saturating_sub(began_ms).min(length_ms);
    let mut tries: Vec<u64> = Vec::new();
    let mut events = Vec::new();
    for life in &records.lives {
        let Some(started) = life.started.map(|at| &records.started[at]) else {
            continue;
        };
        match tries.get_mut(life.attempt) {
            Some(begin) => *begin = (*begin).min(started.time_ms),
            None => tries.push(started.time_ms),
        }
        let Some(exited) = life.exited.map(|at| &records.exited[at]) else {
            continue;
        };
        // innocent processes are ended by TERM, and records of 0.1.0 do not say which those are
        let is_innocent = exited.code == Some(0) || exited.signal.as_deref() == Some("TERM");
        let is_failure = !exited.while_ending && !is_innocent;
        if is_failure {
            events.push(Event {
                at_ms: since(started.time_ms.saturating_add(exited.elapsed_ms)),
                to_ms: None,
                kind: EventKind::Failure,
                text: format!(
                    "{} {} on host {} failed: {}",
                    exited.role.name(),
                    exited.rank,
                    exited.host,
                    how_it_ended(exited)
                ),
            });
        }
    }
    events.extend(
        (2..)
            .zip(tries.iter().skip(1))
            .map(|(number, begin)| Event {
                at_ms: since(*begin),
                to_ms: None,
                kind: EventKind::Restart,
                text: format!("try {number} begins"),
            }),
    );
    let over_ms = |stalled: &Stalled| {
        let mut resumed = records.resumed.iter();
        let resumed = resumed.find(|one| one.since_ms == stalled.since_ms);
        resumed.map_or(stalled.time_ms, |one| one.time_ms)
    };
    events.extend(records.stalled.iter().map(|stalled| Event {
        at_ms: since(stalled.since_ms),
        to_ms: Some(since(over_ms(stalled))),
        kind: EventKind::Stall,
        text: format!("stalled: {}", stalled.reason.trim_end_matches('.')),
    }));
    events.sort_by_key(|event| event.at_ms);
    events
}

fn last_lines(output: &[Output], most: usize) -> HashMap<u32, VecDeque<String>> {
    let mut said: HashMap<u32, VecDeque<String>> = HashMap::new();
    for one in output {
        let lines = said.entry(one.id).or_default();
        lines.push_back(one.line.clone());
        if lines.len() > most {
            lines.pop_front();
        }
    }
    said
}

fn host_run(host: &Host, pushed: &[Pushed]) -> HostRun {
    let name = host.name.as_ref().map_or_else(
        || format!("{} {}", host.id, host.ip),
        |name| format!("{} {name} {}", host.id, host.ip),
    );
    let mut copied = None;
    for one in pushed.iter().filter(|one| one.host == host.id) {
        let copied: &mut CopySummary = copied.get_or_insert_default();
        copied.files += 1;
        copied.skipped += u64::from(one.skipped);
        copied.failed += u64::from(!one.ok);
        copied.error = copied.error.take().or_else(|| one.error.clone());
        copied.sent_bytes = copied.sent_bytes.saturating_add(one.sent_bytes);
        copied.elapsed_ms = copied.elapsed_ms.max(one.elapsed_ms);
    }
    HostRun {
        id: host.id,
        name,
        copied,
        processes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::jsonl::Stream;

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

    fn read(text: &str) -> Run {
        let stream = Stream::read(text.as_bytes(), true)
            .map_err(|report| format!("{report:?}"))
            .unwrap();
        run(&Records::of(&stream).unwrap(), 1)
    }

    #[test]
    fn a_run_that_failed() {
        let run = read(RECORDS);
        assert_eq!(
            (run.began_ms, run.length_ms, run.hosts.len()),
            (Some(1000), 1000, 1)
        );
        let host = &run.hosts[0];
        let copied = CopySummary {
            files: 2,
            skipped: 0,
            failed: 1,
            error: Some("full".into()),
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
        assert_eq!(trainer.last_lines, ["two"]);
    }

    #[test]
    fn records_that_break_off() {
        let cut: String = RECORDS
            .lines()
            .take(4)
            .map(|line| format!("{line}\n"))
            .collect();
        let run = read(&cut);
        assert!(
            run.summary.is_none()
                && run.began_ms.is_none()
                && run.hosts[0].processes[0].from_ms.is_none()
        );
    }

    #[test]
    fn a_process_that_runs_again_has_not_ended() {
        let again = r#"{"type":"started","id":1,"host":0,"role":"trainer","rank":0,"pid":9,"#;
        let run = read(&format!("{RECORDS}\n{again}\"time_ms\":4000}}"));
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
        let events = read(&format!("{RECORDS}\n{again}")).events;
        let told: Vec<(u64, Option<u64>, EventKind, &str)> = events
            .iter()
            .map(|event| (event.at_ms, event.to_ms, event.kind, event.text.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (
                    1000,
                    None,
                    EventKind::Failure,
                    "trainer 0 on host 0 failed: SIGKILL"
                ),
                (2000, None, EventKind::Restart, "try 2 begins"),
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
            (failure, "ended: trainer 0 failed"),
            (lost, "ended: host 3 was lost"),
            (r#""cause":"stalled""#, "ended: the job stalled"),
            (r#""cause":"timeout""#, "ended: its time was up"),
            (r#""cause":"signal""#, "ended: interrupted"),
        ];
        for (cause, why) in table {
            let run = read(&format!("{}\n{innocent}", RECORDS.replace(failure, cause)));
            let server = &run.hosts[0].processes[0];
            assert_eq!(server.why.as_deref(), Some(why));
            assert_eq!(
                (server.end.as_deref(), server.failed),
                (Some("SIGTERM"), false)
            );
            assert_eq!(run.hosts[0].processes[1].why, None, "it failed by itself");
        }
    }
}
