//! The words of srun and slurmstepd (Slurm 17 to 25).

use super::report::{Form, LauncherReport, end_in_words, end_of};
use record::exit::{ProcessEnd, SignalNumber};

/// The most tasks of a line that are read: an array may have 10,000 that end alike.
const MAX_TASKS: usize = 64;

pub const FORMS: [Form; 6] = [
    (r"^srun: error: Node failure on (.*)", |_, words| {
        Some(LauncherReport::job(format!(
            "Slurm lost node {}: the job ended due to node failure",
            words[1].trim()
        )))
    }),
    (
        r"^srun: error: Task launch for .* failed on node ([^ ]+): (.*)",
        |_, words| {
            Some(LauncherReport::job(format!(
                "Slurm could not start tasks on {}: {}",
                &words[1], &words[2]
            )))
        },
    ),
    // `srun: error: node1: tasks 0-2,5: Exited with exit code 1`
    (
        r"^srun: error: (.*?): tasks? ([-0-9, ]+): (?:Exited with exit code )?(.*)",
        |_, words| {
            let end = match words[3].trim() {
                "Out Of Memory" => ProcessEnd {
                    oom: true,
                    ..ProcessEnd::killed(SignalNumber::KILL)
                },
                how => how.parse().ok().map(end_of).or_else(|| end_in_words(how))?,
            };
            let range = |part: &str| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
            };
            let tasks = words[2].split(',').filter_map(range).flatten();
            let (node, tasks) = (words[1].to_owned(), tasks.take(MAX_TASKS).collect());
            Some(LauncherReport::Tasks { node, tasks, end })
        },
    ),
    (
        r"^srun: (?:Terminating |Job step aborted|Force Terminated)",
        |_, _| Some(LauncherReport::Shutdown),
    ),
    // `*** STEP 4711.0 ON node1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***`
    (
        r"\*\*\* (.*?) ON (.*?) CANCELLED AT [^D]*(?:DUE (.*?))?[ *]*$",
        |_, words| {
            let text = format!(
                "Slurm cancelled {} on {}",
                words[1].to_lowercase(),
                &words[2]
            );
            let due = words.get(3).map(|due| due.as_str().to_lowercase());
            Some(LauncherReport::Job {
                is_request: due.is_none(),
                text: match due {
                    Some(due) => format!("{text} due {due}"),
                    None => text + ", as scancel asks for",
                },
            })
        },
    ),
    (
        r"slurmstepd: error: Detected .*oom[_-]kill event",
        |_, _| Some(LauncherReport::OutOfMemory),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::report::read_all;

    #[test]
    fn ends_of_tasks() {
        let killed = |number| ProcessEnd::killed(SignalNumber(number));
        let out = ProcessEnd {
            oom: true,
            ..killed(9)
        };
        for (line, ranks, end) in [
            (
                "srun: error: node1: task 3: Exited with exit code 1",
                vec![3],
                ProcessEnd::exited(1),
            ),
            (
                "srun: error: node1: tasks 0-2,5: Killed",
                vec![0, 1, 2, 5],
                killed(9),
            ),
            (
                "srun: error: h-01: tasks 1-3: Out Of Memory",
                vec![1, 2, 3],
                out,
            ),
            (
                "srun: error: h-18: task 289: Bus error",
                vec![289],
                killed(7),
            ),
            (
                "srun: error: h: task 0: Segmentation fault (core dumped)",
                vec![0],
                killed(11),
            ),
            (
                "srun: error: Unable to create step for job 7: no",
                vec![],
                killed(9),
            ),
            ("srun: error: h: task 0: an unknown end", vec![], killed(9)),
            ("he wrote srun: error: h: task 0: Killed", vec![], killed(9)),
        ] {
            let found = match read_all(&[&FORMS], line).pop() {
                Some(LauncherReport::Tasks {
                    tasks, end: how, ..
                }) if how == end => tasks,
                _ => Vec::new(),
            };
            assert_eq!(found, ranks, "{line}");
        }
    }

    #[test]
    fn what_ends_a_step_or_a_job() {
        for (line, words) in [
            (
                "slurmstepd: error: *** STEP 4711.0 ON node1 CANCELLED AT 2026-01-01T10:00:00 DUE \
                 TO TIME LIMIT ***",
                "Slurm cancelled step 4711.0 on node1 due to time limit",
            ),
            (
                "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2026-01-01T10:00:00 DUE TO \
                 PREEMPTION ***",
                "Slurm cancelled job 4711 on node1 due to preemption",
            ),
            (
                "slurmstepd: error: *** STEP 7.0 ON h CANCELLED AT 2026-01-01T10:00:00 ***",
                "Slurm cancelled step 7.0 on h, as scancel asks for",
            ),
            (
                "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step \
                 tasks have been OOM Killed.",
                "memory ran out",
            ),
            (
                "slurmstepd: error: Detected 2 oom-kill event(s) in step 37.batch cgroup. Some of",
                "memory ran out",
            ),
            ("srun: error: Node failure on node3", "lost node node3"),
            (
                "srun: error: Task launch for StepId=36.0 failed on node cn131: Job credential \
                 expired",
                "could not start tasks on cn131: Job credential expired",
            ),
            (
                "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused",
                "",
            ),
            ("the job was CANCELLED AT noon", ""),
        ] {
            let text = match read_all(&[&FORMS], line).pop() {
                Some(LauncherReport::Job { text, .. }) => text,
                Some(LauncherReport::OutOfMemory) => "memory ran out".to_owned(),
                _ => String::new(),
            };
            assert!(
                text.contains(words) && text.is_empty() == words.is_empty(),
                "{line}: {text}"
            );
        }
    }
}
