//! The launcher of a job, wherever it runs: it examines the hosts, starts the processes, watches
//! them, and ends them all.
//!
//! [`plan`] and [`spec`] decide what runs, [`preflight`] examines the hosts before the start,
//! [`run`] carries the job out, [`output`] shows it to people and programs, [`servers`] handles
//! persistent graph servers, and [`detached`] jobs that outlive the tool that started them. How
//! hosts are reached is the caller's business: it hands in sessions with their agents.

pub mod detached;
pub mod output;
pub mod plan;
pub mod preflight;
pub mod run;
pub mod servers;
pub mod spec;
