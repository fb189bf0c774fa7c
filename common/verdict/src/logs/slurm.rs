//! The words of srun and slurmstepd (Slurm 17 to 25).

use super::report::{LauncherReport, ReportedEnd, end_in_words, end_of, number_after};
use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};

/// The most tasks of a line that are read: an array may have 10,000 that end alike.
const MAX_TASKS: usize = 64;

pub fn read(line: &str) -> Vec<LauncherReport> {
    if let Some(rest) = line.strip_prefix("srun: error: ") {
        if let Some(node) = rest.strip_prefix("Node failure on ") {
            let text = format!(
                "Slurm lost node {}: the job ended due to node failure",
                node.trim()
            );
            return vec![LauncherReport::job(text)];
        }
        return ends(rest).unwrap_or_default();
    }
    let is_shutdown = line.starts_with("srun: Terminating ")
        || line.starts_with("srun: Job step aborted")
        || line.starts_with("srun: Force Terminated");
    if is_shutdown {
        return vec![LauncherReport::Shutdown];
    }
    cancelled(line)
        .or_else(|| out_of_memory(line))
        .into_iter()
        .collect()
}

/// `node1: tasks 0-2,5: Exited with exit code 1`
fn ends(rest: &str) -> Option<Vec<LauncherReport>> {
    let (node, rest) = rest.split_once(": task")?;
    let (tasks, how) = rest.trim_start_matches('s').split_once(": ")?;
    let end = match how.trim() {
        "Out Of Memory" => ProcessEnd {
            oom: true,
            ..ProcessEnd::killed(SignalNumber::KILL)
        },
        how => match number_after(how, "Exited with exit code ") {
            Some(code) => end_of(code),
            None => end_in_words(how)?,
        },
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(first..=last)
    };
    let tasks = tasks.split(',').filter_map(range).flatten().take(MAX_TASKS);
    let report = |task| {
        LauncherReport::Process(ReportedEnd {
            writer: Writer::ranked(task),
            host: Some(node.to_owned()),
            end,
            is_first: false,
            is_task: true,
        })
    };
    Some(tasks.map(report).collect())
}

/// `slurmstepd: error: *** STEP 4711.0 ON node1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT
/// ***`
fn cancelled(line: &str) -> Option<LauncherReport> {
    let (what, rest) = line.split_once("*** ")?.1.split_once(" CANCELLED AT ")?;
    let (what, node) = what.split_once(" ON ")?;
    let what = what.to_lowercase();
    Some(
        match rest.trim_end_matches("***").trim().split_once("DUE ") {
            Some((_, reason)) => {
                let reason = reason.trim().to_lowercase();
                LauncherReport::job(format!("Slurm cancelled {what} on {node} due {reason}"))
            }
            None => LauncherReport::Job {
                text: format!("Slurm cancelled {what} on {node}, as scancel asks for"),
                is_request: true,
            },
        },
    )
}

/// `slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0.`
fn out_of_memory(line: &str) -> Option<LauncherReport> {
    let rest = line.split_once("slurmstepd: error: Detected ")?.1;
    let is_kill = rest.contains("oom_kill event") || rest.contains("oom-kill event");
    is_kill.then_some(LauncherReport::OutOfMemory)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let reports = read(line);
            let found = reports.iter().filter_map(|report| match report {
                LauncherReport::Process(found) if found.end == end => found.writer.rank,
                _ => None,
            });
            assert_eq!(found.collect::<Vec<_>>(), ranks, "{line}");
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
                "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused",
                "",
            ),
            ("the job was CANCELLED AT noon", ""),
        ] {
            let text = match read(line).pop() {
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
