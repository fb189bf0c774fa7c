//! The agent's own file: checks whether it arrived completely, and removes old ones beside it.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory of this program, which nobody else can write"
)]

use record::hex;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Agents that nobody has used for this long are removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A partial file, left by a connection that broke, is removed after this time, when no transfer
/// can still be under way.
const HALF_THERE: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a use is noted, by the file's time.
const NOTED: Duration = Duration::from_secs(24 * 60 * 60);

/// The BLAKE3 hash of the running file, in hexadecimal.
pub fn own_hash() -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update_reader(fs::File::open("/proc/self/exe").ok()?)
        .ok()?;
    Some(hasher.finalize().to_hex().to_string())
}

/// Notes that this agent is used, and removes those of this user that were not used for a month.
/// Failures are ignored.
pub fn tidy() {
    let Ok(own) = fs::read_link("/proc/self/exe") else {
        return;
    };
    // only where the bootstrap has put it, never beside the tools
    let Some(folder) = own.parent().filter(|folder| is_cache(&own, folder)) else {
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
    if age(&own).is_none_or(|age| age < NOTED) {
        return;
    }
    let _ = fs::File::open(&own).and_then(|own| own.set_modified(SystemTime::now()));
    for path in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
    {
        let is_unused = |limit| age(&path).is_some_and(|age| age > limit);
        if path != own && lifetime(&path).is_some_and(is_unused) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_cache(own: &Path, folder: &Path) -> bool {
    let named = lifetime(own) == Some(UNUSED);
    named
        && fs::metadata(folder).is_ok_and(|meta| {
            meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o77 == 0
        })
}

/// How long one of the bootstrap's files is kept when nobody uses it, by its name: an agent has its
/// hash, and a partial one a dot and a token.
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
