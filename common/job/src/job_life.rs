//! The state machine that decides when a job ends, and why.
//!
//! 1. The job runs until its first cause to end: a process that failed, a lost host, a stall, a
//!    limit of time, a signal. `begin_end` keeps that cause; later ones change nothing.
//! 2. A server that fails while clients run is no cause yet: `SERVER_FAILURE_WAIT` decides. After
//!    the last client has succeeded, servers get `SERVERS_LINGER`, and nothing that happens to them
//!    or to their hosts matters: the job has succeeded. Only a signal still counts.
//! 3. What follows a pause of this program is blamed on the pause.
//! 4. The methods return how the job is to end now: TERM, then KILL after the grace time, or KILL
//!    at once. The caller sends this to all hosts; time comes in by `tick`.

use crate::model::{JobMember, Progress};
use crate::pause::heartbeat;
use crate::stall::StallWatch;
use record::Role;
use record::exit::{ProcessEnd, SignalNumber};
use record::term::millis;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wire::Request;
use wire::ending::{Cause, Ending, JobFailure, Limit, Loss, Reason, Rules};
use wire::supervise::End;

/// Servers end by themselves after their last client; those that still run after this time get
/// TERM. A service may end before its clients by this time plus `patience`, by which the report of
/// a client's end may be late.
pub const SERVERS_LINGER: Duration = Duration::from_secs(5);
/// How long a server's failure waits for its clients: if all succeed, it failed only because they
/// left, and its report arrived before theirs.
const SERVER_FAILURE_WAIT: Duration = Duration::from_secs(1);
/// Signals within this time of the first one count as one.
const ONE_SIGNAL: Duration = Duration::from_secs(1);
/// The same for two SIGINT: a terminal sends one to the launcher and to what started it, such as
/// srun or npm, which passes it on at once. Users need longer to press Ctrl-C again.
const ONE_INTERRUPT: Duration = Duration::from_millis(200);

/// The numbers of a host, and of a process on it.
pub type ProcessId = (u32, u32);

/// How all hosts are to end the job now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// TERM, then KILL after the grace time.
    Term,
    /// The same, after the stacks have been taken.
    TermAfterStacks,
    Kill,
}

#[derive(Debug)]
struct ProcessLife {
    member: JobMember,
    running: bool,
}

#[derive(Debug)]
pub struct JobLife {
    processes: BTreeMap<ProcessId, ProcessLife>,
    running_count: usize,
    /// How many running processes are clients, which do not only serve others.
    running_clients: usize,
    has_clients: bool,
    /// Servers that do not listen yet.
    awaited: BTreeSet<ProcessId>,
    pub(crate) rules: Rules,
    /// How long a host may be silent until it counts as lost; hosts allow this side the same time.
    patience: Duration,
    /// `None` without detection of stalls.
    pub(crate) stall: Option<StallWatch>,
    begun: Instant,
    ending: Option<Ending>,
    /// When servers that outlive their clients will be ended.
    linger: Option<Instant>,
    /// The first failure of a server, and until when it waits for all clients to end.
    server_failure: Option<(JobFailure, Instant)>,
    /// The service that ended first, and the time by which its clients must have ended too.
    ended_early: Option<(ProcessId, Instant)>,
    signalled: Option<(SignalNumber, Instant)>,
    /// The last pause of this program, as long as it can explain failures.
    pause: Option<Pause>,
}

/// A time in which this program did not run and handled no messages of hosts.
#[derive(Clone, Copy, Debug)]
struct Pause {
    time: Duration,
    failures_until: Instant,
    losses_until: Instant,
}

impl JobLife {
    /// The state of a job that is about to start. Each host has its processes in the order of their
    /// indices.
    pub fn new(
        hosts: impl IntoIterator<Item = (u32, Vec<JobMember>)>,
        rules: Rules,
        patience: Duration,
        now: Instant,
    ) -> JobLife {
        let mut job = JobLife {
            processes: BTreeMap::new(),
            running_count: 0,
            running_clients: 0,
            has_clients: false,
            awaited: BTreeSet::new(),
            rules,
            patience,
            stall: None,
            begun: now,
            ending: None,
            linger: None,
            server_failure: None,
            ended_early: None,
            signalled: None,
            pause: None,
        };
        for (host, members) in hosts {
            for (index, member) in (0..).zip(members) {
                let id = (host, index);
                let running = true;
                job.processes.insert(id, ProcessLife { member, running });
                job.running_count += 1;
                job.running_clients += usize::from(!member.serves());
                if member.awaited {
                    job.awaited.insert(id);
                }
            }
        }
        job.has_clients = job.running_clients > 0;
        // graph servers alone are idle until trainers connect, which is no stall
        let rule = job.rules.stall.filter(|_| job.has_clients);
        let hosts = job.processes.keys().map(|(host, _)| *host);
        job.stall = rule.map(|rule| StallWatch::new(rule.limit, hosts));
        job
    }

    pub fn listening(&mut self, id: ProcessId) {
        self.awaited.remove(&id);
    }

    pub fn exited(&mut self, id: ProcessId, end: ProcessEnd, now: Instant) -> Option<JobEnd> {
        let process = self.processes.get_mut(&id)?;
        let member = process.member;
        if std::mem::replace(&mut process.running, false) {
            self.running_count -= 1;
            self.running_clients -= usize::from(!member.serves());
        }
        if !self.may_end() {
            return None;
        }
        if !end.is_complete() && !self.has_succeeded() {
            let pause = self.pause.filter(|pause| now < pause.failures_until);
            if let Some(pause) = pause {
                return self.end(Cause::Paused(pause.time), None);
            }
            let failure = failure(id, Reason::Ended(end));
            if !member.serves() || self.running_clients == 0 {
                return self.end(Cause::Process, Some(failure));
            }
            let until = now + SERVER_FAILURE_WAIT;
            self.server_failure.get_or_insert((failure, until));
            return None;
        }
        if self.running_count == 0 {
            return self.end_well();
        }
        if !self.has_clients {
            return None;
        }
        if self.running_clients == 0 {
            self.server_failure = None;
            self.linger.get_or_insert(now + SERVERS_LINGER);
        } else if member.service {
            let until = now + SERVERS_LINGER + self.patience;
            self.ended_early.get_or_insert((id, until));
        }
        None
    }

    pub fn end_for_lost_host(&mut self, host: u32, why: impl Into<Loss>) -> Option<JobEnd> {
        if let Some(pause) = self.pause {
            return self.end(Cause::Paused(pause.time), None);
        }
        self.begin_end(Ending::lost(host, why.into()))
    }

    /// Handles the end of the graph servers that the job uses; `failure` is the first failure among
    /// them.
    pub fn servers_ended(&mut self, failure: Option<JobFailure>) -> Option<JobEnd> {
        // its index is that of a server, not of a process of this job
        let failure = failure.map(|failure| JobFailure {
            index: None,
            ..failure
        });
        self.end(Cause::Servers, failure)
    }

    /// Notes that this program was paused for so long that hosts may have considered it lost. The
    /// pause is the cause if a host is lost within `patience` of it, or if a process fails within a
    /// heartbeat, because its peers on other hosts were ended.
    pub fn paused(&mut self, time: Duration, now: Instant) {
        let failures_until = now + heartbeat(self.patience);
        self.pause = Some(Pause {
            time,
            failures_until,
            losses_until: failures_until + self.patience,
        });
    }

    /// Handles an uncaught exception of a process that does not end.
    pub fn raised(&mut self, id: ProcessId, exception: String) -> Option<JobEnd> {
        self.processes.get(&id).filter(|state| state.running)?;
        self.end(Cause::Process, Some(failure(id, Reason::Raised(exception))))
    }

    pub fn stalled(&mut self, limit: Duration) -> Option<JobEnd> {
        self.end(Cause::Stalled(limit), None)
    }

    /// The first signal ends the job with its grace time, the next one at once. An engine such as
    /// Slurm signals the processes, the launcher and its shell in any order, so signals that arrive
    /// together with the first one, and a first signal while the job is already ending, do not
    /// shorten the grace time; a first Ctrl-C then does.
    pub fn signal(&mut self, signal: SignalNumber, now: Instant) -> Option<JobEnd> {
        let is_first = self.signalled.is_none();
        let (_, since) = *self.signalled.get_or_insert((signal, now));
        let is_same = match signal {
            SignalNumber::INT => !is_first && now < since + ONE_INTERRUPT,
            _ => now < since + ONE_SIGNAL,
        };
        if self.may_end() {
            self.end(Cause::Signal(signal), None)
        } else if is_same {
            None
        } else {
            Some(JobEnd::Kill)
        }
    }

    pub fn signalled(&self) -> Option<SignalNumber> {
        self.signalled.map(|(signal, _)| signal)
    }

    pub fn tick(&mut self, now: Instant) -> Option<JobEnd> {
        self.pause = self.pause.filter(|pause| now < pause.losses_until);
        if !self.may_end() {
            return None;
        }
        if let Some(until) = self.linger {
            // no limit matters after the last client
            return (now >= until).then(|| self.end_well()).flatten();
        }
        if let Some((failure, until)) = &self.server_failure
            && now >= *until
        {
            let failure = failure.clone();
            return self.end(Cause::Process, Some(failure));
        }
        if let Some((id, until)) = self.ended_early
            && now >= until
        {
            return self.end(Cause::Process, Some(failure(id, Reason::EndedEarly)));
        }
        let awaited = self.awaited.first().copied();
        let is_over = |limit: &&Limit| {
            let (Limit::Start(time) | Limit::Job(time)) = limit;
            // a limit beyond the range of the clock is never reached
            let until = self.begun.checked_add(*time);
            until.is_some_and(|until| now >= until)
                && (matches!(limit, Limit::Job(_)) || awaited.is_some())
        };
        let limit = *self.rules.limits.iter().find(is_over)?;
        let failure = match (limit, awaited) {
            (Limit::Start(_), Some(id)) if !self.processes[&id].running => {
                Some(failure(id, Reason::EndedEarly))
            }
            (Limit::Start(time), Some(id)) => Some(failure(id, Reason::NotListening(time))),
            _ => None,
        };
        self.end(Cause::Time(limit), failure)?;
        Some(JobEnd::TermAfterStacks)
    }

    /// The request that ends the job on a host.
    pub fn request(&self, end: JobEnd) -> Request {
        if end == JobEnd::Kill {
            return Request::Kill;
        }
        Request::End(End {
            grace_ms: millis(self.rules.grace),
            stacks: end == JobEnd::TermAfterStacks,
            ending: self.ending.clone().unwrap_or_default(),
        })
    }

    /// `None` before the end has begun.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    pub fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        for (id, state) in &self.processes {
            if state.member.role == Role::Server {
                let listens = state.running && state.member.awaited && !self.awaited.contains(id);
                progress.servers += 1;
                progress.listening += usize::from(listens);
            } else {
                progress.others += 1;
                progress.running += usize::from(state.running);
            }
        }
        progress
    }

    /// Whether all clients have succeeded; servers may still run.
    fn has_succeeded(&self) -> bool {
        self.linger.is_some()
    }

    fn may_end(&self) -> bool {
        self.ending.is_none()
    }

    fn end(&mut self, cause: Cause, failure: Option<JobFailure>) -> Option<JobEnd> {
        let cause = Some(cause);
        self.begin_end(Ending { cause, failure })
    }

    /// A failure of a server that arrived before the end is its cause.
    fn begin_end(&mut self, ending: Ending) -> Option<JobEnd> {
        if !self.may_end() {
            return None;
        }
        if self.has_succeeded() && !matches!(ending.cause, Some(Cause::Signal(_))) {
            return self.end_well();
        }
        let earlier = self.server_failure.take().map(|(failure, _)| Ending {
            cause: Some(Cause::Process),
            failure: Some(failure),
        });
        self.ending = Some(earlier.unwrap_or(ending));
        Some(JobEnd::Term)
    }

    fn end_well(&mut self) -> Option<JobEnd> {
        self.ending = Some(Ending::default());
        Some(JobEnd::Term)
    }
}

fn failure((host, index): ProcessId, reason: Reason) -> JobFailure {
    JobFailure {
        host,
        index: Some(index),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl JobLife {
        /// `None` if the job has not ended or every process succeeded.
        fn cause(&self) -> Option<&Cause> {
            self.ending.as_ref()?.cause.as_ref()
        }

        fn failure(&self) -> Option<&JobFailure> {
            self.ending.as_ref()?.failure.as_ref()
        }
    }

    const END: Option<JobEnd> = Some(JobEnd::Term);
    const PATIENCE: Duration = Duration::from_secs(12);

    /// One process on each host, in the order of the roles. No server is awaited.
    fn members(roles: &[Role]) -> Vec<JobMember> {
        let member = |role: &Role| JobMember {
            role: *role,
            service: false,
            awaited: false,
        };
        roles.iter().map(member).collect()
    }

    fn on_hosts(members: &[JobMember]) -> impl Iterator<Item = (u32, Vec<JobMember>)> {
        (0..).zip(members.iter().map(|member| vec![*member]))
    }

    fn rules(limits: &[Limit]) -> Rules {
        Rules {
            limits: limits.to_vec(),
            ..Rules::default()
        }
    }

    /// The same, with every server awaited.
    fn awaited(roles: &[Role]) -> Vec<JobMember> {
        let mut members = members(roles);
        members
            .iter_mut()
            .for_each(|member| member.awaited = member.role == Role::Server);
        members
    }

    fn job(members: &[JobMember]) -> (JobLife, Instant) {
        let limits = [60, 3600].map(Duration::from_secs);
        let limits = [Limit::Start(limits[0]), Limit::Job(limits[1])];
        let now = Instant::now();
        let job = JobLife::new(on_hosts(members), rules(&limits), PATIENCE, now);
        (job, now)
    }

    /// The failure of a process on a host, or of the host itself.
    fn failed(host: u32, index: Option<u32>, reason: Reason) -> JobFailure {
        JobFailure {
            host,
            index,
            reason,
        }
    }

    /// The process of a host ends.
    fn exited(job: &mut JobLife, host: u32, end: ProcessEnd, now: Instant) -> Option<JobEnd> {
        job.exited((host, 0), end, now)
    }

    /// Why it ended, as one value.
    fn why(job: &JobLife) -> (Option<&Cause>, Option<&JobFailure>) {
        (job.cause(), job.failure())
    }

    fn ended(end: ProcessEnd) -> Reason {
        Reason::Ended(end)
    }

    #[test]
    fn the_first_failure_is_the_cause_and_nothing_after_it() {
        let (mut job, now) = job(&members(&[Role::Server, Role::Trainer, Role::Trainer]));
        assert_eq!(
            exited(&mut job, 2, ProcessEnd::killed(SignalNumber::KILL), now),
            END
        );
        assert_eq!(exited(&mut job, 1, ProcessEnd::exited(3), now), None);
        assert_eq!(job.end_for_lost_host(0, "gone"), None);
        let first = failed(2, Some(0), ended(ProcessEnd::killed(SignalNumber::KILL)));
        assert_eq!(why(&job), (Some(&Cause::Process), Some(&first)));
    }

    #[test]
    fn a_success_because_of_dgl_reap_is_none() {
        let reaped = |end: ProcessEnd| ProcessEnd {
            reaped: true,
            ..end
        };
        for end in [
            ProcessEnd::exited(0),
            ProcessEnd::exited(3),
            ProcessEnd::killed(SignalNumber::KILL),
        ] {
            let (mut job, now) = job(&members(&[Role::Trainer, Role::Trainer]));
            let end = reaped(end);
            assert_eq!(job.exited((0, 0), end, now), END);
            assert_eq!(job.failure().unwrap().reason, Reason::Ended(end));
        }
    }

    #[test]
    fn neither_dead_graph_servers_nor_a_pause_are_a_lost_host() {
        let members = members(&[Role::Trainer, Role::Trainer]);
        let (mut job, now) = job(&members);
        let killed = failed(1, None, ended(ProcessEnd::killed(SignalNumber::KILL)));
        assert_eq!(job.servers_ended(Some(killed.clone())), END);
        assert_eq!(job.end_for_lost_host(0, "gone"), None);
        assert_eq!(why(&job), (Some(&Cause::Servers), Some(&killed)));
        let time = Duration::from_secs(14);
        let lost = |job: &mut JobLife, _| job.end_for_lost_host(0, "gone");
        let failed = |job: &mut JobLife, now| exited(job, 0, ProcessEnd::exited(1), now);
        let table: [(fn(&mut JobLife, Instant) -> Option<JobEnd>, u64, Cause); 4] = [
            (lost, 13, Cause::Paused(time)),
            (lost, 14, Cause::Host),
            (failed, 1, Cause::Paused(time)),
            (failed, 2, Cause::Process),
        ];
        for (happens, after_s, cause) in table {
            let (mut job, _) = self::job(&members);
            job.paused(time, now);
            let later = now + Duration::from_secs(after_s);
            assert_eq!(job.tick(later), None);
            assert_eq!(happens(&mut job, later), END);
            assert_eq!(job.cause(), Some(&cause), "{after_s}");
            let is_of_pause = cause == Cause::Paused(time);
            assert_eq!(job.failure().is_none(), is_of_pause, "{after_s}");
        }
    }

    #[test]
    fn an_exit_with_137_is_no_death_by_kill() {
        let ends = [
            ProcessEnd::exited(137),
            ProcessEnd::killed(SignalNumber::KILL),
        ];
        for end in ends {
            let (mut job, now) = job(&members(&[Role::Trainer]));
            assert_eq!(exited(&mut job, 0, end, now), END);
            assert_eq!(job.failure().unwrap().reason, ended(end));
        }
    }

    #[test]
    fn a_lost_host_ends_the_job() {
        let (mut job, now) = job(&members(&[Role::Trainer, Role::Trainer]));
        assert_eq!(job.end_for_lost_host(1, "silent"), END);
        assert_eq!(exited(&mut job, 0, ProcessEnd::exited(1), now), None);
        let lost = failed(1, None, Reason::Lost("silent".into()));
        assert_eq!(why(&job), (Some(&Cause::Host), Some(&lost)));
    }

    #[test]
    fn servers_that_stay_behind_are_ended_and_the_job_is_a_success() {
        let (mut job, now) = job(&members(&[Role::Server, Role::Server, Role::Trainer]));
        assert_eq!(exited(&mut job, 2, ProcessEnd::exited(0), now), None);
        assert_eq!(
            exited(&mut job, 0, ProcessEnd::exited(1), now),
            None,
            "a failure of a server does not matter any more"
        );
        assert_eq!(job.tick(now), None);
        assert_eq!(job.tick(now + SERVERS_LINGER), END);
        assert_eq!(job.tick(now + SERVERS_LINGER * 2), None);
        assert_eq!(why(&job), (None, None));
    }

    #[test]
    fn servers_alone_are_no_servers_that_stay_behind() {
        let (mut job, now) = job(&awaited(&[Role::Server, Role::Server]));
        (0..2).for_each(|host| job.listening((host, 0)));
        assert_eq!(exited(&mut job, 0, ProcessEnd::exited(0), now), None);
        assert_eq!(job.tick(now + SERVERS_LINGER * 2), None);
    }

    #[test]
    fn a_service_ends_with_those_that_it_serves_and_not_before() {
        let mut members = members(&[Role::Worker, Role::Worker]);
        members[0].service = true;
        let failure = failed(0, Some(0), Reason::EndedEarly);

        let (mut early, now) = job(&members);
        assert_eq!(exited(&mut early, 0, ProcessEnd::exited(0), now), None);
        assert_eq!(early.tick(now), None, "its clients may be about to end");
        let is_silent = now + SERVERS_LINGER;
        assert_eq!(early.tick(is_silent), None, "their host may be silent");
        assert_eq!(early.tick(is_silent + PATIENCE), END);
        assert_eq!(why(&early), (Some(&Cause::Process), Some(&failure)));

        let (mut with_clients, now) = job(&members);
        assert_eq!(
            exited(&mut with_clients, 0, ProcessEnd::exited(0), now),
            None
        );
        assert_eq!(
            exited(
                &mut with_clients,
                1,
                ProcessEnd::exited(0),
                now + SERVERS_LINGER / 2
            ),
            END
        );
        assert_eq!(with_clients.cause(), None);

        let (mut stays, now) = job(&members);
        assert_eq!(exited(&mut stays, 1, ProcessEnd::exited(0), now), None);
        assert_eq!(stays.tick(now + SERVERS_LINGER), END);
        assert_eq!(why(&stays), (None, None));
    }

    /// What happens after a server has failed and before that ends the job.
    type Follows = fn(&mut JobLife, Instant) -> Option<JobEnd>;

    #[test]
    fn a_server_that_fails_as_its_clients_leave_does_not_fail_the_job() {
        let failure = failed(0, Some(0), ended(ProcessEnd::exited(3)));
        let fails = (Some(&Cause::Process), Some(&failure));
        let table: [(Follows, _, _); 6] = [
            (|job, now| job.tick(now + SERVER_FAILURE_WAIT), END, fails),
            (
                |job, now| exited(job, 1, ProcessEnd::exited(1), now),
                END,
                fails,
            ),
            (
                |job, now| exited(job, 2, ProcessEnd::exited(4), now),
                None,
                (None, None),
            ),
            (|job, _| job.end_for_lost_host(1, "gone"), END, fails),
            (|job, now| job.signal(SignalNumber::INT, now), END, fails),
            (
                |job, now| exited(job, 1, ProcessEnd::exited(0), now),
                None,
                (None, None),
            ),
        ];
        for service in [false, true] {
            let mut members = members(&[Role::Server, Role::Worker, Role::Server]);
            if service {
                (members[0].role, members[0].service) = (Role::Worker, true);
            }
            for (nth, (follows, action, outcome)) in table.iter().enumerate() {
                let (mut job, now) = job(&members);
                assert_eq!(exited(&mut job, 0, ProcessEnd::exited(3), now), None);
                assert_eq!(job.tick(now), None);
                assert_eq!(follows(&mut job, now), *action, "{nth}");
                assert_eq!(why(&job), *outcome, "{nth}");
            }
            let (mut job, now) = job(&members);
            exited(&mut job, 0, ProcessEnd::exited(3), now);
            exited(&mut job, 1, ProcessEnd::exited(0), now);
            assert_eq!(job.tick(now + SERVER_FAILURE_WAIT), None);
            assert_eq!(job.tick(now + SERVERS_LINGER), END);
            assert_eq!(why(&job), (None, None));
        }
    }

    #[test]
    fn nothing_but_a_signal_matters_after_the_last_client() {
        let table: [(Follows, _); 5] = [
            (|job, _| job.end_for_lost_host(0, "gone"), None),
            (|job, _| job.raised((0, 0), "E: 1".to_owned()), None),
            (|job, _| job.servers_ended(None), None),
            (|job, _| job.stalled(PATIENCE), None),
            (
                |job, now| job.signal(SignalNumber::INT, now),
                Some(Cause::Signal(SignalNumber::INT)),
            ),
        ];
        for (nth, (follows, cause)) in table.into_iter().enumerate() {
            let (mut job, now) = job(&members(&[Role::Server, Role::Trainer]));
            assert_eq!(exited(&mut job, 1, ProcessEnd::exited(0), now), None);
            assert_eq!(follows(&mut job, now), END, "{nth}");
            assert_eq!(why(&job), (cause.as_ref(), None), "{nth}");
        }
    }

    #[test]
    fn no_limit_is_checked_after_the_last_client() {
        let (mut job, now) = job(&awaited(&[Role::Server, Role::Trainer]));
        let limit = now + Duration::from_secs(3600);
        let last = limit - Duration::from_secs(1);
        job.listening((0, 0));
        assert_eq!(exited(&mut job, 1, ProcessEnd::exited(0), last), None);
        assert_eq!(job.tick(limit), None);
        assert_eq!(job.tick(last + SERVERS_LINGER), END);
        assert_eq!(why(&job), (None, None));
    }

    #[test]
    fn a_server_that_exited_is_not_one_that_does_not_listen() {
        let (mut job, now) = job(&awaited(&[Role::Server, Role::Trainer]));
        assert_eq!(exited(&mut job, 0, ProcessEnd::exited(0), now), None);
        let limit = Duration::from_secs(60);
        assert_eq!(job.tick(now + limit), Some(JobEnd::TermAfterStacks));
        let early = failed(0, Some(0), Reason::EndedEarly);
        assert_eq!(
            why(&job),
            (Some(&Cause::Time(Limit::Start(limit))), Some(&early))
        );
    }

    #[test]
    fn all_ended_well() {
        let (mut job, now) = job(&members(&[Role::Worker, Role::Worker]));
        assert_eq!(exited(&mut job, 0, ProcessEnd::exited(0), now), None);
        assert_eq!(exited(&mut job, 1, ProcessEnd::exited(0), now), END);
        assert_eq!(job.ending(), Some(&Ending::default()));
    }

    #[test]
    fn a_second_signal_is_impatient() {
        let (mut job, now) = job(&members(&[Role::Trainer]));
        assert_eq!(job.signal(SignalNumber::INT, now), END);
        let passed_on = now + Duration::from_millis(5);
        assert_eq!(job.signal(SignalNumber::INT, passed_on), None);
        let again = now + ONE_INTERRUPT;
        assert_eq!(job.signal(SignalNumber::INT, again), Some(JobEnd::Kill));
        assert_eq!(job.cause(), Some(&Cause::Signal(SignalNumber(2))));
    }

    #[test]
    fn an_engine_that_signals_all_leaves_them_their_grace() {
        let members = members(&[Role::Server, Role::Trainer]);
        let later = ONE_SIGNAL * 2;
        let (mut handed_on, now) = job(&members);
        let signals =
            [now, now, now + later].map(|when| handed_on.signal(SignalNumber::TERM, when));
        assert_eq!(signals, [END, None, Some(JobEnd::Kill)]);
        let (mut processes_first, now) = job(&members);
        assert_eq!(
            exited(
                &mut processes_first,
                1,
                ProcessEnd::killed(SignalNumber::TERM),
                now
            ),
            END
        );
        let signals =
            [now, now + later].map(|when| processes_first.signal(SignalNumber::TERM, when));
        assert_eq!(signals, [None, Some(JobEnd::Kill)]);
        let (mut user, now) = job(&members);
        let actions = (
            exited(&mut user, 1, ProcessEnd::exited(1), now),
            user.signal(SignalNumber::INT, now),
        );
        assert_eq!(actions, (END, Some(JobEnd::Kill)));
    }

    #[test]
    fn servers_must_listen_in_time() {
        let (mut job, now) = job(&awaited(&[Role::Server, Role::Server, Role::Trainer]));
        job.listening((0, 0));
        let progress = Progress {
            listening: 1,
            servers: 2,
            running: 1,
            others: 1,
        };
        assert_eq!(job.progress(), progress);
        assert_eq!(job.tick(now + Duration::from_secs(59)), None);
        assert_eq!(
            job.tick(now + Duration::from_secs(60)),
            Some(JobEnd::TermAfterStacks)
        );
        let limit = Duration::from_secs(60);
        let failure = failed(1, Some(0), Reason::NotListening(limit));
        assert_eq!(job.failure(), Some(&failure));
        assert_eq!(
            exited(&mut job, 1, ProcessEnd::killed(SignalNumber(6)), now),
            None
        );
        assert_eq!(job.cause(), Some(&Cause::Time(Limit::Start(limit))));
    }

    #[test]
    fn a_job_may_take_its_time_and_no_more() {
        let (mut job, now) = job(&members(&[Role::Trainer]));
        assert_eq!(
            job.tick(now + Duration::from_secs(3599)),
            None,
            "no server is awaited"
        );
        let limit = Duration::from_secs(3600);
        assert_eq!(job.tick(now + limit), Some(JobEnd::TermAfterStacks));
        assert_eq!(why(&job), (Some(&Cause::Time(Limit::Job(limit))), None));
    }

    #[test]
    fn a_job_that_stalls_and_one_that_raised_are_ended_once() {
        let (mut stalls, now) = job(&members(&[Role::Trainer, Role::Trainer]));
        let limit = Duration::from_secs(600);
        assert_eq!(stalls.stalled(limit), END);
        assert_eq!(stalls.raised((0, 0), "E".to_owned()), None);
        assert_eq!(
            exited(&mut stalls, 0, ProcessEnd::killed(SignalNumber::TERM), now),
            None
        );
        assert_eq!(why(&stalls), (Some(&Cause::Stalled(limit)), None));
        let (mut raises, now) = job(&members(&[Role::Trainer, Role::Trainer]));
        assert_eq!(exited(&mut raises, 0, ProcessEnd::exited(0), now), None);
        assert_eq!(
            raises.raised((0, 0), "late".to_owned()),
            None,
            "it has ended"
        );
        assert_eq!(raises.raised((1, 0), "E: 1".to_owned()), END);
        assert_eq!(raises.stalled(limit), None);
        let failure = failed(1, Some(0), Reason::Raised("E: 1".to_owned()));
        assert_eq!(why(&raises), (Some(&Cause::Process), Some(&failure)));
    }

    #[test]
    fn a_limit_without_end_never_runs_out() {
        let now = Instant::now();
        let mut job = JobLife::new(
            on_hosts(&members(&[Role::Trainer])),
            rules(&[Limit::Job(Duration::MAX)]),
            PATIENCE,
            now,
        );
        assert_eq!(job.tick(now + Duration::from_secs(1 << 40)), None);
    }
}
