//! The notes of a session to its watcher, over two pipes: each note and each answer is a line of
//! JSON. watcher.rs of host-agent describes what the watcher does with them.

#![expect(
    clippy::disallowed_methods,
    reason = "descriptors by their paths in /proc"
)]

use host::shm::ShmFile;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use wire::Failure;
use wire::files::Receive;
use wire::job::Job;
use wire::preflight::Taken;

#[derive(Debug, Serialize, Deserialize)]
pub enum Note {
    /// The answer lists the jobs that hold a part of this.
    Claim(Job, Claim),
    /// The job has claimed all of its hosts.
    Confirm,
    Release,
    /// The session becomes the supervisor of this job.
    Supervise(Job),
    /// The job has this file in /dev/shm. This note has no answer, because a supervisor does not
    /// wait.
    Shm(ShmFile),
    PushFolder(Receive),
}

/// What a job claims on a host besides its name: everything or nothing.
#[derive(Debug, Serialize, Deserialize)]
pub struct Claim {
    /// Its processes will listen on them.
    pub ports: Vec<Port>,
    /// Whether the job has graph servers that use the host's own /dev/shm, which two jobs of DGL
    /// cannot share.
    pub shared_memory: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    pub port: u16,
    /// `None` for any address of the host.
    pub address: Option<Ipv4Addr>,
}

/// The session's ends of the pipes.
#[derive(Debug)]
pub struct WatcherLink {
    /// The pipe for notes, for the program that the session becomes.
    pub notes: File,
    answers: BufReader<File>,
}

impl WatcherLink {
    /// Adopts these descriptors.
    pub fn inherited(notes: &str, answers: &str) -> io::Result<WatcherLink> {
        Ok(WatcherLink {
            notes: take_over(notes, File::options().write(true))?,
            answers: BufReader::new(take_over(answers, File::options().read(true))?),
        })
    }

    pub fn ask(&mut self, note: &Note) -> Result<Vec<Taken>, Failure> {
        let mut line = String::new();
        let asked = tell(&self.notes, note).and_then(|()| self.answers.read_line(&mut line));
        let answer = asked.and_then(|_| Ok(serde_json::from_str(&line)?));
        answer.unwrap_or_else(|_| Err(Failure::new("the watcher of this session is gone")))
    }
}

pub fn tell(mut notes: &File, note: &Note) -> io::Result<()> {
    let mut line = serde_json::to_vec(note)?;
    line.push(b'\n');
    notes.write_all(&line)
}

/// The next program inherits the descriptor, and adopts it by the returned number.
pub fn hand_over(descriptor: &impl AsFd) -> io::Result<String> {
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(descriptor.as_fd().as_raw_fd().to_string())
}

/// No other program inherits the descriptor then.
pub fn take_over(number: &str, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(format!("/proc/self/fd/{number}"))?;
    nix::unistd::close(number.parse::<i32>().map_err(io::Error::other)?)?;
    Ok(file)
}
