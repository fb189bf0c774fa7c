//! Reports what exists under names that the tool gives.

use agent::output::EventOutput;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use transfer::folder::{Folder, Links};
use transfer::tree::{Tree, split};
use transfer::{source, sums};
use wire::files::{FileEvent, Meta};

/// How many answers are sent at once.
const AT_ONCE: usize = 500;

/// Reports on each name, in their order. Of what is not below the workspace, a file must only be
/// there, and its path is the user's choice.
pub fn inspect(names: &[u8], with_sums: bool, workspace: Option<&Tree>, output: &EventOutput) {
    let names: Vec<&[u8]> = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    let mut folders: HashMap<&Path, Option<Folder>> = HashMap::new();
    let mut meta_of = |name| {
        let (folder, name) = split(Path::new(OsStr::from_bytes(name)))?;
        let open = || match workspace.filter(|workspace| workspace.has(folder)) {
            Some(workspace) => workspace.find(folder, Links::Anywhere).ok(),
            None => Folder::open(folder).ok(),
        };
        let folder = folders.entry(folder).or_insert_with(open).as_ref()?;
        meta(folder, name, with_sums)
    };
    // checksums take time, so each is sent when it is known
    for some in names.chunks(if with_sums { 1 } else { AT_ONCE }) {
        let entries = some.iter().copied().map(&mut meta_of).collect();
        output.send(FileEvent::Inspected { entries });
    }
}

fn meta(folder: &Folder, name: &OsStr, with_sum: bool) -> Option<Meta> {
    let meta = source::meta(&folder.stat(name).ok()?);
    let sum = (with_sum && meta.is_file())
        .then(|| sums::of_whole(&folder.file(name).ok()?).ok())
        .flatten();
    Some(Meta { sum, ..meta })
}
