//! Starts the processes of a job on their hosts, supervises them, and stops them all if one fails.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-spawn", dgl_spawn::main)
}
