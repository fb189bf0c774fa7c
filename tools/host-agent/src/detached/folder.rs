//! The directory of a detached job, on its first host: `~/.local/state/dgl-tools/JOB/ADDRESS`. The
//! path has the address because hosts may share their homes.
//!
//!     token        the token in the environment of the job's processes, in the first attempt
//!     launcher     the process id of the launcher
//!     processes    the records of all processes, lines of JSON, without secrets
//!     run.jsonl    the records of the launcher
//!     messages     its messages to users
//!     summary      the last of its records, in room that was reserved before the start
//!     ROLE-RANK.log   the output of a process, unless --log-dir names another directory
//!     socket       connects to the launcher while it lives (orders.rs)
//!     groups/N     of persistent graph servers: a directory for each group that has used them
//!
//! Beside it, `ADDRESS.lock` is locked as long as the launcher lives. Only the user can read the
//! directory.

#![expect(
    clippy::disallowed_methods,
    reason = "the user's own state, in directories of mode 0700"
)]

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use record::{Summary, is_job_name};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The names of files.
pub const PROCESSES: &str = "processes";
pub const RECORDS: &str = "run.jsonl";
pub const MESSAGES: &str = "messages";
const SUMMARY: &str = "summary";
/// How much space is reserved for the summary, in case the disk is full at the end of the job.
const SUMMARY_BYTES: usize = 16 << 10;

/// A job's directory, which need not exist.
#[derive(Clone, Debug)]
pub struct JobFolder(PathBuf);

/// A lock that is held as long as this process is the job's launcher.
#[derive(Debug)]
pub struct LauncherLock(#[allow(dead_code)] Option<Flock<File>>);

impl JobFolder {
    /// The directory of a job on the host with this address; `None` if the name cannot be a job's.
    pub fn of(job: &str, address: Ipv4Addr) -> Option<JobFolder> {
        Some(JobFolder(of_job(job)?.join(address.to_string())))
    }

    /// The directory with this path.
    pub fn new(path: &Path) -> JobFolder {
        JobFolder(path.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.0.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    /// The path of the link that lets only one launcher at a time start graph servers (servers.rs).
    pub fn starting(&self) -> PathBuf {
        self.beside(".starting")
    }

    /// Creates the directory with these files, and removes an old one; `None` if its launcher
    /// lives.
    pub fn make(&self, files: &[(&str, &[u8])]) -> io::Result<Option<LauncherLock>> {
        if let Some(parent) = self.0.parent() {
            make_private(parent)?;
        }
        let Some(lock) = self.lock()? else {
            return Ok(None);
        };
        let new = self.beside(&format!(".new.{}", std::process::id()));
        let _ = fs::remove_dir_all(&new);
        let made = make_private(&new).and_then(|()| {
            write_new(&new.join(SUMMARY), &[b' '; SUMMARY_BYTES])?;
            files
                .iter()
                .try_for_each(|(name, content)| write_new(&new.join(name), content))?;
            match fs::remove_dir_all(&self.0) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => fs::rename(&new, &self.0),
            }
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&new);
        }
        made.map(|()| Some(lock))
    }

    /// Acquires the lock; `None` if a launcher holds it.
    fn lock(&self) -> io::Result<Option<LauncherLock>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW);
        match Flock::lock(
            options.open(self.beside(".lock"))?,
            FlockArg::LockExclusiveNonblock,
        ) {
            Ok(lock) => Ok(Some(LauncherLock(Some(lock)))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            // the file system has no locks
            Err(_) => Ok(Some(LauncherLock(None))),
        }
    }

    /// Removes the directory, unless its launcher lives.
    pub fn remove(&self) -> Option<io::Result<()>> {
        let _lock = match self.lock() {
            Ok(None) => return None,
            lock => lock,
        };
        let removed = fs::remove_dir_all(&self.0);
        if removed.is_ok() {
            let _ = fs::remove_file(self.beside(".lock"));
            // the parent remains while it has directories of other hosts
            let _ = self.0.parent().map(fs::remove_dir);
        }
        Some(removed)
    }

    /// Opens a file in the directory for appending.
    pub fn append(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(self.file(name))
    }

    /// Listens for followers of the job.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let folder = File::open(&self.0)?;
        UnixListener::bind(socket(&folder))
    }

    /// Connects to the launcher; fails if there is none.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let folder = File::open(&self.0)?;
        UnixStream::connect(socket(&folder))
    }

    /// The records of the processes, lines of JSON; fails if there is no such job.
    pub fn processes(&self) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(self.file(PROCESSES))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Writes the summary of the job into the reserved space.
    pub fn write_summary(&self, summary: &Summary) -> io::Result<()> {
        let mut summary = summary.clone();
        let mut line = record::jsonl::line(&summary);
        if let (true, Some(failure)) = (line.len() > SUMMARY_BYTES, &mut summary.first_failure) {
            failure.last_lines.clear();
            line = record::jsonl::line(&summary);
        }
        OpenOptions::new()
            .write(true)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(self.file(SUMMARY))?
            .write_all(&line)
    }

    /// The summary of the job as a line of JSON, once it has ended.
    pub fn summary(&self) -> Option<String> {
        let text = fs::read_to_string(self.file(SUMMARY)).ok()?;
        let line = text.lines().next()?.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// The token of the job's processes; empty if it cannot be read.
    pub fn token(&self) -> String {
        let token = fs::read_to_string(self.file("token")).unwrap_or_default();
        token.trim().to_owned()
    }

    /// Whether the launcher lives.
    pub fn is_alive(&self) -> bool {
        self.connect().is_ok()
    }
}

/// The path of the socket by a descriptor of its directory, because the path of a Unix socket may
/// have only 107 bytes.
fn socket(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/socket", folder.as_raw_fd()))
}

/// Creates a directory that only the user can read, and its parents.
pub fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(content)
}

/// The directory with the directories of all jobs.
pub fn of_all_jobs() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".local/state/dgl-tools"))
}

/// The directory of a job, for all hosts that share the home; `None` if the name cannot be a job's.
pub fn of_job(job: &str) -> Option<PathBuf> {
    is_job_name(job).then(|| Some(of_all_jobs()?.join(job)))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn one_launcher_at_a_time_has_a_folder() {
        let scratch = std::env::temp_dir().join(format!("dgl-tools-folder-{}", std::process::id()));
        let folder = JobFolder(scratch.join("deeper/10.0.0.1"));
        let lock = folder
            .make(&[("token", b"one\n"), ("processes", b"")])
            .unwrap();
        assert!(lock.is_some());
        assert_eq!(fs::read(folder.file("token")).unwrap(), b"one\n");
        for (path, mode) in [
            (folder.path().to_owned(), 0o700),
            (folder.file("token"), 0o600),
            (folder.beside(".lock"), 0o600),
        ] {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                mode,
                "{}",
                path.display()
            );
        }
        // the lock excludes a second holder even in the same process
        assert!(folder.make(&[]).unwrap().is_none());
        drop(lock);
        let _lock = folder.make(&[("token", b"two\n")]).unwrap();
        assert_eq!(fs::read(folder.file("token")).unwrap(), b"two\n");
        assert!(!folder.file("processes").exists());
        fs::remove_dir_all(scratch).unwrap();
    }
}
