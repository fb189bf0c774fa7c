//! Jobs that outlive the tool that started them: their launcher runs on this host.
//!
//!     tool ══ stdin, stdout ══> relay ══ socket pair ══> launch ══ TLS ══ agents of all hosts,
//!                                                          ║              which have dialed in
//!     tool ══ stdin, stdout ══> follow ── Unix socket ─────╝
//!                                  └── reads what the launcher writes
//!
//! [`relay`] is the process that was asked to detach a job. [`launch`] runs in a session of its
//! own: the launcher of common/launcher, whose hosts are the agents that [`callers`] lets in. In
//! [`directory`] is what it writes; [`follow`] sends that to whoever attaches, and [`orders`] takes
//! signals to the launcher. The head of common/launcher/src/detached says what happens when
//! something goes.

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

/// Starts a part of this program out of reach of whatever ends this process: in a session of its
/// own and not as a descendant, because Slurm takes all descendants for the step.
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
/// that it is nobody's child.
pub fn begin_session(word: &str) -> ExitCode {
    let _ = nix::unistd::setsid();
    let mut command = Command::new("/proc/self/exe");
    match command.arg0("host-agent").arg(word).spawn() {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
