//! Puts spare hosts in the place of hosts that a job has lost.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("host-swap", host_swap::main)
}
