//! Whether a job stalls: a state machine that opens nothing and asks no clock.
//!
//! The agent of each host watches its own processes by its own clock, and reports for how long none
//! of them has given a sign of life. That alone decides nothing, because a report may be delayed
//! (behind a launcher that was stopped, for instance), and two hosts that were idle one after the
//! other do not make a stall. So when all hosts report that they are idle, all are asked; only if
//! all answer that they have been idle for the whole time is it a stall. A host is idle for this
//! purpose too if processes compute, but none of them has left its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::supervise::Computing;

/// The shortest limit. A worker of torch that waits in gloo takes 2 to 4 hundredths of a second of
/// CPU time in 10 seconds, which may come at once, and the kernel counts in hundredths: only
/// 5 of them are more than waiting, and a process that uses 1 % of a processor takes 5 seconds for
/// them.
pub const SHORTEST_STALL: Duration = Duration::from_secs(5);

/// The next step that the owner of the job takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallStep {
    /// Ask all hosts for the stacks of their processes.
    Ask,
    /// The job stalls.
    Stalled {
        /// For how long there has been no sign of life.
        silent: Duration,
        /// What processes do that compute all the same, on all hosts.
        computing: Option<Computing>,
    },
    /// A job that stalled moves again.
    Resumed,
}

/// Watches the hosts of a job.
#[derive(Debug)]
pub struct StallWatch {
    limit: Duration,
    /// The hosts that have processes of the job, each with the time for which it has been idle by
    /// its last report.
    hosts: BTreeMap<u32, Duration>,
    phase: StallPhase,
    /// The hosts that have not answered the last question. Only when all have is there another.
    asked: BTreeSet<u32>,
}

#[derive(Debug)]
enum StallPhase {
    Watching,
    /// All hosts were asked. The map holds those that have answered, with the time for which each
    /// had been idle, and whether processes compute there.
    Asking(BTreeMap<u32, (Duration, Option<Computing>)>),
    Stalled,
}

impl StallWatch {
    /// Starts to watch a job that has just been started on these hosts.
    pub fn new(limit: Duration, hosts: impl IntoIterator<Item = u32>) -> StallWatch {
        StallWatch {
            limit,
            hosts: hosts
                .into_iter()
                .map(|host| (host, Duration::ZERO))
                .collect(),
            phase: StallPhase::Watching,
            asked: BTreeSet::new(),
        }
    }

    /// A host reports that its processes have been idle for this long.
    pub fn idle(&mut self, host: u32, time: Duration) -> Option<StallStep> {
        *self.hosts.get_mut(&host)? = time;
        if time < self.limit {
            return match std::mem::replace(&mut self.phase, StallPhase::Watching) {
                StallPhase::Stalled => Some(StallStep::Resumed),
                StallPhase::Watching | StallPhase::Asking(_) => None,
            };
        }
        let are_idle = self.hosts.values().all(|time| *time >= self.limit);
        if !matches!(self.phase, StallPhase::Watching) || !are_idle || !self.asked.is_empty() {
            return None;
        }
        self.asked = self.hosts.keys().copied().collect();
        self.phase = StallPhase::Asking(BTreeMap::new());
        Some(StallStep::Ask)
    }

    /// A host answers the question: its processes have been idle for this long, or those that
    /// compute have stood still.
    pub fn answered(
        &mut self,
        host: u32,
        idle: Duration,
        computing: Option<Computing>,
    ) -> Option<StallStep> {
        if !self.asked.remove(&host) {
            return None;
        }
        if idle < self.limit {
            return self.idle(host, idle);
        }
        if let StallPhase::Asking(answers) = &mut self.phase {
            answers.insert(host, (idle, computing));
        }
        self.conclude()
    }

    /// A host has no processes of the job any more.
    pub fn gone(&mut self, host: u32) -> Option<StallStep> {
        self.hosts.remove(&host)?;
        self.asked.remove(&host);
        self.conclude()
    }

    /// Decides as soon as all hosts have answered.
    fn conclude(&mut self) -> Option<StallStep> {
        let StallPhase::Asking(answers) = &self.phase else {
            return None;
        };
        if !self.hosts.keys().all(|host| answers.contains_key(host)) {
            return None;
        }
        let last = || self.hosts.keys().filter_map(|host| answers.get(host));
        let silent = last().map(|(idle, _)| *idle).min()?;
        let computing = last().filter_map(|(_, computing)| *computing).max();
        self.phase = StallPhase::Stalled;
        Some(StallStep::Stalled { silent, computing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StallStep::{Ask, Resumed};

    /// What a host of two says, with seconds where it says them.
    #[derive(Clone, Copy, Debug)]
    enum Say {
        Idle(u32, u64),
        Answer(u32, u64),
        Computes(u32, u64, Computing),
        Gone(u32),
    }
    use Computing::{MayWork, Waits};
    use Say::{Answer, Computes, Gone, Idle};

    /// What comes of it, where the limit is 60 s.
    fn steps(given: &[Say]) -> Vec<StallStep> {
        let seconds = Duration::from_secs;
        let mut watch = StallWatch::new(seconds(60), [0, 1]);
        let step = |say: &Say| match *say {
            Idle(host, time) => watch.idle(host, seconds(time)),
            Answer(host, time) => watch.answered(host, seconds(time), None),
            Computes(host, time, computing) => watch.answered(host, seconds(time), Some(computing)),
            Gone(host) => watch.gone(host),
        };
        given.iter().filter_map(step).collect()
    }

    fn stalled(silent: u64) -> StallStep {
        stalled_computing(silent, None)
    }

    fn stalled_computing(silent: u64, computing: Option<Computing>) -> StallStep {
        StallStep::Stalled {
            silent: Duration::from_secs(silent),
            computing,
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn a_stall_is_what_all_hosts_confirm() {
        let all = [Idle(0, 60), Idle(1, 62)];
        let with = |more: &[Say]| [&all[..], more].concat();
        let table: [(&str, Vec<Say>, Vec<StallStep>); 13] = [
            (
                "one host is not enough",
                vec![Idle(0, 600), Idle(1, 59)],
                vec![],
            ),
            ("all are asked, once", with(&[Idle(0, 70)]), vec![Ask]),
            (
                "the shortest time counts",
                with(&[Answer(0, 61), Answer(1, 63)]),
                vec![Ask, stalled(61)],
            ),
            (
                "what was told late is no evidence",
                with(&[Answer(0, 61), Answer(1, 3)]),
                vec![Ask],
            ),
            (
                "it moves before all have answered",
                with(&[Answer(0, 61), Idle(1, 0), Answer(1, 63)]),
                vec![Ask],
            ),
            (
                "an answer to an earlier question, before which there is no other",
                with(&[
                    Idle(0, 1),
                    Idle(0, 60),
                    Answer(0, 99),
                    Answer(1, 99),
                    Idle(1, 99),
                ]),
                vec![Ask, Ask],
            ),
            (
                "who has gone is not waited for",
                with(&[Answer(0, 61), Gone(1), Gone(0)]),
                vec![Ask, stalled(61)],
            ),
            (
                "once for each stall",
                with(&[Answer(0, 61), Answer(1, 63), Idle(0, 99), Idle(1, 99)]),
                vec![Ask, stalled(61)],
            ),
            (
                "one host spins, the other rests",
                with(&[Computes(0, 61, Waits), Answer(1, 63)]),
                vec![Ask, stalled_computing(61, Some(Waits))],
            ),
            (
                "what may be work counts most",
                with(&[Computes(0, 61, MayWork), Computes(1, 63, Waits)]),
                vec![Ask, stalled_computing(61, Some(MayWork))],
            ),
            (
                "who computes there has moved meanwhile",
                with(&[Computes(0, 61, Waits), Computes(1, 3, Waits)]),
                vec![Ask],
            ),
            (
                "what a host does that has gone does not matter",
                with(&[Computes(0, 61, MayWork), Gone(0), Answer(1, 63)]),
                vec![Ask, stalled(63)],
            ),
            (
                "no host of the job",
                vec![Idle(0, 60), Idle(7, 60), Idle(7, 0), Gone(7)],
                vec![],
            ),
        ];
        for (case, given, expected) in table {
            assert_eq!(steps(&given), expected, "{case}");
        }
    }

    #[test]
    fn a_job_that_moves_again_can_stall_again() {
        let given = [
            Idle(0, 60),
            Idle(1, 60),
            Answer(1, 60),
            Answer(0, 60),
            Idle(1, 0),
            Idle(1, 0),
            Idle(1, 59),
            Idle(1, 61),
            Answer(1, 62),
            Answer(0, 130),
        ];
        let expected = [Ask, stalled(60), Resumed, Ask, stalled(62)];
        assert_eq!(steps(&given), expected);
    }
}
