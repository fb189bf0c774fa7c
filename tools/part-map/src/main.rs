//! Decides which file goes to which host and under which name, and rewrites the partition config to
//! match.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-map", part_map::main)
}
