//! Lists or ends what a job has left on its hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = dgl_reap::leave_job() {
        record::tell!("dgl-reap: {error}");
        return ExitCode::FAILURE;
    }
    cli::run("dgl-reap", dgl_reap::main)
}
