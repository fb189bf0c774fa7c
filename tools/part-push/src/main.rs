//! Copies files to their hosts: whole or not at all.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-push", part_push::main)
}
