//! Lists or ends the processes of jobs on their hosts. [`plan`] and `table` map values to values;
//! `act` reaches the hosts.

mod act;
mod args;
pub mod plan;
mod table;

pub use args::Args;

use record::error::Report;
use record::exit::Exit;
use record::jsonl::Stream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// What main() does: leaves the job that may run this program, then runs the tool.
pub fn run() -> ExitCode {
    if let Err(error) = leave_job() {
        record::tell!("dgl-reap: {error}");
        return ExitCode::FAILURE;
    }
    cli::run("dgl-reap", main)
}

pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(args.connect.partial)?;
    args.connect.say_partial("dgl-reap");
    let hosts = args.connect.choose(stream.require("ipconf-check")?)?;
    act::run(&args, &stream, &hosts)
}

/// If a process of a job runs this program, starts it again without the job's token. Otherwise it
/// would have the token and be in the job's group and session, and would list and end itself. It is
/// also marked as not belonging to the job, which host-agent recognizes (processes.rs).
fn leave_job() -> std::io::Result<()> {
    let marks = ["DGL_TOOLS_TOKEN", "DGL_TOOLS_JOB"];
    if marks.iter().all(|mark| std::env::var_os(mark).is_none()) {
        return Ok(());
    }
    match nix::unistd::setpgid(nix::unistd::Pid::this(), nix::unistd::Pid::from_raw(0)) {
        // the leader of a session already leads its own group
        Ok(()) | Err(nix::Error::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    let mut again = Command::new("/proc/self/exe");
    for mark in marks {
        again.env_remove(mark);
    }
    again.env("DGL_TOOLS_OUTSIDE", "1");
    Err(again
        .arg0("dgl-reap")
        .args(std::env::args_os().skip(1))
        .exec())
}
