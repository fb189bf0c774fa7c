//! Decides which chunk of a graph goes to which host, for DGL's distributed partitioning pipeline.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("chunk-map", chunk_map::main)
}
