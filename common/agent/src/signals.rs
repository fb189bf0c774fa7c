//! The signals that ask a process to end.

use nix::sys::signal::{SigSet, Signal};

/// Blocks the signals that ask this process to end: they are meant for the job's processes, whose
/// end it must report. If they were ignored, a started program would inherit that.
pub fn block_signals() -> nix::Result<()> {
    asking_to_end().thread_block()
}

pub fn unblock_signals() -> nix::Result<()> {
    asking_to_end().thread_unblock()
}

pub fn asking_to_end() -> SigSet {
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]
        .into_iter()
        .collect()
}
