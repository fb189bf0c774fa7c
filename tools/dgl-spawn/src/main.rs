//! Starts the processes of a job on their hosts, watches them and ends them all.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-spawn", dgl_spawn::main)
}
