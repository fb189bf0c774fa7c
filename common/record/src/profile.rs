//! Where the Python processes of a job spend their time: counted stacks, and the process for which
//! the others wait according to them.

use crate::Role;
use crate::stacks::{self, Member, Wait};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::{BTreeMap, BTreeSet};

/// The stacks of one process of a job, sampled over some time.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Profile {
    /// The job's name.
    pub job: String,
    /// The `id` of the host.
    pub host: u32,
    /// The `id` of the process record, if the role and the rank are known.
    pub id: Option<u32>,
    /// The role of the process in its job.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
    /// The process id on that host.
    pub pid: u32,
    /// The process of the same role and rank that started this one, such as the trainer of a
    /// sampler.
    pub parent: Option<u32>,
    /// The command of the process, cut at 200 characters.
    pub command: String,
    /// The intended number of samples per second.
    pub rate: u32,
    /// How many samples of its stacks were taken.
    pub samples: u32,
    /// How many samples failed, or were left out because they would have been late.
    pub missed: u32,
    /// From the first sample to the last, in milliseconds.
    pub elapsed_ms: u64,
    /// When the last sample was taken, in milliseconds since 1970.
    pub time_ms: u64,
    /// All frames of the stacks, as `function (file.py:123)`; stacks refer to them by their index.
    #[serde(default)]
    pub frames: Vec<String>,
    /// Its threads, those of one name together.
    #[serde(default)]
    pub threads: Vec<ThreadProfile>,
    /// Why there are no threads.
    pub error: Option<String>,
}

/// The threads of one name of a process.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThreadProfile {
    /// The name that Python gives them, without a number.
    pub name: Option<String>,
    /// Each sampled stack, the most frequent first.
    pub stacks: Vec<CountedStack>,
}

/// A stack, and the number of its samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CountedStack {
    /// Indices into `frames`, the innermost frame first.
    pub frames: Vec<u32>,
    /// The number of samples with this stack.
    pub samples: u32,
    /// In how many of these the thread computed.
    pub active: u32,
    /// How often a thread changed to this stack from another one.
    pub visits: u32,
}

impl Profile {
    pub fn main_thread(&self) -> Option<&ThreadProfile> {
        self.threads
            .iter()
            .find(|thread_stacks| thread_stacks.name.as_deref() == Some(stacks::MAIN_THREAD))
    }

    pub fn frames_of(&self, stack: &CountedStack) -> Vec<String> {
        stack
            .frames
            .iter()
            .filter_map(|frame_index| self.frames.get(*frame_index as usize).cloned())
            .collect()
    }

    /// Whether another process of the job started it, as a sampler.
    pub fn is_child(&self) -> bool {
        let stack = self.main_thread().and_then(|main| main.stacks.first());
        self.parent.is_some()
            || stack.is_some_and(|stack| stacks::child(&self.frames_of(stack)).is_some())
    }

    /// `None` for a child, and if role or rank is unknown.
    pub fn member(&self) -> Option<Member> {
        (!self.is_child()).then_some((self.role?, self.rank?))
    }

    /// Lines of the main thread, the most frequent first.
    pub fn lines(&self) -> Vec<LineCount> {
        self.lines_of(stacks::MAIN_THREAD)
    }

    pub fn lines_of(&self, thread: &str) -> Vec<LineCount> {
        let mut lines: BTreeMap<(String, Option<Wait>), LineCount> = BTreeMap::new();
        for stack in self
            .threads
            .iter()
            .filter(|thread_stacks| thread_stacks.name.as_deref() == Some(thread))
            .flat_map(|thread_stacks| &thread_stacks.stacks)
        {
            let frames = self.frames_of(stack);
            let line = stacks::own_frame(&frames).unwrap_or("no frame").to_owned();
            let wait = stacks::wait(&frames);
            // in DDP's passes a process computes, then waits for the others
            let waiting = match wait {
                Some(Wait::Forward | Wait::Backward) => stack.samples.saturating_sub(stack.active),
                Some(_) => stack.samples,
                None => 0,
            };
            let parts = [(wait, waiting), (None, stack.samples - waiting)];
            for (wait, samples) in parts.into_iter().filter(|(_, samples)| *samples > 0) {
                let count = lines
                    .entry((line.clone(), wait))
                    .or_insert_with(|| LineCount {
                        line: line.clone(),
                        wait,
                        ..LineCount::default()
                    });
                count.samples += samples;
                count.active += stack.active.min(samples);
                count.visits += stack.visits;
            }
        }
        let mut lines: Vec<LineCount> = lines.into_values().collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.samples));
        lines
    }
}

/// How often the main thread was at a line of the script, and what it waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineCount {
    /// The innermost frame in the user's own code.
    pub line: String,
    pub wait: Option<Wait>,
    pub samples: u32,
    pub active: u32,
    pub visits: u32,
}

impl LineCount {
    pub fn words(&self) -> String {
        match self.wait {
            Some(wait) => format!("{} [{}]", wait.words(), self.line),
            None => self.line.clone(),
        }
    }

    fn waits_for_others(&self) -> bool {
        self.wait.is_some_and(Wait::is_for_others)
    }
}

/// The main thread's time, as shares of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeShares {
    /// Waiting for other trainers or workers.
    pub others: f64,
    /// Waiting for graph servers or remote calls.
    pub servers: f64,
    /// Waiting for samplers or data loaders.
    pub loading: f64,
    pub computing: f64,
}

impl TimeShares {
    pub fn of(profile: &Profile) -> TimeShares {
        let mut shares = TimeShares::default();
        for one in profile.lines() {
            let share = f64::from(one.samples) / f64::from(profile.samples.max(1));
            match one.wait {
                Some(Wait::RemoteCall | Wait::Servers | Wait::ServersStart) => {
                    shares.servers += share;
                }
                Some(Wait::Samplers) => shares.loading += share,
                Some(_) => shares.others += share,
                None => shares.computing += share,
            }
        }
        shares
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slow {
    pub members: Vec<Member>,
    /// If all of them are on one host.
    pub host: Option<u32>,
    /// The line at which they were more often than the others.
    pub line: String,
    /// The share of their samples at that line.
    pub share: f64,
    pub samples: u32,
    /// The others, what they wait for, and in which share of the samples.
    pub others: Vec<Member>,
    pub others_wait: String,
    pub others_share: f64,
}

/// Fewer are no evidence.
const FEWEST_SAMPLES: u32 = 20;
/// The least difference between the shares of time that the slow processes and the others wait.
const LEAST_DIFFERENCE: f64 = 0.05;
/// Of the time that any other waits, a slow process waits at most this part.
const MOST_OF_OTHERS: f64 = 0.75;
/// The difference must be this many standard deviations.
const DEVIATIONS: f64 = 3.0;

struct Vote<'p> {
    profile: &'p Profile,
    member: Member,
    lines: Vec<LineCount>,
    /// The share of samples in which it waited for others.
    waiting: f64,
    waits: u32,
}

impl Vote<'_> {
    fn of(profile: &Profile) -> Option<Vote<'_>> {
        let member = profile.member()?;
        let is_counted = profile.samples >= FEWEST_SAMPLES && member.0 != Role::Server;
        let lines = profile.lines();
        let waiting = || lines.iter().filter(|line| line.waits_for_others());
        let samples: u32 = waiting().map(|line| line.samples).sum();
        let waits = waiting().map(|line| line.visits).sum();
        is_counted.then(|| Vote {
            profile,
            member,
            waiting: f64::from(samples) / f64::from(profile.samples),
            waits,
            lines,
        })
    }

    /// The variance by chance, if all have waited this often: all samples of one wait are one
    /// observation, and all samples between two waits are another.
    fn variance(&self, waits: u32) -> f64 {
        let observations = f64::from((2 * waits + 1).min(self.profile.samples));
        let smoothed = (self.waiting * observations + 0.5) / (observations + 1.0);
        smoothed * (1.0 - smoothed) / observations
    }

    fn share_of(&self, line: &str) -> f64 {
        let samples: u32 = self
            .lines
            .iter()
            .filter(|one| one.line == line && !one.waits_for_others())
            .map(|one| one.samples)
            .sum();
        f64::from(samples) / f64::from(self.profile.samples)
    }
}

/// The processes that rarely wait for others, at most a third of a role, or one of two. `None` if
/// chance can explain the differences.
pub fn slow(profiles: &[Profile]) -> Option<Slow> {
    let mut roles: BTreeMap<Role, BTreeMap<u32, Vote<'_>>> = BTreeMap::new();
    for vote in profiles.iter().filter_map(Vote::of) {
        let (role, rank) = vote.member;
        // the latest record of a process counts
        roles.entry(role).or_default().insert(rank, vote);
    }
    roles
        .into_values()
        .find_map(|votes| slow_of(votes.into_values().collect()))
}

fn slow_of(mut votes: Vec<Vote<'_>>) -> Option<Slow> {
    votes.sort_by(|a, b| a.waiting.total_cmp(&b.waiting));
    let difference = |index: usize| votes[index].waiting - votes[index - 1].waiting;
    let most = (votes.len() / 3).max(1);
    let counts = 1..=most.min(votes.len().checked_sub(1)?);
    let count = counts.max_by(|a, b| difference(*a).total_cmp(&difference(*b)))?;
    let (last_slow, first_other) = (&votes[count - 1], &votes[count]);
    // all wait once for each step of the job
    let waits = votes.iter().map(|vote| vote.waits).max()?;
    let chance = (last_slow.variance(waits) + first_other.variance(waits)).sqrt();
    let stands_out = difference(count) >= LEAST_DIFFERENCE.max(DEVIATIONS * chance)
        && last_slow.waiting <= MOST_OF_OTHERS * first_other.waiting;
    if !stands_out {
        return None;
    }
    let (slow, others) = votes.split_at(count);
    let mean = |votes: &[Vote<'_>], value: &dyn Fn(&Vote<'_>) -> f64| {
        votes.iter().map(value).sum::<f64>() / votes.len() as f64
    };
    let mean_share = |votes, line: &str| mean(votes, &|vote| vote.share_of(line));
    let excess = |line: &str| mean_share(slow, line) - mean_share(others, line);
    let line = slow
        .iter()
        .flat_map(|vote| &vote.lines)
        .filter(|line| !line.waits_for_others())
        .map(|line| line.line.as_str())
        .max_by(|a, b| excess(a).total_cmp(&excess(b)))?
        .to_owned();
    let wait = others
        .iter()
        .flat_map(|vote| &vote.lines)
        .filter(|line| line.waits_for_others())
        .max_by_key(|line| line.samples)?;
    let members = |votes: &[Vote<'_>]| {
        let members: BTreeSet<Member> = votes.iter().map(|vote| vote.member).collect();
        members.into_iter().collect()
    };
    let host = slow[0].profile.host;
    Some(Slow {
        members: members(slow),
        host: slow
            .iter()
            .all(|vote| vote.profile.host == host)
            .then_some(host),
        share: mean_share(slow, &line),
        line,
        samples: slow[0].profile.samples,
        others: members(others),
        others_wait: match others.len() {
            1 => wait.words(),
            _ => stacks::plural(&wait.words()),
        },
        others_share: mean(others, &|vote| vote.waiting),
    })
}

impl Slow {
    /// Without a full stop; `name` names the slow processes.
    pub fn sentence(&self, name: impl Fn(&[Member]) -> String) -> String {
        let percent = |share: f64| (share * 100.0).round();
        format!(
            "{} {} in {} in {} % of {} samples; {} {} in {} %",
            name(&self.members),
            if self.members.len() == 1 { "is" } else { "are" },
            self.line,
            percent(self.share),
            self.samples,
            stacks::names(&self.others),
            self.others_wait,
            percent(self.others_share)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDUCE: &[&str] = &["all_reduce (torch/d/c10d.py:9)", "step (train.py:75)"];
    const BACKWARD: &[&str] = &["backward (torch/_tensor.py:5)", "step (train.py:70)"];
    const LOAD: &[&str] = &["load (lag.py:6)", "step (train.py:60)"];

    /// A profile with these counts for each stack: samples, active samples, and visits.
    fn profile(rank: u32, stacks: &[(&[&str], [u32; 3])]) -> Profile {
        let mut profile = Profile {
            host: rank / 2,
            role: Some(Role::Worker),
            rank: Some(rank),
            samples: stacks.iter().map(|(_, counts)| counts[0]).sum(),
            ..Profile::default()
        };
        let mut main = ThreadProfile {
            name: Some(stacks::MAIN_THREAD.to_owned()),
            stacks: Vec::new(),
        };
        for (frames, [samples, active, visits]) in stacks {
            let from = profile.frames.len() as u32;
            profile
                .frames
                .extend(frames.iter().map(|frame| (*frame).to_owned()));
            main.stacks.push(CountedStack {
                frames: (from..from + frames.len() as u32).collect(),
                samples: *samples,
                active: *active,
                visits: *visits,
            });
        }
        profile.threads.push(main);
        profile
    }

    /// A profile that waits in this many of 100 samples and this many visits, and loads otherwise.
    fn waits(rank: u32, waiting: u32, visits: u32) -> Profile {
        let loading = [100 - waiting, 100 - waiting, visits];
        profile(rank, &[(REDUCE, [waiting, 0, visits]), (LOAD, loading)])
    }

    #[test]
    fn who_hardly_ever_waits_is_who_the_others_wait_for() {
        let table: [(&str, Vec<Profile>, &[u32]); 9] = [
            (
                "one of four",
                vec![
                    waits(0, 60, 30),
                    waits(1, 62, 30),
                    waits(2, 2, 2),
                    waits(3, 70, 30),
                ],
                &[2],
            ),
            ("one of two", vec![waits(0, 60, 30), waits(1, 3, 3)], &[1]),
            (
                "two of six",
                (0..6)
                    .map(|rank| waits(rank, if rank < 2 { 3 } else { 60 }, 20))
                    .collect(),
                &[0, 1],
            ),
            (
                "half of them is nobody",
                (0..4)
                    .map(|rank| waits(rank, if rank < 2 { 3 } else { 60 }, 20))
                    .collect(),
                &[],
            ),
            (
                "all alike",
                (0..4).map(|rank| waits(rank, 30 + rank, 20)).collect(),
                &[],
            ),
            (
                "it waits half as long, which is chance",
                vec![waits(0, 20, 20), waits(1, 21, 20), waits(2, 10, 10)],
                &[],
            ),
            (
                "one long wait is one observation",
                vec![waits(0, 40, 1), waits(1, 42, 1), waits(2, 10, 1)],
                &[],
            ),
            ("alone", vec![waits(0, 3, 3)], &[]),
            ("nobody", Vec::new(), &[]),
        ];
        for (case, profiles, expected) in table {
            let found = slow(&profiles).map_or_else(Vec::new, |slow| slow.members);
            let ranks: Vec<u32> = found.iter().map(|(_, rank)| *rank).collect();
            assert_eq!(ranks, expected, "{case}");
        }
    }

    #[test]
    fn a_vote_in_words() {
        let profiles = [
            waits(0, 60, 30),
            waits(1, 62, 30),
            waits(2, 3, 3),
            waits(3, 70, 30),
        ];
        let slow = slow(&profiles).unwrap();
        assert_eq!(slow.host, Some(1));
        assert_eq!(
            slow.sentence(stacks::names),
            "worker 2 is in load (lag.py:6) in 97 % of 100 samples; workers 0, 1 and 3 wait in a \
             collective operation for all others [step (train.py:75)] in 64 %"
        );
    }

    #[test]
    fn a_backward_pass_that_computes_is_no_wait() {
        let pass =
            |rank, active| profile(rank, &[(BACKWARD, [80, active, 40]), (LOAD, [20, 20, 20])]);
        let shares = TimeShares::of(&pass(0, 60));
        assert_eq!((shares.others, shares.computing), (0.2, 0.8));
        assert_eq!(slow(&[pass(0, 80), pass(1, 80), pass(2, 80)]), None);
        let slow = slow(&[pass(0, 5), pass(1, 80), pass(2, 8)]).unwrap();
        assert_eq!(slow.members, [(Role::Worker, 1)]);
    }

    #[test]
    fn a_child_is_no_member() {
        let mut child = waits(0, 60, 30);
        child.parent = Some(7);
        assert_eq!(child.member(), None);
        let spawned: &[&str] = &["get (q.py:1)", "spawn_main (multiprocessing/spawn.py:120)"];
        assert_eq!(profile(0, &[(spawned, [30, 0, 1])]).member(), None);
    }
}
