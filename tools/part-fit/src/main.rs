//! Calculates the memory that each partition needs on its host, and whether it fits.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-fit", part_fit::main)
}
