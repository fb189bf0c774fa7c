//! The words of torchrun and torch.distributed.launch (torch 1.9 to 2.10), and of Lightning,
//! DeepSpeed's launcher and pdsh, which start such processes too.

use super::report::{Form, LauncherReport, ReportedEnd, end_of, number};
use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};

pub const FORMS: [Form; 12] = [
    (
        "Setting OMP_NUM_THREADS environment variable for each process to be",
        |_, _| Some(LauncherReport::Begins),
    ),
    // the table of failures that torchrun prints last
    (r"^\s*time\s*: ([0-9]{4}-[0-9_:-]+)", |stated, words| {
        stated.table.time = Some(words[1].to_owned());
        None
    }),
    (r"^\s*host\s*: (.*)", |stated, words| {
        stated.table.host = Some(words[1].trim().to_owned());
        None
    }),
    (
        r"^\s*rank\s*: +([0-9]+)(?:.*?\(local_rank: +([0-9]+))?",
        |stated, words| {
            let rank = number(words, 1)?;
            stated.table.writer = Writer::ranked(rank);
            let local_rank = number(words, 2)?;
            Some(LauncherReport::Rank { rank, local_rank })
        },
    ),
    (r"^\s*exitcode\s*: +(-?[0-9]+)", |stated, words| {
        stated.table.writer.rank?;
        let is_first = stated.table.is_first;
        let next = ReportedEnd {
            is_first,
            ..ReportedEnd::default()
        };
        let table = std::mem::replace(&mut stated.table, next);
        Some(LauncherReport::Process(ReportedEnd {
            end: end_of(number(words, 1)?),
            ..table
        }))
    }),
    (
        r"^(?:(Root Cause \(first observed failure\))|Failures:)",
        |stated, words| {
            stated.table.is_first = words.get(1).is_some();
            None
        },
    ),
    (r" closing signal SIG", |_, _| Some(LauncherReport::Closing)),
    // torch 1.9 to 2.10 write the number or the name: `Received Signals.SIGINT death signal`
    (
        r"(?:Received (?:Signals\.)?([A-Z]+|[0-9]+))? death signal, shutting down workers",
        |_, words| {
            let signal = words.get(1).map_or("SIGTERM", |signal| signal.as_str());
            let signal = match signal.parse() {
                Ok(number) => format!("SIG{}", SignalNumber(number)),
                Err(_) => signal.to_owned(),
            };
            Some(LauncherReport::Job {
                text: format!("torchrun was asked to end, by {signal}, and ended its processes"),
                is_request: true,
            })
        },
    ),
    (
        r"failed \(exitcode: +(-?[0-9]+).*?local_rank: +([0-9]+)",
        |_, words| {
            Some(LauncherReport::ended(
                Writer::local(number(words, 2)?),
                end_of(number(words, 1)?),
            ))
        },
    ),
    // the command has the last local rank of the host, whichever failed
    (
        r"--local[_-]rank=.*exits with return code = +(-?[0-9]+)",
        |_, words| {
            Some(LauncherReport::ended(
                Writer::default(),
                end_of(number(words, 1)?),
            ))
        },
    ),
    (
        r"([^ ]*): ssh exited with exit code +(-?[0-9]+)",
        |_, words| {
            Some(LauncherReport::ended(
                Writer::at(&words[1]),
                end_of(number(words, 2)?),
            ))
        },
    ),
    // of launch.py of DGL and GraphStorm: the command for the trainers or a server of a host
    (
        concat!(
            r#"^Called process error Command ['"]ssh .*?(?:[^ ]*@)?([^ ]+) ['"]"#,
            r"(?:.*(DGL_ROLE=server))?.* returned non-zero exit status ([0-9]+)",
        ),
        |stated, words| {
            let is_server = words.get(2).is_some();
            // servers do not outlive the trainers
            if is_server && stated.have_trainers_failed {
                return None;
            }
            stated.have_trainers_failed |= !is_server;
            let writer = match &words[1] {
                host if is_server => Writer::at(&format!("a server on {host}")),
                _ => Writer::default(),
            };
            Some(LauncherReport::ended(writer, end_of(number(words, 3)?)))
        },
    ),
];

/// Of Lightning, which puts the rank into the mark of the line.
pub const LIGHTNING: [Form; 1] = [(
    r"^\[rank: ([0-9]+)\] Child process with PID [0-9]+ terminated with code (-?[0-9]+)",
    |_, words| {
        let rank = Writer::ranked(number(words, 1)?);
        Some(LauncherReport::ended(rank, end_of(number(words, 2)?)))
    },
)];

/// Whether torchrun wrote a line after it had started the ranks.
pub fn is_agent_line(line: &str) -> bool {
    let words = [
        "failed (exitcode: ",
        " closing signal SIG",
        "Root Cause (first observed",
    ];
    words.iter().any(|words| line.contains(words))
}

/// A child of torch.multiprocessing.spawn, in its exception.
pub const SPAWNED: [Form; 1] = [(
    concat!(
        r"(?:-- Process |ProcessExitedException: process )([0-9]+) terminated with ",
        r"(?:signal SIG(\w+)|.*exit code ([0-9]+))?"
    ),
    |_, words| {
        let named = |name: &str| {
            (1..=64)
                .map(SignalNumber)
                .find(|signal| *signal.name() == *name)
        };
        let end = match words.get(2) {
            Some(name) => ProcessEnd::killed(named(name.as_str())?),
            None => ProcessEnd::exited(number(words, 3).unwrap_or(1)),
        };
        Some(LauncherReport::ended(Writer::local(number(words, 1)?), end))
    },
)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::report::read_all;

    fn read(text: &str) -> Vec<LauncherReport> {
        read_all(&[&FORMS], text)
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
                time: (rank == 5).then(|| "2026-11-26_07:32:12".to_owned()),
                is_task: false,
                may_follow: false,
                line: String::new(),
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
    fn children_of_lightning() {
        let killed = ProcessEnd::killed(SignalNumber::KILL);
        for (line, end) in [
            (
                "[rank: 3] Child process with PID 77 terminated with code -9. Forcefully \
                 terminating all other processes to avoid zombies",
                Some((3, killed)),
            ),
            (
                "[rank: 1] Child process with PID 77 terminated with code 1. Forcefully",
                Some((1, ProcessEnd::exited(1))),
            ),
            ("[rank: 1] Child process with PID 77 started", None),
            ("Child process with PID 77 terminated with code 1.", None),
        ] {
            let expected = end.map(|(rank, end)| LauncherReport::ended(Writer::ranked(rank), end));
            assert_eq!(read_all(&[&LIGHTNING], line).pop(), expected, "{line}");
        }
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
            assert_eq!(read_all(&[&SPAWNED], line).pop(), expected, "{line}");
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
