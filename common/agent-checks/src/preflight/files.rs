//! Checks the directories and files that a job needs.

#![expect(
    clippy::disallowed_methods,
    reason = "it only reads files that the job will read by the same paths"
)]

use nix::libc;
use nix::unistd::{AccessFlags, access};
use record::{DEFAULT_PORT, Role, similar};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use wire::files::Hex;
use wire::preflight::{Finding, Problem, Subject};

/// How much of a script is compared; longer ones, such as archives, differ at their beginning.
const MAX_SCRIPT: u64 = 64 << 20;
/// Longer than any ip_config is.
const MAX_IP_CONFIG: u64 = 4 << 20;

/// Returns the content, or why it cannot be read. Python can run directories, too.
pub fn check_script(program: Role, file: &Path) -> Option<Finding> {
    if file.is_dir() {
        return None;
    }
    if let Some(problem) = missing(file) {
        return Some(problem.into());
    }
    let mut hasher = blake3::Hasher::new();
    let content = open_regular(file)?.take(MAX_SCRIPT);
    hasher.update_reader(content).ok()?;
    Some(Finding::Content {
        program: Some(program),
        file: file.display().to_string(),
        hash: Hex(hasher.finalize().into()),
    })
}

/// `None` if the file is readable.
pub fn missing(file: &Path) -> Option<Problem> {
    let shown = file.display();
    match (file.is_file(), is_readable(file)) {
        (false, _) => {
            let similar = similar::path(file).map_or(String::new(), |similar| {
                format!("; did you mean {}?", similar.display())
            });
            let problem = format!("no such file: {shown}{similar}");
            Some(Problem::new(Subject::File, problem))
        }
        (true, false) => {
            let problem = format!("cannot be read: {shown}");
            Some(Problem::new(Subject::Permission, problem))
        }
        (true, true) => None,
    }
}

pub fn is_readable(file: &Path) -> bool {
    access(file, AccessFlags::R_OK).is_ok()
}

/// Opens only a regular file; opening a FIFO would block.
pub fn open_regular(file: &Path) -> Option<File> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)
        .ok()?;
    opened.metadata().ok()?.is_file().then_some(opened)
}

/// The hosts of an ip_config. DGL uses that file, and with an old one the job hangs.
pub fn check_ip_config(file: &Path) -> Option<Finding> {
    if let Some(problem) = missing(file) {
        return Some(problem.into());
    }
    let mut text = String::new();
    let mut content = open_regular(file)?.take(MAX_IP_CONFIG);
    if content.read_to_string(&mut text).is_err() {
        text.clear();
    }
    let read = |line: &str| -> Option<String> {
        let mut words = line.split_whitespace();
        let ip: Ipv4Addr = words.next()?.parse().ok()?;
        let port = words.next().map_or(Ok(DEFAULT_PORT), str::parse).ok()?;
        Some(record::ip_config_line(ip, port))
    };
    let mut lines = String::new();
    for line in text.lines() {
        let Some(line) = read(line) else {
            let problem = format!("the ip_config has {line:?} where DGL needs an address");
            return Some(Problem::new(Subject::Copy, problem).into());
        };
        lines += &line;
    }
    let hash = transfer::content::sum(lines.as_bytes());
    Some(Finding::IpConfig { hash })
}
