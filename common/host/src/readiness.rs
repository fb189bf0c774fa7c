//! Waits for descriptors.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Waits at most for the limit; returns which of these can be read or have ended.
pub fn readable<'a>(
    descriptors: impl IntoIterator<Item = BorrowedFd<'a>>,
    limit: Option<Duration>,
) -> Vec<bool> {
    let descriptors = descriptors.into_iter();
    let mut fds: Vec<_> = descriptors
        .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN))
        .collect();
    wait(&mut fds, limit);
    fds.iter().map(|fd| fd.any().unwrap_or(true)).collect()
}

/// Waits at most for the limit.
pub fn is_ready(descriptor: &impl AsFd, flags: PollFlags, limit: Option<Duration>) -> bool {
    wait(&mut [PollFd::new(descriptor.as_fd(), flags)], limit)
}

/// Waits however many signals arrive; returns false if nothing was ready within the limit.
fn wait(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> bool {
    let timeout = limit.map_or(PollTimeout::NONE, |limit| {
        PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
    });
    loop {
        match poll(fds, timeout) {
            Err(Errno::EINTR) => {}
            ready => return ready != Ok(0),
        }
    }
}
