//! The supervision of a host's part of a job: what ends it, which signals its processes get and
//! when, and the order of reports. It asks no clock and opens nothing; [`SupervisedHost`] is the
//! host.

use crate::outbox::Outbox;
use crate::pause::heartbeat;
use crate::termination::{Termination, TerminationStep};
use nix::sys::signal::Signal;
use record::Process;
use record::exit::{ProcessEnd, SignalNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
use wire::codec::Decoder;
use wire::ending::{Cause, Ending};
use wire::job::Job;
use wire::supervise::{Drained, End, Exited, Output, Over, ProcessStream, ShmRemoved, Started};
use wire::{Event, Request};

/// How often to check for changes that cause no event.
const PACE: Duration = Duration::from_secs(1);
/// The same while stacks are read before the end: 25 ms for each Python process.
const SURVEY_PACE: Duration = Duration::from_millis(20);
/// The same while servers load their graph: trainers wait for them.
const QUICK_PACE: Duration = Duration::from_millis(200);
/// The same while the processes are being ended.
const END_PACE: Duration = Duration::from_millis(100);
/// How long the end of a job waits for stacks. Those read until then are reported.
pub const SURVEY_LIMIT: Duration = Duration::from_secs(2);
/// Processes run at least this long before they are ended: if all fail at once, each can write its
/// own message.
const FIRST_WORDS: Duration = Duration::from_millis(200);
/// How long the end waits for the effect of dgl-reap's signal: Python prints its stacks before it
/// dies of ABRT, in some processes a moment later than in others.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long pipes are read after the end of the job if other processes hold them open.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// The same if a process could not be ended: it holds its pipes open, and the launcher waits for
/// the report.
const DRAIN_LIMIT_OF_SURVIVORS: Duration = Duration::from_secs(1);
/// How long trainers may outlive persistent graph servers, whose shared memory they map.
const TRAINERS_LIMIT: Duration = Duration::from_secs(15);

/// What a supervision needs of its host.
pub trait SupervisedHost {
    /// Returns the process id.
    fn start(&mut self, index: u32, process: &Process) -> io::Result<u32>;
    /// Reads what a process wrote: empty at the end of the stream, `None` if nothing has arrived.
    fn read(&mut self, index: u32, stream: ProcessStream) -> Option<Vec<u8>>;
    /// A process that has ended and whose status was not taken.
    fn next_ended(&mut self) -> Option<u32>;
    /// Takes the status of such a process. Its `oom` is whether the kernel may have killed it for
    /// lack of memory.
    fn take_status(&mut self, index: u32) -> io::Result<Exited>;
    fn count(&mut self) -> usize;
    fn signal(&mut self, signal: Signal);
    /// Whether the watcher is gone that would end the job if its supervisor were killed.
    fn is_unguarded(&self) -> bool;
    /// Checks for changes that cause no event; returns the events to report. `has_room` is whether
    /// they can be sent soon.
    fn examine(&mut self, has_room: bool) -> Vec<Event>;
    /// Begins to read the stacks that the launcher asks for; returns as `examine` does.
    fn report_stacks(&mut self, has_room: bool) -> Vec<Event>;
    /// Whether a server may listen soon, so that checks are more frequent.
    fn is_hurried(&self) -> bool;
    /// An event to report at once.
    fn urgent(&mut self) -> Option<Event>;
    /// Begins to read all processes' stacks, after a failure.
    fn survey(&mut self);
    fn is_surveying(&self) -> bool;
    fn take_stacks(&mut self) -> Vec<Event>;
    /// Notes why the launcher ends the job.
    fn note_ending(&mut self, ending: &Ending);
    /// Called just before the processes are ended, the last moment to measure their usage.
    fn begin_end(&mut self);
    /// Called after all processes have ended.
    fn last_reports(&mut self) -> Option<Event>;
    /// Removes the job's files; returns how many, and whether some are still in use.
    fn remove_files(&mut self) -> (u32, bool);
}

/// An end of the job that waits for last output or stacks.
#[derive(Clone, Copy, Debug)]
struct PostponedEnd {
    grace: Duration,
    /// Whether ABRT comes first.
    stacks: bool,
    not_before: Instant,
    survey_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum SupervisionPhase {
    Active,
    /// All processes have ended or are given up, and their last output is read. Other processes may
    /// hold a pipe open for ever.
    Draining {
        limit: Duration,
        until: Instant,
    },
    Removing {
        until: Instant,
        files: u32,
    },
    Reporting,
}

pub struct Supervision<H> {
    pub host: H,
    job: Job,
    now: Instant,
    requests: Decoder,
    pub outbox: Outbox,
    phase: SupervisionPhase,
    /// Including those that ended and whose status was not taken.
    running: usize,
    streams: usize,
    started: Instant,
    postponed: Option<PostponedEnd>,
    /// `None` until the end of the job begins.
    termination: Option<Termination>,
    /// How many dgl-reaps are about to signal or end processes.
    dgl_reaps: usize,
    /// What dgl-reap sent to running processes or their descendants, by index.
    dgl_reap_signals: BTreeMap<u32, BTreeSet<Signal>>,
    ended_by_dgl_reap: bool,
    /// Whether the supervision itself sent KILL, which explains deaths by it.
    has_killed: bool,
    received_at: Instant,
    checked_at: Instant,
    alive_sent_at: Instant,
}

impl<H: SupervisedHost> Supervision<H> {
    /// `received` was already read from the launcher.
    pub fn begin(
        job: Job,
        processes: &[Process],
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
            dgl_reaps: 0,
            dgl_reap_signals: BTreeMap::new(),
            ended_by_dgl_reap: false,
            has_killed: false,
            received_at: now,
            checked_at: now,
            alive_sent_at: now,
        };
        for (index, process) in (0..).zip(processes) {
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

    fn report_all(&mut self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.report(event));
    }

    /// Adds an explanation to a process's stderr.
    fn explain(&mut self, index: u32, why: &str) {
        let stream = ProcessStream::Stderr;
        let output = Event::Output(Output { index, stream });
        let text = format!("host-agent: {why}\n");
        self.outbox.push(&output, text.as_bytes());
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, SupervisionPhase::Reporting) && self.outbox.is_empty()
    }

    /// Whether the first ending signal was sent.
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

    pub fn tick(&mut self, now: Instant) {
        self.now = now;
        let urgent = self.host.urgent();
        self.report_all(urgent);
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
        self.end(&Ending::default(), self.job.grace_ms, false);
    }

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
                self.end(&ending, grace_ms, stacks);
            }
            Request::Kill if matches!(self.phase, SupervisionPhase::Active) => {
                let begun = Termination::begin(Duration::ZERO, false, self.now);
                let mut termination = self.termination.unwrap_or(begun);
                termination.hurry(self.now, Duration::ZERO);
                self.advance_termination(termination);
            }
            Request::ReportStacks if !self.is_ending() => {
                let events = self.host.report_stacks(self.outbox.has_room());
                self.report_all(events);
            }
            // Alive has set `received_at`; the others mean nothing while a job runs
            _ => {}
        }
    }

    /// Checks for what causes no event: time limits and remaining processes.
    fn check_all(&mut self) {
        if self.host.is_unguarded() {
            self.end(&Ending::default(), self.job.grace_ms, false);
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
                let termination = Termination::begin(grace, stacks, self.now);
                return self.advance_termination(termination);
            }
        }
        let events = self.host.examine(self.outbox.has_room());
        self.report_all(events);
    }

    /// Begins the end of the job once processes could write their last output and, after a failure,
    /// the others' stacks were read.
    fn end(&mut self, ending: &Ending, grace_ms: u64, stacks: bool) {
        self.host.note_ending(ending);
        if self.is_ending() || self.postponed.is_some() {
            return;
        }
        use Cause::{Host, Process, Servers};
        let has_failed = matches!(ending.cause, Some(Process | Host | Servers));
        let mut signalled = self.dgl_reap_signals.values();
        let wait = if self.dgl_reaps > 0 || signalled.any(ask_to_end) {
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

    /// Takes the next step of ending the processes.
    fn advance_termination(&mut self, mut termination: Termination) {
        let is_begun = self.termination.is_some();
        let are_left = !is_begun || self.running > 0 || self.host.count() > 0;
        let step = termination.step(are_left, self.now);
        self.termination = Some(termination);
        if !is_begun {
            // also if somebody is impatient, because the stacks may be the only evidence
            if self.postponed.is_some() {
                let events = self.host.take_stacks();
                self.report_all(events);
            }
            self.host.begin_end();
        }
        match step {
            TerminationStep::Signal(signal) => {
                if signal == Signal::SIGKILL {
                    // what ended earlier did so for another reason
                    self.take_ended();
                    self.has_killed = true;
                }
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

    /// Called before dgl-reap signals or ends processes, first on all hosts. Until
    /// [`Supervision::leave_to_dgl_reap`], an end that its effect on another host causes waits for
    /// it here.
    pub fn wait_for_dgl_reap(&mut self) {
        self.dgl_reaps += 1;
    }

    pub fn leave_to_dgl_reap(&mut self) {
        self.dgl_reaps = self.dgl_reaps.saturating_sub(1);
    }

    /// Notes that dgl-reap sent this signal to these processes, or to descendants of them.
    pub fn signalled_by_dgl_reap(&mut self, indices: &BTreeSet<u32>, signal: Signal) {
        for index in indices {
            let signals = self.dgl_reap_signals.entry(*index).or_default();
            signals.insert(signal);
        }
    }

    /// Ends the job for dgl-reap: at once, whatever else is about to end it.
    pub fn end_by_dgl_reap(&mut self, grace: Duration, now: Instant) {
        // what ended earlier did so for another reason
        self.collect_ended(now);
        self.ended_by_dgl_reap = true;
        self.host.note_ending(&Ending::default());
        if matches!(self.phase, SupervisionPhase::Active) {
            let begun = Termination::begin(grace, false, now);
            let mut termination = self.termination.unwrap_or(begun);
            termination.hurry(now, grace);
            self.advance_termination(termination);
        }
    }

    /// Called when processes may have ended.
    pub fn collect_ended(&mut self, now: Instant) {
        self.now = now;
        self.take_ended();
        if self.is_ending() && matches!(self.phase, SupervisionPhase::Active) {
            self.check_all();
        }
    }

    fn take_ended(&mut self) {
        while let Some(index) = self.host.next_ended() {
            self.ended(index);
        }
    }

    /// Reports a process's end, after the output that has arrived.
    fn ended(&mut self, index: u32) {
        for stream in [ProcessStream::Stdout, ProcessStream::Stderr] {
            self.report_output(index, stream);
        }
        self.running -= 1;
        let signals = self.dgl_reap_signals.remove(&index).unwrap_or_default();
        match self.host.take_status(index) {
            Ok(exited) => {
                let was_killed = self.has_killed || signals.contains(&Signal::SIGKILL);
                let oom = exited.end.oom && !was_killed;
                let is_by_dgl_reap = self.ended_by_dgl_reap || explains(&signals, exited.end);
                let end = ProcessEnd {
                    oom,
                    reaped: is_by_dgl_reap && !oom,
                    ..exited.end
                };
                let by_kill = end.signal == Some(SignalNumber::KILL);
                self.report(Event::Exited(Exited {
                    end,
                    kill_sent: by_kill.then_some(self.has_killed),
                    job_reaped: self.ended_by_dgl_reap,
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

    /// Reports a process's output, unless too much waits already.
    pub fn report_output(&mut self, index: u32, stream: ProcessStream) {
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

    /// Proceeds until a phase has to wait.
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
            let event = self.host.last_reports();
            self.report_all(event);
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

/// Whether one of these signals asks a process to end. Others, such as USR1, end only processes
/// that do not handle them.
fn ask_to_end(signals: &BTreeSet<Signal>) -> bool {
    use Signal::{SIGABRT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
    let asking = [SIGABRT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM];
    asking.iter().any(|signal| signals.contains(signal))
}

/// Whether these signals explain this end: one of them ended the process or what it ran, or it was
/// asked to end and failed. torchrun, for instance, exits with 1 when it gets TERM.
fn explains(signals: &BTreeSet<Signal>, end: ProcessEnd) -> bool {
    let killed = |signal: &Signal| {
        let killed = ProcessEnd::killed(SignalNumber(*signal as i32));
        killed.shell_code() == end.shell_code()
    };
    signals.iter().any(killed) || !end.is_success() && ask_to_end(signals)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that runs until KILL, and whose stacks are read.
    #[derive(Default)]
    struct OneProcess {
        is_surveying: bool,
        signals: Vec<Signal>,
    }

    impl SupervisedHost for OneProcess {
        fn start(&mut self, _: u32, _: &Process) -> io::Result<u32> {
            Ok(7)
        }
        fn read(&mut self, _: u32, _: ProcessStream) -> Option<Vec<u8>> {
            None
        }
        fn next_ended(&mut self) -> Option<u32> {
            None
        }
        fn take_status(&mut self, index: u32) -> io::Result<Exited> {
            Ok(Exited::new(index, ProcessEnd::exited(0)))
        }
        fn count(&mut self) -> usize {
            1
        }
        fn signal(&mut self, signal: Signal) {
            self.signals.push(signal);
        }
        fn is_unguarded(&self) -> bool {
            false
        }
        fn examine(&mut self, _: bool) -> Vec<Event> {
            Vec::new()
        }
        fn report_stacks(&mut self, _: bool) -> Vec<Event> {
            Vec::new()
        }
        fn is_hurried(&self) -> bool {
            false
        }
        fn urgent(&mut self) -> Option<Event> {
            None
        }
        fn survey(&mut self) {
            self.is_surveying = true;
        }
        fn is_surveying(&self) -> bool {
            self.is_surveying
        }
        fn take_stacks(&mut self) -> Vec<Event> {
            let is_read = std::mem::take(&mut self.is_surveying);
            let stack = || Event::Stack(Box::default());
            is_read.then(stack).into_iter().collect()
        }
        fn note_ending(&mut self, _: &Ending) {}
        fn begin_end(&mut self) {}
        fn last_reports(&mut self) -> Option<Event> {
            None
        }
        fn remove_files(&mut self) -> (u32, bool) {
            (0, false)
        }
    }

    #[test]
    fn stacks_that_were_read_are_reported_though_somebody_is_impatient() {
        let now = Instant::now();
        let failed = Request::End(End {
            grace_ms: 60_000,
            stacks: false,
            ending: Ending {
                cause: Some(Cause::Process),
                failure: None,
            },
        });
        let process = Process::new(0, 0, record::IpAddr::default(), record::Role::Worker, 0);
        let begin = || {
            let job = Job {
                name: "j".to_owned(),
                token: "0".repeat(32),
                host: 0,
                address: std::net::Ipv4Addr::LOCALHOST,
                hosts: 1,
                grace_ms: 60_000,
                host_timeout_ms: 60_000,
                private_shm: false,
            };
            let (processes, host) = ([process.clone()], OneProcess::default());
            let mut supervision = Supervision::begin(job, &processes, &[], host, now);
            supervision.receive(&wire::codec::encode(&failed, &[]), now);
            supervision
        };
        let kill = wire::codec::encode(&Request::Kill, &[]);
        let ways: [&dyn Fn(&mut Supervision<OneProcess>); 2] = [
            &|supervision| supervision.receive(&kill, now),
            &|supervision| supervision.end_by_dgl_reap(Duration::ZERO, now),
        ];
        for end in ways {
            let mut supervision = begin();
            assert_eq!(supervision.host.signals, []);
            end(&mut supervision);
            assert!(!supervision.host.signals.is_empty());
            let mut decoder = Decoder::default();
            while !supervision.outbox.is_empty() {
                supervision.outbox.write_some(|bytes| {
                    decoder.push(bytes);
                    Ok(bytes.len())
                });
            }
            let mut events = std::iter::from_fn(|| decoder.next_message::<Event>().unwrap());
            assert!(events.any(|event| matches!(event.head, Event::Stack(_))));
        }
    }

    #[test]
    fn a_signal_of_dgl_reap_explains_its_effect_and_nothing_else() {
        use Signal::{SIGKILL, SIGTERM, SIGUSR1};
        let killed = |signal: Signal| ProcessEnd::killed(SignalNumber(signal as i32));
        let table = [
            (SIGUSR1, killed(SIGUSR1), true),
            (SIGUSR1, ProcessEnd::exited(138), true),
            // USR1 makes many scripts write a checkpoint
            (SIGUSR1, killed(SIGKILL), false),
            (SIGUSR1, ProcessEnd::exited(1), false),
            (SIGUSR1, ProcessEnd::exited(0), false),
            (SIGTERM, killed(SIGTERM), true),
            (SIGTERM, ProcessEnd::exited(1), true),
            (SIGTERM, ProcessEnd::exited(0), false),
            // torch's threads may abort while Python exits
            (SIGTERM, killed(Signal::SIGABRT), true),
            (SIGKILL, killed(SIGKILL), true),
        ];
        for (signal, end, is_explained) in table {
            let signals = BTreeSet::from([signal]);
            assert_eq!(explains(&signals, end), is_explained, "{signal} {end}");
        }
        assert!(!explains(&BTreeSet::new(), ProcessEnd::exited(1)));
    }
}
