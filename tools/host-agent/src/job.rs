//! The job that a tool has told of: what looks and starts are about.

use wire::Failure;
use wire::job::{Job, Process};

/// What was told so far.
#[derive(Debug, Default)]
pub struct ToldJob {
    job: Option<Job>,
    processes: Vec<Process>,
}

impl ToldJob {
    /// Another job from here on.
    pub fn begin(&mut self, job: Job) {
        *self = ToldJob { job: Some(job), processes: Vec::new() };
    }

    /// One process more.
    pub fn add(&mut self, process: Process) -> Result<(), Failure> {
        if self.job.is_none() || process.index as usize != self.processes.len() {
            return Err(Failure::new(format!("process {} comes out of order", process.index)));
        }
        self.processes.push(process);
        Ok(())
    }
}
