//! A simulated host: its processes, as the supervision of a job sees and ends them.

use crate::random::Random;
use crate::time::{FOREVER, MS, Micros, SECOND};
use job::{Ending, SupervisedHost};
use nix::sys::signal::Signal;
use record::exit::{ProcessEnd, SignalNumber};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use wire::Event;
use wire::supervise::{Activity, Exited, Listening, ProcessStream, StacksReported};

/// How a process behaves, as the schedule has it.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// How long it runs until it ends well by itself.
    pub runs: Micros,
    /// After how long it listens on its port.
    pub listens_after: Micros,
    /// How long it takes to end after TERM; forever if it ignores that.
    pub term: Micros,
    /// The same after KILL: longer if it hangs in the kernel.
    pub kill: Micros,
    /// Whether it has a child that left its session, keeps its pipes open, and ignores TERM.
    pub has_daemon: bool,
    /// How often it writes.
    pub writes_every: Micros,
    /// Whether it cannot be started.
    pub fails_to_start: bool,
}

/// A process.
#[derive(Clone, Debug)]
pub struct SimProcess {
    /// Its number on the host, unless it is a child of another.
    pub index: Option<u32>,
    pub habits: Habits,
    pub is_alive: bool,
    /// How it ended, until that was asked for.
    pub status: Option<ProcessEnd>,
    /// Whether it belongs to others: it ends well when they do.
    pub serves: bool,
    awaits: bool,
    listens: bool,
    written: VecDeque<u8>,
    open: [bool; 2],
}

/// What happens to a process at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    Ends(ProcessEnd, By),
    Writes,
    Listens,
}

/// Who ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// It does so itself, because of a fault or because it is done.
    Itself,
    /// It has lost its peers.
    Peers,
    /// Its supervisor or its watcher.
    Agent,
    /// dgl-reap.
    Reap,
    /// dgl-reap, for this process alone.
    Picked,
}

/// A host.
#[derive(Debug)]
pub struct HostState {
    pub now: Micros,
    pub processes: BTreeMap<u32, SimProcess>,
    /// What will happen to processes, with the time from now on.
    pub coming: Vec<(Micros, u32, ProcessEvent)>,
    /// How processes behave, by their numbers.
    pub habits: Vec<Habits>,
    pub watcher_lives: bool,
    /// Whether dgl-reap has its supervisor end the job.
    pub is_reaped: bool,
    /// Since when no process has shown any activity.
    pub idle_since: Option<Micros>,
    pub stall: Micros,
    reported_idle: bool,
    examined: Micros,
    surveys_until: Micros,
    /// The statuses that a supervisor took.
    pub taken: Vec<(u32, ProcessEnd)>,
    /// Those that could not be started.
    pub not_started: Vec<u32>,
    next_pid: u32,
    random: Random,
}

impl HostState {
    pub fn new(habits: Vec<Habits>, stall: Micros, random: Random) -> HostState {
        HostState {
            now: 0,
            processes: BTreeMap::new(),
            coming: Vec::new(),
            habits,
            watcher_lives: true,
            is_reaped: false,
            idle_since: None,
            stall,
            reported_idle: false,
            examined: 0,
            surveys_until: 0,
            taken: Vec::new(),
            not_started: Vec::new(),
            next_pid: 100,
            random,
        }
    }

    pub fn alive(&self) -> impl Iterator<Item = (&u32, &SimProcess)> {
        self.processes.iter().filter(|(_, one)| one.is_alive)
    }

    /// Whether a child has ended whose status nobody has asked for.
    pub fn has_dead_child(&self) -> bool {
        let mut all = self.processes.values();
        all.any(|one| one.status.is_some() && one.index.is_some())
    }

    /// The streams that have something to be read, or their end.
    pub fn readable(&self) -> Vec<(u32, ProcessStream)> {
        let mut readable = Vec::new();
        for (pid, one) in &self.processes {
            let Some(index) = one.index else { continue };
            let is_held = self.is_held(*pid);
            for stream in [ProcessStream::Stdout, ProcessStream::Stderr] {
                let has_bytes = stream == ProcessStream::Stdout && !one.written.is_empty();
                if one.open[stream as usize] && (has_bytes || !is_held) {
                    readable.push((index, stream));
                }
            }
        }
        readable
    }

    /// Whether anybody may still write to the pipes of a process.
    fn is_held(&self, pid: u32) -> bool {
        let is_child = |(other, one): (&u32, &SimProcess)| {
            one.is_alive && (*other == pid || one.index.is_none() && *other == pid + 1)
        };
        self.processes.iter().any(is_child)
    }

    fn find(&mut self, index: u32) -> Option<(u32, &mut SimProcess)> {
        let mut all = self.processes.iter_mut();
        all.find(|(_, one)| one.index == Some(index))
            .map(|(pid, one)| (*pid, one))
    }

    pub fn pid_of(&self, index: u32) -> Option<u32> {
        let mut all = self.processes.iter();
        all.find_map(|(pid, one)| (one.index == Some(index)).then_some(*pid))
    }

    /// Sends a signal to all processes.
    pub fn signal_all(&mut self, signal: Signal, by: By) {
        let alive: Vec<u32> = self.alive().map(|(pid, _)| *pid).collect();
        for pid in alive {
            self.signal(pid, signal, by);
        }
    }

    pub fn signal(&mut self, pid: u32, signal: Signal, by: By) {
        let Some(one) = self.processes.get(&pid) else {
            return;
        };
        let is_child = one.index.is_none();
        let (after, status) = match signal {
            Signal::SIGKILL => (one.habits.kill, ProcessEnd::killed(SignalNumber::KILL)),
            Signal::SIGTERM if is_child => return,
            // some end by themselves when they are asked to
            Signal::SIGTERM if one.habits.term % 2 == 1 => (one.habits.term, ProcessEnd::exited(1)),
            Signal::SIGTERM => (one.habits.term, ProcessEnd::killed(SignalNumber::TERM)),
            Signal::SIGABRT if one.habits.term < SECOND => {
                (one.habits.term, ProcessEnd::killed(SignalNumber::ABRT))
            }
            _ => return,
        };
        if after < FOREVER {
            self.coming
                .push((after, pid, ProcessEvent::Ends(status, by)));
        }
    }

    /// Something happens to a process; returns its number if it ended now.
    pub fn happens(&mut self, pid: u32, event: ProcessEvent) -> bool {
        let every = self.random.between(1, 3);
        let Some(one) = self.processes.get_mut(&pid).filter(|one| one.is_alive) else {
            return false;
        };
        match event {
            ProcessEvent::Ends(status, _) => {
                one.is_alive = false;
                one.status = Some(status);
                if one.index.is_none() {
                    self.processes.remove(&pid);
                }
                return true;
            }
            ProcessEvent::Writes => {
                if self.idle_since.is_none() {
                    let length = every * 30;
                    one.written.extend((0..length).map(|_| b'x'));
                    one.written.push_back(b'\n');
                }
                let next = one.habits.writes_every * every;
                self.coming.push((next, pid, ProcessEvent::Writes));
            }
            ProcessEvent::Listens => one.listens = true,
        }
        false
    }

    /// All processes are gone with the host.
    pub fn lose_all(&mut self) {
        self.processes.clear();
    }

    fn idle(&self) -> Micros {
        self.idle_since.map_or(0, |since| self.now - since)
    }
}

/// A host, as its supervisor holds it.
#[derive(Clone, Debug)]
pub struct SimHost(pub Rc<RefCell<HostState>>);

impl SupervisedHost for SimHost {
    fn start(&mut self, index: u32, process: &record::Process) -> io::Result<u32> {
        let mut host = self.0.borrow_mut();
        let habits = host.habits[index as usize];
        if habits.fails_to_start {
            host.not_started.push(index);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let pid = host.next_pid;
        host.next_pid += 2;
        let one = SimProcess {
            index: Some(index),
            habits,
            is_alive: true,
            status: None,
            serves: process.service || process.port.is_some(),
            awaits: process.port.is_some(),
            listens: false,
            written: VecDeque::new(),
            open: [true, true],
        };
        if habits.has_daemon {
            let daemon = SimProcess {
                index: None,
                ..one.clone()
            };
            host.processes.insert(pid + 1, daemon);
        }
        host.processes.insert(pid, one);
        let well = ProcessEvent::Ends(ProcessEnd::exited(0), By::Itself);
        if habits.runs < FOREVER {
            host.coming.push((habits.runs, pid, well));
        }
        host.coming
            .push((habits.writes_every, pid, ProcessEvent::Writes));
        if process.port.is_some() && habits.listens_after < FOREVER {
            host.coming
                .push((habits.listens_after, pid, ProcessEvent::Listens));
        }
        Ok(pid)
    }

    fn read(&mut self, index: u32, stream: ProcessStream) -> Option<Vec<u8>> {
        let mut host = self.0.borrow_mut();
        let pid = host.pid_of(index)?;
        let is_held = host.is_held(pid);
        let one = host.processes.get_mut(&pid)?;
        if !one.open[stream as usize] {
            return None;
        }
        if stream == ProcessStream::Stdout && !one.written.is_empty() {
            return Some(one.written.drain(..).collect());
        }
        one.open[stream as usize] = is_held;
        (!is_held).then(Vec::new)
    }

    fn next_ended(&mut self) -> Option<u32> {
        let host = self.0.borrow();
        let mut all = host.processes.values();
        all.find_map(|one| one.index.filter(|_| one.status.is_some()))
    }

    fn take_status(&mut self, index: u32) -> io::Result<Exited> {
        let mut host = self.0.borrow_mut();
        let (_, one) = host.find(index).ok_or(io::ErrorKind::NotFound)?;
        let status = one.status.take().ok_or(io::ErrorKind::NotFound)?;
        host.taken.push((index, status));
        Ok(Exited::new(index, status))
    }

    fn count(&mut self) -> usize {
        self.0.borrow().alive().count()
    }

    fn signal(&mut self, signal: Signal) {
        let mut host = self.0.borrow_mut();
        let by = if host.is_reaped { By::Reap } else { By::Agent };
        host.signal_all(signal, by);
    }

    fn is_unguarded(&self) -> bool {
        !self.0.borrow().watcher_lives
    }

    fn report_stacks(&mut self, _: bool) -> Vec<Event> {
        vec![Event::StacksReported(StacksReported {
            idle_ms: self.0.borrow().idle() / MS,
            computing: None,
            stopped: Vec::new(),
        })]
    }

    fn examine(&mut self, has_room: bool) -> Vec<Event> {
        let mut host = self.0.borrow_mut();
        let host = &mut *host;
        let mut events = Vec::new();
        let idle_ms = host.idle() / MS;
        for one in host.processes.values_mut() {
            if let Some(index) = one.index.filter(|_| one.awaits && one.listens) {
                one.awaits = false;
                events.push(Event::Listening(Listening { index }));
            }
        }
        let pace = (host.stall / 10).clamp(SECOND, 10 * SECOND);
        if host.stall > 0 && has_room && host.now >= host.examined + pace {
            host.examined = host.now;
            if host.idle() >= host.stall {
                host.reported_idle = true;
                events.push(Event::Activity(Activity {
                    idle_ms,
                    ..Activity::default()
                }));
            }
        }
        events
    }

    fn is_hurried(&self) -> bool {
        let host = self.0.borrow();
        host.processes
            .values()
            .any(|one| one.awaits && one.is_alive)
    }

    fn urgent(&mut self) -> Option<Event> {
        let mut host = self.0.borrow_mut();
        let moves = host.reported_idle && host.idle() < host.stall;
        host.reported_idle &= !moves;
        moves.then(|| Event::Activity(Activity::default()))
    }

    fn survey(&mut self) {
        let mut host = self.0.borrow_mut();
        let takes = host.random.magnitude(4 * SECOND);
        host.surveys_until = host.now + takes;
    }

    fn is_surveying(&self) -> bool {
        let host = self.0.borrow();
        host.now < host.surveys_until
    }

    fn take_stacks(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn note_ending(&mut self, _ending: &Ending) {}

    fn begin_end(&mut self) {}

    fn last_reports(&mut self) -> Option<Event> {
        None
    }

    fn remove_files(&mut self) -> (u32, bool) {
        (0, false)
    }
}

/// The heartbeat of a job, in simulated time.
pub fn heartbeat(patience: Micros) -> Micros {
    crate::time::micros(job::heartbeat(Duration::from_micros(patience)))
}
