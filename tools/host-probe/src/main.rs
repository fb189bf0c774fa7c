//! Logs in once to each host and adds what it is and has to its record.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("host-probe", host_probe::main)
}
