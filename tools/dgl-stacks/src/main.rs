//! Shows the stacks of the Python processes of a job, on all hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-stacks", dgl_stacks::main)
}
