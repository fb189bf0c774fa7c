//! The folder below which all files of a push belong, whatever symbolic links there are.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use transfer::folder::{Folder, Links};
use wire::files::FileFault;

/// The folder, by its descriptor and by the path that the tool uses.
pub struct Workspace {
    folder: Folder,
    path: PathBuf,
    /// Folders below it that were just opened to be written to.
    known: HashMap<PathBuf, Folder>,
}

impl Workspace {
    /// The folder of this path.
    pub fn new(folder: Folder, path: PathBuf) -> Workspace {
        Workspace {
            folder,
            path,
            known: HashMap::new(),
        }
    }

    /// Whether a folder lies below it by its path.
    pub fn has(&self, folder: &Path) -> bool {
        folder.starts_with(&self.path)
    }

    /// Opens a folder to write to it, and makes what is missing of it.
    pub fn make(&mut self, folder: &Path) -> Result<Folder, FileFault> {
        if let Some(known) = self.known.get(folder) {
            return Ok(known.clone());
        }
        let opened = self.descend(folder, Links::Inside, true)?;
        self.known.insert(folder.to_owned(), opened.clone());
        Ok(opened)
    }

    /// Opens a folder to read what is there. The user's own links may lead elsewhere.
    pub fn find(&self, folder: &Path) -> Result<Folder, FileFault> {
        self.descend(folder, Links::Anywhere, false)
    }

    fn descend(&self, folder: &Path, links: Links, make: bool) -> Result<Folder, FileFault> {
        let below = folder.strip_prefix(&self.path);
        let below = below.map_err(|_| FileFault::LeadsOut(folder.into()))?;
        let opened = self.folder.descend(below, links, make);
        opened.map_err(|fault| match fault {
            FileFault::LeadsOut(_) => FileFault::LeadsOut(folder.into()),
            FileFault::LinkOfOther(_) => FileFault::LinkOfOther(folder.into()),
            other => other,
        })
    }

    /// Closes the folders that were opened, because somebody may have moved one since.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

/// The folder and the name of a file.
pub fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    path.parent().zip(path.file_name())
}
