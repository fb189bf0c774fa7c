//! The policy of the first host's keeper: when the job begins, and when and why it ends. It runs
//! the state machine that a launcher runs too, for the processes of all hosts. Reports of hosts go
//! in, decisions come out; it opens nothing and asks no clock.

use job::{
    Action, Exit, Job, Limit, Loss, Member, Mode, ONE_SIGNAL, Role, StallRule, StallStep,
    StallWatch,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::keep::{Ending, Failure, Resumed, Stalled};
use wire::supervise::Moves;

/// A host has fewer processes than this; one that reports more is lost.
const MAX_PROCESSES: usize = 65_536;
/// The signal with which dgl-reap and followers end a job.
const SIGTERM: i32 = 15;

/// A decision for all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The processes are started.
    Begin,
    /// The job is ended.
    End {
        /// Whether Python is asked for its stacks first.
        stacks: bool,
        /// Why the job ends.
        ending: Ending,
    },
    /// Processes that are left are killed at once.
    Kill,
    /// The stacks of the processes are written down, for the question of this number.
    Ask(u32),
    /// The job stalls, which only this host writes down.
    Stalled(Stalled),
    /// The job moves again, which only this host writes down.
    Resumed(Resumed),
}

/// The policy of a job.
#[derive(Debug)]
pub struct Leader {
    limits: Vec<Limit>,
    /// How long hosts may take to join.
    patience: Duration,
    since: Instant,
    /// The processes of each host, and whether it has reported all of them.
    hosts: BTreeMap<u32, (Vec<Member>, bool)>,
    /// How many hosts the job has.
    expected: usize,
    /// The state machine, once the job has begun.
    job: Option<Job>,
    /// When the job stalls; `None` if nobody wants to know.
    rule: Option<StallRule>,
    /// The stall watch, once the job has begun.
    stall: Option<StallWatch>,
    /// Why the job ends, once that is decided.
    ending: Option<Ending>,
    /// When each host first reported that somebody wants the end.
    stopped: BTreeMap<u32, Instant>,
}

impl Leader {
    /// Creates the policy of a job of `expected` hosts.
    pub fn new(
        expected: usize,
        limits: Vec<Limit>,
        rule: Option<StallRule>,
        patience: Duration,
        now: Instant,
    ) -> Leader {
        let (hosts, stopped) = Default::default();
        Leader {
            limits,
            patience,
            since: now,
            hosts,
            expected,
            job: None,
            rule,
            stall: None,
            ending: None,
            stopped,
        }
    }

    /// Starts to wait for hosts.
    pub fn wait_from(&mut self, now: Instant) {
        self.since = now;
    }

    /// A host reports its next process.
    pub fn member(&mut self, host: u32, role: Role, awaited: bool) -> Option<Decision> {
        let (members, joined) = self.hosts.entry(host).or_default();
        if *joined || members.len() >= MAX_PROCESSES {
            return self.lost(
                host,
                Loss::Other("it told of processes that it does not have".to_owned()),
            );
        }
        members.push(Member {
            host,
            role,
            awaited,
        });
        None
    }

    /// A host has reported all of its processes, and they can be started.
    pub fn joined(&mut self, host: u32, now: Instant) -> Option<Decision> {
        self.hosts.entry(host).or_default().1 = true;
        if self.job.is_some() || self.ending.is_some() || self.joined_hosts() < self.expected {
            return None;
        }
        let members: Vec<Member> = self
            .hosts
            .values()
            .flat_map(|(members, _)| members.iter().copied())
            .collect();
        self.job = Some(Job::new(Mode::Deciding, members, &self.limits, now));
        let hosts = self.hosts.keys().copied();
        self.stall = self.rule.map(|rule| StallWatch::new(rule.limit, hosts));
        Some(Decision::Begin)
    }

    fn joined_hosts(&self) -> usize {
        self.hosts.values().filter(|(_, joined)| *joined).count()
    }

    /// A server listens.
    pub fn listening(&mut self, host: u32, index: u32) -> Option<Decision> {
        match (self.position(host, index), &mut self.job) {
            (Some(at), Some(job)) => {
                job.listening(at);
                None
            }
            _ => self.lost(host, stranger()),
        }
    }

    /// A process ended.
    pub fn exited(&mut self, host: u32, index: u32, exit: Exit, now: Instant) -> Option<Decision> {
        match (self.position(host, index), &mut self.job) {
            (Some(at), Some(job)) => {
                let action = job.exited(at, exit, now);
                self.act(action)
            }
            _ => self.lost(host, stranger()),
        }
    }

    /// A process has raised an exception that nobody caught, and counts as failed.
    pub fn raised(&mut self, host: u32, index: u32, exception: String) -> Option<Decision> {
        match (self.position(host, index), &mut self.job) {
            (Some(at), Some(job)) => {
                let action = job.raised(at, exception);
                self.act(action)
            }
            _ => self.lost(host, stranger()),
        }
    }

    /// No process of a host has given a sign of life for this long.
    pub fn idle(&mut self, host: u32, time: Duration) -> Vec<Decision> {
        let step = self.stall.as_mut().and_then(|watch| watch.idle(host, time));
        self.stall_step(step)
    }

    /// A process of the host has given a sign of life again.
    pub fn moves(&mut self, host: u32, moves: Moves) -> Vec<Decision> {
        let step = self.stall.as_mut().and_then(|watch| watch.moves(host));
        match (step, self.rule, &self.ending) {
            (Some(StallStep::Resumed), Some(_), None) => {
                vec![Decision::Resumed(Resumed { host, moves })]
            }
            _ => Vec::new(),
        }
    }

    /// A host has written down where its processes stand.
    pub fn stands(&mut self, host: u32, number: u32, idle: Duration) -> Vec<Decision> {
        let watch = self.stall.as_mut();
        let step = watch.and_then(|watch| watch.answered(host, number, idle));
        self.stall_step(step)
    }

    fn stall_step(&mut self, step: Option<StallStep>) -> Vec<Decision> {
        let (Some(step), Some(rule), None) = (step, self.rule, &self.ending) else {
            return Vec::new();
        };
        match step {
            StallStep::Ask(number) => vec![Decision::Ask(number)],
            // see `moves`
            StallStep::Resumed => Vec::new(),
            StallStep::Stalled { number, silent } => {
                let stalled = Decision::Stalled(Stalled {
                    number,
                    silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
                    ends: rule.ends,
                });
                let job = self.job.as_mut().filter(|_| rule.ends);
                let action = job.and_then(|job| job.stalled(rule.limit));
                [stalled].into_iter().chain(self.act(action)).collect()
            }
        }
    }

    /// A host is lost, or reports that it cannot go on.
    pub fn lost(&mut self, host: u32, loss: Loss) -> Option<Decision> {
        match &mut self.job {
            Some(job) => {
                let action = job.lost(host, loss);
                self.act(action)
            }
            None => self.decide(false, Ending::lost(host, loss)),
        }
    }

    /// Somebody on a host wants the job to end with a signal; a second time, it ends at once. One
    /// signal that comes to the keepers of all hosts counts once.
    pub fn stop(&mut self, host: u32, signal: i32, now: Instant) -> Option<Decision> {
        let first = *self.stopped.entry(host).or_insert(now);
        if self.ending.is_none() {
            return self.end_by_signal(signal, now);
        }
        (now >= first + ONE_SIGNAL).then_some(Decision::Kill)
    }

    /// Somebody who follows the job wants it to end.
    pub fn end(&mut self, now: Instant) -> Option<Decision> {
        if self.ending.is_some() {
            None
        } else {
            self.end_by_signal(SIGTERM, now)
        }
    }

    /// Somebody who follows the job wants it to end at once.
    pub fn kill(&mut self, now: Instant) -> Vec<Decision> {
        self.end(now).into_iter().chain([Decision::Kill]).collect()
    }

    fn end_by_signal(&mut self, signal: i32, now: Instant) -> Option<Decision> {
        match &mut self.job {
            Some(job) => {
                let action = job.signal(signal, now);
                self.act(action)
            }
            None => self.decide(
                false,
                Ending {
                    cause: Some(job::Cause::Signal(signal)),
                    failure: None,
                },
            ),
        }
    }

    /// Time has passed; checks all limits. `own` is the number of this host.
    pub fn tick(&mut self, own: u32, now: Instant) -> Option<Decision> {
        match &mut self.job {
            Some(job) => {
                let action = job.tick(now);
                self.act(action)
            }
            None if now >= self.since + self.patience => {
                let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                let loss = Loss::NotJoined {
                    joined: count(self.joined_hosts()),
                    hosts: count(self.expected),
                };
                self.decide(false, Ending::lost(own, loss))
            }
            None => None,
        }
    }

    /// The graph servers that the job uses have ended, of which this failed first.
    pub fn servers_ended(&mut self, failure: Option<Failure>) -> Option<Decision> {
        let job = self.job.as_mut()?;
        let action = job.servers_ended(failure.map(|failure| job::Failure {
            host: failure.host,
            member: None,
            reason: failure.reason,
        }));
        self.act(action)
    }

    /// This keeper itself did not run for so long that others may have taken it for gone.
    pub fn paused(&mut self, time: Duration, now: Instant) {
        if let Some(job) = &mut self.job {
            job.paused(time, now, self.patience);
        }
    }

    fn act(&mut self, action: Option<Action>) -> Option<Decision> {
        match action? {
            Action::Kill => Some(Decision::Kill),
            action => {
                let ending = self.ending_of_job();
                self.decide(action == Action::EndWithStacks, ending)
            }
        }
    }

    /// Decides that the job ends; only the first cause counts.
    fn decide(&mut self, stacks: bool, ending: Ending) -> Option<Decision> {
        if self.ending.is_some() {
            return None;
        }
        self.ending = Some(ending.clone());
        Some(Decision::End { stacks, ending })
    }

    fn ending_of_job(&self) -> Ending {
        let Some(job) = &self.job else {
            return Ending::default();
        };
        let failure = job.failure().map(|failure| Failure {
            host: failure.host,
            index: failure.member.and_then(|at| self.index(failure.host, at)),
            reason: failure.reason.clone(),
        });
        Ending {
            cause: job.cause().cloned(),
            failure,
        }
    }

    /// The position of the first process of a host among all processes.
    fn first(&self, host: u32) -> usize {
        self.hosts
            .range(..host)
            .map(|(_, (members, _))| members.len())
            .sum()
    }

    fn position(&self, host: u32, index: u32) -> Option<usize> {
        let (members, _) = self.hosts.get(&host)?;
        let index = usize::try_from(index)
            .ok()
            .filter(|index| *index < members.len())?;
        Some(self.first(host) + index)
    }

    fn index(&self, host: u32, at: usize) -> Option<u32> {
        u32::try_from(at.checked_sub(self.first(host))?).ok()
    }
}

fn stranger() -> Loss {
    Loss::Other("it told of a process that it does not have".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::ExitStatus::{Code, Signal};
    use job::{Cause, Reason};

    const MINUTE: Duration = Duration::from_secs(60);

    /// Two hosts with a server and a trainer each, begun.
    fn begun(limits: Vec<Limit>) -> (Leader, Instant) {
        let now = Instant::now();
        let rule = StallRule {
            limit: MINUTE,
            ends: true,
        };
        let mut leader = Leader::new(2, limits, Some(rule), MINUTE, now);
        for host in [4, 1] {
            assert_eq!(leader.member(host, Role::Server, true), None);
            assert_eq!(leader.member(host, Role::Trainer, false), None);
        }
        assert_eq!(leader.joined(1, now), None);
        assert_eq!(leader.joined(4, now), Some(Decision::Begin));
        (leader, now)
    }

    fn end(cause: Option<Cause>, failure: Option<Failure>) -> Option<Decision> {
        Some(Decision::End {
            stacks: false,
            ending: Ending { cause, failure },
        })
    }

    #[test]
    fn the_first_failure_ends_the_job_on_all_hosts() {
        let (mut leader, now) = begun(Vec::new());
        let failure = Failure {
            host: 4,
            index: Some(1),
            reason: Reason::Ended(Signal(9).into()),
        };
        assert_eq!(
            leader.exited(4, 1, Signal(9).into(), now),
            end(Some(Cause::Process), Some(failure))
        );
        assert_eq!(leader.exited(1, 1, Code(1).into(), now), None);
        assert_eq!(leader.lost(1, Loss::KeeperGone), None);
    }

    #[test]
    fn all_ended_well() {
        let (mut leader, now) = begun(Vec::new());
        for (host, index) in [(1, 0), (4, 1), (1, 1)] {
            assert_eq!(leader.exited(host, index, Code(0).into(), now), None);
        }
        assert_eq!(leader.exited(4, 0, Code(0).into(), now), end(None, None));
    }

    #[test]
    fn servers_must_listen_in_time() {
        let (mut leader, now) = begun(vec![Limit::Start(MINUTE)]);
        assert_eq!(leader.listening(1, 0), None);
        let failure = Failure {
            host: 4,
            index: Some(0),
            reason: Reason::NotListening(MINUTE),
        };
        let ending = Ending {
            cause: Some(Cause::Time(Limit::Start(MINUTE))),
            failure: Some(failure),
        };
        assert_eq!(
            leader.tick(1, now + MINUTE),
            Some(Decision::End {
                stacks: true,
                ending
            })
        );
        assert_eq!(leader.tick(1, now + MINUTE * 2), None);
    }

    #[test]
    fn a_job_that_stalls_is_asked_about_and_ended() {
        let (mut leader, now) = begun(Vec::new());
        assert_eq!(leader.idle(1, MINUTE), []);
        assert_eq!(leader.idle(4, MINUTE), [Decision::Ask(1)]);
        assert_eq!(leader.stands(4, 1, MINUTE), []);
        let stalled = Stalled {
            number: 1,
            silent_ms: 60_000,
            ends: true,
        };
        let ending = Ending {
            cause: Some(Cause::Stalled(MINUTE)),
            failure: None,
        };
        let decisions = [
            Decision::Stalled(stalled),
            Decision::End {
                stacks: false,
                ending,
            },
        ];
        assert_eq!(leader.stands(1, 1, MINUTE), decisions);
        assert_eq!(leader.moves(1, Moves::default()), [], "it is ending");
        assert_eq!(leader.exited(1, 1, Signal(15).into(), now), None);
    }

    #[test]
    fn a_process_that_raised_and_stays_has_failed() {
        let (mut leader, _) = begun(Vec::new());
        let failure = Failure {
            host: 4,
            index: Some(1),
            reason: Reason::Raised("E: 1".to_owned()),
        };
        assert_eq!(
            leader.raised(4, 1, "E: 1".to_owned()),
            end(Some(Cause::Process), Some(failure))
        );
    }

    #[test]
    fn a_host_is_lost() {
        let (mut leader, _) = begun(Vec::new());
        let ending = Ending::lost(4, Loss::Silent(MINUTE));
        assert_eq!(
            leader.lost(4, Loss::Silent(MINUTE)),
            Some(Decision::End {
                stacks: false,
                ending
            })
        );
    }

    #[test]
    fn a_host_that_does_not_join_is_waited_for_and_no_longer() {
        let now = Instant::now();
        let mut leader = Leader::new(3, Vec::new(), None, MINUTE, now);
        assert_eq!((leader.joined(0, now), leader.tick(0, now)), (None, None));
        let ending = Ending::lost(
            0,
            Loss::NotJoined {
                joined: 1,
                hosts: 3,
            },
        );
        assert_eq!(
            leader.tick(0, now + MINUTE),
            Some(Decision::End {
                stacks: false,
                ending
            })
        );
        assert_eq!(leader.joined(1, now), None);
        assert_eq!(leader.joined(2, now), None, "what has ended does not begin");
    }

    #[test]
    fn a_host_speaks_for_its_own_processes_alone() {
        type Tell = fn(&mut Leader, Instant) -> Option<Decision>;
        let table: [(&str, u32, Tell); 6] = [
            ("an exception of nobody", 4, |leader, _| {
                leader.raised(4, 2, String::new())
            }),
            ("a process too many", 4, |leader, now| {
                leader.exited(4, 2, Code(0).into(), now)
            }),
            ("a server too many", 1, |leader, _| leader.listening(1, 7)),
            ("no host of the job", 9, |leader, now| {
                leader.exited(9, 0, Code(0).into(), now)
            }),
            ("a process told late", 1, |leader, _| {
                leader.member(1, Role::Trainer, false)
            }),
            ("the largest number", 4, |leader, now| {
                leader.exited(4, u32::MAX, Code(0).into(), now)
            }),
        ];
        for (case, host, tell) in table {
            let (mut leader, now) = begun(Vec::new());
            let decision = tell(&mut leader, now);
            let Some(Decision::End {
                ending:
                    Ending {
                        failure: Some(failure),
                        ..
                    },
                ..
            }) = decision
            else {
                panic!("{case}: {decision:?}")
            };
            assert_eq!((failure.host, failure.index), (host, None), "{case}");
        }
    }

    #[test]
    fn one_signal_to_all_hosts_is_one_and_a_second_one_is_impatient() {
        let (mut leader, now) = begun(Vec::new());
        let later = now + ONE_SIGNAL * 2;
        assert_eq!(leader.stop(4, 15, now), end(Some(Cause::Signal(15)), None));
        assert_eq!(leader.stop(1, 15, later), None, "a slow host");
        assert_eq!(leader.stop(4, 15, now), None);
        assert_eq!(leader.end(later), None);
        assert_eq!(leader.stop(4, 15, later), Some(Decision::Kill));
        let (mut leader, now) = begun(Vec::new());
        let decisions = leader.kill(now);
        assert_eq!((decisions.len(), &decisions[1]), (2, &Decision::Kill));
        assert_eq!(leader.kill(now), [Decision::Kill]);
    }

    #[test]
    fn a_job_that_has_not_begun_can_be_ended_too() {
        let now = Instant::now();
        let mut leader = Leader::new(2, Vec::new(), None, MINUTE, now);
        assert_eq!(leader.stop(0, 15, now), end(Some(Cause::Signal(15)), None));
        assert_eq!(leader.lost(1, Loss::KeeperGone), None);
    }
}
