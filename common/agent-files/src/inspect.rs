//! Reports what exists under names.

use super::progress::ReadBytes;
use agent::output::EventOutput;
use nix::libc;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use transfer::folder::{Folder, Links};
use transfer::tree::{Tree, split};
use transfer::{source, sums};
use wire::files::{FileEvent, FileFault, Meta, Sum};

/// How many answers are sent at once.
const AT_ONCE: usize = 500;

/// Reports on the names in their order. A file that is not below the workspace must only exist, and
/// its path is the user's choice.
///
/// With `sums`, files of at most this size get their checksums.
pub fn inspect(names: &[u8], sums: Option<u64>, workspace: Option<&Tree>, output: &EventOutput) {
    let names: Vec<&[u8]> = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    let mut folders: HashMap<&Path, Result<Folder, FileFault>> = HashMap::new();
    let mut meta_of = |name| {
        let (folder, name) = split(Path::new(OsStr::from_bytes(name))).ok_or(MISSING)?;
        let open = || match workspace.filter(|workspace| workspace.has(folder)) {
            Some(workspace) => workspace.find(folder, Links::Anywhere),
            None => Folder::open(folder),
        };
        let folder = folders.entry(folder).or_insert_with(open);
        let folder = folder.as_ref().map_err(Clone::clone)?;
        let meta = source::meta(&folder.stat(name)?);
        let sum = sums.and_then(|most| sum(folder, name, most, output));
        Ok(Meta { sum, ..meta })
    };
    // checksums take time, so each is sent when it is known
    for some in names.chunks(if sums.is_some() { 1 } else { AT_ONCE }) {
        let (mut entries, mut hidden) = (Vec::new(), Vec::new());
        for (index, name) in some.iter().enumerate() {
            let meta = meta_of(name);
            entries.push(meta.as_ref().ok().copied());
            match meta {
                Ok(_) | Err(MISSING | NO_FOLDER) => {}
                Err(fault) => hidden.push((index, fault)),
            }
        }
        output.send(FileEvent::Inspected { entries, hidden });
    }
}

const MISSING: FileFault = FileFault::System(libc::ENOENT);
const NO_FOLDER: FileFault = FileFault::System(libc::ENOTDIR);

fn sum(folder: &Folder, name: &OsStr, most: u64, output: &EventOutput) -> Option<Sum> {
    let file = folder.file(name).ok()?;
    let bytes = file.metadata().ok()?.len();
    let read = ReadBytes::default();
    let watch = |bytes| read.add(bytes, output);
    (bytes <= most).then(|| sums::of_beginning(&watch, &file, bytes).ok())?
}
