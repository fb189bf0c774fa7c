//! The processes of a job while they live: started, watched, relayed, ended. Nothing of them is
//! left, whichever process is killed.
//!
//!     launcher ══ stdin, stdout ══> guardian ──> supervisor ──> host-agent run,
//!                                                               which becomes the process
//!
//! [`guardian`] is the process that was asked to start; [`watch`] is the supervisor's event loop;
//! [`end`] decides how the job is ended; [`members`] finds the processes of the job and signals
//! them; [`signs`] reports whether they give signs of life.

mod activity;
mod end;
mod exceptions;
mod gpus;
mod guardian;
mod listen;
mod members;
mod memory;
mod outbox;
pub mod private;
mod shm;
mod signs;
mod standing;
pub mod start;
mod usage;
mod watch;

pub use guardian::guard;
pub use watch::supervise;

use end::Action;
use nix::sys::signal::{SigSet, Signal};

/// Blocks the signals that ask us to end, because they are meant for the processes, whose end we
/// report. They are blocked, not ignored, because a started program would go on ignoring them.
fn block_signals() -> nix::Result<()> {
    asking_to_end().thread_block()
}

/// Lets these signals end this process again.
pub fn unblock_signals() -> nix::Result<()> {
    asking_to_end().thread_unblock()
}

/// Signals that ask a process to end.
pub fn asking_to_end() -> SigSet {
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]
        .into_iter()
        .collect()
}

fn signal_of(action: Action) -> Signal {
    match action {
        Action::Abort => Signal::SIGABRT,
        Action::Terminate => Signal::SIGTERM,
        Action::Kill => Signal::SIGKILL,
    }
}
