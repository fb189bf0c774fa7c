//! The job that a tool has described, for checks and the start.

use record::{Command, Process};
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;
use wire::job::Job;
use wire::{Failure, Text};

/// A process of the job on this host.
#[derive(Debug)]
pub struct HostProcess {
    /// The index of the process on this host, which events use.
    pub index: u32,
    pub record: Process,
    /// The command of the record.
    pub command: Command,
    /// The environment of the record.
    pub env: Vec<(String, Text)>,
}

impl HostProcess {
    /// Decodes the record.
    pub fn new(index: u32, record: Process) -> Result<HostProcess, Failure> {
        let failed = |fault: record::error::Fault| Failure::new(fault.to_string());
        record.check().map_err(failed)?;
        let env = record.environment().map_err(failed)?.into_iter();
        let env = env.map(|(name, value)| (name.to_owned(), Text::from(value)));
        Ok(HostProcess {
            index,
            command: record.command().map_err(failed)?,
            env: env.collect(),
            record,
        })
    }

    /// The directory in which the process starts, relative to the home of the login.
    pub fn folder(&self) -> &Path {
        Path::new(self.record.cwd.as_deref().unwrap_or("."))
    }

    /// The value of a variable of its environment.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.env.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_ref())
    }
}

/// The job as described so far.
#[derive(Debug, Default)]
pub struct JobAssembly {
    job: Option<Job>,
    processes: Vec<HostProcess>,
}

impl JobAssembly {
    /// Begins the description of another job.
    pub fn begin(&mut self, job: Job) {
        *self = JobAssembly {
            job: Some(job),
            processes: Vec::new(),
        };
    }

    /// Adds a process.
    pub fn add(&mut self, record: Process) -> Result<(), Failure> {
        self.identity()?;
        let index = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        self.processes.push(HostProcess::new(index, record)?);
        Ok(())
    }

    /// The identity of the job.
    pub fn identity(&self) -> Result<&Job, Failure> {
        self.job
            .as_ref()
            .ok_or_else(|| Failure::new("no job was described"))
    }

    /// How long the launcher may be silent; `None` if no job was described.
    pub fn host_timeout(&self) -> Option<Duration> {
        self.job
            .as_ref()
            .map(|job| Duration::from_millis(job.host_timeout_ms))
            .filter(|limit| !limit.is_zero())
    }

    /// All processes of the job.
    pub fn processes(&self) -> &[HostProcess] {
        &self.processes
    }

    /// Takes the job and the records of its processes, if a job was described.
    pub fn into_parts(self) -> Option<(Job, Vec<Process>)> {
        let records = self.processes.into_iter().map(|process| process.record);
        Some((self.job?, records.collect()))
    }
}
