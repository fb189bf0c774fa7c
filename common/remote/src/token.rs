//! Random tokens.

use super::fault::HostFault;
use record::error::Fault;
use std::io::{self, Read as _};

/// 128 random bits in hexadecimal.
pub(crate) fn token() -> io::Result<String> {
    let mut bits = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(record::hex::encode(&bits))
}

/// The token of a session.
pub(crate) fn session_token() -> Result<String, HostFault> {
    token().map_err(|error| HostFault::unreachable(format!("/dev/urandom: {error}")))
}

/// A token for a tool's own use.
pub fn random_token() -> Result<String, Fault> {
    token().map_err(|error| {
        Fault::unreachable("/dev/urandom", error.to_string()).fix("let this user read it")
    })
}
