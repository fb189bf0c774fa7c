//! The members, stalls and progress of a job.

use record::Role;
use std::time::Duration;
use wire::supervise::Computing;

/// A process, as far as the life of its job depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobMember {
    pub role: Role,
    /// Whether its program serves the others.
    pub service: bool,
    /// Whether the job is up only once it listens.
    pub awaited: bool,
}

impl JobMember {
    /// Whether it is a graph server or belongs to a service.
    pub fn serves(&self) -> bool {
        self.service || self.role == Role::Server
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStalled {
    /// For how long no host has shown activity.
    pub silent: Duration,
    /// What processes do that compute although their stacks stay the same.
    pub computing: Option<Computing>,
    pub ends: bool,
}

/// Processes other than servers count as others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub listening: usize,
    pub servers: usize,
    pub running: usize,
    pub others: usize,
}
