//! The life of a job: from what happens, in the order in which it happens, to what is to be done. It opens nothing and asks no clock.

use common::exit::Exit;
use common::record::{FirstFailure, Process, Role};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Servers end by themselves when their clients have said goodbye; those that do not get this long before TERM.
const SERVERS_LINGER: Duration = Duration::from_secs(5);
/// What a failed process wrote last explains it.
const LAST_LINES: usize = 20;

/// Why a job ended, other than all having gone well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A process failed.
    Process,
    /// A host was lost.
    Host,
    /// The user or the system wanted its end.
    Signal(i32),
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    /// End all processes.
    End,
    /// End them at once.
    Kill,
}

/// A process as the job sees it.
struct Member {
    role: Role,
    running: bool,
    last_lines: VecDeque<String>,
}

/// The job.
pub struct Job {
    members: Vec<Member>,
    ending: bool,
    cause: Option<Cause>,
    /// What failed first; the lines of the process are added when it is asked for.
    failure: Option<FirstFailure>,
    /// The position of the process that failed first.
    failed: Option<usize>,
    /// When servers that stay behind are ended.
    linger: Option<Instant>,
}

impl Job {
    /// All processes are to be started.
    pub fn new(processes: &[Process]) -> Job {
        let member = |process: &Process| Member { role: process.role, running: true, last_lines: VecDeque::new() };
        Job { members: processes.iter().map(member).collect(), ending: false, cause: None, failure: None, failed: None, linger: None }
    }

    /// A process wrote a line.
    pub fn output(&mut self, at: usize, line: &str) {
        let lines = &mut self.members[at].last_lines;
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    /// A process ended: with a status, as a shell tells it (128+n for signal n).
    pub fn exited(&mut self, at: usize, process: &Process, status: u8, now: Instant) -> Option<Do> {
        self.members[at].running = false;
        if self.ending {
            return None;
        }
        // servers that outlive their trainers have nothing to fail at
        if status != 0 && self.linger.is_none() {
            self.cause = Some(Cause::Process);
            self.failed = Some(at);
            let (code, signal) = status_of(status);
            self.failure = Some(FirstFailure {
                host: process.host,
                id: Some(process.id),
                role: Some(process.role),
                rank: Some(process.rank),
                code,
                signal,
                ..FirstFailure::default()
            });
            return self.end();
        }
        let left = |role: fn(Role) -> bool| self.members.iter().any(|member| member.running && role(member.role));
        if !left(|_| true) {
            return self.end();
        }
        let has_clients = self.members.iter().any(|member| member.role != Role::Server);
        if has_clients && !left(|role| role != Role::Server) && self.linger.is_none() {
            self.linger = Some(now + SERVERS_LINGER);
        }
        None
    }

    /// A host is gone.
    pub fn lost(&mut self, host: u32, why: String) -> Option<Do> {
        if self.ending {
            return None;
        }
        self.cause = Some(Cause::Host);
        self.failure = Some(FirstFailure { host, error: Some(why), ..FirstFailure::default() });
        self.end()
    }

    /// A signal came: the first ends the job, the next one at once.
    pub fn signal(&mut self, number: i32) -> Option<Do> {
        if self.ending {
            return Some(Do::Kill);
        }
        self.cause = Some(Cause::Signal(number));
        self.end()
    }

    /// Time went by.
    pub fn tick(&mut self, now: Instant) -> Option<Do> {
        match self.linger {
            Some(until) if now >= until && !self.ending => self.end(),
            _ => None,
        }
    }

    /// Its end has begun.
    pub fn ending(&self) -> bool {
        self.ending
    }

    /// Why it ended, if not because all went well.
    pub fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    /// What failed first, with its last lines.
    pub fn failure(&self) -> Option<FirstFailure> {
        let failure = self.failure.clone()?;
        let last_lines = self.failed.map_or(Vec::new(), |at| self.members[at].last_lines.iter().cloned().collect());
        Some(FirstFailure { last_lines, ..failure })
    }

    /// The exit status that says it.
    pub fn exit(&self) -> Exit {
        match (&self.cause, &self.failure) {
            (None, _) => Exit::Done,
            (Some(Cause::Signal(number)), _) => Exit::Signal(*number),
            (Some(Cause::Host), _) => Exit::Unreachable,
            (Some(Cause::Process), failure) => {
                let failure = failure.as_ref();
                let signal = failure.and_then(|failure| failure.signal.as_deref()).and_then(signal_number);
                Exit::Process(signal.or(failure.and_then(|failure| failure.code)).unwrap_or(1))
            }
        }
    }

    fn end(&mut self) -> Option<Do> {
        self.ending = true;
        Some(Do::End)
    }
}

/// A shell's status as a code or a signal's name. A shell cannot tell an exit with 137 from a death by KILL, and neither can we.
pub fn status_of(status: u8) -> (Option<u8>, Option<String>) {
    match status {
        129..=192 => (None, Some(common::signal::name(i32::from(status) - 128))),
        code => (Some(code), None),
    }
}

fn signal_number(name: &str) -> Option<u8> {
    (1..=64u8).find(|number| common::signal::name(i32::from(*number)) == name).map(|number| 128 + number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes(roles: &[Role]) -> Vec<Process> {
        let text = |(id, role): (usize, &Role)| {
            format!(r#"{{"id":{id},"of":{},"host":{id},"ip":"10.0.0.1","role":"{}","rank":{id},"argv":["t"]}}"#, roles.len(), role.name())
        };
        roles.iter().enumerate().map(|entry| serde_json::from_str(&text(entry)).unwrap()).collect()
    }

    #[test]
    fn the_first_failure_is_the_cause_and_nothing_after_it() {
        let processes = processes(&[Role::Server, Role::Trainer, Role::Trainer]);
        let mut job = Job::new(&processes);
        let now = Instant::now();
        (0..30).for_each(|n| job.output(2, &format!("line {n}")));
        assert_eq!(job.exited(2, &processes[2], 137, now), Some(Do::End));
        assert_eq!(job.exited(1, &processes[1], 3, now), None);
        assert_eq!(job.lost(0, "gone".into()), None);
        job.output(2, "its very last");
        let failure = job.failure().unwrap();
        assert_eq!((failure.host, failure.signal.as_deref(), failure.last_lines.len()), (2, Some("KILL"), 20));
        assert_eq!(failure.last_lines[19], "its very last");
        assert_eq!(job.exit(), Exit::Process(137));
    }

    #[test]
    fn servers_that_stay_behind_are_ended_and_the_job_is_a_success() {
        let processes = processes(&[Role::Server, Role::Server, Role::Trainer]);
        let mut job = Job::new(&processes);
        let now = Instant::now();
        assert_eq!(job.exited(2, &processes[2], 0, now), None);
        assert_eq!(job.exited(0, &processes[0], 1, now), None, "a server has nothing left to fail at");
        assert_eq!(job.tick(now), None);
        assert_eq!(job.tick(now + SERVERS_LINGER), Some(Do::End));
        assert_eq!(job.tick(now + SERVERS_LINGER * 2), None);
        assert_eq!((job.exit(), job.failure()), (Exit::Done, None));
    }

    #[test]
    fn all_ended_well() {
        let processes = processes(&[Role::Worker, Role::Worker]);
        let mut job = Job::new(&processes);
        assert_eq!(job.exited(0, &processes[0], 0, Instant::now()), None);
        assert_eq!(job.exited(1, &processes[1], 0, Instant::now()), Some(Do::End));
        assert_eq!(job.exit(), Exit::Done);
    }

    #[test]
    fn a_second_signal_is_impatient() {
        let mut job = Job::new(&processes(&[Role::Trainer]));
        assert_eq!(job.signal(2), Some(Do::End));
        assert_eq!(job.signal(2), Some(Do::Kill));
        assert_eq!(job.exit().code(), 130);
    }
}
