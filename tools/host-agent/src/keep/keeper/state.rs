//! The state of a keeper.

use crate::keep::file_writer::FileWriter;
use crate::keep::folder::{Folder, KeeperLock};
use crate::keep::listener::PeerListener;
use crate::keep::orders::Orders;
use crate::keep::pipes::{MessageReader, MessageWriter};
use crate::open_files;
use job::{Ending, PauseWatch};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tls::{Identity, Link};
use wire::codec::{self, Decoder};
use wire::job::{Job, Process};
use wire::keep::PeerMessage;
use wire::supervise::Start;
use wire::{Event, Request};

/// The files that the keeper writes.
pub(super) struct Files {
    pub(super) folder: Folder,
    pub(super) _lock: KeeperLock,
    pub(super) writer: FileWriter,
    pub(super) orders: Orders,
}

/// A keeper. Its methods stand beside what they deal with, in launcher.rs, peers.rs and
/// supervisor.rs.
pub(super) struct Keeper {
    /// The launcher; `None` once it is gone.
    pub(super) launcher: Option<MessageReader>,
    pub(super) launcher_out: MessageWriter,
    pub(super) supervisor: Supervisor,
    pub(super) job: Option<Job>,
    pub(super) processes: Vec<Process>,
    pub(super) records: Vec<String>,
    pub(super) identity: Identity,
    pub(super) files: Option<Files>,
    /// Decides about the job, if this host leads.
    pub(super) leader: Option<Leader>,
    /// The keepers that are connected with this one: if it leads, those of all other hosts;
    /// otherwise that of the first host.
    pub(super) peers: BTreeMap<u32, Peer>,
    /// What the launcher wants to start; from then on the launcher is not needed.
    pub(super) start: Option<Start>,
    pub(super) ending: Option<Ending>,
    pub(super) signals: SignalFd,
    /// When the first SIGTERM came.
    pub(super) terminated: Option<Instant>,
    pub(super) sent_alive: Instant,
    pub(super) checked: Instant,
    /// Notices that this process did not run.
    pub(super) pauses: PauseWatch,
    /// For how long it did not run the last time, and when that was over.
    pub(super) paused: Option<(Duration, Instant)>,
    /// When everything had ended here.
    pub(super) over: Option<Instant>,
}

/// The keeper of another host, as this one sees it.
pub(super) struct Peer {
    pub(super) link: Link,
    decoder: Decoder,
    /// When something came from it last.
    pub(super) received: Instant,
}

impl Peer {
    pub(super) fn new(link: Link, received: &[u8]) -> Peer {
        let mut decoder = Decoder::default();
        decoder.push(received);
        Peer {
            link,
            decoder,
            received: Instant::now(),
        }
    }

    /// The messages that came; and whether the peer is still there.
    pub(super) fn read(&mut self) -> (Vec<PeerMessage>, bool) {
        let mut received = Vec::new();
        let open =
            self.link.flush().is_ok() && self.link.receive(&mut received).is_ok_and(|open| open);
        if !received.is_empty() {
            self.received = Instant::now();
        }
        self.decoder.push(&received);
        let (messages, well_formed) = self.decoder.messages();
        let messages = messages.into_iter().map(|message| message.head);
        (messages.collect(), open && well_formed)
    }
}

/// What the keeper of the first host has besides.
pub(super) struct Leader {
    pub(super) job: job::Job,
    /// Where other keepers arrive; `None` once all are there.
    pub(super) listener: Option<PeerListener>,
    /// The hosts that have not joined yet.
    pub(super) awaited: BTreeSet<u32>,
    /// When they must have joined.
    pub(super) join_until: Instant,
}

/// The agent that supervises; for it, the keeper is the launcher.
pub(super) struct Supervisor {
    pub(super) child: Child,
    pub(super) requests: MessageWriter,
    pub(super) events: MessageReader,
    /// When something came from it last.
    pub(super) received: Instant,
    /// Whether the processes were to be started.
    pub(super) started: bool,
    /// When it ended before everything had ended: its guardian ends the rest.
    pub(super) gone: Option<Instant>,
}

impl Supervisor {
    pub(super) fn begin() -> io::Result<Supervisor> {
        let mut child = Command::new("/proc/self/exe")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Supervisor {
            child,
            requests: MessageWriter::new(stdin.into())?,
            events: MessageReader::new(stdout.into())?,
            received: Instant::now(),
            started: false,
            gone: None,
        })
    }

    pub(super) fn ask(&mut self, request: &Request) {
        self.requests.send(&codec::encode(request, &[]));
    }
}

impl Keeper {
    pub(super) fn begin() -> io::Result<Keeper> {
        // programs inherit blocked signals
        let supervisor = Supervisor::begin()?;
        let signals = SigSet::from_iter([
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGTERM,
        ]);
        signals.thread_block()?;
        let signals =
            SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        open_files::raise_limit();
        let launcher = MessageReader::new(io::stdin().as_fd().try_clone_to_owned()?)?;
        let now = Instant::now();
        Ok(Keeper {
            launcher: Some(launcher),
            launcher_out: MessageWriter::new(io::stdout().as_fd().try_clone_to_owned()?)?,
            supervisor,
            job: None,
            processes: Vec::new(),
            records: Vec::new(),
            identity: Identity::new()?,
            files: None,
            leader: None,
            peers: BTreeMap::new(),
            start: None,
            ending: None,
            signals,
            terminated: None,
            sent_alive: now,
            checked: now,
            pauses: PauseWatch::default(),
            paused: None,
            over: None,
        })
    }

    /// After how long a silent side is taken for lost.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.job.as_ref().map_or(60_000, |job| job.host_timeout_ms))
    }

    pub(super) fn note(&mut self, event: Event) {
        if let Some(files) = &self.files {
            files.writer.note(event);
        }
    }
}
