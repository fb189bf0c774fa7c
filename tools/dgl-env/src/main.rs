//! Plans every process of a DGL job: role, rank, environment, command.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-env", dgl_env::main)
}
