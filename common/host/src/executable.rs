//! Why the kernel does not run a file that is there.

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};
use wire::preflight::{Problem, Subject};

/// The kernel reads this much of a script for its interpreter (BINPRM_BUF_SIZE).
const FIRST_LINE: u64 = 256;

/// `None` if it is missing, or nothing is known against it.
pub fn obstacle(file: &Path) -> Option<Problem> {
    if !file.is_file() {
        return None;
    }
    let problem = |about, words: &str| {
        let problem = format!("{} {words}", shown(file));
        Some(Problem::new(about, problem))
    };
    if access(file, AccessFlags::X_OK).is_ok() {
        return if is_script(file) {
            windows_line_ends(file)
        } else {
            None
        };
    }
    let mount = statvfs(file).ok()?;
    if mount.flags().contains(FsFlags::ST_NOEXEC) {
        let words = "cannot be executed, because its file system is mounted with noexec";
        problem(Subject::MountedNoexec, words)
    } else {
        problem(
            Subject::NotExecutable,
            "is there, but has no permission to be executed",
        )
    }
}

/// The problem of a script whose first line ends as on Windows. A shell reads the CR as part of a
/// word, and the kernel as part of the interpreter's name.
pub fn windows_line_ends(script: &Path) -> Option<Problem> {
    first_line(script)?.ends_with(b"\r\n").then(|| {
        let problem = format!(
            "{} has Windows line ends (CR LF), which shells and the kernel do not accept",
            shown(script)
        );
        Problem::new(Subject::LineEnds, problem)
    })
}

/// Without the dots of a command such as `./run.sh`.
fn shown(file: &Path) -> String {
    let parts = file.components().filter(|part| *part != Component::CurDir);
    parts.collect::<PathBuf>().display().to_string()
}

fn is_script(file: &Path) -> bool {
    first_line(file).is_some_and(|line| line.starts_with(b"#!"))
}

fn first_line(file: &Path) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let file = File::open(file).ok()?.take(FIRST_LINE);
    BufReader::new(file).read_until(b'\n', &mut line).ok()?;
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_prevents_a_script_from_running_is_named() {
        let folder = std::env::temp_dir().join(format!("dgl-tools-scripts-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let table = [
            ("#!/bin/sh\n", 0o755, None),
            ("#!/bin/sh\r\n", 0o755, Some(Subject::LineEnds)),
            ("#!/bin/sh\n", 0o644, Some(Subject::NotExecutable)),
            ("\x7fELF\r\n", 0o755, None),
            ("", 0o755, None),
        ];
        for (text, mode, about) in table {
            let file = folder.join("script");
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let found = obstacle(&file).map(|problem| problem.about);
            assert_eq!(found, about, "{text:?} {mode:o}");
        }
        assert_eq!(obstacle(&folder.join("missing")), None);
        assert_eq!(obstacle(&folder), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
