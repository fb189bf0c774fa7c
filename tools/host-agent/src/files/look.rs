//! Reports what exists under names that the tool gives.

use super::shared_output::SharedOutput;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use transfer::{source, sums};
use wire::files::{FileEvent, Meta};

/// How many answers are sent at once.
const AT_ONCE: usize = 500;

/// Reports on each name, in their order.
pub fn look(names: &[u8], with_sums: bool, told: &SharedOutput) {
    let names: Vec<&[u8]> = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    // checksums take time, so each is sent when it is known
    for some in names.chunks(if with_sums { 1 } else { AT_ONCE }) {
        let entries = some
            .iter()
            .map(|name| meta(Path::new(OsStr::from_bytes(name)), with_sums))
            .collect();
        told.tell(FileEvent::There { entries });
    }
}

fn meta(path: &Path, with_sum: bool) -> Option<Meta> {
    let meta = source::meta(&std::fs::symlink_metadata(path).ok()?);
    let sum = (with_sum && meta.is_file())
        .then(|| sums::of_whole(&source::open(path).ok()?).ok())
        .flatten();
    Some(Meta { sum, ..meta })
}
