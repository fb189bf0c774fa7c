//! A directory by its descriptor, so that work below it stays there, whatever others rename or link
//! meanwhile.
//!
//! Files are opened by names that are no symbolic links. A link on the path to a directory is
//! followed only if this user, root or the owner of the workspace has made it, and if not every
//! user could have renamed it to this name; so are the links on the path to which it leads.

use crate::owner::{self, STICKY, Whose};
use crate::simulated::{Call, before, sync};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, linkat, syncfs, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::files::{Exposed, FileFault};

const TYPE: u32 = 0o170_000;
/// The mode of a missing directory, before the umask. Whatever that allows, others cannot write.
pub const NEW_FOLDER: u32 = 0o775;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Into the directory in which the path begins.
    Inside,
    /// Anywhere, for what is only read.
    Anywhere,
}

/// The device of a file system, and the owner that it shows for what this user has made.
pub type GivenOwner = (u64, u32);

/// An open directory. It need not be readable.
#[derive(Clone, Debug)]
pub struct Folder(Arc<OwnedFd>);

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn fault(error: Errno) -> FileFault {
    io::Error::from(error).into()
}

/// As many as Linux follows on one path (path_resolution(7)).
const MAX_LINKS: u32 = 40;

struct Walk<'a> {
    /// For messages.
    path: &'a Path,
    /// The owner of the workspace, whose links are followed like those of this user and root.
    owner: Option<u32>,
    make: bool,
    links: u32,
}

impl<'a> Walk<'a> {
    /// Follows only the links of this user and root.
    fn of_user(path: &'a Path, make: bool) -> Walk<'a> {
        Walk {
            path,
            owner: None,
            make,
            links: 0,
        }
    }

    fn to(&mut self, from: &Folder, path: &Path) -> Result<Folder, FileFault> {
        let mut folder = from.clone();
        for part in path.components() {
            folder = match part {
                Component::Normal(name) => self.enter(&folder, name)?.0,
                Component::CurDir | Component::Prefix(_) => continue,
                Component::ParentDir => {
                    open(&folder, Path::new(".."), OFlag::empty()).map_err(fault)?
                }
                Component::RootDir => Folder::root()?,
            };
        }
        Ok(folder)
    }

    /// Also returns whether the name is a link.
    fn enter(&mut self, folder: &Folder, name: &OsStr) -> Result<(Folder, bool), FileFault> {
        let next = match folder.folder(name) {
            Err(error) if self.make && error.kind() == io::ErrorKind::NotFound => {
                folder.make(name, NEW_FOLDER)?;
                folder.folder(name)
            }
            opened => opened,
        };
        match next {
            // the kernel's error for a link in the place of a directory
            Err(error) if error.raw_os_error() == Some(Errno::ENOTDIR as i32) => {
                Ok((self.follow(folder, name)?, true))
            }
            next => Ok((next?, false)),
        }
    }

    fn follow(&mut self, folder: &Folder, name: &OsStr) -> Result<Folder, FileFault> {
        let target = self.target(folder, name)?;
        // missing directories behind a link are not made
        let make = std::mem::take(&mut self.make);
        let next = self.to(folder, &target);
        self.make = make;
        next
    }

    fn target(&mut self, folder: &Folder, name: &OsStr) -> Result<PathBuf, FileFault> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let link = openat(folder, name, flags, Mode::empty()).map_err(fault)?;
        let meta = fstat(&link).map_err(fault)?;
        if meta.st_mode & TYPE != nix::libc::S_IFLNK {
            return Err(fault(Errno::ENOTDIR));
        }
        let whose = owner::whose(meta.st_uid, folder);
        match whose {
            Whose::Trusted => {}
            _ if self.owner == Some(meta.st_uid) => {}
            Whose::Other => return Err(FileFault::LinkOfOther(self.path.into())),
            Whose::Unknown => return Err(FileFault::UnknownLink(self.path.into())),
        }
        // The owner of a directory could have renamed a link of this user there, as he could a
        // directory: `exposed` names him. Members of a group that may write are trusted.
        let others_rename = folder.is_open().map_err(fault)?
            || whose != Whose::Trusted && !self.is_trusted(folder).map_err(fault)?;
        if others_rename {
            return Err(FileFault::RenamedLink(self.path.into()));
        }
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(fault(Errno::ELOOP));
        }
        // the target of this very link, whatever has its name by now
        Ok(readlinkat(&link, "").map_err(fault)?.into())
    }

    /// Whether this directory belongs to a user whose links are followed.
    fn is_trusted(&self, folder: &Folder) -> nix::Result<bool> {
        let owner = fstat(folder)?.st_uid;
        Ok(self.owner == Some(owner) || folder.whose()? == Whose::Trusted)
    }
}

/// Needs no right to read the directory.
fn open(parent: impl AsFd, path: &Path, more: OFlag) -> nix::Result<Folder> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | more;
    openat(parent, path, flags, Mode::empty()).map(|folder| Folder(Arc::new(folder)))
}

impl Folder {
    fn root() -> io::Result<Folder> {
        Ok(open(AT_FDCWD, Path::new("/"), OFlag::empty())?)
    }

    /// Follows links that this user or root has made.
    pub fn open(path: &Path) -> Result<Folder, FileFault> {
        Folder::along(path, false)
    }

    /// Makes missing directories, as the umask allows.
    pub fn open_or_make(path: &Path) -> Result<Folder, FileFault> {
        Folder::along(path, true)
    }

    fn along(path: &Path, make: bool) -> Result<Folder, FileFault> {
        let here = open(AT_FDCWD, Path::new("."), OFlag::empty()).map_err(fault)?;
        Walk::of_user(path, make).to(&here, path)
    }

    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Folder> {
        Ok(open(self, Path::new(name.as_ref()), OFlag::O_NOFOLLOW)?)
    }

    /// With `make`, makes missing directories, as the umask allows.
    pub fn descend(&self, path: &Path, links: Links, make: bool) -> Result<Folder, FileFault> {
        let mut walk = self.walk(path, make)?;
        let mut folder = self.clone();
        for part in path.components() {
            let name = match part {
                Component::Normal(name) => name,
                Component::CurDir => continue,
                _ => return Err(FileFault::LeadsOut(path.into())),
            };
            let (next, is_link) = walk.enter(&folder, name)?;
            if is_link && links == Links::Inside && !self.contains(&next)? {
                return Err(FileFault::LeadsOut(path.into()));
            }
            folder = next;
        }
        Ok(folder)
    }

    /// Follows links below this directory, also those of its owner.
    fn walk<'p>(&self, path: &'p Path, make: bool) -> Result<Walk<'p>, FileFault> {
        let owner = fstat(self).map_err(fault)?.st_uid;
        Ok(Walk {
            path,
            owner: (!owner::is_shared(owner)).then_some(owner),
            make,
            links: 0,
        })
    }

    /// The directory and the name of what the last component of a path leads to. It is a link in
    /// `folder`.
    pub fn end_of_link(
        &self,
        path: &Path,
        folder: &Folder,
    ) -> Result<(Folder, OsString), FileFault> {
        let mut walk = self.walk(path, false)?;
        let mut folder = folder.clone();
        let mut name = path.file_name().unwrap_or_default().to_owned();
        while folder.is_link(&name) {
            let target = walk.target(&folder, &name)?;
            (folder, name) = match (target.parent(), target.file_name()) {
                (Some(parent), Some(name)) => (walk.to(&folder, parent)?, name.to_owned()),
                // it ends with .. or is /
                _ => (walk.to(&folder, &target)?, ".".into()),
            };
        }
        Ok((folder, name))
    }

    /// The same, with the attributes of what the link leads to.
    pub fn stat_end_of_link(
        &self,
        path: &Path,
        folder: &Folder,
    ) -> Result<(Folder, OsString, Metadata), FileFault> {
        const ENOENT: i32 = Errno::ENOENT as i32;
        const ENOTDIR: i32 = Errno::ENOTDIR as i32;
        let end = self.end_of_link(path, folder).and_then(|(end, name)| {
            let meta = end.stat(&name)?;
            Ok((end, name, meta))
        });
        end.map_err(|fault| match fault {
            FileFault::System(ENOENT | ENOTDIR) => FileFault::BrokenLink,
            fault => fault,
        })
    }

    pub fn is_link(&self, name: impl AsRef<OsStr>) -> bool {
        readlinkat(self, name.as_ref()).is_ok()
    }

    /// Also true of this directory itself.
    pub fn contains(&self, folder: &Folder) -> io::Result<bool> {
        Ok(folder.real_path()?.starts_with(self.real_path()?))
    }

    fn whose(&self) -> nix::Result<Whose> {
        let parent = open(self, Path::new(".."), OFlag::empty())?;
        Ok(owner::whose(fstat(self)?.st_uid, parent))
    }

    /// Whether all users may rename what is in it.
    fn is_open(&self) -> nix::Result<bool> {
        Ok(fstat(self)?.st_mode & (0o002 | STICKY) == 0o002)
    }

    fn exposed(&self, is_given: &dyn Fn(GivenOwner) -> bool) -> Option<Exposed> {
        let path = || Some(self.real_path().ok()?.into());
        let meta = fstat(self).ok()?;
        if self.whose() == Ok(Whose::Other) && !is_given((meta.st_dev, meta.st_uid)) {
            path().map(Exposed::Owned)
        } else if self.is_open() == Ok(true) {
            path().map(Exposed::Writable)
        } else {
            None
        }
    }

    fn real_path(&self) -> io::Result<PathBuf> {
        fs::read_link(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Opens or makes a regular file; no other user may open a new one. A FIFO or device does not
    /// block.
    pub fn open_file(&self, name: impl AsRef<OsStr>, flags: OFlag) -> io::Result<File> {
        let flags =
            flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o600);
        before(if flags.contains(OFlag::O_CREAT) {
            Call::Write
        } else {
            Call::Read
        })?;
        let file = File::from(openat(self, name.as_ref(), flags, mode)?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    pub fn file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_file(name, OFlag::O_RDONLY)
    }

    pub fn create(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut file = self.open_file(name, flags)?;
        before(Call::Write)?;
        file.write_all(content)?;
        Ok(file)
    }

    /// Succeeds if the directory exists.
    pub fn make(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
        match self.make_new(name, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    pub fn make_new(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
        before(Call::Write)?;
        Ok(mkdirat(
            self,
            name.as_ref(),
            Mode::from_bits_truncate(mode),
        )?)
    }

    /// Opens a file that may be read while it is written: a new file with this mode before the
    /// umask, or a FIFO or link that this user has put there. A file behind the link gets no more
    /// rights than this mode.
    pub fn open_log(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let mode = Mode::from_bits_truncate(mode);
        let found = match self.new_or_found(name.as_ref(), mode)? {
            NewOrFound::New(file) => return Ok(file),
            NewOrFound::Found(found) => found,
        };
        let meta = fstat(&found)?;
        if meta.st_uid != geteuid().as_raw() {
            return Err(io::Error::other("something of another user has this name"));
        }
        match meta.st_mode & TYPE {
            nix::libc::S_IFLNK => {
                let mut walk = Walk::of_user(Path::new(name.as_ref()), false);
                let in_words = |fault: FileFault| io::Error::other(fault.to_string());
                // the owner of the directory could choose which file of this user is emptied
                if !walk.is_trusted(self)? {
                    return Err(in_words(FileFault::RenamedLink(walk.path.into())));
                }
                let target = walk.target(self, name.as_ref()).map_err(in_words)?;
                let parent = target.parent().unwrap_or(Path::new("."));
                let folder = walk.to(self, parent).map_err(in_words)?;
                let name = target.file_name().ok_or(io::ErrorKind::IsADirectory)?;
                match folder.new_or_found(name, mode)? {
                    NewOrFound::New(file) => Ok(file),
                    NewOrFound::Found(found) => open_behind_link(&found, &folder, mode),
                }
            }
            nix::libc::S_IFIFO => reopen(&found),
            _ => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    fn new_or_found(&self, name: &OsStr, mode: Mode) -> io::Result<NewOrFound> {
        let new = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        match openat(self, name, new, mode) {
            Err(Errno::EEXIST) => {}
            opened => return Ok(NewOrFound::New(File::from(opened?))),
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = openat(self, name, flags, Mode::empty())?;
        Ok(NewOrFound::Found(found))
    }

    pub fn rename(
        &self,
        name: impl AsRef<OsStr>,
        folder: &Folder,
        new: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        before(Call::Change)?;
        Ok(renameat(self, name.as_ref(), folder, new.as_ref())?)
    }

    /// Fails if the new name is taken.
    pub fn link(&self, name: impl AsRef<OsStr>, new: impl AsRef<OsStr>) -> io::Result<()> {
        before(Call::Write)?;
        Ok(linkat(
            self,
            name.as_ref(),
            self,
            new.as_ref(),
            AtFlags::empty(),
        )?)
    }

    /// Succeeds if there is no such file.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        before(Call::Change)?;
        match unlinkat(self, name.as_ref(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        before(Call::Change)?;
        Ok(unlinkat(self, name.as_ref(), UnlinkatFlags::RemoveDir)?)
    }

    /// A link is not followed.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<Metadata> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        File::from(openat(self, name.as_ref(), flags, Mode::empty())?).metadata()
    }

    pub fn metadata(&self) -> io::Result<Metadata> {
        self.stat(".")
    }

    /// Fails if some names cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        self.names_in(OsStr::new("."))
    }

    /// Needs only the right to list that directory.
    pub fn names_in(&self, name: &OsStr) -> io::Result<Vec<OsString>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut folder = Dir::openat(self, name, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in folder.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Needs the right to read the directory.
    pub fn as_file(&self) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(File::from(openat(self, ".", flags, Mode::empty())?))
    }

    /// Writes to the disk what has changed in this directory and in those above it, up to `top`: a
    /// new directory has its name there.
    pub fn sync_up_to(&self, top: &Folder) -> io::Result<()> {
        let (path, top) = (self.real_path()?, top.real_path()?);
        let below = path.strip_prefix(&top).unwrap_or(Path::new(""));
        let mut folder = self.clone();
        let mut last = None;
        for level in 0..=below.components().count() {
            if level > 0 {
                folder = folder.folder("..")?;
            }
            match (folder.as_file(), &last) {
                // only a directory that can be read can be synced, or else its file system
                (Err(error), Some(last)) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Ok(syncfs(last)?);
                }
                (file, _) => sync(last.insert(file?))?,
            }
        }
        Ok(())
    }

    /// Whether this user has made the directory. A file system may show other owners, as NFS does
    /// to root.
    pub fn is_ours(&self) -> bool {
        fstat(self).is_ok_and(|meta| {
            meta.st_uid == geteuid().as_raw()
                || self
                    .given_owner()
                    .is_some_and(|(_, owner)| owner == meta.st_uid)
        })
    }

    /// The owner that the file system gives what this user makes here, as a new file shows it.
    pub fn given_owner(&self) -> Option<GivenOwner> {
        // a name that no other host of a push uses at the same time
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = time.unwrap_or_default().as_nanos();
        let name = format!(".owner.{}.{nanos}", std::process::id());
        let file = self.create(&name, &[]).ok()?;
        let _ = self.remove(&name);
        let meta = file.metadata().ok()?;
        Some((meta.dev(), meta.uid()))
    }

    /// Whether members of a group may write to it that is not this user's own, which usually has
    /// the number of the user.
    pub fn is_writable_by_group(&self) -> bool {
        fstat(self).is_ok_and(|meta| meta.st_mode & 0o020 != 0 && meta.st_gid != geteuid().as_raw())
    }

    pub fn is_private(&self) -> bool {
        fstat(self).is_ok_and(|meta| meta.st_mode & 0o022 == 0) && self.is_ours()
    }
}

enum NewOrFound {
    New(File),
    /// By its name alone: to open the FIFO or device of another user could wait without a limit.
    Found(OwnedFd),
}

/// Opens what was found, whatever has its name by now.
fn reopen(found: &OwnedFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlag::O_WRONLY | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let opened = openat(AT_FDCWD, path.as_str(), flags, Mode::empty())?;
    Ok(File::from(opened))
}

/// Opens what a link leads to, and empties a file. A FIFO or device may also be root's, such as
/// /dev/null. A file of another user is refused, and one with several names, which may be in places
/// that this user did not mean.
fn open_behind_link(found: &OwnedFd, folder: &Folder, mode: Mode) -> io::Result<File> {
    let meta = fstat(found)?;
    let is_file = meta.st_mode & TYPE == nix::libc::S_IFREG;
    let is_accepted = if is_file {
        meta.st_uid == geteuid().as_raw() && meta.st_nlink == 1
    } else {
        owner::is_trusted(meta.st_uid, folder)
    };
    if !is_accepted {
        return Err(io::Error::other(
            "the link leads to something of another user, or to a file that has several names",
        ));
    }
    let file = reopen(found)?;
    if is_file {
        empty(&file, mode)?;
    }
    Ok(file)
}

fn empty(file: &File, mode: Mode) -> io::Result<()> {
    let meta = file.metadata()?;
    if meta.mode() & 0o777 & !mode.bits() != 0 {
        file.set_permissions(fs::Permissions::from_mode(meta.mode() & mode.bits()))?;
    }
    file.set_len(0)
}

/// The first directory whose content other users can replace, from `/` down to this one or to the
/// last one above it that exists, among those too that hold a link on the way. A group that may
/// write counts as trusted.
///
/// What belongs to a given owner is this user's.
pub fn exposed(path: &Path, is_given: &dyn Fn(GivenOwner) -> bool) -> Option<Exposed> {
    let path = std::path::absolute(path).ok()?;
    let path = path.ancestors().find(|path| path.is_dir())?;
    let folders = resolution(path).into_iter();
    let mut folders = folders.filter_map(|path| open(AT_FDCWD, &path, OFlag::O_NOFOLLOW).ok());
    folders.find_map(|folder| folder.exposed(is_given))
}

/// All directories and links that decide where an absolute path leads, in the order in which the
/// kernel meets them (path_resolution(7)). Their own paths lead through no link.
pub fn resolution(path: &Path) -> Vec<PathBuf> {
    let mut met = Vec::new();
    let mut folder = PathBuf::from("/");
    let mut links = 0;
    let mut left: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let mut parts = path.components();
        let Some(part) = parts.next() else { continue };
        left.push(parts.as_path().to_owned());
        let next = match part {
            Component::ParentDir => folder.parent().unwrap_or(&folder).to_owned(),
            part => folder.join(part),
        };
        met.push(next.clone());
        match fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                left.push(target);
            }
            _ => folder = next,
        }
    }
    met
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn a_log_goes_through_a_link_only_to_what_no_other_user_or_name_has() {
        let path = std::env::temp_dir().join(format!("dgl-tools-logs-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let folder = Folder::open(&path).unwrap();
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().mode() & 0o777;
        let set_mode = |name: &str, mode| {
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::write(path.join("target"), "earlier").unwrap();
        set_mode("target", 0o644);
        symlink("target", path.join("link")).unwrap();
        let log = folder.open_log("link", 0o600).unwrap();
        assert_eq!((mode("target"), log.metadata().unwrap().len()), (0o600, 0));
        symlink("new", path.join("to-new")).unwrap();
        folder.open_log("to-new", 0o600).unwrap();
        assert_eq!(mode("new"), 0o600);
        symlink("/dev/null", path.join("null")).unwrap();
        folder.open_log("null", 0o600).unwrap();

        fs::write(path.join("model"), "model").unwrap();
        fs::hard_link(path.join("model"), path.join("second")).unwrap();
        symlink("model", path.join("to-model")).unwrap();
        assert!(folder.open_log("to-model", 0o600).is_err());
        mkfifo(&path.join("fifo"), Mode::S_IRWXU).unwrap();
        symlink("fifo", path.join("to-fifo")).unwrap();
        // with a reader, a wrong attempt does not wait
        let nonblocking = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        let _reader = openat(&folder, "fifo", nonblocking, Mode::empty()).unwrap();
        folder.open_log("fifo", 0o600).unwrap();
        folder.open_log("to-fifo", 0o600).unwrap();
        // only root can give it to another user
        if chown(path.join("fifo"), Some(12345), None).is_ok() {
            assert!(folder.open_log("to-fifo", 0o600).is_err());
        }

        // anybody may have renamed the link
        set_mode("", 0o777);
        assert!(folder.open_log("link", 0o600).is_err());
        set_mode("", 0o1777);
        assert!(folder.open_log("link", 0o600).is_ok());
        assert_eq!(fs::read(path.join("model")).unwrap(), b"model");
        fs::remove_dir_all(path).unwrap();
    }
}
