//! The words of mpirun: of Open MPI 3 to 5 (whose PRRTE writes almost the same), MPICH and Intel
//! MPI.

use super::report::{LauncherReport, ReportedEnd, end_of, number_after};
use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};

/// The longest message that mpirun wraps over several lines.
const MAX_MESSAGE: usize = 300;

/// What earlier lines stated.
#[derive(Default)]
pub struct Mpi {
    process: Option<u32>,
    host: Option<String>,
    /// A message about a rank, up to where it was wrapped.
    wrapped: String,
}

impl Mpi {
    pub fn read(&mut self, line: &str) -> Option<LauncherReport> {
        let joined = std::mem::take(&mut self.wrapped) + line;
        if let Some((_, rest)) = joined.split_once(" process rank ") {
            let is_whole = joined.contains(" exiting improperly") || line.trim_end().ends_with('.');
            if !is_whole && joined.len() < MAX_MESSAGE {
                self.wrapped = joined + " ";
                return None;
            }
            let host = rest.split_once(" on node ")?.1.split(' ').next()?;
            let rank = number_after(rest, "")?;
            if rest.contains(" exiting improperly") {
                let text = format!(
                    "rank {rank} on {host} was exiting improperly for mpirun: it did not call \
                     MPI_Init or MPI_Finalize as the others did, or called MPI_Abort"
                );
                return Some(LauncherReport::job(text));
            }
            let signal = number_after(rest, " exited on signal ")?;
            return self.end(rank, Some(host), ProcessEnd::killed(SignalNumber(signal)));
        }
        if let Some((_, host)) = line.split_once("Remote daemon: [")
            && let Some((_, host)) = host.split_once(" on node ")
        {
            let text = format!(
                "mpirun lost the connection to its daemon on {}",
                host.trim()
            );
            return Some(LauncherReport::job(text));
        }
        if let Some((_, rest)) = line.split_once("MPI_ABORT was invoked on rank ") {
            self.process = Some(number_after(rest, "")?);
            return None;
        }
        let line = line.trim_start_matches(['=', ' ']);
        if let Some((_, name)) = line.split_once("Process name: [") {
            self.process = number_after(name.trim_end_matches(']').rsplit_once(',')?.1, "");
        } else if let Some((process, host)) = line.split_once(" RUNNING AT ") {
            self.process = number_after(process, "RANK ");
            self.host = Some(host.trim().to_owned());
        } else if let Some(code) =
            number_after(line, "Exit code: ").or_else(|| number_after(line, "with errorcode "))
            && let Some(rank) = self.process.take()
        {
            return self.end(rank, None, end_of(code));
        } else if let Some((_, rest)) = line.split_once("EXIT STRING: ")
            && let Some(signal) = number_after(rest, "(signal ")
        {
            return Some(self.exit(ProcessEnd::killed(SignalNumber(signal))));
        } else if let Some(code) = number_after::<i32>(line, "EXIT CODE: ") {
            // of MPICH, which writes the number of a signal here too
            let signal = SignalNumber(code);
            let is_signal = ["KILL", "TERM", "SEGV", "ABRT", "BUS"].contains(&&*signal.name());
            let end = if is_signal {
                ProcessEnd::killed(signal)
            } else {
                end_of(code)
            };
            return Some(self.exit(end));
        }
        None
    }

    fn end(&mut self, rank: u32, host: Option<&str>, end: ProcessEnd) -> Option<LauncherReport> {
        let host = host.map(str::to_owned).or(self.host.take());
        Some(LauncherReport::Process(ReportedEnd {
            writer: Writer::ranked(rank),
            host,
            end,
            is_first: true,
            is_task: false,
        }))
    }

    /// The end of a process whose rank is known only in newer versions.
    fn exit(&mut self, end: ProcessEnd) -> LauncherReport {
        let writer = self.process.take().map(Writer::ranked);
        LauncherReport::Process(ReportedEnd {
            writer: writer.unwrap_or_default(),
            host: self.host.take(),
            end,
            is_first: true,
            is_task: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("rank of a process rank 3 is\nknown.", None),
            ("Exit code: 1", None),
            ("a process that runs at rank 3", None),
        ];
        for (text, expected) in table {
            let mut mpi = Mpi::default();
            let found = text.lines().filter_map(|line| mpi.read(line)).last();
            let found = found.and_then(|report| match report {
                LauncherReport::Process(end) => Some((end.writer.rank, end.host, end.end)),
                _ => None,
            });
            let expected = expected.map(|(rank, host, end)| (rank, host.map(str::to_owned), end));
            assert_eq!(found, expected, "{text}");
        }
    }
}
