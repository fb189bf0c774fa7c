//! A conversation: what comes over a connection goes to `host-agent serve`, and what that says goes
//! back. One loop, in which nothing blocks and both directions wait for their readers.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tls::Link;
use wire::dial::TICKET_VARIABLE;

/// What may wait for the agent that serves: then nothing more is read of the connection.
const MAX_HELD: usize = 1 << 20;
/// Read at once of what it says: as much as its pipe holds once that was widened.
const AT_ONCE: usize = 256 << 10;
/// The other side has so long to take the last words.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Both ends.
pub struct Relay {
    link: Link,
    /// More may come over it.
    link_is_open: bool,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    /// From the connection, and how much of it the child has.
    inward: Vec<u8>,
    taken: usize,
    /// From the child, and how much of it is on its way.
    outward: Vec<u8>,
    sent: usize,
}

impl Relay {
    /// Starts the agent that serves; `said` has come already.
    pub fn begin(link: Link, said: Vec<u8>, token: &str) -> io::Result<Relay> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("host-agent")
            .args(["serve", token])
            // what gets in with it is for this agent alone, not for the processes of a job
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

    /// To its end. What the child had of a job is ended by itself when its stdin ends.
    pub fn run(mut self) {
        let carried = self.carry();
        (self.stdin, self.stdout) = (None, None);
        if carried.is_ok() {
            self.say_goodbye();
        }
        let _ = self.child.wait();
    }

    /// Until the child has said its last word; an error where the connection broke.
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
                // it takes nothing more; what it has to say still comes
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
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // where nothing is read of it, its end is told by nothing else
        let told = fds[0].revents().unwrap_or(PollFlags::empty());
        match told.intersects(PollFlags::POLLERR | PollFlags::POLLHUP) && !self.may_read_link() {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }

    /// Tells the end, and waits until the other side has it: a connection that is closed while
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
