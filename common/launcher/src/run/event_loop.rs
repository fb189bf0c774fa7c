//! The event loop of a job, which handles the events of all hosts. The state machine of the crate
//! `job` decides what to do. A host is trusted only about its own processes, and each event is
//! accepted only once. Only [`EventLoop::run`] waits and reads the clock.

use super::end_times::EndTimes;
use super::events::RunEvent;
use super::executor::{ConnectedHosts, HostSession};
use super::host_states::HostStates;
use super::multiplexer::Multiplexer;
use super::outcome::{JobOutcome, cause_label};
use super::process_table::{ProcessTable, ProtocolBreach};
use super::profile_timer::ProfileTimer;
use super::records::{exit, first_failure, member};
use super::stall_reporter::StallReporter;
use crate::output::sink::OutputSink;
use crate::output::status::{self, EndPhase, StatusFacts};
use crate::plan;
use job::{Cause, Ending, JobAction, JobLife, Step};
use record::term::now_ms;
use record::{Process, Role};
use session::SessionEvent;
use std::time::{Duration, Instant};
use wire::supervise::{self, Activity};
use wire::{Event, Request};

/// How often to check time limits and to update the status line.
const TICK: Duration = Duration::from_millis(500);
/// If the loop has not run for this long, the program was stopped. For as long again it checks no
/// time limits, so that what hosts have reported meanwhile is handled first.
const STOPPED: Duration = Duration::from_secs(2);

/// The event loop of a running job.
pub struct EventLoop<'a, 'h> {
    job: JobLife,
    plan: &'a plan::JobPlan,
    processes: &'a [Process],
    hosts: &'a mut ConnectedHosts<'h>,
    sink: &'a mut OutputSink,
    begun: Instant,
    /// The time of the current event.
    now: Instant,
    /// When time limits are checked again.
    checks_from: Instant,
    /// When the status line is due.
    status_at: Instant,
    states: HostStates,
    /// Whether the graph servers that the job uses have ended.
    servers_ended: bool,
    table: ProcessTable<'a>,
    output: Multiplexer,
    stalls: StallReporter<'a>,
    end_times: EndTimes,
    profile: ProfileTimer,
    /// Whether dgl-reap has ended the whole job.
    reaped: bool,
}

impl<'a, 'h> EventLoop<'a, 'h> {
    /// Begins with processes whose start has been requested.
    pub fn begin(
        plan: &'a plan::JobPlan,
        processes: &'a [Process],
        hosts: &'a mut ConnectedHosts<'h>,
        sink: &'a mut OutputSink,
        now: Instant,
    ) -> EventLoop<'a, 'h> {
        let of_host = |session: &HostSession<'_>| {
            let members = session
                .members
                .iter()
                .map(|process_index| member(&processes[*process_index]));
            (session.host.id, members.collect())
        };
        let on_hosts = hosts.sessions.iter().map(of_host);
        EventLoop {
            job: JobLife::new(on_hosts, plan.rules.clone(), plan.host_timeout, now),
            plan,
            processes,
            begun: now,
            now,
            checks_from: now,
            status_at: now,
            states: HostStates::new(hosts.sessions.len()),
            servers_ended: false,
            table: ProcessTable::new(processes),
            stalls: StallReporter::new(&plan.name, processes, &hosts.sessions),
            hosts,
            sink,
            output: Multiplexer::new(processes, now),
            end_times: EndTimes::default(),
            profile: ProfileTimer::default(),
            reaped: false,
        }
    }

    /// Runs until all hosts have ended.
    pub fn run(mut self) -> JobOutcome {
        while self.tick(Instant::now()) {
            if let Some(event) = self.next_event() {
                self.handle(event, Instant::now());
            }
        }
        self.end()
    }

    /// Does everything that is due at this time; returns whether the job continues.
    pub fn tick(&mut self, now: Instant) -> bool {
        let last = std::mem::replace(&mut self.now, now);
        // not twice in a row, so that a loop that is always slow checks limits, too
        if now.saturating_duration_since(last) > STOPPED && last >= self.checks_from {
            self.checks_from = now + STOPPED;
        }
        let checks_limits = now >= self.checks_from;
        if self.states.up.is_empty() || checks_limits && self.end_times.are_over(now) {
            return false;
        }
        if now >= self.status_at {
            self.status_at = now + TICK;
            let status = self.status();
            self.sink.status(&status);
        }
        self.output.pass_on_due(now, self.sink);
        if let Some(left) = self.end_times.take_notice(now) {
            let (job, next) = (&self.plan.name, status::kill_notice(left));
            self.sink
                .notice(&format!("dgl-spawn: job {job} is ending: {next}"));
        }
        let are_started = self.table.are_all_started();
        let profile = self.profile.take_due(self.plan, are_started, now);
        if let Some(request) = profile.filter(|_| self.job.ending().is_none()) {
            self.hosts.send_all(&request);
        }
        if checks_limits {
            let action = self.job.tick(now);
            self.act(action);
        }
        true
    }

    fn next_event(&mut self) -> Option<RunEvent> {
        let event = self.hosts.next_event(Duration::ZERO);
        if event.is_some() {
            return event;
        }
        // no event waits
        self.sink.flush();
        let limit = self.limit(Instant::now());
        self.hosts.next_event(limit)
    }

    /// How long to wait for events at most.
    pub fn limit(&self, now: Instant) -> Duration {
        self.output.due_at().map_or(TICK, |due| {
            let left = due.saturating_duration_since(now);
            TICK.min(left)
        })
    }

    /// Why the job ends, once its end has begun.
    pub fn ending(&self) -> Option<&Ending> {
        self.job.ending()
    }

    /// Handles an event that arrived at this time.
    pub fn handle(&mut self, event: RunEvent, now: Instant) {
        self.now = now;
        match event {
            RunEvent::Signal(number) => {
                let action = self.job.signal(number, self.now);
                self.act(action);
            }
            RunEvent::StatusAsked => self.sink.notice(&format!("dgl-spawn: {}", self.status())),
            RunEvent::Paused(time) => {
                self.job.paused(time, self.now);
            }
            RunEvent::Host(host_index, _) if !self.states.up.contains(&host_index) => {}
            RunEvent::Host(host_index, SessionEvent::Lost(why)) => {
                self.lost(host_index, why);
            }
            RunEvent::Host(host_index, SessionEvent::Event(event, body)) => {
                if let Err(ProtocolBreach(breach)) =
                    self.handle_host_event(host_index, event, &body)
                {
                    self.hosts.sessions[host_index].close();
                    self.lost(host_index, format!("protocol error: {breach}"));
                }
            }
        }
    }

    /// Handles an event of a host's agent.
    fn handle_host_event(
        &mut self,
        host_index: usize,
        event: Event,
        body: &[u8],
    ) -> Result<(), ProtocolBreach> {
        match event {
            Event::Failed(failure) => {
                self.hosts.sessions[host_index].close();
                self.lost(host_index, failure.problem);
            }
            event => {
                self.handle_process_event(host_index, &event, body)?;
                let host = self.hosts.sessions[host_index].host.id;
                let steps = self.job.event(host, &event, self.now);
                self.take(steps);
            }
        }
        Ok(())
    }

    /// Reports an event about a process of a host.
    fn handle_process_event(
        &mut self,
        host_index: usize,
        event: &Event,
        body: &[u8],
    ) -> Result<(), ProtocolBreach> {
        match event {
            Event::Started(started) => {
                let process = self.hosts.member(host_index, started.index)?;
                Ok(self
                    .table
                    .started(process, started.pid, self.now, self.sink)?)
            }
            Event::Listening(listening) => {
                let process = self.hosts.member(host_index, listening.index)?;
                Ok(self.table.listening(process, self.sink)?)
            }
            Event::Output(supervise::Output { index, stream }) => {
                let process = self.hosts.member(host_index, *index)?;
                self.output
                    .write(process, (*stream, body), self.now, self.sink)?;
                if self.job.ending().is_none() {
                    self.stalls.goes_on(process);
                }
                Ok(())
            }
            Event::Drained(supervise::Drained { index, stream }) => {
                let process = self.hosts.member(host_index, *index)?;
                Ok(self.output.drain(process, *stream, self.sink)?)
            }
            Event::Exited(exited) => {
                let process = self.hosts.member(host_index, exited.index)?;
                let while_ending = self.job.ending().is_some();
                self.table
                    .exited(process, exited, (while_ending, self.now), self.sink)?;
                self.output.exited(process);
                if !while_ending {
                    self.stalls.goes_on(process);
                }
                self.reaped |= exited.job_reaped;
                Ok(())
            }
            Event::Raised(raised) => {
                let process = self.hosts.member(host_index, raised.index)?;
                if !self.table.has_exited(process) {
                    let raised = raised.clone().bounded();
                    self.stalls.raised(process, raised, self.sink);
                }
                Ok(())
            }
            _ => self.handle_report(host_index, event),
        }
    }

    /// Handles a report of a host about all of its processes.
    fn handle_report(&mut self, host_index: usize, event: &Event) -> Result<(), ProtocolBreach> {
        match event {
            Event::Stack(stack) => {
                let host = self.hosts.sessions[host_index].host.id;
                let stack = stack.clone().into_record(host, self.processes, now_ms());
                let is_ending = self.job.ending().is_some();
                self.stalls.stack(host_index, stack, is_ending, self.sink);
                Ok(())
            }
            Event::Profile(profile) if self.profile.is_asked() => {
                let host = self.hosts.sessions[host_index].host.id;
                let profile = profile.clone().into_record(host, self.processes, now_ms());
                self.sink.report(host, &profile);
                Ok(())
            }
            Event::StacksReported(reported) => {
                let stopped = reported.stopped.iter();
                let stopped = stopped.map(|index| self.hosts.member(host_index, *index));
                let stopped = stopped.collect::<Result<Vec<_>, _>>()?;
                self.stalls.reports.answered(host_index, stopped);
                Ok(())
            }
            Event::ServersEnded(_) => {
                self.servers_ended = self.job.ending().is_some();
                Ok(())
            }
            Event::Over(over) => {
                self.over(host_index, over.survivors);
                Ok(())
            }
            Event::Activity(_) | Event::ShmRemoved(_) | Event::Alive | Event::Done => Ok(()),
            _ => Err(ProtocolBreach("an answer without a request".to_owned())),
        }
    }

    fn resumed(&mut self, host: u32, activity: Activity) {
        let index = activity.index.filter(|_| activity.sign.is_some());
        let process = index.and_then(|index| self.hosts.position(host, index));
        self.stalls.resumed(process.zip(activity.sign), self.sink);
    }

    /// The index of the process that failed first.
    fn failed(&self) -> Option<usize> {
        let failure = self.job.failure()?;
        self.hosts.position(failure.host, failure.index?)
    }

    /// Handles the end of all processes on a host.
    fn over(&mut self, host_index: usize, survivors: u32) {
        self.states
            .end(host_index, self.hosts.sessions[host_index].host, survivors);
        self.finish_lines(host_index);
    }

    /// Handles the loss of a host. After a pause, the hosts may have considered this launcher lost.
    fn lost(&mut self, host_index: usize, why: String) {
        let host = self.hosts.sessions[host_index].host;
        let is_paused = matches!(self.job.cause(), Some(Cause::Paused(_)));
        let is_fault = self.job.ending().is_some() && !is_paused;
        self.states.lose(host_index, host, &why, is_fault);
        self.finish_lines(host_index);
        let steps = self.job.host_lost(host.id, why);
        self.take(steps);
    }

    fn finish_lines(&mut self, host: usize) {
        for process in self.hosts.sessions[host].members.clone() {
            self.output.finish(process, self.sink);
        }
    }

    fn act(&mut self, action: Option<JobAction>) {
        let steps = self.job.steps(action);
        self.take(steps);
    }

    fn take(&mut self, steps: Vec<Step>) {
        if self.job.ending().is_some() {
            self.output.begin_end();
        }
        for step in steps {
            match step {
                Step::Stalled(stalled) => self.stalls.found(stalled, self.sink),
                Step::Resumed(host, activity) => self.resumed(host, activity),
                Step::Send(request) => {
                    if request == Request::ReportStacks {
                        self.stalls.reports.ask();
                    }
                    self.hosts.send_all(&request);
                    self.end_times.note(&request, self.plan, self.now);
                }
            }
        }
    }

    fn status(&self) -> String {
        let phase = match self.job.ending() {
            None => EndPhase::Running,
            Some(_) => EndPhase::Ending {
                kill_in: self.end_times.kill_in(self.now),
            },
        };
        status::line(
            &self.plan.name,
            (self.states.up.len(), self.hosts.sessions.len()),
            self.job.progress(),
            self.now.saturating_duration_since(self.begun),
            StatusFacts {
                stalls: self.stalls.brief(),
                silent: self
                    .table
                    .silent(self.now, |process| self.output.wrote(process)),
            },
            phase,
        )
    }

    /// How the job ended.
    pub fn end(self) -> JobOutcome {
        self.sink.status("");
        let ending = self.job.ending().cloned().unwrap_or_default();
        let failed = self.failed();
        let raised = self.stalls.raised_lines(failed);
        let lines = |process: &Process| self.sink.last_lines(process.id);
        let process = failed.map(|process_index| &self.processes[process_index]);
        let process = process.map(|process| (process, lines(process)));
        let failure = ending.failure.as_ref();
        let mut failure = failure.map(|failure| first_failure(failure, process));
        if let (Some(Cause::Servers), Some(server)) = (&ending.cause, &mut failure) {
            server.role = Some(Role::Server);
        }
        let signalled = self.job.signalled();
        let hosts = self.hosts.sessions.iter().map(|session| session.host);
        let report = self.states.into_faults(&self.plan.name, hosts);
        let exit = if report.0.is_empty() {
            exit(&ending)
        } else {
            exit(&ending).worst(report.exit())
        };
        JobOutcome {
            exit,
            cause_label: ending.cause.as_ref().map(cause_label),
            cause: ending.cause,
            failure,
            started: true,
            age: self.now.saturating_duration_since(self.begun),
            graph_servers_lost: self.servers_ended,
            raised,
            reaped: self.reaped,
            signalled,
            report,
        }
    }
}
