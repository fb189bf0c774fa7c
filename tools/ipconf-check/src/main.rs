//! Reads an ip_config file and prints a host record for each line.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("ipconf-check", ipconf_check::main)
}
