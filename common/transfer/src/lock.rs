//! A lock on a directory, so that only one copy at a time works there: a file in it with an
//! flock(2), which the kernel releases when its processes end, however they end.
//!
//! The file names its owner, and is never changed. All processes of one owner, on all hosts that
//! see the directory, hold the lock shared; only a process that holds it alone removes it.

use crate::folder::Folder;
use crate::simulated::{Call, before};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::geteuid;
use std::ffi::OsString;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// In bytes.
const LONGEST_NAME: u64 = 256;
/// Mount options by which an NFS or a Lustre client keeps locks to itself, and file systems that
/// always do (github.com/libfuse/sshfs/pull/55 and github.com/s3fs-fuse/s3fs-fuse/issues/2137).
const LOCAL_LOCKS: [&str; 6] = [
    "nolock",
    "local_lock=all",
    "local_lock=flock",
    "localflock",
    "fuse.sshfs",
    "fuse.s3fs",
];

/// How long a tool waits for the others that have a lock. While they live, they may be copying.
pub const PATIENCE: Duration = Duration::from_secs(3600);

/// Attempts while the owner changes, and the pause between them.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(2);

/// Held until it is dropped.
pub struct Lock {
    folder: Folder,
    name: &'static str,
    file: Flock<File>,
}

pub enum LockAttempt {
    /// This owner has the lock.
    Taken(Lock),
    /// Another owner, with this name, has it.
    Busy(String),
    /// The file system of the directory has no locks.
    NoLocks(Errno),
}

/// Held until it is dropped.
pub struct FileLock {
    _file: Flock<File>,
}

impl FileLock {
    /// Fails with `WouldBlock` if another process has it; the file system may have no locks.
    pub fn take(file: &File) -> io::Result<FileLock> {
        match flock(file.try_clone()?, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(FileLock { _file: file }),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// The file may be open for reading only.
    pub fn is_taken(file: &File) -> io::Result<bool> {
        let attempt = flock(file.try_clone()?, FlockArg::LockSharedNonblock);
        Ok(matches!(attempt, Err((_, Errno::EWOULDBLOCK))))
    }
}

fn flock(file: File, how: FlockArg) -> Result<Flock<File>, (File, Errno)> {
    match before(Call::Lock) {
        Ok(()) => Flock::lock(file, how),
        Err(error) => Err((file, Errno::from_raw(error.raw_os_error().unwrap_or(0)))),
    }
}

impl Lock {
    pub fn take(folder: &Folder, name: &'static str, owner: &str) -> io::Result<LockAttempt> {
        for _ in 0..ATTEMPTS {
            let Some(file) = open(folder, name)? else {
                match make(folder, name, owner)? {
                    Made::Taken(file) => return Ok(Lock::taken(folder, name, file)),
                    Made::NoLocks(error) => return Ok(LockAttempt::NoLocks(error)),
                    Made::Late => continue,
                }
            };
            // the owner before may have removed it
            let Some(holder) = read(&file)?.filter(|_| has_name(&file, folder, name)) else {
                continue;
            };
            let file = match flock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    // its processes have ended
                    if has_name(&lock, folder, name) {
                        folder.remove(name)?;
                    }
                    continue;
                }
                Err((file, Errno::EWOULDBLOCK)) => file,
                // on NFS, the lock of another user, to which this one must not write
                Err((_, Errno::EBADF)) => return Ok(LockAttempt::Busy(holder)),
                Err((_, error)) => return no_locks(error).map(LockAttempt::NoLocks),
            };
            if holder != owner {
                return Ok(LockAttempt::Busy(holder));
            }
            match flock(file, FlockArg::LockSharedNonblock) {
                Ok(file) if has_name(&file, folder, name) => {
                    return Ok(Lock::taken(folder, name, file));
                }
                Ok(_) => {}
                // another process checks whether it is held
                Err((_, Errno::EWOULDBLOCK)) => std::thread::sleep(PAUSE),
                Err((_, error)) => return no_locks(error).map(LockAttempt::NoLocks),
            }
        }
        Ok(LockAttempt::Busy(String::new()))
    }

    fn taken(folder: &Folder, name: &'static str, file: Flock<File>) -> LockAttempt {
        remove_left(folder, name);
        LockAttempt::Taken(Lock {
            folder: folder.clone(),
            name,
            file,
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let is_last = before(Call::Lock)
            .is_ok_and(|()| self.file.relock(FlockArg::LockExclusiveNonblock).is_ok());
        if is_last && has_name(&self.file, &self.folder, self.name) {
            let _ = self.folder.remove(self.name);
        }
    }
}

/// A file beside the lock that shows for a while that a directory is about to be used. If its
/// process is killed, the next one that takes the lock removes it.
pub struct Mark {
    folder: Folder,
    name: String,
    _lock: Option<FileLock>,
}

impl Mark {
    pub fn put(folder: &Folder, name: &str, owner: &str) -> io::Result<Mark> {
        let file = folder.create(name, owner.as_bytes())?;
        Ok(Mark {
            folder: folder.clone(),
            name: name.to_owned(),
            _lock: FileLock::take(&file).ok(),
        })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.name);
    }
}

enum Made {
    Taken(Flock<File>),
    Late,
    NoLocks(Errno),
}

/// The file has its owner and is locked before it gets its name, so that no other process finds it
/// without them.
fn make(folder: &Folder, name: &str, owner: &str) -> io::Result<Made> {
    let new = new_name(name);
    let file = folder.create(&new, owner.as_bytes());
    let made = file.and_then(|file| give_name(folder, (&new, file), name));
    let _ = folder.remove(&new);
    made
}

/// The name of a file beside a lock, which no other process uses.
pub fn new_name(lock: &str) -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = time.unwrap_or_default().as_nanos();
    format!("{lock}.{}.{nanos}", std::process::id())
}

fn give_name(folder: &Folder, (new, file): (&str, File), name: &str) -> io::Result<Made> {
    // all who can write in the directory can open the file
    let of_folder = folder.metadata()?.mode();
    let (group, others) = ((of_folder & 0o020) * 3, (of_folder & 0o002) * 3);
    before(Call::Change)?;
    file.set_permissions(Permissions::from_mode(0o600 | group | others))?;
    let lock = match flock(file, FlockArg::LockSharedNonblock) {
        Ok(lock) => lock,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(Made::Late),
        Err((_, error)) => return no_locks(error).map(Made::NoLocks),
    };
    match folder.link(new, name) {
        Ok(()) => Ok(Made::Taken(lock)),
        // another process has the lock; it may have removed this file as well
        Err(error) if [ErrorKind::AlreadyExists, ErrorKind::NotFound].contains(&error.kind()) => {
            Ok(Made::Late)
        }
        // a file system without hard links
        Err(_) if folder.stat(name).is_err() => {
            folder.rename(new, folder, name).map(|()| Made::Taken(lock))
        }
        Err(_) => Ok(Made::Late),
    }
}

/// Removes the files of processes that were killed while they made the lock. A process at work that
/// loses its file before it has locked it makes another one.
fn remove_left(folder: &Folder, name: &str) {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_new = |new: &OsString| {
        let rest = new
            .to_str()
            .and_then(|new| new.strip_prefix(name)?.strip_prefix('.'));
        rest.and_then(|rest| rest.split_once('.'))
            .is_some_and(|(process, nanos)| is_number(process) && is_number(nanos))
    };
    let names = folder.names().unwrap_or_default().into_iter();
    for new in names.filter(is_new) {
        let Ok(file) = folder.file(&new) else {
            continue;
        };
        let is_ours = file
            .metadata()
            .is_ok_and(|meta| meta.uid() == geteuid().as_raw());
        if is_ours && read(&file).is_ok() && FileLock::take(&file).is_ok() {
            let _ = folder.remove(&new);
        }
    }
}

fn no_locks(error: Errno) -> io::Result<Errno> {
    match error {
        Errno::ENOSYS | Errno::ENOLCK | Errno::EOPNOTSUPP => Ok(error),
        error => Err(error.into()),
    }
}

/// Does not change the file, because anybody who can write in the directory may have given another
/// file this name.
fn open(folder: &Folder, name: &str) -> io::Result<Option<File>> {
    // NFS wants the right to write for a lock that excludes others
    let opened = folder.open_file(name, OFlag::O_RDWR).or_else(|error| {
        if error.kind() == ErrorKind::PermissionDenied {
            return folder.file(name);
        }
        Err(error)
    });
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // older versions used a link as the lock
        Err(error) => {
            let is_ours = |link: Metadata| link.is_symlink() && link.uid() == geteuid().as_raw();
            if folder.stat(name).is_ok_and(is_ours) {
                folder.remove(name)?;
                return Ok(None);
            }
            Err(error)
        }
    }
}

/// The owner that the file names; `None` if the file is being removed. A file that names none is
/// not a lock, and is left alone.
fn read(mut file: &File) -> io::Result<Option<String>> {
    let meta = file.metadata()?;
    file.rewind()?;
    let text = io::read_to_string(file.take(LONGEST_NAME + 1)).ok();
    let owner = text.filter(|text| {
        text.len() as u64 <= LONGEST_NAME && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    match meta.nlink() {
        0 => Ok(None),
        // beside the name with which it was made
        1 | 2 if owner.is_some() => Ok(owner),
        _ => Err(io::Error::other(
            "a file that is not a lock has the name of the lock",
        )),
    }
}

fn has_name(file: &File, folder: &Folder, name: &str) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), folder.stat(name)) else {
        return false;
    };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// The mount option, or the type of file system, that keeps the locks of a directory from other
/// hosts.
pub fn local_option(folder: &Folder) -> Option<&'static str> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let device = folder.metadata().ok()?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    option_in(&mounts, &format!("{major}:{minor}"))
}

/// `device` is major:minor.
fn option_in(mounts: &str, device: &str) -> Option<&'static str> {
    let is_of_device = |line: &&str| line.split(' ').nth(2) == Some(device);
    let options = mounts.lines().filter(is_of_device).flat_map(|line| {
        let (mount, system) = line.split_once(" - ").unwrap_or_default();
        let of_mount = mount.split(' ').nth(5).unwrap_or_default();
        let mut system = system.split(' ');
        let kind = system.next();
        let of_system = system.nth(1).unwrap_or_default();
        let options = of_mount.split(',').chain(of_system.split(','));
        options.chain(kind)
    });
    let known = |option: &str| LOCAL_LOCKS.into_iter().find(|local| *local == option);
    options.into_iter().find_map(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_take_turns_and_processes_of_one_owner_share() {
        let path = std::env::temp_dir().join(format!("dgl-tools-lock-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let folder = Folder::open(&path).unwrap();
        let take = |owner: &str| match Lock::take(&folder, "lock", owner).unwrap() {
            LockAttempt::Taken(lock) => Ok(lock),
            LockAttempt::Busy(holder) => Err(holder),
            LockAttempt::NoLocks(error) => panic!("{error}"),
        };
        let (first, second) = (take("a").unwrap(), take("a").unwrap());
        assert_eq!(take("b").err(), Some("a".to_owned()));
        drop(first);
        assert_eq!(
            take("b").err(),
            Some("a".to_owned()),
            "the other has it still"
        );
        drop(second);
        assert!(folder.stat("lock").is_err(), "the last one removes it");
        // left by a process that was killed
        folder.create("lock", b"dead").unwrap();
        let third = take("b").unwrap();
        assert_eq!(take("a").err(), Some("b".to_owned()));
        drop(third);
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn what_a_process_left_that_was_killed_while_it_made_the_lock_is_removed() {
        let path = std::env::temp_dir().join(format!("dgl-tools-left-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let folder = Folder::open(&path).unwrap();
        for (name, content) in [
            ("lock.17.1700000000000000000", "dead"),
            ("lock.18.1700000000000000000", ""),
            // of a process at work
            ("lock.19.1700000000000000000", "alive"),
            ("lock.20.1", "a text of the user"),
            ("lock.backup.1", "dead"),
            ("lock.21", "dead"),
        ] {
            folder.create(name, content.as_bytes()).unwrap();
        }
        let alive = folder.file("lock.19.1700000000000000000").unwrap();
        let alive = Flock::lock(alive, FlockArg::LockSharedNonblock).unwrap();
        drop(Lock::take(&folder, "lock", "a").unwrap());
        let mut names = folder.names().unwrap();
        names.sort();
        let stay = [
            "lock.19.1700000000000000000",
            "lock.20.1",
            "lock.21",
            "lock.backup.1",
        ];
        assert_eq!(names, stay);
        drop(alive);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn locks_that_stay_on_a_host_are_known_by_the_mount() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
             30 22 0:50 / /a rw shared:2 - nfs s:/a rw,vers=3,local_lock=all,addr=1\n\
             31 22 0:51 / /b rw - nfs4 s:/b rw,vers=4.2,local_lock=none\n\
             32 22 0:52 / /c rw - lustre m@tcp:/c rw,localflock\n\
             33 22 0:53 / /d rw - fuse.sshfs u@s:/d rw,user_id=1\n\
             34 22 0:54 / /e rw - fuse.glusterfs s:/e rw,user_id=0\n";
        let table = [
            ("8:1", None),
            ("0:50", Some("local_lock=all")),
            ("0:51", None),
            ("0:52", Some("localflock")),
            ("0:53", Some("fuse.sshfs")),
            ("0:54", None),
            ("0:5", None),
        ];
        for (device, expected) in table {
            assert_eq!(option_in(mounts, device), expected, "{device}");
        }
    }
}
