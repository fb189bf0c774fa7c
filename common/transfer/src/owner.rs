//! Decides which owners count as this user or root. `guarded` in common/remote/src/bootstrap.sh
//! has the same rule for hosts without an agent.
//!
//! In a user namespace that does not map root, root and all other users have the same uid. What has
//! this uid counts as root's only in [`OF_ROOT`] and in the directories above this user's home, and
//! only where other users cannot create names: a directory of another user may be closed, too.

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::geteuid;
use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// In a directory with this bit, users cannot remove or rename files of others.
pub const STICKY: u32 = 0o1000;

/// Directories in which nobody but root makes something (Filesystem Hierarchy Standard).
const OF_ROOT: [&str; 3] = ["/", "/dev", "/var"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This user's or root's.
    Trusted,
    /// Another user's.
    Other,
    /// Root's or another user's: this user namespace does not show whose.
    Unknown,
}

/// Whose something in this directory is that has this owner.
pub fn whose(owner: u32, folder: impl AsFd) -> Whose {
    let is_shared = is_shared(owner);
    if owner == 0 || owner == geteuid().as_raw() && !is_shared {
        return Whose::Trusted;
    }
    let is_roots = fs::metadata("/").is_ok_and(|root| root.uid() == owner)
        && is_of_root(&folder).unwrap_or(false)
        && is_closed_up_to_root(folder).unwrap_or(false);
    match (is_roots, is_shared) {
        (true, _) => Whose::Trusted,
        (false, true) => Whose::Unknown,
        (false, false) => Whose::Other,
    }
}

/// Whether something in this directory that has this owner belongs to this user or to root.
pub fn is_trusted(owner: u32, folder: impl AsFd) -> bool {
    whose(owner, folder) == Whose::Trusted
}

/// Whether it is one of [`OF_ROOT`], or above this user's home.
fn is_of_root(folder: impl AsFd) -> io::Result<bool> {
    let number = folder.as_fd().as_raw_fd();
    let folder = fs::read_link(format!("/proc/self/fd/{number}"))?;
    let home = env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let above_home = home.as_deref().and_then(Path::parent);
    let is_folder = |of_root| folder == Path::new(of_root);
    Ok(OF_ROOT.into_iter().any(is_folder)
        || above_home.is_some_and(|above| above.starts_with(&folder)))
}

/// Like [`is_trusted`], for what has this path. A link as the last component is not followed.
pub fn is_path_trusted(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let folder = openat(AT_FDCWD, folder, flags, Mode::empty());
    let owner = fs::symlink_metadata(path).map(|meta| meta.uid());
    folder.is_ok_and(|folder| owner.is_ok_and(|owner| is_trusted(owner, folder)))
}

/// Whether only the owners of this directory and of those above it can create names there.
fn is_closed_up_to_root(folder: impl AsFd) -> nix::Result<bool> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let above = |folder: &dyn AsFd| -> nix::Result<(OwnedFd, FileStat)> {
        let above = openat(folder.as_fd(), "..", flags, Mode::empty())?;
        let stat = fstat(&above)?;
        Ok((above, stat))
    };
    let mut stat = fstat(&folder)?;
    let (mut parent, mut parent_stat) = above(&folder)?;
    while stat.st_mode & 0o022 == 0 {
        if (stat.st_dev, stat.st_ino) == (parent_stat.st_dev, parent_stat.st_ino) {
            return Ok(true);
        }
        stat = parent_stat;
        (parent, parent_stat) = above(&parent)?;
    }
    Ok(false)
}

/// Whether this uid stands for all users that this user namespace does not map
/// (user_namespaces(7)).
pub fn is_shared(uid: u32) -> bool {
    let shown_for_others = fs::read_to_string("/proc/sys/kernel/overflowuid")
        .is_ok_and(|text| text.trim().parse() == Ok(uid));
    shown_for_others
        && fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !has_uid(&map, uid))
}

/// Whether a line of /proc/PID/uid_map has this uid: the first uid inside, the first one outside,
/// and how many follow.
fn has_uid(uid_map: &str, uid: u32) -> bool {
    uid_map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        match (numbers.next(), numbers.nth(1)) {
            (Some(Ok(first)), Some(Ok(count))) => uid >= first && uid - first < count,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_mapped_by_the_range_that_has_it() {
        let table = [
            ("         0          0 4294967295\n", true),
            ("      1000       1000          1\n", false),
            ("0 1000 1\n1 100000 65536\n", true),
            ("0 1000 1\n1 100000 65533\n", false),
            ("", false),
        ];
        for (map, has) in table {
            assert_eq!(has_uid(map, 65534), has, "{map:?}");
        }
    }
}
