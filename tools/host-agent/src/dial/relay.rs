//! Carries a conversation between a connection and `host-agent serve`, in one loop in which nothing
//! blocks and each direction waits for its reader.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tls::Link;
use wire::dial::TICKET_VARIABLE;

/// How much may wait for the serving agent; beyond it nothing more is read from the connection.
const MAX_HELD: usize = 1 << 20;
/// How much is read at once from the serving agent: as much as its pipe holds after it was widened.
const AT_ONCE: usize = 256 << 10;
/// How long the other side has to take the last bytes.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// After its child has ended, a connection over which nothing moves for this long is given up.
const NOTHING_MOVES: Duration = Duration::from_secs(60);

/// The connection and the serving agent.
pub struct Relay {
    link: Link,
    /// Whether more may come over the connection.
    link_is_open: bool,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    /// Bytes from the connection, and how many of them the child has taken.
    inward: Vec<u8>,
    taken: usize,
    /// Bytes from the child, and how many of them were sent.
    outward: Vec<u8>,
    sent: usize,
}

impl Relay {
    /// Starts the serving agent; `said` has already come from the connection.
    pub fn begin(link: Link, said: Vec<u8>, token: &str) -> io::Result<Relay> {
        link.be_patient()?;
        let mut child = Command::new("/proc/self/exe")
            .arg0("host-agent")
            .args(["serve", token])
            // secrets in the environment are for this agent alone, not for the processes of a job
            .env_remove(TICKET_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        for descriptor in [
            stdin.as_ref().map(AsFd::as_fd),
            stdout.as_ref().map(AsFd::as_fd),
        ] {
            let descriptor = descriptor.ok_or(io::ErrorKind::BrokenPipe)?;
            let flags = OFlag::from_bits_retain(fcntl(descriptor, FcntlArg::F_GETFL)?);
            fcntl(descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(Relay {
            link,
            link_is_open: true,
            child,
            stdin,
            stdout,
            inward: said,
            taken: 0,
            outward: Vec::new(),
            sent: 0,
        })
    }

    /// Runs to the end. The child ends its part of a job when its stdin ends.
    pub fn run(mut self) {
        let carried = self.carry();
        (self.stdin, self.stdout) = (None, None);
        if carried.is_ok() {
            self.say_goodbye();
        }
        let _ = self.child.wait();
    }

    /// Carries until the child has written its last byte; fails if the connection broke.
    fn carry(&mut self) -> io::Result<()> {
        loop {
            self.read_link()?;
            self.write_child();
            self.read_child();
            self.write_link()?;
            let is_sent = self.sent == self.outward.len();
            let waits = self.link.wait_for().contains(PollFlags::POLLOUT);
            if self.stdout.is_none() && is_sent && !waits {
                return Ok(());
            }
            self.wait()?;
        }
    }

    fn read_link(&mut self) -> io::Result<()> {
        self.link.flush()?;
        if self.may_read_link() {
            self.link_is_open = self.link.receive(&mut self.inward)?;
        }
        Ok(())
    }

    fn may_read_link(&self) -> bool {
        self.link_is_open && self.inward.len() - self.taken < MAX_HELD
    }

    fn write_child(&mut self) {
        while self.taken < self.inward.len() {
            let Some(stdin) = &mut self.stdin else {
                self.taken = self.inward.len();
                break;
            };
            match stdin.write(&self.inward[self.taken..]) {
                Ok(count) => self.taken += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // the child reads no more, but may still write
                Err(_) => self.stdin = None,
            }
        }
        self.inward.clear();
        self.taken = 0;
        if !self.link_is_open {
            self.stdin = None;
        }
    }

    fn read_child(&mut self) {
        let Some(stdout) = self.stdout.as_mut().filter(|_| self.outward.is_empty()) else {
            return;
        };
        self.outward.resize(AT_ONCE, 0);
        match stdout.read(&mut self.outward) {
            Ok(0) => {
                self.outward.clear();
                self.stdout = None;
            }
            Ok(count) => self.outward.truncate(count),
            Err(error) => {
                self.outward.clear();
                let passes = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
                if !passes.contains(&error.kind()) {
                    self.stdout = None;
                }
            }
        }
    }

    fn write_link(&mut self) -> io::Result<()> {
        while self.sent < self.outward.len() {
            match self.link.write_some(&self.outward[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.outward.clear();
        self.sent = 0;
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let mut flags = self.link.wait_for();
        if !self.may_read_link() {
            flags.remove(PollFlags::POLLIN);
        }
        let mut fds = vec![PollFd::new(self.link.as_fd(), flags)];
        if let Some(stdin) = self.stdin.as_ref().filter(|_| !self.inward.is_empty()) {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLOUT));
        }
        if let Some(stdout) = self.stdout.as_ref().filter(|_| self.outward.is_empty()) {
            fds.push(PollFd::new(stdout.as_fd(), PollFlags::POLLIN));
        }
        // as long as the child is there, it decides how long the tool may be silent
        let limit = match self.stdout.is_some() {
            true => PollTimeout::NONE,
            false => PollTimeout::try_from(NOTHING_MOVES).unwrap_or(PollTimeout::MAX),
        };
        match poll(&mut fds, limit) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // while nothing is read from it, only this tells that it has ended
        let told = fds[0].revents().unwrap_or(PollFlags::empty());
        match told.intersects(PollFlags::POLLERR | PollFlags::POLLHUP) && !self.may_read_link() {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }

    /// Announces the end, and waits until the other side has it: a connection that is closed while
    /// something unread lies there loses what is still on its way.
    fn say_goodbye(&mut self) {
        let until = Instant::now() + LAST_WORDS;
        let mut unread = Vec::new();
        let mut said = false;
        loop {
            said = said || self.link.close().is_ok();
            unread.clear();
            let left = until.saturating_duration_since(Instant::now());
            if !matches!(self.link.receive(&mut unread), Ok(true)) || left.is_zero() {
                return;
            }
            let mut fds = [PollFd::new(self.link.as_fd(), self.link.wait_for())];
            let _ = poll(
                &mut fds,
                PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO),
            );
        }
    }
}
