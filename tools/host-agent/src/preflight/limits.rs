//! Limits that a process will have.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use wire::preflight::Finding;

/// The soft limit is raised when a process is started; the hard one is the host's.
pub fn check_open_files(need: u64) -> Option<Finding> {
    let (_, limit) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (limit != RLIM_INFINITY && limit < need).then_some(Finding::FewOpenFiles { limit, need })
}
