//! The transfer of files between this machine and a host: what both ends do, in either direction.
//!
//! A [`sender`] reads ([`source`]); a [`receiver`] has a [`lock`] on a [directory](tree) with
//! enough [`room`] and writes ([`partial`]), in a directory that only it can change
//! ([`own_folder`]). [`owner`] decides which owners count as root. Between them go blocks, each
//! with its checksum ([`content`]). [`parts`] are the parts of a file that are present; [`sums`]
//! compares them with the other end. [`fates`] has the state of each delivery, [`run_folder`] the
//! directory for hosts that dial in. [`case`] finds names that some file systems take for one, and
//! [`simulated`] lets tests/simulate decide which system calls fail.

pub mod case;
pub mod content;
pub mod fates;
pub mod folder;
pub mod lock;
pub mod own_folder;
pub mod owner;
pub mod partial;
pub mod parts;
pub mod receiver;
pub mod room;
pub mod run_folder;
pub mod sender;
pub mod simulated;
pub mod source;
pub mod sums;
pub mod tree;

/// A resumed transfer begins and ends at a multiple of this, so that a block that was half written
/// is sent again.
pub const GRAIN: u64 = 64 << 10;
/// A file of at most this size is sent in one message with others, and written at once.
pub const SMALL: u64 = wire::files::BLOCK;
/// For a file of at least this size it is worth some round trips to find out which parts need not
/// be sent and which hosts could hand it on.
pub const LARGE: u64 = 16 << 20;

/// A peer that sends nothing for this long counts as lost.
pub fn silence() -> std::time::Duration {
    limit("DGL_TOOLS_TEST_SILENCE", 60)
}

/// A peer that sends nothing but heartbeats for this long, although something was asked of it, is
/// given up. A slow disk takes most of an hour to store 100 GB.
pub fn longest_wait() -> std::time::Duration {
    limit("DGL_TOOLS_TEST_LONGEST_WAIT", 3600)
}

/// Tests shorten a limit, but only in a debug build: CONTRIBUTING.md.
fn limit(variable: &str, seconds: u64) -> std::time::Duration {
    let shorter = std::env::var(variable)
        .ok()
        .filter(|_| cfg!(debug_assertions));
    let shorter = shorter.and_then(|seconds| seconds.parse().ok());
    std::time::Duration::from_secs(shorter.unwrap_or(seconds))
}

pub fn beat_interval() -> std::time::Duration {
    silence() / 6
}
