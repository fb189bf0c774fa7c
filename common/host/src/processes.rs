//! Finds the processes that belong to a job, signals them and ends them.
//!
//! A process of a job carries the job's token in its initial environment. One that was started
//! without it is found by its relation to a known process: as a descendant, or in the same session
//! or process group. Only processes of this user count. Pid and start time identify a process,
//! because the kernel reuses pids.

use crate::procfs::{self, ProcessEnvironment, Stat};
use job::{Termination, TerminationStep};
use nix::sys::signal::Signal;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};
pub use wire::job::JOB;

/// Marks a process of a job.
pub const TOKEN: &str = "DGL_TOOLS_TOKEN";
/// Marks a process that a job has started but that does not belong to it, such as a dgl-reap that
/// the job calls.
pub const OUTSIDE: &str = "DGL_TOOLS_OUTSIDE";
/// The prefix of a supervisor's token.
const WATCH: &str = "watch-";
/// The number of hexadecimal digits of a token.
const TOKEN_DIGITS: usize = 32;
/// The pause between two searches for new processes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The pause between two checks whether the found processes have ended.
const PAUSE: Duration = Duration::from_millis(10);
/// More than a process has.
const MAX_ANCESTORS: usize = 1000;

/// Identifies a process uniquely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessHandle {
    /// The process id, which may be reused after the end of the process.
    pub pid: i32,
    /// In clock ticks.
    pub start_ticks: u64,
}

impl ProcessHandle {
    fn new(pid: i32, stat: &Stat) -> ProcessHandle {
        ProcessHandle {
            pid,
            start_ticks: stat.start_ticks,
        }
    }

    pub fn of(pid: i32) -> Option<ProcessHandle> {
        Some(ProcessHandle::new(pid, &procfs::stat(pid)?))
    }

    /// The facts in /proc, while the process exists.
    fn stat(&self) -> Option<Stat> {
        procfs::stat(self.pid).filter(|stat| stat.start_ticks == self.start_ticks)
    }

    pub fn is_alive(&self) -> bool {
        self.stat().is_some_and(|stat| !stat.has_ended())
    }

    /// Returns whether the process got the signal. No other process can get it: a pidfd that was
    /// opened before the start time was compared refers to this process. Without a pidfd, this
    /// process could end just now, and another one start with its number.
    pub fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else {
            return false;
        };
        let Some(number) = rustix::process::Signal::from_named_raw(signal as i32) else {
            return false;
        };
        let descriptor = pidfd_open(pid, PidfdFlags::empty());
        if !self.is_alive() {
            return false;
        }
        match descriptor {
            Ok(descriptor) => pidfd_send_signal(&descriptor, number).is_ok(),
            // Linux before 5.3 has no pidfd, some containers forbid unknown calls, and descriptors
            // or memory may be used up; the start time was compared just now
            Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                kill_process(pid, number).is_ok()
            }
            Err(_) => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberProcess {
    pub process: ProcessHandle,
    pub token: String,
    /// Its environment identifies the job: the process itself or an ancestor.
    pub carrier: i32,
}

#[derive(Clone, Debug)]
struct ProcessFacts {
    stat: Stat,
    marks: Marks,
}

/// The marks in the environment of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Marks {
    /// Unknown or irrelevant: another user's process, or one outside of jobs.
    None,
    /// A process of this user that may belong to a job by its relation to one of its processes.
    Unmarked,
    /// `named` if it carries the job's name, too.
    Token { token: String, named: bool },
}

pub fn find_by_token(token: &str) -> Vec<ProcessHandle> {
    Finder::default()
        .find(|other| other == token)
        .into_iter()
        .map(|member| member.process)
        .collect()
}

/// Marks supervisors of the job with this token.
pub fn watch_mark(token: &str) -> String {
    format!("{WATCH}{token}")
}

pub fn supervisors_of(tokens: &BTreeSet<String>) -> Vec<ProcessHandle> {
    let is_supervisor = |pid: i32| {
        let mark = procfs::environment(pid)?.text(TOKEN)?;
        Some(procfs::is_own(pid) && tokens.contains(mark.strip_prefix(WATCH)?))
    };
    let handle = |pid| ProcessHandle::of(pid).filter(|_| is_supervisor(pid) == Some(true));
    procfs::pids().into_iter().filter_map(handle).collect()
}

/// A process and its ancestors.
pub fn line_of(stats: &BTreeMap<i32, Stat>, pid: i32) -> impl Iterator<Item = i32> {
    // reused process ids could form a cycle
    std::iter::successors(Some(pid), |pid| Some(stats.get(pid)?.parent)).take(MAX_ANCESTORS)
}

pub fn find_below(pid: i32) -> Vec<ProcessHandle> {
    let stats = procfs::stats();
    let is_below = |(child, stat): &(&i32, &Stat)| {
        let mut ancestors = line_of(&stats, **child).skip(1);
        !stat.has_ended() && ancestors.any(|ancestor| ancestor == pid)
    };
    let below = stats.iter().filter(is_below);
    below
        .map(|(pid, stat)| ProcessHandle::new(*pid, stat))
        .collect()
}

/// A dgl-reap that a process of a job calls must survive to report the job's end.
pub fn is_outside(pid: i32) -> bool {
    procfs::environment(pid).is_some_and(|environment| {
        environment.get(OUTSIDE).is_some() && environment.get(TOKEN).is_none()
    })
}

/// Remembers processes from search to search: one still belongs to its job after the processes by
/// which it was found have ended.
#[derive(Debug, Default)]
pub struct Finder {
    known: HashMap<ProcessHandle, MemberProcess>,
}

impl Finder {
    pub fn remember(&mut self, members: &[MemberProcess]) {
        let known = members
            .iter()
            .map(|member| (member.process, member.clone()));
        self.known.extend(known);
    }

    /// The running processes of wanted jobs, without this one.
    pub fn find(&mut self, is_wanted: impl Fn(&str) -> bool) -> Vec<MemberProcess> {
        let own_pid = std::process::id().cast_signed();
        let mut members = members(&all_processes(), &self.known);
        members.retain(|member| member.process.pid != own_pid && is_wanted(&member.token));
        self.known.clear();
        self.remember(&members);
        members
    }
}

/// All processes; only those of this user with their marks.
fn all_processes() -> BTreeMap<i32, ProcessFacts> {
    let facts = |pid: i32| {
        let stat = procfs::stat(pid)?;
        let may_read = procfs::is_own(pid) && !stat.has_ended();
        let environment = may_read.then(|| procfs::environment(pid));
        // read again after the environment, so that both belong to the same process
        let stat = procfs::stat(pid).filter(|again| again.start_ticks == stat.start_ticks)?;
        let marks = environment
            .flatten()
            .map_or(Marks::None, |environment| marks(&environment));
        Some((pid, ProcessFacts { stat, marks }))
    };
    procfs::pids().into_iter().filter_map(facts).collect()
}

fn marks(environment: &ProcessEnvironment) -> Marks {
    match (environment.text(TOKEN), environment.get(OUTSIDE)) {
        (Some(token), _) if is_token(&token) => Marks::Token {
            token,
            named: environment.get(JOB).is_some(),
        },
        // a supervisor or watcher has another mark in place of a token
        (Some(_), _) | (None, Some(_)) => Marks::None,
        (None, None) => Marks::Unmarked,
    }
}

pub fn is_token(text: &str) -> bool {
    text.len() == TOKEN_DIGITS
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn members(
    processes: &BTreeMap<i32, ProcessFacts>,
    known: &HashMap<ProcessHandle, MemberProcess>,
) -> Vec<MemberProcess> {
    let mut members = BTreeMap::new();
    for (pid, facts) in processes {
        let process = ProcessHandle::new(*pid, &facts.stat);
        let member = match &facts.marks {
            Marks::Token { token, .. } => Some(MemberProcess {
                process,
                token: token.clone(),
                carrier: *pid,
            }),
            _ => known.get(&process).cloned(),
        };
        members.extend(member.map(|member| (*pid, member)));
    }
    loop {
        let is_open =
            |pid: &i32, marks: &Marks| *marks == Marks::Unmarked && !members.contains_key(pid);
        let open = processes
            .iter()
            .filter(|(pid, facts)| is_open(pid, &facts.marks));
        let adopted = open.filter_map(|(pid, facts)| {
            let member = MemberProcess {
                process: ProcessHandle::new(*pid, &facts.stat),
                ..relative(&facts.stat, processes, &members)?.clone()
            };
            Some((*pid, member))
        });
        let adopted: Vec<(i32, MemberProcess)> = adopted.collect();
        if adopted.is_empty() {
            break;
        }
        members.extend(adopted);
    }
    let is_alive = |pid: &i32| !processes[pid].stat.has_ended();
    let alive = members.into_iter().filter(|(pid, _)| is_alive(pid));
    alive.map(|(_, member)| member).collect()
}

/// The relative through which a process without a mark belongs to a job.
fn relative<'m>(
    stat: &Stat,
    processes: &BTreeMap<i32, ProcessFacts>,
    members: &'m BTreeMap<i32, MemberProcess>,
) -> Option<&'m MemberProcess> {
    let member = |pid: i32| {
        let other = processes.get(&pid)?;
        // descendants of a supervisor or watcher do not belong to the job by that
        let is_watch = matches!(other.marks, Marks::Token { named: false, .. });
        // a process is never older than its ancestors
        let is_older = other.stat.start_ticks <= stat.start_ticks;
        members.get(&pid).filter(|_| is_older && !is_watch)
    };
    let ancestors = [stat.parent, stat.session, stat.group];
    if let Some(found) = ancestors.into_iter().find_map(member) {
        return Some(found);
    }
    // A session whose leader has ended belongs to a job if one of its processes does, because a job
    // starts its own sessions. While the leader lives, it alone decides, because the session of a
    // login has other processes, too.
    let leader = processes.get(&stat.session);
    if leader.is_some_and(|leader| !leader.stat.has_ended()) || stat.session == 0 {
        return None;
    }
    let mut others = processes
        .iter()
        .filter(|(_, other)| other.stat.session == stat.session);
    others.find_map(|(pid, _)| member(*pid))
}

/// Ends the processes that `find` returns, until it returns none; returns those that cannot be
/// ended. `find` is called before each round, and may examine the processes before their end. Those
/// in `asked` get only KILL, because their supervisor has asked them to end.
pub fn end_processes(
    grace: Duration,
    asked: &BTreeSet<ProcessHandle>,
    mut find: impl FnMut() -> Vec<ProcessHandle>,
) -> Vec<ProcessHandle> {
    let mut termination = Termination::begin(grace, false, Instant::now());
    loop {
        let alive = find();
        let now = Instant::now();
        match termination.step(!alive.is_empty(), now) {
            TerminationStep::Over => return alive,
            TerminationStep::Wait => {}
            TerminationStep::Signal(signal) => {
                let is_kill = signal == Signal::SIGKILL;
                let mut meant = alive.clone();
                meant.retain(|process| is_kill || !asked.contains(process));
                meant.iter().for_each(|process| {
                    process.signal(signal);
                });
            }
        }
        while now.elapsed() < POLL_INTERVAL && alive.iter().any(ProcessHandle::is_alive) {
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef";
    const B: &str = "ffffffffffffffffffffffffffffffff";

    fn seen(
        pid: i32,
        parent: i32,
        group: i32,
        session: i32,
        start_ticks: u64,
        marks: Marks,
    ) -> (i32, ProcessFacts) {
        let facts = ProcessFacts {
            stat: Stat {
                state: 'S',
                parent,
                group,
                session,
                cpu_ticks: 0,
                children_ticks: 0,
                start_ticks,
            },
            marks,
        };
        (pid, facts)
    }

    fn of(token: &str) -> Marks {
        Marks::Token {
            token: token.to_owned(),
            named: true,
        }
    }

    fn found(seen: &[(i32, ProcessFacts)]) -> Vec<(i32, i32)> {
        let processes = seen.iter().cloned().collect();
        let members = members(&processes, &HashMap::new()).into_iter();
        let of_job = members.filter(|member| member.token == A);
        of_job
            .map(|member| (member.process.pid, member.carrier))
            .collect()
    }

    #[test]
    fn what_comes_from_a_job_is_the_jobs_and_nothing_else() {
        use Marks::{None, Unmarked};
        let table = [
            ("by its token", seen(11, 1, 11, 11, 50, of(A)), true),
            (
                "of another job, although below",
                seen(11, 10, 10, 10, 50, of(B)),
                false,
            ),
            (
                "below, in its own session",
                seen(11, 10, 11, 11, 50, Unmarked),
                true,
            ),
            ("in its session", seen(11, 1, 11, 10, 50, Unmarked), true),
            ("in its group", seen(11, 1, 10, 9, 50, Unmarked), true),
            (
                "in its session, marked as outside or of another user",
                seen(11, 10, 10, 10, 50, None),
                false,
            ),
            (
                "older than its apparent ancestor",
                seen(11, 10, 10, 10, 39, Unmarked),
                false,
            ),
            ("elsewhere", seen(11, 1, 11, 11, 50, Unmarked), false),
        ];
        for (case, other, is_found) in table {
            let pid = other.0;
            let processes = [
                seen(1, 0, 1, 1, 1, None),
                seen(9, 1, 9, 9, 5, Unmarked),
                seen(10, 9, 10, 10, 40, of(A)),
                other,
            ];
            assert_eq!(
                found(&processes).iter().any(|(found, _)| *found == pid),
                is_found,
                "{case}"
            );
        }
    }

    #[test]
    fn one_that_is_found_by_its_place_finds_others() {
        let processes = [
            seen(10, 1, 10, 10, 40, of(A)),
            seen(12, 11, 12, 12, 42, Marks::Unmarked),
            seen(11, 10, 11, 11, 41, Marks::Unmarked),
        ];
        assert_eq!(found(&processes), [(10, 10), (11, 10), (12, 10)]);
    }

    #[test]
    fn in_a_session_without_its_leader_those_that_came_later_are_the_jobs() {
        let of_job = seen(11, 1, 8, 8, 40, of(A));
        let (older, younger) = (
            seen(12, 1, 8, 8, 39, Marks::Unmarked),
            seen(13, 1, 8, 8, 41, Marks::Unmarked),
        );
        assert_eq!(
            found(&[of_job.clone(), older.clone(), younger.clone()]),
            [(11, 11), (13, 11)]
        );
        // a login that started a job by hand
        let leader = seen(8, 1, 8, 8, 1, Marks::Unmarked);
        assert_eq!(found(&[leader, of_job, older, younger]), [(11, 11)]);
    }

    #[test]
    fn what_was_found_once_stays_found() {
        let processes = [
            seen(12, 1, 12, 12, 42, Marks::Unmarked),
            seen(13, 12, 13, 13, 43, Marks::Unmarked),
        ];
        let processes = processes.into_iter().collect();
        let found = |start_ticks| {
            let pid = 12;
            let member = MemberProcess {
                process: ProcessHandle { pid, start_ticks },
                token: A.to_owned(),
                carrier: 10,
            };
            let members = members(&processes, &HashMap::from([(member.process, member)]));
            members
                .iter()
                .map(|member| member.process.pid)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(42), [12, 13]);
        // the same number, another process
        assert!(found(41).is_empty());
    }

    #[test]
    fn the_watch_of_a_job_carries_the_token_alone_and_nothing_comes_from_it() {
        let watch = Marks::Token {
            token: A.to_owned(),
            named: false,
        };
        assert_eq!(
            found(&[
                seen(10, 1, 10, 10, 40, watch),
                seen(11, 10, 10, 10, 41, Marks::Unmarked)
            ]),
            [(10, 10)]
        );
    }

    #[test]
    fn marks_of_an_environment() {
        let table: [(&str, Marks); 6] = [
            ("", Marks::Unmarked),
            ("DGL_TOOLS_OUTSIDE=1\0", Marks::None),
            (
                "DGL_TOOLS_TOKEN=guard-0123456789abcdef0123456789abcdef\0",
                Marks::None,
            ),
            (
                "DGL_TOOLS_TOKEN=0123456789ABCDEF0123456789abcdef\0",
                Marks::None,
            ),
            (
                "DGL_TOOLS_TOKEN=0123456789abcdef0123456789abcdef\0",
                Marks::Token {
                    token: A.to_owned(),
                    named: false,
                },
            ),
            (
                "DGL_TOOLS_JOB=a\0DGL_TOOLS_TOKEN=0123456789abcdef0123456789abcdef\0\
                     DGL_TOOLS_OUTSIDE=\0",
                of(A),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(
                marks(&ProcessEnvironment::new(text.as_bytes().to_vec())),
                expected,
                "{text:?}"
            );
        }
    }

    /// A child of this test.
    struct Child(std::process::Child);

    impl Child {
        fn sh(script: &str) -> Child {
            Child(
                std::process::Command::new("sh")
                    .args(["-c", script])
                    .stdout(std::process::Stdio::piped())
                    .spawn()
                    .unwrap(),
            )
        }

        fn handle(&self) -> ProcessHandle {
            ProcessHandle::of(self.0.id().cast_signed()).unwrap()
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_signal_is_for_the_process_that_is_meant() {
        use Signal::SIGTERM;
        let mut child = Child::sh("exec sleep 60");
        let process = child.handle();
        let other = ProcessHandle {
            start_ticks: process.start_ticks + 1,
            ..process
        };
        assert!(!other.is_alive() && !other.signal(SIGTERM));
        assert!(process.is_alive() && process.signal(SIGTERM));
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.0.wait().unwrap().signal(), Some(15));
        assert!(!process.is_alive() && !process.signal(SIGTERM));
    }

    #[test]
    fn what_ignores_term_is_killed_after_the_grace() {
        use std::io::Read;
        let mut child = Child::sh("trap '' TERM; sleep 60 & echo up; while :; do wait; done");
        child
            .0
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut [0; 3])
            .unwrap();
        let process = child.handle();
        let below = find_below(process.pid);
        let find = || {
            [&below[..], &[process]]
                .concat()
                .into_iter()
                .filter(ProcessHandle::is_alive)
                .collect()
        };
        let begun = Instant::now();
        assert_eq!(
            end_processes(Duration::from_millis(300), &BTreeSet::new(), find),
            []
        );
        assert!(
            begun.elapsed() >= Duration::from_millis(300),
            "TERM has ended it"
        );
    }
}
