//! What is decided about a job, what it consists of, and how far it has come.

use record::Role;
use std::time::Duration;
use wire::supervise::Computing;

/// The next step that the owner of the job takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    /// End all processes: TERM, and KILL after the grace.
    End,
    /// The same, but first ask for the stacks of those that can print them (ABRT).
    EndWithStacks,
    /// End all processes at once (KILL).
    Kill,
}

/// A process, as far as the life of its job depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobMember {
    pub role: Role,
    /// Whether it is of a program that serves the others.
    pub service: bool,
    /// Whether the job is not up before this process listens.
    pub awaited: bool,
}

impl JobMember {
    /// Whether the process is there for the others: a graph server, or one of a service.
    pub fn serves(&self) -> bool {
        self.service || self.role == Role::Server
    }
}

/// The job stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStalled {
    /// For how long there was no sign of life on any host.
    pub silent: Duration,
    /// What processes do that compute, though they stand still.
    pub computing: Option<Computing>,
    /// Whether the job is ended because of that.
    pub ends: bool,
}

/// How far a job has come. Processes other than servers are counted as others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub listening: usize,
    pub servers: usize,
    pub running: usize,
    pub others: usize,
}
