//! From records to what the page shows. Times are milliseconds since the first process was started.

use record::error::Report;
use record::jsonl::Stream;
use record::{Exited, Host, Listening, Output, Process, Pushed, Started, Summary};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What of the stream the page is made of.
pub struct Records {
    hosts: Vec<Host>,
    processes: Vec<Process>,
    started: Vec<Started>,
    listening: Vec<Listening>,
    output: Vec<Output>,
    exited: Vec<Exited>,
    pushed: Vec<Pushed>,
    summary: Option<Summary>,
}

impl Records {
    /// Of all that came in.
    pub fn of(stream: &Stream) -> Result<Records, Report> {
        Ok(Records {
            hosts: stream.all_including_failed()?,
            processes: stream.all_including_failed()?,
            started: stream.all_including_failed()?,
            listening: stream.all_including_failed()?,
            output: stream.all_including_failed()?,
            exited: stream.all_including_failed()?,
            pushed: stream.all_including_failed()?,
            summary: stream.all_including_failed()?.pop(),
        })
    }
}

/// A run.
pub struct Run {
    /// How it ended; none where the records break off before.
    pub summary: Option<Summary>,
    /// When the first process was started, since 1970.
    pub began_ms: Option<u64>,
    /// The longest time on the page.
    pub length_ms: u64,
    /// In the order of their ids.
    pub hosts: Vec<HostRun>,
}

/// A host of the run.
pub struct HostRun {
    /// Of its record.
    pub id: u32,
    /// `0 10.0.0.1` or `0 node1 10.0.0.1`.
    pub name: String,
    /// What was copied to it.
    pub copied: Option<CopySummary>,
    /// In the order of their ids.
    pub processes: Vec<Bar>,
}

/// What was copied to a host.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct CopySummary {
    /// Deliveries.
    pub files: u64,
    /// Of them those that were there already.
    pub skipped: u64,
    /// Of them those that failed, and why the first did.
    pub failed: u64,
    /// Why the first of them failed.
    pub error: Option<String>,
    /// Over the wire.
    pub sent_bytes: u64,
    /// Until the last file was there.
    pub elapsed_ms: u64,
}

/// A process and when it lived.
pub struct Bar {
    /// Of its record.
    pub id: u32,
    /// `server` and so on.
    pub role: &'static str,
    /// Its number among those.
    pub rank: u32,
    /// Its process id.
    pub pid: Option<u32>,
    /// When it was started; none where it never was.
    pub from_ms: Option<u64>,
    /// When it ended; none where the records do not tell.
    pub to_ms: Option<u64>,
    /// When its port was open.
    pub listening_ms: Option<u64>,
    /// `status 0`, `SIGKILL`.
    pub end: Option<String>,
    /// It ended with a status that is not 0 before the job was ended; by a signal ends what is
    /// innocent too.
    pub failed: bool,
    /// It is the one that failed first.
    pub culprit: bool,
    /// What it wrote last.
    pub last_lines: VecDeque<String>,
}

/// The end of a process in few words.
fn how_it_ended(exited: &Exited) -> String {
    let how = exited.signal.as_ref().map_or_else(
        || format!("status {}", exited.code.unwrap_or(0)),
        |name| format!("SIG{name}"),
    );
    match (exited.oom, exited.while_ending) {
        (true, _) => how + ", out of memory",
        (false, true) => how + ", after the job's end had begun",
        (false, false) => how,
    }
}

/// Puts the records together.
pub fn run(records: &Records, lines: usize) -> Run {
    let began_ms = records.started.iter().map(|started| started.time_ms).min();
    let since = |time_ms: u64| time_ms.saturating_sub(began_ms.unwrap_or(0));
    let started: HashMap<u32, &Started> = records
        .started
        .iter()
        .map(|started| (started.id, started))
        .collect();
    let listening: HashMap<u32, u64> = records
        .listening
        .iter()
        .map(|one| (one.id, since(one.time_ms)))
        .collect();
    let exited: HashMap<u32, &Exited> = records
        .exited
        .iter()
        .map(|exited| (exited.id, exited))
        .collect();
    let mut said = last_lines(&records.output, lines);
    let culprit = records
        .summary
        .as_ref()
        .and_then(|summary| summary.first_failure.as_ref())
        .and_then(|failure| failure.id);
    let mut hosts: BTreeMap<u32, HostRun> = records
        .hosts
        .iter()
        .map(|host| (host.id, host_run(host, &records.pushed)))
        .collect();
    for process in &records.processes {
        let from_ms = started
            .get(&process.id)
            .map(|started| since(started.time_ms));
        let end = exited.get(&process.id);
        let bar = Bar {
            id: process.id,
            role: process.role.name(),
            rank: process.rank,
            pid: started.get(&process.id).map(|started| started.pid),
            from_ms,
            to_ms: from_ms
                .zip(end)
                .map(|(from_ms, end)| from_ms.saturating_add(end.elapsed_ms)),
            listening_ms: listening.get(&process.id).copied(),
            end: end.map(|end| how_it_ended(end)),
            failed: end
                .is_some_and(|end| !end.while_ending && end.code.is_some_and(|code| code != 0)),
            culprit: culprit == Some(process.id),
            last_lines: said.remove(&process.id).unwrap_or_default(),
        };
        if let Some(host) = hosts.get_mut(&process.host) {
            host.processes.push(bar);
        }
    }
    let ends = hosts
        .values()
        .flat_map(|host| &host.processes)
        .flat_map(|bar| [bar.to_ms, bar.from_ms, bar.listening_ms]);
    let last_word = records
        .output
        .iter()
        .map(|output| since(output.time_ms))
        .max();
    let length_ms = ends.flatten().chain(last_word).max().unwrap_or(0).max(1);
    Run {
        summary: records.summary.clone(),
        began_ms,
        length_ms,
        hosts: hosts.into_values().collect(),
    }
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
    fn what_the_job_took_with_it_is_no_failure() {
        let ended = |code: Option<u8>, oom: bool, while_ending: bool| Exited {
            id: 1,
            host: 0,
            role: record::Role::Trainer,
            rank: 0,
            code,
            signal: code.is_none().then(|| "KILL".to_owned()),
            elapsed_ms: 8,
            cpu_s: None,
            max_rss_bytes: None,
            oom,
            while_ending,
        };
        let table = [
            (ended(Some(3), false, false), "status 3"),
            (
                ended(Some(1), false, true),
                "status 1, after the job's end had begun",
            ),
            (ended(None, true, false), "SIGKILL, out of memory"),
        ];
        table
            .iter()
            .for_each(|(exited, expected)| assert_eq!(how_it_ended(exited), *expected));
    }
}
