//! Formats stacks for people: threads with the same stack are shown once, with their processes.

use indexmap::IndexMap;
use record::cpus;
use record::stacks::{self, Comparison, Member};
use record::term;
use record::{Profile, Role, Stack, Thread};
use std::collections::BTreeSet;
use verdict::silence::{Awaited, Silence};

/// Frames that are shown of a main thread, and of any other.
const MAIN_FRAMES: usize = 20;
const OTHER_FRAMES: usize = 6;
/// Processes without a rank that are named one by one.
const NAMED: usize = 8;

#[derive(Debug, PartialEq, Eq, Hash)]
struct ThreadPosition<'a> {
    kind: ProcessKind,
    /// The thread's name in Python; `None` for main threads.
    name: Option<&'a str>,
    frames: &'a [String],
}

pub fn kind_of_profile(profile: &Profile) -> ProcessKind {
    ProcessKind {
        role: profile.role,
        is_child: profile.is_child(),
    }
}

#[derive(Debug, Default)]
struct Threads<'a> {
    holders: Vec<StackHolder>,
    active: usize,
    /// In which they wait.
    system_calls: BTreeSet<&'a str>,
}

/// Host, rank and process id.
pub type StackHolder = (u32, Option<u32>, u32);

fn holder(stack: &Stack) -> StackHolder {
    (stack.host, stack.rank, stack.pid)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessKind {
    role: Option<Role>,
    is_child: bool,
}

impl ProcessKind {
    fn of(stack: &Stack) -> ProcessKind {
        ProcessKind {
            role: stack.role,
            is_child: stack.parent.is_some(),
        }
    }

    /// The order on the screen: a job is about its trainers, and servers mostly wait for them.
    pub fn order(self) -> (usize, bool) {
        let order = match self.role {
            Some(Role::Server) => 1,
            Some(_) => 0,
            None => 2,
        };
        (order, self.is_child)
    }
}

/// The most informative group first: main threads before others, trainers before servers, outliers
/// before others; if the same processes have several stacks, the one with the fewest threads first.
fn groups<'a>(
    stacks: &'a [Stack],
    comparison: &Comparison,
) -> IndexMap<ThreadPosition<'a>, Threads<'a>> {
    let mut groups: IndexMap<ThreadPosition<'_>, Threads<'_>> = IndexMap::new();
    for stack in stacks {
        for thread in &stack.threads {
            let position = ThreadPosition {
                kind: ProcessKind::of(stack),
                name: name(thread),
                frames: &thread.frames,
            };
            let threads = groups.entry(position).or_default();
            threads.holders.push(holder(stack));
            threads.active += usize::from(thread.active);
            threads.system_calls.extend(thread.system_call.as_deref());
        }
    }
    let outliers = comparison
        .outliers()
        .iter()
        .flat_map(|group| &group.members);
    let outliers: Vec<Member> = outliers.copied().collect();
    groups.sort_by_cached_key(|position, threads| {
        let holders = threads.holders.iter();
        let mut members = holders.filter_map(|(_, rank, _)| position.kind.role.zip(*rank));
        let is_outlier = members.any(|member| outliers.contains(&member));
        (
            position.name.is_some(),
            position.kind.order(),
            !is_outlier,
            threads.holders.len(),
        )
    });
    groups
}

/// `None` for a main thread.
fn name(thread: &Thread) -> Option<&str> {
    let name = thread.name.as_deref().unwrap_or("?");
    (name != stacks::MAIN_THREAD).then(|| stacks::name_without_number(name))
}

/// Any outliers, and for whom the others wait.
pub fn head(comparison: &Comparison, silence: &Silence) -> Vec<String> {
    let has_outliers = !comparison.outliers().is_empty();
    let outliers = has_outliers.then(|| comparison.sentence(stacks::names, ""));
    let outliers = outliers.map(|sentence| format!("{}.\n", term::plain(&sentence)));
    let sentences = silence.sentences.iter();
    let sentences = sentences.map(|sentence| format!("{sentence}.\n"));
    let connections: String = sentences.chain([waits(silence)]).collect();
    let paragraphs = outliers.into_iter().chain([connections]);
    paragraphs.filter(|text| !text.is_empty()).collect()
}

/// A line for each process for which others wait, by the connections.
pub fn waits(silence: &Silence) -> String {
    let line = |wait: &Awaited| {
        let silent = stacks::names(&[wait.silent]);
        format!("    {silent}: {}\n", wait.words())
    };
    silence.waits.iter().map(line).collect()
}

/// The paragraphs of `text`, then the groups of `stacks` for people, and the processes that could
/// not be read.
pub fn text(mut text: Vec<String>, stacks: &[Stack], comparison: &Comparison) -> String {
    text.extend(
        groups(stacks, comparison)
            .iter()
            .map(|(position, threads)| group_text(position, threads, stacks)),
    );
    text.extend(unread(stacks));
    text.join("\n")
}

fn group_text(position: &ThreadPosition<'_>, threads: &Threads, stacks: &[Stack]) -> String {
    let all = stacks
        .iter()
        .filter(|stack| ProcessKind::of(stack) == position.kind && !stack.threads.is_empty())
        .count();
    let who = who(position.kind, &threads.holders);
    let processes: BTreeSet<&StackHolder> = threads.holders.iter().collect();
    let (mut head, shown) = match position.name {
        Some(name) => (
            format!("thread {} of {who}", term::plain(name)),
            OTHER_FRAMES,
        ),
        None => (who, MAIN_FRAMES),
    };
    if processes.len() < all {
        head += &format!(" ({} of {all})", processes.len());
    }
    head += match threads.active {
        0 => ", waiting",
        active if active == threads.holders.len() => ", computing",
        _ => "",
    };
    let mut text = format!("{head}:\n");
    let calls = threads.system_calls.iter().map(|call| term::plain(call));
    let calls = term::first_few(calls, NAMED);
    text += &match threads.system_calls.len() {
        0 => String::new(),
        1 => format!("    in the system call {calls}\n"),
        _ => format!("    in the system calls {calls}\n"),
    };
    for frame in position.frames.iter().take(shown) {
        text += &format!("    {}\n", term::plain(frame));
    }
    if position.frames.is_empty() {
        text += "    in no Python function\n";
    }
    if position.frames.len() > shown {
        text += &format!("    … called by {} more\n", position.frames.len() - shown);
    }
    text
}

/// `trainers 0-3, 5`, `children of trainer 3`, `process 4180 on host 0`
pub fn who(kind: ProcessKind, holders: &[StackHolder]) -> String {
    let ranks: BTreeSet<u32> = holders.iter().filter_map(|(_, rank, _)| *rank).collect();
    let (Some(role), false) = (kind.role, ranks.is_empty()) else {
        let names = holders
            .iter()
            .map(|(host, _, pid)| format!("process {pid} on host {host}"));
        return term::first_few(names, NAMED);
    };
    let several = ranks.len() != 1;
    let spans = cpus::list(ranks).replace(',', ", ");
    let name = if several {
        role.names()
    } else {
        role.name().to_owned()
    };
    let role = format!("{name} {spans}");
    match (kind.is_child, holders.len()) {
        (false, _) => role,
        (true, 1) => format!("a child of {role}"),
        (true, count) => format!("{count} children of {role}"),
    }
}

/// A line for each reason and command.
fn unread(stacks: &[Stack]) -> Option<String> {
    let mut groups: IndexMap<(String, &str, ProcessKind), Vec<StackHolder>> = IndexMap::new();
    for stack in stacks {
        if let Some(error) = stack.error.as_deref() {
            let state = stack.state.as_ref();
            let state = state.map_or(String::new(), |state| format!("; it {}", state.words()));
            let group = groups.entry((
                format!("{error}{state}"),
                &stack.command,
                ProcessKind::of(stack),
            ));
            group.or_default().push(holder(stack));
        }
    }
    let lines = groups.iter().map(|((error, command, kind), holders)| {
        format!(
            "{} ({}): {}\n",
            who(*kind, holders),
            term::plain(&term::cut(command, 60)),
            term::plain(error)
        )
    });
    (!groups.is_empty()).then(|| lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Connection;

    fn stack(
        role: Role,
        rank: u32,
        parent: Option<u32>,
        threads: &[(&str, bool, &[&str])],
    ) -> Stack {
        Stack {
            host: rank / 2,
            role: Some(role),
            rank: Some(rank),
            pid: 100 + rank + parent.unwrap_or(0),
            parent,
            threads: threads
                .iter()
                .map(|(name, active, frames)| Thread {
                    name: Some((*name).to_owned()),
                    tid: None,
                    active: *active,
                    frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
                    ..Thread::default()
                })
                .collect(),
            ..Stack::default()
        }
    }

    fn whole_text(stacks: &[Stack], all: &[Stack], is_whole: bool) -> String {
        let comparison = Stack::compare(all);
        let silence = Silence::of(all, is_whole, None);
        text(head(&comparison, &silence), stacks, &comparison)
    }

    #[test]
    fn the_odd_trainer_comes_first() {
        let waits: &[&str] = &["barrier (rpc.py:1012)", "main (train.py:9)"];
        let computes: &[&str] = &["step (train.py:30)", "main (train.py:8)"];
        let mut all: Vec<Stack> = (0..5)
            .map(|rank| match rank {
                3 => stack(Role::Trainer, 3, None, &[("MainThread", true, computes)]),
                _ => stack(
                    Role::Trainer,
                    rank,
                    None,
                    &[
                        ("MainThread", false, waits),
                        ("Thread-7 (f)", false, &["get (q.py:1)"]),
                    ],
                ),
            })
            .collect();
        all.push(stack(
            Role::Server,
            0,
            None,
            &[("MainThread", false, &["recv (server.py:1)"])],
        ));
        all.push(stack(
            Role::Trainer,
            1,
            Some(101),
            &[("MainThread", false, &["get (queue.py:4)"])],
        ));
        let mut shell = stack(Role::Trainer, 1, None, &[]);
        (shell.error, shell.command) = (
            Some("no Python runs in it".to_owned()),
            "sh -c x".to_owned(),
        );
        all.push(shell);
        let expected = "\
trainer 3 is in step (train.py:30), while trainers 0, 1, 2 and 4 wait in a barrier for all others \
[barrier (rpc.py:1012)].

trainer 3 (1 of 5), computing:
    step (train.py:30)
    main (train.py:8)

trainers 0-2, 4 (4 of 5), waiting:
    barrier (rpc.py:1012)
    main (train.py:9)

a child of trainer 1, waiting:
    get (queue.py:4)

server 0, waiting:
    recv (server.py:1)

thread Thread of trainers 0-2, 4 (4 of 5), waiting:
    get (q.py:1)

trainer 1 (sh -c x): no Python runs in it
";
        assert_eq!(whole_text(&all, &all, true), expected);
    }

    #[test]
    fn a_process_that_may_wait_for_an_unknown_one_is_not_named() {
        let mut all = [0, 1].map(|rank| stack(Role::Worker, rank, None, &[]));
        let address = |rank: u32| format!("10.77.0.{rank}:5000").parse().unwrap();
        for (one, (sent, received)) in all.iter_mut().zip([(1900, 1800), (1800, 1900)]) {
            let rank = one.rank.unwrap();
            let unread_bytes = if rank == 0 { 5 } else { 0 };
            one.connections = vec![Connection {
                local: address(rank),
                peer: address(1 - rank),
                since_sent_ms: Some(sent),
                since_received_ms: Some(received),
                since_acknowledged_ms: 1800,
                segments_sent: 1,
                segments_received: 1,
                round_trip_us: Some(200),
                unacknowledged_bytes: 0,
                unsent_bytes: 0,
                unread_bytes,
            }];
        }
        let waits = "    worker 0: data of worker 1 came in 1.8 s ago, and it has not read 5 B\n";
        let sentence = "worker 0 has not read 5 B that worker 1 sent it.\n";
        assert_eq!(whole_text(&all, &all, true), format!("{sentence}{waits}"));
        assert_eq!(
            whole_text(&all[1..], &all, true),
            format!("{sentence}{waits}")
        );
        assert_eq!(whole_text(&all, &all, false), waits);
    }

    #[test]
    fn the_system_calls_in_which_threads_wait_stand_above_their_frames() {
        let waits: &[(&str, bool, &[&str])] = &[("MainThread", false, &["reduce (c10d.py:9)"])];
        let mut all = [0, 1, 2].map(|rank| stack(Role::Trainer, rank, None, waits));
        for stack in &mut all[..2] {
            stack.threads[0].system_call = Some("recvmsg".to_owned());
        }
        let expected = "\
trainers 0-2, waiting:
    in the system call recvmsg
    reduce (c10d.py:9)
";
        assert_eq!(whole_text(&all, &all, true), expected);
        all[2].threads[0].system_call = Some("futex".to_owned());
        let expected = expected.replace("call recvmsg", "calls futex, recvmsg");
        assert_eq!(whole_text(&all, &all, true), expected);
    }

    #[test]
    fn long_stacks_are_cut_and_empty_ones_are_named() {
        let frames: Vec<String> = (0..30).map(|k| format!("f{k} (a.py:{k})")).collect();
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        let deep = [stack(
            Role::Worker,
            0,
            None,
            &[("MainThread", false, &frames)],
        )];
        let shown = whole_text(&deep, &deep, true);
        assert!(
            shown.ends_with("    f19 (a.py:19)\n    … called by 10 more\n"),
            "{shown}"
        );
        let empty = [stack(Role::Worker, 0, None, &[("MainThread", true, &[])])];
        let empty = whole_text(&empty, &empty, true);
        assert_eq!(empty, "worker 0, computing:\n    in no Python function\n");
        assert_eq!(whole_text(&[], &[], true), "");
    }

    #[test]
    fn nothing_that_a_host_says_steers_the_terminal() {
        let mut one = stack(
            Role::Trainer,
            0,
            None,
            &[("T\u{7}", false, &["\u{1b}]0;x\u{7}"])],
        );
        one.command = "\u{9b}2J".to_owned();
        let mut two = one.clone();
        (two.error, two.role) = (Some("\u{1b}c".to_owned()), None);
        let both = [one, two];
        let shown = whole_text(&both, &both, true);
        assert!(
            shown.chars().all(|c| c == '\n' || !c.is_control()),
            "{shown:?}"
        );
    }
}
