//! Runs a program that reaches a host: OpenSSH's ssh, the agent on this machine, or a command of
//! the user's.

use super::bootstrap;
use super::options::RemoteOptions;
use super::ssh_config::{SshSettings, openssh};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use record::Host;
use session::HostFault;
use session::channel::{Channel, ChannelStream, Unsent, copy_file};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The size of a pipe that was full: the most that an ordinary user may set, so that neither side
/// waits while the other has no processor. With half of it, copying used 6 % more CPU time; with
/// the kernel's default, pulling files took 30 % longer.
const PIPE_BYTES: i32 = 1 << 20;
/// Up to this sum pipes get that size: all pipes of a user share 64 MiB (pipe-user-pages-soft).
const LARGE_PIPES: usize = 24 << 20;
/// Up to this sum pipes get [`SMALL_PIPE_BYTES`]: with many hosts, each gets less of the link.
const ALL_PIPES: usize = 32 << 20;
const SMALL_PIPE_BYTES: i32 = 256 << 10;
const DEFAULT_PIPE_BYTES: usize = 64 << 10;
/// The pause after a pipe was full, until the fastest cipher has emptied about half: ssh reads 32
/// KiB at a time, and would wake this tool each time.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
/// So that a link that has become fast again is noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// How long a program may take to end after its stdin was closed.
const LEAVE: Duration = Duration::from_millis(100);
/// The same for a command of the user's: srun must notify Slurm first.
const LEAVE_COMMAND: Duration = Duration::from_secs(2);
/// From TERM to KILL.
const GRACE: Duration = Duration::from_secs(2);

/// Overrides settings for interactive use. A port can be forwarded only once, and a second
/// connection would fail with ExitOnForwardFailure. UpdateHostKeys would add keys that the user has
/// not verified, and hundreds of ssh would rewrite known_hosts at once. OpenSSH 7.4 supports all of
/// these.
const NOT_FOR_TOOLS: [&str; 7] = [
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "Tunnel=no",
    "PermitLocalCommand=no",
    "UpdateHostKeys=no",
    // without this, ssh may not print why it failed
    "LogLevel=INFO",
];

/// 1.5 times the rate of chacha20, which OpenSSH prefers.
const FASTEST_CIPHER: &str = "aes128-gcm@openssh.com";

/// `ssh` with all options except the host. If `asks`, it may ask questions.
pub fn ssh_command(options: &RemoteOptions, settings: &SshSettings, asks: bool) -> Command {
    if settings.accepts_new_keys {
        super::known_hosts::end_last_line(settings);
    }
    let mut ssh = Command::new("ssh");
    ssh.arg("-T");
    for option in options_for_tools(options, settings, asks) {
        ssh.args(["-o", &option]);
    }
    ssh.args(super::ssh_config::ssh_options(options));
    if super::ssh_agent::problem().is_some() {
        // ssh, and the ssh to a jump host, would wait for it without a limit
        ssh.env_remove("SSH_AUTH_SOCK");
    }
    if !asks {
        // a process group of its own: Ctrl-C must not break the connection that cleans up
        ssh.process_group(0);
    }
    ssh
}

fn options_for_tools(options: &RemoteOptions, settings: &SshSettings, asks: bool) -> Vec<String> {
    let mut words: Vec<String> = NOT_FOR_TOOLS.map(str::to_owned).to_vec();
    let seconds = options.connect_timeout.as_secs().max(1);
    words.push(format!("ConnectTimeout={seconds}"));
    if asks {
        words.push("NumberOfPasswordPrompts=1".to_owned());
    } else {
        words.push("BatchMode=yes".to_owned());
    }
    if !settings.is_kept_alive {
        // detects a dead link after 30 s
        let alive = ["ServerAliveInterval=10", "ServerAliveCountMax=3"];
        words.extend(alive.map(str::to_owned));
    }
    let knows_accept_new = openssh().is_some_and(|openssh| openssh.knows_accept_new);
    let accepts_new = settings.accepts_new_keys && knows_accept_new;
    let check = if accepts_new { "accept-new" } else { "yes" };
    words.push(format!("StrictHostKeyChecking={check}"));
    let ciphers = &settings.default_ciphers;
    if ciphers.iter().any(|cipher| cipher == FASTEST_CIPHER) {
        let mut order: Vec<&str> = ciphers.iter().map(String::as_str).collect();
        // a stable sort: false comes first
        order.sort_by_key(|cipher| *cipher != FASTEST_CIPHER);
        words.push(format!("Ciphers={}", order.join(",")));
    }
    words
}

/// `master` has the options that choose the connection.
pub fn run_ssh(
    options: &RemoteOptions,
    host: &Host,
    settings: &SshSettings,
    master: &[OsString],
) -> Result<Box<dyn Channel>, HostFault> {
    let mut ssh = ssh_command(options, settings, false);
    for option in &settings.to_run_commands {
        ssh.args(["-o", option]);
    }
    ssh.args(master)
        .arg("--")
        .arg(host.target())
        .arg(bootstrap::login_command());
    start(ssh, "ssh", None)
}

pub fn run(program: &Path, args: &[&str]) -> Result<Box<dyn Channel>, HostFault> {
    let mut command = Command::new(program);
    command.args(args);
    start(command, "host-agent", None)
}

/// A template such as `kubectl exec -i {login} --`, followed by the shell's command line.
pub fn run_template(
    options: &RemoteOptions,
    host: &Host,
    template: &str,
) -> Result<Box<dyn Channel>, HostFault> {
    let text = fill(options, host, template);
    let mut sh = Command::new("sh");
    sh.arg("-c")
        .arg(format!("exec {text} \"$@\""))
        .args(["sh", "sh", "-c", bootstrap::COMMAND]);
    let name = template.split_whitespace().next().unwrap_or(template);
    start(sh, name, Some(name.to_owned()))
}

/// The values become part of the user's shell text; those of the records are plain words.
pub fn fill(options: &RemoteOptions, host: &Host, template: &str) -> String {
    let user = options.ssh_username.as_ref();
    let values = [
        ("{name}", host.name_or_ip()),
        ("{login}", host.target()),
        ("{ip}", host.ip.to_string()),
        ("{id}", host.id.to_string()),
        ("{user}", user.map(record::quote::shown).unwrap_or_default()),
        ("{port}", options.ssh_port.unwrap_or(22).to_string()),
        ("{dgl_port}", host.port.to_string()),
    ];
    fill_in(template, &values)
}

pub fn fill_in(template: &str, values: &[(&str, String)]) -> String {
    let mut text = template.to_owned();
    for (placeholder, value) in values {
        text = text.replace(placeholder, value);
    }
    text
}

struct ProgramChannel {
    /// A command of the user's.
    command: Option<String>,
    /// Drop waits for it, so that no zombie remains.
    child: Option<Child>,
    /// No agent will run.
    is_given_up: bool,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
    backoff: WriteBackoff,
    /// Stdin and stdout.
    was_full: [bool; 2],
}

/// Returns the new size.
fn enlarge_pipe(pipe: BorrowedFd<'_>) -> Option<usize> {
    static GIVEN: AtomicUsize = AtomicUsize::new(0);
    let size = match GIVEN.load(Ordering::Relaxed) {
        ..LARGE_PIPES => PIPE_BYTES,
        LARGE_PIPES..ALL_PIPES => SMALL_PIPE_BYTES,
        _ => return None,
    };
    let bytes = usize::try_from(fcntl(pipe, FcntlArg::F_SETPIPE_SZ(size)).ok()?).ok()?;
    GIVEN.fetch_add(bytes, Ordering::Relaxed);
    Some(bytes)
}

struct WriteBackoff {
    pipe_bytes: usize,
    /// Since the pipe was last full.
    written: usize,
    pause: Duration,
    until: Option<Instant>,
}

impl WriteBackoff {
    /// The pipe is full.
    fn pause(&mut self) {
        let pause = match std::mem::take(&mut self.written) {
            less if less < self.pipe_bytes / 4 => self.pause * 2,
            more if more > self.pipe_bytes / 4 * 3 => self.pause / 2,
            _ => self.pause,
        };
        self.pause = pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        self.until = Some(Instant::now() + self.pause);
    }

    fn left(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

/// `own_name` is for a command of the user's.
fn start(
    mut command: Command,
    name: &str,
    own_name: Option<String>,
) -> Result<Box<dyn Channel>, HostFault> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // a process group of its own: Ctrl-C must not break the connection that cleans up
    command.process_group(0);
    let failed = |error: &dyn std::fmt::Display| HostFault::unreachable(format!("{name}: {error}"));
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => HostFault::unreachable(format!("{name}: no such program here"))
            .fix("install it, or choose another connector with --connect"),
        _ => failed(&error),
    })?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed(&"no pipes"));
    };
    for fd in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        unblock(fd).map_err(|error| failed(&error))?;
    }
    let backoff = WriteBackoff {
        pipe_bytes: DEFAULT_PIPE_BYTES,
        written: 0,
        pause: SHORTEST_PAUSE,
        until: None,
    };
    Ok(Box::new(ProgramChannel {
        command: own_name,
        child: Some(child),
        is_given_up: false,
        stdin: Some(stdin),
        stdout,
        stderr,
        backoff,
        was_full: [false; 2],
    }))
}

pub fn end_within(child: &mut Child, limit: Duration) {
    if !ends_within(child, limit) {
        // a program of another user cannot be killed, and must not block the tool
        let _ = child.kill();
        ends_within(child, LEAVE);
    }
}

fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            ended => return !matches!(ended, Ok(None)),
        }
    }
}

/// By TERM and then KILL, all at the same time. An srun that is killed without TERM leaves its
/// entry in Slurm's queue.
fn end<'a>(children: impl IntoIterator<Item = &'a mut Child>, grace: Duration) {
    let mut ending = Vec::new();
    for child in children {
        // the id of one that has ended may belong to another process
        if let (Ok(None), Ok(pid)) = (child.try_wait(), i32::try_from(child.id())) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            ending.push(child);
        }
    }
    let until = Instant::now() + grace;
    for child in ending {
        end_within(child, until.saturating_duration_since(Instant::now()));
    }
}

pub fn unblock(fd: BorrowedFd<'_>) -> nix::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(|_| ())
}

impl ProgramChannel {
    /// Enlarges the pipe the first time, then waits for it.
    fn handle_full_stdin(&mut self) {
        if !std::mem::replace(&mut self.was_full[0], true)
            && let Some(stdin) = &self.stdin
            && let Some(bytes) = enlarge_pipe(stdin.as_fd())
        {
            self.backoff.pipe_bytes = bytes;
        } else {
            self.backoff.pause();
        }
    }
}

impl Channel for ProgramChannel {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match stream {
            ChannelStream::Stdout => self.stdout.read(buffer)?,
            ChannelStream::Stderr => return self.stderr.read(buffer),
        };
        if count >= DEFAULT_PIPE_BYTES && !std::mem::replace(&mut self.was_full[1], true) {
            enlarge_pipe(self.stdout.as_fd());
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        if self.backoff.left().is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = stdin.write(bytes);
        match &result {
            Ok(count) => self.backoff.written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.handle_full_stdin(),
            Err(_) => {}
        }
        result
    }

    /// Splices pages of the file into the pipe, with hardly any CPU time.
    fn write_file(&mut self, file: &File, offset: u64, length: u64) -> Result<usize, Unsent> {
        let Some(stdin) = &mut self.stdin else {
            return Err(Unsent::Unwritable(io::ErrorKind::BrokenPipe.into()));
        };
        if self.backoff.left().is_some() {
            return Err(Unsent::Unwritable(io::ErrorKind::WouldBlock.into()));
        }
        let mut from = i64::try_from(offset).unwrap_or(i64::MAX);
        let most = usize::try_from(length).unwrap_or(usize::MAX);
        let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
        match splice(file, Some(&mut from), stdin, None, most, flags) {
            Ok(count) => {
                self.backoff.written += count;
                Ok(count)
            }
            Err(Errno::EAGAIN) => {
                self.handle_full_stdin();
                Err(Unsent::Unwritable(io::ErrorKind::WouldBlock.into()))
            }
            Err(error @ (Errno::EPIPE | Errno::EINTR)) => Err(Unsent::Unwritable(error.into())),
            // not every file system supports this
            Err(Errno::EINVAL | Errno::ENOSYS) => copy_file(self, file, offset, length),
            Err(error) => Err(Unsent::Unreadable(error.into())),
        }
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        self.stdin = None;
        Ok(())
    }

    fn command(&self) -> Option<&str> {
        self.command.as_deref()
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        ends_within(child, LEAVE);
        child.try_wait().ok().flatten()
    }

    fn give_up(&mut self) {
        self.is_given_up = true;
    }

    fn poll_fds(&self, reading: [bool; 2], writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut fds = Vec::new();
        for (fd, reads) in [self.stdout.as_fd(), self.stderr.as_fd()]
            .into_iter()
            .zip(reading)
        {
            if reads {
                fds.push((fd, PollFlags::POLLIN));
            }
        }
        if let Some(stdin) = &self.stdin
            && writing
            && self.backoff.left().is_none()
        {
            fds.push((stdin.as_fd(), PollFlags::POLLOUT));
        }
        fds
    }

    fn write_pause(&self) -> Option<Duration> {
        self.backoff.left()
    }
}

impl Drop for ProgramChannel {
    fn drop(&mut self) {
        // the end of stdin ends the agent and so the program, unless the network is lost or it
        // waits in a queue
        self.stdin = None;
        let Some(mut child) = self.child.take() else {
            return;
        };
        let is_users = self.command.is_some();
        let limit = if is_users { LEAVE_COMMAND } else { LEAVE };
        if !self.is_given_up && ends_within(&mut child, limit) {
            return;
        }
        if self.is_given_up || !is_users {
            return end([&mut child], LEAVE);
        }
        // it may still have output
        let streams = [
            self.stdout.as_fd().try_clone_to_owned(),
            self.stderr.as_fd().try_clone_to_owned(),
        ];
        let mut left = LEFT_PROGRAMS.lock();
        left.retain_mut(|(other, _)| matches!(other.try_wait(), Ok(None)));
        left.push((child, streams));
    }
}

/// With their streams.
static LEFT_PROGRAMS: Mutex<Vec<(Child, [io::Result<OwnedFd>; 2])>> = Mutex::new(Vec::new());

/// Each tool calls this before it exits, for commands of the user's that have not ended.
pub fn end_connectors() {
    let mut left = std::mem::take(&mut *LEFT_PROGRAMS.lock());
    end(left.iter_mut().map(|(child, _)| child), GRACE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_is_left_alone_until_half_of_it_is_empty() {
        const PIPE: usize = 1000;
        let mut backoff = WriteBackoff {
            pipe_bytes: PIPE,
            written: 0,
            pause: Duration::from_millis(1),
            until: None,
        };
        assert_eq!(backoff.left(), None);
        let mut after = |written: usize| {
            backoff.written = written;
            backoff.pause();
            (backoff.pause, backoff.written)
        };
        assert_eq!(after(PIPE / 2), (Duration::from_millis(1), 0));
        assert_eq!(after(0), (Duration::from_millis(2), 0));
        assert_eq!(after(PIPE), (Duration::from_millis(1), 0));
        for _ in 0..9 {
            after(0);
        }
        assert_eq!(after(0), (LONGEST_PAUSE, 0));
        for _ in 0..9 {
            after(PIPE);
        }
        assert_eq!(after(PIPE), (SHORTEST_PAUSE, 0));
        std::thread::sleep(SHORTEST_PAUSE);
        assert_eq!(backoff.left(), None);
    }
}
