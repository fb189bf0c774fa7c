//! Masters of ssh (ControlMaster of ssh_config(5)): connections that all logins of a pipeline to a
//! host share.
//!
//! The tools use the user's master, or start one with its socket in a directory that only the user
//! can enter. Without such a directory, each login has its own connection. `ssh` does the same if a
//! master refuses another session (MaxSessions).

#![expect(
    clippy::disallowed_methods,
    reason = "a directory that is checked first: only this user can enter it"
)]

use super::openssh::{self, LoginFailure};
use super::options::{RemoteOptions, STOP_CHECKED};
use super::owner;
use super::program::{end_within, ssh_command};
use super::ssh_config::SshSettings;
use host::abstract_socket::connect_until;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::UnixAddr;
use record::Host;
use session::HostFault;
use session::buffered_channel::{STDERR_KEPT, keep_tail, last_words};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The seconds that a master remains without use.
const PERSIST: &str = "ControlPersist=60";
/// The longest path of a Unix socket.
const SOCKET_PATH: usize = 108;
/// ssh first creates the socket under a name that is this much longer.
const SSH_SUFFIX: usize = 17;
/// The length of the names of sockets.
const NAME: usize = 24;
/// How many bytes a pipe holds, by default.
const PIPE: usize = 64 << 10;
/// The pause before another try to lock a file that another tool has locked.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// The time for a master to accept a connection.
const ACCEPTED: Duration = Duration::from_secs(2);
/// The time for a child that did not become a master to end.
const LEAVE: Duration = Duration::from_millis(100);

pub enum Master {
    /// At the ControlPath of ssh_config.
    Users,
    Ours(PathBuf),
    /// Each session has its own connection.
    None,
}

impl Master {
    /// If `asks`, `ssh` may ask the user questions, without a time limit.
    pub fn find_or_open(
        options: &RemoteOptions,
        host: &Host,
        settings: &SshSettings,
        asks: bool,
    ) -> Result<Master, HostFault> {
        if settings.control_path.as_deref().is_some_and(is_alive) {
            return Ok(Master::Users);
        }
        let Some(folder) = folder() else {
            return Ok(Master::None);
        };
        let socket = folder.join(name(options, host, settings));
        if is_alive(&socket) {
            return Ok(Master::Ours(socket));
        }
        // another tool may open the same master
        let mut lock = socket.clone().into_os_string();
        lock.push(".lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(lock);
        let limit = (!asks).then_some(options.connect_timeout);
        let Some(_lock) = lock.ok().and_then(|file| locked(file, limit, options)) else {
            if options.is_stopped() {
                return Err(HostFault::stopped());
            }
            return Ok(Master::None);
        };
        if is_alive(&socket) {
            return Ok(Master::Ours(socket));
        }
        // the socket of a master that was killed
        let _ = fs::remove_file(&socket);
        Master::open(options, host, settings, &socket, asks)
    }

    fn open(
        options: &RemoteOptions,
        host: &Host,
        settings: &SshSettings,
        socket: &Path,
        asks: bool,
    ) -> Result<Master, HostFault> {
        let mut path = OsString::from("ControlPath=");
        path.push(socket);
        let mut ssh = ssh_command(options, settings, asks);
        ssh.args(["-M", "-N", "-o", PERSIST, "-o"])
            .arg(path)
            .arg("--")
            .arg(host.target());
        ssh.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if asks {
            (options.notice)(&format!("{}: ssh asks", host.location()));
        }
        let child = ssh.spawn().map_err(|error| {
            HostFault::unreachable(format!("ssh: {error}"))
                .fix("install OpenSSH's client, or choose another connector with --connect")
        })?;
        let limit = (!asks).then_some(options.connect_timeout);
        let (success, stderr) = wait(child, limit, options)?;
        if success && is_alive(socket) {
            return Ok(Master::Ours(socket.to_owned()));
        }
        // with a master, ssh does not show the output of a ProxyCommand
        let failure = openssh::failure(&stderr, settings.proxy.is_some());
        if success || failure == LoginFailure::Proxy {
            return Ok(Master::None);
        }
        Err(openssh::fault(failure, &stderr, host, settings, options))
    }

    /// The options of `ssh` for a session.
    pub fn options(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["-o".into(), "ControlMaster=no".into()];
        let path: OsString = match self {
            Master::Users => return words,
            Master::Ours(socket) => socket.into(),
            Master::None => "none".into(),
        };
        let mut option = OsString::from("ControlPath=");
        option.push(path);
        words.extend(["-o".into(), option]);
        words
    }
}

/// Another tool that holds the lock may wait for the user's password. `None` at the limit, after a
/// signal, or if the file system has no locks.
fn locked(mut file: File, limit: Option<Duration>, options: &RemoteOptions) -> Option<Flock<File>> {
    let until = limit.map(|limit| Instant::now() + limit);
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((other, Errno::EWOULDBLOCK | Errno::EINTR)) => file = other,
            Err(_) => return None,
        }
        if options.is_stopped() || until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// Until the child has become a master in the background, or has failed. Returns whether it
/// succeeded, and its messages.
fn wait(
    mut child: Child,
    limit: Option<Duration>,
    options: &RemoteOptions,
) -> Result<(bool, String), HostFault> {
    let until = limit.map(|limit| Instant::now() + limit);
    let mut stderr = child.stderr.take();
    // the master in the background may keep it open, so do not wait for its end
    if let Some(stderr) = &stderr {
        let _ = super::program::unblock(std::os::fd::AsFd::as_fd(stderr));
    }
    let mut said = Vec::new();
    // a host may talk without end
    let mut read = |said: &mut Vec<u8>| {
        let mut buffer = [0; STDERR_KEPT];
        for _ in 0..PIPE.div_ceil(STDERR_KEPT) {
            let read = stderr.as_mut().map(|stderr| stderr.read(&mut buffer));
            let Some(Ok(count @ 1..)) = read else { break };
            keep_tail(said, &buffer[..count]);
        }
    };
    loop {
        read(&mut said);
        if let Ok(Some(status)) = child.try_wait() {
            read(&mut said);
            let said = String::from_utf8_lossy(&said).into_owned();
            return Ok((status.success(), said));
        }
        let is_late = until.is_some_and(|until| Instant::now() >= until);
        if is_late || options.is_stopped() {
            end_within(&mut child, LEAVE);
            read(&mut said);
            let Some(limit) = limit.filter(|_| is_late) else {
                return Err(HostFault::stopped());
            };
            let last_words = last_words(&said);
            return Err(HostFault::silent(limit, &last_words));
        }
        std::thread::sleep(Duration::from_millis(5).min(STOP_CHECKED));
    }
}

/// A master that does not accept connections counts as dead.
fn is_alive(socket: &Path) -> bool {
    let until = Instant::now() + ACCEPTED;
    let connected = UnixAddr::new(socket).map(|address| connect_until(&address, until));
    matches!(connected, Ok(Ok(Some(_))))
}

/// A hash of everything that decides how the host is reached.
fn name(options: &RemoteOptions, host: &Host, settings: &SshSettings) -> String {
    let accepts = settings.accepts_new_keys;
    let words = super::ssh_config::ssh_options(options);
    let identity = format!("{} {accepts} {words:?}\n{}", host.target(), settings.text);
    blake3::hash(identity.as_bytes()).to_hex()[..NAME].to_owned()
}

/// The directory for sockets, in $XDG_RUNTIME_DIR or /tmp. `None` if other users could enter it, or
/// a path would be too long.
fn folder() -> Option<PathBuf> {
    let user = nix::unistd::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // others could replace a link on the way
    let runtime = runtime.filter(|folder| folder.is_absolute());
    let runtime = runtime.and_then(|folder| folder.canonicalize().ok());
    let folders = [
        runtime.map(|folder| folder.join("dgl-tools")),
        Some(format!("/tmp/dgl-tools-ssh-{user}").into()),
    ];
    folders
        .into_iter()
        .flatten()
        .find(|folder| fits(folder) && is_private(folder))
}

fn fits(folder: &Path) -> bool {
    folder.as_os_str().as_bytes().len() + "/".len() + NAME + SSH_SUFFIX < SOCKET_PATH
}

/// Creates the directory if it is missing.
fn is_private(folder: &Path) -> bool {
    let _ = DirBuilder::new().mode(0o700).create(folder);
    let user = nix::unistd::geteuid().as_raw();
    fs::symlink_metadata(folder)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == user && meta.mode() & 0o77 == 0)
        && owner::exposed(folder).is_none()
}

/// stderr is a terminal, and this process is in its foreground.
pub fn may_ask() -> bool {
    use std::io::IsTerminal as _;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    std::io::stderr().is_terminal() && is_in_foreground(&stat)
}

/// `stat` is a line of /proc/PID/stat.
fn is_in_foreground(stat: &str) -> bool {
    // after the name, which may contain anything: state, ppid, pgrp, session, tty_nr, tpgid
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return false;
    };
    let fields: Vec<&str> = fields.split(' ').collect();
    matches!(fields.as_slice(), [_, _, group, _, _, foreground, ..] if group == foreground)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Its last messages say why it failed.
    #[test]
    fn ssh_that_writes_without_end_is_given_up_and_costs_no_memory() {
        let options = RemoteOptions {
            connect_timeout: Duration::from_millis(500),
            ..RemoteOptions::without_settings()
        };
        let ssh = |script: &str| {
            let mut sh = Command::new("sh");
            let child = sh.args(["-c", script]).stderr(Stdio::piped()).spawn();
            wait(child.unwrap(), Some(options.connect_timeout), &options)
        };
        let begun = Instant::now();
        let fault = ssh("exec yes 'a banner without end' >&2").unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(fault.timed_out && fault.is_unreachable);
        assert!(
            fault.problem.contains("a banner without end"),
            "{}",
            fault.problem
        );
        // all of a full pipe is read, and its end is kept
        let banner = "head -c 60000 /dev/zero | tr '\\0' x >&2";
        let (success, said) = ssh(&format!("{banner}; echo denied >&2; exit 255")).unwrap();
        assert!(!success && said.len() == STDERR_KEPT && said.ends_with("xdenied\n"));
    }

    #[test]
    fn a_master_that_accepts_no_connection_counts_as_dead() {
        use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, bind, listen, socket};
        let path = std::env::temp_dir().join(format!("dgl-tools-master-{}", std::process::id()));
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(
            std::os::fd::AsRawFd::as_raw_fd(&listener),
            &UnixAddr::new(&path).unwrap(),
        )
        .unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        assert!(is_alive(&path));
        // the first connection fills the queue
        assert!(!is_alive(&path));
        drop(listener);
        assert!(!is_alive(&path));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn people_are_asked_only_in_the_foreground() {
        let table = [
            ("7 (a b) S 1 7 7 34816 7 4194304 0", true),
            ("7 (a) b) S 1 7 7 34816 9 4194304 0", false),
            ("7 (a) S 1 7 7 0 -1 4194304 0", false),
            ("", false),
        ];
        for (stat, may) in table {
            assert_eq!(is_in_foreground(stat), may, "{stat}");
        }
    }

    #[test]
    fn the_path_of_a_socket_has_its_limit() {
        assert!(fits(Path::new("/run/user/1000/dgl-tools")));
        // 65 + 1 + 24 + 17 is 107, and the path ends with a zero
        assert!(fits(Path::new(&format!("/{}", "x".repeat(64)))));
        assert!(!fits(Path::new(&format!("/{}", "x".repeat(65)))));
    }
}
