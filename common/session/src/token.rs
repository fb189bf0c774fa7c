//! Random tokens.

use super::fault::HostFault;
use record::error::Fault;
use tls::token;

pub fn session_token() -> Result<String, HostFault> {
    token().map_err(|error| HostFault::unreachable(format!("/dev/urandom: {error}")))
}

pub fn random_token() -> Result<String, Fault> {
    token().map_err(|error| {
        Fault::unreachable("/dev/urandom", error.to_string()).fix("let this user read it")
    })
}
