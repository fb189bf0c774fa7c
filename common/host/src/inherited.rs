//! The state of signals that a program inherits.

use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGCHLD, SIGXFSZ};
use std::io;
use std::sync::Arc;

/// Lets this program wait for its children, get signals, and outlive a file that may not grow,
/// whatever its caller did. A parent that ignores SIGCHLD (as daemons do, and `trap '' CHLD`) would
/// have the kernel forget how children end, blocked signals are inherited as well, and SIGXFSZ
/// kills a program that writes beyond `ulimit -f`; with a handler, the write fails as on a full
/// disk. `still_blocked` stay blocked, and other ignored signals stay ignored (nohup).
pub fn reset_signals(still_blocked: &SigSet) -> io::Result<()> {
    // a handler replaces "ignored", and started programs get the default for it
    for signal in [SIGCHLD, SIGXFSZ] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let others = Signal::iterator().filter(|signal| !still_blocked.contains(*signal));
    others.collect::<SigSet>().thread_unblock()?;
    Ok(())
}
