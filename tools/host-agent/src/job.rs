//! The job that a tool has described: checks and starts refer to it.

use std::time::Duration;
use wire::Failure;
use wire::job::{Job, Process};

/// The job as it has been described so far.
#[derive(Debug, Default)]
pub struct JobAssembly {
    job: Option<Job>,
    processes: Vec<Process>,
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

    /// The identity of the job.
    pub fn identity(&self) -> Result<&Job, Failure> {
        self.job
            .as_ref()
            .ok_or_else(|| Failure::new("no job was told of"))
    }

    /// How long its launcher may be silent; `None` if no job was described.
    pub fn host_timeout(&self) -> Option<Duration> {
        self.job
            .as_ref()
            .map(|job| Duration::from_millis(job.host_timeout_ms))
            .filter(|limit| !limit.is_zero())
    }

    /// A process of the job.
    pub fn process(&self, index: u32) -> Result<&Process, Failure> {
        let process = usize::try_from(index)
            .ok()
            .and_then(|at| self.processes.get(at));
        process.ok_or_else(|| Failure::new(format!("there is no process {index}")))
    }

    /// All processes of the job.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Gives up the job and its processes, if a job was described.
    pub fn into_parts(self) -> Option<(Job, Vec<Process>)> {
        Some((self.job?, self.processes))
    }
}
