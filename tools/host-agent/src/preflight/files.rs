//! Checks the directories and files that a job needs.

#![expect(
    clippy::disallowed_methods,
    reason = "it only reads files that the job will read by the same paths"
)]

use nix::libc;
use nix::unistd::{AccessFlags, access};
use record::similar;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use wire::codec::MAX_BODY;
use wire::preflight::{Finding, Script, Subject};

/// How much of a script is compared; longer ones, such as archives, differ at their beginning.
const MAX_SCRIPT: u64 = 64 << 20;

/// The content of a script, or why it cannot be read. Python can run directories, too.
pub fn check_script(script: Script) -> Option<Finding> {
    let file = script.folder.path().join(script.path.path());
    if file.is_dir() {
        return None;
    }
    missing(&file).or_else(|| {
        let mut hasher = blake3::Hasher::new();
        let content = open_regular(&file)?.take(MAX_SCRIPT);
        hasher.update_reader(content).ok()?;
        let hash = hasher.finalize().to_hex().to_string();
        Some(Finding::ScriptContent { script, hash })
    })
}

/// Why a file cannot be read; `None` if it is readable.
pub fn missing(file: &Path) -> Option<Finding> {
    let shown = file.display();
    match (file.is_file(), is_readable(file)) {
        (false, _) => {
            let similar = similar::path(file).map_or(String::new(), |similar| {
                format!("; there is {}", similar.display())
            });
            let problem = format!("no such file: {shown}{similar}");
            Some(Finding::problem(Subject::File, problem))
        }
        (true, false) => {
            let problem = format!("cannot be read: {shown}");
            Some(Finding::problem(Subject::Permission, problem))
        }
        (true, true) => None,
    }
}

/// Whether this user may read a file.
pub fn is_readable(file: &Path) -> bool {
    access(file, AccessFlags::R_OK).is_ok()
}

/// Opens a regular file; opening a FIFO of that name would block.
pub fn open_regular(file: &Path) -> Option<File> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)
        .ok()?;
    opened.metadata().ok()?.is_file().then_some(opened)
}

/// The beginning of an ip_config, limited to what a message holds.
pub fn read_ip_config(file: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let opened = open_regular(file)?;
    opened.take(MAX_BODY as u64).read_to_end(&mut text).ok()?;
    Some(text)
}
