//! The members, stalls and progress of a job.

use record::Role;
use std::time::Duration;
use wire::supervise::Computing;

/// A process, as far as the life of its job depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobMember {
    pub role: Role,
    /// Whether it belongs to a service, a program that serves the others.
    pub service: bool,
    /// Whether the job is only up once this process listens.
    pub awaited: bool,
}

impl JobMember {
    /// Whether the process serves the others: a graph server, or a process of a service.
    pub fn serves(&self) -> bool {
        self.service || self.role == Role::Server
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStalled {
    /// For how long no host has shown activity.
    pub silent: Duration,
    /// What the processes do that compute although their stacks stay the same.
    pub computing: Option<Computing>,
    /// Whether the job is ended because of the stall.
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
