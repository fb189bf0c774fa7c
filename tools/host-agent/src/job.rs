//! The job that a tool has told of: what looks and starts are about.

use std::time::Duration;
use wire::Failure;
use wire::job::{Job, Process};

/// What was told so far.
#[derive(Debug, Default)]
pub struct JobAssembly {
    job: Option<Job>,
    processes: Vec<Process>,
}

impl JobAssembly {
    /// Another job from here on.
    pub fn begin(&mut self, job: Job) {
        *self = JobAssembly {
            job: Some(job),
            processes: Vec::new(),
        };
    }

    /// One process more.
    pub fn add(&mut self, process: Process) -> Result<(), Failure> {
        if self.job.is_none() || process.index as usize != self.processes.len() {
            return Err(Failure::new(format!(
                "process {} comes out of order",
                process.index
            )));
        }
        self.processes.push(process);
        Ok(())
    }

    /// What the job is.
    pub fn identity(&self) -> Result<&Job, Failure> {
        self.job
            .as_ref()
            .ok_or_else(|| Failure::new("no job was told of"))
    }

    /// For how long its launcher may be silent; `None` where nothing was said of that.
    pub fn host_timeout(&self) -> Option<Duration> {
        self.job
            .as_ref()
            .map(|job| Duration::from_millis(job.host_timeout_ms))
            .filter(|limit| !limit.is_zero())
    }

    /// One of its processes.
    pub fn process(&self, index: u32) -> Result<&Process, Failure> {
        let process = usize::try_from(index)
            .ok()
            .and_then(|at| self.processes.get(at));
        process.ok_or_else(|| Failure::new(format!("there is no process {index}")))
    }

    /// The job and its processes, if one was told.
    pub fn parts(&self) -> Option<(&Job, &[Process])> {
        Some((self.job.as_ref()?, &self.processes))
    }

    /// The same for good.
    pub fn into_parts(self) -> Option<(Job, Vec<Process>)> {
        Some((self.job?, self.processes))
    }
}
