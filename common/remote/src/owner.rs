//! Whom a file or folder belongs to from which programs are run.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Whether it belongs to this user or to root.
pub(crate) fn is_trusted(meta: &Metadata) -> bool {
    [0, nix::unistd::geteuid().as_raw()].contains(&meta.uid())
}

/// Whether its mode lets others write.
pub(crate) fn others_write(meta: &Metadata) -> bool {
    meta.mode() & 0o22 != 0
}
