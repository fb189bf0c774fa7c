//! A /dev/shm of the job's own on each host: a script that makes it, then reads and runs the job's own script in it.

use common::quote;
use common::remote::BOOT;

const SH: &str = include_str!("private.sh");

/// What a host runs first.
pub fn script() -> Vec<u8> {
    [b"boot=", &*quote::sh(BOOT), b"\n", SH.as_bytes()].concat()
}
