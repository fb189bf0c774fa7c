//! The supervisor: one event loop, in which nothing blocks. Requests of the launcher come on stdin,
//! events go to stdout, and a launcher that is gone or silent ends the job.

#![expect(
    clippy::disallowed_methods,
    reason = "descriptors by their paths in /proc"
)]

use super::liveness::Liveness;
use super::members::{self, Running};
use super::oom_watch::OomWatch;
use super::outbox::Outbox;
use super::private_shm;
use super::profiling::Profiling;
use super::shm_watch::ShmWatch;
use super::signals::block_signals;
use super::stack_jobs::AT_END_LIMIT;
use super::start::{self, Pipes};
use super::usage_watch::UsageWatch;
use crate::open_files;
use crate::processes::{END_NOTICE, REAP_NOTICE, Termination};
use crate::servers::{ServedServers, UsedServers};
use crate::shm::ShmFile;
use crate::stacks::server::StackServer;
use job::{ExitStatus, heartbeat};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getppid};
use record::Sign;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};
use wait4::Wait4;
use wire::codec::Decoder;
use wire::ending::{Cause, Ending};
use wire::job::{Job, Process};
use wire::servers::ServersEnded;
use wire::stacks::Profile;
use wire::supervise::{
    Drained, End, Exited, Listening, Output, Over, ShmRemoved, Start, Started, Stream,
};
use wire::{Event, Failure, Request};

/// How often to check what no event reports.
const PACE: Duration = Duration::from_secs(1);
/// The same while stacks are read before the end of a job, 25 ms for each Python.
const SURVEY_PACE: Duration = Duration::from_millis(20);
/// The same while servers load their graph, so that the trainers wait no longer than they must.
const QUICK_PACE: Duration = Duration::from_millis(200);
/// How often to check whether a process is left while the job ends.
const END_PACE: Duration = Duration::from_millis(100);
/// Processes that were started less than this ago are not ended yet: if all fail at once, each
/// should be able to write its own message.
const FIRST_WORDS: Duration = Duration::from_millis(200);
/// The same after one of a host dies of a signal that dgl-reap sent to all: Python prints its
/// stacks before it dies of ABRT, here perhaps a moment later.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long after dgl-reap has acted on the job a death by a signal is attributed to it; a core
/// file of many gigabytes is written first.
const REAP_LIMIT: Duration = Duration::from_secs(60);
/// How long afterwards a failure is attributed to dgl-reap: torchrun, asked to end, exits with 1.
const REAP_EXIT_LIMIT: Duration = Duration::from_secs(5);
/// How long a pipe is read after the end of the job if another process holds its other end.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// The same if one of the job's processes could not be ended, which holds its own pipes; the
/// launcher waits for the word of it.
const DRAIN_LIMIT_OF_SURVIVORS: Duration = Duration::from_secs(1);
/// How long trainers may take to end after graph servers that stayed, whose shared memory they map.
const TRAINERS_LIMIT: Duration = Duration::from_secs(15);
/// How much is read of a pipe at once: as much as it holds.
const READ_AT_ONCE: usize = 64 << 10;

/// What the guardian hands down: the job, its processes, how they are started, and what had come to
/// stdin behind that.
pub type Description = (Job, Vec<Process>, Start, Vec<u8>);

/// `host-agent supervise DESCRIPTION NOTES`: what the guardian starts. The two arguments are
/// descriptors of the guardian's pipes.
pub fn supervise(description: &str, notes: &str) -> ExitCode {
    let supervisor = match Supervisor::begin(description, notes) {
        Ok(supervisor) => supervisor,
        Err(failure) => {
            let mut output = crate::output::Output::default();
            output.event(&Event::Failed(failure));
            return ExitCode::SUCCESS;
        }
    };
    match supervisor.run() {
        Ok(()) => ExitCode::SUCCESS,
        // the guardian ends the job
        Err(error) => {
            record::tell!("host-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A process of the job.
struct Supervised {
    process: Process,
    /// `None` after its status was reported.
    child: Option<Child>,
    pid: u32,
    /// Those of its streams that are open.
    pipes: Pipes,
    /// The port on which it is to listen and does not yet.
    awaited: Option<u16>,
}

/// An end of the job that waits for last words, or for the stacks of its processes.
#[derive(Clone, Copy, Debug)]
struct PostponedEnd {
    grace: Duration,
    /// Whether ABRT comes first.
    stacks: bool,
    not_before: Instant,
    /// Until when it waits for stacks that are being read.
    survey_until: Option<Instant>,
}

impl Supervised {
    /// Whether it works only for others, which move too if it does. A graph server does once it
    /// listens.
    fn serves(&self) -> bool {
        self.process.service || (self.process.port.is_some() && self.awaited.is_none())
    }
}

struct Supervisor {
    job: Job,
    processes: Vec<Supervised>,
    requests: Decoder,
    stdin_is_open: bool,
    outbox: Outbox,
    signals: SignalFd,
    /// A pipe to the guardian, for what it must know if we are killed.
    notes: File,
    guardian: Pid,
    /// The end of the job, once it has begun.
    termination: Option<Termination>,
    /// Whether no process is left, or KILL did not help.
    is_over: bool,
    started: Instant,
    /// An end that waits.
    postponed: Option<PostponedEnd>,
    /// When dgl-reap announced that it acts on the job.
    reaped: Option<Instant>,
    /// When dgl-reap last ended the whole of it.
    job_reaped: Option<Instant>,
    /// Whether KILL was sent to all, so that nobody else is to blame for a death by it.
    has_killed: bool,
    shm: ShmWatch,
    oom: OomWatch,
    /// When the launcher last sent something.
    received: Instant,
    looked: Instant,
    usage: Option<UsageWatch>,
    liveness: Liveness,
    /// What is being recorded for the launcher.
    profiling: Option<Profiling>,
    /// When the launcher was last told that we are alive.
    reported_alive: Instant,
    /// Where others ask us to read the stacks of our processes.
    stack_server: Option<StackServer>,
    /// The graph servers that the job uses, until their end was reported.
    used_servers: Option<UsedServers>,
    /// Whether the processes are persistent graph servers.
    stays: bool,
    /// Tells their users about them.
    served: Option<ServedServers>,
    /// The pipe that is read first; the next one has the next turn.
    first_pipe: usize,
}

/// What poll(2) reported as ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Signal,
    Stdin,
    Stdout,
    Shm,
    StackServer,
    Pipe(usize, Stream),
}

impl Supervisor {
    /// Reads the description of the job, and starts it.
    fn begin(description: &str, notes: &str) -> Result<Supervisor, Failure> {
        let fault =
            |what: &'static str| move |error: io::Error| Failure::new(format!("{what}: {error}"));
        let guardian = getppid();
        block_signals().map_err(|error| fault("signals")(error.into()))?;
        let signals = signals().map_err(|error| fault("signals")(error.into()))?;
        set_child_subreaper(true).map_err(|error| fault("subreaper")(error.into()))?;
        let notes = own(notes, File::options().write(true));
        let notes = notes.map_err(fault("the guardian's pipe"))?;
        let (job, processes, start, rest) = read(description).map_err(fault("the job"))?;
        if start.private_shm {
            private_shm::make_shm().map_err(|why| {
                Failure::new(format!("no /dev/shm of its own can be made: {why}"))
            })?;
        }
        open_files::raise_limit();
        let now = Instant::now();
        let servers = start.uses.as_ref();
        let used_servers = servers.and_then(|servers| UsedServers::new(servers, job.host));
        let mut supervisor = Supervisor {
            stack_server: StackServer::open(&job.token),
            job,
            processes: Vec::new(),
            requests: Decoder::default(),
            stdin_is_open: true,
            outbox: Outbox::default(),
            signals,
            notes,
            guardian,
            termination: None,
            is_over: false,
            started: now,
            postponed: None,
            reaped: None,
            job_reaped: None,
            has_killed: false,
            shm: ShmWatch::begin(),
            oom: OomWatch::default(),
            received: now,
            looked: now,
            usage: UsageWatch::begin(start.usage_ms, start.gpus),
            profiling: None,
            liveness: Liveness::begin(&start, now),
            reported_alive: now,
            used_servers,
            stays: start.serves.is_some(),
            served: start.serves.as_deref().and_then(ServedServers::begin),
            first_pipe: 0,
        };
        for mut process in processes {
            // its own variables take precedence
            process.env.splice(0..0, start.env.iter().cloned());
            supervisor.start(process);
        }
        supervisor.requests.push(&rest);
        Ok(supervisor)
    }

    fn start(&mut self, process: Process) {
        let index = process.index;
        let mut supervised = Supervised {
            awaited: process.port,
            process,
            child: None,
            pid: 0,
            pipes: Pipes::new(),
        };
        match start::start(&self.job, &supervised.process) {
            Ok((child, pipes)) => {
                let pid = child.id();
                self.outbox.news(&Event::Started(Started { index, pid }));
                self.liveness.moved(index, Sign::Started);
                self.stack_server
                    .iter()
                    .for_each(|server| server.wrote(pid));
                self.oom.examine(index, pid);
                (supervised.child, supervised.pid, supervised.pipes) = (Some(child), pid, pipes);
            }
            Err(error) => {
                supervised.awaited = None;
                let stream = Stream::Stderr;
                let text = format!("host-agent: the process cannot be started: {error}\n");
                let output = Event::Output(Output { index, stream });
                self.outbox.output(&output, text.as_bytes());
                for stream in [Stream::Stdout, stream] {
                    self.outbox
                        .output(&Event::Drained(Drained { index, stream }), &[]);
                }
                let status = ExitStatus::Code(126);
                self.outbox.news(&Event::Exited(Exited::new(index, status)));
            }
        }
        self.processes.push(supervised);
    }

    /// Runs to the end of the job.
    fn run(mut self) -> io::Result<()> {
        self.take_requests();
        while !self.is_over {
            let pace = self.pace();
            let mut until = self.looked + pace;
            if self.termination.is_none() {
                until = until.min(self.shm.due());
            }
            self.turn(until)?;
            if self.termination.is_none() {
                let token = &self.job.token;
                let files = self.shm.scan_if_due(|| members::of_job(token));
                self.note(files);
            }
            if self.looked.elapsed() >= pace {
                self.looked = Instant::now();
                self.check_all();
            }
        }
        self.drain()?;
        self.finish()
    }

    fn pace(&self) -> Duration {
        let awaits_port = || self.processes.iter().any(|one| one.awaited.is_some());
        match () {
            () if self.termination.is_none() && self.liveness.is_surveying() => SURVEY_PACE,
            () if self.termination.is_some() || self.postponed.is_some() => END_PACE,
            () if awaits_port() || self.liveness.is_hurried() => QUICK_PACE,
            () => PACE,
        }
    }

    /// Waits until something can be done, or until the given time, and does it.
    fn turn(&mut self, until: Instant) -> io::Result<()> {
        for ready in self.wait(until)? {
            match ready {
                Ready::Signal => self.reap(),
                Ready::Stdin => self.read_requests(),
                Ready::Stdout => self.outbox.write_some(),
                Ready::Shm => self.shm.note_new_name(),
                Ready::StackServer => self.stack_server.iter_mut().for_each(StackServer::serve),
                Ready::Pipe(at, stream) => self.relay(at, stream),
            }
        }
        if let Some(activity) = self.liveness.move_again() {
            self.outbox.news(&Event::Activity(activity));
        }
        self.keep_alive();
        Ok(())
    }

    fn wait(&mut self, until: Instant) -> io::Result<Vec<Ready>> {
        const READABLE: PollFlags = PollFlags::POLLIN;
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let mut wanted = vec![(Ready::Signal, self.signals.as_fd(), READABLE)];
        if self.stdin_is_open {
            wanted.push((Ready::Stdin, stdin.as_fd(), READABLE));
        }
        if !self.outbox.is_closed() {
            // even with nothing to write, poll(2) tells when nobody reads any longer
            let flags = match self.outbox.is_empty() {
                true => PollFlags::empty(),
                false => PollFlags::POLLOUT,
            };
            wanted.push((Ready::Stdout, stdout.as_fd(), flags));
        }
        if let Some(names) = self.shm.wait_for() {
            wanted.push((Ready::Shm, names, READABLE));
        }
        if let Some(socket) = self.stack_server.as_mut().and_then(StackServer::listening) {
            wanted.push((Ready::StackServer, socket, READABLE));
        }
        if self.outbox.has_room() {
            let count = self.processes.len();
            self.first_pipe = (self.first_pipe + 1) % count.max(1);
            for at in (0..count).map(|offset| (self.first_pipe + offset) % count) {
                let pipes = self.processes[at].pipes.iter();
                wanted.extend(
                    pipes.map(|(stream, pipe)| (Ready::Pipe(at, *stream), pipe.as_fd(), READABLE)),
                );
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

    fn keep_alive(&mut self) {
        let patience = Duration::from_millis(self.job.host_timeout_ms);
        if self.reported_alive.elapsed() >= heartbeat(patience) {
            self.reported_alive = Instant::now();
            self.outbox.alive();
        }
        let is_silent = self.received.elapsed() >= patience && !self.outbox.is_closed();
        if is_silent || self.outbox.is_closed() && self.termination.is_none() {
            self.launcher_is_gone();
        }
    }

    /// Ends the job, because nobody is there to report to.
    fn launcher_is_gone(&mut self) {
        self.stdin_is_open = false;
        self.outbox.close();
        self.end(self.job.grace_ms, false, false);
    }

    fn read_requests(&mut self) {
        let mut buffer = [0; 16 << 10];
        match nix::unistd::read(io::stdin(), &mut buffer) {
            Ok(0) => return self.launcher_is_gone(),
            Ok(count) => self.requests.push(&buffer[..count]),
            Err(Errno::EINTR | Errno::EAGAIN) => return,
            Err(_) => return self.launcher_is_gone(),
        }
        self.take_requests();
    }

    fn take_requests(&mut self) {
        let (requests, well_formed) = self.requests.messages::<Request>();
        for request in requests {
            self.received = Instant::now();
            self.request(request.head);
        }
        // what is not a request does not come from anybody to be obeyed
        if !well_formed {
            self.launcher_is_gone();
        }
    }

    fn request(&mut self, request: Request) {
        match request {
            Request::End(End {
                grace_ms,
                stacks,
                ending,
            }) => {
                use Cause::{Host, Process, Servers};
                let has_failed = matches!(ending.cause, Some(Process | Host | Servers));
                self.served.iter().for_each(|served| served.end(&ending));
                self.end(grace_ms, stacks, has_failed);
            }
            Request::Kill => {
                let now = Instant::now();
                let begun = Termination::begin(Duration::ZERO, false, now);
                let mut termination = self.termination.unwrap_or(begun);
                termination.hurry(now);
                self.end_now(termination);
            }
            Request::ReportStacks => {
                self.liveness.ask();
                self.check_liveness();
            }
            Request::RecordStacks(wanted) if self.profiling.is_none() => {
                self.profiling = Profiling::begin(wanted, &self.job.token);
            }
            // an Alive has served its purpose by coming; all others have no meaning while a job
            // runs
            _ => {}
        }
    }

    /// Checks what no event reports: time, sockets, shared memory, processes that are left.
    fn check_all(&mut self) {
        if getppid() != self.guardian {
            self.end(self.job.grace_ms, false, false);
        }
        let now = Instant::now();
        if let Some(termination) = self.termination {
            self.is_over = !self.is_anybody_left() || termination.is_given_up(now);
            if !self.is_over {
                self.end_now(termination);
            }
            return;
        }
        if let Some(postponed) = self.postponed {
            let reads = self.liveness.is_surveying();
            let surveys = postponed
                .survey_until
                .is_some_and(|until| reads && now < until);
            let waits = surveys || now < postponed.not_before;
            if !waits || self.processes.iter().all(|one| one.child.is_none()) {
                let PostponedEnd { grace, stacks, .. } = postponed;
                self.report_stacks();
                return self.end_now(Termination::begin(grace, stacks, now));
            }
        }
        let profiles = Profiling::take_if_ended(&mut self.profiling);
        self.report_profiles(profiles);
        self.check_ports();
        self.check_used_servers(UsedServers::ending);
        for one in self.processes.iter().filter(|one| one.child.is_some()) {
            self.oom.examine(one.process.index, one.pid);
        }
        self.oom.age(now);
        self.check_usage();
        self.check_liveness();
    }

    /// Reports usage, unless the launcher reads slowly: output is worth more.
    fn check_usage(&mut self) {
        let Some(usage) = self.usage.as_mut().filter(|usage| usage.is_due()) else {
            return;
        };
        if self.outbox.has_room() {
            let usage = usage.sample(&running(&self.processes));
            self.outbox.output(&Event::Usage(usage), &[]);
        }
    }

    fn check_liveness(&mut self) {
        if self.termination.is_some() {
            return;
        }
        let running = self.report_stacks();
        if !self.outbox.has_room() {
            return self.liveness.excuse();
        }
        for event in self.liveness.examine(&self.job, &running) {
            self.outbox.news(&event);
        }
    }

    /// Reports the stacks that have been read. Returns the running processes.
    fn report_stacks(&mut self) -> Vec<Running> {
        let running = running(&self.processes);
        for event in self.liveness.take_stacks(&running) {
            self.outbox.output(&event, &[]);
        }
        running
    }

    fn report_profiles(&mut self, profiles: Vec<Profile>) {
        for profile in profiles {
            self.outbox.output(&Event::Profile(Box::new(profile)), &[]);
        }
    }

    fn is_anybody_left(&self) -> bool {
        self.processes.iter().any(|one| one.child.is_some())
            || !members::of_job(&self.job.token).is_empty()
    }

    fn check_used_servers(&mut self, ending: fn(&UsedServers) -> Option<Ending>) {
        if let Some(ending) = self.used_servers.as_ref().and_then(ending) {
            self.used_servers = None;
            self.outbox.news(&Event::ServersEnded(ServersEnded {
                failure: ending.failure,
            }));
        }
    }

    fn check_ports(&mut self) {
        for one in &mut self.processes {
            let index = one.process.index;
            let listens = |port| members::listens(one.pid.cast_signed(), port);
            if one.awaited.is_some_and(listens) {
                one.awaited = None;
                self.liveness.moved(index, Sign::Listening);
                self.outbox.news(&Event::Listening(Listening { index }));
            }
        }
        if self.processes.iter().all(|one| one.awaited.is_none()) {
            self.served.iter().for_each(ServedServers::listen);
        }
    }

    /// Notes new files in /dev/shm also for the guardian.
    fn note(&mut self, files: Vec<ShmFile>) {
        for file in files {
            let note = serde_json::to_string(&file).unwrap_or_default();
            let _ = writeln!(self.notes, "{note}");
        }
    }

    /// Begins the end of the job, which waits for the last output of its processes; and, if
    /// something has failed, for the stacks of those that have not.
    fn end(&mut self, grace_ms: u64, stacks: bool, has_failed: bool) {
        if self.termination.is_some() || self.postponed.is_some() {
            return;
        }
        let now = Instant::now();
        let is_reaped = self.reaped.is_some_and(|at| at.elapsed() < REAP_LIMIT);
        let wait = if is_reaped {
            LAST_WORDS
        } else {
            Duration::ZERO
        };
        let running = running(&self.processes);
        let surveys = has_failed && !running.is_empty();
        if surveys {
            self.liveness.survey(&self.job, &running);
        }
        let postponed = PostponedEnd {
            grace: Duration::from_millis(grace_ms),
            stacks,
            not_before: (now + wait).max(self.started + FIRST_WORDS),
            survey_until: surveys.then(|| now + AT_END_LIMIT),
        };
        if surveys || postponed.not_before > now {
            self.postponed = Some(postponed);
        } else {
            self.end_now(Termination::begin(postponed.grace, stacks, now));
        }
    }

    /// Begins or continues the end of the job: sends the signal that is due.
    fn end_now(&mut self, mut termination: Termination) {
        let signal = termination.signal(Instant::now());
        if self.termination.replace(termination).is_none() {
            // while they live they can be asked for what they map
            let files = self.shm.scan(&members::of_job(&self.job.token));
            self.note(files);
        }
        if let Some(signal) = signal {
            self.has_killed |= signal == Signal::SIGKILL;
            for process in members::of_job(&self.job.token) {
                process.signal(signal);
            }
            // processes that obey at once are seen at once
            self.looked = Instant::now();
        }
    }

    /// Asks for the status of every child that has ended.
    fn reap(&mut self) {
        self.read_signals();
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            let pid = match waitid(Id::All, peek) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => pid,
                Ok(_) | Err(Errno::ECHILD) => break,
                // a signal for which nix has no name, a real-time one
                Err(_) => match members::dead_child() {
                    Some(pid) => Pid::from_raw(pid),
                    None => break,
                },
            };
            match self
                .processes
                .iter()
                .position(|one| one.child.is_some() && one.pid.cast_signed() == pid.as_raw())
            {
                Some(at) => self.exited(at),
                // a process that came to us because its parent has ended
                None => drop(waitpid(pid, Some(WaitPidFlag::WNOHANG))),
            }
        }
        if self.termination.is_some() {
            self.check_all();
        }
    }

    /// Reads the waiting signals: a child has ended, which the caller handles, or dgl-reap acts.
    fn read_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == REAP_NOTICE as u32 {
                self.reaped = Some(Instant::now());
            } else if signal.ssi_signo == END_NOTICE as u32 {
                self.job_reaped = Some(Instant::now());
            }
        }
    }

    /// Whether dgl-reap has ended the process that has just ended in this way.
    fn has_reaped(&mut self, status: ExitStatus) -> bool {
        // the notice came before the death, and perhaps after the last look
        self.read_signals();
        let (noticed, limit) = match status {
            // who succeeds at ending when asked to has not done its work, if the whole job ends
            ExitStatus::Code(0) => (self.job_reaped, REAP_EXIT_LIMIT),
            ExitStatus::Code(_) => (self.reaped, REAP_EXIT_LIMIT),
            ExitStatus::Signal(_) => (self.reaped, REAP_LIMIT),
        };
        noticed.is_some_and(|at| at.elapsed() < limit)
    }

    /// A process has ended. What it wrote before is reported before, as far as it is at hand.
    fn exited(&mut self, at: usize) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.relay(at, stream);
        }
        let one = &mut self.processes[at];
        let Some(mut child) = one.child.take() else {
            return;
        };
        one.awaited = None;
        let index = one.process.index;
        let used = loop {
            match child.wait4() {
                Ok(used) => break used,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.lost_status(index, &error),
            }
        };
        let status = match (used.status.signal(), used.status.code()) {
            (Some(signal), _) => ExitStatus::Signal(signal),
            (None, code) => ExitStatus::Code(u8::try_from(code.unwrap_or(0)).unwrap_or(0)),
        };
        let was_killed = is_by_kill(status);
        let reaped = self.has_reaped(status);
        let is_now = |at: Instant| at.elapsed() < REAP_LIMIT;
        self.liveness.ended(index);
        self.outbox.news(&Event::Exited(Exited {
            index,
            status,
            core: used.status.core_dumped(),
            cpu_s: (used.rusage.utime + used.rusage.stime).as_secs_f64(),
            max_rss_bytes: used.rusage.maxrss,
            oom: was_killed && !self.has_killed && self.oom.killed(index),
            reaped,
            job_reaped: self.job_reaped.is_some_and(is_now),
        }));
    }

    /// A process has ended, and its status cannot be had. Without an end the job would wait for it.
    fn lost_status(&mut self, index: u32, error: &io::Error) {
        let text = format!("host-agent: the exit status is unknown: {error}\n");
        let stream = Stream::Stderr;
        let output = Event::Output(Output { index, stream });
        self.outbox.output(&output, text.as_bytes());
        self.liveness.ended(index);
        let status = ExitStatus::Code(255);
        self.outbox.news(&Event::Exited(Exited::new(index, status)));
    }

    /// Passes on what a process has written.
    fn relay(&mut self, at: usize, stream: Stream) {
        if !self.outbox.has_room() {
            return;
        }
        let one = &mut self.processes[at];
        let index = one.process.index;
        // it may have ended since it was found readable
        let Some(pipe) = one.pipes.get_mut(&stream) else {
            return;
        };
        let mut buffer = vec![0; READ_AT_ONCE];
        match pipe.read(&mut buffer) {
            Ok(count) if count > 0 => {
                let serves = one.serves();
                self.liveness.wrote(index, serves, stream, &buffer[..count]);
                self.stack_server
                    .iter()
                    .for_each(|server| server.wrote(one.pid));
                self.outbox
                    .output(&Event::Output(Output { index, stream }), &buffer[..count]);
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            _ => {
                one.pipes.remove(&stream);
                self.outbox
                    .output(&Event::Drained(Drained { index, stream }), &[]);
            }
        }
    }

    /// Reads the last output after all have ended. Another process may hold a pipe for ever.
    fn drain(&mut self) -> io::Result<()> {
        let limit = match members::of_job(&self.job.token).is_empty() {
            true => DRAIN_LIMIT,
            false => DRAIN_LIMIT_OF_SURVIVORS,
        };
        let mut until = Instant::now() + limit;
        while self.processes.iter().any(|one| !one.pipes.is_empty()) {
            if !self.outbox.has_room() {
                // the launcher is what we wait for
                until = Instant::now() + limit;
            }
            if Instant::now() >= until {
                break;
            }
            self.turn(until.min(Instant::now() + PACE))?;
        }
        Ok(())
    }

    /// Removes what is left in /dev/shm and reports the end.
    fn finish(mut self) -> io::Result<()> {
        if self.processes.iter().any(|one| one.process.port.is_some()) {
            self.shm.take_unseen();
        }
        let profiles = Profiling::take_at_end(&mut self.profiling);
        self.report_profiles(profiles);
        // they may have ended a moment before the job that used them
        self.check_used_servers(UsedServers::last_ending);
        let mut files = self.shm.remove();
        let until = Instant::now() + TRAINERS_LIMIT;
        while self.stays && self.shm.are_left() && Instant::now() < until {
            self.turn(Instant::now() + QUICK_PACE)?;
            files += self.shm.remove();
        }
        self.outbox
            .output(&Event::ShmRemoved(ShmRemoved { files }), &[]);
        let survivors = u32::try_from(members::of_job(&self.job.token).len()).unwrap_or(u32::MAX);
        // an nvidia-smi that hangs is killed before anybody hears that all has ended, but not
        // before those that are left are counted: what is dead cannot be told from a process of the
        // job
        self.usage = None;
        self.outbox.output(&Event::Over(Over { survivors }), &[]);
        while !self.outbox.is_empty() {
            self.turn(Instant::now() + PACE)?;
        }
        Ok(())
    }
}

fn signals() -> nix::Result<SignalFd> {
    let signals: SigSet = [Signal::SIGCHLD, REAP_NOTICE, END_NOTICE]
        .into_iter()
        .collect();
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

/// A descriptor that the guardian has handed down, as one of our own that nobody else inherits.
fn own(number: &str, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(format!("/proc/self/fd/{number}"))?;
    let number: i32 = number.parse().map_err(io::Error::other)?;
    nix::unistd::close(number)?;
    Ok(file)
}

fn read(description: &str) -> io::Result<Description> {
    let mut text = Vec::new();
    own(description, File::options().read(true))?.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// The running processes, as they are watched.
fn running(processes: &[Supervised]) -> Vec<Running> {
    let running = |one: &Supervised| Running {
        index: one.process.index,
        pid: one.pid.cast_signed(),
        role: one.process.role,
        rank: one.process.rank,
        serves: one.serves(),
    };
    let alive = processes.iter().filter(|one| one.child.is_some());
    alive.map(running).collect()
}

/// Ended by KILL; or a shell, conda or the like that says so of what it ran, by its status.
fn is_by_kill(status: ExitStatus) -> bool {
    const KILL: i32 = Signal::SIGKILL as i32;
    match status {
        ExitStatus::Signal(signal) => signal == KILL,
        ExitStatus::Code(code) => i32::from(code) == 128 + KILL,
    }
}
