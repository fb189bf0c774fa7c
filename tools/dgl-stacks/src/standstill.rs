//! Whether a job that was looked at once stands still, and for whom its processes wait.

use record::profile::Profile;
use record::stacks::{self, Comparison, Member, ProcessState};
use record::{Culprit, Process, Stack, Stalled, term};
use std::time::Duration;
use verdict::silence::Silence;

/// A job in which a process has sent data to another one within this time goes on.
const STILL: Duration = Duration::from_secs(10);
/// How long to see whether the processes that wait move, if their connections are still.
const SAMPLED: Duration = Duration::from_secs(3);

/// Why a job seems to stand still.
pub struct Standstill {
    /// A sentence without its full stop.
    reason: String,
    culprit: Option<Member>,
    /// For whom the others wait by what their connections show.
    pub silent: Option<Member>,
    since: Duration,
    /// How long stacks must be sampled to be sure; `None` if the connections suffice.
    pub sample: Option<Duration>,
}

/// Concludes from all processes that were read; `missing` are the ranks that were not found, in
/// words. `None` if the job goes on, or nothing shows that it does not.
pub fn standstill(
    stacks: &[Stack],
    comparison: &Comparison,
    silence: &Silence,
    missing: &str,
) -> Option<Standstill> {
    let has_stacks = stacks.iter().any(|stack| !stack.threads.is_empty());
    let (since, sample) = match silence.still {
        Some(time) if time < STILL => return None,
        Some(time) => (time, SAMPLED),
        None if has_stacks => (STILL, STILL),
        None if missing.is_empty() => return None,
        None => (Duration::ZERO, STILL),
    };
    let (reason, culprit) = reason(stacks, comparison, silence, missing)?;
    Some(Standstill {
        reason,
        culprit,
        silent: silence.culprit.filter(|_| silence.still.is_some()),
        since,
        sample: has_stacks.then_some(sample),
    })
}

fn reason(
    stacks: &[Stack],
    comparison: &Comparison,
    silence: &Silence,
    missing: &str,
) -> Option<(String, Option<Member>)> {
    let stopped = stacks.iter().filter(|stack| stack.is_stopped());
    let stopped: Vec<Member> = stopped.filter_map(Stack::member).collect();
    let compared = comparison.sentence(stacks::names, "");
    if !stopped.is_empty() {
        return Some(stacks::stopped(&stopped));
    }
    if !missing.is_empty() {
        if !comparison.groups().is_empty() {
            return Some((format!("{missing}; {compared}"), None));
        }
        let ranks = stacks.iter().filter(|stack| stack.member().is_some());
        let (asleep, at_work): (Vec<_>, Vec<_>) =
            ranks.partition(|rank| rank.state.as_ref().is_some_and(ProcessState::sleeps));
        return (at_work.len() < asleep.len()).then(|| (missing.to_owned(), None));
    }
    if !comparison.outliers().is_empty() {
        // if stacks and connections disagree, there is no culprit
        let agrees = |member: &Member| silence.culprit.is_none_or(|other| other == *member);
        return Some((compared, comparison.culprit().filter(agrees)));
    }
    let mut text = silence.sentences.join("; ");
    let is_culprit =
        |stack: &&Stack| silence.culprit.is_some() && stack.member() == silence.culprit;
    let culprit = stacks.iter().find(is_culprit);
    if let Some(state) = culprit.and_then(|stack| stack.state.as_ref()) {
        text += &format!("; it {}", state.words());
    }
    (!text.is_empty()).then_some((text, silence.culprit))
}

impl Standstill {
    pub fn record(&self, processes: &[Process], time_ms: u64) -> Stalled {
        let mut processes = processes.iter();
        let culprit = processes.find(|process| Some(process.member()) == self.culprit);
        Stalled {
            since_ms: time_ms.saturating_sub(term::millis(self.since)),
            silent_s: self.since.as_secs_f64(),
            computing: false,
            reason: self.reason.clone(),
            culprit: culprit.map(Culprit::of),
            time_ms,
        }
    }

    pub fn text(&self) -> String {
        format!("{}.\n", term::plain(&self.reason))
    }
}

/// When a process last sent data to another one, in words, if that was a moment ago.
pub fn moved(silence: &Silence) -> Option<String> {
    let ago = term::seconds(silence.still.filter(|time| *time < STILL)?);
    Some(format!(
        "the job goes on: a process sent data to another one {ago} ago. If it hangs, ask again in \
         a moment.\n"
    ))
}

/// Whether processes wait for others, and each of them was where `stacks` have it in all samples.
/// In a job that goes on, it would have left this place between two steps.
///
/// Where no frame shows who waits, as in programs that use sockets themselves, the connections show
/// it: all but `silent` wait.
pub fn is_confirmed(silent: Option<Member>, profiles: &[Profile], stacks: &[Stack]) -> bool {
    let waits = |profile: &&Profile| {
        let sampled = profile.main_thread().map_or(&[][..], |main| &main.stacks);
        let mut waits = sampled
            .iter()
            .filter_map(|stack| stacks::wait(&profile.frames_of(stack)));
        profile.member().is_some() && waits.any(stacks::Wait::is_for_others)
    };
    let stays = |profile: &Profile| {
        let seen = stacks
            .iter()
            .find(|stack| stack.member() == profile.member());
        match (profile.main_thread(), seen.and_then(Stack::main_frames)) {
            (Some(main), Some(frames)) => main
                .stacks
                .iter()
                .all(|stack| profile.frames_of(stack).starts_with(frames)),
            _ => false,
        }
    };
    let mut waiting: Vec<&Profile> = profiles.iter().filter(waits).collect();
    if waiting.is_empty() && silent.is_some() {
        let others = profiles.iter().filter(|profile| {
            let member = profile.member();
            member.is_some() && member != silent
        });
        waiting = others.collect();
    }
    !waiting.is_empty() && waiting.into_iter().all(stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::profile::{CountedStack, ThreadProfile};
    use record::stacks::MAIN_THREAD;
    use record::{Role, Thread};

    const WAITS: &str = "all_reduce (torch/distributed/distributed_c10d.py:1322)";

    fn worker(rank: u32, frame: &str) -> Stack {
        let main = Thread {
            name: Some(MAIN_THREAD.to_owned()),
            frames: vec![frame.to_owned()],
            ..Thread::default()
        };
        Stack {
            role: Some(Role::Worker),
            rank: Some(rank),
            threads: vec![main],
            ..Stack::default()
        }
    }

    /// Three workers, two of which wait for the third.
    fn three() -> Vec<Stack> {
        vec![
            worker(0, WAITS),
            worker(1, WAITS),
            worker(2, "load (train.py:9)"),
        ]
    }

    /// As of processes that may not be read.
    fn unread(states: [(char, &str); 3]) -> Vec<Stack> {
        let mut stacks = three();
        for (stack, (letter, function)) in stacks.iter_mut().zip(states) {
            stack.threads.clear();
            stack.error = Some("x".to_owned());
            let function = (!function.is_empty()).then(|| function.to_owned());
            stack.state = Some(ProcessState { letter, function });
        }
        stacks
    }

    /// Since when no data was sent, in milliseconds.
    fn still(ms: u64) -> Silence {
        Silence {
            still: Some(Duration::from_millis(ms)),
            ..Silence::default()
        }
    }

    fn reason(stacks: &[Stack], silence: &Silence, missing: &str) -> Option<(String, Option<u32>)> {
        let found = standstill(stacks, &Stack::compare(stacks), silence, missing)?;
        Some((found.reason, found.culprit.map(|(_, rank)| rank)))
    }

    #[test]
    fn a_job_whose_data_moves_goes_on() {
        assert_eq!(reason(&three(), &still(9000), ""), None);
        assert!(moved(&still(9000)).is_some() && moved(&still(11_000)).is_none());
        let (text, culprit) = reason(&three(), &still(11_000), "").unwrap();
        assert_eq!(culprit, Some(2));
        assert!(text.starts_with("worker 2 is in load (train.py:9), while workers 0 and 1 wait"));
    }

    #[test]
    fn who_is_named_by_connections_alone_is_described_by_its_state() {
        let futex = ('S', "futex_wait_queue");
        let silence = Silence {
            culprit: Some((Role::Worker, 2)),
            sentences: vec!["it has sent none since".to_owned()],
            ..still(11_000)
        };
        for (state, words) in [
            (
                ('S', "hrtimer_nanosleep"),
                "sleeps in the kernel's hrtimer_nanosleep",
            ),
            (('R', ""), "computes"),
            (
                ('D', "nfs_wait"),
                "waits for a disk or a file server in the kernel's nfs_wait",
            ),
        ] {
            let found = reason(&unread([futex, futex, state]), &silence, "");
            let expected = format!("it has sent none since; it {words}");
            assert_eq!(found, Some((expected, Some(2))), "{state:?}");
        }
        let nobody = reason(&unread([futex; 3]), &still(11_000), "");
        assert_eq!(nobody, None);
    }

    #[test]
    fn a_process_that_a_signal_has_stopped_is_named() {
        let mut stacks = three();
        stacks[2].state = Some(ProcessState {
            letter: 'T',
            function: None,
        });
        let stopped = "worker 2 is stopped by a signal".to_owned();
        assert_eq!(
            reason(&stacks, &still(11_000), ""),
            Some((stopped, Some(2)))
        );
    }

    #[test]
    fn ranks_that_are_missing_are_the_reason_and_nobody_is_accused() {
        let stacks: Vec<Stack> = (0..2).map(|rank| worker(rank, WAITS)).collect();
        let missing = "worker 2 of 3 was not found";
        let (text, culprit) = reason(&stacks, &Silence::default(), missing).unwrap();
        assert!(
            text.starts_with("worker 2 of 3 was not found; workers 0 and 1 wait in"),
            "{text}"
        );
        assert_eq!(culprit, None);
    }

    #[test]
    fn without_stacks_ranks_are_missed_only_if_most_others_sleep() {
        let missing = "worker 3 of 4 was not found";
        let (futex, recv) = (('S', "futex_do_wait"), ('S', "wait_woken"));
        let (nanosleep, computes) = (('S', "hrtimer_nanosleep"), ('R', ""));
        for (states, is_missed) in [
            ([futex, recv, recv], true),
            // in torch's rendezvous, without the rank 0 that they try to reach
            ([nanosleep; 3], true),
            // there too: the rank 0 of torch 1.13 asks its own store without a pause
            ([computes, recv, recv], true),
            ([computes, recv, computes], false),
            ([computes, recv, ('D', "nfs_wait")], false),
        ] {
            for silence in [Silence::default(), still(11_000)] {
                let expected = is_missed.then(|| (missing.to_owned(), None));
                let found = reason(&unread(states), &silence, missing);
                assert_eq!(found, expected, "{states:?} {silence:?}");
            }
        }
    }

    #[test]
    fn only_what_stays_at_one_place_stands_still() {
        let profile = |rank, frames: &[&str]| {
            let stacks = (0..frames.len() as u32).map(|frame| CountedStack {
                frames: vec![frame],
                samples: 10,
                ..CountedStack::default()
            });
            Profile {
                role: Some(Role::Worker),
                rank: Some(rank),
                frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
                threads: vec![ThreadProfile {
                    name: Some(MAIN_THREAD.to_owned()),
                    stacks: stacks.collect(),
                }],
                ..Profile::default()
            }
        };
        let computes = profile(2, &["load (train.py:9)", "load (train.py:10)"]);
        let waits = profile(0, &[WAITS]);
        let moves = profile(1, &[WAITS, "step (train.py:7)"]);
        let seen = three();
        assert!(is_confirmed(
            None,
            &[waits.clone(), computes.clone()],
            &seen
        ));
        assert!(!is_confirmed(
            None,
            &[waits.clone(), moves, computes.clone()],
            &seen
        ));
        assert!(!is_confirmed(None, std::slice::from_ref(&computes), &seen));
        // it has moved since it was seen
        let moved = worker(0, "step (train.py:7)");
        assert!(!is_confirmed(None, &[waits], &[moved]));

        // sockets of its own, on which the connections show that rank 2 is waited for
        let receives = ["recv (own.py:3)"];
        let seen = [worker(0, receives[0]), worker(2, "load (train.py:9)")];
        let [waits, moves] = [profile(0, &receives), profile(0, &["step (own.py:9)"])];
        let silent = seen[1].member();
        assert!(is_confirmed(
            silent,
            &[waits.clone(), computes.clone()],
            &seen
        ));
        assert!(!is_confirmed(silent, &[moves, computes.clone()], &seen));
        assert!(!is_confirmed(
            silent,
            std::slice::from_ref(&computes),
            &seen
        ));
        assert!(!is_confirmed(None, &[waits, computes], &seen));
    }
}
