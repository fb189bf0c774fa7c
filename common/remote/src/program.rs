//! Runs a program that reaches a host: OpenSSH's ssh, the agent on this machine, or a command of
//! the user's.

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

/// The size of a pipe to or from a program once it was full: the most that an ordinary user may
/// set, so that neither side has to wait while the other has no processor. With half of it, copying
/// used 6 % more CPU time; with the kernel's default, pulling files took 30 % longer.
const PIPE_BYTES: i32 = 1 << 20;
/// The sum up to which pipes get that size, because all pipes of a user share 64 MiB
/// (pipe-user-pages-soft).
const LARGE_PIPES: usize = 24 << 20;
/// The sum up to which they get [`SMALL_PIPE_BYTES`]: with many hosts, each gets less of the link.
const ALL_PIPES: usize = 32 << 20;
const SMALL_PIPE_BYTES: i32 = 256 << 10;
/// The default size of a pipe.
const DEFAULT_PIPE_BYTES: usize = 64 << 10;
/// How long nothing is written after a pipe was full, until about half of it is empty with the
/// fastest cipher: ssh reads 32 KiB at a time, and would wake this tool each time.
const SHORTEST_REST: Duration = Duration::from_micros(200);
/// The longest such pause, so that a link that has become fast again is noticed.
const LONGEST_REST: Duration = Duration::from_millis(5);
/// How long a program may take to end after its stdin was closed.
const LEAVE: Duration = Duration::from_millis(100);
/// The same for a program of the user's: srun must notify Slurm first.
const LEAVE_ENGINE: Duration = Duration::from_secs(2);
/// The time from TERM to KILL for a program that has not ended by itself.
const GRACE: Duration = Duration::from_secs(2);

/// Overrides settings of the user's configuration that are meant for interactive use. Neither agent
/// nor display is forwarded to a host. A port can be forwarded only once, and a second connection
/// would fail if ExitOnForwardFailure is set. UpdateHostKeys would add keys that the user has not
/// verified, and hundreds of ssh at once would rewrite known_hosts. OpenSSH 7.4 supports all of
/// these options.
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

/// The user's own `ssh` with all options except the host. `asks` allows it to ask the user
/// questions.
pub(crate) fn ssh_command(options: &RemoteOptions, settings: &SshSettings, asks: bool) -> Command {
    if settings.accepts_new_keys {
        super::known_hosts::end_last_line(settings);
    }
    let mut ssh = Command::new("ssh");
    ssh.arg("-T");
    for option in options_for_tools(options, settings, asks) {
        ssh.args(["-o", &option]);
    }
    ssh.args(super::ssh_config::ssh_options(options));
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
    let check = match settings.accepts_new_keys && knows_accept_new {
        true => "accept-new",
        false => "yes",
    };
    words.push(format!("StrictHostKeyChecking={check}"));
    let ciphers = &settings.default_ciphers;
    if ciphers.iter().any(|cipher| cipher == FASTEST_CIPHER) {
        let others = ciphers.iter().map(String::as_str);
        let others = others.filter(|cipher| *cipher != FASTEST_CIPHER);
        let order: Vec<&str> = [FASTEST_CIPHER].into_iter().chain(others).collect();
        words.push(format!("Ciphers={}", order.join(",")));
    }
    words
}

/// Runs `ssh HOST` with the user's own configuration; `master` has the options that choose the
/// connection.
pub(crate) fn ssh(
    options: &RemoteOptions,
    host: &Host,
    settings: &SshSettings,
    master: &[OsString],
    boot: &str,
) -> Result<Box<dyn Channel>, HostFault> {
    let mut ssh = ssh_command(options, settings, false);
    for option in &settings.to_run_commands {
        ssh.args(["-o", option]);
    }
    ssh.args(master)
        .arg("--")
        .arg(host.target())
        .arg(format!("/bin/sh -c {}", record::quote::shown(boot)));
    start(ssh, "ssh", None)
}

/// Runs one of the project's programs on this machine.
pub(crate) fn run(program: &Path, args: &[&str]) -> Result<Box<dyn Channel>, HostFault> {
    let mut command = Command::new(program);
    command.args(args);
    start(command, "host-agent", None)
}

/// Runs the user's template, such as `kubectl exec -i {login} --`, followed by the shell's command
/// line.
pub(crate) fn template(
    options: &RemoteOptions,
    host: &Host,
    template: &str,
    boot: &str,
) -> Result<Box<dyn Channel>, HostFault> {
    let text = fill(options, host, template)?;
    let mut sh = Command::new("sh");
    sh.arg("-c")
        .arg(format!("exec {text} \"$@\""))
        .args(["sh", "sh", "-c", boot]);
    let name = template.split_whitespace().next().unwrap_or(template);
    start(sh, name, Some(name.to_owned()))
}

pub(crate) fn fill(
    options: &RemoteOptions,
    host: &Host,
    template: &str,
) -> Result<String, HostFault> {
    let values = [
        ("{name}", host.name_or_ip()),
        ("{login}", host.target()),
        ("{ip}", host.ip.to_string()),
        ("{id}", host.id.to_string()),
        ("{user}", options.ssh_username.clone().unwrap_or_default()),
        ("{port}", options.ssh_port.unwrap_or(22).to_string()),
        ("{dgl_port}", host.port.to_string()),
    ];
    fill_in(template, &values)
}

/// Fills in placeholders such as `{name}`. A value becomes part of the user's shell text, so it
/// must be a plain word, or several with commas between them.
pub(crate) fn fill_in(template: &str, values: &[(&str, String)]) -> Result<String, HostFault> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:@,".contains(c);
    let mut text = template.to_owned();
    for (placeholder, value) in values {
        let is_used = text.contains(placeholder);
        if is_used && (!value.chars().all(is_plain) || value.starts_with('-')) {
            let fault = HostFault::unreachable(format!(
                "{placeholder} is {value:?}, which is not safe in a command line"
            ));
            return Err(fault.fix("use only letters, digits, dots and dashes in names of hosts"));
        }
        text = text.replace(placeholder, value);
    }
    Ok(text)
}

struct ProgramChannel {
    /// The name of the program, if it is the user's.
    engine: Option<String>,
    /// The process. Drop takes it and waits for it, so that no zombie remains.
    child: Option<Child>,
    /// Whether the script never ran.
    hopeless: bool,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
    /// How long to leave stdin alone.
    rest: WriteBackoff,
    /// Whether stdin and stdout have been full.
    full: [bool; 2],
}

/// Enlarges a pipe that was full; returns its new size.
fn widen(pipe: BorrowedFd<'_>) -> Option<usize> {
    static GIVEN: AtomicUsize = AtomicUsize::new(0);
    let wish = match GIVEN.load(Ordering::Relaxed) {
        ..LARGE_PIPES => PIPE_BYTES,
        LARGE_PIPES..ALL_PIPES => SMALL_PIPE_BYTES,
        _ => return None,
    };
    let bytes = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(wish))
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok())?;
    GIVEN.fetch_add(bytes, Ordering::Relaxed);
    Some(bytes)
}

/// Decides how long to pause after a pipe was full.
struct WriteBackoff {
    /// The size of the pipe in bytes.
    bytes: usize,
    /// How many bytes were written since it was last full.
    taken: usize,
    long: Duration,
    until: Option<Instant>,
}

impl WriteBackoff {
    /// Notes that the pipe is full.
    fn begin(&mut self) {
        let long = match std::mem::take(&mut self.taken) {
            less if less < self.bytes / 4 => self.long * 2,
            more if more > self.bytes / 4 * 3 => self.long / 2,
            _ => self.long,
        };
        self.long = long.clamp(SHORTEST_REST, LONGEST_REST);
        self.until = Some(Instant::now() + self.long);
    }

    fn left(&self) -> Option<Duration> {
        self.until
            .map(|until| until.saturating_duration_since(Instant::now()))
            .filter(|left| !left.is_zero())
    }
}

fn start(
    mut command: Command,
    name: &str,
    engine: Option<String>,
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
    let rest = WriteBackoff {
        bytes: DEFAULT_PIPE_BYTES,
        taken: 0,
        long: SHORTEST_REST,
        until: None,
    };
    Ok(Box::new(ProgramChannel {
        engine,
        child: Some(child),
        hopeless: false,
        stdin: Some(stdin),
        stdout,
        stderr,
        rest,
        full: [false; 2],
    }))
}

/// Waits for the process to end, and kills it after this time.
pub(crate) fn end_within(child: &mut Child, limit: Duration) {
    if !ends_within(child, limit) {
        // a program that runs as another user cannot be killed, and must not block the tool
        let _ = child.kill();
        ends_within(child, LEAVE);
    }
}

/// Whether the process ends within this time.
fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            ended => return !matches!(ended, Ok(None)),
        }
    }
}

/// Ends processes at the same time: TERM, and KILL after the grace time. An srun that is killed
/// without TERM leaves its entry in Slurm's queue behind.
fn end<'a>(children: impl IntoIterator<Item = &'a mut Child>, grace: Duration) {
    let mut ending = Vec::new();
    for child in children {
        // the process id of one that has ended may belong to another process
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

pub(crate) fn unblock(fd: BorrowedFd<'_>) -> nix::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(|_| ())
}

impl ProgramChannel {
    /// Enlarges the pipe when it is full for the first time.
    fn stdin_is_full(&mut self) {
        let first = !std::mem::replace(&mut self.full[0], true);
        match self
            .stdin
            .as_ref()
            .filter(|_| first)
            .and_then(|stdin| widen(stdin.as_fd()))
        {
            Some(bytes) => self.rest.bytes = bytes,
            None => self.rest.begin(),
        }
    }
}

impl Channel for ProgramChannel {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match stream {
            ChannelStream::Stdout => self.stdout.read(buffer)?,
            ChannelStream::Stderr => return self.stderr.read(buffer),
        };
        if count >= DEFAULT_PIPE_BYTES && !std::mem::replace(&mut self.full[1], true) {
            widen(self.stdout.as_fd());
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        if self.rest.left().is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = stdin.write(bytes);
        match &result {
            Ok(count) => self.rest.taken += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stdin_is_full(),
            Err(_) => {}
        }
        result
    }

    /// Splices pages of the file into the pipe, without a copy and with hardly any CPU time.
    fn write_file(&mut self, file: &File, offset: u64, length: u64) -> Result<usize, Unsent> {
        let Some(stdin) = &mut self.stdin else {
            return Err(Unsent::Unwritable(io::ErrorKind::BrokenPipe.into()));
        };
        if self.rest.left().is_some() {
            return Err(Unsent::Unwritable(io::ErrorKind::WouldBlock.into()));
        }
        let mut from = i64::try_from(offset).unwrap_or(i64::MAX);
        let most = usize::try_from(length).unwrap_or(usize::MAX);
        match splice(
            file,
            Some(&mut from),
            stdin,
            None,
            most,
            SpliceFFlags::SPLICE_F_NONBLOCK,
        ) {
            Ok(count) => {
                self.rest.taken += count;
                Ok(count)
            }
            Err(Errno::EAGAIN) => {
                self.stdin_is_full();
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
        self.engine.as_deref()
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        ends_within(child, LEAVE);
        child.try_wait().ok().flatten()
    }

    fn give_up(&mut self) {
        self.hopeless = true;
    }

    fn poll_fds(&self, reading: [bool; 2], writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let outs = [self.stdout.as_fd(), self.stderr.as_fd()];
        let mut fds: Vec<_> = outs
            .into_iter()
            .zip(reading)
            .filter(|(_, open)| *open)
            .map(|(fd, _)| (fd, PollFlags::POLLIN))
            .collect();
        if let Some(stdin) = self
            .stdin
            .as_ref()
            .filter(|_| writing && self.write_pause().is_none())
        {
            fds.push((stdin.as_fd(), PollFlags::POLLOUT));
        }
        fds
    }

    fn write_pause(&self) -> Option<Duration> {
        self.rest.left()
    }
}

impl Drop for ProgramChannel {
    fn drop(&mut self) {
        // The end of stdin ends the script and thereby the program. A program that does not end (a
        // lost network, a queue) is killed.
        self.stdin = None;
        let Some(mut child) = self.child.take() else {
            return;
        };
        let is_engine = self.engine.is_some();
        let limit = if is_engine { LEAVE_ENGINE } else { LEAVE };
        if !self.hopeless && ends_within(&mut child, limit) {
            return;
        }
        if self.hopeless || !is_engine {
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

/// Programs of the user's that have not ended yet, and their streams.
static LEFT_PROGRAMS: Mutex<Vec<(Child, [io::Result<OwnedFd>; 2])>> = Mutex::new(Vec::new());

/// Ends the programs of the user's that have not ended by themselves. Each tool calls this before
/// it exits, or they would remain.
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
        let mut rest = WriteBackoff {
            bytes: PIPE,
            taken: 0,
            long: Duration::from_millis(1),
            until: None,
        };
        assert_eq!(rest.left(), None);
        let mut after = |taken: usize| {
            rest.taken = taken;
            rest.begin();
            (rest.long, rest.taken)
        };
        assert_eq!(after(PIPE / 2), (Duration::from_millis(1), 0));
        assert_eq!(after(0), (Duration::from_millis(2), 0));
        assert_eq!(after(PIPE), (Duration::from_millis(1), 0));
        for _ in 0..9 {
            after(0);
        }
        assert_eq!(after(0), (LONGEST_REST, 0));
        for _ in 0..9 {
            after(PIPE);
        }
        assert_eq!(after(PIPE), (SHORTEST_REST, 0));
        std::thread::sleep(SHORTEST_REST);
        assert_eq!(rest.left(), None);
    }
}
