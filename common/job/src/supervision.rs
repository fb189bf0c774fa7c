//! The supervision of a host's part of a job: what ends it, which signals its processes get and
//! when, and what is reported in which order. It asks no clock and opens nothing;
//! [`SupervisedHost`] is the host.

use crate::outbox::Outbox;
use crate::pause::heartbeat;
use crate::termination::{Termination, TerminationStep};
use nix::sys::signal::Signal;
use record::Process;
use record::exit::ProcessEnd;
use std::io;
use std::time::{Duration, Instant};
use wire::codec::Decoder;
use wire::ending::{Cause, Ending};
use wire::job::Job;
use wire::supervise::{Drained, End, Exited, Output, Over, ProcessStream, ShmRemoved, Started};
use wire::{Event, Request};

/// How often to check for changes that cause no event.
const PACE: Duration = Duration::from_secs(1);
/// The same while stacks are read before the end of a job, which takes 25 ms for each Python
/// process.
const SURVEY_PACE: Duration = Duration::from_millis(20);
/// The same while servers load their graph, because trainers wait for them.
const QUICK_PACE: Duration = Duration::from_millis(200);
/// The same while the processes are being ended.
const END_PACE: Duration = Duration::from_millis(100);
/// How long the end of a job waits for the stacks of its processes. Stacks that were read until
/// then are reported.
pub const SURVEY_LIMIT: Duration = Duration::from_secs(2);
/// Processes are not ended earlier than this after their start: if all fail at once, each can write
/// its own message.
const FIRST_WORDS: Duration = Duration::from_millis(200);
/// How long the end waits after a signal of dgl-reap: Python prints its stacks before it dies of
/// ABRT, in some processes a moment later than in others.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long after a signal of dgl-reap the death of a process by a signal is attributed to it: the
/// process may first write a core file of many gigabytes.
const DGL_REAP_SIGNAL_LIMIT: Duration = Duration::from_secs(60);
/// The same for an exit with an error: torchrun exits with 1 when it gets TERM.
const DGL_REAP_EXIT_LIMIT: Duration = Duration::from_secs(5);
/// How long pipes are read after the end of the job if other processes hold them open.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// The same if one of the job's processes could not be ended: it holds its pipes open, and the
/// launcher waits for the report.
const DRAIN_LIMIT_OF_SURVIVORS: Duration = Duration::from_secs(1);
/// How long trainers may take to end after persistent graph servers, whose shared memory they map.
const TRAINERS_LIMIT: Duration = Duration::from_secs(15);

/// What a supervision needs of its host.
pub trait SupervisedHost {
    /// Starts a process; returns its process id.
    fn start(&mut self, index: u32, process: &Process) -> io::Result<u32>;
    /// Reads what a process has written: empty at the end of the stream, `None` if nothing has
    /// arrived.
    fn read(&mut self, index: u32, stream: ProcessStream) -> Option<Vec<u8>>;
    /// The index of a process that has ended and whose status was not taken.
    fn next_ended(&mut self) -> Option<u32>;
    /// Takes the status of such a process. Its `oom` is whether the kernel may have killed it for
    /// lack of memory.
    fn take_status(&mut self, index: u32) -> io::Result<Exited>;
    /// Whether dgl-reap has announced that it signals processes of the job, and that it ends the
    /// whole job.
    fn take_notices(&mut self) -> (bool, bool);
    /// How many processes of the job are alive.
    fn count(&mut self) -> usize;
    /// Sends a signal to all processes of the job.
    fn signal(&mut self, signal: Signal);
    /// Whether the watcher is gone that would end the job if its supervisor were killed.
    fn is_unguarded(&self) -> bool;
    /// Carries out a request of the launcher about stacks, or checks for changes that cause no
    /// event; returns the events to report. `has_room` is whether they can be sent soon.
    fn examine(&mut self, request: Option<Request>, has_room: bool) -> Vec<Event>;
    /// Whether to check more often, because a server may listen soon.
    fn is_hurried(&self) -> bool;
    /// An event to report at once.
    fn urgent(&mut self) -> Option<Event>;
    /// Begins to read the stacks of all processes, after a failure.
    fn survey(&mut self);
    /// Whether the stacks are still being read.
    fn is_surveying(&self) -> bool;
    /// The stacks that have been read.
    fn take_stacks(&mut self) -> Vec<Event>;
    /// Notes why the launcher ends the job.
    fn note_ending(&mut self, ending: &Ending);
    /// Called just before the processes are ended, the last moment to measure what they use.
    fn begin_end(&mut self);
    /// Called after all processes have ended; returns the last events to report.
    fn last_reports(&mut self) -> Vec<Event>;
    /// Removes the files that the job has left; returns how many, and whether some are still in
    /// use.
    fn remove_files(&mut self) -> (u32, bool);
}

/// An end of the job that waits for the last output or the stacks of its processes.
#[derive(Clone, Copy, Debug)]
struct PostponedEnd {
    grace: Duration,
    /// Whether ABRT comes first.
    stacks: bool,
    not_before: Instant,
    /// Until when it waits for stacks.
    survey_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum SupervisionPhase {
    /// Processes run, or are being ended.
    Active,
    /// All processes have ended or are given up, and their last output is read. Another process may
    /// hold a pipe open for ever.
    Draining { limit: Duration, until: Instant },
    /// The files that they have left are removed.
    Removing { until: Instant, files: u32 },
    /// The last report is sent.
    Reporting,
}

/// The supervision of the processes of one host.
pub struct Supervision<H> {
    /// The host of the processes.
    pub host: H,
    job: Job,
    /// The time of the current call.
    now: Instant,
    requests: Decoder,
    /// The messages for the launcher.
    pub outbox: Outbox,
    phase: SupervisionPhase,
    /// How many processes have a status that was not taken yet.
    running: usize,
    /// How many streams of processes are open.
    streams: usize,
    started: Instant,
    /// An end that has not begun.
    postponed: Option<PostponedEnd>,
    /// The end of the job, once it has begun.
    termination: Option<Termination>,
    /// When dgl-reap last signalled processes of the job.
    dgl_reap_at: Option<Instant>,
    /// When dgl-reap last ended the whole job.
    dgl_reap_ended_job_at: Option<Instant>,
    /// Whether the supervision itself sent KILL, which explains deaths by it.
    has_killed: bool,
    /// When the launcher last sent something.
    received_at: Instant,
    /// When the processes were last checked.
    checked_at: Instant,
    /// When the last heartbeat was sent to the launcher.
    alive_sent_at: Instant,
}

impl<H: SupervisedHost> Supervision<H> {
    /// Starts the processes. `received` was read from the launcher already.
    pub fn begin(
        (job, processes): (Job, Vec<Process>),
        received: &[u8],
        host: H,
        now: Instant,
    ) -> Supervision<H> {
        let mut supervision = Supervision {
            host,
            job,
            now,
            requests: Decoder::default(),
            outbox: Outbox::default(),
            phase: SupervisionPhase::Active,
            running: 0,
            streams: 0,
            started: now,
            postponed: None,
            termination: None,
            dgl_reap_at: None,
            dgl_reap_ended_job_at: None,
            has_killed: false,
            received_at: now,
            checked_at: now,
            alive_sent_at: now,
        };
        for (index, process) in (0..).zip(&processes) {
            supervision.start(index, process);
        }
        supervision.receive(received, now);
        supervision
    }

    fn start(&mut self, index: u32, process: &Process) {
        match self.host.start(index, process) {
            Ok(pid) => {
                self.report(Event::Started(Started { index, pid }));
                self.running += 1;
                self.streams += 2;
            }
            Err(error) => {
                self.explain(index, &format!("the process cannot be started: {error}"));
                for stream in [ProcessStream::Stdout, ProcessStream::Stderr] {
                    self.report(Event::Drained(Drained { index, stream }));
                }
                self.report(Event::Exited(Exited::new(index, ProcessEnd::exited(126))));
            }
        }
    }

    fn report(&mut self, event: Event) {
        self.outbox.push(&event, &[]);
    }

    fn report_all(&mut self, events: Vec<Event>) {
        events.into_iter().for_each(|event| self.report(event));
    }

    /// Writes an explanation into the stderr of a process.
    fn explain(&mut self, index: u32, why: &str) {
        let stream = ProcessStream::Stderr;
        let output = Event::Output(Output { index, stream });
        let text = format!("host-agent: {why}\n");
        self.outbox.push(&output, text.as_bytes());
    }

    /// Whether everything was reported.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, SupervisionPhase::Reporting) && self.outbox.is_empty()
    }

    /// Whether the first signal that ends the processes was sent.
    pub fn is_ending(&self) -> bool {
        self.termination.is_some()
    }

    /// When [`Supervision::tick`] must be called at the latest.
    pub fn due(&self) -> Instant {
        match self.phase {
            SupervisionPhase::Active => self.checked_at + self.pace(),
            SupervisionPhase::Draining { until, .. } => until.min(self.now + PACE),
            SupervisionPhase::Removing { .. } => self.now + QUICK_PACE,
            SupervisionPhase::Reporting => self.now + PACE,
        }
    }

    fn pace(&self) -> Duration {
        if !self.is_ending() && self.host.is_surveying() {
            SURVEY_PACE
        } else if self.is_ending() || self.postponed.is_some() {
            END_PACE
        } else if self.host.is_hurried() {
            QUICK_PACE
        } else {
            PACE
        }
    }

    /// Does everything that is due at this time.
    pub fn tick(&mut self, now: Instant) {
        self.now = now;
        let urgent = self.host.urgent();
        self.report_all(urgent.into_iter().collect());
        self.keep_alive();
        if matches!(self.phase, SupervisionPhase::Active) && now >= self.checked_at + self.pace() {
            self.checked_at = now;
            self.check_all();
        }
        self.advance_phase();
    }

    fn keep_alive(&mut self) {
        let patience = Duration::from_millis(self.job.host_timeout_ms);
        if self.since(self.alive_sent_at) >= heartbeat(patience) {
            self.alive_sent_at = self.now;
            self.outbox.alive();
        }
        let is_silent = self.since(self.received_at) >= patience && !self.outbox.is_closed();
        if is_silent || self.outbox.is_closed() && !self.is_ending() {
            self.launcher_is_gone();
        }
    }

    fn since(&self, time: Instant) -> Duration {
        self.now.saturating_duration_since(time)
    }

    /// Ends the job, because its launcher is lost.
    pub fn launcher_is_gone(&mut self) {
        self.outbox.close();
        self.end(self.job.grace_ms, false, false);
    }

    /// Handles bytes from the launcher.
    pub fn receive(&mut self, bytes: &[u8], now: Instant) {
        self.now = now;
        self.requests.push(bytes);
        loop {
            match self.requests.next_message::<Request>() {
                Ok(Some(request)) => {
                    self.received_at = now;
                    self.request(request.head);
                }
                Ok(None) => return,
                // a peer that sends anything but requests is not the launcher
                Err(_) => return self.launcher_is_gone(),
            }
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
                self.host.note_ending(&ending);
                self.end(grace_ms, stacks, has_failed);
            }
            Request::Kill if matches!(self.phase, SupervisionPhase::Active) => {
                let begun = Termination::begin(Duration::ZERO, false, self.now);
                let mut termination = self.termination.unwrap_or(begun);
                termination.hurry(self.now);
                self.advance_termination(termination);
            }
            Request::ReportStacks | Request::RecordStacks(_) if !self.is_ending() => {
                let events = self.host.examine(Some(request), self.outbox.has_room());
                self.report_all(events);
            }
            // Alive has set `received_at`; all others have no meaning while a job runs
            _ => {}
        }
    }

    /// Checks for what causes no event: limits of time, and processes that are left.
    fn check_all(&mut self) {
        if self.host.is_unguarded() {
            self.end(self.job.grace_ms, false, false);
        }
        if let Some(termination) = self.termination {
            return self.advance_termination(termination);
        }
        if let Some(postponed) = self.postponed {
            let is_surveying = self.host.is_surveying();
            let waits_for_stacks = postponed
                .survey_until
                .is_some_and(|until| is_surveying && self.now < until);
            let waits = waits_for_stacks || self.now < postponed.not_before;
            if !waits || self.running == 0 {
                let PostponedEnd { grace, stacks, .. } = postponed;
                let events = self.host.take_stacks();
                self.report_all(events);
                let termination = Termination::begin(grace, stacks, self.now);
                return self.advance_termination(termination);
            }
        }
        let events = self.host.examine(None, self.outbox.has_room());
        self.report_all(events);
    }

    /// Begins the end of the job. It waits until processes could write their last output and, after
    /// a failure, until the stacks of the others were read.
    fn end(&mut self, grace_ms: u64, stacks: bool, has_failed: bool) {
        if self.is_ending() || self.postponed.is_some() {
            return;
        }
        let is_reaped = self
            .dgl_reap_at
            .is_some_and(|when| self.since(when) < DGL_REAP_SIGNAL_LIMIT);
        let wait = if is_reaped {
            LAST_WORDS
        } else {
            Duration::ZERO
        };
        let surveys = has_failed && self.running > 0;
        if surveys {
            self.host.survey();
        }
        let postponed = PostponedEnd {
            grace: Duration::from_millis(grace_ms),
            stacks,
            not_before: (self.now + wait).max(self.started + FIRST_WORDS),
            survey_until: surveys.then(|| self.now + SURVEY_LIMIT),
        };
        if surveys || postponed.not_before > self.now {
            self.postponed = Some(postponed);
        } else {
            self.advance_termination(Termination::begin(postponed.grace, stacks, self.now));
        }
    }

    /// Takes the next step of the end of the processes, which this may begin.
    fn advance_termination(&mut self, mut termination: Termination) {
        let is_begun = self.termination.is_some();
        let are_left = !is_begun || self.running > 0 || self.host.count() > 0;
        let step = termination.step(are_left, self.now);
        self.termination = Some(termination);
        if !is_begun {
            self.host.begin_end();
        }
        match step {
            TerminationStep::Signal(signal) => {
                self.has_killed |= signal == Signal::SIGKILL;
                self.host.signal(signal);
                // the next check follows after END_PACE, when obedient processes have ended
                self.checked_at = self.now;
            }
            TerminationStep::Wait => {}
            TerminationStep::Over => {
                let limit = match self.host.count() {
                    0 => DRAIN_LIMIT,
                    _ => DRAIN_LIMIT_OF_SURVIVORS,
                };
                let until = self.now + limit;
                self.phase = SupervisionPhase::Draining { limit, until };
            }
        }
    }

    /// Called when processes may have ended or dgl-reap may have announced something.
    pub fn collect_ended(&mut self, now: Instant) {
        self.now = now;
        self.take_notices();
        while let Some(index) = self.host.next_ended() {
            self.ended(index);
        }
        if self.is_ending() && matches!(self.phase, SupervisionPhase::Active) {
            self.check_all();
        }
    }

    fn take_notices(&mut self) {
        let (acts, ends_job) = self.host.take_notices();
        if acts {
            self.dgl_reap_at = Some(self.now);
        }
        if ends_job {
            self.dgl_reap_ended_job_at = Some(self.now);
        }
    }

    /// Reports the end of a process, after its output as far as that has arrived.
    fn ended(&mut self, index: u32) {
        for stream in [ProcessStream::Stdout, ProcessStream::Stderr] {
            self.relay(index, stream);
        }
        self.running -= 1;
        match self.host.take_status(index) {
            Ok(exited) => {
                let reaped = self.is_by_dgl_reap(exited.end);
                let end = ProcessEnd {
                    oom: exited.end.oom && !self.has_killed && !reaped,
                    reaped,
                    ..exited.end
                };
                let is_now = |when: Instant| self.since(when) < DGL_REAP_SIGNAL_LIMIT;
                self.report(Event::Exited(Exited {
                    end,
                    job_reaped: self.dgl_reap_ended_job_at.is_some_and(is_now),
                    ..exited
                }));
            }
            // without an end, the job would wait for this process
            Err(error) => {
                self.explain(index, &format!("the exit status is unknown: {error}"));
                self.report(Event::Exited(Exited::new(index, ProcessEnd::exited(255))));
            }
        }
    }

    /// Whether dgl-reap caused this end of a process.
    fn is_by_dgl_reap(&mut self, end: ProcessEnd) -> bool {
        // the notice precedes the death, but may have arrived after the last check
        self.take_notices();
        let (noticed, limit) = match end.signal {
            // one that exits with 0 when asked to end has not done its work, if the whole job ends
            None if end.is_success() => (self.dgl_reap_ended_job_at, DGL_REAP_EXIT_LIMIT),
            None => (self.dgl_reap_at, DGL_REAP_EXIT_LIMIT),
            Some(_) => (self.dgl_reap_at, DGL_REAP_SIGNAL_LIMIT),
        };
        noticed.is_some_and(|when| self.since(when) < limit)
    }

    /// Reports what a process has written, unless too much output waits already.
    pub fn relay(&mut self, index: u32, stream: ProcessStream) {
        if !self.outbox.has_room() {
            return;
        }
        match self.host.read(index, stream) {
            Some(bytes) if bytes.is_empty() => {
                self.streams -= 1;
                self.report(Event::Drained(Drained { index, stream }));
            }
            Some(bytes) => {
                let output = Event::Output(Output { index, stream });
                self.outbox.push(&output, &bytes);
            }
            None => {}
        }
    }

    /// Proceeds to the next phases until one has to wait.
    fn advance_phase(&mut self) {
        if let SupervisionPhase::Draining { limit, until } = &mut self.phase {
            if !self.outbox.has_room() {
                // the launcher reads slowly, so the limit of the pipes begins again
                *until = self.now + *limit;
            }
            if self.streams > 0 && self.now < *until {
                return;
            }
            let until = self.now + TRAINERS_LIMIT;
            self.phase = SupervisionPhase::Removing { until, files: 0 };
            let events = self.host.last_reports();
            self.report_all(events);
        }
        if let SupervisionPhase::Removing { until, files } = &mut self.phase {
            let (removed, are_left) = self.host.remove_files();
            *files += removed;
            if are_left && self.now < *until {
                return;
            }
            let files = *files;
            self.phase = SupervisionPhase::Reporting;
            self.report(Event::ShmRemoved(ShmRemoved { files }));
            let survivors = u32::try_from(self.host.count()).unwrap_or(u32::MAX);
            self.report(Event::Over(Over { survivors }));
        }
    }
}
