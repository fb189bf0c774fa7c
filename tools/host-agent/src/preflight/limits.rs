//! Limits that a process will have.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use wire::preflight::Finding;

/// Checks the hard limit on open files; the soft limit is raised when a process is started.
pub fn check_open_files(need: u64) -> Option<Finding> {
    let (_, limit) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (limit != RLIM_INFINITY && limit < need).then_some(Finding::FewOpenFiles { limit, need })
}
