//! Lists or ends what a job has left on its hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    dgl_reap::run()
}
