//! Decides whether a job stalls: a state machine that opens nothing and asks no clock.
//!
//! The agent of each host reports, by its own clock, for how long none of its processes has shown
//! activity. That alone decides nothing: a report may be delayed (by a launcher that was stopped,
//! for instance), and two hosts that were idle one after the other do not make a stall. When all
//! hosts report that they are idle, all are asked; the job stalls only if all answer that they have
//! been idle for the whole time. A host also counts as idle if its processes compute but their
//! stacks stay the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::supervise::Computing;

/// The shortest limit. A worker of torch that waits in gloo uses 2 to 4 hundredths of a second of
/// CPU time in 10 seconds, perhaps at once, and the kernel counts in hundredths. So at least 5
/// hundredths show that a process does not wait, and one that uses 1 % of a processor needs 5
/// seconds for them.
pub const SHORTEST_STALL: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallStep {
    /// Ask all hosts for their processes' stacks.
    Ask,
    Stalled {
        silent: Duration,
        /// What processes on any host do that compute nevertheless.
        computing: Option<Computing>,
    },
    Resumed,
}

#[derive(Debug)]
pub struct StallWatch {
    limit: Duration,
    /// The hosts that have processes of the job.
    hosts: BTreeSet<u32>,
    /// The hosts that have not reported that they are idle.
    active: BTreeSet<u32>,
    phase: StallPhase,
    /// The hosts that have not answered the last question; the next one waits for them.
    asked: BTreeSet<u32>,
}

#[derive(Debug)]
enum StallPhase {
    Watching,
    /// All hosts were asked. The answers so far: for how long the host had been idle, and what its
    /// processes do that compute.
    Asking(BTreeMap<u32, (Duration, Option<Computing>)>),
    Stalled,
}

impl StallWatch {
    /// Watches a job that was just started on these hosts.
    pub fn new(limit: Duration, hosts: impl IntoIterator<Item = u32>) -> StallWatch {
        let hosts: BTreeSet<u32> = hosts.into_iter().collect();
        StallWatch {
            limit,
            active: hosts.clone(),
            hosts,
            phase: StallPhase::Watching,
            asked: BTreeSet::new(),
        }
    }

    /// Handles a report of for how long a host's processes have been idle.
    pub fn idle(&mut self, host: u32, time: Duration) -> Option<StallStep> {
        self.hosts.get(&host)?;
        if time < self.limit {
            self.active.insert(host);
            return match std::mem::replace(&mut self.phase, StallPhase::Watching) {
                StallPhase::Stalled => Some(StallStep::Resumed),
                StallPhase::Watching | StallPhase::Asking(_) => None,
            };
        }
        self.active.remove(&host);
        let may_ask = matches!(self.phase, StallPhase::Watching) && self.asked.is_empty();
        if !may_ask || !self.active.is_empty() {
            return None;
        }
        self.asked = self.hosts.clone();
        self.phase = StallPhase::Asking(BTreeMap::new());
        Some(StallStep::Ask)
    }

    /// Handles an answer: the host's processes have been idle for this long, or those that compute
    /// have not changed their stacks.
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

    /// Notes that a host no longer has the job's processes.
    pub fn gone(&mut self, host: u32) -> Option<StallStep> {
        self.hosts.take(&host)?;
        self.active.remove(&host);
        self.asked.remove(&host);
        self.conclude()
    }

    fn conclude(&mut self) -> Option<StallStep> {
        let StallPhase::Asking(answers) = &self.phase else {
            return None;
        };
        if !self.asked.is_empty() {
            return None;
        }
        let of_hosts = || self.hosts.iter().filter_map(|host| answers.get(host));
        let silent = of_hosts().map(|(idle, _)| *idle).min()?;
        let computing = of_hosts().filter_map(|(_, computing)| *computing).max();
        self.phase = StallPhase::Stalled;
        Some(StallStep::Stalled { silent, computing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StallStep::{Ask, Resumed};

    /// A message of one of two hosts; times are in seconds.
    #[derive(Clone, Copy, Debug)]
    enum Say {
        Idle(u32, u64),
        Answer(u32, u64),
        Computes(u32, u64, Computing),
        Gone(u32),
    }
    use Computing::{MayWork, Waits};
    use Say::{Answer, Computes, Gone, Idle};

    /// The resulting steps with a limit of 60 s.
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
        let all_idle = [Idle(0, 60), Idle(1, 62)];
        let with = |more: &[Say]| [&all_idle[..], more].concat();
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
                "a delayed report is no evidence",
                with(&[Answer(0, 61), Answer(1, 3)]),
                vec![Ask],
            ),
            (
                "a host is active before all have answered",
                with(&[Answer(0, 61), Idle(1, 0), Answer(1, 63)]),
                vec![Ask],
            ),
            (
                "the next question waits for the answers to the last one",
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
                "a host without processes is not waited for",
                with(&[Answer(0, 61), Gone(1), Gone(0)]),
                vec![Ask, stalled(61)],
            ),
            (
                "once for each stall",
                with(&[Answer(0, 61), Answer(1, 63), Idle(0, 99), Idle(1, 99)]),
                vec![Ask, stalled(61)],
            ),
            (
                "one host spins, the other is idle",
                with(&[Computes(0, 61, Waits), Answer(1, 63)]),
                vec![Ask, stalled_computing(61, Some(Waits))],
            ),
            (
                "possible work outweighs waiting",
                with(&[Computes(0, 61, MayWork), Computes(1, 63, Waits)]),
                vec![Ask, stalled_computing(61, Some(MayWork))],
            ),
            (
                "a host was active meanwhile",
                with(&[Computes(0, 61, Waits), Computes(1, 3, Waits)]),
                vec![Ask],
            ),
            (
                "the answer of a host without processes does not count",
                with(&[Computes(0, 61, MayWork), Gone(0), Answer(1, 63)]),
                vec![Ask, stalled(63)],
            ),
            (
                "a host that the job does not have",
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
