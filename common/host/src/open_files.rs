//! The limit on open files.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// The limit to set. 1024 is too low for a server of many clients, which has two sockets for each,
/// and for a port to which many agents connect. Above this one, programs that close every
/// descriptor at their start slow down.
const WANTED: u64 = 65_536;

/// The hard limit; `None` if there is none or it is unknown.
pub fn hard_limit() -> Option<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (hard != RLIM_INFINITY).then_some(hard)
}

/// Raises the limit of this process and of its children, as far as this host allows.
pub fn raise_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(WANTED), hard);
    }
}
