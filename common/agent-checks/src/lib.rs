//! Whether a job can start on this host, and what the host has for it.
//!
//! [`preflight`] checks the host before a start, and [`claim`] keeps names and ports from other
//! jobs. [`probe`] reports facts. Both ask Pythons and find the [`environment`] of conda or venv in
//! the same way.

pub mod claim;
pub mod environment;
pub mod preflight;
pub mod probe;
mod python;
