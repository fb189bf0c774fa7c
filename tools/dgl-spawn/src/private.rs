//! A /dev/shm of the job's own on each host: a script that makes it, then reads and runs the job's own script in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::quote;
use common::remote::BOOT;

const SH: &str = include_str!("private.sh");

/// What a host runs first.
pub fn script() -> Vec<u8> {
    [b"boot=", &*quote::sh(BOOT), b"\n", SH.as_bytes()].concat()
}

/// The job's own script, as the first line of that one's stdin.
pub fn line(script: &[u8]) -> Vec<u8> {
    format!("{}\n", BASE64.encode(script)).into_bytes()
}
