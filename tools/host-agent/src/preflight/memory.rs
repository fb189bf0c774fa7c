//! Finds files of DGL in /dev/shm, with their user and the process that maps them.

use host::command;
use host::describe;
use host::shm::{self, DglFile};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use wire::Text;
use wire::preflight::{Finding, SharedFiles, Subject};

/// How long creating namespaces may take.
const TRY_LIMIT: Duration = Duration::from_secs(10);
const TRY_BYTES: usize = 1 << 10;

/// The findings about all files, merged as far as possible.
pub fn check() -> Vec<Finding> {
    let mut groups: BTreeMap<(u32, Option<i32>), Vec<DglFile>> = BTreeMap::new();
    for file in shm::dgl_files() {
        groups
            .entry((file.uid, file.mapped_by))
            .or_default()
            .push(file);
    }
    groups
        .into_iter()
        .map(|((uid, pid), files)| finding(uid, pid, &files))
        .collect()
}

/// Checks that a job can have a private /dev/shm, by trying it in another process.
pub fn check_private() -> Option<Finding> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("host-agent").arg("private-shm");
    let no = |error: String| {
        let problem = format!("a private /dev/shm cannot be created: {error}");
        Some(Finding::problem(Subject::PrivateSharedMemory, problem))
    };
    match command::ask(command, TRY_LIMIT, TRY_BYTES) {
        Ok(answer) if answer.status.is_some_and(|status| status.success()) => None,
        Ok(answer) => no(answer.text().trim().to_owned()),
        Err(error) => no(error.to_string()),
    }
}

fn finding(uid: u32, pid: Option<i32>, files: &[DglFile]) -> Finding {
    let state = match (pid, describe::other_user(uid)) {
        (Some(pid), _) => SharedFiles::Used(describe::owner(Some(pid), uid)),
        (None, Some(user)) => SharedFiles::Foreign(user),
        (None, None) => {
            let name = files
                .first()
                .map(|file| file.file.name.clone())
                .unwrap_or_default();
            SharedFiles::Stale(Text(
                std::path::Path::new("/dev/shm")
                    .join(name.path())
                    .into_os_string(),
            ))
        }
    };
    let total_bytes = files
        .iter()
        .fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
    Finding::SharedMemory {
        state,
        files: files.len() as u64,
        total_bytes,
    }
}
