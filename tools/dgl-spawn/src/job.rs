//! The life of a job: from what happens, in the order in which it happens, to what is to be done. It opens nothing and asks no clock.

use common::exit::Exit;
use common::record::{FirstFailure, Process, Role};
use signal_hook::consts::SIGINT;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Servers end by themselves when their clients have said goodbye; those that do not get this long before TERM.
const SERVERS_LINGER: Duration = Duration::from_secs(5);
/// Signals that come within this time are one.
const ONE_SIGNAL: Duration = Duration::from_secs(1);
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
    /// A time limit ran out.
    Time(Limit),
}

/// What was not to take longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The time until all servers listen.
    Start(Duration),
    /// The whole job.
    Job(Duration),
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    /// End all processes.
    End,
    /// The same; but first those that know how print what they are doing (ABRT).
    EndWithStacks,
    /// End them at once.
    Kill,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// This launcher.
    Own,
    /// The job's guards: it is followed until it is up, and until then it can be ended from here.
    Detach,
    /// The job's guards: it is followed to its end, and goes on when nobody follows it any more.
    Attach,
}

/// A process as the job sees it.
struct Member<'a> {
    process: &'a Process,
    running: bool,
    /// It is a server that does not listen yet.
    awaited: bool,
    last_lines: VecDeque<Vec<u8>>,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Servers that listen,
    pub listening: usize,
    /// of how many.
    pub servers: usize,
    /// Other processes that have not ended,
    pub running: usize,
    /// of how many.
    pub others: usize,
}

/// The job.
pub struct Job<'a> {
    rule: Rule,
    members: Vec<Member<'a>>,
    /// What may not take longer, and until when.
    limits: Vec<(Limit, Instant)>,
    ending: bool,
    cause: Option<Cause>,
    /// What failed first; the lines of the process are added when it is asked for.
    failure: Option<FirstFailure>,
    /// The position of the process that failed first.
    failed: Option<usize>,
    /// When servers that stay behind are ended.
    linger: Option<Instant>,
    /// The first signal that came, and when.
    signalled: Option<(i32, Instant)>,
}

impl<'a> Job<'a> {
    /// All processes are to be started now.
    pub fn new(rule: Rule, processes: &'a [Process], limits: &[Limit], now: Instant) -> Job<'a> {
        let member = |process: &'a Process| Member { process, running: true, awaited: process.port.is_some(), last_lines: VecDeque::new() };
        let until = |limit: &Limit| {
            let (Limit::Start(time) | Limit::Job(time)) = limit;
            (*limit, now + *time)
        };
        Job {
            rule,
            members: processes.iter().map(member).collect(),
            limits: limits.iter().map(until).collect(),
            ending: false,
            cause: None,
            failure: None,
            failed: None,
            linger: None,
            signalled: None,
        }
    }

    /// What its guards have decided: it ends because of that, or because all went well.
    pub fn told(&mut self, cause: Option<Cause>, failed: Option<usize>, how: FirstFailure) {
        if self.ending {
            return;
        }
        match failed {
            Some(at) => self.fail(at, how),
            None if cause == Some(Cause::Host) => self.failure = Some(how),
            None => {}
        }
        (self.ending, self.cause) = (true, cause);
    }

    /// All processes were started, and all servers listen.
    pub fn is_up(&self, started: impl Fn(usize) -> bool) -> bool {
        !self.ending && self.members.iter().enumerate().all(|(at, member)| started(at) && !member.awaited)
    }

    /// A process wrote lines, the last of them perhaps without its end yet.
    pub fn output(&mut self, at: usize, text: &[u8]) {
        let lines = &mut self.members[at].last_lines;
        let new: Vec<&[u8]> = text.strip_suffix(b"\n").unwrap_or(text).rsplit(|byte| *byte == b'\n').take(LAST_LINES).collect();
        for line in new.into_iter().rev() {
            if lines.len() == LAST_LINES {
                lines.pop_front();
            }
            lines.push_back(line.to_vec());
        }
    }

    /// A server listens.
    pub fn listening(&mut self, at: usize) {
        self.members[at].awaited = false;
    }

    /// A process ended: with a status, as a shell tells it (128+n for signal n).
    pub fn exited(&mut self, at: usize, status: u8, now: Instant) -> Option<Do> {
        self.members[at].running = false;
        if self.ending || self.rule != Rule::Own {
            return None;
        }
        // servers that outlive their trainers have nothing to fail at
        if status != 0 && self.linger.is_none() {
            let (code, signal) = status_of(status);
            self.fail(at, FirstFailure { code, signal, ..FirstFailure::default() });
            return self.end(Cause::Process);
        }
        let left = |role: fn(Role) -> bool| self.members.iter().any(|member| member.running && role(member.process.role));
        if !left(|_| true) {
            self.ending = true;
            return Some(Do::End);
        }
        let has_clients = self.members.iter().any(|member| member.process.role != Role::Server);
        if has_clients && !left(|role| role != Role::Server) && self.linger.is_none() {
            self.linger = Some(now + SERVERS_LINGER);
        }
        None
    }

    /// A host is gone.
    pub fn lost(&mut self, host: u32, why: String) -> Option<Do> {
        if self.ending || self.rule != Rule::Own {
            return None;
        }
        self.failure = Some(FirstFailure { host, error: Some(why), ..FirstFailure::default() });
        self.end(Cause::Host)
    }

    /// A signal came: the first ends the job, the next one at once. But an engine such as Slurm signals processes, launcher and the shell
    /// that hands it on, in any order: what comes with it, or first when the job is ending already, is no impatience. Ctrl-C is.
    pub fn signal(&mut self, number: i32, now: Instant) -> Option<Do> {
        let first = self.signalled.is_none();
        let (_, since) = *self.signalled.get_or_insert((number, now));
        match self.rule {
            Rule::Own if !self.ending => self.end(Cause::Signal(number)),
            Rule::Detach if first => Some(Do::End),
            Rule::Own | Rule::Detach if number != SIGINT && now < since + ONE_SIGNAL => None,
            Rule::Own | Rule::Detach => Some(Do::Kill),
            Rule::Attach => None,
        }
    }

    /// The signal that nobody wants to follow the job after.
    pub fn left_by(&self) -> Option<i32> {
        self.signalled.map(|(number, _)| number).filter(|_| self.rule == Rule::Attach)
    }

    /// Time went by.
    pub fn tick(&mut self, now: Instant) -> Option<Do> {
        if self.ending || self.rule != Rule::Own {
            return None;
        }
        if self.linger.is_some_and(|until| now >= until) {
            self.ending = true;
            return Some(Do::End);
        }
        let awaited = self.members.iter().position(|member| member.awaited);
        let over = |(limit, until): &&(Limit, Instant)| now >= *until && (matches!(limit, Limit::Job(_)) || awaited.is_some());
        let limit = self.limits.iter().find(over)?.0;
        if let (Limit::Start(time), Some(at)) = (limit, awaited) {
            let error = format!("does not listen after {} s", time.as_secs_f32());
            self.fail(at, FirstFailure { error: Some(error), ..FirstFailure::default() });
        }
        self.end(Cause::Time(limit));
        Some(Do::EndWithStacks)
    }

    /// Its end has begun.
    pub fn ending(&self) -> bool {
        self.ending
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        for member in &self.members {
            match member.process.role {
                Role::Server => {
                    progress.servers += 1;
                    progress.listening += usize::from(member.running && member.process.port.is_some() && !member.awaited);
                }
                _ => {
                    progress.others += 1;
                    progress.running += usize::from(member.running);
                }
            }
        }
        progress
    }

    /// Why it ended, if not because all went well.
    pub fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    /// What failed first, with its last lines.
    pub fn failure(&self) -> Option<FirstFailure> {
        let failure = self.failure.clone()?;
        let text = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
        let last_lines = self.failed.map_or(Vec::new(), |at| self.members[at].last_lines.iter().map(text).collect());
        Some(FirstFailure { last_lines, ..failure })
    }

    /// The exit status that says it.
    pub fn exit(&self) -> Exit {
        match (&self.cause, &self.failure) {
            (None, _) => Exit::Done,
            (Some(Cause::Signal(number)), _) => Exit::Signal(*number),
            (Some(Cause::Host), _) => Exit::Unreachable,
            (Some(Cause::Time(_)), _) => Exit::TimeLimit,
            (Some(Cause::Process), failure) => {
                let failure = failure.as_ref();
                let signal = failure.and_then(|failure| failure.signal.as_deref()).and_then(signal_number);
                Exit::Process(signal.or(failure.and_then(|failure| failure.code)).unwrap_or(1))
            }
        }
    }

    fn fail(&mut self, at: usize, how: FirstFailure) {
        let Process { host, id, role, rank, .. } = *self.members[at].process;
        self.failed = Some(at);
        self.failure = Some(FirstFailure { host, id: Some(id), role: Some(role), rank: Some(rank), ..how });
    }

    fn end(&mut self, cause: Cause) -> Option<Do> {
        self.cause = Some(cause);
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

    fn job(processes: &[Process]) -> (Job<'_>, Instant) {
        let now = Instant::now();
        (Job::new(Rule::Own, processes, &[Limit::Start(Duration::from_secs(60)), Limit::Job(Duration::from_secs(3600))], now), now)
    }

    #[test]
    fn the_first_failure_is_the_cause_and_nothing_after_it() {
        let all = processes(&[Role::Server, Role::Trainer, Role::Trainer]);
        let (mut job, now) = job(&all);
        (0..30).for_each(|n| job.output(2, format!("line {n}\n").as_bytes()));
        assert_eq!(job.exited(2, 137, now), Some(Do::End));
        assert_eq!(job.exited(1, 3, now), None);
        assert_eq!(job.lost(0, "gone".into()), None);
        job.output(2, b"one more\nits very last");
        let failure = job.failure().unwrap();
        assert_eq!((failure.host, failure.signal.as_deref(), failure.last_lines.len()), (2, Some("KILL"), 20));
        assert_eq!(failure.last_lines[17..], ["line 29", "one more", "its very last"]);
        assert_eq!(job.exit(), Exit::Process(137));
    }

    #[test]
    fn servers_that_stay_behind_are_ended_and_the_job_is_a_success() {
        let all = processes(&[Role::Server, Role::Server, Role::Trainer]);
        let (mut job, now) = job(&all);
        assert_eq!(job.exited(2, 0, now), None);
        assert_eq!(job.exited(0, 1, now), None, "a server has nothing left to fail at");
        assert_eq!(job.tick(now), None);
        assert_eq!(job.tick(now + SERVERS_LINGER), Some(Do::End));
        assert_eq!(job.tick(now + SERVERS_LINGER * 2), None);
        assert_eq!((job.exit(), job.failure()), (Exit::Done, None));
    }

    #[test]
    fn all_ended_well() {
        let all = processes(&[Role::Worker, Role::Worker]);
        let (mut job, now) = job(&all);
        assert_eq!(job.exited(0, 0, now), None);
        assert_eq!(job.exited(1, 0, now), Some(Do::End));
        assert_eq!(job.exit(), Exit::Done);
    }

    #[test]
    fn a_second_signal_is_impatient() {
        let all = processes(&[Role::Trainer]);
        let (mut job, now) = job(&all);
        assert_eq!(job.signal(2, now), Some(Do::End));
        assert_eq!(job.signal(2, now), Some(Do::Kill));
        assert_eq!(job.exit().code(), 130);
    }

    #[test]
    fn an_engine_that_signals_all_leaves_them_their_grace() {
        let processes = processes(&[Role::Server, Role::Trainer]);
        let later = ONE_SIGNAL * 2;
        let (mut handed_on, now) = job(&processes);
        let signals = [now, now, now + later].map(|at| handed_on.signal(15, at));
        assert_eq!(signals, [Some(Do::End), None, Some(Do::Kill)]);
        let (mut processes_first, now) = job(&processes);
        assert_eq!(processes_first.exited(0, 143, now), Some(Do::End));
        assert_eq!([now, now + later].map(|at| processes_first.signal(15, at)), [None, Some(Do::Kill)]);
        let (mut user, now) = job(&processes);
        assert_eq!((user.exited(0, 1, now), user.signal(2, now)), (Some(Do::End), Some(Do::Kill)));
    }

    #[test]
    fn servers_must_listen_in_time() {
        let mut processes = processes(&[Role::Server, Role::Server, Role::Trainer]);
        processes[..2].iter_mut().for_each(|server| server.port = Some(30050));
        let (mut job, now) = job(&processes);
        job.listening(0);
        assert_eq!(job.progress(), Progress { listening: 1, servers: 2, running: 1, others: 1 });
        assert_eq!(job.tick(now + Duration::from_secs(59)), None);
        assert_eq!(job.tick(now + Duration::from_secs(60)), Some(Do::EndWithStacks));
        let failure = job.failure().unwrap();
        assert_eq!((failure.host, failure.error.as_deref()), (1, Some("does not listen after 60 s")));
        assert_eq!((job.exited(1, 134, now), job.exit().code()), (None, 124));
    }

    #[test]
    fn a_job_may_take_its_time_and_no_more() {
        let all = processes(&[Role::Trainer]);
        let (mut job, now) = job(&all);
        assert_eq!(job.tick(now + Duration::from_secs(3599)), None, "no server is awaited");
        assert_eq!(job.tick(now + Duration::from_secs(3600)), Some(Do::EndWithStacks));
        assert_eq!((job.failure(), job.exit().code()), (None, 124));
    }

    #[test]
    fn guards_decide_for_a_detached_job() {
        let mut all = processes(&[Role::Server, Role::Trainer]);
        all[0].port = Some(30050);
        let now = Instant::now();
        let mut job = Job::new(Rule::Detach, &all, &[], now);
        assert!(!job.is_up(|_| true));
        job.listening(0);
        assert!(job.is_up(|_| true) && !job.is_up(|at| at == 0));
        assert_eq!((job.signal(2, now), job.signal(2, now)), (Some(Do::End), Some(Do::Kill)));
        assert_eq!((job.exited(1, 9, now), job.lost(0, "gone".into()), job.ending()), (None, None, false));
        job.output(1, b"its last\n");
        job.told(Some(Cause::Process), Some(1), FirstFailure { code: Some(9), ..FirstFailure::default() });
        job.told(None, None, FirstFailure::default());
        let failure = job.failure().unwrap();
        assert_eq!((failure.id, failure.code, &failure.last_lines[..]), (Some(1), Some(9), &["its last".to_owned()][..]));
        assert_eq!(job.exit(), Exit::Process(9));

        let mut job = Job::new(Rule::Attach, &all, &[], now);
        assert_eq!((job.signal(15, now), job.left_by(), job.exit()), (None, Some(15), Exit::Done));
    }
}
