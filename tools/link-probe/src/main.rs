//! Measures how fast the hosts of a job reach each other.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("link-probe", link_probe::main)
}
