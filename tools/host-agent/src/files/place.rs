//! The place where files may go: below one folder, whatever symbolic links there are.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use wire::files::Fault;

/// The folder below which all files belong.
pub struct Place {
    /// The real path of the folder, without symbolic links.
    root: PathBuf,
    /// Folders that were just found to lie in it.
    known: HashSet<PathBuf>,
}

impl Place {
    /// The folder must exist.
    pub fn new(base: &Path) -> io::Result<Place> {
        Ok(Place {
            root: base.canonicalize()?,
            known: HashSet::new(),
        })
    }

    /// Makes a folder, unless a symbolic link leads out of the place on the way.
    pub fn make(&mut self, folder: &Path) -> Result<(), Fault> {
        if self.known.contains(folder) {
            return Ok(());
        }
        if folder.components().any(|part| part == Component::ParentDir) {
            return Err(Fault::LeadsOut(folder.into()));
        }
        let there = folder
            .ancestors()
            .find(|above| above.is_dir())
            .unwrap_or(Path::new("/"));
        let real = there
            .canonicalize()
            .map_err(|error| Fault::system(&error))?;
        if !real.starts_with(&self.root) {
            return Err(Fault::LeadsOut(folder.into()));
        }
        make_all(folder).map_err(|error| Fault::system(&error))?;
        self.known.insert(folder.to_owned());
        Ok(())
    }

    /// Forgets what was found, because somebody may have added a symbolic link since.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

/// Makes a folder and all of its parents.
pub fn make_all(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

/// Writes the names in a folder to the disk (fsync).
pub fn sync(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}
