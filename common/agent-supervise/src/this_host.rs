//! This host, for the supervision of a job: the processes with their pipes, and the watches.

use super::liveness::Liveness;
use super::members::{self, Running};
use super::oom_watch::OomWatch;
use super::shm_watch::ShmWatch;
use super::socket::{JobAnswers, JobSocket, Order};
use super::start::{self, Pipes};
use crate::servers::{ServedServers, UsedServers};
use agent::job::HostProcess;
use agent::notes::{Note, tell};
use host::processes::{self, ProcessHandle};
use host::procfs;
use host::shm::ShmFile;
use job::{Ending, Outbox, SupervisedHost};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getppid};
use record::exit::{ProcessEnd, SignalNumber};
use record::{Process, Sign};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use wait4::Wait4;
use wire::Event;
use wire::job::Job;
use wire::servers::ServersEnded;
use wire::supervise::{Exited, Listening, ProcessStream, Start};

/// The whole content of a pipe.
const READ_AT_ONCE: usize = 64 << 10;

struct Supervised {
    process: HostProcess,
    /// `None` after its status was taken.
    child: Option<Child>,
    pid: u32,
    pipes: Pipes,
    /// The port on which it will listen; `None` once it does.
    awaited: Option<u16>,
}

impl Supervised {
    /// Whether it only serves others, as a graph server does once it listens. Its activity is
    /// theirs.
    fn serves(&self) -> bool {
        let Process { service, port, .. } = self.process.record;
        service || (port.is_some() && self.awaited.is_none())
    }
}

pub struct ThisHost {
    job: Job,
    /// In the order of their indices.
    processes: Vec<Supervised>,
    signals: SignalFd,
    /// The watcher needs the notes if this process is killed.
    notes: File,
    watcher: Pid,
    shm: ShmWatch,
    oom: OomWatch,
    liveness: Liveness,
    /// `None` once their end was reported.
    used_servers: Option<UsedServers>,
    /// Whether the processes are persistent graph servers.
    stays: bool,
    /// What agents on this host are answered over the socket.
    answers: Arc<JobAnswers>,
    _socket: JobSocket,
    /// What those agents ask of this thread; the pipe has a byte for each order.
    orders: Receiver<Order>,
    ordered: PipeReader,
    /// The index of the process whose pipes are read first, which changes in each round.
    first_pipe: usize,
}

/// Something that poll(2) reported as ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    Signal,
    Stdin,
    Stdout,
    /// A new name in /dev/shm.
    Shm,
    /// An order of a client of the socket.
    Order,
    Pipe(u32, ProcessStream),
}

impl ThisHost {
    pub fn begin(
        job: Job,
        start: &Start,
        watcher: Pid,
        notes: File,
        signals: SignalFd,
    ) -> io::Result<ThisHost> {
        let servers = start.uses.as_ref();
        let served = ServedServers::begin(start.serves.as_deref());
        let (answers, orders, ordered) = JobAnswers::new(&job, served)?;
        let answers = Arc::new(answers);
        Ok(ThisHost {
            _socket: JobSocket::open(&answers)?,
            answers,
            orders,
            ordered,
            used_servers: servers.and_then(|servers| UsedServers::new(servers, job.host)),
            job,
            processes: Vec::new(),
            signals,
            notes,
            watcher,
            shm: ShmWatch::begin(),
            oom: OomWatch::default(),
            liveness: Liveness::begin(start, Instant::now()),
            stays: start.serves.is_some(),
            first_pipe: 0,
        })
    }

    /// When to call [`ThisHost::note_files`].
    pub fn files_due(&self) -> Instant {
        self.shm.due()
    }

    pub fn wait(&mut self, outbox: &Outbox, until: Instant) -> io::Result<Vec<Ready>> {
        const READABLE: PollFlags = PollFlags::POLLIN;
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let mut wanted = vec![
            (Ready::Signal, self.signals.as_fd(), READABLE),
            (Ready::Order, self.ordered.as_fd(), READABLE),
        ];
        if !outbox.is_closed() {
            wanted.push((Ready::Stdin, stdin.as_fd(), READABLE));
            // even with nothing to write, poll(2) reports that the other side no longer reads
            let flags = if outbox.is_empty() {
                PollFlags::empty()
            } else {
                PollFlags::POLLOUT
            };
            wanted.push((Ready::Stdout, stdout.as_fd(), flags));
        }
        if let Some(names) = self.shm.wait_for() {
            wanted.push((Ready::Shm, names, READABLE));
        }
        if outbox.has_room() {
            let count = self.processes.len();
            self.first_pipe = (self.first_pipe + 1) % count.max(1);
            for offset in 0..count {
                let supervised = &self.processes[(self.first_pipe + offset) % count];
                let pipe = |stream| Ready::Pipe(supervised.process.index, stream);
                let pipes = supervised.pipes.iter();
                wanted.extend(pipes.map(|(stream, fd)| (pipe(*stream), fd.as_fd(), READABLE)));
            }
        }
        let fds = wanted.iter().map(|(_, fd, flags)| PollFd::new(*fd, *flags));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        let left = until.saturating_duration_since(Instant::now());
        let limit =
            PollTimeout::try_from(left.as_millis().min(60_000) + 1).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, limit) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let ready = wanted.iter().zip(&fds).filter(|(_, fd)| is_ready(fd));
        Ok(ready.map(|((ready, ..), _)| *ready).collect())
    }

    pub fn take_signals(&self) {
        while let Ok(Some(_)) = self.signals.read_signal() {}
    }

    /// Call this once the pipe has a byte.
    pub fn take_order(&mut self) -> Option<Order> {
        let _ = self.ordered.read(&mut [0]);
        self.orders.try_recv().ok()
    }

    /// Signals each process once: a second ABRT would end Python while it prints its stacks.
    /// Returns how many got it, and the started processes among them and their ancestors.
    pub fn signal_picked(
        &self,
        picked: &[ProcessHandle],
        signal: Signal,
    ) -> (usize, BTreeSet<u32>) {
        let (running, stats) = (self.running(), procfs::stats());
        let mut signalled = picked.to_vec();
        signalled.retain(|process| process.signal(signal));
        let index_of = |process: &ProcessHandle| {
            let mut line = processes::line_of(&stats, process.pid);
            let root = line.find_map(|pid| running.iter().find(|root| root.pid == pid))?;
            Some(root.index)
        };
        let indices = signalled.iter().filter_map(index_of).collect();
        (signalled.len(), indices)
    }

    pub fn note_new_name(&mut self) {
        self.shm.note_new_name();
    }

    pub fn note_files(&mut self) {
        let token = &self.job.token;
        let files = self.shm.scan_if_due(|| members::of_job(token));
        self.note(files);
    }

    fn note(&mut self, files: Vec<ShmFile>) {
        for file in files {
            let _ = tell(&self.notes, &Note::Shm(file));
        }
    }

    fn supervised(&mut self, index: u32) -> Option<&mut Supervised> {
        let mut processes = self.processes.iter_mut();
        processes.find(|supervised| supervised.process.index == index)
    }

    fn running(&self) -> Vec<Running> {
        let running = |supervised: &Supervised| Running {
            index: supervised.process.index,
            pid: supervised.pid.cast_signed(),
            role: supervised.process.record.role,
            rank: supervised.process.record.rank,
            serves: supervised.serves(),
        };
        let alive = self
            .processes
            .iter()
            .filter(|supervised| supervised.child.is_some());
        alive.map(running).collect()
    }

    fn check_ports(&mut self, events: &mut Vec<Event>) {
        for supervised in &mut self.processes {
            let index = supervised.process.index;
            let listens = |port| members::listens(supervised.pid.cast_signed(), port);
            if supervised.awaited.is_some_and(listens) {
                supervised.awaited = None;
                self.liveness.moved(index, Sign::Listening);
                events.push(Event::Listening(Listening { index }));
            }
        }
        if self
            .processes
            .iter()
            .all(|supervised| supervised.awaited.is_none())
        {
            self.answers.servers.listen();
        }
    }

    fn servers_ended(&mut self, ending: fn(&UsedServers) -> Option<ServersEnded>) -> Option<Event> {
        let ended = self.used_servers.as_ref().and_then(ending)?;
        self.used_servers = None;
        Some(Event::ServersEnded(ended))
    }

    fn examine_liveness(&mut self, has_room: bool) -> Vec<Event> {
        let running = self.running();
        let mut events = self.liveness.take_stacks(&running);
        if has_room {
            events.extend(self.liveness.examine(&self.job, &running));
        } else {
            self.liveness.reset_idle();
        }
        events
    }
}

impl SupervisedHost for ThisHost {
    fn start(&mut self, index: u32, process: &Process) -> io::Result<u32> {
        let process = HostProcess::new(index, process.clone());
        let process = process.map_err(|failure| io::Error::other(failure.problem))?;
        let (child, pipes) = start::start(&self.job, &process)?;
        let pid = child.id();
        self.liveness.moved(index, Sign::Started);
        self.answers.wrote(pid);
        self.oom.examine(index, pid);
        self.processes.push(Supervised {
            awaited: process.record.port,
            process,
            child: Some(child),
            pid,
            pipes,
        });
        Ok(pid)
    }

    fn read(&mut self, index: u32, stream: ProcessStream) -> Option<Vec<u8>> {
        let supervised = self.supervised(index)?;
        // the process may have ended since poll(2)
        let pipe = supervised.pipes.get_mut(&stream)?;
        let mut buffer = vec![0; READ_AT_ONCE];
        match pipe.read(&mut buffer) {
            Ok(count) if count > 0 => buffer.truncate(count),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) =>
            {
                return None;
            }
            _ => {
                supervised.pipes.remove(&stream);
                return Some(Vec::new());
            }
        }
        let (pid, serves) = (supervised.pid, supervised.serves());
        self.liveness.wrote(index, serves, stream, &buffer);
        self.answers.wrote(pid);
        Some(buffer)
    }

    fn next_ended(&mut self) -> Option<u32> {
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            let pid = match waitid(Id::All, peek) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => pid,
                Ok(_) | Err(Errno::ECHILD) => return None,
                // nix has no name for the signal, a real-time one
                Err(_) => Pid::from_raw(members::dead_child()?),
            };
            let is_started = |supervised: &&Supervised| {
                supervised.child.is_some() && supervised.pid.cast_signed() == pid.as_raw()
            };
            match self.processes.iter().find(is_started) {
                Some(supervised) => return Some(supervised.process.index),
                // a process that was adopted because its parent has ended
                None => drop(waitpid(pid, Some(WaitPidFlag::WNOHANG))),
            }
        }
    }

    fn take_status(&mut self, index: u32) -> io::Result<Exited> {
        self.liveness.ended(index);
        let supervised = self.supervised(index).ok_or(ErrorKind::NotFound)?;
        supervised.awaited = None;
        let mut child = supervised.child.take().ok_or(ErrorKind::NotFound)?;
        let used = loop {
            match child.wait4() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                used => break used?,
            }
        };
        let mut end = match (used.status.signal(), used.status.code()) {
            (Some(signal), _) => ProcessEnd::killed(SignalNumber(signal)),
            (None, code) => ProcessEnd::exited(u8::try_from(code.unwrap_or(0)).unwrap_or(0)),
        };
        end.oom = is_by_kill(end) && self.oom.killed(index, used.rusage.maxrss);
        Ok(Exited {
            cpu_s: (used.rusage.utime + used.rusage.stime).as_secs_f64(),
            max_rss_bytes: used.rusage.maxrss,
            ..Exited::new(index, end)
        })
    }

    fn count(&mut self) -> usize {
        members::of_job(&self.job.token).len()
    }

    fn signal(&mut self, signal: Signal) {
        for process in members::of_job(&self.job.token) {
            process.signal(signal);
        }
    }

    fn is_unguarded(&self) -> bool {
        getppid() != self.watcher
    }

    fn report_stacks(&mut self, has_room: bool) -> Vec<Event> {
        self.liveness.ask();
        self.examine_liveness(has_room)
    }

    fn examine(&mut self, has_room: bool) -> Vec<Event> {
        let mut events = Vec::new();
        self.check_ports(&mut events);
        events.extend(self.servers_ended(UsedServers::ending));
        for supervised in self
            .processes
            .iter()
            .filter(|supervised| supervised.child.is_some())
        {
            self.oom.examine(supervised.process.index, supervised.pid);
        }
        self.oom.age(Instant::now());
        events.extend(self.examine_liveness(has_room));
        events
    }

    fn is_hurried(&self) -> bool {
        let awaits_port = || {
            self.processes
                .iter()
                .any(|supervised| supervised.awaited.is_some())
        };
        awaits_port() || self.liveness.is_hurried()
    }

    fn urgent(&mut self) -> Option<Event> {
        self.liveness.move_again().map(Event::Activity)
    }

    fn survey(&mut self) {
        let running = self.running();
        self.liveness.survey(&self.job, &running);
    }

    fn is_surveying(&self) -> bool {
        self.liveness.is_surveying()
    }

    fn take_stacks(&mut self) -> Vec<Event> {
        let running = self.running();
        self.liveness.take_stacks(&running)
    }

    fn note_ending(&mut self, ending: &Ending) {
        self.answers.servers.end(ending);
    }

    fn begin_end(&mut self) {
        // mappings can only be read while the processes are alive
        let files = self.shm.scan(&members::of_job(&self.job.token));
        self.note(files);
    }

    fn last_reports(&mut self) -> Option<Event> {
        if self
            .processes
            .iter()
            .any(|supervised| supervised.process.record.port.is_some())
        {
            self.shm.take_unseen();
        }
        // the servers may have ended a moment before the job that used them
        self.servers_ended(UsedServers::last_ending)
    }

    fn remove_files(&mut self) -> (u32, bool) {
        (self.shm.remove(), self.stays && self.shm.are_left())
    }
}

/// Whether KILL ended the process or, by its exit status, the program that a shell, conda or the
/// like ran.
fn is_by_kill(end: ProcessEnd) -> bool {
    end.shell_code() == ProcessEnd::killed(SignalNumber::KILL).shell_code()
}
