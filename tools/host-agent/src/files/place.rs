//! Where files may go: below one folder, whatever links there are.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use wire::files::Fault;

/// The folder that all files belong below.
pub struct Place {
    /// Where it truly is.
    root: PathBuf,
    /// Folders that were found to lie in it just now.
    known: HashSet<PathBuf>,
}

impl Place {
    /// The folder must be there.
    pub fn new(base: &Path) -> io::Result<Place> {
        Ok(Place {
            root: base.canonicalize()?,
            known: HashSet::new(),
        })
    }

    /// Makes a folder, unless a link leads out of the place on the way.
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

    /// Somebody may have put a link anywhere since.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

/// Makes a folder and those above it.
pub fn make_all(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

/// Puts names in a folder on the disk.
pub fn sync(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}
