//! Reads the stacks of the job's processes for the launcher, in a thread, because a Python takes
//! about 25 ms.

use super::members::{self, Running};
use agent_stacks::position::{self, Position};
use agent_stacks::{Known, reader};
use host::processes::{self, ProcessHandle};
use host::{procfs, side_thread};
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::job::Job;
use wire::stacks::ProcessStacks;

/// Requests for one process that may wait; further ones are dropped.
const MAX_WAITING: usize = 16;
/// How long reading all processes of a host may take; even a busy host needs less.
const LIMIT: Duration = Duration::from_secs(60);
/// How many processes are read before the end of a job, at 25 ms each.
const MAX_AT_END: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackSubject {
    All,
    /// All processes, before they are ended because the job has failed.
    AtEnd,
    One(u32),
    /// The positions of these processes, without their stacks.
    Positions(Vec<ProcessHandle>),
}

impl StackSubject {
    fn limit(&self) -> Duration {
        match self {
            StackSubject::AtEnd => job::SURVEY_LIMIT,
            _ => LIMIT,
        }
    }
}

#[derive(Debug)]
pub struct TakenStacks {
    pub subject: StackSubject,
    pub stacks: Vec<ProcessStacks>,
    pub positions: Vec<(ProcessHandle, Position)>,
}

#[derive(Debug)]
enum ReadByThread {
    Stack(Box<ProcessStacks>),
    Position(ProcessHandle, Position),
}

/// The readings: one at a time, while others wait.
#[derive(Debug, Default)]
pub struct StackJobs {
    current: Option<StackJob>,
    waiting: VecDeque<StackSubject>,
    /// A thread that took too long. While it hangs, nothing is read, because another one would
    /// hang, too.
    stuck: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct StackJob {
    subject: StackSubject,
    begun: Instant,
    /// `None` if no thread could be created.
    thread: Option<JoinHandle<()>>,
    found: Receiver<ReadByThread>,
}

impl StackJobs {
    /// Returns `false` if too many readings wait. A request for all processes is never refused,
    /// because the launcher waits for its answer.
    pub fn ask(&mut self, subject: StackSubject) -> bool {
        if self.waiting.contains(&subject) {
            return true;
        }
        if let StackSubject::All | StackSubject::AtEnd = subject {
            self.waiting.retain(|waiting| *waiting != StackSubject::All);
            self.waiting.push_front(subject);
            return true;
        }
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            self.waiting.push_back(subject);
        }
        has_room
    }

    /// Does nothing if a reading is running.
    pub fn begin(&mut self, job: &Job, running: &[Running]) {
        if self.current.is_some() {
            return;
        }
        let Some(subject) = self.waiting.pop_front() else {
            return;
        };
        self.stuck.take_if(|thread| thread.is_finished());
        let (sender, found) = mpsc::channel();
        let thread = match self.stuck {
            Some(_) => None,
            None => spawn(job, running, subject.clone(), sender),
        };
        self.current = Some(StackJob {
            subject,
            begun: Instant::now(),
            thread,
            found,
        });
    }

    pub fn is_reading(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the reading before the end of the job is unfinished.
    pub fn is_at_end(&self) -> bool {
        let current = self.current.iter().map(|job| &job.subject);
        let mut unfinished = current.chain(&self.waiting);
        unfinished.any(|subject| *subject == StackSubject::AtEnd)
    }

    /// Takes the result, once the reading is complete or takes too long, in which case it may be
    /// incomplete; it is empty if reading has failed.
    pub fn take(&mut self) -> Option<TakenStacks> {
        let reads = |job: &StackJob| {
            let thread = job.thread.as_ref();
            thread.is_some_and(|thread| !thread.is_finished())
        };
        let job = self
            .current
            .take_if(|job| !reads(job) || job.begun.elapsed() >= job.subject.limit())?;
        self.stuck = self.stuck.take().or(job.thread);
        let (mut stacks, mut positions) = (Vec::new(), Vec::new());
        for found in job.found.try_iter() {
            match found {
                ReadByThread::Stack(stack) => stacks.push(*stack),
                ReadByThread::Position(process, position) => positions.push((process, position)),
            }
        }
        agent_stacks::keep_python_parents(&mut stacks);
        if job.subject == StackSubject::All {
            agent_stacks::add_connections(&mut stacks);
        }
        Some(TakenStacks {
            subject: job.subject,
            stacks,
            positions,
        })
    }
}

/// `None` if no thread can be created.
fn spawn(
    job: &Job,
    running: &[Running],
    subject: StackSubject,
    found: Sender<ReadByThread>,
) -> Option<JoinHandle<()>> {
    let (job, running) = (job.clone(), running.to_vec());
    let work = move || {
        if let StackSubject::Positions(processes) = subject {
            for process in processes {
                if let Some(position) = position::read(process) {
                    let _ = found.send(ReadByThread::Position(process, position));
                }
            }
            return;
        }
        for known in known_processes(&job, &running, &subject) {
            let stack = Box::new(agent_stacks::read_known(&known));
            let _ = found.send(ReadByThread::Stack(stack));
        }
    };
    side_thread::spawn(reader::THREAD, work).ok()
}

/// The processes to read, each with its role in the job.
fn known_processes(job: &Job, running: &[Running], subject: &StackSubject) -> Vec<Known> {
    let stats = procfs::stats();
    let root_of = |pid| {
        let mut line = processes::line_of(&stats, pid);
        line.find_map(|pid| running.iter().find(|root| root.pid == pid))
    };
    let known = |process: ProcessHandle| {
        let root = root_of(process.pid);
        let is_selected = match subject {
            StackSubject::One(index) => root.is_some_and(|root| root.index == *index),
            StackSubject::All | StackSubject::AtEnd | StackSubject::Positions(_) => true,
        };
        is_selected.then(|| Known {
            job: job.name.clone(),
            process,
            role: root.map(|root| root.role),
            rank: root.map(|root| root.rank),
        })
    };
    let mut members: Vec<ProcessHandle> = members::of_job(&job.token).into_iter().collect();
    if *subject == StackSubject::AtEnd {
        // the started processes come before their children
        members.sort_by_key(|process| running.iter().all(|root| root.pid != process.pid));
        members.truncate(MAX_AT_END);
    }
    members.into_iter().filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_request_for_all_processes_is_never_refused() {
        let mut jobs = StackJobs::default();
        let accepted = (0..20).map(|index| jobs.ask(StackSubject::One(index)));
        let accepted = accepted.filter(|is_accepted| *is_accepted);
        assert_eq!(accepted.count(), MAX_WAITING);
        assert!(jobs.ask(StackSubject::All) && jobs.ask(StackSubject::All));
        let first: Vec<StackSubject> = jobs.waiting.iter().take(2).cloned().collect();
        assert_eq!(first, [StackSubject::All, StackSubject::One(0)]);
    }

    #[test]
    fn one_that_hangs_is_given_up_and_nothing_is_read_beside_it() {
        let mut jobs = StackJobs::default();
        let (go_on, wait) = mpsc::channel::<()>();
        let (sender, found) = mpsc::channel();
        sender.send(ReadByThread::Stack(Box::default())).unwrap();
        jobs.current = Some(StackJob {
            subject: StackSubject::All,
            begun: Instant::now().checked_sub(LIMIT).unwrap(),
            thread: Some(thread::spawn(move || {
                let _ = wait.recv();
            })),
            found,
        });
        let taken = jobs.take().unwrap();
        assert_eq!((taken.subject, taken.stacks.len()), (StackSubject::All, 1));

        let job = crate::tested_job("try7");
        let ask = |jobs: &mut StackJobs| {
            jobs.ask(StackSubject::All);
            jobs.begin(&job, &[]);
            let reads = jobs.current.as_ref().unwrap().thread.is_some();
            let taken = std::iter::repeat_with(|| jobs.take()).find_map(|taken| taken);
            (reads, taken.unwrap().subject)
        };
        assert_eq!(ask(&mut jobs), (false, StackSubject::All));
        drop(go_on);
        while jobs
            .stuck
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(ask(&mut jobs), (true, StackSubject::All));
    }
}
