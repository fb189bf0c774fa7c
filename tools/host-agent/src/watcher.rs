//! The watcher of a session. Every session with a tool has one: the tool has started the watcher,
//! which starts the session before stdin is read, and ends what the session leaves behind if it
//! dies.
//!
//!     tool ══ stdin, stdout ══> host-agent session ──> its processes
//!                                     ║ notes, answers
//!             host-agent serve ═══════╝ (the watcher, its parent)
//!
//! The session is this program again, with the same stdin and stdout, which the watcher does not
//! read. The session's [`Note`]s tell the watcher what to end. The watcher itself holds the claim
//! of a job, which must not be released before that.
//!
//! - **What it watches**: the session, its child; and, while a claim is held and the job has not
//!   started, whether stdin has ended. It then kills the session, because a check that hangs must
//!   not keep the claim.
//! - **When it acts**: if a signal ended the session, or the session fails as the supervisor of a
//!   job. A session that ends by itself has cleaned up; only what programs that it asked have left
//!   in the background, such as an ssh-agent of a setup text, is killed.
//! - **What it ends**: all its descendants, by pidfd and start time. As a subreaper, it adopts
//!   those whose parents have ended, whatever they did to their environment. For a job, also all
//!   processes with its token: TERM, and KILL after the job's grace time; for other sessions, KILL
//!   at once. Then it removes the job's files in /dev/shm and the directory of a push.
//! - **Its own end**: it blocks the signals that ask a process to end, because an engine may signal
//!   everything on the host, as Slurm does at a time limit; they are meant for the processes. If it
//!   is killed nevertheless, the kernel sends TERM to the session. A supervisor, which blocks TERM,
//!   detects within a second that it has another parent and ends the job; any other session ends,
//!   and the next push cleans up its directory.

use agent::notes::{Note, hand_over};
use agent::output::EventOutput;
use agent::signals::block_signals;
use agent_checks::claim::{self, HeldClaim};
use agent_supervise::members;
use host::processes::{ProcessHandle, end_processes, find_below, is_outside};
use host::shm::{self, ShmFile};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use record::exit::SignalNumber;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;
use wire::files::Receive;
use wire::job::Job;
use wire::preflight::Taken;
use wire::{Event, Failure};

/// Exits with the session's status.
pub fn watch(token: Option<&str>) -> ExitCode {
    let mut watcher = Watcher::default();
    let problem = match watcher.watch(token) {
        Ok(status) if !watcher.has_died(status) => {
            end_below();
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return code.map_or(ExitCode::FAILURE, ExitCode::from);
        }
        Ok(status) => {
            watcher.end();
            let signal = SignalNumber(status.signal().unwrap_or_default());
            format!("SIG{signal} stopped the agent on the host")
        }
        Err(error) => format!("host-agent: {error}"),
    };
    // the last message of a supervisor may be incomplete
    if watcher.job.is_none() {
        EventOutput::default().event(&Event::Failed(Failure::new(problem)));
    }
    ExitCode::FAILURE
}

#[derive(Debug, Default)]
struct Watcher {
    claim: Option<HeldClaim>,
    /// The job that the session supervises.
    job: Option<Job>,
    shm: BTreeSet<ShmFile>,
    /// The push whose files the session receives.
    push_folder: Option<Receive>,
}

impl Watcher {
    fn watch(&mut self, token: Option<&str>) -> io::Result<ExitStatus> {
        block_signals()?;
        set_child_subreaper(true)?;
        let (notes, note_writer) = io::pipe()?;
        let (answer_reader, answers) = io::pipe()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("host-agent").arg("session");
        command.args([hand_over(&note_writer)?, hand_over(&answer_reader)?]);
        let mut session = command.args(token).spawn()?;
        drop((note_writer, answer_reader));
        self.listen(
            notes,
            answers,
            ProcessHandle::of(session.id().cast_signed()),
        );
        session.wait()
    }

    /// Answers the notes of a session until its end.
    fn listen(
        &mut self,
        notes: PipeReader,
        mut answers: PipeWriter,
        session: Option<ProcessHandle>,
    ) {
        let mut notes = BufReader::new(notes);
        loop {
            let prepares = self.claim.is_some() && self.job.is_none();
            if prepares && !is_tool_there(notes.get_ref()) {
                session.map(|session| session.signal(Signal::SIGKILL));
            }
            let mut line = String::new();
            let _ = notes.read_line(&mut line);
            // an incomplete note, or none, is the end of the session
            match serde_json::from_str(&line) {
                Ok(Note::Shm(file)) => drop(self.shm.insert(file)),
                Ok(note) => {
                    let answer = serde_json::to_string(&self.take(note)).unwrap_or_default();
                    let _ = writeln!(answers, "{answer}");
                }
                Err(_) => return,
            }
        }
    }

    /// Returns the jobs that hold a part of a claim.
    fn take(&mut self, note: Note) -> Result<Vec<Taken>, Failure> {
        match note {
            Note::Claim(job, claim) => {
                // a claim that this session already holds is no conflict
                self.claim = None;
                match claim::take(&job, &claim)? {
                    Ok(held) => self.claim = Some(held),
                    Err(taken) => return Ok(taken),
                }
            }
            Note::Confirm => self.claim.iter().for_each(HeldClaim::confirm),
            Note::Release => self.claim = None,
            Note::Supervise(job) => self.job = Some(job),
            Note::Shm(file) => drop(self.shm.insert(file)),
            Note::PushFolder(receive) => self.push_folder = Some(receive),
        }
        Ok(Vec::new())
    }

    /// Whether a signal ended the session, or a supervisor has failed.
    fn has_died(&self, status: ExitStatus) -> bool {
        status.signal().is_some() || self.job.is_some() && !status.success()
    }

    /// Ends everything that the session has left, and cleans up its files.
    fn end(&mut self) {
        let grace_ms = self.job.as_ref().map_or(0, |job| job.grace_ms);
        end_processes(Duration::from_millis(grace_ms), &BTreeSet::new(), || {
            reap_ended();
            match &self.job {
                Some(job) => members::of_job(&job.token).into_iter().collect(),
                None => find_below(std::process::id().cast_signed()),
            }
        });
        shm::remove_unmapped(&self.shm);
        self.push_folder.iter().for_each(agent_files::put_away);
    }
}

/// Kills what the session has left, except a dgl-reap that a process of the job has called: it
/// survives to report the end of the job.
fn end_below() {
    end_processes(Duration::ZERO, &BTreeSet::new(), || {
        // orphans are adopted, so without children there are no descendants
        if !reap_ended() {
            return Vec::new();
        }
        let mut below = find_below(std::process::id().cast_signed());
        below.retain(|process| !is_outside(process.pid));
        below
    });
}

/// Returns whether children are left that have not ended.
fn reap_ended() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(status) if status.pid().is_some() => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// Waits for a note or the end of notes; returns whether stdin is still open.
fn is_tool_there(notes: &PipeReader) -> bool {
    // poll reports the end of a pipe in any case, but that of a socket only on request
    let hangup = PollFlags::from_bits_retain(libc::POLLRDHUP);
    let stdin = io::stdin();
    let mut fds = [
        PollFd::new(notes.as_fd(), PollFlags::POLLIN),
        PollFd::new(stdin.as_fd(), hangup),
    ];
    while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
    // an event without a name counts, too
    !fds[1].any().unwrap_or(true)
}
