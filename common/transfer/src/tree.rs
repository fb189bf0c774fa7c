//! A directory below which files are written, whatever symbolic links there are.

use crate::folder::{self, Folder, GivenOwner, Links};
use crate::owner::{self, STICKY};
use crate::partial::{Finish, Partial, write_small};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wire::files::{Exposed, FileFault};

/// By its descriptor and by the path that the tool uses.
pub struct Tree {
    folder: Folder,
    path: PathBuf,
    /// Whether files and their directories are written to the disk (fsync).
    fsync: bool,
    /// Found when it is first needed, if this tree is written to. NFS with root_squash or
    /// all_squash gives another owner than this user (exports(5)).
    given: OnceLock<Option<GivenOwner>>,
    /// Directories that were just opened to be written to.
    known: HashMap<PathBuf, Folder>,
}

impl Tree {
    pub fn new(folder: Folder, path: &Path, fsync: bool) -> Tree {
        Tree {
            folder,
            path: path.to_owned(),
            fsync,
            given: OnceLock::new(),
            known: HashMap::new(),
        }
    }

    /// For a tree to which nothing may be written, not even for a moment.
    pub fn only_read(folder: Folder, path: &Path) -> Tree {
        Tree {
            given: OnceLock::from(None),
            ..Tree::new(folder, path, false)
        }
    }

    /// Whether the file system gives this owner what this user makes.
    fn is_given(&self, owner: GivenOwner) -> bool {
        *self.given.get_or_init(|| self.folder.given_owner()) == Some(owner)
    }

    pub fn exposed(&self, path: &Path) -> Option<Exposed> {
        folder::exposed(path, &|owner| self.is_given(owner))
    }

    /// Whether a directory is below it, by its path.
    pub fn has(&self, folder: &Path) -> bool {
        folder.starts_with(&self.path)
    }

    /// Makes missing directories.
    pub fn make(&mut self, folder: &Path) -> Result<Folder, FileFault> {
        if let Some(known) = self.known.get(folder) {
            return Ok(known.clone());
        }
        let opened = self.descend(folder, Links::Inside, true)?;
        self.known.insert(folder.to_owned(), opened.clone());
        Ok(opened)
    }

    pub fn find(&self, folder: &Path, links: Links) -> Result<Folder, FileFault> {
        self.descend(folder, links, false)
    }

    /// [`Folder::stat_end_of_link`], as links of the owner of this directory are followed.
    pub fn stat_end_of_link(&self, path: &Path, folder: &Folder) -> Result<Metadata, FileFault> {
        let (_, _, meta) = self.folder.stat_end_of_link(path, folder)?;
        Ok(meta)
    }

    /// Whether any user may have put a file into this directory. It belongs to another user than
    /// this one and root, and every user can write to the directory or to one between it and this
    /// tree. Otherwise those have put it there who may write: the owner and a group.
    pub fn is_foreign(&self, folder: &Folder, file: &Metadata) -> io::Result<bool> {
        let owner = file.uid();
        if owner::is_trusted(owner, folder) || self.is_given((file.dev(), owner)) {
            return Ok(false);
        }
        // a link of the user's own leads out, and has chosen what is below a sticky directory there
        let is_inside = self.folder.contains(folder)?;
        let place = |folder: &Folder| folder.metadata().map(|meta| (meta.dev(), meta.ino()));
        let top = place(&self.folder)?;
        let (mut folder, mut is_own_folder) = (folder.clone(), true);
        loop {
            let mode = folder.metadata()?.mode();
            if mode & 0o002 != 0 {
                return Ok(is_inside || is_own_folder || mode & STICKY == 0);
            }
            let above = folder.folder("..")?;
            if place(&folder)? == top || place(&folder)? == place(&above)? {
                return Ok(false);
            }
            (folder, is_own_folder) = (above, false);
        }
    }

    fn descend(&self, folder: &Path, links: Links, make: bool) -> Result<Folder, FileFault> {
        let below = folder.strip_prefix(&self.path);
        let below = below.map_err(|_| FileFault::LeadsOut(folder.into()))?;
        let opened = self.folder.descend(below, links, make);
        opened.map_err(|fault| match fault {
            FileFault::LeadsOut(_) => FileFault::LeadsOut(folder.into()),
            FileFault::LinkOfOther(_) => FileFault::LinkOfOther(folder.into()),
            FileFault::UnknownLink(_) => FileFault::UnknownLink(folder.into()),
            FileFault::RenamedLink(_) => FileFault::RenamedLink(folder.into()),
            other => other,
        })
    }

    /// Makes the directory of a file if it is missing; also returns the file's name.
    pub fn make_parent<'p>(&mut self, dst: &'p Path) -> Result<(Folder, &'p OsStr), FileFault> {
        let (folder, name) = split(dst).ok_or(FileFault::OutOfOrder)?;
        Ok((self.make(folder)?, name))
    }

    /// Writes under a temporary name, in the file's directory if none is given, and renames. The
    /// returned directory is not written to the disk yet.
    pub fn write_small(
        &mut self,
        dst: &Path,
        (passing, name): (Option<&Folder>, &OsStr),
        content: &[u8],
        finish: Finish,
    ) -> Result<Folder, FileFault> {
        let (folder, dst) = self.make_parent(dst)?;
        let passing = (passing.unwrap_or(&folder), name);
        write_small(passing, (&folder, dst), content, self.with_fsync(finish))?;
        Ok(folder)
    }

    /// The file must be complete.
    pub fn commit(
        &mut self,
        partial: &Partial,
        dst: &Path,
        finish: Finish,
    ) -> Result<(), FileFault> {
        self.forget();
        let (folder, name) = self.make_parent(dst)?;
        partial.finish((&folder, name), self.with_fsync(finish))?;
        self.sync([&folder])
    }

    fn with_fsync(&self, finish: Finish) -> Finish {
        let fsync = self.fsync;
        Finish { fsync, ..finish }
    }

    /// Does nothing without `fsync`.
    pub fn sync<'a>(&self, folders: impl IntoIterator<Item = &'a Folder>) -> Result<(), FileFault> {
        if !self.fsync {
            return Ok(());
        }
        let mut folders = folders.into_iter();
        folders.try_for_each(|folder| Ok(folder.sync_up_to(&self.folder)?))
    }

    /// Closes the directories that were opened: other users may have moved directories or made
    /// links there since.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

pub fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    path.parent().zip(path.file_name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown};

    #[test]
    fn what_has_the_owner_that_a_file_system_gives_this_user_is_not_foreign() {
        const NOBODY: u32 = 65534;
        let path = std::env::temp_dir().join(format!("dgl-tools-squash-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        fs::write(path.join("a"), "").unwrap();
        let folder = Folder::open(&path).unwrap();
        let is_foreign = |tree: &Tree| {
            let file = folder.stat("a").unwrap();
            tree.is_foreign(&folder, &file).unwrap()
        };
        let tree = Tree::new(folder.clone(), &path, false);
        assert!(!is_foreign(&tree));
        if nix::unistd::geteuid().is_root() {
            chown(path.join("a"), Some(NOBODY), None).unwrap();
            assert!(is_foreign(&tree), "this file system gives the user");
            let device = fs::metadata(&path).unwrap().dev();
            let of_others = Tree::only_read(folder.clone(), &path);
            let other_device = Tree::new(folder.clone(), &path, false);
            other_device.given.set(Some((device + 1, NOBODY))).unwrap();
            let squashed = Tree::new(folder.clone(), &path, false);
            squashed.given.set(Some((device, NOBODY))).unwrap();
            assert!(is_foreign(&of_others) && is_foreign(&other_device));
            assert!(!is_foreign(&squashed));

            chown(&path, Some(NOBODY), None).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            let owned = Some(Exposed::Owned(path.as_path().into()));
            assert_eq!(tree.exposed(&path), owned);
            assert_eq!(squashed.exposed(&path), None);
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "a probe remains");
        fs::remove_dir_all(path).unwrap();
    }
}
