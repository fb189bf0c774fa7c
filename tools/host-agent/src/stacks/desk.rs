//! Where the supervisor of a job reads stacks for others.
//!
//! A kernel with Yama's ptrace_scope 1 lets a process be read by those alone who come before it:
//! the agent of a new login is none of them, the supervisor of the job is. So it listens on an
//! abstract Unix socket, whose name is made of the job's token and its own number, and reads for
//! its own user what it has started itself. A thread does it, in no hurry: the job's own affairs go
//! on.

use super::reader;
use crate::processes::{self, ProcessHandle};
use crate::procfs;
use nix::sys::signal::SigSet;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::stacks::Reading;

/// A question comes at once.
const QUESTION_LIMIT: Duration = Duration::from_secs(2);
/// As long as a reading may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// More than a question or an answer has.
const MAX_BYTES: u64 = 4 << 20;
/// Readings at once. Others wait in the queue of the socket.
const AT_ONCE: usize = 2;
/// Above a process there are not more than these until its supervisor.
const MAX_ANCESTORS: usize = 64;

/// The process that is to be read.
#[derive(Serialize, Deserialize)]
struct Question {
    pid: i32,
    start_ticks: u64,
}

/// The supervisor's end.
#[derive(Debug)]
pub struct Desk {
    socket: UnixListener,
    busy: Vec<JoinHandle<()>>,
}

impl Desk {
    /// For the job with that token. `None` where there can be none: the job needs it not.
    pub fn open(token: &str) -> Option<Desk> {
        let address = address(token, std::process::id().cast_signed()).ok()?;
        let socket = UnixListener::bind_addr(&address).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Desk {
            socket,
            busy: Vec::new(),
        })
    }

    /// What is to be listened to, if one more can be served.
    pub fn listening(&mut self) -> Option<BorrowedFd<'_>> {
        self.busy.retain(|thread| !thread.is_finished());
        (self.busy.len() < AT_ONCE).then(|| self.socket.as_fd())
    }

    /// Serves one who has come; never waits.
    pub fn serve(&mut self) {
        let Ok((stream, _)) = self.socket.accept() else {
            return;
        };
        let thread = std::thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || {
                // signals are for the thread that deals with them
                let _ = SigSet::all().thread_block();
                let _ = answer(stream);
            });
        self.busy.extend(thread);
    }
}

/// The name of the threads in which a panic ends nothing but themselves.
pub const THREAD: &str = "stacks";

fn answer(mut stream: UnixStream) -> io::Result<()> {
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(QUESTION_LIMIT))?;
    stream.set_write_timeout(Some(QUESTION_LIMIT))?;
    let mut text = Vec::new();
    (&stream).take(MAX_BYTES).read_to_end(&mut text)?;
    let Question { pid, start_ticks } = serde_json::from_slice(&text)?;
    let process = ProcessHandle { pid, start_ticks };
    // nobody shall read by us what has nothing to do with us
    if processes::find_below(std::process::id().cast_signed()).contains(&process) {
        stream.write_all(&serde_json::to_vec(&reader::read(process))?)?;
    }
    Ok(())
}

/// What came of a question.
pub enum Asked {
    /// What the supervisor has read.
    Answered(Reading),
    /// No supervisor reads for us.
    NoDesk,
}

/// Asks whoever is above a process and has a desk for its job.
pub fn ask(token: &str, process: ProcessHandle) -> Asked {
    let ancestors = std::iter::successors(parent_of(process.pid), |pid| parent_of(*pid));
    for ancestor in ancestors.take(MAX_ANCESTORS) {
        if let Ok(reading) = ask_one(token, ancestor, process) {
            return Asked::Answered(reading);
        }
    }
    Asked::NoDesk
}

fn parent_of(pid: i32) -> Option<i32> {
    procfs::stat(pid)
        .map(|stat| stat.parent)
        .filter(|parent| *parent > 0)
}

fn ask_one(token: &str, supervisor: i32, process: ProcessHandle) -> io::Result<Reading> {
    let mut stream = UnixStream::connect_addr(&address(token, supervisor)?)?;
    // who took the name beforehand is believed nothing
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(QUESTION_LIMIT))?;
    let question = Question {
        pid: process.pid,
        start_ticks: process.start_ticks,
    };
    stream.write_all(&serde_json::to_vec(&question)?)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Whoever sees the name learns nothing about the token.
fn address(token: &str, supervisor: i32) -> io::Result<SocketAddr> {
    let key = blake3::derive_key("dgl-tools 2026 stacks of a job", token.as_bytes());
    let id: String = key
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    SocketAddr::from_abstract_name(format!("dgl-tools/stacks/{id}/{supervisor}"))
}
