//! The history that the logs of a job show, with the processes that failed first in front.

use super::report::ReportedEnd;
use super::{LogEnd, LogProcess, Logs};
use crate::account::{self, Echo};
use crate::job::{JobEnd, JobHistory, ProcessHistory};
use evidence::marks::Writer;
use evidence::{Evidence, Statement, StatementKind};
use record::exit::{ProcessEnd, SignalNumber};
use record::{Exited, IpAddr, Process, Role};

/// The ranks of processes whose rank is unknown begin here.
const UNKNOWN_RANK: u32 = 1 << 30;

/// How the lines begin that launchers write around the end of a job. They are not a process's last
/// line.
const LAUNCHER_LINES: [&str; 24] = [
    " ",
    "Traceback",
    "torch.distributed.elastic",
    "WARNING:torch.distributed",
    "ERROR:torch.distributed",
    "====",
    "----",
    "****",
    "Failures:",
    "Root Cause",
    "[0]:",
    "[1]:",
    "srun: ",
    "slurmstepd: ",
    "Primary job  terminated",
    "a non-zero exit code",
    "the job to be terminated.",
    "mpirun ",
    "mpiexec ",
    "prterun ",
    "W0",
    "W1",
    "E0",
    "E1",
];

fn is_launcher_line(line: &str) -> bool {
    line.trim().is_empty()
        || LAUNCHER_LINES.iter().any(|begin| line.starts_with(begin))
        || line.ends_with(" FAILED")
        || line.contains("%|")
}

/// Whether torchrun or accelerate raised it because a process of theirs failed.
fn is_of_launcher(statement: &Statement) -> bool {
    let head = statement.head();
    head.starts_with("torch.distributed.elastic.multiprocessing")
        || head.starts_with("subprocess.CalledProcessError")
            && [
                "accelerate/commands",
                "torch/distributed/launch",
                "deepspeed/launcher",
            ]
            .iter()
            .any(|place| statement.is_in(place))
}

impl Logs {
    pub fn history(mut self) -> JobHistory {
        let cause = |end: &ProcessEnd| end.signal != Some(SignalNumber::TERM);
        for process in &mut self.processes {
            process.evidence.retain(|statement| {
                // of a traceback that others have cut, the exception may be missing
                statement.lines().next().is_some() && !is_of_launcher(statement)
            });
            process
                .evidence
                .retain_last_lines(|line| !is_launcher_line(line));
            if let Some(end) = &mut process.end {
                let end = &mut end.reported.end;
                let is_kill = end.signal == Some(SignalNumber::KILL) || end.code == Some(137);
                end.oom |= self.is_out_of_memory && is_kill;
            }
        }
        let has_cause = self
            .failed()
            .any(|process| cause(&process.end_or_unknown()))
            || self
                .processes
                .iter()
                .any(|process| is_last_word(&process.evidence, false));
        for end in self
            .processes
            .iter_mut()
            .filter_map(|process| process.end.as_mut())
        {
            end.while_ending |= has_cause && !cause(&end.reported.end);
        }
        self.give_unmarked_lines();
        self.find_unreported_ends();
        let are_named = self
            .processes
            .iter()
            .any(|process| process.writer != Writer::default());
        self.processes.retain(|process| {
            let is_known = process.end.is_some() || !process.evidence.statements().is_empty();
            let has_lines = process.evidence.count > 0;
            is_known || has_lines && (process.writer != Writer::default() || !are_named)
        });
        self.processes.sort_by_key(LogProcess::order);
        let mut job = JobHistory::default();
        if self.is_out_of_memory && self.failed().all(|process| !process.end_or_unknown().oom) {
            let text = "the kernel killed a process because memory ran out: it had reached the \
                        limit of a container or of a batch job";
            self.job_end.get_or_insert((text.to_owned(), false));
        }
        job.ended_by = self
            .job_end
            .map(|(text, is_request)| JobEnd { text, is_request });
        let count = self.processes.len();
        let histories = self.processes.into_iter().zip(0..);
        job.processes = histories
            .map(|(process, id)| process.history(id, count))
            .collect();
        job
    }

    /// The processes that a launcher saw fail by themselves.
    fn failed(&self) -> impl Iterator<Item = &LogProcess> {
        let is_own = |end: &LogEnd| !end.while_ending;
        self.processes
            .iter()
            .filter(move |process| process.end.as_ref().is_some_and(is_own))
    }

    /// Gives lines without a mark to the only process that failed and has no other lines, if one
    /// process can have written them.
    fn give_unmarked_lines(&mut self) {
        let position = |process: &LogProcess| process.writer == Writer::default();
        let Some(unmarked) = self.processes.iter().position(position) else {
            return;
        };
        let evidence = &self.processes[unmarked].evidence;
        let named: Vec<&LogProcess> = self
            .failed()
            .filter(|process| process.writer != Writer::default())
            .collect();
        let mut quiet = named
            .iter()
            .filter(|process| process.evidence.statements().is_empty());
        let (first, others) = (quiet.next(), quiet.next());
        let taker = quiet_first(first.copied(), &named);
        let signal = taker.and_then(|process| process.end_or_unknown().signal);
        let died = |statement: &Statement| {
            matches!(statement.kind, StatementKind::Died | StatementKind::Stacks)
        };
        let (can_take, only_died) = match signal {
            Some(SignalNumber::KILL | SignalNumber::TERM) => (false, false),
            Some(_) => (evidence.statements().into_iter().any(died), true),
            None => (is_of_one(evidence, others.is_some()), false),
        };
        // the end that a shell reported is that of the process which the launcher names
        let is_reported = !named.is_empty();
        let taker = taker
            .map(|process| process.writer.clone())
            .filter(|_| can_take);
        let evidence = match (&taker, only_died) {
            (None, _) => None,
            (Some(_), true) => {
                let mut own = evidence.clone();
                own.retain(died);
                Some(own)
            }
            (Some(_), false) => Some(std::mem::take(&mut self.processes[unmarked].evidence)),
        };
        if is_reported {
            self.processes[unmarked].end = None;
        }
        let taker = self
            .processes
            .iter_mut()
            .find(|process| Some(&process.writer) == taker.as_ref());
        if let Some((taker, evidence)) = taker.zip(evidence) {
            taker.evidence = evidence;
        }
    }

    /// If no launcher saw a failure, a process has failed whose last statement is about its end.
    /// Lines without a known writer that precede another process's failure count too.
    fn find_unreported_ends(&mut self) {
        let has_failed = self.failed().next().is_some();
        let explained = self.failed().any(|process| {
            let end = process.end_or_unknown();
            let mut stated = process.evidence.statements().into_iter();
            end.signal.is_some() || stated.any(|one| account::echo(one.lines()) == Echo::None)
        });
        if self.job_end.is_some() {
            return;
        }
        for process in &mut self.processes {
            let is_unmarked = process.writer == Writer::default();
            let wanted = if has_failed {
                is_unmarked && !explained
            } else {
                true
            };
            if wanted && process.end.is_none() && is_last_word(&process.evidence, has_failed) {
                process.end = Some(LogEnd {
                    reported: ReportedEnd::default(),
                    order: 0,
                    while_ending: false,
                });
            }
        }
    }
}

/// The process that lines without a mark may belong to.
fn quiet_first<'a>(
    quiet: Option<&'a LogProcess>,
    named: &[&'a LogProcess],
) -> Option<&'a LogProcess> {
    let is_first = |process: &&&LogProcess| {
        process
            .end
            .as_ref()
            .is_some_and(|end| end.reported.is_first)
            && process.evidence.statements().is_empty()
    };
    named.iter().find(is_first).copied().or(quiet)
}

/// Whether these statements can be of one process: all have the same cause, or at most one has a
/// cause of its own and none is about a lost peer.
fn is_of_one(evidence: &Evidence, are_several: bool) -> bool {
    let all = evidence.statements();
    let stated = all
        .iter()
        .filter(|one| one.is_raised() || one.kind == StatementKind::Died);
    let mut causes: Vec<&[String]> = stated.clone().map(|statement| statement.cause()).collect();
    causes.dedup();
    let echoes = stated.map(|statement| account::echo(statement.lines()));
    let own = echoes.clone().filter(|echo| *echo == Echo::None).count();
    let has_peer = echoes.clone().any(|echo| echo == Echo::Peer);
    causes.len() < 2 || !(are_several || has_peer && own > 0 || own > 1)
}

/// Whether the process wrote about its end and nothing after that. If a launcher saw a failure,
/// other processes' lines may follow.
fn is_last_word(evidence: &Evidence, has_failed: bool) -> bool {
    let last = evidence
        .last_statement(|statement| statement.is_raised() || statement.kind == StatementKind::Died);
    last.is_some_and(|last| {
        if has_failed {
            account::is_late(evidence, last)
        } else {
            !evidence.continued_after(last)
        }
    })
}

impl LogProcess {
    fn end_or_unknown(&self) -> ProcessEnd {
        self.end
            .as_ref()
            .map(|end| end.reported.end)
            .unwrap_or_default()
    }

    /// First the processes that a signal ended, because that is a cause by itself; then lines
    /// without a known writer; then the processes that the launcher saw first.
    fn order(&self) -> (u8, bool, usize) {
        let is_unmarked = self.writer == Writer::default();
        match &self.end {
            None => (4, false, 0),
            Some(end) if end.while_ending => (3, false, end.order),
            Some(end) if end.reported.end.signal.is_some() => {
                (0, !end.reported.is_first, end.order)
            }
            Some(_) if is_unmarked => (1, false, 0),
            Some(end) => (2, !end.reported.is_first, end.order),
        }
    }

    fn name(&self, count: usize) -> String {
        let name = match (&self.writer.place, self.writer.rank, self.writer.local_rank) {
            (_, Some(rank), _) => format!("rank {rank}"),
            (Some(place), _, Some(local_rank)) => format!("local rank {local_rank} of {place}"),
            (None, _, Some(local_rank)) => format!("local rank {local_rank}"),
            (Some(place), ..) => place.clone(),
            (None, ..) if count == 1 => "the program".to_owned(),
            (None, ..) => "a process whose lines have no mark".to_owned(),
        };
        match &self.host {
            Some(host) if self.writer.place.as_ref() != Some(host) => format!("{name} on {host}"),
            _ => name,
        }
    }

    fn history(self, id: u32, count: usize) -> ProcessHistory {
        let rank = self.writer.rank.unwrap_or(UNKNOWN_RANK + id);
        let name = self.name(count);
        let process = Process::new(id, 0, IpAddr::default(), Role::Worker, rank);
        let mut history = ProcessHistory::new(process);
        history.life.exited = self.end.map(|end| Exited {
            id,
            host: 0,
            role: Role::Worker,
            rank,
            end: end.reported.end,
            elapsed_ms: 0,
            cpu_s: None,
            max_rss_bytes: None,
            while_ending: end.while_ending,
        });
        history.evidence = self.evidence;
        history.name = Some(name);
        history.log = Some(self.file);
        history
    }
}
