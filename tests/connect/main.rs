//! Ways to hosts, and how host-agent gets there; what hosts may say.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod agent;
mod connectors;
mod containers;
mod dial;
mod hostile;
mod login_faults;
mod logins;
mod shells;
mod slurm;
