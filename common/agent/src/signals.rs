//! The signals that end processes, and those that ask this one to end.

use nix::sys::signal::{SigSet, Signal};

/// Blocks the signals that ask this process to end, because they are meant for the job's processes,
/// whose end it must report. They are not ignored, because a started program would inherit that.
pub fn block_signals() -> nix::Result<()> {
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
