//! Limits that a process will have.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use wire::preflight::{Finding, Subject};

/// Checks the hard limit on open files; the soft limit is raised when a process is started.
pub fn check_open_files(need: u64) -> Option<Finding> {
    let (_, limit) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let problem = format!(
        "a process may have {limit} open files, and a server needs about {need} for the clients of \
         this job"
    );
    (limit != RLIM_INFINITY && limit < need).then(|| Finding::problem(Subject::OpenFiles, problem))
}
