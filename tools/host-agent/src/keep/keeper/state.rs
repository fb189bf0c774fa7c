//! The state of a keeper.

use super::agent::Supervisor;
use super::peer::Peer;
use crate::keep::folder::{Folder, KeeperLock};
use crate::keep::guests::GuestListener;
use crate::keep::journal::Journal;
use crate::keep::leader::Leader;
use crate::keep::orders::Orders;
use crate::keep::pipes::{MessageReader, MessageWriter};
use job::PauseWatch;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tls::Identity;
use wire::Request;
use wire::codec::Message;
use wire::job::{Job, Process};
use wire::keep::Ending;
use wire::supervise::Start;

/// Connections that try to get in are open files.
const OPEN_FILES: u64 = 65_536;

/// The files that the keeper writes.
pub(super) struct Files {
    pub(super) folder: Folder,
    pub(super) _lock: KeeperLock,
    pub(super) journal: Journal,
    pub(super) logs: Vec<File>,
    pub(super) orders: Orders,
}

/// The place of this keeper among those of the job.
pub(super) enum Place {
    /// It is not prepared yet.
    None,
    /// It leads: it decides about the job.
    Leads {
        leader: Box<Leader>,
        door: Option<Box<GuestListener>>,
        peers: BTreeMap<u32, Peer>,
    },
    /// It will join the leader.
    WillJoin,
    /// It has joined the leader: the number of that host, and its keeper as long as it is there.
    Joins { host: u32, peer: Option<Box<Peer>> },
}

/// A keeper. Its methods stand beside what they deal with, in launcher.rs, peers.rs and
/// supervisor.rs; the event loop is in mod.rs.
pub(super) struct Keeper {
    /// The launcher; `None` once it is gone.
    pub(super) launcher: Option<MessageReader>,
    pub(super) launcher_out: MessageWriter,
    /// Requests, in the order in which they are answered.
    pub(super) queue: VecDeque<Message<Request>>,
    /// How many requests the supervising agent has not answered yet.
    pub(super) unanswered: usize,
    pub(super) supervisor: Supervisor,
    pub(super) job: Option<Job>,
    pub(super) processes: Vec<Process>,
    pub(super) records: Vec<String>,
    pub(super) identity: Identity,
    pub(super) files: Option<Files>,
    pub(super) place: Place,
    /// What the launcher wants to start; from then on the launcher is not needed.
    pub(super) start: Option<Start>,
    pub(super) ending: Option<Ending>,
    pub(super) signals: SignalFd,
    pub(super) said_alive: Instant,
    pub(super) looked: Instant,
    /// Notices that this process did not run.
    pub(super) pauses: PauseWatch,
    /// For how long it did not run the last time, and when that was over.
    pub(super) paused: Option<(Duration, Instant)>,
    /// When everything had ended here.
    pub(super) over: Option<Instant>,
}

impl Keeper {
    pub(super) fn begin() -> io::Result<Keeper> {
        // programs inherit blocked signals
        let supervisor = Supervisor::begin()?;
        let signals: SigSet = [
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGTERM,
        ]
        .into_iter()
        .collect();
        signals.thread_block()?;
        let signals =
            SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(OPEN_FILES), hard);
        }
        let now = Instant::now();
        Ok(Keeper {
            launcher: Some(MessageReader::new(
                io::stdin().as_fd().try_clone_to_owned()?,
            )?),
            launcher_out: MessageWriter::new(io::stdout().as_fd().try_clone_to_owned()?)?,
            queue: VecDeque::new(),
            unanswered: 0,
            supervisor,
            job: None,
            processes: Vec::new(),
            records: Vec::new(),
            identity: Identity::new()?,
            files: None,
            place: Place::None,
            start: None,
            ending: None,
            signals,
            said_alive: now,
            looked: now,
            pauses: PauseWatch::default(),
            paused: None,
            over: None,
        })
    }

    /// After how long a silent side is taken for lost.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.job.as_ref().map_or(60_000, |job| job.host_timeout_ms))
    }
}
