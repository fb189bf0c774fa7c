//! Brings results back from the hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-pull", part_pull::main)
}
