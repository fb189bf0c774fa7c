//! Jobs that outlive the tool that started them: their launcher runs on this host.
//!
//!     tool ══ stdin, stdout ══> relay ══ socket pair ══> launch ══ TLS ══ agents of all hosts,
//!                                                          ║              which have dialed in
//!     tool ══ stdin, stdout ══> follow ── Unix socket ─────╝
//!                                  └── reads what the launcher writes
//!
//! [`relay`] is the process that was asked to detach a job. [`launch`] runs in its own session: the
//! launcher of common/launcher, whose hosts are the agents that [`callers`] admits. It writes into
//! [`folder`]; [`follow`] sends that to tools that attach, and [`orders`] passes signals to the
//! launcher. The head of common/launcher/src/detached has a table of what happens when something is
//! lost.

pub mod callers;
pub mod folder;
pub mod follow;
pub mod launch;
mod orders;
mod pipes;
pub mod relay;
mod tail;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// Starts a part of this program so that it survives the end of this process: in its own session
/// and not as a descendant, because Slurm counts all descendants as part of the step.
pub fn start_apart(
    word: &str,
    stdin: impl Into<Stdio>,
    stdout: impl Into<Stdio>,
) -> io::Result<std::process::Child> {
    let mut between = Command::new("/proc/self/exe");
    between.arg0("host-agent").args(["apart", word]);
    between.stdin(stdin).stdout(stdout).stderr(Stdio::null());
    between.spawn()
}

/// `host-agent apart WORD`: begins a session, starts that part of this program in it and ends, so
/// that init adopts it.
pub fn begin_session(word: &str) -> ExitCode {
    let _ = nix::unistd::setsid();
    let mut command = Command::new("/proc/self/exe");
    match command.arg0("host-agent").arg(word).spawn() {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
