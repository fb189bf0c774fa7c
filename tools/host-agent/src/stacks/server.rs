//! Reads stacks in the supervisor of a job, for other agents.
//!
//! A kernel with Yama's ptrace_scope 1 lets only ancestors read a process: the supervisor of the
//! job is one, but the agent of a new login is not. So the supervisor listens on an abstract Unix
//! socket, whose name is derived from the job's token and its process id, and reads its descendants
//! for agents of its user, in threads. It also answers since when a process has written nothing,
//! which only the supervisor knows.

use super::reader;
use super::recorder::{self, PROFILES_BYTES, RECORD_LIMIT};
use host::abstract_socket;
use host::job_processes;
use host::processes::{self, ProcessHandle};
use host::procfs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use parking_lot::Mutex;
use record::term::millis;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::stacks::{CountedStacks, Reading, RecordStacks};

/// How long to wait for the question of a connection.
const QUESTION_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait for an answer, as long as a reading may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// The same for the silence of a process, which the supervisor knows without reading.
const SILENCE_LIMIT: Duration = Duration::from_millis(500);
/// The most bytes of a question.
const MAX_BYTES: usize = 1 << 20;
/// How many questions are answered at once, because a recording may take long. Others wait in the
/// queue of the socket.
const AT_ONCE: usize = 3;

/// A question about a process.
#[derive(Serialize, Deserialize)]
enum Question {
    /// Its [`Reading`].
    Stacks,
    /// The [`CountedStacks`]s of it and of all other Pythons of the job.
    Record(RecordStacks),
    /// For how many milliseconds it has written nothing; no answer if the supervisor has not
    /// started it.
    Silence,
}

/// When each process last wrote something, by process id.
type Written = Arc<Mutex<HashMap<i32, Instant>>>;

/// The server in the supervisor.
#[derive(Debug)]
pub struct StackServer {
    socket: UnixListener,
    busy: Vec<JoinHandle<()>>,
    written: Written,
}

impl StackServer {
    /// Listens for the job with this token. `None` if that fails, because the job can run without
    /// it.
    pub fn open(token: &str) -> Option<StackServer> {
        let name = name_of(token, std::process::id().cast_signed());
        let address = SocketAddr::from_abstract_name(name).ok()?;
        let socket = UnixListener::bind_addr(&address).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(StackServer {
            socket,
            busy: Vec::new(),
            written: Written::default(),
        })
    }

    /// Notes that a process was started or has written something.
    pub fn wrote(&self, pid: u32) {
        self.written
            .lock()
            .insert(pid.cast_signed(), Instant::now());
    }

    /// The socket to wait for, if another question can be answered.
    pub fn listening(&mut self) -> Option<BorrowedFd<'_>> {
        self.busy.retain(|thread| !thread.is_finished());
        (self.busy.len() < AT_ONCE).then(|| self.socket.as_fd())
    }

    /// Accepts a connection and answers it in a thread; never waits.
    pub fn serve(&mut self) {
        let Ok((stream, _)) = self.socket.accept() else {
            return;
        };
        let written = Arc::clone(&self.written);
        let thread = std::thread::Builder::new()
            .name(reader::THREAD.to_owned())
            .spawn(move || {
                // another thread handles signals
                let _ = SigSet::all().thread_block();
                let _ = answer(stream, &written);
            });
        self.busy.extend(thread);
    }
}

fn answer(mut stream: UnixStream, written: &Written) -> io::Result<()> {
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(QUESTION_LIMIT))?;
    stream.set_write_timeout(Some(QUESTION_LIMIT))?;
    let mut text = Vec::new();
    (&stream).take(MAX_BYTES as u64).read_to_end(&mut text)?;
    let (process, question): (ProcessHandle, Question) = serde_json::from_slice(&text)?;
    // only descendants of this supervisor may be read
    let descendants = || processes::find_below(std::process::id().cast_signed());
    if !descendants().contains(&process) {
        return Ok(());
    }
    let answer = match question {
        Question::Stacks => serde_json::to_vec(&reader::read(process))?,
        Question::Record(wanted) => {
            let find = || {
                let (mut found, descendants) =
                    (job_processes::selected(&wanted.pick), descendants());
                found.retain(|found| descendants.contains(&found.member.process));
                found
            };
            serde_json::to_vec(&recorder::record(&wanted, find, || !has_gone(&stream)))?
        }
        Question::Silence => {
            let silence = written.lock().get(&process.pid).map(Instant::elapsed);
            serde_json::to_vec(&silence.map(millis))?
        }
    };
    stream.write_all(&answer)
}

/// Whether the other side has closed the connection.
fn has_gone(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let hung_up = PollFlags::POLLHUP | PollFlags::POLLERR;
    poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds[0]
            .revents()
            .is_some_and(|events| events.intersects(hung_up))
}

/// The recording of the whole job by the supervisor of this process; `None` if no supervisor
/// answers.
pub fn record(
    token: &str,
    process: ProcessHandle,
    wanted: &RecordStacks,
) -> Option<Vec<CountedStacks>> {
    let limit = Duration::from_millis(wanted.time_ms) + RECORD_LIMIT;
    ask(token, process, &Question::Record(wanted.clone()), limit)
}

/// The reading of this process by its supervisor; `None` if no supervisor answers.
pub fn read(token: &str, process: ProcessHandle) -> Option<Reading> {
    ask(token, process, &Question::Stacks, ANSWER_LIMIT)
}

/// For how long a process has written nothing, according to its supervisor. `None` if no supervisor
/// answers.
pub fn silence(token: &str, process: ProcessHandle) -> Option<Duration> {
    let silent_ms: Option<u64> = ask(token, process, &Question::Silence, SILENCE_LIMIT)?;
    silent_ms.map(Duration::from_millis)
}

/// Asks the ancestors of a process, one of which may be the supervisor of its job.
fn ask<T: DeserializeOwned>(
    token: &str,
    process: ProcessHandle,
    question: &Question,
    limit: Duration,
) -> Option<T> {
    let question = serde_json::to_vec(&(process, question)).ok()?;
    let stats = procfs::stats();
    let ask_one = |supervisor| {
        let name = name_of(token, supervisor);
        let answer = abstract_socket::ask(&name, &question, limit, PROFILES_BYTES).ok()??;
        // another process may have taken the name
        let is_ours = answer.peer.uid() == nix::unistd::geteuid().as_raw();
        is_ours.then(|| serde_json::from_slice(&answer.bytes).ok())?
    };
    processes::line_of(&stats, process.pid)
        .skip(1)
        .find_map(ask_one)
}

/// The name of the socket. The token cannot be derived from it.
fn name_of(token: &str, supervisor: i32) -> String {
    let id = abstract_socket::id_of("dgl-tools 2026 stacks of a job", token);
    format!("dgl-tools/stacks/{id}/{supervisor}")
}
