//! The world: hosts, connections and clocks, and a queue of what happens next. All of it runs in
//! one thread; the seed of the schedule decides everything.

use crate::connection::{Connection, LauncherEnd, Shared};
use crate::host::{By, HostState, ProcessEvent, SimHost};
use crate::random::Random;
use crate::schedule::{Fault, Part, Schedule};
use crate::time::{Clock, FOREVER, MS, Micros, SECOND};
use job::{Supervision, Termination, TerminationStep};
use launcher::run::executor::{Executor, ExecutorStep};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;
use record::exit::{ProcessEnd, SignalNumber};
use session::{Session, SessionEvent};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt::Write;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::Request;
use wire::codec::Decoder;
use wire::job::Job;

/// How long a kernel or a scheduler may take for anything.
const MOMENT: Micros = 2 * MS;
/// How long the launcher attempts to send its last requests.
const LAST_REQUESTS: Micros = 3 * SECOND;
/// More than any schedule has for each host; catches loops in which time does not advance.
const MAX_STEPS: u64 = 300_000;
/// How often the watcher looks for processes.
const WATCHER_PACE: Micros = 100 * MS;

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The launcher's dispatcher.
    Launcher,
    /// The launcher's executor of a host.
    Executor(usize),
    /// The agent of a host.
    Agent(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Wake(Actor),
    Fault(usize),
    /// Something happens to a process of an attempt on a host, by its position in `coming`.
    Process(usize, u32, usize),
    /// dgl-reap acts on a host of an attempt: TERM, then KILL.
    Reap(usize, u32, bool),
    /// Hung processes of an attempt resume.
    Resume(u32),
    /// The launcher is stopped for this time.
    Stop(Micros),
}

/// What runs on a host for the job.
enum Agent {
    None,
    /// It waits for the job, at most until the given time.
    Idle(Decoder, Option<Job>, Vec<record::Process>, Instant),
    Supervised(Box<Supervision<SimHost>>),
    /// The supervisor was killed, and the watcher ends what is left.
    Guarded(Termination),
}

/// A host, with the connection of its agent.
pub struct Host {
    pub state: Rc<RefCell<HostState>>,
    agent: Agent,
    pub connection: Shared,
    clock: Clock,
    runs_from: Micros,
    sleeps_until: Micros,
    pub wake_at: Micros,
    executor_wake_at: Micros,
    /// What the launcher's executor had read when it was stopped between that and its turn.
    unhandled: Option<Vec<SessionEvent>>,
    happening: Vec<(u32, ProcessEvent)>,
    /// Whether a fault came to it, or its way to the launcher, that may end the job.
    pub is_harmed: bool,
    /// The time from which on its failures are heard of within a second.
    pub quiet_from: Micros,
    /// When the processes were first told to end by their own agent.
    pub ends_from: Micros,
}

/// Something that may be the first cause of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    Failed {
        host: usize,
        index: u32,
        status: ProcessEnd,
        by: By,
    },
    /// A host or its connection was hit.
    Hit {
        host: usize,
    },
    /// A service ended well before the others.
    EndedEarly {
        host: usize,
        index: u32,
    },
    Signal(i32),
    /// The launcher did not run for so long.
    Paused(Micros),
}

/// In a job with at most this many hosts, all executors turn after the dispatcher has, also those
/// that were not woken, and all processes are peers: more can go wrong then.
const FEW_HOSTS: usize = 64;

pub struct World {
    pub schedule: Schedule,
    pub now: Micros,
    base: Instant,
    queue: BinaryHeap<Reverse<(Micros, u64, Task)>>,
    sequence: u64,
    pub hosts: Vec<Host>,
    /// The id of the first process of each host in records.
    first_ids: Vec<u32>,
    /// A host on which clients were alive when it was last looked for one.
    client_host: usize,
    /// Whether the servers of a job with many hosts have noticed that no client is left.
    are_clients_over: bool,
    pub random: Random,
    pub attempt: u32,
    /// When the attempt began.
    pub begun: Micros,
    /// Since when the processes hang, if they do.
    pub hung_from: Option<Micros>,
    /// When each hang began, and when it ended.
    pub hangs: Vec<(Micros, Micros)>,
    /// For how long the processes have hung in all.
    pub hung_for: Micros,
    launcher_clock: Clock,
    /// Until then the launcher does not run.
    launcher_runs_from: Micros,
    /// The next turn of the dispatcher.
    launcher_wake_at: Micros,
    /// False after its machine was restarted or it was killed.
    pub launcher_lives: bool,
    pub executors: Vec<Option<Executor>>,
    /// Which executors the dispatcher has woken, in jobs with many hosts.
    woken: Option<Epoll>,
    /// Executors of attempts that are over, with the time until which they send what is left.
    closing: Vec<(usize, Executor, Shared, Micros)>,
    pub signals: Vec<i32>,
    pub truths: Vec<(Micros, Truth)>,
    pub faults_end: Micros,
    pub reaped: Option<Micros>,
    pub trace: Trace,
    pub steps: u64,
}

/// What happened, as text, if anybody wants to read it, and as a number that tells two traces
/// apart.
#[derive(Default)]
pub struct Trace {
    pub text: Option<String>,
    pub hash: u64,
}

impl Trace {
    pub fn line(&mut self, now: Micros, line: std::fmt::Arguments<'_>) {
        let mut text = String::new();
        let _ = writeln!(text, "{:>12.6} {line}", now as f64 / SECOND as f64);
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(all) = &mut self.text {
            all.push_str(&text);
        }
    }
}

macro_rules! trace {
    ($world:expr, $($words:tt)*) => {{
        let now = $world.now;
        $world.trace.line(now, format_args!($($words)*));
    }};
}
pub(crate) use trace;

impl World {
    pub fn new(schedule: Schedule, keep_trace: bool) -> World {
        let random = Random::new(schedule.seed ^ 0x5eed);
        let base = Instant::now();
        let counts = schedule.hosts.iter().map(Vec::len);
        let first_ids = counts.scan(0, |next, count| {
            let first = *next;
            *next += u32::try_from(count).unwrap();
            Some(first)
        });
        let mut world = World {
            first_ids: first_ids.collect(),
            client_host: 0,
            are_clients_over: false,
            schedule,
            now: 0,
            base,
            queue: BinaryHeap::new(),
            sequence: 0,
            hosts: Vec::new(),
            random,
            attempt: 0,
            begun: 0,
            hung_from: None,
            hangs: Vec::new(),
            hung_for: 0,
            launcher_clock: Clock::new(base),
            launcher_runs_from: 0,
            launcher_wake_at: FOREVER,
            launcher_lives: true,
            executors: Vec::new(),
            woken: None,
            closing: Vec::new(),
            signals: Vec::new(),
            truths: Vec::new(),
            faults_end: 0,
            reaped: None,
            trace: Trace {
                text: keep_trace.then(String::new),
                hash: 0xcbf2_9ce4_8422_2325,
            },
            steps: 0,
        };
        let faults = world.schedule.faults.clone();
        for (position, (time, _)) in faults.iter().enumerate() {
            world.push(*time, Task::Fault(position));
        }
        world
    }

    /// An attempt begins.
    pub fn begin_try(&mut self, attempt: u32) {
        self.attempt = attempt;
        self.begun = self.now;
        self.truths.clear();
        (self.hung_from, self.hung_for) = (None, 0);
        self.hangs.clear();
        self.are_clients_over = false;
    }

    /// Takes the executors of an attempt, which all have something to send.
    pub fn begin_executors(&mut self, executors: Vec<Executor>) {
        self.woken = (executors.len() > FEW_HOSTS).then(|| {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
            for (host, executor) in (0..).zip(&executors) {
                let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
                let event = EpollEvent::new(flags, host);
                epoll.add(executor.waker(), event).unwrap();
            }
            epoll
        });
        self.executors = executors.into_iter().map(Some).collect();
        self.wake_all_executors();
    }

    fn wake_all_executors(&mut self) {
        for host in 0..self.executors.len() {
            self.wake(Actor::Executor(host), self.now);
        }
        self.wake(Actor::Launcher, self.now);
    }

    /// The dispatcher has turned, and may have sent something.
    pub fn wake_executors(&mut self, may_have_sent: bool) {
        let Some(epoll) = self.woken.take() else {
            if may_have_sent {
                self.wake_all_executors();
            }
            return;
        };
        let mut events = [EpollEvent::empty(); 1024];
        loop {
            let count = epoll.wait(&mut events, EpollTimeout::ZERO).unwrap();
            for event in &events[..count] {
                self.wake(
                    Actor::Executor(usize::try_from(event.data()).unwrap()),
                    self.now,
                );
            }
            if count < events.len() {
                break;
            }
        }
        self.woken = Some(epoll);
    }

    /// Until when the launcher did not run.
    pub fn launcher_runs_from(&self) -> Micros {
        self.launcher_runs_from
    }

    /// How long the launcher did not run, by all faults together.
    pub fn paused_for(&self) -> Micros {
        let pause = |(_, truth): &(Micros, Truth)| match truth {
            Truth::Paused(time) => *time,
            _ => 0,
        };
        self.truths.iter().map(pause).sum()
    }

    /// The id of a process in records.
    pub fn id_of(&self, host: usize, index: u32) -> u32 {
        self.first_ids[host] + index
    }

    /// Whether no host sleeps.
    pub fn are_all_reachable(&self) -> bool {
        self.hosts.iter().all(|host| host.sleeps_until <= self.now)
    }

    /// Whether a host and its agent have run since then.
    pub fn has_run_since(&self, host: usize, time: Micros) -> bool {
        self.runs_from(Actor::Agent(host)) <= time
    }

    pub fn serves(&self, host: usize, index: u32) -> bool {
        self.schedule.hosts[host][index as usize].0 != Part::Trainer
    }

    /// The latest time at which an event of that time is known to the launcher.
    pub fn heard(&self, time: Micros) -> Micros {
        let quiet = self.hosts.iter().map(|host| host.quiet_from);
        let quiet = quiet.max().unwrap_or(0).max(self.launcher_runs_from);
        time.max(quiet)
    }

    pub fn have_clients_ended_well(&self) -> bool {
        let ended_well = |host: &Host| {
            let state = host.state.borrow();
            let mut all = state.processes.values().filter(|one| !one.serves);
            let well = |index| state.taken.contains(&(index, ProcessEnd::exited(0)));
            all.all(|one| one.index.is_none_or(well))
        };
        self.hosts.iter().all(ended_well)
    }

    /// Whether any host has ended its part by this time, or was hit, or a process has failed.
    pub fn has_any_host_given_up(&self, time: Micros) -> bool {
        let has_failed = |(_, truth): &(Micros, Truth)| matches!(truth, Truth::Failed { .. });
        let has_given_up = |host: &Host| host.is_harmed || host.ends_from <= time;
        self.truths.iter().any(has_failed) || self.hosts.iter().any(has_given_up)
    }

    /// The launcher's clock.
    pub fn launcher_time(&self) -> Instant {
        self.launcher_clock.read(self.now)
    }

    /// The same, and the one that goes on while its machine sleeps.
    pub fn launcher_clocks(&self) -> (Instant, Duration) {
        let uptime = self.launcher_clock.uptime(self.now);
        (self.launcher_time(), uptime)
    }

    /// Connects to all hosts for an attempt; returns the launcher's sessions.
    pub fn connect(&mut self) -> Vec<Session> {
        let stall = self
            .schedule
            .rules
            .stall
            .map_or(0, |rule| crate::time::micros(rule.limit));
        let patience = Duration::from_micros(self.schedule.patience);
        let mut sessions = Vec::new();
        for position in 0..self.schedule.hosts.len() {
            let habits = self.schedule.hosts[position].iter();
            let habits = habits.map(|(_, habits)| *habits).collect();
            let mut state = HostState::new(habits, stall, self.random.fork());
            state.now = self.now;
            let latency = self.random.magnitude(30 * MS);
            let connection = Connection::new(latency, &mut self.random, self.now);
            let session = Session::new(Box::new(LauncherEnd(connection.clone())));
            sessions.push(session);
            let clock = self.hosts.get(position).map(|host| host.clock);
            let clock = clock.unwrap_or(Clock::new(self.base));
            let until = clock.read(self.now) + patience;
            let host = Host {
                state: Rc::new(RefCell::new(state)),
                agent: Agent::Idle(Decoder::default(), None, Vec::new(), until),
                connection,
                clock,
                runs_from: self.now,
                sleeps_until: self.hosts.get(position).map_or(0, |host| host.sleeps_until),
                wake_at: FOREVER,
                executor_wake_at: FOREVER,
                unhandled: None,
                happening: Vec::new(),
                is_harmed: false,
                quiet_from: 0,
                ends_from: FOREVER,
            };
            match self.hosts.get_mut(position) {
                Some(old) => *old = host,
                None => self.hosts.push(host),
            }
            let gives_up = self.now + self.schedule.patience;
            self.wake(Actor::Agent(position), gives_up);
        }
        sessions
    }

    fn push(&mut self, time: Micros, task: Task) {
        self.sequence += 1;
        self.queue.push(Reverse((time, self.sequence, task)));
    }

    fn wake_slot(&mut self, actor: Actor) -> &mut Micros {
        match actor {
            Actor::Launcher => &mut self.launcher_wake_at,
            Actor::Executor(host) => &mut self.hosts[host].executor_wake_at,
            Actor::Agent(host) => &mut self.hosts[host].wake_at,
        }
    }

    /// Has somebody act at this time, or before.
    pub fn wake(&mut self, actor: Actor, time: Micros) {
        if time == FOREVER {
            return;
        }
        let time = time.max(self.now);
        let slot = self.wake_slot(actor);
        if time < *slot {
            *slot = time;
            self.push(time, Task::Wake(actor));
        }
    }

    /// The same in a moment.
    pub fn wake_soon(&mut self, actor: Actor) {
        let moment = self.random.magnitude(MOMENT);
        self.wake(actor, self.now + moment);
    }

    /// Until when somebody does not run.
    fn runs_from(&self, actor: Actor) -> Micros {
        match actor {
            Actor::Launcher | Actor::Executor(_) => self.launcher_runs_from,
            Actor::Agent(host) => self.hosts[host]
                .runs_from
                .max(self.hosts[host].sleeps_until),
        }
    }

    /// The next actor of the launcher whose turn it is. Everything else happens on the way; `None`
    /// if nothing ever happens again, or not before the given time.
    pub fn next_launcher_turn(&mut self, until: Micros) -> Option<Actor> {
        let lived = self.launcher_lives;
        while let Some(Reverse((time, ..))) = self.queue.peek() {
            if *time > until {
                break;
            }
            let Reverse((time, _, task)) = self.queue.pop()?;
            self.now = time;
            self.steps += 1;
            if self.steps > MAX_STEPS * (self.hosts.len() as u64 + 1) {
                return None;
            }
            match task {
                Task::Wake(actor) => {
                    if *self.wake_slot(actor) != time {
                        continue;
                    }
                    *self.wake_slot(actor) = FOREVER;
                    let from = self.runs_from(actor);
                    if from > time {
                        self.wake(actor, from);
                        continue;
                    }
                    match actor {
                        Actor::Agent(host) => self.run_agent(host),
                        _ if self.launcher_lives => return Some(actor),
                        _ => {}
                    }
                }
                Task::Fault(position) => self.fault(self.schedule.faults[position].1),
                Task::Process(host, attempt, position) if attempt == self.attempt => {
                    let (pid, event) = self.hosts[host].happening[position];
                    self.process(host, pid, event);
                }
                Task::Reap(host, attempt, kills) if attempt == self.attempt => {
                    self.reap_on(host, kills);
                }
                Task::Resume(attempt) if attempt == self.attempt => self.resume(),
                Task::Stop(time) => self.stop_launcher(time),
                Task::Process(..) | Task::Reap(..) | Task::Resume(_) => {}
            }
            if lived && !self.launcher_lives {
                return None;
            }
        }
        None
    }

    // ---- the launcher

    /// Turns the executor of a host until nothing more has arrived for it.
    pub fn turn_executor(&mut self, host: usize) {
        let (now, uptime) = self.launcher_clocks();
        let Some(executor) = &mut self.executors[host] else {
            return;
        };
        self.hosts[host].connection.lock().now = self.now;
        let mut next = ExecutorStep::Exchange(Duration::ZERO);
        let mut is_first = true;
        let mut unhandled = self.hosts[host].unhandled.take();
        loop {
            let events = match next {
                _ if unhandled.is_some() => unhandled.take().unwrap_or_default(),
                ExecutorStep::Exchange(_) => executor.session().step(None, Duration::ZERO),
                _ => Vec::new(),
            };
            if !is_first && events.is_empty() {
                break;
            }
            is_first = false;
            next = executor.turn(events, now, uptime);
            if !matches!(next, ExecutorStep::Exchange(_)) {
                break;
            }
        }
        match next {
            ExecutorStep::Exchange(limit) => {
                let at = self.now + crate::time::micros(limit);
                self.wake(Actor::Executor(host), at.max(self.now + 1));
            }
            ExecutorStep::WaitForRoom => self.wake(Actor::Executor(host), self.now + MS),
            ExecutorStep::End => drop(self.executors[host].take()),
            ExecutorStep::SendTheRest => self.close_executor(host),
        }
        self.look_at_connection(host);
        self.wake_soon(Actor::Launcher);
    }

    fn close_executor(&mut self, host: usize) {
        if let Some(executor) = self.executors[host].take() {
            let connection = self.hosts[host].connection.clone();
            self.closing
                .push((host, executor, connection, self.now + LAST_REQUESTS));
            self.wake(Actor::Agent(host), self.now);
        }
    }

    /// Sends what the executors of an ended attempt have left.
    fn flush_closing(&mut self) {
        let now = self.now;
        self.closing.retain_mut(|(_, executor, connection, until)| {
            connection.lock().now = now;
            executor.session().flush();
            executor.session().pending() > 0 && now < *until
        });
    }

    /// The attempt is over: nobody is interested in its hosts any longer.
    pub fn close_all_executors(&mut self) {
        for host in 0..self.executors.len() {
            self.turn_executor(host);
            self.close_executor(host);
        }
        self.flush_closing();
        for host in 0..self.hosts.len() {
            self.look_at_connection(host);
        }
    }

    fn kill_launcher(&mut self) {
        trace!(self, "the launcher is killed");
        self.launcher_lives = false;
        for host in 0..self.hosts.len() {
            self.hosts[host].connection.lock().now = self.now;
        }
        self.executors.clear();
        self.closing.clear();
        for host in 0..self.hosts.len() {
            self.look_at_connection(host);
        }
    }

    /// Wakes the ends of a connection for what is under way.
    fn look_at_connection(&mut self, host: usize) {
        let (to_agent, to_launcher) = {
            let connection = self.hosts[host].connection.lock();
            (
                connection.to_agent.readable_at(),
                connection.to_launcher.readable_at(),
            )
        };
        let reads = match &self.hosts[host].agent {
            Agent::Idle(..) => true,
            Agent::Supervised(supervision) => !supervision.outbox.is_closed(),
            Agent::None | Agent::Guarded(_) => false,
        };
        if reads {
            self.wake(Actor::Agent(host), to_agent);
        }
        if host < self.executors.len() && self.executors[host].is_some() {
            self.wake(Actor::Executor(host), to_launcher);
        }
    }

    // ---- agents

    fn run_agent(&mut self, position: usize) {
        self.flush_closing();
        let is_later = self.schedule.is_later;
        let ready = [(); 3].map(|()| !is_later || self.random.percent(80));
        let host = &mut self.hosts[position];
        let now = host.clock.read(self.now);
        host.connection.lock().now = self.now;
        host.state.borrow_mut().now = self.now;
        let was_ending = matches!(&host.agent, Agent::Supervised(one) if one.is_ending());
        match &mut host.agent {
            Agent::None => return,
            Agent::Idle(..) => self.idle_agent(position, now),
            Agent::Supervised(supervision) => {
                if !run_supervision(supervision, &host.connection, ready, now) {
                    trace!(self, "host {position}: the agent ends");
                    self.end_agent(position);
                } else {
                    let due = supervision.due();
                    let at = host.clock.when(due, self.now).max(self.now + 1);
                    if supervision.is_ending() && !was_ending {
                        host.ends_from = host.ends_from.min(self.now);
                        trace!(self, "host {position}: the agent ends its processes");
                    }
                    let has_output = !self.hosts[position].state.borrow().readable().is_empty();
                    let at = match (ready.contains(&false), has_output) {
                        (true, _) => self.now + 1,
                        (_, true) => at.min(self.now + 10 * MS),
                        _ => at,
                    };
                    self.wake(Actor::Agent(position), at);
                }
            }
            Agent::Guarded(_) => self.guard(position, now),
        }
        self.take_coming(position);
        self.look_at_connection(position);
    }

    fn idle_agent(&mut self, position: usize, now: Instant) {
        let host = &mut self.hosts[position];
        let Agent::Idle(decoder, job, processes, until) = &mut host.agent else {
            return;
        };
        let mut buffer = [0; 4096];
        loop {
            let read = host.connection.lock().agent_read(&mut buffer);
            match read {
                Ok(count) if count > 0 => decoder.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock && now < *until => break,
                _ => {
                    host.ends_from = self.now;
                    trace!(self, "host {position}: the agent ends, nothing was started");
                    return self.end_agent(position);
                }
            }
        }
        while let Ok(Some(message)) = decoder.next_message::<Request>() {
            match message.head {
                Request::Job(own) => *job = Some(own),
                Request::Process(process) => processes.push(*process),
                Request::Start(_) => {
                    let Some(job) = job.take() else { return };
                    let machine = SimHost(host.state.clone());
                    let processes = std::mem::take(processes);
                    let rest = decoder.rest();
                    let supervision = Supervision::begin(job, &processes, &rest, machine, now);
                    host.agent = Agent::Supervised(Box::new(supervision));
                    let failed = std::mem::take(&mut host.state.borrow_mut().not_started);
                    for index in failed {
                        let failed = Truth::Failed {
                            host: position,
                            index,
                            status: ProcessEnd::exited(126),
                            by: By::Itself,
                        };
                        self.truths.push((self.now, failed));
                    }
                    trace!(self, "host {position}: the processes are started");
                    return self.wake(Actor::Agent(position), self.now + 1);
                }
                _ => {}
            }
        }
        let at = host.clock.when(*until, self.now).max(self.now + 1);
        self.wake(Actor::Agent(position), at);
    }

    /// The watcher ends what is left of the processes.
    fn guard(&mut self, position: usize, now: Instant) {
        let host = &mut self.hosts[position];
        let Agent::Guarded(termination) = &mut host.agent else {
            return;
        };
        let mut state = host.state.borrow_mut();
        let are_left = state.alive().next().is_some();
        match termination.step(are_left, now) {
            TerminationStep::Over => {
                drop(state);
                trace!(self, "host {position}: the watcher ends");
                return self.end_agent(position);
            }
            TerminationStep::Signal(signal) => state.signal_all(signal, By::Agent),
            TerminationStep::Wait => {}
        }
        drop(state);
        self.wake(Actor::Agent(position), self.now + WATCHER_PACE);
    }

    fn end_agent(&mut self, position: usize) {
        let host = &mut self.hosts[position];
        host.agent = Agent::None;
        host.connection.lock().agent_ends();
        self.look_at_connection(position);
    }

    /// The hosts on which an agent still runs.
    pub fn agents(&self) -> impl Iterator<Item = usize> {
        let hosts = self.hosts.iter().enumerate();
        hosts
            .filter(|(_, host)| !matches!(host.agent, Agent::None))
            .map(|(position, _)| position)
    }

    // ---- processes

    /// Puts what will happen to processes into the queue.
    fn take_coming(&mut self, position: usize) {
        let coming = std::mem::take(&mut self.hosts[position].state.borrow_mut().coming);
        for (after, pid, event) in coming {
            let happening = &mut self.hosts[position].happening;
            happening.push((pid, event));
            let task = Task::Process(position, self.attempt, happening.len() - 1);
            self.push(self.now.saturating_add(after), task);
        }
    }

    fn process(&mut self, position: usize, pid: u32, event: ProcessEvent) {
        let host = &mut self.hosts[position];
        if host.sleeps_until > self.now {
            // it sleeps with its host
            host.state.borrow_mut().now = self.now;
            let after = host.sleeps_until - self.now;
            host.state.borrow_mut().coming.push((after, pid, event));
            return self.take_coming(position);
        }
        let mut state = host.state.borrow_mut();
        state.now = self.now;
        let is_daemon = state
            .processes
            .get(&pid)
            .is_some_and(|one| one.index.is_none());
        let hangs = state.idle_since.is_some();
        if hangs && matches!(event, ProcessEvent::Ends(_, By::Itself | By::Peers)) {
            state.coming.push((SECOND, pid, event));
            drop(state);
            return self.take_coming(position);
        }
        let ended = state.happens(pid, event);
        let index = state.processes.get(&pid).and_then(|one| one.index);
        drop(state);
        self.take_coming(position);
        if let (true, ProcessEvent::Ends(status, by), Some(index)) = (ended, event, index) {
            trace!(
                self,
                "host {position}: process {index} ends: {status:?} by {by:?}"
            );
            let by_agent = by == By::Agent;
            if !status.is_success() && !by_agent {
                let failed = Truth::Failed {
                    host: position,
                    index,
                    status,
                    by,
                };
                self.truths.push((self.now, failed));
            }
            if !status.is_success() {
                self.peers_fail(position);
            } else if self.serves(position, index) {
                let host = position;
                self.truths
                    .push((self.now, Truth::EndedEarly { host, index }));
            }
            self.clients_may_be_over();
        }
        if event == ProcessEvent::Writes || event == ProcessEvent::Listens || is_daemon || ended {
            self.wake_soon(Actor::Agent(position));
        }
    }

    /// The hosts whose processes notice that one on this host is gone. In a job with many hosts,
    /// these are its neighbours in a ring and in a tree.
    fn peers(&self, host: usize) -> Vec<usize> {
        let count = self.hosts.len();
        if count <= FEW_HOSTS {
            return (0..count).collect();
        }
        let ring = [(host + count - 1) % count, host, (host + 1) % count];
        let tree = [host.saturating_sub(1) / 2, 2 * host + 1, 2 * host + 2];
        let tree = tree.into_iter().filter(|peer| *peer < count);
        ring.into_iter().chain(tree).collect()
    }

    /// The others notice that somebody is gone.
    fn peers_fail(&mut self, host: usize) {
        let percent = self.schedule.peers_fail;
        for position in self.peers(host) {
            let mut state = self.hosts[position].state.borrow_mut();
            let pids: Vec<u32> = state.alive().map(|(pid, _)| *pid).collect();
            for pid in pids {
                if self.random.percent(percent) {
                    let after = self.random.magnitude(4 * SECOND);
                    let end = ProcessEvent::Ends(ProcessEnd::exited(1), By::Peers);
                    state.coming.push((after, pid, end));
                }
            }
            drop(state);
            self.take_coming(position);
        }
    }

    /// Servers end well after the last client, some by themselves.
    fn clients_may_be_over(&mut self) {
        if self.are_clients_over {
            return;
        }
        let is_client_alive = |host: &Host| {
            let state = host.state.borrow();
            state.alive().any(|(_, one)| !one.serves)
        };
        let (before, after) = self.hosts.split_at(self.client_host);
        let mut hosts = after.iter().chain(before);
        if let Some(passed) = hosts.position(is_client_alive) {
            self.client_host = (self.client_host + passed) % self.hosts.len();
            return;
        }
        self.are_clients_over = self.hosts.len() > FEW_HOSTS;
        for position in 0..self.hosts.len() {
            let mut state = self.hosts[position].state.borrow_mut();
            let pids: Vec<u32> = state.alive().map(|(pid, _)| *pid).collect();
            for pid in pids {
                if self.random.percent(70) {
                    let after = self.random.magnitude(4 * SECOND);
                    let end = ProcessEvent::Ends(ProcessEnd::exited(0), By::Itself);
                    state.coming.push((after, pid, end));
                }
            }
            drop(state);
            self.take_coming(position);
        }
    }

    // ---- faults

    /// A host was hit by something that may end the job, or delays what it says until `until`.
    fn hit(&mut self, host: usize, until: Micros, harms: bool) {
        let now = self.now;
        let one = &mut self.hosts[host];
        one.quiet_from = one.quiet_from.max(until);
        one.is_harmed |= harms;
        if harms {
            self.truths.push((now, Truth::Hit { host }));
        }
    }

    fn fault(&mut self, fault: Fault) {
        trace!(self, "fault: {fault:?}");
        self.faults_end = self.faults_end.max(self.now);
        let harms = !self.schedule.is_mild;
        match fault {
            Fault::Exit { host, index, code } => self.fail(host, index, ProcessEnd::exited(code)),
            Fault::Kill { host, index } => {
                self.fail(host, index, ProcessEnd::killed(SignalNumber::KILL));
            }
            Fault::Stall {
                host,
                to_agent,
                time,
            } => {
                let until = self.now + time;
                let mut connection = self.hosts[host].connection.lock();
                let direction = if to_agent {
                    &mut connection.to_agent
                } else {
                    &mut connection.to_launcher
                };
                direction.stalled_until = direction.stalled_until.max(until);
                drop(connection);
                self.faults_end = self.faults_end.max(until);
                self.hit(host, until, harms);
                self.look_at_connection(host);
            }
            Fault::Slow { host, latency } => {
                let mut connection = self.hosts[host].connection.lock();
                connection.to_agent.latency += latency;
                connection.to_launcher.latency += latency;
                drop(connection);
                self.hit(host, FOREVER, harms);
            }
            Fault::Cut {
                host,
                launcher_sees,
                agent_sees,
            } => {
                let mut connection = self.hosts[host].connection.lock();
                connection.now = self.now;
                connection.cut(launcher_sees, agent_sees);
                drop(connection);
                self.hit(host, FOREVER, true);
                self.look_at_connection(host);
            }
            Fault::StopAgent { host, time } => {
                let until = self.now + time;
                self.hosts[host].runs_from = self.hosts[host].runs_from.max(until);
                self.faults_end = self.faults_end.max(until);
                self.hit(host, until, harms);
            }
            Fault::Sleep { host, time } => self.sleep(host, time, harms),
            Fault::Jump { host, time } => {
                self.hosts[host].clock.jumped += time;
                self.hit(host, self.now, harms);
                self.wake_soon(Actor::Agent(host));
            }
            Fault::Reboot { host } => self.reboot(host),
            Fault::KillSupervisor { host } => self.kill_supervisor(host),
            Fault::KillWatcher { host } => {
                if matches!(self.hosts[host].agent, Agent::Supervised(_)) {
                    self.hosts[host].state.borrow_mut().watcher_lives = false;
                    self.hit(host, FOREVER, true);
                }
            }
            Fault::StopLauncher { time } => self.stop_launcher(time),
            Fault::SleepLauncher { time } => {
                let until = self.now + time;
                let from = self.launcher_runs_from.max(self.now);
                self.launcher_clock.slept += until.saturating_sub(from);
                self.stop_launcher(time);
            }
            Fault::KillLauncher => self.kill_launcher(),
            Fault::Signal { number } => {
                self.truths.push((self.now, Truth::Signal(number)));
                self.signals.push(number);
                self.wake_soon(Actor::Launcher);
            }
            Fault::Reap => {
                self.reaped.get_or_insert(self.now);
                for host in 0..self.hosts.len() {
                    let after = self.random.magnitude(SECOND);
                    self.push(self.now + after, Task::Reap(host, self.attempt, false));
                }
                self.faults_end = self.faults_end.max(self.now + SECOND);
            }
            Fault::ReapProcess { host, index } => self.reap_process(host, index),
            Fault::StopWhileSilent {
                host,
                silent,
                stopped,
            } => {
                let (to_agent, time) = (false, silent);
                self.fault(Fault::Stall {
                    host,
                    to_agent,
                    time,
                });
                let before_end = self.random.magnitude(silent);
                self.push(self.now + silent - before_end, Task::Stop(stopped));
            }
            Fault::Hang { time } => self.hang(time),
        }
    }

    /// A process fails by itself.
    fn fail(&mut self, host: usize, index: u32, status: ProcessEnd) {
        let pid = self.hosts[host].state.borrow().pid_of(index);
        if let Some(pid) = pid {
            self.process(host, pid, ProcessEvent::Ends(status, By::Itself));
        }
    }

    fn sleep(&mut self, host: usize, time: Micros, harms: bool) {
        let until = self.now + time;
        let one = &mut self.hosts[host];
        one.clock.slept += until.saturating_sub(one.sleeps_until.max(self.now));
        one.sleeps_until = one.sleeps_until.max(until);
        self.faults_end = self.faults_end.max(until);
        self.hit(host, until, harms);
        if host == 0 && self.schedule.on_first_host {
            self.fault(Fault::SleepLauncher { time });
        }
    }

    fn reboot(&mut self, host: usize) {
        let one = &mut self.hosts[host];
        one.agent = Agent::None;
        one.state.borrow_mut().lose_all();
        one.happening.iter_mut().for_each(|(pid, _)| *pid = 0);
        let sees = self.random.percent(50);
        let mut connection = one.connection.lock();
        connection.now = self.now;
        connection.cut(sees, true);
        drop(connection);
        self.hit(host, FOREVER, true);
        self.look_at_connection(host);
        if host == 0 && self.schedule.on_first_host {
            self.kill_launcher();
        }
    }

    /// Its children come to the watcher, and get TERM from the kernel.
    fn kill_supervisor(&mut self, host: usize) {
        if !matches!(self.hosts[host].agent, Agent::Supervised(_)) {
            return;
        }
        let watcher_lives = self.hosts[host].state.borrow().watcher_lives;
        if !watcher_lives {
            return;
        }
        let one = &mut self.hosts[host];
        let grace = Duration::from_micros(self.schedule.grace);
        let now = one.clock.read(self.now);
        one.agent = Agent::Guarded(Termination::begin(grace, false, now));
        one.state
            .borrow_mut()
            .signal_all(Signal::SIGTERM, By::Agent);
        self.take_coming(host);
        self.hit(host, FOREVER, true);
        self.wake_soon(Actor::Agent(host));
    }

    fn stop_launcher(&mut self, time: Micros) {
        // before their first turn, executors have started nothing
        let have_turned = self.now > self.begun;
        if self.schedule.is_later && have_turned && self.launcher_runs_from <= self.now {
            self.interrupt_executors();
        }
        let until = self.now + time;
        self.launcher_runs_from = self.launcher_runs_from.max(until);
        self.faults_end = self.faults_end.max(until);
        self.truths.push((self.now, Truth::Paused(time)));
        for host in 0..self.hosts.len() {
            let one = &mut self.hosts[host];
            one.quiet_from = one.quiet_from.max(until);
        }
    }

    /// Some executors have just read from their hosts and not handled it.
    fn interrupt_executors(&mut self) {
        for host in 0..self.executors.len() {
            let Some(executor) = &mut self.executors[host] else {
                continue;
            };
            if self.hosts[host].unhandled.is_none() && self.random.percent(30) {
                self.hosts[host].connection.lock().now = self.now;
                let events = executor.session().step(None, Duration::ZERO);
                self.hosts[host].unhandled = Some(events);
                self.wake(Actor::Executor(host), self.now);
            }
        }
    }

    /// dgl-reap has the supervisor signal one process.
    fn reap_process(&mut self, host: usize, index: u32) {
        let one = &mut self.hosts[host];
        let mut state = one.state.borrow_mut();
        let Some(pid) = state.pid_of(index) else {
            return;
        };
        state.now = self.now;
        state.signal(pid, Signal::SIGTERM, By::Picked);
        drop(state);
        if let Agent::Supervised(supervision) = &mut one.agent {
            supervision.signalled_by_dgl_reap(&BTreeSet::from([index]), Signal::SIGTERM);
        }
        self.take_coming(host);
        self.wake_soon(Actor::Agent(host));
    }

    /// dgl-reap ends the job on a host: it asks the supervisor or, if there is none, signals all
    /// processes; and it sends KILL itself.
    fn reap_on(&mut self, host: usize, kills: bool) {
        let grace = self.schedule.grace;
        let one = &mut self.hosts[host];
        if one.sleeps_until > self.now {
            let until = one.sleeps_until;
            return self.push(until, Task::Reap(host, self.attempt, kills));
        }
        trace!(self, "host {host}: dgl-reap acts, KILL {kills}");
        let one = &mut self.hosts[host];
        let mut state = one.state.borrow_mut();
        if state.alive().next().is_none() {
            return;
        }
        state.now = self.now;
        match &mut one.agent {
            Agent::Supervised(supervision) if !kills => {
                state.is_reaped = true;
                drop(state);
                let now = one.clock.read(self.now);
                supervision.end_by_dgl_reap(Duration::from_micros(grace), now);
            }
            _ => {
                let signal = if kills {
                    Signal::SIGKILL
                } else {
                    Signal::SIGTERM
                };
                state.signal_all(signal, By::Reap);
                drop(state);
            }
        }
        self.take_coming(host);
        self.wake_soon(Actor::Agent(host));
        let again = if kills { WATCHER_PACE } else { grace };
        self.push(self.now + again, Task::Reap(host, self.attempt, true));
    }

    /// No process does anything any more, for a while.
    fn hang(&mut self, time: Micros) {
        for host in 0..self.hosts.len() {
            let mut state = self.hosts[host].state.borrow_mut();
            state.idle_since.get_or_insert(self.now);
        }
        self.hung_from.get_or_insert(self.now);
        if time < FOREVER {
            self.hung_for += time;
            let at = self.now + time;
            self.push(at, Task::Resume(self.attempt));
        }
    }

    fn resume(&mut self) {
        trace!(self, "the processes move again");
        let since = self.hung_from.take();
        self.hangs.extend(since.map(|since| (since, self.now)));
        for host in 0..self.hosts.len() {
            self.hosts[host].state.borrow_mut().idle_since = None;
            self.wake_soon(Actor::Agent(host));
        }
    }
}

/// A turn of a supervisor, as that of host-agent: signals, requests, output, what is due, each as
/// far as poll(2) has found it `ready`. Returns whether it goes on.
fn run_supervision(
    supervision: &mut Supervision<SimHost>,
    connection: &Shared,
    [has_signals, has_requests, has_output]: [bool; 3],
    now: Instant,
) -> bool {
    let is_signalled = supervision.host.0.borrow().has_dead_child();
    if has_signals && is_signalled {
        supervision.collect_ended(now);
    }
    let mut buffer = [0; 16 << 10];
    while has_requests && !supervision.outbox.is_closed() {
        let read = connection.lock().agent_read(&mut buffer);
        match read {
            Ok(count) if count > 0 => supervision.receive(&buffer[..count], now),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            _ => supervision.launcher_is_gone(),
        }
    }
    let mut readable = supervision.host.0.borrow().readable();
    readable.retain(|_| has_output);
    for (index, stream) in readable {
        supervision.report_output(index, stream);
    }
    supervision.tick(now);
    let mut is_writable = true;
    while is_writable && !supervision.outbox.is_empty() {
        supervision.outbox.write_some(|bytes| {
            let written = connection.lock().agent_write(bytes);
            is_writable = written.is_ok();
            written
        });
    }
    !supervision.is_over()
}
