//! Writes down which node of a graph in chunks goes to which partition.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-assign", part_assign::main)
}
