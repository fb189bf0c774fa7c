//! The token that marks the processes of a job, or of one try of it.

use record::error::{Fault, Report};

/// 128 random bits, as hexadecimal digits.
pub fn random() -> Result<String, Report> {
    remote::random_token().map_err(|error| {
        Fault::unreachable("/dev/urandom", error.to_string())
            .fix("this machine needs one")
            .report()
    })
}
