//! Turns the events that hosts report about a job into the next steps of its owner.

use crate::job_life::{JobEnd, JobLife};
use crate::model::JobStalled;
use crate::stall::{StallStep, StallWatch};
use std::time::{Duration, Instant};
use wire::Event;
use wire::ending::Loss;
use wire::supervise::{Activity, Computing};

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// End the job on all hosts.
    End(JobEnd),
    /// Request all hosts to report their stacks.
    AskForStacks,
    Stalled(JobStalled),
    /// Report that the job shows activity again, on this host.
    Resumed(u32, Activity),
}

impl JobLife {
    pub fn event(&mut self, host: u32, event: &Event, now: Instant) -> Vec<Step> {
        let end = match event {
            Event::Listening(listening) => {
                self.listening((host, listening.index));
                None
            }
            Event::Exited(exited) => self.exited((host, exited.index), exited.end, now),
            Event::Raised(raised) if self.rules.fail_on_exception && raised.has_failed() => {
                self.raised((host, raised.index), raised.exception.clone())
            }
            Event::ServersEnded(ended) => self.servers_ended(ended.failure.clone()),
            Event::Activity(activity) => return self.activity(host, *activity),
            Event::StacksReported(reported) => {
                let idle = Duration::from_millis(reported.idle_ms);
                return self.step_of_stall(|watch| watch.answered(host, idle, reported.computing));
            }
            Event::Over(_) => {
                return self.host_lost(host, "someone else stopped the job on the host");
            }
            _ => None,
        };
        end.map(Step::End).into_iter().collect()
    }

    /// Handles the loss of a host, or the end of its part of the job.
    pub fn host_lost(&mut self, host: u32, why: impl Into<Loss>) -> Vec<Step> {
        let mut steps = self.step_of_stall(|watch| watch.gone(host));
        steps.extend(self.end_for_lost_host(host, why).map(Step::End));
        steps
    }

    fn activity(&mut self, host: u32, activity: Activity) -> Vec<Step> {
        let idle = Duration::from_millis(activity.idle_ms);
        let step = self.stall.as_mut();
        match step.and_then(|watch| watch.idle(host, idle)) {
            // processes show activity while they are being ended, too
            _ if self.ending().is_some() => Vec::new(),
            Some(StallStep::Resumed) => vec![Step::Resumed(host, activity)],
            step => self.step_of_stall(|_| step),
        }
    }

    fn step_of_stall(
        &mut self,
        report: impl FnOnce(&mut StallWatch) -> Option<StallStep>,
    ) -> Vec<Step> {
        let step = self.stall.as_mut().and_then(report);
        match (step, self.rules.stall) {
            _ if self.ending().is_some() => Vec::new(),
            (Some(StallStep::Ask), _) => vec![Step::AskForStacks],
            (Some(StallStep::Stalled { silent, computing }), Some(rule)) => {
                // from outside, one long call looks like a wait that spins
                let ends = rule.ends && computing != Some(Computing::MayWork);
                let end = ends.then(|| self.stalled(rule.limit)).flatten();
                let stalled = Step::Stalled(JobStalled {
                    silent,
                    computing,
                    ends,
                });
                [stalled].into_iter().chain(end.map(Step::End)).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobMember;
    use record::Role;
    use record::exit::{ProcessEnd, SignalNumber};
    use wire::Request;
    use wire::ending::{Cause, Ending, JobFailure, Limit, Reason, Rules, StallRule};
    use wire::supervise::{End, Exited, Over, Raised, StacksReported};

    const MINUTE: Duration = Duration::from_secs(60);

    /// Two hosts with a server and a trainer each.
    fn begun() -> (JobLife, Instant) {
        let stall = StallRule {
            limit: MINUTE,
            ends: true,
        };
        let rules = Rules {
            limits: vec![Limit::Start(MINUTE)],
            stall: Some(stall),
            fail_on_exception: true,
            grace: Duration::from_secs(2),
        };
        let server = JobMember {
            role: Role::Server,
            service: false,
            awaited: true,
        };
        let trainer = JobMember {
            role: Role::Trainer,
            service: false,
            awaited: false,
        };
        let hosts = [4, 1].map(|host| (host, vec![server, trainer]));
        let now = Instant::now();
        (JobLife::new(hosts, rules, MINUTE, now), now)
    }

    const END: Step = Step::End(JobEnd::Term);

    fn exited(index: u32, end: ProcessEnd) -> Event {
        Event::Exited(Exited::new(index, end))
    }

    fn raised(index: u32, is_of_main: bool, left_script: Option<bool>) -> Event {
        Event::Raised(Raised {
            index,
            exception: "E: 1".to_owned(),
            silent_ms: 0,
            is_of_main,
            left_script,
            frames: Vec::new(),
        })
    }

    #[test]
    fn the_first_failure_ends_the_job() {
        let failed = |reason| {
            let failure = JobFailure {
                host: 4,
                index: Some(1),
                reason,
            };
            Some(Ending {
                cause: Some(Cause::Process),
                failure: Some(failure),
            })
        };
        let table = [
            (
                exited(1, ProcessEnd::killed(SignalNumber::KILL)),
                failed(Reason::Ended(ProcessEnd::killed(SignalNumber::KILL))),
            ),
            (
                raised(1, true, None),
                failed(Reason::Raised("E: 1".to_owned())),
            ),
            (raised(1, true, Some(false)), None),
            (raised(1, false, None), None),
            (
                Event::Over(Over { survivors: 0 }),
                Some(Ending::lost(
                    4,
                    "someone else stopped the job on the host".into(),
                )),
            ),
        ];
        for (event, expected) in table {
            let (mut job, now) = begun();
            let steps = job.event(4, &event, now);
            assert_eq!(job.ending(), expected.as_ref(), "{event:?}");
            if expected.is_none() {
                assert_eq!(steps, []);
            } else {
                assert_eq!(steps, [END], "{event:?}");
                let request = Request::End(End {
                    grace_ms: 2000,
                    stacks: false,
                    ending: expected.unwrap_or_default(),
                });
                assert_eq!(job.request(JobEnd::Term), request, "{event:?}");
                assert_eq!(job.event(1, &exited(1, ProcessEnd::exited(1)), now), []);
                assert_eq!(job.host_lost(1, "gone"), []);
            }
        }
    }

    #[test]
    fn all_ended_well() {
        let (mut job, now) = begun();
        for (host, index) in [(1, 0), (4, 1), (1, 1)] {
            assert_eq!(
                job.event(host, &exited(index, ProcessEnd::exited(0)), now),
                []
            );
        }
        assert_eq!(job.event(4, &exited(0, ProcessEnd::exited(0)), now), [END]);
        assert_eq!(job.ending(), Some(&Ending::default()));
    }

    #[test]
    fn a_job_that_stalls_is_asked_about_and_ended_unless_it_may_work() {
        let table = [
            (None, true),
            (Some(Computing::Waits), true),
            (Some(Computing::MayWork), false),
        ];
        for (computing, ends) in table {
            let (mut job, now) = begun();
            let activity = |idle_ms| {
                Event::Activity(Activity {
                    idle_ms,
                    ..Activity::default()
                })
            };
            let idle = activity(60_000);
            let stands = |computing| {
                Event::StacksReported(StacksReported {
                    idle_ms: 60_000,
                    computing,
                    stopped: Vec::new(),
                })
            };
            assert_eq!(job.event(1, &idle, now), []);
            assert_eq!(job.event(4, &idle, now), [Step::AskForStacks]);
            assert_eq!(job.event(4, &stands(None), now), []);
            let mut steps = vec![Step::Stalled(JobStalled {
                silent: MINUTE,
                computing,
                ends,
            })];
            steps.extend(ends.then_some(END));
            assert_eq!(job.event(1, &stands(computing), now), steps);
            let cause = ends.then_some(Cause::Stalled(MINUTE));
            assert_eq!(job.ending().and_then(|ending| ending.cause.clone()), cause);
            let moves = job.event(1, &activity(0), now);
            assert_eq!(
                moves.is_empty(),
                ends,
                "nothing is reported while a job ends"
            );
        }
    }
}
