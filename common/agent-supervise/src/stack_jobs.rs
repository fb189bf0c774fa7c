//! Reads the stacks of the job's processes for the launcher, in threads, because a Python takes
//! about 25 ms.

use super::members::{self, Running};
use agent_stacks::position::{self, Position};
use agent_stacks::{Known, read_each};
use host::processes::{self, ProcessHandle};
use host::procfs;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
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

#[derive(Debug)]
pub struct TakenStacks {
    pub subject: StackSubject,
    pub stacks: Vec<ProcessStacks>,
    pub positions: Vec<(ProcessHandle, Position)>,
}

/// The readings: one at a time, while others wait.
#[derive(Debug, Default)]
pub struct StackJobs {
    current: Option<StackJob>,
    waiting: VecDeque<StackSubject>,
    /// Cloned by each thread that reads. While one hangs, nothing else is read, because that would
    /// hang, too.
    readers: Arc<()>,
}

#[derive(Debug)]
struct StackJob {
    subject: StackSubject,
    begun: Instant,
    results: Results,
}

#[derive(Debug)]
enum Results {
    /// Nothing is read beside a reading that hangs: the empty answer comes at once.
    Refused,
    Stacks(Receiver<ProcessStacks>),
    Positions(Receiver<(ProcessHandle, Position)>),
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
        let results = match subject.clone() {
            _ if self.has_readers() => Results::Refused,
            StackSubject::Positions(processes) => {
                let read = |process| Some((process, position::read(process)?));
                Results::Positions(read_each(|| processes, &self.readers, read))
            }
            subject => {
                let (name, token) = (job.name.clone(), job.token.clone());
                let running = running.to_vec();
                let find = move || known_processes(&name, &token, &running, &subject);
                let read = |known| Some(agent_stacks::read_known(&known));
                Results::Stacks(read_each(find, &self.readers, read))
            }
        };
        self.current = Some(StackJob {
            subject,
            begun: Instant::now(),
            results,
        });
    }

    fn has_readers(&self) -> bool {
        // this struct holds one reference itself
        Arc::strong_count(&self.readers) > 1
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
        let is_reading = self.has_readers();
        let is_over = |job: &mut StackJob| {
            let limit = match job.subject {
                StackSubject::AtEnd => job::SURVEY_LIMIT,
                _ => LIMIT,
            };
            let is_refused = matches!(job.results, Results::Refused);
            !is_reading || is_refused || job.begun.elapsed() >= limit
        };
        let job = self.current.take_if(is_over)?;
        let (mut stacks, mut positions) = (vec![], vec![]);
        match job.results {
            Results::Refused => {}
            Results::Stacks(read) => stacks = read.try_iter().collect(),
            Results::Positions(read) => positions = read.try_iter().collect(),
        }
        stacks.sort_by_key(|stack| stack.record.pid);
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

/// The processes to read, each with its role in the job.
fn known_processes(
    job: &str,
    token: &str,
    running: &[Running],
    subject: &StackSubject,
) -> Vec<Known> {
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
            job: job.to_owned(),
            process,
            role: root.map(|root| root.role),
            rank: root.map(|root| root.rank),
        })
    };
    let mut members: Vec<ProcessHandle> = members::of_job(token).into_iter().collect();
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
    use std::sync::mpsc;
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
        let read = |wait: Option<Receiver<()>>| {
            let _ = wait.map(|wait| wait.recv());
            Some(ProcessStacks::default())
        };
        let stacks = read_each(|| vec![Some(wait), None], &jobs.readers, read);
        let second = stacks.recv().unwrap();
        let (sender, read_before) = mpsc::channel();
        sender.send(second).unwrap();
        jobs.current = Some(StackJob {
            subject: StackSubject::All,
            begun: Instant::now().checked_sub(LIMIT).unwrap(),
            results: Results::Stacks(read_before),
        });
        let taken = jobs.take().unwrap();
        assert_eq!((taken.subject, taken.stacks.len()), (StackSubject::All, 1));

        let job = crate::tested_job("try7");
        let own = ProcessHandle::of(std::process::id().cast_signed()).unwrap();
        let positions = StackSubject::Positions(vec![own]);
        jobs.ask(positions.clone());
        jobs.begin(&job, &[]);
        let refused = jobs.take().unwrap();
        assert_eq!(
            (refused.subject, refused.positions.len()),
            (positions.clone(), 0)
        );
        drop(go_on);
        assert!(stacks.recv().is_ok());
        while jobs.has_readers() {
            thread::sleep(Duration::from_millis(5));
        }
        jobs.ask(positions.clone());
        jobs.begin(&job, &[]);
        let taken = std::iter::repeat_with(|| jobs.take()).find_map(|taken| taken);
        assert_eq!(taken.unwrap().subject, positions);
    }
}
