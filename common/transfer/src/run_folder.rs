//! The directory of a run to which hosts dial in. Both the tool, which makes it in a directory that
//! may hold much else, and the process that watches its command remove it.

#![expect(
    clippy::disallowed_methods,
    reason = "a directory of mode 0700 that only the user could have made"
)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The script that starts an agent.
pub const AGENT: &str = "agent";
/// What an agent must know to dial in.
pub const TICKET: &str = "ticket";

const PREFIX: &str = "dial-";

pub fn path(parent: &Path, token: &str) -> PathBuf {
    parent.join(format!("{PREFIX}{token}"))
}

/// Removes only the files of the run. A directory that is not of a run, or has other files, stays.
pub fn remove(folder: &Path) {
    if has_name_of_a_run(folder) && is_folder_of_ours(folder) {
        for name in [AGENT, TICKET] {
            let _ = fs::remove_file(folder.join(name));
        }
        let _ = fs::remove_dir(folder);
    }
}

fn has_name_of_a_run(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let token = name.and_then(|name| name.strip_prefix(PREFIX));
    token.is_some_and(|token| {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        token.len() == 32 && token.bytes().all(hex)
    })
}

fn is_folder_of_ours(folder: &Path) -> bool {
    let me = nix::unistd::geteuid().as_raw();
    fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir() && meta.uid() == me)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_runs_have_a_token() {
        let token = "0123456789abcdef0123456789abcdef";
        assert!(has_name_of_a_run(&path(Path::new("/c"), token)));
        let others = [
            "dataset",
            "",
            "0123456789ABCDEF0123456789ABCDEF",
            &token[1..],
        ];
        for other in others {
            assert!(!has_name_of_a_run(&path(Path::new("/c"), other)), "{other}");
        }
        assert!(!has_name_of_a_run(Path::new(token)));
    }
}
