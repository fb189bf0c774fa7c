//! The records from which a verdict is made.

use crate::lives::{self, Life};
use record::error::Report;
use record::jsonl::Stream;
use record::run::{Pauses, Run};
use record::{
    Dropped, Exited, FileCopy, Host, IpAddr, Listening, Output, Process, Pushed, Resumed, Role,
    Sample, Stack, Stalled, Started, Summary,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv4Addr;

/// The records of a run, those of each type in the order in which they came, sets by their ids.
#[derive(Default)]
#[expect(missing_docs, reason = "each field has the records of its name")]
pub struct Records {
    pub hosts: Vec<Host>,
    pub files: Vec<FileCopy>,
    pub pushed: Vec<Pushed>,
    pub processes: Vec<Process>,
    /// How many processes have no record of their own: what other records tell of them is all that
    /// is known.
    pub unrecorded: usize,
    pub started: Vec<Started>,
    pub listening: Vec<Listening>,
    pub output: Vec<Output>,
    pub dropped: Vec<Dropped>,
    pub exited: Vec<Exited>,
    pub stacks: Vec<Stack>,
    pub samples: Vec<Sample>,
    pub stalled: Vec<Stalled>,
    pub resumed: Vec<Resumed>,
    /// The pauses between all lines that trainers and workers wrote before the end of the job.
    pub pauses: Pauses,
    /// The lives of all processes, in the order in which they began.
    pub lives: Vec<Life>,
    /// How the job ended, the last time.
    pub summary: Option<Summary>,
}

impl Records {
    /// Takes the records out of a run, of which not all lines of output are kept.
    pub fn of_run(run: &Run) -> Result<Records, Report> {
        let pauses = run.pauses.clone();
        Ok(Records {
            pauses,
            ..Records::of(&run.stream)?
        })
    }

    /// Takes the records out of a stream that has all of them.
    pub fn of(stream: &Stream) -> Result<Records, Report> {
        let mut records = Records {
            hosts: stream.all_including_failed()?,
            files: stream.all_including_failed()?,
            pushed: stream.all_including_failed()?,
            processes: stream.all_including_failed()?,
            unrecorded: 0,
            started: stream.all_including_failed()?,
            listening: stream.all_including_failed()?,
            output: stream.all_including_failed()?,
            dropped: stream.all_including_failed()?,
            exited: stream.all_including_failed()?,
            stacks: stream.all_including_failed()?,
            samples: stream.all_including_failed()?,
            stalled: stream.all_including_failed()?,
            resumed: stream.all_including_failed()?,
            pauses: Pauses::default(),
            lives: Vec::new(),
            summary: stream.ends()?.pop(),
        };
        records.lives = lives::of(
            stream,
            &records.started,
            &records.listening,
            &records.exited,
        );
        records.add_unrecorded();
        let servers = records
            .processes
            .iter()
            .filter(|one| one.role == Role::Server);
        let servers: HashSet<u32> = servers.map(|one| one.id).collect();
        let lines = records.output.iter().filter(|line| !line.while_ending);
        let lines = lines.filter(|line| !servers.contains(&line.id));
        let mut times: Vec<u64> = lines.map(|line| line.time_ms).collect();
        times.sort_unstable();
        times
            .into_iter()
            .for_each(|time_ms| records.pauses.add(time_ms));
        Ok(records)
    }

    /// Adds the processes that only other records name, as in a stream from which somebody has left
    /// out records.
    fn add_unrecorded(&mut self) {
        let known: BTreeSet<u32> = self.processes.iter().map(|process| process.id).collect();
        let started = self.started.iter();
        let started = started.map(|one| (one.id, (one.host, one.role, one.rank)));
        let exited = self.exited.iter();
        let exited = exited.map(|one| (one.id, (one.host, one.role, one.rank)));
        let failure = self.summary.as_ref();
        let failure = failure.and_then(|summary| summary.first_failure.as_ref());
        let failed = failure.and_then(|one| Some((one.id?, (one.host, one.role?, one.rank?))));
        let named: BTreeMap<u32, (u32, Role, u32)> = started
            .chain(exited)
            .chain(failed)
            .filter(|(id, _)| !known.contains(id))
            .collect();
        self.unrecorded = named.len();
        let nowhere = IpAddr(Ipv4Addr::UNSPECIFIED);
        let processes = named
            .into_iter()
            .map(|(id, (host, role, rank))| Process::new(id, host, nowhere, role, rank));
        self.processes.extend(processes);
        self.processes.sort_by_key(|process| process.id);
    }
}
