//! Whether a job can start on this host, and what the host has for it.
//!
//! [`preflight`] checks the host before a start, and [`claim`] keeps names and ports from other
//! jobs. [`probe`] reports facts; Pythons are asked, and the [`environment`] of conda or venv is
//! found, in the same way for both.

pub mod claim;
pub mod environment;
pub mod preflight;
pub mod probe;
mod python;
