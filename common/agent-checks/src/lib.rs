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
