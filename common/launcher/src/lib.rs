//! The launcher of a job, wherever it runs: it checks the hosts, starts the processes, watches them
//! and ends them.
//!
//! [`plan`] and [`spec`] describe the job, [`preflight`] checks the hosts before the start, [`run`]
//! runs the job, and [`output`] shows it to users and programs. [`servers`] finds the persistent
//! graph servers that a job uses. The caller reaches the hosts and provides sessions with their
//! agents.

pub mod output;
pub mod plan;
pub mod preflight;
pub mod run;
pub mod servers;
pub mod spec;
