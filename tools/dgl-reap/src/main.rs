//! Lists or ends the processes of jobs on their hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    dgl_reap::run()
}
