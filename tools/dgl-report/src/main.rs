//! Makes one HTML page of the records of a run.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-report", dgl_report::main)
}
