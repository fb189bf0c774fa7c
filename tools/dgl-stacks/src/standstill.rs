//! Whether a job that was looked at once stands still, and for whom its processes wait.

use record::profile::Profile;
use record::stacks::{self, Member};
use record::{Culprit, Process, Stack, Stalled, term};
use std::time::Duration;
use verdict::silence::Silence;

/// A job in which a process has sent data to another one within this time goes on.
const STILL: Duration = Duration::from_secs(10);
/// How long to see whether the processes that wait move, if their connections are still.
const SAMPLED: Duration = Duration::from_secs(3);

/// Why a job seems to stand still.
pub struct Standstill {
    silence: Silence,
    /// A sentence without its full stop.
    reason: String,
    culprit: Option<Member>,
    since: Duration,
    /// How long stacks must be sampled to be sure; `None` if the connections suffice.
    pub sample: Option<Duration>,
}

/// Concludes from all processes that were read; `missing` are the ranks that were not found, in
/// words. `None` if the job goes on, or nothing shows that it does not.
pub fn standstill(stacks: &[Stack], is_whole: bool, missing: &str) -> Option<Standstill> {
    let silence = if is_whole && missing.is_empty() {
        Silence::of(stacks, None)
    } else {
        Silence::of_some(stacks)
    };
    let has_stacks = stacks.iter().any(|stack| !stack.threads.is_empty());
    let (since, sample) = match silence.still {
        Some(time) if time < STILL => return None,
        Some(time) => (time, SAMPLED),
        None if has_stacks => (STILL, STILL),
        None => return None,
    };
    let (reason, culprit) = reason(stacks, &silence, missing)?;
    Some(Standstill {
        silence,
        reason,
        culprit,
        since,
        sample: has_stacks.then_some(sample),
    })
}

fn reason(stacks: &[Stack], silence: &Silence, missing: &str) -> Option<(String, Option<Member>)> {
    let stopped = stacks.iter().filter(|stack| stack.is_stopped());
    let stopped: Vec<Member> = stopped.filter_map(Stack::member).collect();
    let comparison = Stack::compare(stacks);
    let compared = comparison.sentence(stacks::names, "");
    match stopped[..] {
        [] => {}
        [one] => {
            let text = format!("{} is stopped by a signal", stacks::names(&stopped));
            return Some((text, Some(one)));
        }
        _ => {
            let text = format!("{} are stopped by a signal", stacks::names(&stopped));
            return Some((text, None));
        }
    }
    if !missing.is_empty() {
        let is_known = !comparison.groups().is_empty();
        let others = if is_known { "; " } else { "" };
        let compared = if is_known { &compared } else { "" };
        return Some((format!("{missing}{others}{compared}"), None));
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

    /// The reason, and who waits for whom.
    pub fn text(&self) -> String {
        let mut text = format!("{}.\n", term::plain(&self.reason));
        for wait in &self.silence.waits {
            let silent = stacks::names(&[wait.silent]);
            text += &format!("    {silent}: {}\n", wait.words());
        }
        text
    }
}

/// When a process last sent data to another one, in words, if that was a moment ago.
pub fn moved(stacks: &[Stack]) -> Option<String> {
    let still = Silence::of_some(stacks)
        .still
        .filter(|time| *time < STILL)?;
    let ago = term::seconds(still);
    Some(format!(
        "the job goes on: a process sent data to another one {ago} ago.\n"
    ))
}

/// Whether processes wait for others, and each of them was where `stacks` have it in all samples.
/// In a job that goes on, it would have left this place between two steps.
pub fn is_confirmed(profiles: &[Profile], stacks: &[Stack]) -> bool {
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
    let mut waiting = profiles.iter().filter(waits).peekable();
    waiting.peek().is_some() && waiting.all(stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::profile::{CountedStack, ThreadProfile};
    use record::stacks::{MAIN_THREAD, ProcessState};
    use record::{Connection, Role, Thread};
    use std::net::SocketAddr;

    const WAITS: &str = "all_reduce (torch/distributed/distributed_c10d.py:1322)";

    fn address(rank: u32, peer: u32) -> SocketAddr {
        format!("10.77.0.{}:{}", rank + 1, 5000 + peer)
            .parse()
            .unwrap()
    }

    /// What the kernel reports of the data between two ranks, that long ago.
    fn link(rank: u32, peer: u32, sent_ms: u32, received_ms: u32) -> Connection {
        Connection {
            local: address(rank, peer),
            peer: address(peer, rank),
            since_sent_ms: Some(sent_ms),
            since_received_ms: Some(received_ms),
            since_acknowledged_ms: sent_ms,
            segments_sent: 1,
            segments_received: 1,
            round_trip_us: Some(200),
            unacknowledged_bytes: 0,
            unsent_bytes: 0,
            unread_bytes: 0,
        }
    }

    fn worker(rank: u32, frame: &str, connections: Vec<Connection>) -> Stack {
        let main = Thread {
            name: Some(MAIN_THREAD.to_owned()),
            frames: vec![frame.to_owned()],
            ..Thread::default()
        };
        Stack {
            role: Some(Role::Worker),
            rank: Some(rank),
            threads: vec![main],
            connections,
            ..Stack::default()
        }
    }

    /// Three workers that wait for worker 2, which received data that long ago.
    fn three(since_ms: u32) -> Vec<Stack> {
        let (asked, before) = (since_ms, since_ms + 500);
        vec![
            worker(
                0,
                WAITS,
                vec![link(0, 1, asked, before), link(0, 2, asked, before)],
            ),
            worker(
                1,
                WAITS,
                vec![link(1, 0, before, asked), link(1, 2, asked, before)],
            ),
            worker(
                2,
                "load (train.py:9)",
                vec![link(2, 0, before, asked), link(2, 1, before, asked)],
            ),
        ]
    }

    fn reason(stacks: &[Stack], missing: &str) -> Option<(String, Option<u32>)> {
        let found = standstill(stacks, true, missing)?;
        Some((found.reason, found.culprit.map(|(_, rank)| rank)))
    }

    /// As of processes that may not be read.
    fn unread(stacks: &mut [Stack], states: [(char, &str); 3]) {
        for (stack, (letter, function)) in stacks.iter_mut().zip(states) {
            stack.threads.clear();
            stack.error = Some("x".to_owned());
            let function = (!function.is_empty()).then(|| function.to_owned());
            stack.state = Some(ProcessState { letter, function });
        }
    }

    #[test]
    fn a_job_whose_data_moves_goes_on() {
        assert_eq!(reason(&three(9000), ""), None);
        assert!(moved(&three(9000)).is_some() && moved(&three(11_000)).is_none());
        let (text, culprit) = reason(&three(11_000), "").unwrap();
        assert_eq!(culprit, Some(2));
        assert!(text.starts_with("worker 2 is in load (train.py:9), while workers 0 and 1 wait"));
    }

    #[test]
    fn without_stacks_the_kernel_shows_who_does_not_wait() {
        let (futex, poll) = (('S', "futex_wait_queue"), ('S', "do_poll"));
        let sent = "data came in at worker 2 11.0 s ago, and it has sent none since";
        let table = [
            (
                ('S', "hrtimer_nanosleep"),
                "; it sleeps in the kernel's hrtimer_nanosleep",
            ),
            (('R', ""), "; it computes"),
            (
                ('D', "nfs_wait"),
                "; it waits for a disk or a file server in the kernel's nfs_wait",
            ),
            (
                ('S', "locks_lock_inode_wait"),
                "; it sleeps in the kernel's locks_lock_inode_wait",
            ),
            // all seem to wait: the connections alone decide
            (futex, "; it sleeps in the kernel's futex_wait_queue"),
            (poll, "; it sleeps in the kernel's do_poll"),
        ];
        for (state, words) in table {
            let mut stacks = three(11_000);
            unread(&mut stacks, [futex, futex, state]);
            let found = reason(&stacks, "");
            assert_eq!(
                found,
                Some((format!("{sent}{words}"), Some(2))),
                "{state:?}"
            );
        }
        for states in [
            [futex, futex, ('S', "unknown")],
            [futex, poll, futex],
            [poll; 3],
        ] {
            let mut stacks = three(11_000);
            unread(&mut stacks, states);
            assert_eq!(reason(&stacks, ""), None, "{states:?}");
        }
        let mut stacks = three(11_000);
        unread(&mut stacks, [futex, ('R', ""), ('R', "")]);
        // one that spins while it waits: its connections show for whom
        assert_eq!(reason(&stacks, "").and_then(|found| found.1), Some(2));
    }

    #[test]
    fn a_process_that_a_signal_has_stopped_is_named() {
        let mut stacks = three(11_000);
        stacks[2].state = Some(ProcessState {
            letter: 'T',
            function: None,
        });
        let stopped = "worker 2 is stopped by a signal".to_owned();
        assert_eq!(reason(&stacks, ""), Some((stopped, Some(2))));
    }

    #[test]
    fn ranks_that_are_missing_are_the_reason_and_nobody_is_accused() {
        let stacks: Vec<Stack> = (0..2).map(|rank| worker(rank, WAITS, Vec::new())).collect();
        let (text, culprit) = reason(&stacks, "worker 2 of 3 was not found").unwrap();
        assert!(
            text.starts_with("worker 2 of 3 was not found; workers 0 and 1 wait in"),
            "{text}"
        );
        assert_eq!(culprit, None);
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
        let seen = three(11_000);
        assert!(is_confirmed(&[waits.clone(), computes.clone()], &seen));
        assert!(!is_confirmed(
            &[waits.clone(), moves, computes.clone()],
            &seen
        ));
        assert!(!is_confirmed(&[computes], &seen));
        // it has moved since it was seen
        assert!(!is_confirmed(
            &[waits],
            &[worker(0, "step (train.py:7)", Vec::new())]
        ));
    }
}
