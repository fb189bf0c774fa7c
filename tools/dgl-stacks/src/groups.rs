//! The stacks for people: threads that stand at the same place are shown once, with their
//! processes.

use record::stacks::{self, Comparison, Member};
use record::term;
use record::{Role, Stack, Thread};
use std::collections::BTreeSet;

/// How many frames of a main thread are shown, and of any other thread.
const MAIN_FRAMES: usize = 20;
const OTHER_FRAMES: usize = 6;
/// How many processes without a rank are named one by one.
const NAMED: usize = 8;

/// Threads that stand at the same place.
#[derive(Debug, PartialEq)]
struct Group<'a> {
    kind: Kind,
    /// The name of the thread in Python; `None` for main threads.
    name: Option<&'a str>,
    frames: &'a [String],
    /// What the innermost frame has called, where that was asked for.
    native: (Option<&'a str>, &'a [String]),
    /// Its processes: host, rank and process id.
    holders: Vec<(u32, Option<u32>, u32)>,
    active: usize,
}

/// Processes of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    role: Option<Role>,
    is_child: bool,
}

impl Kind {
    fn of(stack: &Stack) -> Kind {
        Kind {
            role: stack.role,
            is_child: stack.parent.is_some(),
        }
    }

    /// The order on the screen: a job is about its trainers, and servers mostly wait for them.
    fn place(self) -> (usize, bool) {
        let place = match self.role {
            Some(Role::Trainer | Role::Worker) => 0,
            Some(Role::Server) => 1,
            None => 2,
        };
        (place, self.is_child)
    }
}

/// All groups, the most telling first: main threads before others, trainers before servers, those
/// that stand elsewhere than the others before these, and of several places where the same
/// processes stand the one with the fewest.
fn groups<'a>(stacks: &'a [Stack], comparison: &Comparison) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for stack in stacks {
        for thread in &stack.threads {
            let (kind, name) = (Kind::of(stack), name(thread));
            let holder = (stack.host, stack.rank, stack.pid);
            let active = usize::from(thread.active);
            let native = (thread.system_call.as_deref(), &thread.native[..]);
            let place = (name, &thread.frames[..], native);
            match groups
                .iter_mut()
                .find(|one| one.kind == kind && (one.name, one.frames, one.native) == place)
            {
                Some(group) => {
                    group.holders.push(holder);
                    group.active += active;
                }
                None => groups.push(Group {
                    kind,
                    name,
                    frames: &thread.frames,
                    native,
                    holders: vec![holder],
                    active,
                }),
            }
        }
    }
    let outliers = comparison.outliers().iter().flat_map(|one| &one.members);
    let outliers: Vec<Member> = outliers.copied().collect();
    let is_outlier = |group: &Group| {
        let members = group
            .holders
            .iter()
            .map(|(_, rank, _)| group.kind.role.zip(*rank));
        members.flatten().any(|member| outliers.contains(&member))
    };
    groups.sort_by_cached_key(|one| {
        (
            one.name.is_some(),
            one.kind.place(),
            !is_outlier(one),
            one.holders.len(),
        )
    });
    groups
}

/// The name of a thread without its number, which would keep equal ones apart: `Thread-3 (run)`.
fn name(thread: &Thread) -> Option<&str> {
    let name = thread.name.as_deref().unwrap_or("?");
    let end = name
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(name.len());
    match name {
        "MainThread" => None,
        _ => Some(name[..end].trim_end_matches(['-', '_', ' '])),
    }
}

/// Who stands elsewhere than the others, if anybody does, the groups for people, and below them the
/// processes that could not be read.
pub fn text(stacks: &[Stack]) -> String {
    // processes of several jobs do not wait for each other
    let is_one_job = stacks.windows(2).all(|two| two[0].job == two[1].job);
    let comparison = Stack::compare(stacks.iter().filter(|_| is_one_job));
    let mut text = Vec::new();
    if !comparison.outliers().is_empty() {
        let sentence = comparison.sentence(stacks::names, "");
        text.push(format!("{}.\n", term::plain(&sentence)));
    }
    let groups = groups(stacks, &comparison);
    text.extend(groups.iter().map(|group| group_text(group, stacks)));
    text.extend(unread(stacks));
    text.join("\n")
}

fn group_text(group: &Group<'_>, stacks: &[Stack]) -> String {
    let all = stacks
        .iter()
        .filter(|one| Kind::of(one) == group.kind && !one.threads.is_empty())
        .count();
    let who = who(group.kind, &group.holders);
    let processes: BTreeSet<_> = group
        .holders
        .iter()
        .map(|(host, _, pid)| (host, pid))
        .collect();
    let mut head = match group.name {
        Some(name) => format!("thread {} of {who}", term::plain(name)),
        None => who,
    };
    if processes.len() < all {
        head += &format!(" ({} of {all})", processes.len());
    }
    head += match group.active {
        0 => ", waiting",
        active if active == group.holders.len() => ", computing",
        _ => "",
    };
    let shown = match group.name {
        None => MAIN_FRAMES,
        Some(_) => OTHER_FRAMES,
    };
    let mut text = format!("{head}:\n");
    let (call, native) = group.native;
    if let Some(call) = call {
        text += &format!("    in the system call {}\n", term::plain(call));
    }
    for frame in native.iter().chain(group.frames.iter().take(shown)) {
        text += &format!("    {}\n", term::plain(frame));
    }
    if group.frames.is_empty() {
        text += "    in no Python function\n";
    }
    if group.frames.len() > shown {
        text += &format!("    … called by {} more\n", group.frames.len() - shown);
    }
    text
}

/// The processes of a group: `trainers 0-3, 5`, `children of trainer 3`, `process 4180 on host 0`.
fn who(kind: Kind, holders: &[(u32, Option<u32>, u32)]) -> String {
    let ranks: BTreeSet<u32> = holders.iter().filter_map(|(_, rank, _)| *rank).collect();
    let (Some(role), false) = (kind.role, ranks.is_empty()) else {
        let named: Vec<String> = holders
            .iter()
            .take(NAMED)
            .map(|(host, _, pid)| format!("process {pid} on host {host}"))
            .collect();
        let more = holders.len() - named.len();
        return match more {
            0 => named.join(", "),
            _ => format!("{} and {more} more", named.join(", ")),
        };
    };
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let role = format!("{}{} {}", role.name(), plural(ranks.len()), spans(&ranks));
    match (kind.is_child, holders.len()) {
        (false, _) => role,
        (true, 1) => format!("a child of {role}"),
        (true, count) => format!("{count} children of {role}"),
    }
}

/// Numbers with ranges: `0-3, 5`.
fn spans(numbers: &BTreeSet<u32>) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => spans.push((*number, *number)),
        }
    }
    let text = spans.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(", ")
}

/// Processes that could not be read, a line for each reason and command.
fn unread(stacks: &[Stack]) -> Option<String> {
    let mut lines: Vec<(&str, &str, Kind, Vec<(u32, Option<u32>, u32)>)> = Vec::new();
    for stack in stacks {
        let Some(error) = stack.error.as_deref() else {
            continue;
        };
        let (command, kind) = (stack.command.as_str(), Kind::of(stack));
        let holder = (stack.host, stack.rank, stack.pid);
        match lines
            .iter_mut()
            .find(|one| (one.0, one.1, one.2) == (error, command, kind))
        {
            Some((.., holders)) => holders.push(holder),
            None => lines.push((error, command, kind, vec![holder])),
        }
    }
    let line = |(error, command, kind, holders): &(&str, &str, Kind, Vec<_>)| {
        let short: String = command.chars().take(60).collect();
        format!(
            "{} ({}): {}\n",
            who(*kind, holders),
            term::plain(&short),
            term::plain(error)
        )
    };
    (!lines.is_empty()).then(|| lines.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(text(&all), expected);
    }

    #[test]
    fn what_python_has_called_stands_above_it() {
        let waits: &[(&str, bool, &[&str])] = &[("MainThread", false, &["reduce (c10d.py:9)"])];
        let mut all = [0, 1, 2].map(|rank| stack(Role::Trainer, rank, None, waits));
        for one in &mut all[..2] {
            let thread = &mut one.threads[0];
            thread.system_call = Some("recvmsg".to_owned());
            thread.native = vec!["gloo::read (libtorch_cpu.so)".to_owned()];
        }
        all[2].threads[0].system_call = Some("futex".to_owned());
        let expected = "\
trainer 2 (1 of 3), waiting:
    in the system call futex
    reduce (c10d.py:9)

trainers 0-1 (2 of 3), waiting:
    in the system call recvmsg
    gloo::read (libtorch_cpu.so)
    reduce (c10d.py:9)
";
        assert_eq!(text(&all), expected);
    }

    #[test]
    fn long_stacks_are_cut_and_empty_ones_are_named() {
        let frames: Vec<String> = (0..30).map(|k| format!("f{k} (a.py:{k})")).collect();
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        let shown = text(&[stack(
            Role::Worker,
            0,
            None,
            &[("MainThread", false, &frames)],
        )]);
        assert!(
            shown.ends_with("    f19 (a.py:19)\n    … called by 10 more\n"),
            "{shown}"
        );
        let empty = text(&[stack(Role::Worker, 0, None, &[("MainThread", true, &[])])]);
        assert_eq!(empty, "worker 0, computing:\n    in no Python function\n");
        assert_eq!(text(&[]), "");
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
        let shown = text(&[one, two]);
        assert!(
            shown.chars().all(|c| c == '\n' || !c.is_control()),
            "{shown:?}"
        );
    }
}
