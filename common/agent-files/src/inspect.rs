//! Reports what exists under names.

use super::progress::watch;
use agent::output::EventOutput;
use nix::libc;
use std::cell::Cell;
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
/// With `sums`, files of at most this size get their checksums. With `follow`, a symbolic link
/// stands for what it leads to.
pub fn inspect(
    names: &[u8],
    (sums, follow): (Option<u64>, bool),
    workspace: Option<&Tree>,
    output: &EventOutput,
) {
    let names: Vec<&[u8]> = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    let mut folders: HashMap<&Path, Result<Folder, FileFault>> = HashMap::new();
    let exposed = Cell::new(None);
    let mut meta_of = |name| {
        let path = Path::new(OsStr::from_bytes(name));
        let (folder, name) = split(path).ok_or(MISSING)?;
        let workspace = workspace.filter(|workspace| workspace.has(folder));
        let open = || match workspace {
            Some(workspace) => {
                exposed.set(exposed.take().or_else(|| workspace.exposed(folder)));
                workspace.find(folder, Links::Anywhere)
            }
            None => Folder::open(folder),
        };
        let folder = folders.entry(folder).or_insert_with(open);
        let folder = folder.as_ref().map_err(Clone::clone)?;
        if follow && folder.is_link(name) {
            let meta = match workspace {
                Some(workspace) => workspace.stat_end_of_link(path, folder)?,
                None => folder.stat_end_of_link(path, folder)?.2,
            };
            return Ok(source::meta(&meta));
        }
        let stat = folder.stat(name)?;
        let sum = sums.and_then(|most| sum(folder, name, most, output));
        let foreign =
            workspace.map_or(Ok(false), |workspace| workspace.is_foreign(folder, &stat))?;
        Ok(Meta {
            sum,
            foreign,
            ..source::meta(&stat)
        })
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
        output.send(FileEvent::Inspected {
            entries,
            hidden,
            exposed: exposed.take(),
        });
    }
}

const MISSING: FileFault = FileFault::System(libc::ENOENT);
const NO_FOLDER: FileFault = FileFault::System(libc::ENOTDIR);

fn sum(folder: &Folder, name: &OsStr, most: u64, output: &EventOutput) -> Option<Sum> {
    let file = folder.file(name).ok()?;
    let bytes = file.metadata().ok()?.len();
    (bytes <= most).then(|| sums::of_beginning(&watch(output), &file, bytes).ok())?
}
