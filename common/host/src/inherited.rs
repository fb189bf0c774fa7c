//! The state of signals that a program inherits.

use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::SIGCHLD;
use std::io;
use std::sync::Arc;

/// Lets this program wait for its children, and get signals, whatever its caller did: a parent that
/// ignores SIGCHLD (as daemons do, and `trap '' CHLD`) would have the kernel forget how children
/// end, and blocked signals are inherited as well. `still_blocked` stay blocked, and other ignored
/// signals stay ignored (nohup).
pub fn reset_signals(still_blocked: &SigSet) -> io::Result<()> {
    // a handler replaces "ignored", and started programs get the default for it
    signal_hook::flag::register(SIGCHLD, Arc::default())?;
    let others = Signal::iterator().filter(|signal| !still_blocked.contains(*signal));
    others.collect::<SigSet>().thread_unblock()?;
    Ok(())
}
