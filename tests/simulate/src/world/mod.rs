//! The world: hosts, connections and clocks, and a queue of what happens next. All of it runs in
//! one thread; the seed of the schedule decides everything.

mod agents;
mod executors;
mod faults;
mod processes;

use crate::connection::{Connection, LauncherEnd, Shared};
use crate::host::{By, HostState, ProcessEvent, SimHost};
use crate::random::Random;
use crate::schedule::{Part, Schedule};
use crate::time::{Clock, FOREVER, MS, Micros, SECOND};
use job::{Supervision, Termination};
use launcher::run::executor::Executor;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use record::exit::ProcessEnd;
use session::{Session, SessionEvent};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};
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
}
