//! Ways to hosts, and how host-agent gets there; what hosts may say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

mod agent;
mod connectors;
mod containers;
mod dial;
mod hostile;
mod links;
mod slurm;
