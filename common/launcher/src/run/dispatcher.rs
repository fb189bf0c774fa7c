//! What decides while a job runs. The [`Dispatcher`] handles all hosts' events: it writes their
//! records and sends the requests that the crate `job` decides on. A host is trusted only about its
//! own processes, and each event is accepted once. Only [`Dispatcher::run`] waits and reads the
//! clock.

use super::events::RunEvent;
use super::executor::ConnectedHosts;
use super::outcome::{JobOutcome, cause_label, exit, first_failure};
use super::process_table::ProcessTable;
use super::stall::StallReporter;
use crate::output::lines::OutputJoiner;
use crate::output::sink::OutputSink;
use crate::output::status::{self, JobStatus};
use crate::plan;
use job::{Cause, Ending, JobEnd, JobLife, JobMember, STACKS_TIME, Step};
use record::error::{Fault, Report};
use record::term::now_ms;
use record::{Process, Role};
use session::SessionEvent;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wire::{Event, Request};

/// How often to check time limits and to update the status line.
const TICK: Duration = Duration::from_millis(500);
/// If the dispatcher has not run for this long, the program was stopped. For as long again it
/// checks no time limits, so that the hosts' reports are handled first.
const STOPPED: Duration = Duration::from_secs(2);
/// How long a host may take after the grace time, for KILL and to remove shared memory.
const END_LIMIT: Duration = Duration::from_secs(15);
/// After this time, a message reports what the end of the job waits for.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// Runs a job whose processes were requested, until all hosts have ended.
pub struct Dispatcher<'a, 'h> {
    plan: &'a plan::JobPlan,
    processes: &'a [Process],
    hosts: &'a ConnectedHosts<'h>,
    sink: &'a mut OutputSink,
    job: JobLife,
    table: ProcessTable<'a>,
    output: OutputJoiner,
    stalls: StallReporter<'a>,
    begun: Instant,
    now: Instant,
    /// When time limits are checked again.
    checks_from: Instant,
    status_at: Instant,
    /// The indices of hosts that have not ended and are not lost.
    up: BTreeSet<usize>,
    /// What could not be ended.
    faults: Report,
    /// `None` until the end begins.
    end_times: Option<EndTimes>,
    servers_ended: bool,
    reaped: bool,
}

struct EndTimes {
    kill_at: Instant,
    /// When the launcher gives up hosts that still send messages, but not their end. Silent hosts
    /// are lost earlier.
    give_up_at: Instant,
    /// When to report that the end takes long; `None` after the report.
    notice_at: Option<Instant>,
}

impl EndTimes {
    fn kill_in(&self, now: Instant) -> Option<Duration> {
        let left = self.kill_at.saturating_duration_since(now);
        Some(left).filter(|left| !left.is_zero())
    }
}

impl<'a, 'h> Dispatcher<'a, 'h> {
    pub fn new(
        plan: &'a plan::JobPlan,
        processes: &'a [Process],
        hosts: &'a ConnectedHosts<'h>,
        sink: &'a mut OutputSink,
        now: Instant,
    ) -> Dispatcher<'a, 'h> {
        let on_hosts = hosts.sessions.iter().map(|session| {
            let members = session.members.iter();
            let members = members.map(|process| job_member(&processes[*process]));
            (session.host.id, members.collect())
        });
        Dispatcher {
            job: JobLife::new(on_hosts, plan.rules.clone(), plan.host_timeout, now),
            table: ProcessTable::new(processes),
            output: OutputJoiner::new(processes, now),
            stalls: StallReporter::new(&plan.name, processes, &hosts.sessions),
            plan,
            processes,
            hosts,
            sink,
            begun: now,
            now,
            checks_from: now,
            status_at: now,
            up: (0..hosts.sessions.len()).collect(),
            faults: Report::default(),
            end_times: None,
            servers_ended: false,
            reaped: false,
        }
    }

    pub fn run(mut self) -> JobOutcome {
        while self.tick(Instant::now()) {
            let mut event = self.hosts.next_event(Duration::ZERO);
            if event.is_none() {
                self.sink.flush();
                event = self.hosts.next_event(self.wait_limit(Instant::now()));
            }
            if let Some(event) = event {
                self.handle(event, Instant::now());
            }
        }
        self.end()
    }

    /// Does everything that is due; returns whether the job continues.
    pub fn tick(&mut self, now: Instant) -> bool {
        let last = std::mem::replace(&mut self.now, now);
        // not twice in a row, so that a loop that is always slow checks limits, too
        if now.saturating_duration_since(last) > STOPPED && last >= self.checks_from {
            self.checks_from = now + STOPPED;
        }
        let checks_limits = now >= self.checks_from;
        let is_over = |times: &EndTimes| now >= times.give_up_at;
        if self.up.is_empty() || checks_limits && self.end_times.as_ref().is_some_and(is_over) {
            return false;
        }
        if now >= self.status_at {
            self.status_at = now + TICK;
            self.sink.status(&self.status());
        }
        self.output.pass_on_due(now, self.sink);
        if let Some(times) = &mut self.end_times
            && let Some(left) = times.kill_in(now)
            && times.notice_at.take_if(|at| now >= *at).is_some()
        {
            let (job, next) = (&self.plan.name, status::kill_notice(left));
            self.sink
                .notice(&format!("dgl-spawn: job {job} is ending: {next}"));
        }
        if checks_limits {
            let end = self.job.tick(now);
            self.carry_out(end.map(Step::End));
        }
        true
    }

    pub fn wait_limit(&self, now: Instant) -> Duration {
        self.output.due_at().map_or(TICK, |due| {
            let left = due.saturating_duration_since(now);
            TICK.min(left)
        })
    }

    /// `None` before the end has begun.
    pub fn ending(&self) -> Option<&Ending> {
        self.job.ending()
    }

    pub fn handle(&mut self, event: RunEvent, now: Instant) {
        self.now = now;
        match event {
            RunEvent::Signal(number) => {
                let end = self.job.signal(number, now);
                self.carry_out(end.map(Step::End));
            }
            RunEvent::StatusAsked => self.sink.notice(&format!("dgl-spawn: {}", self.status())),
            RunEvent::Paused(time) => self.job.paused(time, now),
            RunEvent::Host(host_index, _) if !self.up.contains(&host_index) => {}
            RunEvent::Host(host_index, SessionEvent::Lost(why)) => self.lost(host_index, why),
            RunEvent::Host(host_index, SessionEvent::Event(Event::Failed(failure), _)) => {
                self.hosts.sessions[host_index].close();
                self.lost(host_index, failure.problem);
            }
            RunEvent::Host(host_index, SessionEvent::Event(event, body)) => {
                let session = &self.hosts.sessions[host_index];
                match self.report(host_index, &event, &body) {
                    Ok(()) => {
                        let steps = self.job.event(session.host.id, &event, now);
                        self.carry_out(steps);
                    }
                    Err(breach) => {
                        session.close();
                        self.lost(host_index, format!("protocol error: {breach}"));
                    }
                }
            }
        }
    }

    /// Writes the records of a host's event; an error is what the host must not send, or not now.
    #[expect(clippy::too_many_lines, reason = "it has a case for each event")]
    fn report(&mut self, host_index: usize, event: &Event, body: &[u8]) -> Result<(), String> {
        let host = self.hosts.sessions[host_index].host;
        let member = |index: u32| self.hosts.member(host_index, index);
        let is_ending = self.job.ending().is_some();
        match event {
            Event::Started(started) => {
                let process = member(started.index)?;
                let record = self.table.started(process, started.pid, self.now)?;
                self.sink.record(&record);
            }
            Event::Listening(listening) => {
                let record = self.table.listening(member(listening.index)?)?;
                self.sink.record(&record);
            }
            Event::Output(output) => {
                let process = member(output.index)?;
                self.output
                    .write(process, output.stream, body, self.now, self.sink)?;
                if !is_ending {
                    self.stalls.continues(process);
                }
            }
            Event::Drained(drained) => {
                let process = member(drained.index)?;
                self.output.drain(process, drained.stream, self.sink)?;
            }
            Event::Exited(exited) => {
                let process = member(exited.index)?;
                let record = self.table.exited(process, exited, is_ending, self.now)?;
                self.sink.record(&record);
                self.output.exited(process);
                if !is_ending {
                    self.stalls.continues(process);
                }
                self.reaped |= exited.job_reaped;
            }
            Event::Raised(raised) => {
                let process = member(raised.index)?;
                if !self.table.has_exited(process) {
                    self.stalls.raised(process, raised.clone(), self.sink);
                }
            }
            Event::Stack(stack) => {
                let stack = stack.clone().into_record(host.id, self.processes, now_ms());
                self.stalls.stack(host_index, stack, is_ending, self.sink);
            }
            Event::StacksReported(reported) => {
                let stopped = reported.stopped.iter().map(|index| member(*index));
                let stopped = stopped.collect::<Result<Vec<_>, _>>()?;
                self.stalls.reports.answered(host_index, stopped);
            }
            Event::ServersEnded(_) => self.servers_ended = is_ending,
            Event::Over(over) => {
                self.leave(host_index);
                if over.survivors > 0 {
                    let survivors = over.survivors;
                    let problem = format!(
                        "{survivors} of the job's processes could not be \
                                           stopped"
                    );
                    let fault = Fault::item(host.location(), problem);
                    self.faults.push(fault.fix("check with dgl-reap --list"));
                }
            }
            Event::Activity(_) | Event::ShmRemoved(_) | Event::Alive | Event::Done => {}
            _ => return Err("an answer without a request".to_owned()),
        }
        Ok(())
    }

    /// After a pause, the hosts may have considered this launcher lost.
    fn lost(&mut self, host_index: usize, why: String) {
        let host = self.hosts.sessions[host_index].host;
        self.leave(host_index);
        let steps = self.job.host_lost(host.id, why.clone());
        let is_the_cause = match self.job.ending() {
            Some(Ending {
                cause: Some(Cause::Host),
                failure,
            }) => failure
                .as_ref()
                .is_some_and(|failure| failure.host == host.id),
            Some(ending) => matches!(ending.cause, Some(Cause::Paused(_))),
            None => true,
        };
        if !is_the_cause {
            let problem = format!("lost while the job was being stopped: {why}");
            let fix = "its agent's watcher stops the job on that host; check with dgl-reap --list";
            let fault = Fault::unreachable(host.location(), problem);
            self.faults.push(fault.fix(fix));
        }
        self.carry_out(steps);
    }

    /// Expects no more from a host.
    fn leave(&mut self, host_index: usize) {
        self.up.remove(&host_index);
        for process in &self.hosts.sessions[host_index].members {
            self.output.finish(*process, self.sink);
        }
    }

    fn carry_out(&mut self, steps: impl IntoIterator<Item = Step>) {
        if self.job.ending().is_some() {
            self.output.begin_end();
        }
        for step in steps {
            match step {
                Step::Stalled(stalled) => self.stalls.stalled(stalled, self.sink),
                Step::Resumed(host, activity) => {
                    let index = activity.index;
                    let process = index.and_then(|index| self.hosts.position(host, index));
                    self.stalls.resumed(process.zip(activity.sign), self.sink);
                }
                Step::AskForStacks => {
                    self.stalls.reports.ask();
                    self.hosts.send_all(&Request::ReportStacks);
                }
                Step::End(end) => {
                    self.hosts.send_all(&self.job.request(end));
                    self.note_end(end);
                }
            }
        }
    }

    /// Notes the times of the end, which begins or gets shorter.
    fn note_end(&mut self, end: JobEnd) {
        let (now, grace) = (self.now, self.plan.rules.grace);
        let kill_at = match (end, &mut self.end_times) {
            (JobEnd::Kill, Some(times)) => {
                (times.kill_at, times.notice_at) = (now, None);
                // somebody is impatient
                times.give_up_at = times.give_up_at.min(now + END_LIMIT);
                return;
            }
            (JobEnd::Kill | JobEnd::Term, None) => now + grace,
            (JobEnd::TermAfterStacks, None) => now + STACKS_TIME + grace,
            (JobEnd::Term | JobEnd::TermAfterStacks, Some(_)) => return,
        };
        self.end_times = Some(EndTimes {
            kill_at,
            // the request or the report may be late by the host timeout
            give_up_at: kill_at + self.plan.host_timeout + END_LIMIT,
            notice_at: Some(now + NOTICE_AFTER),
        });
    }

    fn status(&self) -> String {
        let kill_in = |times: &EndTimes| times.kill_in(self.now);
        let wrote = |process| self.output.wrote(process);
        let status = JobStatus {
            name: &self.plan.name,
            hosts_up: self.up.len(),
            hosts: self.hosts.sessions.len(),
            progress: self.job.progress(),
            age: self.now.saturating_duration_since(self.begun),
            stalls: self.stalls.brief(),
            silent: self.table.silent(self.now, wrote),
            is_ending: self.job.ending().is_some(),
            kill_in: self.end_times.as_ref().and_then(kill_in),
        };
        status.line()
    }

    pub fn end(self) -> JobOutcome {
        self.sink.status("");
        let ending = self.job.ending().cloned().unwrap_or_default();
        let failure = ending.failure.as_ref();
        let failed = failure.and_then(|failure| self.hosts.position(failure.host, failure.index?));
        let process = failed.map(|process_index| &self.processes[process_index]);
        let mut failure = failure.map(|failure| {
            let lines = process.map(|process| self.sink.last_lines(process.id));
            first_failure(failure, process, lines.unwrap_or_default())
        });
        if let (Some(Cause::Servers), Some(server)) = (&ending.cause, &mut failure) {
            server.role = Some(Role::Server);
        }
        let mut report = self.faults;
        for host_index in self.up {
            let name = &self.plan.name;
            let host = self.hosts.sessions[host_index].host;
            let problem = "it did not report that the job's processes have ended";
            let fix = format!("check with dgl-reap --list, stop them with dgl-reap --job {name}");
            report.push(Fault::unreachable(host.location(), problem).fix(fix));
        }
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
            raised: self.stalls.raised_lines(failed),
            reaped: self.reaped,
            signalled: self.job.signalled(),
            report,
        }
    }
}

fn job_member(process: &Process) -> JobMember {
    JobMember {
        role: process.role,
        service: process.service,
        awaited: process.port.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_port_is_awaited() {
        for (role, port) in [(Role::Server, Some(30050)), (Role::Trainer, None)] {
            let process = Process {
                port,
                ..Process::new(0, 0, record::IpAddr::default(), role, 0)
            };
            let expected = JobMember {
                role,
                service: false,
                awaited: role == Role::Server,
            };
            assert_eq!(job_member(&process), expected);
        }
    }
}
