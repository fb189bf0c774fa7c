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
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::JoinHandle;
use wire::stacks::Stack;

/// How many questions may wait; further ones are dropped.
const MAX_WAITING: usize = 16;
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
}

#[derive(Debug)]
struct Busy {
    subject: Subject,
    /// Closed when the thread has ended.
    end: PipeReader,
    thread: JoinHandle<Vec<Stack>>,
}

impl Standing {
    /// Asks for a reading as soon as possible.
    pub fn ask(&mut self, subject: Subject) {
        if !self.waiting.contains(&subject) && self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(subject);
        }
    }

    /// Begins with the next subject, unless there is none or one is being read.
    pub fn begin(&mut self, job: &str, token: &str, roots: &[Root]) {
        if self.busy.is_some() {
            return;
        }
        let Some(subject) = self.waiting.pop_front() else {
            return;
        };
        let (job, token, roots) = (job.to_owned(), token.to_owned(), roots.to_vec());
        let Ok((end, held)) = io::pipe() else {
            return;
        };
        let thread = std::thread::Builder::new()
            .name(desk::THREAD.to_owned())
            .spawn(move || {
                // another thread handles signals
                let _ = SigSet::all().thread_block();
                let _held = held;
                stacks::read_all(&job, &known(&token, &roots, subject))
            });
        self.busy = thread.ok().map(|thread| Busy {
            subject,
            end,
            thread,
        });
    }

    /// The descriptor that tells that a reading has ended.
    pub fn wait_for(&self) -> Option<BorrowedFd<'_>> {
        self.busy.as_ref().map(|busy| busy.end.as_fd())
    }

    /// The result of the reading that has ended; `None` if it failed.
    pub fn take(&mut self) -> Option<(Subject, Vec<Stack>)> {
        let busy = self.busy.take()?;
        Some((busy.subject, busy.thread.join().unwrap_or_default()))
    }
}

/// The processes to read, each with its place in the job.
fn known(token: &str, roots: &[Root], subject: Subject) -> Vec<Known> {
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
