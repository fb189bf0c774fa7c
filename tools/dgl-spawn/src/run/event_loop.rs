//! The event loop of a job, in which the events of all hosts come together. The state machine of
//! the crate `job` decides what is to be done. A host is believed only about its own processes, and
//! each event only once.
//!
//! The same loop follows a job that was left: then the hosts report what happened to it, and when,
//! and the keeper of the first host decides.

use super::hosts::{ConnectedHosts, RunEvent};
use super::moment::Moment;
use super::stall::{self, CompleteStall, FoundStall, StallDesk};
use super::usage::{self, Busiest};
use crate::outcome::{exit, first_failure, member, status_fields};
use crate::output::lines::{LineBuffer, Split};
use crate::output::queue::OutputLines;
use crate::output::sink::OutputSink;
use crate::output::status::{self, Phase, State};
use crate::plan;
use job::{Action, Cause, Failure, Job, LastLines, Mode, StallStep, StallWatch};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::stacks::{self, Comparison};
use record::term::{self, now_ms};
use record::{
    Exited, FirstFailure, Listening, Process, Resumed, Role, Sign, Stalled, Started, traceback,
};
use remote::SessionEvent;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use wire::keep;
use wire::supervise::{self, End, Moves, Raised, Stand, Stream};
use wire::{Event, Request};

/// How much is kept of a process's stacks: twice what faulthandler writes for a process with some
/// samplers.
const STACKS_BYTES: usize = 256 << 10;
/// How long the end may take beyond the grace, for KILL and the removal of shared memory.
const END_LIMIT: Duration = Duration::from_secs(15);
/// How long before TERM the ABRT comes.
const STACKS: Duration = Duration::from_secs(1);
/// How often time limits are checked and the status line is renewed.
const TICK: Duration = Duration::from_millis(500);
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
    last_lines: LastLines,
    /// What it wrote to stderr while a time limit ended the job: Python's stacks.
    stacks: Vec<u8>,
}

/// The state of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HostState {
    Up,
    /// Everything has ended on the host, or it is lost.
    Over,
}

/// The end of the job, once it has begun.
struct Ending {
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
    end_was_told: Vec<bool>,
    /// Why the job ends, as a host reports that does not decide it.
    hearsay: Option<(Option<Cause>, Option<Failure>)>,
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
    ending: Option<Ending>,
    /// The hosts that use most, for the status line.
    busiest: Busiest,
    /// Detects stalls.
    stall: StallDesk,
    /// Why the job stalls, as far as that is known, from the report of the stall until it moves.
    stalls: Option<String>,
    /// The process that gave the last sign of life after none had, by its position, and the sign.
    moved: Option<(usize, Sign)>,
    /// Processes that have raised an exception and do not end.
    raised: BTreeMap<usize, Raised>,
    /// dgl-reap has ended the whole job.
    reaped: bool,
    /// When the first connection broke of a job that is being left and was not up yet.
    cut_off: Option<Instant>,
    /// Faults of processes that could not be ended.
    left: Report,
}

/// The result of the event loop.
pub struct Ended {
    pub exit: Exit,
    pub cause: Option<Cause>,
    pub failure: Option<FirstFailure>,
    /// Further faults.
    pub report: Report,
    pub age: Duration,
    /// Whether the job was left to its hosts and goes on.
    pub goes_on: bool,
    /// Whether the graph servers that it used ended before the job was over.
    pub servers_ended: bool,
    /// Where processes stood when a time limit ended the job, as far as Python told.
    pub stacks: Comparison,
    /// Processes that had raised an exception and did not end, a sentence each.
    pub raised: Vec<String>,
    /// dgl-reap has ended the whole of it.
    pub reaped: bool,
    /// The first signal that arrived, also one that came when the job was ending already.
    pub signalled: Option<i32>,
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
        let has_clients = processes.iter().any(|one| one.role != Role::Server);
        let watch = plan
            .stall
            .filter(|_| mode == Mode::Deciding && has_clients)
            .map(|rule| {
                let ids = hosts.sessions.iter().map(|session| session.host.id);
                StallWatch::new(rule.limit, ids)
            });
        EventLoop {
            mode,
            job: Job::new(mode, processes.iter().map(member), &plan.limits, begun),
            plan,
            processes,
            first,
            begun,
            early: early.into(),
            host_states: vec![HostState::Up; hosts.sessions.len()],
            host_of,
            end_was_told: vec![false; hosts.sessions.len()],
            hearsay: None,
            past: None,
            last_past: None,
            servers_ended: false,
            states: processes.iter().map(|_| ProcessState::default()).collect(),
            hosts,
            sink,
            waiting: BTreeSet::new(),
            pieces_at: begun,
            ending: None,
            busiest: Busiest::default(),
            stall: StallDesk::new(watch),
            stalls: None,
            moved: None,
            raised: BTreeMap::new(),
            reaped: false,
            cut_off: None,
            left: Report::default(),
        }
    }

    /// Runs until all hosts have ended, or until a job that was left need not be followed any
    /// longer.
    pub fn run(mut self) -> Ended {
        let mut shown = Instant::now();
        while self.host_states.contains(&HostState::Up) && !self.is_left() {
            let now = Instant::now();
            if self
                .ending
                .as_ref()
                .is_some_and(|ending| now >= ending.give_up_at)
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
            let action = self.job.tick(now);
            self.act(action);
            let action = self.next_event().and_then(|event| self.handle(event));
            self.act(action);
        }
        self.end()
    }

    /// Whether nobody wants to follow the job any longer.
    fn is_left(&self) -> bool {
        let is_up = || self.job.is_up(|at| self.states[at].started.is_some());
        match self.mode {
            Mode::Deciding => false,
            Mode::Following => self.job.detach_signal().is_some(),
            Mode::Detaching => self.is_being_left() && (is_up() || self.is_cut_off()),
        }
    }

    /// Whether a connection broke so long ago that the hosts would have said so if they ended the
    /// job for it: what happens on that host is not heard any more.
    fn is_cut_off(&self) -> bool {
        let limit = self.plan.host_timeout + self.plan.grace;
        self.cut_off.is_some_and(|since| since.elapsed() >= limit)
    }

    /// Whether the job is being left to its hosts, and neither they nor this launcher end it.
    fn is_being_left(&self) -> bool {
        self.mode == Mode::Detaching && self.hearsay.is_none() && self.ending.is_none()
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

    fn handle(&mut self, event: RunEvent) -> Option<Action> {
        match event {
            RunEvent::Signal(number) => self.job.signal(number, Instant::now()),
            RunEvent::StatusAsked => {
                self.sink.notice(&format!("dgl-spawn: {}", self.status()));
                None
            }
            RunEvent::Paused(time) => {
                self.job
                    .paused(time, Instant::now(), self.plan.host_timeout);
                None
            }
            RunEvent::Host(at, _) if self.host_states[at] == HostState::Over => None,
            RunEvent::Host(at, SessionEvent::Lost(why)) => {
                if self.is_being_left() {
                    self.cut_off.get_or_insert_with(Instant::now);
                }
                self.lost(at, why)
            }
            RunEvent::Host(at, SessionEvent::Event(event, body)) => {
                match self.handle_host_event(at, event, body) {
                    Ok(action) => action,
                    Err(ProtocolBreach(what)) => {
                        self.hosts.sessions[at].close();
                        self.lost(at, format!("protocol error: {what}"))
                    }
                }
            }
        }
    }

    /// Handles an event of a host's agent.
    fn handle_host_event(
        &mut self,
        at: usize,
        event: Event,
        body: Vec<u8>,
    ) -> Result<Option<Action>, ProtocolBreach> {
        let is_followed = self.mode != Mode::Deciding;
        let is_present = matches!(
            event,
            Event::Output(_) | Event::Failed(_) | Event::Alive | Event::Done
        );
        match event {
            Event::Past(past) if is_followed && self.past.is_none() => {
                let told = Moment::told(&past, Moment::now());
                self.past = Some(told);
                self.begun = self.begun.min(told.at);
                self.last_past = self.last_past.max(Some(told.at));
                let heard = self.handle_host_event(at, *past.what, Vec::new());
                self.past = None;
                return heard;
            }
            Event::Kept(_) if is_followed => {}
            Event::KeeperGone if is_followed => self.keeper_gone(at),
            // what happens to a job that is followed was written down before it is reported
            other if is_followed && self.past.is_none() && !is_present => {
                return Err(ProtocolBreach::out_of_phase(&other));
            }
            Event::Ending(ending) if is_followed => self.apply_ending(at, ending)?,
            Event::ServersEnded(ended) => {
                self.servers_ended = self.job.ending() || self.hearsay.is_some();
                let failure = ended.failure.map(|failure| Failure {
                    host: failure.host,
                    member: None,
                    reason: failure.reason,
                });
                return Ok(self.job.servers_ended(failure));
            }
            Event::Stack(_)
            | Event::Idle(_)
            | Event::Moves(_)
            | Event::Stands(_)
            | Event::Stalled(_)
            | Event::Resumed(_) => return self.sign(at, event),
            Event::Over(supervise::Over { survivors }) => return Ok(self.over(at, survivors)),
            Event::Failed(failure) if self.mode == Mode::Following => {
                self.no_longer_told(at, failure.problem);
            }
            Event::Failed(failure) => {
                self.hosts.sessions[at].close();
                return Ok(self.lost(at, failure.problem));
            }
            Event::ShmRemoved(_) | Event::Alive | Event::Done => {}
            event => return self.handle_process_event(at, event, &body),
        }
        Ok(None)
    }

    /// Handles an event about processes of a host.
    fn handle_process_event(
        &mut self,
        at: usize,
        event: Event,
        body: &[u8],
    ) -> Result<Option<Action>, ProtocolBreach> {
        match event {
            Event::Started(supervise::Started { index, pid }) => {
                self.started(self.own(at, index)?, pid)?;
            }
            Event::Listening(supervise::Listening { index }) => {
                self.listening(self.own(at, index)?)?;
            }
            Event::Output(supervise::Output { index, stream }) => {
                self.output(self.own(at, index)?, stream, body)?;
            }
            Event::Drained(supervise::Drained { index, stream }) => {
                self.drained(self.own(at, index)?, stream)?;
            }
            Event::Exited(exited) => {
                let member = self.own(at, exited.index)?;
                return self.exited(member, &exited);
            }
            Event::Usage(usage) => self.used(at, &usage)?,
            Event::Raised(raised) => return self.has_raised(self.own(at, raised.index)?, raised),
            _ => return Err(ProtocolBreach("an answer to what was not asked".to_owned())),
        }
        Ok(None)
    }

    /// When the event that is being handled happened.
    fn moment(&self) -> Moment {
        self.past.unwrap_or_else(Moment::now)
    }

    /// Whether the event that is being handled happened after the end of the job had begun.
    fn is_ending(&self, host: usize) -> bool {
        if self.mode == Mode::Deciding {
            self.job.ending()
        } else {
            self.end_was_told[host]
        }
    }

    /// Applies the cause with which a left job ends, as the keeper of its first host has decided.
    /// What another host has heard of it counts only if the first one does not report it.
    fn apply_ending(&mut self, at: usize, ending: keep::Ending) -> Result<(), ProtocolBreach> {
        let failure = ending.failure.map(|failure| {
            // nothing is known about hosts that are not followed
            let session = self
                .hosts
                .sessions
                .iter()
                .find(|session| session.host.id == failure.host);
            let member = match (session, failure.index) {
                (Some(session), Some(index)) => {
                    let index = usize::try_from(index).ok();
                    let member = index.and_then(|index| session.members.get(index));
                    Some(*member.ok_or_else(|| {
                        ProtocolBreach("a process failed that is none of the job".to_owned())
                    })?)
                }
                _ => None,
            };
            Ok(Failure {
                host: failure.host,
                member,
                reason: failure.reason,
            })
        });
        let failure = failure.transpose()?;
        self.end_was_told[at] = true;
        // the first host leads: the records of hosts are in the order of the hosts
        if at == 0 {
            self.job.apply_remote_cause(ending.cause, failure);
        } else {
            self.hearsay.get_or_insert((ending.cause, failure));
        }
        Ok(())
    }

    fn keeper_gone(&mut self, at: usize) {
        self.host_states[at] = HostState::Over;
        self.finish_lines(at);
        let problem = "nobody keeps the job there any more, and nobody knows how it ended there";
        let fix = "was the host started anew, or the agent that kept the job killed? The host has \
            ended what it had of the job";
        self.left
            .push(Fault::unreachable(self.hosts.sessions[at].host.place(), problem).fix(fix));
    }

    /// A host reports nothing any longer, while the job may go on there.
    fn no_longer_told(&mut self, at: usize, problem: String) {
        self.host_states[at] = HostState::Over;
        self.finish_lines(at);
        if !self.end_was_told[at] {
            let fix = format!(
                "the job may go on: go back to it with --attach {}",
                self.plan.name
            );
            self.left
                .push(Fault::unreachable(self.hosts.sessions[at].host.place(), problem).fix(fix));
        }
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
        self.job.listening(at);
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

    fn exited(
        &mut self,
        at: usize,
        exited: &supervise::Exited,
    ) -> Result<Option<Action>, ProtocolBreach> {
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
        Ok(self.job.exited(
            at,
            job::Exit {
                status: exited.status,
                reaped: exited.reaped,
                out_of_memory: exited.oom,
            },
            Instant::now(),
        ))
    }

    /// Notes the resources that a host and its processes have used.
    fn used(&mut self, at: usize, usage: &supervise::Usage) -> Result<(), ProtocolBreach> {
        let members = usage
            .processes
            .iter()
            .map(|process| self.own(at, process.index))
            .collect::<Result<Vec<_>, _>>()?;
        let host = self.hosts.sessions[at].host.id;
        self.busiest.tell(host, usage);
        if self.plan.sample.is_some() {
            let owners = members.iter().map(|member| &self.processes[*member]);
            for sample in usage::samples(host, owners, usage, now_ms()) {
                self.sink.record(&sample);
            }
        }
        Ok(())
    }

    /// Handles an event about signs of life.
    fn sign(&mut self, at: usize, event: Event) -> Result<Option<Action>, ProtocolBreach> {
        let id = self.hosts.sessions[at].host.id;
        let time_ms = self.moment().time_ms;
        let watch = self.stall.watch();
        let step = match event {
            Event::Stack(stack) => {
                let member = |one: &&Process| {
                    one.host == id && Some(one.role) == stack.role && Some(one.rank) == stack.rank
                };
                let id_of = self.processes.iter().find(member).map(|one| one.id);
                self.stall.stack(at, stack.record(id, id_of, time_ms));
                None
            }
            Event::Idle(idle) => {
                watch.and_then(|watch| watch.idle(id, Duration::from_millis(idle.for_ms)))
            }
            Event::Moves(moves) => {
                let step = watch.and_then(|watch| watch.moves(id));
                self.moved = self.moved_by(at, moves)?;
                step
            }
            Event::Stands(stands) => {
                let idle = Duration::from_millis(stands.idle_ms);
                let step = watch.and_then(|watch| watch.answered(id, stands.number, idle));
                let own = stands.stopped.iter().map(|index| self.own(at, *index));
                let stopped = own.collect::<Result<Vec<_>, _>>()?;
                self.stall.stands(at, &stands, stopped);
                step
            }
            // the first host leads
            Event::Stalled(found) if at == 0 => {
                self.stall.found(FoundStall {
                    number: found.number,
                    silent: Duration::from_millis(found.silent_ms),
                    time_ms,
                    ends: found.ends,
                });
                None
            }
            Event::Resumed(resumed) if at == 0 => {
                let mut sessions = self.hosts.sessions.iter();
                let of_it = sessions.position(|session| session.host.id == resumed.host);
                if let Some(at) = of_it {
                    self.moved = self.moved_by(at, resumed.moves)?;
                }
                Some(StallStep::Resumed)
            }
            _ => None,
        };
        Ok(self.stall_step(step, time_ms))
    }

    /// Acts on a step of the stall watch.
    fn stall_step(&mut self, step: Option<StallStep>, time_ms: u64) -> Option<Action> {
        match step {
            Some(StallStep::Ask(number)) => {
                self.hosts.send_all(&Request::Stand(Stand { number }));
            }
            // a job that is being ended moves too
            Some(StallStep::Resumed) if self.job.ending() => {}
            Some(StallStep::Resumed) => self.resumed(time_ms),
            Some(stalled) => {
                let ends = self.plan.stall.is_some_and(|rule| rule.ends);
                if let Some(found) = StallDesk::found_by(stalled, time_ms, ends) {
                    self.stall.found(found);
                }
            }
            None => {}
        }
        let is_up = |at: usize| self.host_states[at] == HostState::Up;
        let told = self.stall.complete(is_up, self.host_states.len())?;
        self.tell_stall(&told);
        let rule = self.plan.stall.filter(|rule| rule.ends)?;
        self.job.stalled(rule.limit)
    }

    /// A host reports nothing any longer.
    fn gone(&mut self, at: usize) {
        let id = self.hosts.sessions[at].host.id;
        let step = self.stall.watch().and_then(|watch| watch.gone(id));
        let action = self.stall_step(step, now_ms());
        self.act(action);
    }

    /// Reports a stall to programs and to people.
    fn tell_stall(&mut self, told: &CompleteStall) {
        let why = stall::explain(told, self.processes, &self.raised);
        for stack in &told.stacks {
            let job = self.plan.name.clone();
            self.sink.record(&record::Stack {
                job,
                ..stack.clone()
            });
        }
        self.sink.record(&Stalled {
            since_ms: told.since_ms(),
            silent_s: told.stall.silent.as_secs_f64(),
            reason: why.reason.clone(),
            culprit: why.culprit.clone(),
            time_ms: told.stall.time_ms,
        });
        for line in stall::lines(&self.plan.name, told, &why) {
            self.notice(&line);
        }
        self.stalls = Some(why.brief);
    }

    fn resumed(&mut self, time_ms: u64) {
        let (untold, since_ms) = self.stall.resumed();
        if let Some(told) = untold {
            self.tell_stall(&told);
        }
        let Some(since_ms) = since_ms else { return };
        self.stalls = None;
        let (process, sign) = self.moved.take().unzip();
        let what = match (process, sign) {
            (Some(at), Some(sign)) => {
                let Process { role, rank, .. } = self.processes[at];
                format!(": {} {}", stacks::names(&[(role, rank)]), sign.words())
            }
            _ => String::new(),
        };
        self.sink.record(&Resumed {
            since_ms,
            time_ms,
            process: process.map(|at| stall::culprit_of(&self.processes[at])),
            sign,
        });
        let time = Duration::from_millis(time_ms.saturating_sub(since_ms));
        self.notice(&format!(
            "job {} moves again, after {}{what}",
            self.plan.name,
            term::seconds(time)
        ));
    }

    /// The process that moves again, by its position, and its sign of life.
    fn moved_by(&self, at: usize, moves: Moves) -> Result<Option<(usize, Sign)>, ProtocolBreach> {
        let index = moves.index.map(|index| self.own(at, index)).transpose()?;
        Ok(index.zip(moves.sign))
    }

    fn notice(&self, text: &str) {
        self.sink
            .notice(&format!("dgl-spawn: {}", term::plain(text)));
    }

    /// A process has raised an exception, has been silent since, and does not end.
    fn has_raised(&mut self, at: usize, raised: Raised) -> Result<Option<Action>, ProtocolBreach> {
        if self.states[at].exited {
            return Ok(None);
        }
        let who = self.who(at);
        let stays = match stacks::wait(&raised.frames) {
            Some(wait) => format!("it {}", wait.words()),
            None => "it does not end".to_owned(),
        };
        let silent = term::seconds(Duration::from_millis(raised.silent_ms));
        self.notice(&format!(
            "{who} raised {} and has been silent for {silent}: {stays}",
            raised.exception
        ));
        let is_certain = raised.left_script.unwrap_or(true);
        let exception = raised.exception.clone();
        self.raised.insert(at, raised);
        if !self.plan.fail_on_exception || !is_certain {
            return Ok(None);
        }
        Ok(self.job.raised(at, exception))
    }

    /// A process in messages: `host 1 (10.0.0.2): trainer 3`.
    fn who(&self, at: usize) -> String {
        let Process { role, rank, .. } = self.processes[at];
        let host = self.hosts.sessions[self.host_of[at]].host.place();
        format!("{host}: {} {rank}", role.name())
    }

    /// Processes that had raised an exception and did not end before the job did, a sentence each.
    fn raised_lines(&self) -> Vec<String> {
        let failed = self.job.failure().and_then(|failure| failure.member);
        let stayed = self.raised.iter().filter(|(at, _)| Some(**at) != failed);
        stayed
            .map(|(at, raised)| {
                format!(
                    "{} had raised {} and did not end",
                    self.who(*at),
                    raised.exception
                )
            })
            .collect()
    }

    /// Everything has ended on a host.
    fn over(&mut self, at: usize, survivors: u32) -> Option<Action> {
        self.host_states[at] = HostState::Over;
        self.gone(at);
        self.finish_lines(at);
        let host = self.hosts.sessions[at].host;
        if survivors > 0 {
            let problem = format!("{survivors} of the job's processes could not be ended");
            self.left
                .push(Fault::item(host.place(), problem).fix("look with dgl-reap --list"));
        }
        match self.job.ending() || self.mode != Mode::Deciding {
            true => None,
            false => self.job.lost(
                host.id,
                "the job was ended there by someone else".to_owned(),
            ),
        }
    }

    /// A host is lost.
    fn lost(&mut self, at: usize, why: String) -> Option<Action> {
        self.host_states[at] = HostState::Over;
        self.gone(at);
        self.finish_lines(at);
        let host = self.hosts.sessions[at].host;
        if self.mode == Mode::Following || self.is_being_left() {
            self.left.push(
                Fault::unreachable(
                    host.place(),
                    format!("lost, and perhaps the job goes on there: {why}"),
                )
                .fix("go back to it later with --attach"),
            );
        } else if matches!(self.job.cause(), Some(Cause::Paused(_))) {
            // the hosts have taken this launcher for gone, and end the job themselves
        } else if self.job.ending() || self.mode == Mode::Detaching {
            self.left.push(
                Fault::unreachable(host.place(), format!("lost while the job was ended: {why}"))
                    .fix("its own guardian ends the job there; look with dgl-reap --list"),
            );
        }
        self.job.lost(host.id, why)
    }

    fn output(&mut self, at: usize, stream: Stream, piece: &[u8]) -> Result<(), ProtocolBreach> {
        if self.states[at].drained[stream as usize] {
            return Err(ProtocolBreach(
                "a process writes to a stream that is at its end".to_owned(),
            ));
        }
        self.states[at].wrote = Some(Instant::now());
        // the output of a job that is followed may have been written before
        if self.mode == Mode::Deciding && !self.job.ending() {
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
        if !taken.whole.is_empty() {
            self.states[at].last_lines.push(&taken.whole);
            self.sink.log_lines(self.first + at, &taken.whole);
            let room = STACKS_BYTES.saturating_sub(self.states[at].stacks.len());
            if stream == 1 && matches!(self.job.cause(), Some(Cause::Time(_))) {
                let piece = &taken.whole[..taken.whole.len().min(room)];
                self.states[at].stacks.extend_from_slice(piece);
            }
        }
        if !taken.pieces.is_empty() {
            let while_ending =
                self.is_ending(self.host_of[at]) && !self.states[at].exited_before_end;
            self.sink.output(OutputLines {
                at: self.first + at,
                stderr: stream == 1,
                time_ms: now_ms(),
                text: taken.pieces,
                continues,
                while_ending,
            });
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
        let Some(action) = action else { return };
        let grace = self.plan.grace;
        let grace_ms = record::term::millis(grace);
        let (request, stacks) = match action {
            Action::End => (
                Request::End(End {
                    grace_ms,
                    stacks: false,
                }),
                Duration::ZERO,
            ),
            Action::EndWithStacks => (
                Request::End(End {
                    grace_ms,
                    stacks: true,
                }),
                STACKS,
            ),
            Action::Kill => (Request::Kill, Duration::ZERO),
        };
        self.hosts.send_all(&request);
        let now = Instant::now();
        match &mut self.ending {
            Some(ending) if action == Action::Kill => {
                (ending.kill_at, ending.notice_at) = (now, None);
            }
            Some(_) => {}
            None => {
                let kill_at = now + stacks + grace;
                self.ending = Some(Ending {
                    kill_at,
                    give_up_at: kill_at + END_LIMIT,
                    notice_at: Some(now + NOTICE_AFTER),
                });
            }
        }
    }

    /// Tells people who wait for the end of a job what comes next.
    fn notice_long_end(&mut self, now: Instant) {
        let Some(ending) = &mut self.ending else {
            return;
        };
        let left = ending.kill_at.saturating_duration_since(now);
        if ending.notice_at.is_some_and(|at| now >= at) {
            ending.notice_at = None;
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
            .ending
            .as_ref()
            .map(|ending| ending.kill_at.saturating_duration_since(Instant::now()));
        let phase = match (self.job.ending(), left) {
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
            process.role != Role::Server && state.started.is_some() && !state.exited
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

    fn end(mut self) -> Ended {
        if let Some((cause, failure)) = self.hearsay.take()
            && self.host_states.first() == Some(&HostState::Over)
        {
            self.job.apply_remote_cause(cause, failure);
        }
        let (is_left, age, reaped) = (self.is_left(), self.age(), self.reaped);
        for (session, state) in self.hosts.sessions.iter().zip(&self.host_states) {
            if *state == HostState::Up && !is_left {
                let fix = format!(
                    "look with dgl-reap --list, end them with dgl-reap --job {}",
                    self.plan.name
                );
                let problem = "it did not say that the job's processes have ended";
                self.left
                    .push(Fault::unreachable(session.host.place(), problem).fix(fix));
            }
        }
        self.sink.status("");
        let (stacks, raised) = (self.stacks(), self.raised_lines());
        let last_lines: Vec<LastLines> = self
            .states
            .into_iter()
            .map(|state| state.last_lines)
            .collect();
        let failure = self
            .job
            .failure()
            .map(|failure| first_failure(failure, self.processes, &last_lines));
        let signalled = self.job.signalled();
        let exit = match (self.mode, signalled, self.job.cause()) {
            // the hosts end a job that is being left by a signal of their own
            (Mode::Following, Some(number), _)
            | (Mode::Detaching, Some(number), Some(Cause::Signal(_))) => Exit::Signal(number),
            _ => exit(&self.job),
        };
        let exit = if self.left.0.is_empty() {
            exit
        } else {
            exit.worst(self.left.exit())
        };
        let goes_on =
            self.mode != Mode::Deciding && !self.job.ending() && exit != Exit::Unreachable;
        let (cause, servers_ended) = (self.job.cause().cloned(), self.servers_ended);
        Ended {
            exit,
            cause,
            failure,
            report: self.left,
            age,
            goes_on,
            servers_ended,
            stacks,
            raised,
            reaped,
            signalled,
        }
    }

    /// Compares the stacks that Python wrote when a time limit ended the job.
    fn stacks(&self) -> Comparison {
        let stack = |state: &ProcessState| {
            let text = String::from_utf8_lossy(&state.stacks);
            let lines: Vec<&str> = text.lines().collect();
            // a process whose peers were ended first raises an exception because of that, and moves
            // elsewhere
            if let Some((from, at, _)) = traceback::exceptions(&lines).first() {
                return Some(traceback::raised_in(&lines[*from..*at]));
            }
            let all = traceback::fatal_stacks(&lines).into_iter();
            all.map(|(_, frames)| frames)
                .find(|frames| stacks::child(frames).is_none())
        };
        let all = self.processes.iter().zip(&self.states);
        Comparison::of(
            all.filter_map(|(process, state)| Some(((process.role, process.rank), stack(state)?))),
        )
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
