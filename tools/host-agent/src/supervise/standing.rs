//! Reads where the job's processes stand. Their supervisor may do so because it is their ancestor
//! (see [`crate::stacks::desk`]). A thread reads, because that takes about 25 ms for each Python,
//! while the supervisor goes on.

use super::members;
use crate::processes::ProcessHandle;
use crate::procfs;
use crate::stacks::{self, Known, desk};
use job::Role;
use nix::sys::signal::SigSet;
use std::collections::{HashMap, VecDeque};
use std::io::{self, PipeReader, PipeWriter};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::stacks::Stack;

/// How many questions about one process may wait; further ones are dropped.
const MAX_WAITING: usize = 16;
/// All of a host are read in less, also where it has much else to do.
const LIMIT: Duration = Duration::from_secs(60);
/// More ancestors than a process has up to its supervisor.
const MAX_ANCESTORS: usize = 64;

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All processes, for the question of this number.
    All(u32),
    /// One process and its children.
    One(u32),
}

/// A process that the supervisor has started.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    pub index: u32,
    pub pid: i32,
    pub role: Role,
    pub rank: u32,
}

/// Reads for one subject at a time; others wait.
#[derive(Debug, Default)]
pub struct Standing {
    busy: Option<Busy>,
    waiting: VecDeque<Subject>,
    /// One that took too long. While it hangs nothing is read: another one would hang too.
    stuck: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Busy {
    subject: Subject,
    begun: Instant,
    /// Closed when the thread has ended.
    end: PipeReader,
    thread: Option<JoinHandle<()>>,
    read: Arc<Mutex<Vec<Stack>>>,
}

impl Standing {
    /// Asks for a reading as soon as possible; whether there will be one. Too many others may wait.
    /// The question about all processes always has its turn, because whoever asks it waits for an
    /// answer; it takes the place of an earlier one, whose number counts no longer.
    pub fn ask(&mut self, subject: Subject) -> bool {
        if self.waiting.contains(&subject) {
            return true;
        }
        if let Subject::All(_) = subject {
            self.waiting.retain(|one| matches!(one, Subject::One(_)));
            self.waiting.push_front(subject);
            return true;
        }
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            self.waiting.push_back(subject);
        }
        has_room
    }

    /// Begins with the next subject, unless there is none or one is being read.
    pub fn begin(&mut self, job: &str, token: &str, roots: &[Root]) {
        if self.busy.is_some() || self.waiting.is_empty() {
            return;
        }
        // without a descriptor to spare it waits until the next look
        let Ok((end, held)) = io::pipe() else {
            return;
        };
        let Some(subject) = self.waiting.pop_front() else {
            return;
        };
        let read = Arc::default();
        self.stuck = self.stuck.take().filter(|thread| !thread.is_finished());
        let thread = match self.stuck {
            Some(_) => None,
            None => spawn(job, token, roots, subject, (held, Arc::clone(&read))),
        };
        self.busy = Some(Busy {
            subject,
            begun: Instant::now(),
            end,
            thread,
            read,
        });
    }

    /// The descriptor that tells that a reading has ended.
    pub fn wait_for(&self) -> Option<BorrowedFd<'_>> {
        self.busy.as_ref().map(|busy| busy.end.as_fd())
    }

    /// Whether a reading takes so long that what there is of it must do.
    pub fn is_overdue(&self) -> bool {
        let busy = self.busy.as_ref();
        busy.is_some_and(|busy| busy.begun.elapsed() >= LIMIT)
    }

    /// What was read; the reading has ended, or is overdue. Nothing where it has failed.
    pub fn take(&mut self) -> Option<(Subject, Vec<Stack>)> {
        let is_overdue = self.is_overdue();
        let busy = self.busy.take()?;
        match busy.thread {
            Some(thread) if is_overdue => self.stuck = Some(thread),
            // it is at its end
            Some(thread) => drop(thread.join()),
            None => {}
        }
        let mut stacks = mem::take(&mut *busy.read.lock().unwrap_or_else(PoisonError::into_inner));
        stacks::name_all_parents(&mut stacks);
        Some((busy.subject, stacks))
    }
}

/// Reads in a thread; `None` where there can be no more. What it holds of the pipe goes with it.
fn spawn(
    job: &str,
    token: &str,
    roots: &[Root],
    subject: Subject,
    (held, read): (PipeWriter, Arc<Mutex<Vec<Stack>>>),
) -> Option<JoinHandle<()>> {
    let (job, token, roots) = (job.to_owned(), token.to_owned(), roots.to_vec());
    let work = move || {
        // signals are for the thread that deals with them
        let _ = SigSet::all().thread_block();
        let _held = held;
        let tell = |stack| {
            let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
            read.push(stack);
        };
        stacks::read_all(&job, &known_processes(&token, &roots, subject), tell);
    };
    let name = desk::THREAD.to_owned();
    std::thread::Builder::new().name(name).spawn(work).ok()
}

/// The processes to read, each with its place in the job.
fn known_processes(token: &str, roots: &[Root], subject: Subject) -> Vec<Known> {
    let of_pid: HashMap<i32, &Root> = roots.iter().map(|root| (root.pid, root)).collect();
    let parent = |pid: &i32| procfs::stat(*pid).map(|stat| stat.parent);
    let known = |process: ProcessHandle| {
        let mut line = std::iter::successors(Some(process.pid), parent).take(MAX_ANCESTORS);
        let root = line.find_map(|pid| of_pid.get(&pid).copied());
        let is_meant = match subject {
            Subject::All(_) => true,
            Subject::One(index) => root.is_some_and(|root| root.index == index),
        };
        is_meant.then(|| Known {
            process,
            role: root.map(|root| root.role),
            rank: root.map(|root| root.rank),
        })
    };
    members::of_job(token)
        .into_iter()
        .filter_map(known)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_question_about_all_always_has_its_turn() {
        let mut standing = Standing::default();
        let one = (0..20).map(|index| standing.ask(Subject::One(index)));
        assert_eq!(one.filter(|has_turn| *has_turn).count(), MAX_WAITING);
        assert!(standing.ask(Subject::All(1)) && standing.ask(Subject::All(2)));
        let all: Vec<Subject> = standing.waiting.iter().copied().take(2).collect();
        assert_eq!(all, [Subject::All(2), Subject::One(0)]);
    }

    #[test]
    fn one_that_hangs_is_given_up_and_nothing_is_read_beside_it() {
        let mut standing = Standing::default();
        let (go_on, told) = mpsc::channel::<()>();
        let (end, held) = io::pipe().unwrap();
        let hangs = move || {
            let _held = held;
            let _ = told.recv();
        };
        standing.busy = Some(Busy {
            subject: Subject::All(1),
            begun: Instant::now().checked_sub(LIMIT).unwrap(),
            end,
            thread: Some(std::thread::spawn(hangs)),
            read: Arc::new(Mutex::new(vec![Stack::default()])),
        });
        assert!(standing.is_overdue());
        let (subject, read) = standing.take().unwrap();
        assert_eq!((subject, read.len()), (Subject::All(1), 1));

        let ask = |standing: &mut Standing, number| {
            standing.ask(Subject::All(number));
            standing.begin("try7", &"0".repeat(32), &[]);
            let reads = standing.busy.as_ref().unwrap().thread.is_some();
            (reads, standing.take().unwrap().0)
        };
        assert_eq!(ask(&mut standing, 2), (false, Subject::All(2)));
        drop(go_on);
        while standing
            .stuck
            .as_ref()
            .is_some_and(|one| !one.is_finished())
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(ask(&mut standing, 3), (true, Subject::All(3)));
    }
}
