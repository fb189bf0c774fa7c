//! Starts the processes of a job, watches them, reports their output and ends them, so that none is
//! left, whichever process is killed.
//!
//!     launcher ══ stdin, stdout ══> supervisor ──> host-agent run, which becomes the process
//!
//! [`supervisor`] is an event loop, into which a session turns that was asked to start a job; its
//! watcher ends the job if it dies. [`members`] finds the job's processes, and [`liveness`] reports
//! their activity. [`socket`] answers other agents of this host: by it, persistent [`servers`] are
//! found, and [`reap`] asks the supervisors of a job before it ends the rest itself. [`start`]
//! becomes a process of the job, whose text a [`shell`] runs.

mod activity_watch;
mod exception_watch;
mod liveness;
pub mod members;
mod oom_watch;
mod position_watch;
pub mod private_shm;
mod ranks;
pub mod reap;
pub mod servers;
pub mod shell;
mod shm_watch;
pub mod socket;
mod stack_jobs;
pub mod start;
mod supervisor;
mod this_host;

pub use supervisor::{become_supervisor, supervise};

/// A job of this host alone.
#[cfg(test)]
fn tested_job(name: &str) -> wire::job::Job {
    wire::job::Job {
        name: name.to_owned(),
        token: "0".repeat(32),
        host: 0,
        address: std::net::Ipv4Addr::LOCALHOST,
        hosts: 1,
        grace_ms: 0,
        host_timeout_ms: 0,
        private_shm: false,
    }
}
