//! The launcher of a job, wherever it runs: it examines the hosts, starts the processes, watches
//! them, and ends them all.
//!
//! [`plan`] and [`spec`] decide what runs, [`preflight`] examines the hosts before the start,
//! [`run`] carries the job out, and [`output`] shows it to people and programs. How hosts are
//! reached is the caller's business: it hands in sessions with their agents.

pub mod left;
pub mod output;
pub mod plan;
pub mod preflight;
pub mod run;
pub mod spec;
