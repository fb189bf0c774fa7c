//! Ends this agent at the end of its launcher, whatever else it is doing then, so that what it has
//! claimed is free again.

use crate::command;
use crate::side_thread::SideThread;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, PipeReader};
use std::os::fd::AsFd;

/// Watches for the end of stdin until the thread is dropped.
pub fn watch() -> io::Result<SideThread> {
    SideThread::begin("hangup", wait_for_hangup)
}

fn wait_for_hangup(stopped: &PipeReader) {
    // of a pipe its end is reported in any case, of a socket only if that is asked for
    let hangup = PollFlags::from_bits_retain(libc::POLLRDHUP);
    let stdin = io::stdin();
    loop {
        let mut fds = [
            PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
            PollFd::new(stdin.as_fd(), hangup),
        ];
        if poll(&mut fds, PollTimeout::NONE).is_err() {
            continue;
        }
        // an event without a name counts too
        let [is_stopped, is_over] = fds.map(|fd| fd.any().unwrap_or(true));
        if is_stopped {
            return;
        }
        if is_over {
            command::kill_all();
            std::process::exit(0);
        }
    }
}
