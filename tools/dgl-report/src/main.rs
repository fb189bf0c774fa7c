//! Turns the records of a run into one HTML page.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-report", dgl_report::main)
}
