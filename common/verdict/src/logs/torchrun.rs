//! The words of torchrun and torch.distributed.launch (torch 1.9 to 2.10), and of DeepSpeed's
//! launcher and pdsh, which start such processes too.

use super::report::{LauncherReport, ReportedEnd, end_of, number_after};
use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};

/// The table of failures that torchrun prints last.
#[derive(Default)]
pub struct Torchrun {
    is_root: bool,
    host: Option<String>,
    rank: Option<u32>,
}

impl Torchrun {
    pub fn read(&mut self, line: &str) -> Option<LauncherReport> {
        if let Some((key, value)) = line.trim_start().split_once(": ") {
            match key.trim_end() {
                "host" => self.host = Some(value.trim().to_owned()),
                "rank" => {
                    let (rank, local_rank) = (number_after(value, "")?, "(local_rank: ");
                    self.rank = Some(rank);
                    let local_rank = number_after(value, local_rank)?;
                    return Some(LauncherReport::Rank { rank, local_rank });
                }
                "exitcode" => {
                    let end = end_of(number_after(value, "")?);
                    return Some(LauncherReport::Process(ReportedEnd {
                        writer: Writer::ranked(self.rank.take()?),
                        host: self.host.take(),
                        end,
                        is_first: self.is_root,
                        is_task: false,
                    }));
                }
                _ => {}
            }
        }
        if line.starts_with("Root Cause (first observed failure)") {
            self.is_root = true;
        } else if line.starts_with("Failures:") {
            self.is_root = false;
        } else if line.contains(" closing signal SIG") {
            return Some(LauncherReport::Closing);
        } else if line.contains(" death signal, shutting down workers") {
            return Some(LauncherReport::Job {
                text: "torchrun was asked to end, by SIGTERM, and ended its processes".to_owned(),
                is_request: true,
            });
        } else if let Some((_, rest)) = line.split_once("failed (exitcode: ") {
            let local_rank = number_after(rest, "local_rank: ")?;
            return Some(local_end(local_rank, number_after(rest, "")?));
        } else if let Some((command, code)) = line.rsplit_once("exits with return code = ") {
            // the command has the last local rank of the host, whichever failed
            let is_of_rank = command.contains("--local_rank=") || command.contains("--local-rank=");
            let code: i32 = number_after(code, "").filter(|_| is_of_rank)?;
            return Some(LauncherReport::ended(Writer::default(), end_of(code)));
        } else if let Some((host, code)) = line.split_once(": ssh exited with exit code ") {
            let host = host.rsplit(' ').next().unwrap_or_default();
            let end = end_of(number_after(code, "")?);
            return Some(LauncherReport::ended(Writer::at(host), end));
        }
        None
    }
}

/// A child of torch.multiprocessing.spawn, in its exception: `-- Process 2 terminated with the
/// following error:`, `process 3 terminated with signal SIGKILL`.
pub fn spawned(line: &str) -> Option<LauncherReport> {
    let (before, how) = line.split_once(" terminated with ")?;
    let words = ["-- Process ", "ProcessExitedException: process "];
    let (_, rank) = words.iter().find_map(|words| before.split_once(words))?;
    let end = match how.strip_prefix("signal SIG") {
        Some(name) => (1..=64)
            .map(SignalNumber)
            .find(|signal| *signal.name() == *name.trim())
            .map(ProcessEnd::killed)?,
        None => ProcessEnd::exited(number_after(how, "exit code ").unwrap_or(1)),
    };
    Some(LauncherReport::ended(
        Writer::local(rank.parse().ok()?),
        end,
    ))
}

fn local_end(local_rank: u32, code: i32) -> LauncherReport {
    LauncherReport::ended(Writer::local(local_rank), end_of(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<LauncherReport> {
        let mut torchrun = Torchrun::default();
        text.lines()
            .filter_map(|line| torchrun.read(line))
            .collect()
    }

    #[test]
    fn the_table_of_failures_names_ranks() {
        // of torch 1.9, 1.13, 2.2, 2.10: only the lines around the table differ
        let table = "Failures:\n[1]:\n  time      : 2026-11-26_07:32:12\n  host      : gpu1\n  \
            rank      : 5 (local_rank: 1)\n  exitcode  : 1 (pid: 7320)\n  error_file: <N/A>\n\
            ----\nRoot Cause (first observed failure):\n[0]:\n  host      : gpu2\n  rank      : 3 \
            (local_rank: 3)\n  exitcode  : -9 (pid: 12991)\n  traceback : Signal 9 (SIGKILL) \
            received by PID 12991\n";
        let end = |rank, host: &str, end, is_first| {
            LauncherReport::Process(ReportedEnd {
                writer: Writer::ranked(rank),
                host: Some(host.to_owned()),
                end,
                is_first,
                is_task: false,
            })
        };
        let rank = |rank, local_rank| LauncherReport::Rank { rank, local_rank };
        let expected = [
            rank(5, 1),
            end(5, "gpu1", ProcessEnd::exited(1), false),
            rank(3, 3),
            end(3, "gpu2", ProcessEnd::killed(SignalNumber::KILL), true),
        ];
        assert_eq!(read(table), expected);
    }

    #[test]
    fn children_of_spawn() {
        let killed = ProcessEnd::killed(SignalNumber::KILL);
        for (line, end) in [
            (
                "-- Process 2 terminated with the following error:",
                Some((2, ProcessEnd::exited(1))),
            ),
            (
                "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with \
                 signal SIGKILL",
                Some((3, killed)),
            ),
            (
                "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with \
                 exit code 7",
                Some((1, ProcessEnd::exited(7))),
            ),
            ("process 3 terminated with signal SIGKILL", None),
            ("-- Process 2 terminated", None),
        ] {
            let expected = end.map(|(rank, end)| LauncherReport::ended(Writer::local(rank), end));
            assert_eq!(spawned(line), expected, "{line}");
        }
    }

    #[test]
    fn lines_beside_the_table() {
        let killed = ProcessEnd::killed(SignalNumber::KILL);
        let local = |end| LauncherReport::ended(Writer::local(3), end);
        for (line, report) in [
            (
                "E1126 08:20:34.318000 140 torch/distributed/elastic/multiprocessing/api.py:833] \
                 failed (exitcode: -9) local_rank: 3 (pid: 12991) of binary: python3",
                Some(local(killed)),
            ),
            (
                "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) \
                 local_rank: 3 (pid: 7) of binary: /usr/bin/python3",
                Some(local(ProcessEnd::exited(1))),
            ),
            (
                "[2026-01-01 10:00:00,1] [ERROR] [launch.py:321:sigkill_handler] ['python3', \
                 '-u', 'main.py', '--local_rank=3'] exits with return code = -9",
                Some(LauncherReport::ended(Writer::default(), killed)),
            ),
            (
                "pdsh@h0: worker-1: ssh exited with exit code 1",
                Some(LauncherReport::ended(
                    Writer::at("worker-1"),
                    ProcessEnd::exited(1),
                )),
            ),
            (
                "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 8 closing \
                 signal SIGTERM",
                Some(LauncherReport::Closing),
            ),
            ("the rank: 3 of a matrix", None),
            ("host: gpu1", None),
            ("the job failed (exitcode unknown)", None),
            ("exitcode: 1", None),
        ] {
            assert_eq!(read(line).pop(), report, "{line}");
        }
    }
}
