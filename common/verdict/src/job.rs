//! A run according to its records: the last attempt of each process, and what happened to the job.

use crate::account;
use crate::findings::Quote;
use crate::run::{Pauses, Run};
use evidence::{Evidence, LogLine, Statement};
use record::error::Report;
use record::exit::ProcessEnd;
use record::{
    Culprit, Dropped, Exited, FileCopy, Host, IpAddr, Listening, Output, Process, Profile, Pushed,
    Record, Resumed, Role, Stack, Stalled, Started, Summary,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// The records of a set are in the order of their ids.
#[derive(Default)]
pub struct JobHistory {
    pub hosts: Vec<Host>,
    pub files: Vec<FileCopy>,
    pub pushed: Vec<Pushed>,
    pub processes: Vec<ProcessHistory>,
    /// How many of them have no process record, because the stream was filtered.
    pub unrecorded: usize,
    pub earlier: Vec<Life>,
    /// The start of each attempt's first process.
    pub attempts: Vec<u64>,
    pub dropped: Vec<Dropped>,
    pub profiles: Vec<Profile>,
    pub stalled: Vec<Stalled>,
    pub resumed: Vec<Resumed>,
    /// The last attempt's last stacks with connections, by host and process id.
    pub connected: BTreeMap<(u32, u32), Stack>,
    /// Whether dgl-stacks has looked at its processes.
    pub is_seen: bool,
    /// Between all lines that trainers and workers wrote before the end of the job.
    pub pauses: Pauses,
    pub summary: Option<Summary>,
    /// The summary of the tool that asked hosts about the job last.
    pub asked: Option<Summary>,
    /// Whether dgl-spawn still writes its records.
    pub is_being_written: bool,
    /// An end from outside, if another launcher reported one.
    pub ended_by: Option<JobEnd>,
    pub latest_ms: u64,
    /// See [`JobHistory::activity`], which is asked for each process.
    pub activity: OnceLock<Activity>,
}

#[derive(Clone, Copy)]
pub struct Activity {
    /// When a client wrote the last line that is no statement, or 0.
    pub worked_ms: u64,
    /// When the job began to end; lines that belong to the end arrive after all others.
    pub ending_ms: u64,
}

pub struct JobEnd {
    /// A sentence without its full stop.
    pub text: String,
    pub is_request: bool,
}

/// A process of one attempt, from its start to its end.
#[derive(Default)]
pub struct Life {
    attempt: usize,
    pub started: Option<Started>,
    pub listening: Option<Listening>,
    pub exited: Option<Exited>,
}

impl Life {
    pub fn end_ms(&self) -> Option<u64> {
        let started = self.started.as_ref()?;
        Some((started.time_ms).saturating_add(self.exited.as_ref()?.elapsed_ms))
    }
}

/// The ranks of processes whose rank is unknown begin here.
pub const UNKNOWN_RANK: u32 = 1 << 30;

pub struct ProcessHistory {
    pub process: Process,
    /// Its launcher's name for it, if that knows no hosts and roles.
    pub name: Option<String>,
    /// The names of the job's logs, if it has no records; `LogLine::file` is an index into them.
    pub logs: Option<Arc<[String]>>,
    pub life: Life,
    /// What its launcher wrote about its end, in a log.
    pub report: Option<LogLine>,
    pub evidence: Evidence,
    /// The latest stacks of the process and each of its children.
    pub stacks: BTreeMap<u32, Stack>,
}

impl ProcessHistory {
    pub fn new(process: Process) -> ProcessHistory {
        ProcessHistory {
            process,
            name: None,
            logs: None,
            life: Life::default(),
            report: None,
            evidence: Evidence::default(),
            stacks: BTreeMap::new(),
        }
    }

    pub fn culprit(&self) -> Culprit {
        Culprit::of(&self.process)
    }

    /// Neither a status nor a signal if unknown.
    pub fn end(&self) -> ProcessEnd {
        let exited = self.life.exited.as_ref();
        exited.map(|exited| exited.end).unwrap_or_default()
    }

    /// If KILL ended it: whether its host had sent that to end the job, if the records show it.
    pub fn kill_sent(&self) -> Option<bool> {
        self.life.exited.as_ref()?.kill_sent
    }

    /// The record of its end, if there is one.
    pub fn exit_record(&self) -> Option<&Exited> {
        self.life.exited.as_ref().filter(|_| self.logs.is_none())
    }

    /// Whether it ended with status 0 before the end of the job.
    pub fn has_finished(&self) -> bool {
        let exited = self.life.exited.as_ref();
        exited.is_some_and(|exited| exited.end.is_success() && !exited.while_ending)
    }

    /// Whether it was alive when the end of the job began, or still is.
    pub fn has_stayed(&self) -> bool {
        let exited = self.life.exited.as_ref();
        let is_read = !self.stacks.is_empty();
        let has_started = self.life.started.is_some() || self.logs.is_some() || is_read;
        has_started && exited.is_none_or(|exited| exited.while_ending)
    }

    pub fn output(&self, line: &LogLine) -> Quote {
        let output = Output {
            id: self.process.id,
            stream: if line.is_stderr { "stderr" } else { "stdout" }.to_owned(),
            line: line.text.clone(),
            time_ms: line.time_ms,
            partial: false,
            lossy: false,
            while_ending: line.while_ending,
        };
        Quote {
            output,
            log: (self.logs.as_ref()).and_then(|logs| logs.get(line.file as usize).cloned()),
        }
    }

    /// The last line before the end of the job.
    pub fn last_line(&self) -> Option<Quote> {
        self.evidence.last().map(|line| self.output(line))
    }

    /// What its launcher wrote about its end, or else the last line before.
    pub fn end_line(&self) -> Option<Quote> {
        let report = self.report.as_ref().filter(|line| !line.text.is_empty());
        report
            .map(|line| self.output(line))
            .or_else(|| self.last_line())
    }

    /// The last lines that may explain its end.
    pub fn last_words(&self) -> Vec<Quote> {
        let lines = account::last_words(&self.evidence).into_iter();
        lines.map(|line| self.output(line)).collect()
    }

    /// The last exception that it wrote, if it did nothing since.
    pub fn raised(&self) -> Option<&Statement> {
        let last = self
            .evidence
            .last_statement(|statement| statement.is_raised() && !statement.named.while_ending)?;
        (!self.evidence.continued_after(last)).then_some(last)
    }
}

impl JobHistory {
    /// Whether another launcher started its processes.
    pub fn is_foreign(&self) -> bool {
        let is_found = self.attempts.is_empty() && self.is_seen;
        is_found || self.is_from_logs()
    }

    pub fn is_from_logs(&self) -> bool {
        self.processes.iter().any(|history| history.logs.is_some())
    }

    /// Whether dgl-spawn ended it because of an exception that did not end its process.
    pub fn has_ended_by_exception(&self) -> bool {
        let failure = self
            .summary
            .as_ref()
            .and_then(|end| end.first_failure.as_ref());
        let error = failure.and_then(|failure| failure.error.as_ref());
        error.is_some_and(|error| error.starts_with("raised "))
    }

    /// What its history is known from, in words.
    pub fn source(&self) -> &'static str {
        if self.is_from_logs() {
            "the logs"
        } else {
            "the records"
        }
    }

    pub fn of(run: &Run) -> Result<JobHistory, Report> {
        let stream = &run.stream;
        let asked: Vec<Summary> = stream.all_including_failed()?;
        let mut job = JobHistory {
            hosts: stream.all_including_failed()?,
            files: stream.all_including_failed()?,
            pushed: stream.all_including_failed()?,
            dropped: stream.all_including_failed()?,
            profiles: stream.all_including_failed()?,
            stalled: stream.all_including_failed()?,
            resumed: stream.all_including_failed()?,
            pauses: run.pauses.clone(),
            summary: stream.end()?,
            asked: asked.into_iter().rfind(|summary| summary.tool.is_some()),
            ..JobHistory::default()
        };
        let stalled = job.stalled.iter().map(|stalled| stalled.time_ms);
        job.latest_ms = stalled.max().unwrap_or(0);

        let mut histories: BTreeMap<u32, ProcessHistory> = stream
            .all_including_failed::<Process>()?
            .into_iter()
            .map(|process| (process.id, ProcessHistory::new(process)))
            .collect();
        let recorded = histories.len();
        let events = stream.in_order(
            &[Started::TYPE, Listening::TYPE, Exited::TYPE],
            ProcessEvent::from_json,
        )?;
        let failure = job.summary.clone().and_then(|end| end.first_failure);
        let failed = failure
            .as_ref()
            .and_then(|failure| Some((failure.id?, failure.host, failure.role?, failure.rank?)));
        for (id, host, role, rank) in events.iter().map(ProcessEvent::process).chain(failed) {
            histories.entry(id).or_insert_with(|| {
                ProcessHistory::new(Process::new(id, host, IpAddr::default(), role, rank))
            });
        }
        job.unrecorded = histories.len() - recorded;

        job.add_lives(lives(events), &mut histories);
        for (id, history) in &mut histories {
            match (run.evidence.get(id), &failure) {
                (Some(evidence), _) => history.evidence = evidence.clone(),
                // its output is missing, but the summary has the last lines
                (None, Some(failure)) if failure.id == Some(*id) => {
                    for line in &failure.last_lines {
                        history.evidence.line(true, line, 0, false);
                    }
                }
                _ => {}
            }
            let last = history.evidence.last_lines().map(|line| line.time_ms).max();
            job.latest_ms = job.latest_ms.max(last.unwrap_or(0));
        }
        job.processes = histories.into_values().collect();
        job.add_stacks(stream.all_including_failed()?);
        Ok(job)
    }

    /// Adds a stall that is not in the records, with its stacks.
    pub fn add_stall(&mut self, stalled: Stalled, stacks: Vec<Stack>) {
        self.latest_ms = self.latest_ms.max(stalled.time_ms);
        self.stalled.push(stalled);
        self.add_stacks(stacks);
    }

    fn add_lives(
        &mut self,
        lives: Vec<(u32, Life)>,
        histories: &mut BTreeMap<u32, ProcessHistory>,
    ) {
        let last = lives.iter().map(|(_, life)| life.attempt).max();
        let mut attempts: BTreeMap<usize, u64> = BTreeMap::new();
        for (id, life) in lives {
            if let Some(started) = &life.started {
                let began_ms = attempts.entry(life.attempt).or_insert(started.time_ms);
                *began_ms = started.time_ms.min(*began_ms);
            }
            let times = [
                life.started.as_ref().map(|started| started.time_ms),
                life.listening.as_ref().map(|listening| listening.time_ms),
                life.end_ms(),
            ];
            self.latest_ms = times.into_iter().flatten().fold(self.latest_ms, u64::max);
            match histories.get_mut(&id) {
                Some(history) if Some(life.attempt) == last => history.life = life,
                _ => self.earlier.push(life),
            }
        }
        self.attempts = attempts.into_values().collect();
    }

    fn add_stacks(&mut self, stacks: Vec<Stack>) {
        let began_ms = self.began_ms();
        self.is_seen |= !stacks.is_empty();
        let mut by_process: HashMap<_, _> = self
            .processes
            .iter_mut()
            .map(
                |ProcessHistory {
                     process, stacks, ..
                 }| {
                    (
                        (process.host, Some(process.role), Some(process.rank)),
                        stacks,
                    )
                },
            )
            .collect();
        for stack in stacks {
            self.latest_ms = self.latest_ms.max(stack.time_ms);
            if began_ms.is_some_and(|began_ms| stack.time_ms < began_ms) {
                continue;
            }
            if !stack.connections.is_empty() {
                self.connected
                    .insert((stack.host, stack.pid), stack.clone());
            }
            if stack.main_frames().is_some()
                && let Some(own) = by_process.get_mut(&(stack.host, stack.role, stack.rank))
            {
                own.insert(stack.pid, stack);
            }
        }
    }

    /// When the first process of the last attempt was started.
    pub fn began_ms(&self) -> Option<u64> {
        self.attempts.last().copied()
    }

    pub fn history(&self, id: u32) -> Option<&ProcessHistory> {
        let position = (self.processes).binary_search_by_key(&id, |history| history.process.id);
        Some(&self.processes[position.ok()?])
    }

    pub fn lives(&self) -> impl Iterator<Item = &Life> + Clone {
        self.processes.iter().map(|history| &history.life)
    }

    /// All but servers.
    pub fn clients(&self) -> impl Iterator<Item = &ProcessHistory> {
        self.processes
            .iter()
            .filter(|history| !history.process.serves())
    }

    pub fn activity(&self) -> Activity {
        *self.activity.get_or_init(|| {
            let worked = self.clients().filter_map(|one| one.evidence.continued_ms());
            let ending = self
                .processes
                .iter()
                .filter_map(|one| one.evidence.ending_ms);
            Activity {
                worked_ms: worked.max().unwrap_or(0),
                ending_ms: ending.min().unwrap_or(self.latest_ms),
            }
        })
    }

    /// The clients' last line before the end of the job.
    pub fn last_client_line(&self) -> Option<(&ProcessHistory, Quote)> {
        self.clients()
            .filter_map(|history| Some((history, history.last_line()?)))
            .max_by_key(|(_, line)| line.output.time_ms)
    }

    pub fn host(&self, id: u32) -> Option<&Host> {
        record::host_of(&self.hosts, id)
    }

    /// For example `host 1 (10.0.0.2)`.
    pub fn host_name(&self, id: u32) -> String {
        record::location_of(&self.hosts, id)
    }

    /// For example `trainer 1 on host 1 (10.0.0.2)`.
    pub fn process_name(&self, history: &ProcessHistory) -> String {
        self.name(&history.culprit())
    }

    pub fn name(&self, culprit: &Culprit) -> String {
        let history = culprit.id.and_then(|id| self.history(id));
        if let Some(name) = history.and_then(|history| history.name.clone()) {
            return name;
        }
        let host = self.host_name(culprit.host);
        match (culprit.role, culprit.rank) {
            (Some(role), Some(rank)) => format!("{} {rank} on {host}", role.name()),
            _ => host,
        }
    }
}

enum ProcessEvent {
    Started(Started),
    Listening(Listening),
    Exited(Exited),
}

impl ProcessEvent {
    fn from_json(kind: &str, text: &[u8]) -> serde_json::Result<ProcessEvent> {
        Ok(match kind {
            Started::TYPE => ProcessEvent::Started(Started::from_json(text)?),
            Listening::TYPE => ProcessEvent::Listening(Listening::from_json(text)?),
            _ => ProcessEvent::Exited(Exited::from_json(text)?),
        })
    }

    fn process(&self) -> (u32, u32, Role, u32) {
        match self {
            ProcessEvent::Started(started) => {
                (started.id, started.host, started.role, started.rank)
            }
            ProcessEvent::Listening(listening) => {
                (listening.id, listening.host, listening.role, listening.rank)
            }
            ProcessEvent::Exited(exited) => (exited.id, exited.host, exited.role, exited.rank),
        }
    }
}

/// All lives with their processes' ids, in the order of their starts. An event belongs to its
/// process's latest start before it. A new attempt begins when a process starts that has already
/// started in the current one; processes that started since the last end belong to the new attempt
/// too.
fn lives(events: Vec<ProcessEvent>) -> Vec<(u32, Life)> {
    let mut lives: Vec<(u32, Life)> = Vec::new();
    let mut latest: HashMap<u32, usize> = HashMap::new();
    let (mut attempt, mut after_last_end) = (0, 0);
    for event in events {
        let (id, ..) = event.process();
        let mut position = latest.get(&id).copied();
        if let ProcessEvent::Started(_) = event {
            if let Some(before) = position.filter(|before| lives[*before].1.attempt == attempt) {
                attempt += 1;
                if before < after_last_end {
                    let begun = &mut lives[after_last_end..];
                    begun.iter_mut().for_each(|(_, life)| life.attempt += 1);
                }
            }
            position = None;
        }
        let position = position.unwrap_or(lives.len());
        if position == lives.len() {
            latest.insert(id, position);
            let life = Life {
                attempt,
                ..Life::default()
            };
            lives.push((id, life));
        }
        let life = &mut lives[position].1;
        match event {
            ProcessEvent::Started(started) => life.started = Some(started),
            ProcessEvent::Listening(listening) => life.listening = Some(listening),
            ProcessEvent::Exited(exited) => {
                life.exited = Some(exited);
                after_last_end = lives.len();
            }
        }
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lives in a stream of words such as `start 0`: the id of each, its attempt, and whether
    /// its start, that it listens and its end are known.
    fn lives_of(words: &str) -> Vec<(u32, usize, [bool; 3])> {
        let event = |word: &str| {
            let (what, id) = word.trim().split_once(' ').unwrap();
            let of = format!(r#""id":{id},"host":0,"role":"trainer","rank":{id}"#);
            let (kind, text) = match what {
                "start" => (Started::TYPE, format!(r#"{{{of},"pid":7,"time_ms":9}}"#)),
                "listen" => (Listening::TYPE, format!(r#"{{{of},"port":1,"time_ms":9}}"#)),
                _ => (Exited::TYPE, format!(r#"{{{of},"code":1,"elapsed_ms":9}}"#)),
            };
            ProcessEvent::from_json(kind, text.as_bytes()).unwrap()
        };
        let known = |(id, life): (u32, Life)| {
            let (started, listening) = (life.started.is_some(), life.listening.is_some());
            (
                id,
                life.attempt,
                [started, listening, life.exited.is_some()],
            )
        };
        let lives = lives(words.split(',').map(event).collect());
        lives.into_iter().map(known).collect()
    }

    #[test]
    fn what_happens_belongs_to_the_latest_start() {
        let (runs, ended) = ([true, false, false], [true, false, true]);
        let table = [
            (
                "start 0, listen 0, start 1, exit 1, exit 0",
                vec![(0, 0, [true; 3]), (1, 0, ended)],
            ),
            // the second attempt is still running
            (
                "start 0, listen 0, exit 0, start 0",
                vec![(0, 0, [true; 3]), (0, 1, runs)],
            ),
            // the host of the first attempt was lost, so the end of its process is unknown
            (
                "start 0, start 1, exit 1, start 0, start 1, exit 0",
                vec![(0, 0, runs), (1, 0, ended), (0, 1, ended), (1, 1, runs)],
            ),
            // the first attempt ended before its second process was started
            (
                "start 0, exit 0, start 1, start 0",
                vec![(0, 0, ended), (1, 1, runs), (0, 1, runs)],
            ),
            // the records begin in the middle of a run
            ("exit 0", vec![(0, 0, [false, false, true])]),
        ];
        for (words, expected) in table {
            assert_eq!(lives_of(words), expected, "{words}");
        }
    }
}
