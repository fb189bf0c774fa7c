//! The event loop of a job, in which the events of all hosts come together. The state machine of
//! the crate `job` decides what is to be done. A host is believed only about its own processes, and
//! each event only once.
//!
//! The same loop follows a detached job: then the hosts report what happened to it, and when,
//! and the keeper of the first host decides.

use super::hosts::{ConnectedHosts, HostSession, RunEvent};
use super::moment::Moment;
use super::outcome::{Outcome, cause_label};
use super::records::{exit, first_failure, member, status_fields};
use super::stall::{self, CompleteStall, FoundStall, StallReports};
use super::usage::{self, Busiest};
use crate::output::lines::{LineBuffer, Split};
use crate::output::queue::OutputLines;
use crate::output::sink::OutputSink;
use crate::output::status::{self, Phase, State};
use crate::plan;
use job::{Action, Cause, Ending, Job, Mode, Step};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::stacks;
use record::term::{self, now_ms};
use record::{Culprit, Exited, Listening, Process, Resumed, Role, Sign, Stalled, Started};
use session::SessionEvent;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use wire::reap::Pick;
use wire::stacks::Record;
use wire::supervise::{self, End, Raised, Stream};
use wire::{Event, Request};

/// How long the end may take beyond the grace, for KILL and the removal of shared memory.
const END_LIMIT: Duration = Duration::from_secs(15);
/// How long before TERM the ABRT comes.
const STACKS: Duration = Duration::from_secs(1);
/// How often time limits are checked and the status line is renewed.
const TICK: Duration = Duration::from_millis(500);
/// How often a second processes are looked at that are recorded.
const PROFILE_RATE: u32 = 10;
/// How often unfinished lines are checked.
const PIECES_PACE: Duration = Duration::from_millis(50);
/// When the end of a job takes longer than this, people are told what is waited for.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// The state of a process.
#[derive(Default)]
struct ProcessState {
    /// When it was started.
    started: Option<Instant>,
    listens: bool,
    exited: bool,
    /// When it wrote something last.
    wrote: Option<Instant>,
    /// Whether it exited before the end of the job had begun. Its output that comes later is then
    /// not output of a process that is being ended.
    exited_before_end: bool,
    /// The unfinished lines of its two streams, and whether the streams have ended.
    lines: [LineBuffer; 2],
    drained: [bool; 2],
}

/// The state of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HostState {
    Up,
    /// Everything has ended on the host, or it is lost.
    Over,
}

/// When the end of the job goes on, once it has begun.
struct EndTimes {
    /// When KILL is sent to processes that have not ended.
    kill_at: Instant,
    /// When processes that have not ended are given up.
    give_up_at: Instant,
    /// When people are told that the end takes long; `None` once they were.
    notice_at: Option<Instant>,
}

/// The event loop of a running job.
pub struct EventLoop<'a, 'h> {
    mode: Mode,
    job: Job,
    plan: &'a plan::Job,
    processes: &'a [Process],
    /// The position of the first process among all that the sink shows.
    first: usize,
    hosts: &'a mut ConnectedHosts<'h>,
    sink: &'a mut OutputSink,
    begun: Instant,
    /// What was heard before this loop began.
    early: VecDeque<RunEvent>,
    host_states: Vec<HostState>,
    /// The host of each process.
    host_of: Vec<usize>,
    /// For each host, whether it has reported that the end of the job has begun.
    reported_end: Vec<bool>,
    /// Why the job ends, as a host reports that does not decide it.
    reported_ending: Option<Ending>,
    /// When the event that is being handled happened, if its host reports past events.
    past: Option<Moment>,
    /// When the last event that a host reports of the past happened.
    last_past: Option<Instant>,
    /// Whether the graph servers that the job uses have ended.
    servers_ended: bool,
    states: Vec<ProcessState>,
    /// Unfinished lines that wait, by process and stream.
    waiting: BTreeSet<(usize, usize)>,
    /// When they are checked next.
    pieces_at: Instant,
    end_times: Option<EndTimes>,
    /// The hosts that use most, for the status line.
    busiest: Busiest,
    /// Detects stalls.
    stall: StallReports,
    /// When all processes were started, if the job is to be recorded.
    all_started: Option<Instant>,
    /// Whether the hosts were asked to record it.
    is_recorded: bool,
    /// Why the job stalls, as far as that is known, from the report of the stall until it moves.
    stalls: Option<String>,
    /// Processes that have raised an exception and do not end.
    raised: BTreeMap<usize, Raised>,
    /// dgl-reap has ended the whole job.
    reaped: bool,
    /// When the first connection broke of a job that is being left and was not up yet.
    cut_off: Option<Instant>,
    /// Faults of processes that could not be ended.
    faults: Report,
}

impl<'a, 'h> EventLoop<'a, 'h> {
    /// Begins with processes that were all told to start, by this launcher or by another.
    pub fn begin(
        mode: Mode,
        plan: &'a plan::Job,
        (processes, first): (&'a [Process], usize),
        hosts: &'a mut ConnectedHosts<'h>,
        early: Vec<RunEvent>,
        sink: &'a mut OutputSink,
    ) -> EventLoop<'a, 'h> {
        let begun = Instant::now();
        let mut host_of = vec![0; processes.len()];
        for (at, session) in hosts.sessions.iter().enumerate() {
            session
                .members
                .iter()
                .for_each(|member| host_of[*member] = at);
        }
        let of_host = |session: &HostSession<'_>| {
            let own = session.members.iter().map(|at| member(&processes[*at]));
            (session.host.id, own.collect())
        };
        let on_hosts = hosts.sessions.iter().map(of_host);
        EventLoop {
            mode,
            job: Job::new(mode, on_hosts, plan.rules.clone(), begun),
            plan,
            processes,
            first,
            begun,
            early: early.into(),
            host_states: vec![HostState::Up; hosts.sessions.len()],
            host_of,
            reported_end: vec![false; hosts.sessions.len()],
            reported_ending: None,
            past: None,
            last_past: None,
            servers_ended: false,
            states: processes.iter().map(|_| ProcessState::default()).collect(),
            hosts,
            sink,
            waiting: BTreeSet::new(),
            pieces_at: begun,
            end_times: None,
            busiest: Busiest::default(),
            stall: StallReports::default(),
            all_started: None,
            is_recorded: false,
            stalls: None,
            raised: BTreeMap::new(),
            reaped: false,
            cut_off: None,
            faults: Report::default(),
        }
    }

    /// Runs until all hosts have ended, or until a detached job need not be followed any
    /// longer.
    pub fn run(mut self) -> Outcome {
        let mut shown = Instant::now();
        while self.host_states.contains(&HostState::Up) && !self.is_left() {
            let now = Instant::now();
            if self
                .end_times
                .as_ref()
                .is_some_and(|times| now >= times.give_up_at)
            {
                break;
            }
            if now >= shown {
                shown = now + TICK;
                let status = self.status();
                self.sink.status(&status);
            }
            self.hand_on_pieces(now);
            self.notice_long_end(now);
            self.record_when_due(now);
            let action = self.job.tick(now);
            self.act(action);
            if let Some(event) = self.next_event() {
                self.handle(event);
            }
        }
        self.end()
    }

    /// Asks the hosts to record the stacks of all processes, once in each try.
    fn record_when_due(&mut self, now: Instant) {
        let Some(times) = self.plan.profile else {
            return;
        };
        if self.all_started.is_none() && self.states.iter().all(|one| one.started.is_some()) {
            self.all_started = Some(now);
        }
        let is_due = self.all_started.is_some_and(|at| now >= at + times.after);
        if is_due && !std::mem::replace(&mut self.is_recorded, true) && self.end_times.is_none() {
            let pick = Pick {
                job: Some(self.plan.name.clone()),
                ..Pick::default()
            };
            self.hosts.send_all(&Request::RecordStacks(Record {
                pick,
                time_ms: term::millis(times.time),
                rate: PROFILE_RATE,
            }));
        }
    }

    /// Whether nobody wants to follow the job any longer.
    fn is_left(&self) -> bool {
        match self.mode {
            Mode::Deciding => false,
            Mode::Following => self.job.detach_signal().is_some(),
            Mode::Detaching => self.is_being_left() && (self.job.is_up() || self.is_cut_off()),
        }
    }

    /// Whether a connection broke so long ago that the hosts would have said so if they ended the
    /// job for it: what happens on that host is not heard any more.
    fn is_cut_off(&self) -> bool {
        let limit = self.plan.host_timeout + self.plan.rules.grace;
        self.cut_off.is_some_and(|since| since.elapsed() >= limit)
    }

    /// Whether the job is being left to its hosts, and neither they nor this launcher end it.
    fn is_being_left(&self) -> bool {
        self.mode == Mode::Detaching && self.reported_ending.is_none() && self.end_times.is_none()
    }

    fn next_event(&mut self) -> Option<RunEvent> {
        if let Some(event) = self.early.pop_front() {
            return Some(event);
        }
        let event = self.hosts.next_event(Duration::ZERO);
        if event.is_some() {
            return event;
        }
        // nothing more is at hand
        self.sink.flush();
        let due = self
            .waiting
            .iter()
            .filter_map(|(at, stream)| self.states[*at].lines[*stream].due_at())
            .min();
        let wait = due.map_or(TICK, |due| {
            TICK.min(
                due.max(self.pieces_at)
                    .saturating_duration_since(Instant::now()),
            )
        });
        self.hosts.next_event(wait)
    }

    fn handle(&mut self, event: RunEvent) {
        match event {
            RunEvent::Signal(number) => {
                let action = self.job.signal(number, Instant::now());
                self.act(action);
            }
            RunEvent::StatusAsked => self.sink.notice(&format!("dgl-spawn: {}", self.status())),
            RunEvent::Paused(time) => {
                self.job
                    .paused(time, Instant::now(), self.plan.host_timeout);
            }
            RunEvent::Host(at, _) if self.host_states[at] == HostState::Over => {}
            RunEvent::Host(at, SessionEvent::Lost(why)) => {
                if self.is_being_left() {
                    self.cut_off.get_or_insert_with(Instant::now);
                }
                self.lost(at, why);
            }
            RunEvent::Host(at, SessionEvent::Event(event, body)) => {
                if let Err(ProtocolBreach(what)) = self.handle_host_event(at, event, &body) {
                    self.hosts.sessions[at].close();
                    self.lost(at, format!("protocol error: {what}"));
                }
            }
        }
    }

    /// Handles an event of a host's agent.
    fn handle_host_event(
        &mut self,
        at: usize,
        event: Event,
        body: &[u8],
    ) -> Result<(), ProtocolBreach> {
        let is_followed = self.mode != Mode::Deciding;
        let is_present = matches!(
            event,
            Event::Output(_)
                | Event::Failed(_)
                | Event::Alive
                | Event::Done
                | Event::Kept(_)
                | Event::KeeperGone
        );
        match event {
            Event::Past(past) if is_followed && self.past.is_none() => {
                let moment = Moment::of_past(&past, Moment::now());
                self.past = Some(moment);
                self.begun = self.begun.min(moment.at);
                self.last_past = self.last_past.max(Some(moment.at));
                let handled = self.handle_host_event(at, *past.what, &[]);
                self.past = None;
                return handled;
            }
            // what happens to a job that is followed was written down before it is reported
            other if is_followed && self.past.is_none() && !is_present => {
                return Err(ProtocolBreach::out_of_phase(&other));
            }
            Event::Kept(_) if is_followed => {}
            Event::KeeperGone if is_followed => self.keeper_gone(at),
            Event::Ending(ending) if is_followed => self.apply_ending(at, ending),
            // the first host leads
            Event::Stalled(_) | Event::Resumed(_) if is_followed => {
                if at == 0 {
                    self.note(event);
                }
            }
            Event::Failed(failure) => {
                self.hosts.sessions[at].close();
                self.lost(at, failure.problem);
            }
            event => {
                self.handle_process_event(at, &event, body)?;
                let host = self.hosts.sessions[at].host.id;
                let steps = self.job.event(host, &event, Instant::now());
                self.take(steps);
                self.report_complete_stall();
            }
        }
        Ok(())
    }

    /// Shows people and programs an event about the processes of a host.
    fn handle_process_event(
        &mut self,
        at: usize,
        event: &Event,
        body: &[u8],
    ) -> Result<(), ProtocolBreach> {
        match event {
            Event::Started(started) => self.started(self.own(at, started.index)?, started.pid),
            Event::Listening(listening) => self.listening(self.own(at, listening.index)?),
            Event::Output(supervise::Output { index, stream }) => {
                self.output(self.own(at, *index)?, *stream, body)
            }
            Event::Drained(supervise::Drained { index, stream }) => {
                self.drained(self.own(at, *index)?, *stream)
            }
            Event::Exited(exited) => self.exited(self.own(at, exited.index)?, exited),
            Event::Usage(usage) => self.used(at, usage),
            Event::Raised(raised) => {
                self.has_raised(self.own(at, raised.index)?, raised.clone().bounded());
                Ok(())
            }
            Event::Stack(stack) => {
                self.stack(at, stack.clone());
                Ok(())
            }
            Event::Profile(profile) if self.is_recorded => {
                let host = self.hosts.sessions[at].host.id;
                let profile = profile.clone().into_record(host, self.processes, now_ms());
                self.sink.report(host, &profile);
                Ok(())
            }
            Event::Stands(stands) => {
                let own = stands.stopped.iter().map(|index| self.own(at, *index));
                let stopped = own.collect::<Result<Vec<_>, _>>()?;
                self.stall.stands(at, stands, stopped);
                Ok(())
            }
            Event::ServersEnded(_) => {
                self.servers_ended = self.job.ending().is_some() || self.reported_ending.is_some();
                Ok(())
            }
            Event::Over(over) => {
                self.over(at, over.survivors);
                Ok(())
            }
            Event::Idle(_)
            | Event::Moves(_)
            | Event::ShmRemoved(_)
            | Event::Alive
            | Event::Done => Ok(()),
            _ => Err(ProtocolBreach("an answer to what was not asked".to_owned())),
        }
    }

    /// When the event that is being handled happened.
    fn moment(&self) -> Moment {
        self.past.unwrap_or_else(Moment::now)
    }

    /// Whether the event that is being handled happened after the end of the job had begun.
    fn is_ending(&self, host: usize) -> bool {
        if self.mode == Mode::Deciding {
            self.job.ending().is_some()
        } else {
            self.reported_end[host]
        }
    }

    /// Applies the cause with which a left job ends, as the keeper of its first host has decided.
    /// What another host has heard of it counts only if the first one does not report it.
    fn apply_ending(&mut self, at: usize, ending: Ending) {
        self.reported_end[at] = true;
        // the first host leads: the records of hosts are in the order of the hosts
        if at == 0 {
            self.job.apply_remote_ending(ending);
        } else {
            self.reported_ending.get_or_insert(ending);
        }
    }

    fn keeper_gone(&mut self, at: usize) {
        self.host_states[at] = HostState::Over;
        self.finish_lines(at);
        let problem =
            "the keeper of the job has ended there, and how the job ended there is unknown";
        let fix = "was the host started anew, or the agent that kept the job killed? The host has \
            ended what it had of the job";
        self.faults
            .push(Fault::unreachable(self.hosts.sessions[at].host.location(), problem).fix(fix));
    }

    /// The position of a process that belongs to this host.
    fn own(&self, at: usize, index: u32) -> Result<usize, ProtocolBreach> {
        let members = &self.hosts.sessions[at].members;
        let member = usize::try_from(index)
            .ok()
            .and_then(|index| members.get(index));
        member
            .copied()
            .ok_or_else(|| ProtocolBreach(format!("it has no process {index}")))
    }

    fn started(&mut self, at: usize, pid: u32) -> Result<(), ProtocolBreach> {
        let Moment { at: now, time_ms } = self.moment();
        if self.states[at].started.replace(now).is_some() || self.states[at].exited {
            return Err(ProtocolBreach("a process started twice".to_owned()));
        }
        let Process {
            id,
            host,
            role,
            rank,
            ..
        } = self.processes[at];
        self.sink.record(&Started {
            id,
            host,
            role,
            rank,
            pid,
            time_ms,
        });
        Ok(())
    }

    fn listening(&mut self, at: usize) -> Result<(), ProtocolBreach> {
        let Process {
            id,
            host,
            role,
            rank,
            port,
            ..
        } = self.processes[at];
        let Some(port) = port.filter(|_| !std::mem::replace(&mut self.states[at].listens, true))
        else {
            return Err(ProtocolBreach(
                "a process listens that has no port, or twice".to_owned(),
            ));
        };
        self.sink.record(&Listening {
            id,
            host,
            role,
            rank,
            port,
            time_ms: self.moment().time_ms,
        });
        Ok(())
    }

    fn exited(&mut self, at: usize, exited: &supervise::Exited) -> Result<(), ProtocolBreach> {
        if std::mem::replace(&mut self.states[at].exited, true) {
            return Err(ProtocolBreach("a process ended twice".to_owned()));
        }
        let while_ending = self.is_ending(self.host_of[at]);
        self.states[at].exited_before_end = !while_ending;
        if !while_ending {
            self.raised.remove(&at);
        }
        self.reaped |= exited.job_reaped;
        let (code, signal) = status_fields(exited.status);
        let now = self.moment().at;
        let ran = self.states[at].started.map_or(Duration::ZERO, |started| {
            now.saturating_duration_since(started)
        });
        let Process {
            id,
            host,
            role,
            rank,
            ..
        } = self.processes[at];
        self.sink.record(&Exited {
            id,
            host,
            role,
            rank,
            code,
            signal,
            elapsed_ms: term::millis(ran),
            cpu_s: Some(exited.cpu_s).filter(|seconds| seconds.is_finite() && *seconds >= 0.0),
            max_rss_bytes: Some(exited.max_rss_bytes),
            oom: exited.oom,
            reaped: exited.reaped,
            while_ending,
        });
        Ok(())
    }

    /// Notes the resources that a host and its processes have used.
    fn used(&mut self, at: usize, usage: &supervise::Usage) -> Result<(), ProtocolBreach> {
        let members = usage
            .processes
            .iter()
            .map(|process| self.own(at, process.index))
            .collect::<Result<Vec<_>, _>>()?;
        let host = self.hosts.sessions[at].host.id;
        self.busiest.update(host, usage);
        if self.plan.sample.is_some() {
            let owners = members.iter().map(|member| &self.processes[*member]);
            for sample in usage::samples(host, owners, usage, now_ms()) {
                self.sink.report(host, &sample);
            }
        }
        Ok(())
    }

    /// A host reports where a process stands.
    fn stack(&mut self, at: usize, stack: wire::stacks::Stack) {
        let id = self.hosts.sessions[at].host.id;
        let time_ms = self.moment().time_ms;
        let stack = stack.into_record(id, self.processes, time_ms);
        self.stall.stack(at, stack);
        if self.is_ending(at) {
            for stack in self.stall.take_pending(at) {
                self.report_stack(stack, true);
            }
        }
    }

    /// Writes the record of a stack, within the budget of its host.
    fn report_stack(&mut self, stack: record::Stack, while_ending: bool) {
        let record = record::Stack {
            job: self.plan.name.clone(),
            while_ending,
            ..stack
        };
        self.sink.report(record.host, &record);
    }

    /// Whoever decides about the job has found that it stalls or moves again.
    fn note(&mut self, event: Event) {
        let time_ms = self.moment().time_ms;
        match event {
            Event::Stalled(found) => {
                self.stall.found(FoundStall {
                    number: found.number,
                    silent: Duration::from_millis(found.silent_ms),
                    time_ms,
                    computing: found.computing,
                    ends: found.ends,
                });
                self.report_complete_stall();
            }
            Event::Resumed(resumed) => {
                let index = resumed.moves.index.filter(|_| resumed.moves.sign.is_some());
                let process = index.and_then(|index| self.position(resumed.host, index));
                self.resumed(time_ms, process.zip(resumed.moves.sign));
            }
            _ => {}
        }
    }

    /// Reports a stall that was found, once all hosts that are up have reported.
    fn report_complete_stall(&mut self) {
        let is_up = |at: usize| self.host_states[at] == HostState::Up;
        if let Some(stall) = self.stall.complete(is_up, self.host_states.len()) {
            self.report_stall(&stall);
        }
    }

    /// Reports a stall to programs and to people.
    fn report_stall(&mut self, stall: &CompleteStall) {
        let why = stall::explain(stall, self.processes, &self.raised);
        for stack in &stall.stacks {
            self.report_stack(stack.clone(), false);
        }
        // any host may be the one by which the job seems to stall and to move
        let first = self.hosts.sessions[0].host.id;
        let stalled = Stalled {
            since_ms: stall.since_ms(),
            silent_s: stall.stall.silent.as_secs_f64(),
            computing: stall.stall.computing.is_some(),
            reason: why.reason.clone(),
            culprit: why.culprit.clone(),
            time_ms: stall.stall.time_ms,
        };
        self.sink.report(first, &stalled);
        for line in stall::lines(&self.plan.name, stall, &why) {
            self.notice(&line);
        }
        self.stalls = Some(why.brief);
    }

    fn resumed(&mut self, time_ms: u64, moved: Option<(usize, Sign)>) {
        let (unreported, since_ms) = self.stall.resumed();
        if let Some(stall) = unreported {
            self.report_stall(&stall);
        }
        let Some(since_ms) = since_ms else { return };
        self.stalls = None;
        let (process, sign) = moved.unzip();
        let what = match (process, sign) {
            (Some(at), Some(sign)) => {
                let Process { role, rank, .. } = self.processes[at];
                format!(": {} {}", stacks::names(&[(role, rank)]), sign.words())
            }
            _ => String::new(),
        };
        let first = self.hosts.sessions[0].host.id;
        let resumed = Resumed {
            since_ms,
            time_ms,
            process: process.map(|at| Culprit::of(&self.processes[at])),
            sign,
        };
        self.sink.report(first, &resumed);
        let time = Duration::from_millis(time_ms.saturating_sub(since_ms));
        self.notice(&format!(
            "job {} moves again, after {}{what}",
            self.plan.name,
            term::seconds(time)
        ));
    }

    fn notice(&self, text: &str) {
        self.sink
            .notice(&format!("dgl-spawn: {}", term::plain(text)));
    }

    /// A process has raised an exception, has been silent since, and does not end.
    fn has_raised(&mut self, at: usize, raised: Raised) {
        let known = self.raised.get(&at);
        if self.states[at].exited || known.is_some_and(|known| *known == raised) {
            return;
        }
        let name = self.name_of(at);
        let stays = match stacks::wait(&raised.frames) {
            Some(wait) => format!("it {}", wait.words()),
            None => "it does not end".to_owned(),
        };
        let silent = term::seconds(Duration::from_millis(raised.silent_ms));
        self.notice(&format!(
            "{name} raised {} and has been silent for {silent}: {stays}",
            raised.exception
        ));
        self.raised.insert(at, raised);
    }

    /// A process in messages: `host 1 (10.0.0.2): trainer 3`.
    fn name_of(&self, at: usize) -> String {
        let Process { role, rank, .. } = self.processes[at];
        let host = self.hosts.sessions[self.host_of[at]].host.location();
        format!("{host}: {} {rank}", role.name())
    }

    /// The position of the process that failed first.
    fn failed(&self) -> Option<usize> {
        let failure = self.job.failure()?;
        self.position(failure.host, failure.index?)
    }

    /// The position of a process, by the numbers of its host and its own there.
    fn position(&self, host: u32, index: u32) -> Option<usize> {
        let sessions = &self.hosts.sessions;
        let at = sessions.binary_search_by_key(&host, |session| session.host.id);
        sessions[at.ok()?].members.get(index as usize).copied()
    }

    /// Processes that had raised an exception and did not end before the job did, a sentence each.
    fn raised_lines(&self) -> Vec<String> {
        let failed = self.failed();
        let stayed = self.raised.iter().filter(|(at, _)| Some(**at) != failed);
        stayed
            .map(|(at, raised)| {
                format!(
                    "{} had raised {} and did not end",
                    self.name_of(*at),
                    raised.exception
                )
            })
            .collect()
    }

    /// Everything has ended on a host.
    fn over(&mut self, at: usize, survivors: u32) {
        self.host_states[at] = HostState::Over;
        self.finish_lines(at);
        if survivors > 0 {
            let problem = format!("{survivors} of the job's processes could not be ended");
            let location = self.hosts.sessions[at].host.location();
            self.faults
                .push(Fault::item(location, problem).fix("look with dgl-reap --list"));
        }
    }

    /// A host is lost.
    fn lost(&mut self, at: usize, why: String) {
        self.host_states[at] = HostState::Over;
        self.finish_lines(at);
        let host = self.hosts.sessions[at].host;
        if self.mode == Mode::Following || self.is_being_left() {
            self.faults.push(
                Fault::unreachable(
                    host.location(),
                    format!("lost, and perhaps the job goes on there: {why}"),
                )
                .fix("go back to it later with --attach"),
            );
        } else if matches!(self.job.cause(), Some(Cause::Paused(_))) {
            // the hosts have taken this launcher for gone, and end the job themselves
        } else if self.job.ending().is_some() || self.mode == Mode::Detaching {
            self.faults.push(
                Fault::unreachable(
                    host.location(),
                    format!("lost while the job was ended: {why}"),
                )
                .fix("its own guardian ends the job there; look with dgl-reap --list"),
            );
        }
        let steps = self.job.host_lost(host.id, why);
        self.take(steps);
        self.report_complete_stall();
    }

    fn output(&mut self, at: usize, stream: Stream, piece: &[u8]) -> Result<(), ProtocolBreach> {
        if self.states[at].drained[stream as usize] {
            return Err(ProtocolBreach(
                "a process writes to a stream that is at its end".to_owned(),
            ));
        }
        self.states[at].wrote = Some(Instant::now());
        // the output of a job that is followed may have been written before
        if self.mode == Mode::Deciding && self.job.ending().is_none() {
            self.raised.remove(&at);
        }
        let state = &mut self.states[at].lines[stream as usize];
        let continues = state.was_shown();
        let taken = state.push(piece, Instant::now());
        self.show(at, stream as usize, taken, continues);
        Ok(())
    }

    fn drained(&mut self, at: usize, stream: Stream) -> Result<(), ProtocolBreach> {
        if std::mem::replace(&mut self.states[at].drained[stream as usize], true) {
            return Err(ProtocolBreach("a stream ended twice".to_owned()));
        }
        self.finish_line(at, stream as usize);
        Ok(())
    }

    fn finish_line(&mut self, at: usize, stream: usize) {
        let state = &mut self.states[at].lines[stream];
        let continues = state.was_shown();
        let taken = state.finish();
        self.show(at, stream, taken, continues);
    }

    fn finish_lines(&mut self, host: usize) {
        for at in self.hosts.sessions[host].members.clone() {
            (0..2).for_each(|stream| self.finish_line(at, stream));
        }
    }

    fn show(&mut self, at: usize, stream: usize, taken: Split, continues: bool) {
        match self.states[at].lines[stream].due_at() {
            Some(_) => self.waiting.insert((at, stream)),
            None => self.waiting.remove(&(at, stream)),
        };
        let while_ending = self.is_ending(self.host_of[at]) && !self.states[at].exited_before_end;
        let lines = |text: Vec<u8>| OutputLines {
            at: self.first + at,
            stderr: stream == 1,
            time_ms: now_ms(),
            text,
            continues,
            while_ending,
        };
        if !taken.whole.is_empty() {
            self.sink.log_lines(&lines(taken.whole));
        }
        if !taken.pieces.is_empty() {
            self.sink.output(lines(taken.pieces));
        }
    }

    /// Passes on unfinished lines that have waited long enough.
    fn hand_on_pieces(&mut self, now: Instant) {
        if now < self.pieces_at {
            return;
        }
        self.pieces_at = now + PIECES_PACE;
        for (at, stream) in self.waiting.clone() {
            let state = &mut self.states[at].lines[stream];
            let continues = state.was_shown();
            let pieces = state.take_due(now);
            if !pieces.is_empty() {
                self.show(
                    at,
                    stream,
                    Split {
                        pieces,
                        whole: Vec::new(),
                    },
                    continues,
                );
            }
        }
    }

    fn act(&mut self, action: Option<Action>) {
        let steps = self.job.steps(action);
        self.take(steps);
    }

    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Note(event) => self.note(event),
                Step::Send(request) => {
                    self.hosts.send_all(&request);
                    self.note_end(&request);
                }
            }
        }
    }

    /// Notes until when a job is to have ended that was told to.
    fn note_end(&mut self, request: &Request) {
        let now = Instant::now();
        let kill_at = match (request, &mut self.end_times) {
            (Request::Kill, Some(times)) => {
                (times.kill_at, times.notice_at) = (now, None);
                return;
            }
            (Request::Kill, None) => now + self.plan.rules.grace,
            (Request::End(End { stacks, .. }), None) => {
                let stacks = if *stacks { STACKS } else { Duration::ZERO };
                now + stacks + self.plan.rules.grace
            }
            _ => return,
        };
        self.end_times = Some(EndTimes {
            kill_at,
            give_up_at: kill_at + END_LIMIT,
            notice_at: Some(now + NOTICE_AFTER),
        });
    }

    /// Tells people who wait for the end of a job what comes next.
    fn notice_long_end(&mut self, now: Instant) {
        let Some(times) = &mut self.end_times else {
            return;
        };
        let left = times.kill_at.saturating_duration_since(now);
        if times.notice_at.is_some_and(|at| now >= at) {
            times.notice_at = None;
            if left > Duration::ZERO {
                self.sink.notice(&format!(
                    "dgl-spawn: job {} is ending: {}",
                    self.plan.name,
                    status::kill_notice(left)
                ));
            }
        }
    }

    fn status(&self) -> String {
        let up = self
            .host_states
            .iter()
            .filter(|state| **state == HostState::Up)
            .count();
        let left = self
            .end_times
            .as_ref()
            .map(|times| times.kill_at.saturating_duration_since(Instant::now()));
        let phase = match (self.job.ending().is_some(), left) {
            (false, _) => Phase::Running,
            (true, left) => Phase::Ending {
                kill_in: left.filter(|left| !left.is_zero()),
            },
        };
        let busiest = self.busiest.text();
        status::line(
            &self.plan.name,
            (up, self.host_states.len()),
            self.job.progress(),
            self.age(),
            State {
                busiest: &busiest,
                stalls: self.stalls.as_deref(),
                silent: self.silent(),
            },
            phase,
        )
    }

    /// For how long no trainer or worker has written anything.
    fn silent(&self) -> Option<Duration> {
        let clients = self.processes.iter().zip(&self.states);
        let clients = clients.filter(|(process, state)| {
            !process.serves() && state.started.is_some() && !state.exited
        });
        let last = clients
            .filter_map(|(_, state)| state.wrote.max(state.started))
            .max();
        last.map(|last| last.elapsed())
    }

    fn age(&self) -> Duration {
        // a job that is followed may have ended long ago
        let is_over = !self.host_states.contains(&HostState::Up);
        let end = self.last_past.filter(|_| is_over);
        end.unwrap_or_else(Instant::now).duration_since(self.begun)
    }

    fn end(mut self) -> Outcome {
        if let Some(ending) = self.reported_ending.take()
            && self.host_states.first() == Some(&HostState::Over)
        {
            self.job.apply_remote_ending(ending);
        }
        let (is_left, age, reaped) = (self.is_left(), self.age(), self.reaped);
        for (session, state) in self.hosts.sessions.iter().zip(&self.host_states) {
            if *state == HostState::Up && !is_left {
                let fix = format!(
                    "look with dgl-reap --list, end them with dgl-reap --job {}",
                    self.plan.name
                );
                let problem = "it did not say that the job's processes have ended";
                self.faults
                    .push(Fault::unreachable(session.host.location(), problem).fix(fix));
            }
        }
        self.sink.status("");
        let raised = self.raised_lines();
        let ending = self.job.ending().cloned().unwrap_or_default();
        let failed = self.failed();
        let lines = |process: &Process| self.sink.last_lines(process.id);
        let process = failed.map(|at| &self.processes[at]);
        let process = process.map(|process| (process, lines(process)));
        let failure = ending.failure.as_ref();
        let mut failure = failure.map(|failure| first_failure(failure, process));
        if let (Some(Cause::Servers), Some(server)) = (&ending.cause, &mut failure) {
            server.role = Some(Role::Server);
        }
        let signalled = self.job.signalled();
        let exit = match (self.mode, signalled, &ending.cause) {
            // the hosts end a job that is being left by a signal of their own
            (Mode::Following, Some(number), _)
            | (Mode::Detaching, Some(number), Some(Cause::Signal(_))) => Exit::Signal(number),
            _ => exit(&ending),
        };
        let exit = if self.faults.0.is_empty() {
            exit
        } else {
            exit.worst(self.faults.exit())
        };
        Outcome {
            exit,
            cause_label: ending.cause.as_ref().map(cause_label),
            cause: ending.cause,
            failure,
            started: true,
            goes_on: self.mode != Mode::Deciding
                && self.job.ending().is_none()
                && exit != Exit::Unreachable,
            age,
            graph_servers_lost: self.servers_ended,
            raised,
            reaped,
            signalled,
            report: self.faults,
        }
    }
}

/// An event that a host must not send, or not now.
struct ProtocolBreach(String);

impl ProtocolBreach {
    fn out_of_phase(event: &Event) -> ProtocolBreach {
        ProtocolBreach(
            format!("{event:?} while a job runs")
                .chars()
                .take(100)
                .collect(),
        )
    }
}
