//! The launcher of a job, wherever it runs: it checks the hosts and starts, watches and ends the
//! processes.
//!
//! [`plan`] and [`spec`] describe the job, [`preflight`] checks the hosts, [`run`] runs the job,
//! and [`output`] shows it to users and programs. [`servers`] finds the persistent graph servers
//! that a job uses. The caller connects to the hosts' agents and provides the sessions.

pub mod output;
pub mod plan;
pub mod preflight;
pub mod run;
pub mod servers;
pub mod spec;
