//! Shows where the Python processes of a job stand, on all hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-stacks", dgl_stacks::main)
}
