//! The words of mpirun: of Open MPI 3 to 5 (whose PRRTE writes almost the same), MPICH and Intel
//! MPI; and of horovodrun.

use super::report::{Form, LauncherReport, ReportedEnd, Stated, end_of, number};
use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};

pub const FORMS: [Form; 14] = [
    (
        r" process rank +([0-9]+).*? on node ([^ ]+).* exiting improperly",
        |_, words| {
            Some(LauncherReport::job(format!(
                "rank {} on {} was exiting improperly for mpirun: it did not call MPI_Init or \
             MPI_Finalize as the others did, or called MPI_Abort",
                &words[1], &words[2]
            )))
        },
    ),
    (
        r" process rank +([0-9]+).*? on node ([^ ]+).*? exited on signal +([0-9]+)",
        |stated, words| {
            stated.mpi.writer = Writer::ranked(number(words, 1)?);
            stated.mpi.host = Some(words[2].to_owned());
            ended(stated, ProcessEnd::killed(SignalNumber(number(words, 3)?)))
        },
    ),
    (r"Remote daemon: \[.*? on node (.*)", |_, words| {
        let host = words[1].trim();
        Some(LauncherReport::job(format!(
            "mpirun lost the connection to its daemon on {host}"
        )))
    }),
    (
        r"MPI_ABORT was invoked on rank +([0-9]+)|Process name: \[.*,([0-9]+)",
        |stated, words| {
            stated.mpi.writer.rank = number(words, 1).or(number(words, 2));
            None
        },
    ),
    (r"(?:RANK +([0-9]+).*)? RUNNING AT (.*)", |stated, words| {
        stated.mpi.writer.rank = number(words, 1);
        stated.mpi.host = Some(words[2].trim().to_owned());
        None
    }),
    (
        r"(?:Exit code:|with errorcode) +(-?[0-9]+)",
        |stated, words| {
            stated.mpi.writer.rank?;
            ended(stated, end_of(number(words, 1)?))
        },
    ),
    (r"EXIT STRING: .*?\(signal +([0-9]+)", |stated, words| {
        ended(stated, ProcessEnd::killed(SignalNumber(number(words, 1)?)))
    }),
    // the frame of Hydra, which is no line of a rank
    (r"^(?:={80,}|=   .*)$", |_, _| Some(LauncherReport::Closing)),
    // of Intel MPI, which reports the processes that it killed, but not all that exited before
    (r"^= +KILLED BY SIGNAL: +([0-9]+)", |stated, words| {
        let end = ProcessEnd::killed(SignalNumber(number(words, 1)?));
        stated.mpi.may_follow = end.signal == Some(SignalNumber::KILL);
        ended(stated, end)
    }),
    // of an MPI call whose error ends the job
    (
        r"\*\*\* reported by process \[[0-9]+,([0-9]+)\]",
        |_, words| {
            let rank = Writer::ranked(number(words, 1)?);
            Some(LauncherReport::ended(rank, ProcessEnd::exited(1)))
        },
    ),
    (r"^ssh: .*|.*: Permission denied \(.*", |stated, words| {
        words[0].clone_into(&mut stated.ssh);
        None
    }),
    (
        r"unable to reliably start one or more daemons",
        |stated, _| {
            let why = Some(&stated.ssh).filter(|why| !why.is_empty());
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            let text = format!("mpirun was unable to reliably start one or more daemons{why}");
            Some(LauncherReport::job(text))
        },
    ),
    (
        r"^Process ([0-9]+) exit with status code ([0-9]+)\.",
        |_, words| {
            let rank = Writer::ranked(number(words, 1)?);
            Some(LauncherReport::ended(rank, end_of(number(words, 2)?)))
        },
    ),
    // of MPICH, which writes the number of a signal here too
    (r"EXIT CODE: +(-?[0-9]+)", |stated, words| {
        let code = number(words, 1)?;
        let signal = SignalNumber(code);
        let is_signal = ["KILL", "TERM", "SEGV", "ABRT", "BUS"].contains(&&*signal.name());
        ended(
            stated,
            if is_signal {
                ProcessEnd::killed(signal)
            } else {
                end_of(code)
            },
        )
    }),
];

/// The longest message that mpirun wraps over several lines.
const MAX_MESSAGE: usize = 300;

/// The whole message about a rank, if this line completes it.
pub fn joined(stated: &mut Stated, line: &str) -> Option<String> {
    let joined = std::mem::take(&mut stated.wrapped) + line;
    let is_whole = joined.contains(" exiting improperly") || line.trim_end().ends_with('.');
    if !joined.contains(" process rank ") {
        return None;
    } else if is_whole || joined.len() >= MAX_MESSAGE {
        return Some(joined);
    }
    stated.wrapped = joined + " ";
    None
}

/// The end of the process that earlier lines named; its rank is known only in newer versions.
fn ended(stated: &mut Stated, end: ProcessEnd) -> Option<LauncherReport> {
    let named = std::mem::take(&mut stated.mpi);
    Some(LauncherReport::Process(ReportedEnd {
        end,
        is_first: true,
        ..named
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::report::read_all;

    #[test]
    fn daemons_that_do_not_start() {
        let ssh = "ssh: Could not resolve hostname w-0: Name or service not known";
        let daemons = "ORTE was unable to reliably start one or more daemons.";
        let reason = match read_all(&[&FORMS], &format!("{ssh}\n{daemons}")).pop() {
            Some(LauncherReport::Job { text, .. }) => text,
            _ => String::new(),
        };
        assert!(reason.ends_with(ssh), "{reason}");
        // the ssh of something else
        for line in [ssh, "h1: Permission denied (publickey)."] {
            assert_eq!(read_all(&[&FORMS], line), []);
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn ends_of_processes() {
        let killed = |number| ProcessEnd::killed(SignalNumber(number));
        let table = [
            (
                "mpirun noticed that process rank 3 with PID 0 on node h2 exited on signal 9 \
                 (Killed).",
                Some((Some(3), Some("h2"), killed(9))),
            ),
            (
                "prterun noticed that process rank 1 with PID 4711 on node h2 exited on signal 11 \
                 (Segmentation fault).",
                Some((Some(1), Some("h2"), killed(11))),
            ),
            (
                "  Process name: [[20462,1],2]\n  Exit code:    1",
                Some((Some(2), None, ProcessEnd::exited(1))),
            ),
            (
                "  Process name: [prterun-h2-77@1,3]\n  Exit code:    7",
                Some((Some(3), None, ProcessEnd::exited(7))),
            ),
            (
                "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 5.",
                Some((Some(2), None, ProcessEnd::exited(5))),
            ),
            (
                "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 77 RUNNING AT \
                 h2\n=   EXIT CODE: 9",
                Some((None, Some("h2"), killed(9))),
            ),
            ("=   RANK 3 PID 77 RUNNING AT h2\n=   EXIT STATUS: 9", None),
            (
                "=   RANK 3 PID 77 RUNNING AT h2\n=   KILLED BY SIGNAL: 9 (Killed)",
                Some((Some(3), Some("h2"), killed(9))),
            ),
            (
                "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)",
                { Some((None, None, killed(9))) },
            ),
            (
                "prterun noticed that process rank 1 with PID 15543 on node gpu1 exited on\nsignal \
                 9 (Killed).",
                Some((Some(1), Some("gpu1"), killed(9))),
            ),
            (
                "mpirun noticed that process rank 3 with PID 0 on\nnode h2 exited on signal 9 \
                 (Killed).",
                Some((Some(3), Some("h2"), killed(9))),
            ),
            (
                "[h1:91098] *** An error occurred in MPI_Recv\n[h1:91098] *** reported by process \
                 [3691035461,2]\n[h1:91098] *** MPI_ERR_TRUNCATE: message truncated",
                Some((Some(2), None, ProcessEnd::exited(1))),
            ),
            (
                "Process 2 exit with status code 1.",
                Some((Some(2), None, ProcessEnd::exited(1))),
            ),
            (
                "Process 0 exit with status code 137.",
                Some((Some(0), None, killed(9))),
            ),
            ("Process 2 exit with status code", None),
            ("rank of a process rank 3 is\nknown.", None),
            ("Exit code: 1", None),
            ("a process that runs at rank 3", None),
        ];
        for (text, expected) in table {
            let found = read_all(&[&FORMS], text).pop();
            let found = found.and_then(|report| match report {
                LauncherReport::Process(end) => Some((end.writer.rank, end.host, end.end)),
                _ => None,
            });
            let expected = expected.map(|(rank, host, end)| (rank, host.map(str::to_owned), end));
            assert_eq!(found, expected, "{text}");
        }
    }
}
