//! Logs in once to each host and adds the facts about it to its record.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("host-probe", host_probe::main)
}
