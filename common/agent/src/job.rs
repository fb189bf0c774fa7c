//! The job that a tool has described, for checks and the start.

use record::{Command, Process};
use std::ffi::OsStr;
use std::path::Path;
use wire::job::Job;
use wire::{Failure, Text};

#[derive(Debug)]
pub struct HostProcess {
    /// Events use it.
    pub index: u32,
    pub record: Process,
    pub command: Command,
    pub env: Vec<(String, Text)>,
}

impl HostProcess {
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

    /// Relative to the home of the login.
    pub fn folder(&self) -> &Path {
        Path::new(self.record.cwd.as_deref().unwrap_or("."))
    }

    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.env.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_ref())
    }
}

#[derive(Debug)]
pub struct DescribedJob {
    pub job: Job,
    pub processes: Vec<HostProcess>,
}

impl DescribedJob {
    pub fn add(&mut self, record: Process) -> Result<(), Failure> {
        let index = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        self.processes.push(HostProcess::new(index, record)?);
        Ok(())
    }
}
