//! The file of this agent: hashes it, and removes old agents beside it.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory of this program, which only this user can write"
)]

use record::hex;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Agents that were not used for this long are removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A broken connection's partial file is removed after this time, when its transfer must be over.
const HALF_THERE: Duration = Duration::from_secs(24 * 60 * 60);
/// How often to update the time of the file, which shows its last use.
const NOTED: Duration = Duration::from_secs(24 * 60 * 60);

/// The BLAKE3 hash of the running file, in hexadecimal.
pub fn own_hash() -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update_reader(fs::File::open("/proc/self/exe").ok()?)
        .ok()?;
    Some(hasher.finalize().to_hex().to_string())
}

/// Notes that this agent is used, and removes this user's agents that were not used for a month.
/// Ignores failures.
pub fn tidy() {
    let Ok(program) = fs::read_link("/proc/self/exe") else {
        return;
    };
    // only in the bootstrap's directory, never beside the tools
    let Some(folder) = program.parent().filter(|folder| is_cache(&program, folder)) else {
        return;
    };
    let age = |path: &Path| {
        fs::symlink_metadata(path)
            .ok()?
            .modified()
            .ok()?
            .elapsed()
            .ok()
    };
    if age(&program).is_none_or(|age| age < NOTED) {
        return;
    }
    let _ = fs::File::open(&program).and_then(|file| file.set_modified(SystemTime::now()));
    for path in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
    {
        let is_unused = |limit| age(&path).is_some_and(|age| age > limit);
        if path != program && lifetime(&path).is_some_and(is_unused) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_cache(program: &Path, folder: &Path) -> bool {
    let named = lifetime(program) == Some(UNUSED);
    named
        && fs::metadata(folder).is_ok_and(|meta| {
            meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o77 == 0
        })
}

/// How long an unused file of the bootstrap is kept: an agent's name has its hash, and a partial
/// file's is a dot and a token.
fn lifetime(path: &Path) -> Option<Duration> {
    let name = path.file_name()?.to_str()?;
    let hex = |text: &str, digits: usize| text.len() == digits && hex::decode(text).is_some();
    match (name.strip_prefix("host-agent-"), name.strip_prefix('.')) {
        (Some(hash), _) if hex(hash, 64) => Some(UNUSED),
        (_, Some(token)) if hex(token, 32) => Some(HALF_THERE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_bootstrap_are_known() {
        let hash = "a1".repeat(32);
        let token = "0f".repeat(16);
        let table = [
            (format!("/c/host-agent-{hash}"), Some(UNUSED)),
            (format!("/c/.{token}"), Some(HALF_THERE)),
            ("/c/host-agent-x86_64".to_owned(), None),
            (format!("/c/.{hash}"), None),
            ("/c/venv-dgl-1.0.4-1".to_owned(), None),
        ];
        for (path, expected) in table {
            assert_eq!(lifetime(Path::new(&path)), expected, "{path}");
        }
    }
}
