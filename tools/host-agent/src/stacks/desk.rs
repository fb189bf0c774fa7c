//! The place where the supervisor of a job reads stacks for others.
//!
//! A kernel with Yama's ptrace_scope 1 lets only ancestors read a process: the supervisor of the
//! job is one, the agent of a new login is not. So the supervisor listens on an abstract Unix
//! socket, whose name is made of the job's token and its own process id, and reads for its own user
//! the processes that it has started. A thread does that, while the supervisor itself goes on. The
//! supervisor also tells there since when a process has written nothing, which only it knows.

use super::reader;
use crate::processes::{self, ProcessHandle};
use crate::procfs;
use nix::sys::signal::SigSet;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::stacks::Reading;

/// How long to wait for the question of a connection.
const QUESTION_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait for an answer: as long as a reading may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// The same for since when a process is silent, which the supervisor knows without reading.
const SILENCE_LIMIT: Duration = Duration::from_millis(500);
/// More bytes than a question or an answer has.
const MAX_BYTES: u64 = 4 << 20;
/// How many readings run at once. Others wait in the queue of the socket.
const AT_ONCE: usize = 2;
/// More ancestors than a process has up to its supervisor.
const MAX_ANCESTORS: usize = 64;

/// The process that is to be read.
#[derive(Serialize, Deserialize)]
struct Question {
    pid: i32,
    start_ticks: u64,
    /// Whether the question is not about its stacks, but since when it has written nothing.
    #[serde(default)]
    silence: bool,
    /// What Python has called is wanted too.
    #[serde(default)]
    native: bool,
}

/// For how long a process has written nothing; absent if the supervisor has not started that
/// process itself.
#[derive(Serialize, Deserialize)]
struct Silence {
    silent_ms: Option<u64>,
}

/// When each process last wrote something, by process id.
type Written = Arc<Mutex<HashMap<i32, Instant>>>;

/// The supervisor's side.
#[derive(Debug)]
pub struct Desk {
    socket: UnixListener,
    busy: Vec<JoinHandle<()>>,
    written: Written,
}

impl Desk {
    /// Opens the desk for the job with this token. `None` if that fails, because the job can run
    /// without it.
    pub fn open(token: &str) -> Option<Desk> {
        let address = address(token, std::process::id().cast_signed()).ok()?;
        let socket = UnixListener::bind_addr(&address).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Desk {
            socket,
            busy: Vec::new(),
            written: Written::default(),
        })
    }

    /// Notes that a process was started, or has written something.
    pub fn wrote(&self, pid: u32) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.insert(pid.cast_signed(), Instant::now());
    }

    /// The socket to wait for, if one more question can be served.
    pub fn listening(&mut self) -> Option<BorrowedFd<'_>> {
        self.busy.retain(|thread| !thread.is_finished());
        (self.busy.len() < AT_ONCE).then(|| self.socket.as_fd())
    }

    /// Serves one connection; never waits.
    pub fn serve(&mut self) {
        let Ok((stream, _)) = self.socket.accept() else {
            return;
        };
        let written = Arc::clone(&self.written);
        let thread = std::thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || {
                // another thread handles signals
                let _ = SigSet::all().thread_block();
                let _ = answer(stream, &written);
            });
        self.busy.extend(thread);
    }
}

/// The name of the threads in which a panic ends only the thread.
pub const THREAD: &str = "stacks";

fn answer(mut stream: UnixStream, written: &Written) -> io::Result<()> {
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(QUESTION_LIMIT))?;
    stream.set_write_timeout(Some(QUESTION_LIMIT))?;
    let mut text = Vec::new();
    (&stream).take(MAX_BYTES).read_to_end(&mut text)?;
    let Question {
        pid,
        start_ticks,
        silence,
        native,
    } = serde_json::from_slice(&text)?;
    let process = ProcessHandle { pid, start_ticks };
    // nobody may read processes through us that are not ours
    if !processes::find_below(std::process::id().cast_signed()).contains(&process) {
        return Ok(());
    }
    if silence {
        let written = written.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = written.get(&pid).map(|last| last.elapsed().as_millis());
        let silent_ms = silent.map(|time| u64::try_from(time).unwrap_or(u64::MAX));
        stream.write_all(&serde_json::to_vec(&Silence { silent_ms })?)?;
    } else {
        let reading = reader::read(process, native, |_| ());
        stream.write_all(&serde_json::to_vec(&reading)?)?;
    }
    Ok(())
}

/// The result of a question.
pub enum Asked {
    /// What the supervisor has read.
    Answered(Reading),
    /// No supervisor reads for us.
    NoDesk,
}

/// Asks the ancestors of a process for one that has a desk for its job.
pub fn ask(token: &str, process: ProcessHandle, native: bool) -> Asked {
    let question = Question {
        pid: process.pid,
        start_ticks: process.start_ticks,
        silence: false,
        native,
    };
    ask_ancestors(token, &question).map_or(Asked::NoDesk, Asked::Answered)
}

/// For how long a process has written nothing, as its supervisor tells. `None` if no supervisor
/// knows.
pub fn silence(token: &str, process: ProcessHandle) -> Option<Duration> {
    let question = Question {
        pid: process.pid,
        start_ticks: process.start_ticks,
        silence: true,
        native: false,
    };
    let told: Silence = ask_ancestors(token, &question)?;
    told.silent_ms.map(Duration::from_millis)
}

fn ask_ancestors<T: DeserializeOwned>(token: &str, question: &Question) -> Option<T> {
    let ancestors = std::iter::successors(parent_of(question.pid), |pid| parent_of(*pid));
    ancestors
        .take(MAX_ANCESTORS)
        .find_map(|ancestor| ask_one(token, ancestor, question).ok())
}

fn parent_of(pid: i32) -> Option<i32> {
    procfs::stat(pid)
        .map(|stat| stat.parent)
        .filter(|parent| *parent > 0)
}

fn ask_one<T: DeserializeOwned>(
    token: &str,
    supervisor: i32,
    question: &Question,
) -> io::Result<T> {
    let mut stream = UnixStream::connect_addr(&address(token, supervisor)?)?;
    // a stranger who took the name beforehand is not believed
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(match question.silence {
        true => SILENCE_LIMIT,
        false => ANSWER_LIMIT,
    }))?;
    stream.set_write_timeout(Some(QUESTION_LIMIT))?;
    stream.write_all(&serde_json::to_vec(question)?)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// The address of a desk. The token cannot be derived from the name.
fn address(token: &str, supervisor: i32) -> io::Result<SocketAddr> {
    let key = blake3::derive_key("dgl-tools 2026 stacks of a job", token.as_bytes());
    let id: String = key
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    SocketAddr::from_abstract_name(format!("dgl-tools/stacks/{id}/{supervisor}"))
}
