//! Replaces hosts that a job has lost by spare hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("host-swap", host_swap::main)
}
