//! Finds files of DGL in /dev/shm, with their users and the processes that map them.

use host::command;
use host::describe;
use host::shm::{self, DglFile};
use record::term;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use wire::preflight::{Holder, Problem, Subject};

/// How long creating namespaces may take.
const TRY_LIMIT: Duration = Duration::from_secs(10);
const TRY_BYTES: usize = 1 << 10;

/// One problem for each user and process.
pub fn check() -> Vec<Problem> {
    let mut groups: BTreeMap<(u32, Option<i32>), Vec<DglFile>> = BTreeMap::new();
    for file in shm::dgl_files() {
        groups
            .entry((file.uid, file.mapped_by))
            .or_default()
            .push(file);
    }
    groups
        .into_iter()
        .map(|((uid, pid), files)| problem(uid, pid, &files))
        .collect()
}

/// Tries to make a private /dev/shm in another process.
pub fn check_private() -> Option<Problem> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("host-agent").arg("private-shm");
    let no = |error: String| {
        let problem = format!("a private /dev/shm cannot be created: {error}");
        Some(Problem::new(Subject::PrivateSharedMemory, problem))
    };
    match command::ask(command, TRY_LIMIT, TRY_BYTES, || false) {
        Ok(answer) if answer.status.is_some_and(|status| status.success()) => None,
        Ok(answer) => no(answer.text().trim().to_owned()),
        Err(error) => no(error.to_string()),
    }
}

fn problem(uid: u32, pid: Option<i32>, files: &[DglFile]) -> Problem {
    let bytes = files.iter().map(|file| file.bytes);
    let bytes = bytes.fold(0, u64::saturating_add);
    let amount = format!(
        "{}, {}",
        term::count(files.len() as u64, "file"),
        term::bytes(bytes)
    );
    if pid.is_some() {
        let (by, words) = describe::holder(pid, uid);
        let problem =
            format!("another job of DGL is running: {amount} in /dev/shm, mapped by {words}");
        return Problem::new(Subject::SharedMemory(by), problem);
    }
    if let Some(user) = describe::other_user(uid) {
        let problem = format!(
            "/dev/shm has {amount} of a job of DGL of user {user}, and only that user can see \
             whether it runs"
        );
        return Problem::new(Subject::StaleSharedMemory { foreign: true }, problem);
    }
    if !shm::shows_its_users() {
        let problem = format!(
            "/dev/shm has {amount} of a job of DGL, and whether it runs can only be seen outside \
             this container"
        );
        return Problem::new(Subject::SharedMemory(Holder::Hidden), problem);
    }
    let name = files
        .first()
        .map(|file| file.file.name.path().display().to_string());
    let problem = format!("a job of DGL has left {amount} in /dev/shm");
    Problem::new(Subject::StaleSharedMemory { foreign: false }, problem).with(
        name.map(|name| format!("such as /dev/shm/{name}"))
            .unwrap_or_default(),
    )
}
