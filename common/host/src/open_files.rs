//! The limit on open files.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// 1024 is too low for a server of many clients, which has two sockets for each, and for a port to
/// which many agents connect. Above this one, programs that close every descriptor at their start
/// slow down.
const WANTED: u64 = 65_536;

/// `None` if there is none or it is unknown.
pub fn hard_limit() -> Option<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (hard != RLIM_INFINITY).then_some(hard)
}

/// As far as this host allows, for this process and its children.
pub fn raise_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(WANTED), hard);
    }
}
