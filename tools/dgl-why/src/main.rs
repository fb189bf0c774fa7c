//! Prints what ended a job, or what it waits for.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-why", dgl_why::main)
}
