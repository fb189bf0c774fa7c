//! The last try of a job, as its records tell it: its processes, and when what happened.

use crate::{Life, Records};
use record::stacks::{self, Member};
use record::{Culprit, Exited, Host, Listening, Output, Process, Role, Started, traceback};
use std::collections::HashMap;

/// What DGL writes when a client leaves, for whatever reason.
const LEAVING: &str = "is exiting...";

/// The history of a process in the last try.
pub struct ProcessHistory<'a> {
    pub process: &'a Process,
    pub started: Option<&'a Started>,
    pub listening: Option<&'a Listening>,
    pub exited: Option<&'a Exited>,
    pub output: Vec<&'a Output>,
}

/// An exception that a process wrote and after which it did nothing more.
pub struct Raised<'a> {
    pub first: &'a Output,
    pub named: &'a Output,
    pub exception: String,
}

impl ProcessHistory<'_> {
    /// Its role and rank.
    pub fn member(&self) -> Member {
        (self.process.role, self.process.rank)
    }

    pub fn culprit(&self) -> Culprit {
        Culprit {
            host: self.process.host,
            id: Some(self.process.id),
            role: Some(self.process.role),
            rank: Some(self.process.rank),
        }
    }

    /// When it ended.
    pub fn end_ms(&self) -> Option<u64> {
        let started = self.started?;
        Some(started.time_ms.saturating_add(self.exited?.elapsed_ms))
    }

    /// Whether it failed by itself.
    pub fn has_failed(&self) -> bool {
        self.exited
            .is_some_and(|exited| !exited.while_ending && (exited.code != Some(0) || exited.reaped))
    }

    /// Whether it was alive when the end of the job began, or is still alive.
    pub fn has_stayed(&self) -> bool {
        self.started.is_some() && self.exited.is_none_or(|exited| exited.while_ending)
    }

    /// The last line that it wrote before the end of the job.
    pub fn last_word(&self) -> Option<&Output> {
        let mut words = self.output.iter().rev().filter(|line| !line.while_ending);
        words.next().copied()
    }
}

impl<'a> ProcessHistory<'a> {
    /// The last exception that it wrote, if it has done nothing since.
    pub fn raised(&self) -> Option<Raised<'a>> {
        // the log of a detached job, which an attached stream repeats, has both streams in one
        let is_in_one = self.output.iter().all(|line| line.stream == "stdout");
        let errors: Vec<&'a Output> = self
            .output
            .iter()
            .copied()
            .filter(|line| (is_in_one || line.stream == "stderr") && !line.while_ending)
            .collect();
        let texts: Vec<&str> = errors.iter().map(|line| line.line.as_str()).collect();
        let (from, at, exception) = traceback::exceptions(&texts).pop()?;
        let (first, named) = (errors[from], errors[at]);
        let goes_on = self.output.iter().any(|line| {
            line.time_ms > named.time_ms && !line.while_ending && !line.line.ends_with(LEAVING)
        });
        (!goes_on).then(|| Raised {
            first,
            named,
            exception: exception.trim_end().to_owned(),
        })
    }

    /// The stacks that faulthandler wrote of the process and its children, each with the line of
    /// its innermost frame.
    pub fn fatal_stacks(&self) -> Vec<(&'a Output, Vec<String>)> {
        let lines: Vec<&'a Output> = (self.output.iter().copied())
            .filter(|line| line.stream == "stderr")
            .collect();
        let texts: Vec<&str> = lines.iter().map(|line| line.line.as_str()).collect();
        let written = traceback::fatal_stacks(&texts).into_iter();
        let written = written.map(|(at, frames)| (lines[at], frames));
        // a process whose peers were ended first raises an exception because of that, and has moved
        // on when its own turn comes
        let raised = traceback::exceptions(&texts)
            .into_iter()
            .find(|(from, ..)| lines[*from].while_ending)
            .map(|(from, at, _)| (lines[at], traceback::raised_in(&texts[from..at])));
        raised.into_iter().chain(written).collect()
    }
}

/// The last try of a job.
pub struct Job<'a> {
    pub records: &'a Records,
    /// The processes, in the order of their ids.
    pub lives: Vec<ProcessHistory<'a>>,
    /// How many tries there were; 0 if nothing was started.
    pub tries: usize,
    /// When its first process was started.
    pub began_ms: Option<u64>,
    /// The latest time in the records.
    pub latest_ms: u64,
    hosts: HashMap<u32, &'a Host>,
}

impl<'a> Job<'a> {
    pub fn of(records: &'a Records) -> Job<'a> {
        let last = records.lives.iter().map(|life| life.attempt).max();
        let tries = match records.started.is_empty() {
            true => 0,
            false => last.unwrap_or(0) + 1,
        };
        let of_last = records.lives.iter();
        let of_last = of_last.filter(|life| Some(life.attempt) == last);
        let began_ms = (of_last.clone().filter_map(|life| life.started))
            .map(|at| records.started[at].time_ms)
            .min();
        let of_last: HashMap<u32, &Life> = of_last.map(|life| (life.id, life)).collect();
        let is_of_try = |time_ms: u64| tries < 2 || began_ms.is_none_or(|began| time_ms >= began);
        let mut output: HashMap<u32, Vec<&Output>> = HashMap::new();
        for line in records.output.iter().filter(|one| is_of_try(one.time_ms)) {
            output.entry(line.id).or_default().push(line);
        }
        let lives: Vec<ProcessHistory> = records
            .processes
            .iter()
            .map(|process| {
                let life = of_last.get(&process.id).copied().copied();
                let life = life.unwrap_or_default();
                ProcessHistory {
                    process,
                    started: life.started.map(|at| &records.started[at]),
                    listening: life.listening.map(|at| &records.listening[at]),
                    exited: life.exited.map(|at| &records.exited[at]),
                    output: output.remove(&process.id).unwrap_or_default(),
                }
            })
            .collect();
        let ends = lives.iter().filter_map(ProcessHistory::end_ms);
        let latest_ms = (records.started.iter().map(|one| one.time_ms))
            .chain(records.listening.iter().map(|one| one.time_ms))
            .chain(records.output.iter().map(|one| one.time_ms))
            .chain(records.samples.iter().map(|one| one.time_ms))
            .chain(records.stacks.iter().map(|one| one.time_ms))
            .chain(records.stalled.iter().map(|one| one.time_ms))
            .chain(ends)
            .max()
            .unwrap_or(0);
        Job {
            records,
            lives,
            tries,
            began_ms,
            latest_ms,
            hosts: records.hosts.iter().map(|host| (host.id, host)).collect(),
        }
    }

    /// The history of the process with this id.
    pub fn life(&self, id: u32) -> Option<&ProcessHistory<'a>> {
        self.lives.iter().find(|life| life.process.id == id)
    }

    /// All processes but servers.
    pub fn clients(&self) -> impl Iterator<Item = &ProcessHistory<'a>> {
        let is_client = |life: &&ProcessHistory| life.process.role != Role::Server;
        self.lives.iter().filter(is_client)
    }

    /// A host in words: `host 1 (10.0.0.2)`.
    pub fn host(&self, id: u32) -> String {
        self.hosts
            .get(&id)
            .map_or_else(|| format!("host {id}"), |host| host.place())
    }

    /// The host's record, with what host-probe found.
    pub fn host_record(&self, id: u32) -> Option<&'a Host> {
        self.hosts.get(&id).copied()
    }

    /// A process in words: `trainer 1 on host 1 (10.0.0.2)`.
    pub fn who(&self, life: &ProcessHistory) -> String {
        let Process { role, rank, .. } = life.process;
        format!("{} {rank} on {}", role.name(), self.host(life.process.host))
    }

    /// A culprit in words; it may be a host.
    pub fn name(&self, culprit: &Culprit) -> String {
        match (culprit.role, culprit.rank) {
            (Some(role), Some(rank)) => {
                format!("{} {rank} on {}", role.name(), self.host(culprit.host))
            }
            _ => self.host(culprit.host),
        }
    }
}

/// Several processes in words: `trainers 0, 2 and 3`.
pub fn several(lives: &[&ProcessHistory]) -> String {
    let members: Vec<Member> = lives.iter().map(|life| life.member()).collect();
    stacks::names(&members)
}
